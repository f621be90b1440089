//! Chunks → packs.
//!
//! * A chunk that fills a page goes from the memory that it is in to the database page as it is. Other
//!   chunks are collected in packs that they share: those of raw leaves each in one piece, so that they
//!   can be used where they lie; those of compressed leaves without a gap.
//! * While one batch of chunks is written, the next one is encoded on other threads.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;

use super::chunk::{Batches, EncodedChunk, Encoder, Sharing, Stored};
use super::encoding::encode_beside;
use super::pack_writer::PackWriter;
use super::plan::fills_pack;
use super::planned_leaf::PlannedLeaf;
use super::reuse::Memory;
use super::shared_pack::{PackStream, SharedPack, SharedPacks};
use crate::codec::Compression;
use crate::db::WriteTx;
use crate::error::{Error, Result};
use crate::limits::{CHUNK_ALIGN_BYTES, MIN_OWN_PACK_BYTES};
use crate::record::{LeafRecord, StoredChunk};

/// What was packed.
pub(super) struct Packed<'d> {
    /// The open transaction, for the step's own rows.
    pub(super) tx: WriteTx<'d>,
    /// In the order of the structure.
    pub(super) leaves: Vec<SavedLeaf>,
    /// The packs of the step: the new ones, and those of earlier steps that it uses too.
    pub(super) packs: BTreeSet<u64>,
    pub(super) counts: Counts,
}

/// A leaf that was written: its encoded path, its record and the memory that it is in.
pub(super) type SavedLeaf = (Vec<u8>, LeafRecord, Memory);

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
    let mut packer = Packer::new(target, encoder.leaves);
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
    writer: PackWriter<'d>,
    packs: BTreeSet<u64>,
    counts: Counts,
    new: Shared,
    settled: Shared,
    leaves: Vec<PackedLeaf>,
}

/// Which chunk of which leaf.
type Whose = (usize, usize);

/// The packs that chunks share.
struct Shared {
    /// Of raw leaves. These packs are small, so that reading one reads little of others.
    raw: SharedPacks<Whose>,
    compressed: PackStream<Whose>,
}

impl Shared {
    fn new(first_of_stream: u64) -> Self {
        Self {
            raw: SharedPacks::new(MIN_OWN_PACK_BYTES),
            compressed: PackStream::new(first_of_stream),
        }
    }
}

/// The most packs of a stream with all of `leaves` that are compressed.
fn most_packs(leaves: &[PlannedLeaf]) -> u64 {
    let compressed = leaves.iter().filter(|leaf| leaf.compression != Compression::None);
    // Only the last chunk of a part has another length than a multiple.
    let bytes = compressed.map(|leaf| {
        leaf.size_bytes.saturating_add(leaf.part_count().saturating_mul(CHUNK_ALIGN_BYTES))
    });
    PackStream::<Whose>::most_packs(
        bytes.map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX)).sum(),
    )
}

/// The chunks of a leaf so far; the place of a chunk that is still collected is not known.
#[derive(Default, Clone)]
struct PackedLeaf {
    chunks: Vec<StoredChunk>,
    /// Whether any of them is new.
    changed: bool,
}

impl<'d> Packer<'d> {
    fn new(target: Target<'d>, leaves: &[PlannedLeaf]) -> Self {
        let Target { tx, first_pack } = target;
        // The packs of a stream have consecutive numbers, so those that it may need are kept for it.
        let stream = most_packs(leaves);
        Self {
            writer: PackWriter::new(tx, first_pack + 2 * stream),
            packs: BTreeSet::new(),
            counts: Counts::default(),
            new: Shared::new(first_pack),
            settled: Shared::new(first_pack + stream),
            leaves: vec![PackedLeaf::default(); leaves.len()],
        }
    }

    fn write(&mut self, batch: Vec<EncodedChunk<'_>>, batches: &mut dyn Batches<'_>) -> Result<()> {
        for EncodedChunk { leaf, sharing, stored } in batch {
            let Some(so_far) = self.leaves.get_mut(leaf) else {
                return Err(Error::invalid("a chunk is of a leaf that is not there"));
            };
            let index = so_far.chunks.len();
            match stored {
                Stored::Unchanged(chunk) => {
                    so_far.chunks.push(chunk);
                    self.counts.reused_chunks += 1;
                    self.counts.reused_bytes += u64::from(chunk.info.raw_len);
                    self.packs.extend(chunk.extent().packs());
                }
                Stored::New(info, bytes) => {
                    so_far.chunks.push(StoredChunk { pack: 0, offset: 0, info });
                    if !std::mem::replace(&mut so_far.changed, true) {
                        batches.changed(leaf);
                    }
                    self.counts.new_chunks += 1;
                    self.counts.new_bytes += u64::from(info.stored_len);
                    self.place((leaf, index), sharing, bytes.as_slice())?;
                }
            }
        }
        Ok(())
    }

    /// Writes the stored bytes of a chunk as a pack, or collects them. The chunk is told its place when
    /// they are written.
    fn place(&mut self, whose: Whose, sharing: Sharing, stored: &[u8]) -> Result<()> {
        if fills_pack(stored.len()) {
            let number = self.writer.write_next(stored)?;
            self.packs.insert(number);
            self.tell(whose, number, 0);
            return Ok(());
        }
        let packs = if sharing.settled { &mut self.settled } else { &mut self.new };
        if !sharing.compressed {
            if let Some(full) = packs.raw.push(whose, stored) {
                self.write_shared(full)?;
            }
        } else if let Some((number, full)) = packs.compressed.push(whose, stored) {
            self.write_shared_as(number, full)?;
        }
        Ok(())
    }

    /// Writes a shared pack under the next number.
    fn write_shared(&mut self, pack: SharedPack<Whose>) -> Result<()> {
        let number = self.writer.write_next(pack.bytes())?;
        self.tell_members(number, pack);
        Ok(())
    }

    /// Writes a shared pack of a stream.
    fn write_shared_as(&mut self, number: u64, pack: SharedPack<Whose>) -> Result<()> {
        self.writer.write(number, pack.bytes())?;
        self.tell_members(number, pack);
        Ok(())
    }

    /// Tells the chunks in a shared pack where they are.
    fn tell_members(&mut self, number: u64, pack: SharedPack<Whose>) {
        self.packs.insert(number);
        for (whose, offset) in pack.into_members() {
            self.tell(whose, number, offset);
        }
    }

    fn tell(&mut self, (leaf, chunk): Whose, pack: u64, offset: u32) {
        let leaf = self.leaves.get_mut(leaf);
        if let Some(chunk) = leaf.and_then(|leaf| leaf.chunks.get_mut(chunk)) {
            (chunk.pack, chunk.offset) = (pack, offset);
        }
    }

    /// Writes what is still collected.
    fn write_rest(&mut self) -> Result<()> {
        for settled in [false, true] {
            let packs = if settled { &mut self.settled } else { &mut self.new };
            let (raw, (next, rest)) = (packs.raw.finish(), packs.compressed.finish());
            if let Some((number, pack)) = next {
                self.write_shared_as(number, pack)?;
            }
            for pack in raw.into_iter().chain(rest) {
                self.write_shared(pack)?;
            }
        }
        Ok(())
    }

    /// Writes what is still collected, and makes the leaf records.
    fn finish(mut self, encoder: Encoder<'_>, batches: &mut dyn Batches<'_>) -> Result<Packed<'d>> {
        self.write_rest()?;
        let mut leaves = Vec::with_capacity(self.leaves.len());
        for (number, (leaf, packed)) in encoder.leaves.iter().zip(self.leaves).enumerate() {
            check_whole(leaf, &packed.chunks)?;
            let record = LeafRecord {
                meta: leaf.meta.clone(),
                sharding: leaf.sharding,
                parts: leaf.parts.clone(),
                chunks: packed.chunks,
            };
            leaves.push((leaf.encoded.clone(), record, batches.memory(number)));
        }
        Ok(Packed { tx: self.writer.finish().0, leaves, packs: self.packs, counts: self.counts })
    }
}

/// Checks that the chunks of `leaf` are all there and written, so that no step can be committed that
/// lacks some of them.
fn check_whole(leaf: &PlannedLeaf, chunks: &[StoredChunk]) -> Result<()> {
    let written = chunks.iter().filter(|chunk| chunk.pack != 0);
    let written: u64 = written.map(|chunk| u64::from(chunk.info.raw_len)).sum();
    let size_bytes = leaf.stored_bytes();
    if u64::try_from(size_bytes) == Ok(written) {
        return Ok(());
    }
    let message = format!("{written} of the {size_bytes} bytes of the leaf were written");
    let error = Error::invalid(message).advise("this is a bug in milepost, please report it");
    Err(leaf.locate(error))
}
