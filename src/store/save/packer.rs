//! Chunks → packs → transactions.
//!
//! * A chunk that fills a page goes from the memory that it is in to the database page as it is. Other
//!   chunks are collected in packs that they share.
//! * Payload is committed in waves that redb writes once. Packs of a wave belong to no step until
//!   the step's own transaction raises the mark over them.
//! * While one batch of chunks is written, the next one is encoded on other threads.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;

use super::chunk::{Batches, EncodedChunk, Encoder, Sharing, Stored};
use super::encoding::encode_beside;
use super::plan::{fills_pack, page_bytes, shared_pack_bytes};
use super::reuse::LastStep;
use super::shared_pack::{SharedPack, SharedPacks};
use crate::db::{WAVE_BYTES, WriteTx};
use crate::error::Result;
use crate::limits::MAX_PACK_BYTES;
use crate::record::{LeafRecord, PackRange, StoredChunk};
use crate::store::totals::Totals;

/// What was packed.
pub(super) struct Packed<'d> {
    /// The open transaction, for the step's own rows.
    pub(super) tx: WriteTx<'d>,
    /// Encoded paths and leaf records.
    pub(super) rows: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) totals: Totals,
    /// The new packs.
    pub(super) packs: PackRange,
    /// The packs of earlier steps that this one uses too.
    pub(super) reused_packs: BTreeSet<u64>,
    pub(super) counts: Counts,
    /// What the next save can reuse.
    pub(super) last: LastStep,
}

/// What became of the chunks of a save.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Counts {
    pub(super) new_chunks: u64,
    /// Stored bytes.
    pub(super) new_bytes: u64,
    pub(super) reused_chunks: u64,
    /// Raw bytes.
    pub(super) reused_bytes: u64,
}

/// Where packs go: those from `first_pack` on are free.
pub(super) struct Target<'d> {
    pub(super) step: u64,
    pub(super) tx: WriteTx<'d>,
    pub(super) first_pack: u64,
}

/// Writes all chunks of `batches`.
pub(super) fn pack<'d>(
    encoder: Encoder<'_>,
    batches: &mut dyn Batches<'_>,
    target: Target<'d>,
    threads: NonZeroUsize,
) -> Result<Packed<'d>> {
    let mut packer = Packer::new(target, encoder.leaves.len());
    let mut ready = Vec::new();
    loop {
        let batch = batches.next()?;
        if batch.is_empty() {
            packer.write(ready, batches)?;
            return packer.finish(encoder, batches);
        }
        let (written, next) =
            encode_beside(encoder, batch, threads, || packer.write(ready, batches));
        written?;
        ready = match next {
            Ok(next) => next?,
            Err(panic) => {
                // The source panicked. The transaction ends in peace before that goes on.
                drop(packer);
                resume_unwind(panic)
            }
        };
    }
}

/// Writes chunks in their order.
struct Packer<'d> {
    step: u64,
    tx: WriteTx<'d>,
    /// Payload in `tx` so far, in bytes of pages.
    wave_bytes: usize,
    packs: PackRange,
    reused_packs: BTreeSet<u64>,
    counts: Counts,
    /// The packs that chunks share, by kind.
    shared: [(Sharing, SharedPacks<(usize, usize)>); 4],
    leaves: Vec<PackedLeaf>,
}

/// The chunks of a leaf so far; the place of a chunk that is still collected is not known.
#[derive(Default, Clone)]
struct PackedLeaf {
    chunks: Vec<StoredChunk>,
    /// Whether any of them is new.
    changed: bool,
}

impl<'d> Packer<'d> {
    fn new(target: Target<'d>, leaves: usize) -> Self {
        Self {
            step: target.step,
            tx: target.tx,
            wave_bytes: 0,
            packs: PackRange { first: target.first_pack, count: 0 },
            reused_packs: BTreeSet::new(),
            counts: Counts::default(),
            shared: Sharing::ALL
                .map(|sharing| (sharing, SharedPacks::new(shared_pack_bytes(sharing.compressed)))),
            leaves: vec![PackedLeaf::default(); leaves],
        }
    }

    fn write(&mut self, batch: Vec<EncodedChunk<'_>>, batches: &mut dyn Batches<'_>) -> Result<()> {
        for EncodedChunk { leaf, sharing, stored } in batch {
            let (chunk, changed) = match stored {
                Stored::Unchanged(chunk) => (self.reuse(chunk), false),
                Stored::New(info, bytes) => {
                    let pack = self.place(leaf, sharing, bytes.as_slice())?;
                    (StoredChunk { pack, offset: 0, info }, true)
                }
            };
            let Some(leaf_so_far) = self.leaves.get_mut(leaf) else { continue };
            leaf_so_far.chunks.push(chunk);
            if changed && !leaf_so_far.changed {
                leaf_so_far.changed = true;
                batches.changed(leaf);
            }
        }
        Ok(())
    }

    fn reuse(&mut self, chunk: StoredChunk) -> StoredChunk {
        self.counts.reused_chunks += 1;
        self.counts.reused_bytes += u64::from(chunk.info.raw_len);
        self.reused_packs.insert(chunk.pack);
        chunk
    }

    /// Writes the stored bytes of the next chunk of a leaf as a pack, and returns its number; or
    /// collects them: then their place is told later.
    fn place(&mut self, leaf: usize, sharing: Sharing, stored: &[u8]) -> Result<u64> {
        self.counts.new_chunks += 1;
        self.counts.new_bytes += u64::try_from(stored.len()).unwrap_or(u64::MAX);
        if fills_pack(stored.len()) {
            return self.write_pack(stored);
        }
        let chunk = self.leaves.get(leaf).map_or(0, |leaf| leaf.chunks.len());
        let packs = self.shared.iter_mut().find(|packs| packs.0 == sharing);
        if let Some(full) = packs.and_then(|packs| packs.1.push((leaf, chunk), stored)) {
            self.write_shared(full)?;
        }
        Ok(0)
    }

    /// Writes a shared pack, and tells the chunks in it where they are.
    fn write_shared(&mut self, pack: SharedPack<(usize, usize)>) -> Result<()> {
        let number = self.write_pack(pack.bytes())?;
        for ((leaf, chunk), offset) in pack.into_members() {
            let leaf = self.leaves.get_mut(leaf);
            if let Some(chunk) = leaf.and_then(|leaf| leaf.chunks.get_mut(chunk)) {
                (chunk.pack, chunk.offset) = (number, offset);
            }
        }
        Ok(())
    }

    /// Writes a pack under the next number, in a new wave if this one is full.
    fn write_pack(&mut self, bytes: &[u8]) -> Result<u64> {
        debug_assert!(bytes.len() <= MAX_PACK_BYTES);
        let page_bytes = page_bytes(bytes.len());
        if self.wave_bytes > 0 && self.wave_bytes + page_bytes > WAVE_BYTES {
            self.tx.commit_wave()?;
            self.wave_bytes = 0;
        }
        let number = self.packs.first + self.packs.count;
        self.tx.insert_pack(number, bytes)?;
        self.packs.count += 1;
        self.wave_bytes += page_bytes;
        Ok(number)
    }

    /// Writes what is still collected, and makes the leaf records.
    fn finish(mut self, encoder: Encoder<'_>, batches: &mut dyn Batches<'_>) -> Result<Packed<'d>> {
        let rest: Vec<_> = self.shared.iter_mut().flat_map(|(_, packs)| packs.finish()).collect();
        for pack in rest {
            self.write_shared(pack)?;
        }
        let mut totals = Totals::default();
        let (mut rows, mut last) = (Vec::with_capacity(self.leaves.len()), Vec::new());
        for (number, (leaf, packed)) in encoder.leaves.iter().zip(self.leaves).enumerate() {
            let record = LeafRecord { meta: leaf.meta.clone(), chunks: packed.chunks };
            totals.add(&leaf.encoded, &record);
            rows.push((leaf.encoded.clone(), record.encode(self.step, &leaf.encoded)?));
            last.push((leaf.encoded.clone(), record, batches.memory(number)));
        }
        Ok(Packed {
            tx: self.tx,
            rows,
            totals,
            packs: self.packs,
            reused_packs: self.reused_packs,
            counts: self.counts,
            last: LastStep::new(self.step, last),
        })
    }
}
