//! Source → leaves that are to be saved, each checked, and cut into batches of chunks.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::chunk::{Batches, Chunk, Raw};
use super::contents::{checked, part_of};
use super::plan::{chunk_count, cuts};
use super::report::Accepted;
use super::reuse::{Memory, Reuse};
use crate::codec::{self, ChunkId, Compression};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_LEAF_CHUNKS};
use crate::path::KeyPath;
use crate::record::Parts;
use crate::shape::{Grid, Region};
use crate::sharding::Sharding;
use crate::store::options::{ChunkHint, StoreOptions};
use crate::tree::{Contents, Data, LeafKind, LeafMeta, LeafSource, Tree};

/// The raw bytes that are encoded while the batch before is written.
pub(super) const BATCH_BYTES: usize = 8 << 20;

/// A leaf that is to be saved, without its contents.
#[derive(Debug)]
pub(super) struct PlannedLeaf {
    /// The encoded key path.
    pub(super) encoded: Vec<u8>,
    pub(super) meta: LeafMeta,
    pub(super) size_bytes: usize,
    pub(super) compression: Compression,
    /// What [`Compression::Auto`] came to.
    chosen: OnceLock<Compression>,
    /// The number of the sharding that is recorded with it, among those of the step.
    pub(super) sharding: Option<u32>,
    /// How it is cut for its sharding; `None` if it stays in one part.
    pub(super) parts: Option<Box<Parts>>,
}

/// Where a leaf is cut.
pub(super) struct Cut {
    pub(super) part: usize,
    /// The number of the chunk in the leaf.
    pub(super) index: u32,
    /// Its bytes in the part.
    pub(super) run: Range<usize>,
}

impl PlannedLeaf {
    /// An error of this leaf, with its path.
    pub(super) fn locate(&self, error: Error) -> Error {
        match KeyPath::decode(&self.encoded) {
            Ok(path) => error.at_path(&path),
            Err(_) => error,
        }
    }

    /// How the leaf is cut.
    pub(super) fn cuts(&self) -> impl Iterator<Item = Cut> {
        // It has far fewer: see `check_chunks`.
        let cuts = (0..self.part_count()).flat_map(|part| {
            let runs = cuts(self.part_bytes(part), self.compression);
            runs.map(move |run| (part, run))
        });
        (0u32..).zip(cuts).map(|(index, (part, run))| Cut { part, index, run })
    }

    /// How one part of the leaf is cut.
    pub(super) fn cuts_of(&self, part: usize) -> impl Iterator<Item = Cut> {
        let first = self.parts.as_ref().map_or(0, |parts| parts.chunks_of_part(part).start);
        let first = u32::try_from(first).unwrap_or(u32::MAX);
        let runs = cuts(self.part_bytes(part), self.compression);
        (first..).zip(runs).map(move |(index, run)| Cut { part, index, run })
    }

    pub(super) fn part_count(&self) -> usize {
        self.parts.as_ref().map_or(1, |parts| parts.grid.part_count())
    }

    /// The region of a part.
    pub(super) fn part(&self, number: usize) -> Region {
        let whole = || Region::whole(&self.meta.shape);
        self.parts.as_ref().map_or_else(whole, |parts| parts.grid.part(number))
    }

    fn part_bytes(&self, number: usize) -> usize {
        match &self.parts {
            Some(parts) => parts.grid.part(number).elements() * self.meta.dtype.size_bytes(),
            None => self.size_bytes,
        }
    }

    /// What the chunk `index` must not be mistaken for another by.
    pub(super) fn chunk_id(&self, index: u32) -> ChunkId<'_> {
        let number = usize::try_from(index).unwrap_or(usize::MAX);
        let (part, index) =
            self.parts.as_ref().map_or((0, number), |parts| parts.part_of_chunk(number));
        ChunkId::new(&self.encoded, part, index, self.meta.dtype)
    }

    /// How to compress the leaf; `raw` is what is in memory of it now. Whoever comes first chooses for
    /// the whole leaf.
    pub(super) fn compression(&self, raw: &[u8]) -> Compression {
        match self.compression {
            Compression::Auto => {
                *self.chosen.get_or_init(|| codec::choose(self.meta.dtype, &samples(raw)))
            }
            fixed => fixed,
        }
    }

    /// Cuts the leaf as its sharding says, and between these cuts as a hint does.
    fn cut_into_parts(
        &mut self,
        sharding: Option<&Sharding>,
        hint: Option<&ChunkHint>,
    ) -> Result<()> {
        let shape = &self.meta.shape;
        let is_array = self.meta.kind == LeafKind::Array;
        let mut grid = match sharding {
            Some(_) if !is_array => {
                return Err(Error::invalid(format!("a {} can't be sharded", self.meta.kind)));
            }
            Some(sharding) => sharding.layout(shape)?.grid(shape),
            None => Grid::whole(shape),
        };
        if let Some(hint) = hint.filter(|_| is_array) {
            grid = hint.refine(&grid, shape, self.meta.dtype)?;
        }
        if grid.part_count() > 1 {
            self.parts = Some(Box::new(Parts { grid, chunk_ends: Vec::new() }));
            self.check_chunks()?;
            let counts = (0..self.part_count())
                .map(|part| cuts(self.part_bytes(part), self.compression).count());
            let ends = counts.scan(0, |end, count| {
                *end += count;
                Some(*end)
            });
            let chunk_ends = ends.collect();
            if let Some(parts) = &mut self.parts {
                parts.chunk_ends = chunk_ends;
            }
        }
        Ok(())
    }

    /// Checks that the chunks of the leaf fit a record, before any of them is written.
    fn check_chunks(&self) -> Result<()> {
        let parts = (0..self.part_count()).map(|part| self.part_bytes(part));
        let found = parts.map(|bytes| chunk_count(bytes, self.compression).max(1)).sum::<usize>();
        if found > MAX_LEAF_CHUNKS {
            let message = format!(
                "the leaf has {} bytes in {found} chunks, at most {MAX_LEAF_CHUNKS} can be stored",
                self.size_bytes
            );
            return Err(Error::invalid(message).advise("split it"));
        }
        Ok(())
    }

    /// Checks that a source gives what can be restored: a `bool` is 0 or 1.
    pub(super) fn check_values(&self, raw: &[u8]) -> Result<()> {
        if self.meta.dtype == DType::Bool && bool::view(raw).is_none() {
            let error = Error::invalid("a byte of a bool array is neither 0 nor 1");
            return Err(self.locate(error));
        }
        Ok(())
    }
}

/// The beginning, the middle and the end.
fn samples(raw: &[u8]) -> [&[u8]; 3] {
    let part = |number: usize| {
        let start = (raw.len() / 3 * number).next_multiple_of(CHUNK_ALIGN_BYTES);
        let part = raw.get(start..).unwrap_or_default();
        part.get(..raw.len() / 3).unwrap_or(part)
    };
    [part(0), part(1), part(2)]
}

/// The leaves of a source, all checked.
pub(super) struct SourceLeaves<'s> {
    pub(super) source: &'s dyn LeafSource,
    pub(super) list: Arc<Vec<PlannedLeaf>>,
    /// The contents of each leaf, if they are in memory as they are stored: the source has them there,
    /// or they are a text.
    pub(super) contents: Vec<Option<Contents<'s>>>,
    /// The shardings that are recorded.
    pub(super) shardings: Vec<Sharding>,
}

impl<'s> SourceLeaves<'s> {
    pub(super) fn new(
        source: &'s dyn LeafSource,
        structure: &Tree<LeafMeta>,
        options: &StoreOptions,
        record_sharding: bool,
    ) -> Result<Self> {
        let all = source.borrow_all();
        let (mut list, mut contents) = (Vec::new(), Vec::new());
        let mut shardings = Shardings::default();
        structure.visit(&mut |path, node| {
            let Tree::Leaf(meta) = node else { return Ok(()) };
            let in_memory = match &all {
                Some(all) => all.get(list.len()).map(|leaf| leaf.memory()),
                None => source.borrow(path).map(|bytes| Contents::Whole(Data::Borrowed(bytes))),
            };
            let plan = || -> Result<_> {
                meta.check()?;
                let mut leaf = PlannedLeaf {
                    encoded: path.encode(),
                    size_bytes: meta.size_bytes()?,
                    meta: LeafMeta::new(meta.kind, meta.dtype, meta.shape.clone()),
                    compression: *options.compression.of(path),
                    chosen: OnceLock::new(),
                    sharding: None,
                    parts: None,
                };
                leaf.check_chunks()?;
                let sharding = meta.sharding.as_ref();
                leaf.cut_into_parts(sharding, options.chunk_hints.of(path).as_ref())?;
                leaf.sharding =
                    sharding.filter(|_| record_sharding).map(|sharding| shardings.number(sharding));
                Ok((checked(source, &leaf, in_memory)?, leaf))
            };
            let (data, leaf) = plan().map_err(|error| error.at_path(path))?;
            contents.push(data);
            list.push(leaf);
            Ok(())
        })?;
        if let Some(all) = &all
            && all.len() != list.len()
        {
            return Err(Error::invalid(format!(
                "the source gives the contents of {} leaves, its structure has {}",
                all.len(),
                list.len()
            )));
        }
        check_total(&list)?;
        Ok(Self { source, list: Arc::new(list), contents, shardings: shardings.list })
    }

    /// The chunks of all leaves, batch by batch.
    pub(super) fn batches<'b>(&'b self, reuse: &'b Reuse, accepted: Accepted) -> SourceBatches<'b> {
        SourceBatches {
            leaves: self,
            accepted,
            reuse,
            next_leaf: 0,
            rest: Box::new(std::iter::empty()),
            changed: vec![false; self.list.len()],
        }
    }

    /// The chunks of the leaf `number`.
    fn chunks<'b>(&'b self, number: usize, reuse: &'b Reuse) -> LeafChunks<'b, 'b> {
        let (Some(leaf), Some(contents)) = (self.list.get(number), self.contents.get(number))
        else {
            return Box::new(std::iter::empty());
        };
        if let Some(Contents::Whole(data)) = contents
            && let Some(unchanged) = reuse.unchanged(number, data)
        {
            return Box::new(unchanged.into_iter());
        }
        let chunk = move |Cut { part, index, run }: Cut| {
            let raw = match contents.as_ref().and_then(|contents| part_of(contents, part)) {
                Some(bytes) => Raw::Slice(bytes, run),
                None => Raw::Unread(self.source, part, run),
            };
            Chunk { leaf: number, index, raw }
        };
        Box::new(leaf.cuts().map(chunk))
    }
}

/// The chunks of one leaf, of which there may be very many: one after the other.
pub(super) type LeafChunks<'b, 's> = Box<dyn Iterator<Item = Chunk<'s>> + 'b>;

/// Checks that the leaves have at most as many bytes as a file can have, so that sums of their lengths
/// don't overflow. A source that isn't in memory may claim anything.
fn check_total(leaves: &[PlannedLeaf]) -> Result<()> {
    let most = usize::try_from(i64::MAX).unwrap_or(usize::MAX);
    let total = leaves.iter().try_fold(0usize, |sum, leaf| sum.checked_add(leaf.size_bytes));
    if total.is_none_or(|total| total > most) {
        let message =
            format!("its leaves have more than {most} bytes in all, which no file can hold");
        return Err(Error::invalid(message).advise("check the shapes that the source gives"));
    }
    Ok(())
}

/// The shardings of a step, each once.
#[derive(Default)]
struct Shardings {
    list: Vec<Sharding>,
    numbers: HashMap<Sharding, u32>,
}

impl Shardings {
    fn number(&mut self, sharding: &Sharding) -> u32 {
        if let Some(number) = self.numbers.get(sharding) {
            return *number;
        }
        // There are at most as many as leaves.
        let number = u32::try_from(self.list.len()).unwrap_or(u32::MAX);
        self.list.push(sharding.clone());
        self.numbers.insert(sharding.clone(), number);
        number
    }
}

/// The chunks of a source, which are read from it where they are encoded.
pub(super) struct SourceBatches<'b> {
    leaves: &'b SourceLeaves<'b>,
    accepted: Accepted,
    reuse: &'b Reuse,
    next_leaf: usize,
    /// What is left of the leaf before.
    rest: LeafChunks<'b, 'b>,
    /// The leaves that have new chunks.
    changed: Vec<bool>,
}

impl<'b> Batches<'b> for SourceBatches<'b> {
    fn next(&mut self) -> Result<Vec<Chunk<'b>>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES {
            if let Some(chunk) = self.rest.next() {
                bytes += chunk.raw.len();
                batch.push(chunk);
            } else if self.next_leaf < self.leaves.list.len() {
                self.rest = self.leaves.chunks(self.next_leaf, self.reuse);
                self.next_leaf += 1;
            } else {
                break;
            }
        }
        Ok(batch)
    }

    fn accepted(&self) -> Accepted {
        self.accepted
    }

    fn changed(&mut self, leaf: usize) {
        if let Some(changed) = self.changed.get_mut(leaf) {
            *changed = true;
        }
    }

    fn memory(&mut self, leaf: usize) -> Memory {
        let unchanged = self.changed.get(leaf) == Some(&false);
        match self.leaves.contents.get(leaf) {
            Some(Some(Contents::Whole(data))) => Memory::of(data, unchanged),
            _ => Memory::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    #[test]
    fn leaves_have_no_more_bytes_in_all_than_a_file() {
        let leaf = || PlannedLeaf {
            encoded: Vec::new(),
            meta: LeafMeta::array(DType::U8, Shape::new([1]).unwrap()),
            size_bytes: 1 << 62,
            compression: Compression::BitPlanes,
            chosen: OnceLock::new(),
            sharding: None,
            parts: None,
        };
        let check =
            |count| check_total(&std::iter::repeat_with(leaf).take(count).collect::<Vec<_>>());
        assert!(check(1).is_ok());
        for count in [2, 3, 4, 9] {
            let error = check(count).unwrap_err().to_string();
            assert!(error.contains("more than 9223372036854775807 bytes in all"), "{error}");
        }
    }
}
