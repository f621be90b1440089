//! Leaves → chunks: which runs of which leaves make up the chunks of a step, in the order in
//! which they are written, batch by batch.
//!
//! A raw leaf is cut into chunks that fill page classes of their own, largest first; what remains
//! shares packs with other leaves and is cut where such a pack is full.

use std::ops::Range;

use crate::codec::Compression;
use crate::error::{Error, Result};
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_PACK_BYTES, MIN_OWN_PACK_BYTES, PACK_OVERHEAD_BYTES};

/// The raw size of a chunk that is to be compressed: small enough that a part of a leaf is cheap
/// to read, large enough for LZ4's window.
const COMPRESSED_CHUNK_BYTES: usize = 256 << 10;

/// The pack that compressed chunks share.
const COMPRESSED_PACK_BYTES: usize = MAX_PACK_BYTES;

/// A gap at the end of a shared pack that is not worth a chunk.
const SMALLEST_PART_BYTES: usize = 4096;

/// The raw bytes that are encoded while the batch before is written.
const BATCH_BYTES: usize = 8 << 20;

/// One chunk to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedChunk {
    /// The number of the leaf, in the order of the leaves.
    pub(super) leaf: usize,
    /// The number of the chunk within its leaf.
    pub(super) index: u32,
    /// The raw bytes of the leaf.
    pub(super) run: Range<usize>,
    pub(super) placement: Placement,
}

/// Where a chunk goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Placement {
    /// It is a pack.
    OwnPack,
    /// It is collected in a pack with others.
    SharedPack,
}

/// The capacity of a shared pack.
pub(super) fn shared_pack_bytes(compression: Compression) -> usize {
    match compression {
        Compression::None => MIN_OWN_PACK_BYTES,
        _ => COMPRESSED_PACK_BYTES,
    }
}

/// The chunks of a step.
pub(super) struct Planner<'l> {
    leaf_bytes: &'l [usize],
    compression: Compression,
    leaf: usize,
    offset: usize,
    index: u32,
    /// How full the shared pack is, while chunks are as long stored as raw.
    shared_bytes: usize,
}

impl<'l> Planner<'l> {
    /// A planner for leaves of these sizes.
    pub(super) fn new(leaf_bytes: &'l [usize], compression: Compression) -> Self {
        Self { leaf_bytes, compression, leaf: 0, offset: 0, index: 0, shared_bytes: 0 }
    }

    /// The next chunks, together at most [`BATCH_BYTES`] and at least one; none at the end.
    pub(super) fn next_batch(&mut self) -> Result<Vec<PlannedChunk>> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while let Some(size) = self.leaf_bytes.get(self.leaf) {
            if self.offset == *size {
                self.leaf += 1;
                self.offset = 0;
                self.index = 0;
                continue;
            }
            let (length, placement) = self.next_chunk(size - self.offset);
            if !batch.is_empty() && bytes + length > BATCH_BYTES {
                break;
            }
            let run = self.offset..self.offset + length;
            batch.push(PlannedChunk { leaf: self.leaf, index: self.index, run, placement });
            if placement == Placement::SharedPack {
                self.fill_shared(length);
            }
            bytes += length;
            self.offset += length;
            self.index = self
                .index
                .checked_add(1)
                .ok_or_else(|| Error::invalid("the leaf has more than 2^32 chunks"))?;
        }
        Ok(batch)
    }

    /// The length and placement of the next chunk of a leaf of which `rest` bytes are left.
    fn next_chunk(&self, rest: usize) -> (usize, Placement) {
        if self.compression != Compression::None {
            return (rest.min(COMPRESSED_CHUNK_BYTES), Placement::SharedPack);
        }
        if rest >= MIN_OWN_PACK_BYTES {
            return (own_pack_bytes(rest), Placement::OwnPack);
        }
        let room = room(self.shared_bytes, MIN_OWN_PACK_BYTES);
        let length = if rest <= room || room < SMALLEST_PART_BYTES { rest } else { room };
        (length, Placement::SharedPack)
    }

    fn fill_shared(&mut self, length: usize) {
        let begins_another = length > room(self.shared_bytes, MIN_OWN_PACK_BYTES);
        let before = if begins_another { 0 } else { self.shared_bytes };
        self.shared_bytes = before.next_multiple_of(CHUNK_ALIGN_BYTES) + length;
    }
}

/// How many bytes the next chunk in a shared pack with `bytes` in it can have.
pub(super) fn room(bytes: usize, capacity: usize) -> usize {
    capacity.saturating_sub(bytes.next_multiple_of(CHUNK_ALIGN_BYTES))
}

/// The largest pack that fills its page and has at most `rest` bytes, which are at least
/// [`MIN_OWN_PACK_BYTES`].
fn own_pack_bytes(rest: usize) -> usize {
    let page_bytes = 1usize << (rest.min(MAX_PACK_BYTES) + PACK_OVERHEAD_BYTES).ilog2();
    page_bytes - PACK_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn plan(leaf_bytes: &[usize], compression: Compression) -> Vec<PlannedChunk> {
        let mut planner = Planner::new(leaf_bytes, compression);
        let mut chunks = Vec::new();
        loop {
            match planner.next_batch().unwrap() {
                batch if batch.is_empty() => return chunks,
                batch => chunks.extend(batch),
            }
        }
    }

    proptest! {
        #[test]
        fn the_chunks_are_the_leaves(
            leaf_bytes in prop::collection::vec(
                prop_oneof![0usize..100, 0usize..300_000, 0usize..20_000_000], 0..20),
            lz4: bool,
        ) {
            let compression = if lz4 { Compression::Lz4 } else { Compression::None };
            let mut ends = vec![0; leaf_bytes.len()];
            let mut counts = vec![0; leaf_bytes.len()];
            for chunk in plan(&leaf_bytes, compression) {
                prop_assert_eq!(chunk.run.start, ends[chunk.leaf]);
                prop_assert_eq!(chunk.index, counts[chunk.leaf]);
                prop_assert!(!chunk.run.is_empty() && chunk.run.len() <= MAX_PACK_BYTES);
                // Elements of every type lie whole in a chunk, and shared packs are not overfull.
                prop_assert!(chunk.run.start.is_multiple_of(CHUNK_ALIGN_BYTES));
                if chunk.placement == Placement::SharedPack {
                    prop_assert!(chunk.run.len() <= shared_pack_bytes(compression));
                } else {
                    prop_assert!((chunk.run.len() + PACK_OVERHEAD_BYTES).is_power_of_two());
                }
                ends[chunk.leaf] = chunk.run.end;
                counts[chunk.leaf] += 1;
            }
            prop_assert_eq!(ends, leaf_bytes);
        }
    }

    #[test]
    fn own_packs_fill_their_pages() {
        assert_eq!(own_pack_bytes(MIN_OWN_PACK_BYTES), MIN_OWN_PACK_BYTES);
        assert_eq!(own_pack_bytes(2 * MIN_OWN_PACK_BYTES), MIN_OWN_PACK_BYTES);
        assert_eq!(own_pack_bytes((256 << 10) - 16), (256 << 10) - 16);
        assert_eq!(own_pack_bytes((256 << 10) - 17), (128 << 10) - 16);
        assert_eq!(own_pack_bytes(1 << 30), MAX_PACK_BYTES);
    }

    #[test]
    fn what_remains_of_leaves_fills_shared_packs() {
        let chunks = plan(&[100_000, 100_000], Compression::None);
        let lengths: Vec<usize> = chunks.iter().map(|chunk| chunk.run.len()).collect();
        assert_eq!(lengths, [100_000, MIN_OWN_PACK_BYTES - 100_000, 200_000 - MIN_OWN_PACK_BYTES]);
    }
}
