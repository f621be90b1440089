//! Chunks → packs → transactions.
//!
//! * A raw chunk with a pack of its own goes from the source's memory to the database page as it
//!   is. Other chunks are collected in packs that they share.
//! * Payload is committed in waves that redb writes once. Packs of a wave belong to no step until
//!   the step's own transaction raises the mark over them.
//! * While one batch of chunks is written, the next one is encoded on another thread.

use std::borrow::Cow;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;

use super::plan::{Placement, PlannedChunk, Planner, room, shared_pack_bytes};
use super::totals::Totals;
use crate::codec::{self, ChunkId, ChunkInfo, Compression};
use crate::db::{WAVE_BYTES, WriteTx};
use crate::dtype::{DType, Element, zeroed};
use crate::error::{Error, Result};
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_PACK_BYTES, PACK_OVERHEAD_BYTES};
use crate::path::KeyPath;
use crate::record::{LeafRecord, PackRange, StoredChunk};
use crate::shape::boxes;
use crate::tree::{LeafKind, LeafMeta, LeafSource};

/// What was packed.
pub(super) struct Packed<'d> {
    /// The open transaction, for the step's own rows.
    pub(super) tx: WriteTx<'d>,
    /// Encoded paths and leaf records.
    pub(super) leaves: Vec<(Vec<u8>, Vec<u8>)>,
    pub(super) totals: Totals,
    pub(super) packs: PackRange,
}

/// The leaves of one save.
pub(super) struct Leaves<'s> {
    source: &'s dyn LeafSource,
    list: Vec<SourceLeaf<'s>>,
    compression: Compression,
}

struct SourceLeaf<'s> {
    path: KeyPath,
    encoded: Vec<u8>,
    meta: LeafMeta,
    size_bytes: usize,
    /// The whole contents, if they are in memory: the source has them there, or they are a text.
    contents: Option<Cow<'s, [u8]>>,
}

/// A chunk that is ready to be written.
struct EncodedChunk<'s> {
    leaf: usize,
    placement: Placement,
    info: ChunkInfo,
    stored: Cow<'s, [u8]>,
}

impl<'s> Leaves<'s> {
    /// The leaves of `source`, all checked.
    pub(super) fn new(
        source: &'s dyn LeafSource,
        metas: &[(KeyPath, &LeafMeta)],
        compression: Compression,
    ) -> Result<Self> {
        let all = source.borrow_all();
        if let Some(all) = &all
            && all.len() != metas.len()
        {
            return Err(Error::invalid(format!(
                "the source gives the contents of {} leaves, its structure has {}",
                all.len(),
                metas.len()
            )));
        }
        let leaf =
            |(number, (path, meta)): (usize, &(KeyPath, &LeafMeta))| -> Result<SourceLeaf<'s>> {
                meta.check().map_err(|error| error.at_path(path))?;
                let size_bytes = meta.size_bytes()?;
                let contents = match &all {
                    Some(all) => all.get(number).copied(),
                    None => source.borrow(path),
                };
                if let Some(contents) = contents
                    && contents.len() != size_bytes
                {
                    return Err(Error::invalid(format!(
                        "the source gives {} bytes for {meta}, expected {size_bytes}",
                        contents.len()
                    ))
                    .at_path(path));
                }
                let (path, meta) = (path.clone(), (*meta).clone());
                let contents = contents.map(Cow::Borrowed);
                let encoded = path.encode();
                SourceLeaf { path, encoded, meta, size_bytes, contents }.with_text(source)
            };
        let list = metas.iter().enumerate().map(leaf).collect::<Result<_>>()?;
        Ok(Self { source, list, compression })
    }

    /// Writes all leaves as part of `step`, with packs from `first_pack` on, which are all free.
    pub(super) fn pack<'d>(
        &self,
        step: u64,
        tx: WriteTx<'d>,
        first_pack: u64,
    ) -> Result<Packed<'d>> {
        let leaf_bytes: Vec<usize> = self.list.iter().map(|leaf| leaf.size_bytes).collect();
        let mut planner = Planner::new(&leaf_bytes, self.compression);
        let mut packer = Packer::new(tx, first_pack, self);
        let first = planner.next_batch()?;
        let mut ready = catch_unwind(AssertUnwindSafe(|| self.encode(first)));
        loop {
            let batch = match ready {
                Ok(batch) => batch?,
                Err(panic) => {
                    // The source panicked. The transaction ends in peace before that goes on.
                    drop(packer);
                    resume_unwind(panic)
                }
            };
            let next = planner.next_batch()?;
            if next.is_empty() {
                packer.write(batch)?;
                return packer.finish(step, self);
            }
            ready = thread::scope(|scope| {
                let encode = || self.encode(next.clone());
                // Where there is no thread to be had, this one does the work afterwards.
                let ahead = thread::Builder::new().spawn_scoped(scope, encode);
                let written = packer.write(batch);
                let encoded = match ahead {
                    Ok(ahead) => ahead.join(),
                    Err(_) => catch_unwind(AssertUnwindSafe(encode)),
                };
                written.map(|()| encoded)
            })?;
        }
    }

    fn encode(&self, batch: Vec<PlannedChunk>) -> Result<Vec<EncodedChunk<'_>>> {
        batch.into_iter().map(|chunk| self.encode_chunk(chunk)).collect()
    }

    fn encode_chunk(&self, chunk: PlannedChunk) -> Result<EncodedChunk<'_>> {
        let PlannedChunk { leaf: number, index, run, placement } = chunk;
        let Some(leaf) = self.list.get(number) else {
            return Err(Error::invalid("the plan names a leaf that is not there"));
        };
        let id = ChunkId { path: &leaf.encoded, shard: 0, index, dtype: leaf.meta.dtype };
        let (info, stored) =
            if let Some(raw) = leaf.contents.as_ref().and_then(|all| all.get(run.clone())) {
                leaf.check_values(raw)?;
                codec::encode(id, raw, self.compression)
            } else {
                let raw = read_run(self.source, leaf, run)?;
                leaf.check_values(&raw)?;
                let (info, stored) = codec::encode(id, &raw, self.compression);
                let compressed = match stored {
                    Cow::Owned(compressed) => Some(compressed),
                    Cow::Borrowed(_) => None,
                };
                (info, Cow::Owned(compressed.unwrap_or(raw)))
            };
        Ok(EncodedChunk { leaf: number, placement, info, stored })
    }
}

impl SourceLeaf<'_> {
    /// Checks that a string or JSON value is one. A text has no parts that could be checked on
    /// their own, so it is read as a whole.
    fn with_text(mut self, source: &dyn LeafSource) -> Result<Self> {
        if matches!(self.meta.kind, LeafKind::String | LeafKind::Json) {
            let text = match self.contents.take() {
                Some(text) => text,
                None => Cow::Owned(read_run(source, &self, 0..self.size_bytes)?),
            };
            self.meta.check_text(&text).map_err(|error| error.at_path(&self.path))?;
            self.contents = Some(text);
        }
        Ok(self)
    }

    /// Checks that a source gives what can be restored: a `bool` is 0 or 1.
    fn check_values(&self, raw: &[u8]) -> Result<()> {
        if self.meta.dtype == DType::Bool && bool::view(raw).is_none() {
            return Err(
                Error::invalid("a byte of a bool array is neither 0 nor 1").at_path(&self.path)
            );
        }
        Ok(())
    }
}

/// Reads the bytes `run` of a leaf from a source that doesn't have it in memory.
fn read_run(source: &dyn LeafSource, leaf: &SourceLeaf<'_>, run: Range<usize>) -> Result<Vec<u8>> {
    let mut raw: Vec<u8> = zeroed(run.len()).map_err(|error| error.at_path(&leaf.path))?;
    let element_bytes = leaf.meta.dtype.size_bytes();
    let elements = run.start / element_bytes..run.end / element_bytes;
    let mut rest = &mut raw[..];
    for region in boxes(&leaf.meta.shape, elements) {
        let (out, after) = rest.split_at_mut(region.elements() * element_bytes);
        source.read_region(&leaf.path, &region, out).map_err(|error| error.at_path(&leaf.path))?;
        rest = after;
    }
    Ok(raw)
}

/// Writes chunks in their order.
struct Packer<'d> {
    tx: WriteTx<'d>,
    /// Payload in `tx` so far, in bytes of pages.
    wave_bytes: usize,
    packs: PackRange,
    shared: SharedPack,
    shared_capacity: usize,
    /// The chunks of each leaf; the pack of a chunk that is still collected is not known.
    chunks: Vec<Vec<StoredChunk>>,
}

/// A pack that chunks are collected in. It gets its number when it is written, since the database
/// takes ascending numbers fastest.
#[derive(Default)]
struct SharedPack {
    bytes: Vec<u8>,
    /// The chunks in it, as numbers of leaf and chunk.
    members: Vec<(usize, usize)>,
}

impl<'d> Packer<'d> {
    fn new(tx: WriteTx<'d>, first_pack: u64, leaves: &Leaves<'_>) -> Self {
        Self {
            tx,
            wave_bytes: 0,
            packs: PackRange { first: first_pack, count: 0 },
            shared: SharedPack::default(),
            shared_capacity: shared_pack_bytes(leaves.compression),
            chunks: vec![Vec::new(); leaves.list.len()],
        }
    }

    fn write(&mut self, batch: Vec<EncodedChunk<'_>>) -> Result<()> {
        for chunk in batch {
            let (pack, offset) = match chunk.placement {
                Placement::OwnPack => (self.write_pack(&chunk.stored)?, 0),
                Placement::SharedPack => (0, self.collect(chunk.leaf, &chunk.stored)?),
            };
            if let Some(chunks) = self.chunks.get_mut(chunk.leaf) {
                chunks.push(StoredChunk { pack, offset, info: chunk.info });
            }
        }
        Ok(())
    }

    /// Adds the next chunk of a leaf to the shared pack, and begins another pack where that is
    /// full. Returns the offset in the pack.
    fn collect(&mut self, leaf: usize, stored: &[u8]) -> Result<u32> {
        if stored.len() > room(self.shared.bytes.len(), self.shared_capacity) {
            self.write_shared()?;
        }
        let aligned = self.shared.bytes.len().next_multiple_of(CHUNK_ALIGN_BYTES);
        self.shared.bytes.resize(aligned, 0);
        self.shared.bytes.extend_from_slice(stored);
        self.shared.members.push((leaf, self.chunks.get(leaf).map_or(0, Vec::len)));
        // A pack is far below 4 GiB.
        Ok(u32::try_from(aligned).unwrap_or(u32::MAX))
    }

    /// Writes the shared pack, and tells its number to the chunks in it.
    fn write_shared(&mut self) -> Result<()> {
        let SharedPack { mut bytes, mut members } = std::mem::take(&mut self.shared);
        if !members.is_empty() {
            let number = self.write_pack(&bytes)?;
            for (leaf, chunk) in members.drain(..) {
                let chunks = self.chunks.get_mut(leaf);
                if let Some(chunk) = chunks.and_then(|chunks| chunks.get_mut(chunk)) {
                    chunk.pack = number;
                }
            }
            bytes.clear();
        }
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
        let number = self.packs.first + self.packs.count;
        self.tx.insert_pack(number, bytes)?;
        self.packs.count += 1;
        self.wave_bytes += page_bytes;
        Ok(number)
    }

    /// Writes what is still collected, and makes the leaf records.
    fn finish(mut self, step: u64, leaves: &Leaves<'_>) -> Result<Packed<'d>> {
        self.write_shared()?;
        let mut packed = Packed {
            tx: self.tx,
            leaves: Vec::with_capacity(self.chunks.len()),
            totals: Totals::default(),
            packs: self.packs,
        };
        for (leaf, chunks) in leaves.list.iter().zip(self.chunks) {
            let record = LeafRecord { meta: leaf.meta.clone(), chunks };
            packed.totals.add(&leaf.encoded, &record);
            let encoded = record.encode(step, &leaf.encoded)?;
            packed.leaves.push((leaf.encoded.clone(), encoded));
        }
        Ok(packed)
    }
}
