//! Unchanged chunks: what the file has already of a leaf is not written again.
//!
//! A chunk is compared with the chunk of the same number of the same part of the same leaf in the newest
//! step. The
//! content hash finds it; then the stored bytes are read, checked and compared, so no hash is trusted
//! with data, and a stored chunk that is damaged is written anew. Only a leaf that still is in the very
//! memory it was saved from, shared by reference count and so unchanged, is taken without a look.

use std::collections::HashMap;
use std::iter;
use std::sync::{Arc, Weak};

use super::chunk::{Chunk, Raw};
use super::planned_leaf::PlannedLeaf;
use crate::codec::{self, ChunkId, Codec};
use crate::db::ReadTx;
use crate::dtype::DType;
use crate::error::Result;
use crate::record::{LeafRecord, PackRange, Parts, StoredChunk};
use crate::store::fill::chunk_error;
use crate::store::packs::PackReader;
use crate::store::records::leaf_records;
use crate::store::step_record;
use crate::tree::{Buffer, Data};

/// The newest step, as far as the next save can reuse it.
pub(crate) struct LastStep {
    step: u64,
    leaves: Vec<LastLeaf>,
    /// The packs that the step uses.
    packs: HashMap<u64, PackUse>,
}

/// How many bytes are used of a pack.
#[derive(Debug, Clone, Copy, Default)]
struct PackUse {
    /// By the newest step.
    now: usize,
    /// The most that any of the steps used that were saved one after the other.
    most: usize,
}

struct LastLeaf {
    path: Vec<u8>,
    dtype: DType,
    parts: Option<Box<Parts>>,
    chunks: Vec<StoredChunk>,
    memory: Memory,
}

/// The shared memory that a leaf was saved from.
#[derive(Default)]
pub(super) struct Memory {
    /// While it is alive, it is the same memory, unchanged.
    alive: Option<Weak<dyn Buffer>>,
    /// Held for a leaf that did not change when it was last saved, so that the same array in a new
    /// wrapping is known again. Its owner gets a copy when it changes the array all the same.
    held: Option<Arc<dyn Buffer>>,
}

impl Memory {
    /// The memory of `data`, held or not.
    pub(super) fn of(data: &Data<'_>, unchanged: bool) -> Self {
        let Data::Shared(buffer) = data else { return Self::default() };
        let held = (unchanged && buffer.may_be_held()).then(|| Arc::clone(buffer));
        Self { alive: Some(Arc::downgrade(buffer)), held }
    }

    /// Lets go of the memory; it is known again for as long as others hold it.
    pub(super) fn let_go(&mut self) {
        self.held = None;
    }

    fn is_of(&self, data: &Data<'_>) -> bool {
        let Data::Shared(buffer) = data else { return false };
        let same_place = |held: &Arc<dyn Buffer>| std::ptr::eq(held.bytes(), buffer.bytes());
        self.alive.as_ref().is_some_and(|alive| Weak::ptr_eq(alive, &Arc::downgrade(buffer)))
            || self.held.as_ref().is_some_and(same_place)
    }
}

impl LastLeaf {
    /// The chunk with the number of `id` in the part that it names.
    fn chunk(&self, id: ChunkId<'_>) -> Option<&StoredChunk> {
        let (shard, index) = (usize::try_from(id.shard).ok()?, usize::try_from(id.index).ok()?);
        self.chunks_of(shard).get(index)
    }

    fn chunks_of(&self, part: usize) -> &[StoredChunk] {
        match &self.parts {
            Some(parts) => self.chunks.get(parts.chunks_of_part(part)).unwrap_or_default(),
            None if part == 0 => &self.chunks,
            None => &[],
        }
    }
}

impl LastStep {
    /// What `leaves`, with their paths and memories, leave to the next save; `before` is the step
    /// before.
    fn new(
        step: u64,
        leaves: impl IntoIterator<Item = (Vec<u8>, LeafRecord, Memory)>,
        before: Option<&Self>,
    ) -> Self {
        let leaf = |(path, record, memory): (Vec<u8>, LeafRecord, Memory)| LastLeaf {
            path,
            dtype: record.meta.dtype,
            parts: record.parts,
            chunks: record.chunks,
            memory,
        };
        let leaves: Vec<LastLeaf> = leaves.into_iter().map(leaf).collect();
        let mut packs: HashMap<u64, PackUse> = HashMap::new();
        for chunk in leaves.iter().flat_map(|leaf| &leaf.chunks) {
            let (first, rest) = chunk.extent().pieces();
            for piece in iter::once(first).chain(rest) {
                packs.entry(piece.pack).or_default().now += piece.aligned_bytes();
            }
        }
        for (number, used) in &mut packs {
            let before = before.and_then(|before| before.packs.get(number));
            used.most = before.map_or(0, |before| before.most).max(used.now);
        }
        Self { step, leaves, packs }
    }

    /// Whether this is what was saved as `step`. What a rank gave to it may have been dropped, and others
    /// have completed it with something else.
    fn is_of(&self, tx: &ReadTx, step: u64) -> Result<bool> {
        if self.step != step {
            return Ok(false);
        }
        let packs = step_record(tx, step)?.packs;
        Ok(self.packs.keys().all(|pack| PackRange::any_contains(&packs, *pack)))
    }

    /// Reads the leaf records of `step`.
    fn read(tx: &ReadTx, step: u64) -> Result<Self> {
        let leaves = leaf_records(tx, step)?.into_iter();
        Ok(Self::new(step, leaves.map(|(path, record)| (path, record, Memory::default())), None))
    }
}

/// What one save can reuse.
#[derive(Default)]
pub(super) struct Reuse(Option<Candidates>);

struct Candidates {
    tx: ReadTx,
    last: Arc<LastStep>,
    /// For each leaf that is saved the number of the last one of the same path and element type.
    places: Vec<Option<usize>>,
}

/// What was found of a chunk.
pub(super) enum Match {
    /// It is stored.
    Stored(StoredChunk),
    /// It is stored in a pack that is not worth keeping for it.
    MostlyDead,
    No,
}

/// The packs that a thread read last, and memory to decode chunks into.
#[derive(Default)]
pub(super) struct StoredReader {
    packs: PackReader,
    raw: Vec<u8>,
}

impl Reuse {
    /// What `leaves` can have in common with the newest step that `tx` sees; `last` is what is
    /// remembered of the save before. A step that can't be read is not reused.
    pub(super) fn new(tx: ReadTx, last: Option<Arc<LastStep>>, leaves: &[PlannedLeaf]) -> Self {
        let newest = tx.last_step().and_then(|step| match (step, last) {
            (Some(step), Some(last)) if last.is_of(&tx, step)? => Ok(Some(last)),
            (Some(step), _) => LastStep::read(&tx, step).map(|last| Some(Arc::new(last))),
            (None, _) => Ok(None),
        });
        match newest {
            Ok(Some(last)) => {
                let places = last.places(leaves);
                Self(Some(Candidates { tx, last, places }))
            }
            Ok(None) => Self(None),
            Err(error) => {
                tracing::warn!(%error, "the newest step can't be read, so all is written anew");
                Self(None)
            }
        }
    }

    /// What the next save can reuse, which was saved as `step`.
    pub(super) fn last_step(
        &self,
        step: u64,
        leaves: impl IntoIterator<Item = (Vec<u8>, LeafRecord, Memory)>,
    ) -> LastStep {
        LastStep::new(step, leaves, self.0.as_ref().map(|candidates| &*candidates.last))
    }

    fn last_leaf(&self, leaf: usize) -> Option<&LastLeaf> {
        let candidates = self.0.as_ref()?;
        candidates.last.leaves.get((*candidates.places.get(leaf)?)?)
    }

    /// The chunks of a leaf that is in the memory in which it was when it was last saved. They are
    /// looked at all the same if they are what is left of packs that the steps before used more of.
    pub(super) fn unchanged(&self, leaf: usize, data: &Data<'_>) -> Option<Vec<Chunk<'static>>> {
        let last = self.last_leaf(leaf)?;
        let raw_bytes: u64 = last.chunks.iter().map(|chunk| u64::from(chunk.info.raw_len)).sum();
        if last.parts.is_some()
            || !last.memory.is_of(data)
            || u64::try_from(data.bytes().len()) != Ok(raw_bytes)
        {
            return None;
        }
        let packs = &self.0.as_ref()?.last.packs;
        let is_left =
            |pack| packs.get(&pack).is_some_and(|used| is_mostly_dead(used.now, used.most));
        if last.chunks.iter().any(|chunk| chunk.extent().packs().any(is_left)) {
            return None;
        }
        let chunk =
            |(index, chunk): (u32, &StoredChunk)| Chunk { leaf, index, raw: Raw::Stored(*chunk) };
        Some((0u32..).zip(&last.chunks).map(chunk).collect())
    }

    /// Looks for the stored chunk of the leaf that is exactly `raw`.
    pub(super) fn find(
        &self,
        leaf: usize,
        id: ChunkId<'_>,
        raw: &[u8],
        hash: [u8; 16],
        reader: &mut StoredReader,
    ) -> Match {
        let (Some(candidates), Some(last)) = (&self.0, self.last_leaf(leaf)) else {
            return Match::No;
        };
        let chunk = last.chunk(id);
        let same = |chunk: &&StoredChunk| {
            chunk.info.hash == hash && usize::try_from(chunk.info.raw_len) == Ok(raw.len())
        };
        let Some(chunk) = chunk.filter(same) else { return Match::No };
        candidates.compare(chunk, id, raw, reader).unwrap_or_else(|error| {
            let (shard, index) = (id.shard, id.index);
            tracing::warn!(%error, shard, index, "a stored chunk is damaged, and is written anew");
            Match::No
        })
    }
}

impl LastStep {
    fn places(&self, leaves: &[PlannedLeaf]) -> Vec<Option<usize>> {
        let is_at = |place: usize, leaf: &PlannedLeaf| {
            self.leaves.get(place).is_some_and(|last| last.path == leaf.encoded)
        };
        // Mostly the structure is the same as in the step before.
        let mut by_path = None;
        let find = |(number, leaf): (usize, &PlannedLeaf)| {
            let place = if is_at(number, leaf) {
                number
            } else {
                let by_path = by_path.get_or_insert_with(|| {
                    let paths = self.leaves.iter().map(|last| &last.path[..]);
                    paths.zip(0..).collect::<HashMap<&[u8], usize>>()
                });
                *by_path.get(&leaf.encoded[..])?
            };
            let last = self.leaves.get(place)?;
            (last.dtype == leaf.meta.dtype).then_some(place)
        };
        leaves.iter().enumerate().map(find).collect()
    }
}

/// What is left of a pack that was shared would hold its room for good. So a pack of which the newest
/// step uses less than half is not used any further.
fn is_mostly_dead(used: usize, pack_bytes: usize) -> bool {
    used.saturating_mul(2) < pack_bytes
}

impl Candidates {
    /// Compares the stored contents of `chunk` with `raw`.
    fn compare(
        &self,
        chunk: &StoredChunk,
        id: ChunkId<'_>,
        raw: &[u8],
        reader: &mut StoredReader,
    ) -> Result<Match> {
        let mut matched = Match::Stored(*chunk);
        for number in chunk.extent().packs() {
            let used = self.last.packs.get(&number).copied().unwrap_or_default().now;
            let pack = reader.packs.open(&self.tx, number)?;
            if pack.is_some_and(|pack| is_mostly_dead(used, pack.bytes().len())) {
                matched = Match::MostlyDead;
            }
        }
        let StoredReader { packs, raw: decoded } = reader;
        let stored = packs.read(&self.tx, chunk.extent())?;
        if chunk.info.codec == Codec::Raw && stored == raw {
            return Ok(matched);
        }
        decoded.resize(raw.len(), 0);
        codec::decode(id, &chunk.info, stored, decoded).map_err(|error| chunk_error(error, id))?;
        Ok(if decoded == raw { matched } else { Match::No })
    }
}
