//! Leaves → chunks → packs → transactions.
//!
//! * A raw chunk of a page class of its own goes from the source's memory to the database page
//!   as it is. What remains of a leaf fills up packs that leaves share.
//! * Payload is committed in waves that redb writes once. Packs of a wave belong to no step until
//!   the step's own transaction raises the mark over them.

use crate::codec::{self, ChunkId, Compression, Digest};
use crate::db::{WAVE_BYTES, WriteTx};
use crate::error::{Error, Result};
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_PACK_BYTES, MIN_OWN_PACK_BYTES, PACK_OVERHEAD_BYTES};
use crate::path::KeyPath;
use crate::record::{LeafRecord, PackRange, StoredChunk};
use crate::shape::boxes;
use crate::tree::{LeafMeta, LeafSource};

/// The raw size of a chunk that is to be compressed: small enough that a part of a leaf is cheap
/// to read, large enough for LZ4's window.
const COMPRESSED_CHUNK_BYTES: usize = 256 << 10;

/// The pack that compressed chunks share.
const COMPRESSED_PACK_BYTES: usize = (1 << 20) - PACK_OVERHEAD_BYTES;

/// A gap at the end of a shared pack that is not worth a chunk.
const SMALLEST_PART_BYTES: usize = 4096;

/// What was packed.
#[derive(Default)]
pub(super) struct Packed {
    /// Encoded paths and leaf records.
    pub(super) leaves: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) chunk_count: u64,
    pub(super) logical_bytes: u64,
    pub(super) stored_bytes: u64,
    pub(super) packs: PackRange,
    pub(super) digest: [u8; 16],
}

pub(super) struct Packer<'d> {
    tx: WriteTx<'d>,
    step: u64,
    compression: Compression,
    /// Payload in `tx` so far, in bytes of pages.
    wave_bytes: usize,
    shared: SharedPack,
    shared_pack_bytes: usize,
    scratch: Vec<u8>,
    /// Encoded paths and leaf records; the pack of a chunk that is still collected is not known.
    leaves: Vec<(Vec<u8>, LeafRecord)>,
    digest: Digest,
    packed: Packed,
}

/// A pack that chunks are collected in. It gets its number when it is written, since the database
/// takes ascending numbers fastest.
#[derive(Default)]
struct SharedPack {
    bytes: Vec<u8>,
    /// The chunks in it, as indices of leaf and chunk.
    members: Vec<(usize, usize)>,
}

impl<'d> Packer<'d> {
    /// A packer for `step` that numbers packs from `first_pack` on, which are all free.
    pub(super) fn new(
        tx: WriteTx<'d>,
        step: u64,
        first_pack: u64,
        compression: Compression,
    ) -> Self {
        Self {
            tx,
            step,
            compression,
            wave_bytes: 0,
            shared: SharedPack::default(),
            shared_pack_bytes: match compression {
                Compression::None => MIN_OWN_PACK_BYTES,
                Compression::Lz4 => COMPRESSED_PACK_BYTES,
            },
            scratch: Vec::new(),
            leaves: Vec::new(),
            digest: Digest::default(),
            packed: Packed {
                packs: PackRange {
                    first: first_pack,
                    count: 0,
                },
                ..Packed::default()
            },
        }
    }

    /// Packs one leaf.
    pub(super) fn add_leaf(
        &mut self,
        path: &KeyPath,
        meta: &LeafMeta,
        source: &dyn LeafSource,
    ) -> Result<()> {
        let size_bytes = meta.size_bytes()?;
        let encoded = path.encode();
        let contents = source.borrow(path);
        if let Some(contents) = contents
            && contents.len() != size_bytes
        {
            return Err(Error::invalid(format!(
                "the source gives {} bytes for {meta}, expected {size_bytes}",
                contents.len()
            )));
        }
        self.leaves.push((
            encoded.clone(),
            LeafRecord {
                meta: meta.clone(),
                chunks: Vec::new(),
            },
        ));
        let (mut start, mut index) = (0, 0);
        while start < size_bytes {
            let end = start + self.chunk_len(size_bytes - start);
            let id = ChunkId {
                path: &encoded,
                shard: 0,
                index,
                dtype: meta.dtype,
            };
            match contents.and_then(|contents| contents.get(start..end)) {
                Some(raw) => self.add_chunk(id, raw)?,
                None => {
                    let mut raw = std::mem::take(&mut self.scratch);
                    read_run(source, path, meta, start..end, &mut raw)?;
                    self.add_chunk(id, &raw)?;
                    self.scratch = raw;
                }
            }
            start = end;
            index += 1;
        }
        self.digest_last_leaf();
        Ok(())
    }

    /// Ends the packing: writes what is still collected, and hands over the open transaction for
    /// the step's own rows.
    pub(super) fn finish(mut self) -> Result<(WriteTx<'d>, Packed)> {
        self.write_shared()?;
        let mut packed = self.packed;
        packed.digest = self.digest.finish();
        packed.leaves = self
            .leaves
            .into_iter()
            .map(|(path, record)| {
                let encoded = record.encode(self.step, &path)?;
                Ok((path, encoded))
            })
            .collect::<Result<_>>()?;
        Ok((self.tx, packed))
    }

    /// The raw size of the next chunk of a leaf of which `rest` bytes are left.
    fn chunk_len(&self, rest: usize) -> usize {
        if self.compression != Compression::None {
            return rest.min(COMPRESSED_CHUNK_BYTES);
        }
        if rest >= MIN_OWN_PACK_BYTES {
            return own_pack_bytes(rest);
        }
        let room = self.shared.room(self.shared_pack_bytes);
        if rest <= room || room < SMALLEST_PART_BYTES {
            rest
        } else {
            room
        }
    }

    /// Packs the next chunk of the last leaf.
    fn add_chunk(&mut self, id: ChunkId<'_>, raw: &[u8]) -> Result<()> {
        let (info, stored) = codec::encode(id, raw, self.compression);
        self.packed.chunk_count += 1;
        self.packed.logical_bytes += u64::from(info.raw_len);
        self.packed.stored_bytes += u64::from(info.stored_len);
        let mut chunk = StoredChunk {
            pack: 0,
            offset: 0,
            info,
        };
        if self.compression == Compression::None && stored.len() >= MIN_OWN_PACK_BYTES {
            chunk.pack = self.write_pack(&stored)?;
        } else {
            chunk.offset = self.collect(&stored)?;
        }
        if let Some((_, leaf)) = self.leaves.last_mut() {
            leaf.chunks.push(chunk);
        }
        Ok(())
    }

    /// Adds the next chunk of the last leaf to the shared pack, and begins another pack where
    /// that is full. Returns the offset in the pack.
    fn collect(&mut self, stored: &[u8]) -> Result<u32> {
        if stored.len() > self.shared.room(self.shared_pack_bytes) {
            self.write_shared()?;
        }
        let aligned = self.shared.bytes.len().next_multiple_of(CHUNK_ALIGN_BYTES);
        self.shared.bytes.resize(aligned, 0);
        self.shared.bytes.extend_from_slice(stored);
        let leaf = self.leaves.len().saturating_sub(1);
        let chunk = self.leaves.last().map_or(0, |(_, leaf)| leaf.chunks.len());
        self.shared.members.push((leaf, chunk));
        // A pack is far below 4 GiB.
        Ok(u32::try_from(aligned).unwrap_or(u32::MAX))
    }

    /// Writes the shared pack, and tells its number to the chunks in it.
    fn write_shared(&mut self) -> Result<()> {
        let full = std::mem::take(&mut self.shared);
        if full.members.is_empty() {
            return Ok(());
        }
        let number = self.write_pack(&full.bytes)?;
        for (leaf, chunk) in &full.members {
            let leaf = self.leaves.get_mut(*leaf);
            if let Some(chunk) = leaf.and_then(|(_, leaf)| leaf.chunks.get_mut(*chunk)) {
                chunk.pack = number;
            }
        }
        let SharedPack {
            mut bytes,
            mut members,
        } = full;
        bytes.clear();
        members.clear();
        self.shared = SharedPack { bytes, members };
        Ok(())
    }

    /// Writes a pack under the next number, in a new wave if this one is full.
    fn write_pack(&mut self, bytes: &[u8]) -> Result<u64> {
        debug_assert!(bytes.len() <= MAX_PACK_BYTES);
        let page_bytes = (bytes.len() + PACK_OVERHEAD_BYTES).next_power_of_two();
        if self.wave_bytes > 0 && self.wave_bytes + page_bytes > WAVE_BYTES {
            self.tx.commit_wave()?;
            self.wave_bytes = 0;
        }
        let number = self.packed.packs.first + self.packed.packs.count;
        self.tx.insert_pack(number, bytes)?;
        self.packed.packs.count += 1;
        self.wave_bytes += page_bytes;
        Ok(number)
    }

    fn digest_last_leaf(&mut self) {
        let Some((path, record)) = self.leaves.last() else {
            return;
        };
        self.digest.update(path);
        self.digest
            .update(&[record.meta.kind.code(), record.meta.dtype.code()]);
        for length in record.meta.shape.lengths() {
            self.digest
                .update(&u64::try_from(*length).unwrap_or(u64::MAX).to_le_bytes());
        }
        for chunk in &record.chunks {
            self.digest.update(&chunk.info.hash);
        }
    }
}

impl SharedPack {
    /// How many bytes the next chunk can have.
    fn room(&self, capacity: usize) -> usize {
        capacity.saturating_sub(self.bytes.len().next_multiple_of(CHUNK_ALIGN_BYTES))
    }
}

/// The largest pack that fills its page and has at most `rest` bytes, which are at least
/// [`MIN_OWN_PACK_BYTES`].
fn own_pack_bytes(rest: usize) -> usize {
    let page_bytes = 1usize << (rest.min(MAX_PACK_BYTES) + PACK_OVERHEAD_BYTES).ilog2();
    page_bytes - PACK_OVERHEAD_BYTES
}

/// Reads the bytes `run` of a leaf from a source that doesn't have it in memory.
fn read_run(
    source: &dyn LeafSource,
    path: &KeyPath,
    meta: &LeafMeta,
    run: std::ops::Range<usize>,
    raw: &mut Vec<u8>,
) -> Result<()> {
    raw.resize(run.len(), 0);
    let element_bytes = meta.dtype.size_bytes();
    let elements = run.start / element_bytes..run.end / element_bytes;
    let mut rest = &mut raw[..];
    for region in boxes(&meta.shape, elements) {
        let (out, after) = rest.split_at_mut(region.elements() * element_bytes);
        source.read_region(path, &region, out)?;
        rest = after;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packs_fill_their_pages() {
        assert_eq!(own_pack_bytes(MIN_OWN_PACK_BYTES), MIN_OWN_PACK_BYTES);
        assert_eq!(own_pack_bytes(2 * MIN_OWN_PACK_BYTES), MIN_OWN_PACK_BYTES);
        assert_eq!(own_pack_bytes((1 << 20) - 16), (1 << 20) - 16);
        assert_eq!(own_pack_bytes((1 << 20) - 17), (512 << 10) - 16);
        assert_eq!(own_pack_bytes(1 << 30), MAX_PACK_BYTES);
    }
}
