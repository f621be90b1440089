//! One leaf that is to be saved: what it is, how it is cut, and which parts of it this process stores.

use std::ops::Range;
use std::sync::OnceLock;

use super::plan::{chunk_count, cuts};
use crate::codec::{self, ChunkId, Compression};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_LEAF_CHUNKS};
use crate::path::KeyPath;
use crate::record::Parts;
use crate::shape::{Grid, Region};
use crate::sharding::Sharding;
use crate::store::options::ChunkHint;
use crate::store::ranks::Rank;
use crate::tree::{Contents, Given, LeafKind, LeafMeta};

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
    /// The numbers of the parts that this process stores, ascending; `None` for all of them.
    stored: Option<Vec<usize>>,
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
    /// A leaf in one part, which is stored here.
    pub(super) fn new(path: &KeyPath, meta: &LeafMeta, compression: Compression) -> Result<Self> {
        meta.check()?;
        let leaf = Self {
            encoded: path.encode(),
            size_bytes: meta.size_bytes()?,
            meta: LeafMeta::new(meta.kind, meta.dtype, meta.shape.clone()),
            compression,
            chosen: OnceLock::new(),
            sharding: None,
            parts: None,
            stored: None,
        };
        leaf.check_chunks()?;
        Ok(leaf)
    }

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
        let cuts = self.stored().flat_map(|part| {
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

    /// The numbers of the parts that this process stores, ascending.
    pub(super) fn stored(&self) -> impl Iterator<Item = usize> {
        let all = if self.stored.is_none() { self.part_count() } else { 0 };
        (0..all).chain(self.stored.iter().flatten().copied())
    }

    /// Which of the stored parts the part `number` is.
    pub(super) fn place_of(&self, number: usize) -> Option<usize> {
        match &self.stored {
            Some(stored) => stored.binary_search(&number).ok(),
            None => Some(number),
        }
    }

    /// Whether other processes store all of the leaf.
    pub(super) fn is_stored_elsewhere(&self) -> bool {
        self.stored.as_ref().is_some_and(Vec::is_empty)
    }

    /// The bytes of the parts that this process stores.
    pub(super) fn stored_bytes(&self) -> usize {
        self.stored().map(|part| self.part_bytes(part)).sum()
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
    pub(super) fn cut_into_parts(
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
        }
        Ok(())
    }

    /// Sets which parts this process stores: of a leaf that is given whole all, or none if it is another rank
    /// than the first.
    pub(super) fn store_parts(
        &mut self,
        contents: Option<&Contents<'_>>,
        rank: Option<Rank>,
    ) -> Result<()> {
        self.stored = match (contents, rank) {
            (Some(Contents::Shards(shards, Given::Local)), rank) => {
                let grid = self.parts.as_ref().map(|parts| &parts.grid);
                let of = |region| grid.map_or_else(|| vec![0], |grid| grid.parts_of(region));
                let mut numbers: Vec<_> =
                    shards.iter().flat_map(|(region, _)| of(region)).collect();
                numbers.sort_unstable();
                let missing = (0..self.part_count()).find(|part| {
                    self.part_bytes(*part) > 0 && numbers.binary_search(part).is_err()
                });
                if let (None, Some(missing)) = (rank, missing) {
                    let region = self.part(missing);
                    let message = format!("the region {region} of {} is missing", self.meta);
                    return Err(Error::invalid(message).advise(
                        "open the store as a rank, so that the process that has it can save it",
                    ));
                }
                Some(numbers)
            }
            (_, Some(rank)) if rank.number() > 0 => Some(Vec::new()),
            _ => None,
        };
        if let Some(parts) = &self.parts {
            let count = |part| match self.place_of(part) {
                Some(_) => cuts(self.part_bytes(part), self.compression).count(),
                None => 0,
            };
            let ends = (0..self.part_count()).map(count).scan(0, |end, count| {
                *end += count;
                Some(*end)
            });
            let chunk_ends = ends.collect();
            self.parts = Some(Box::new(Parts { grid: parts.grid.clone(), chunk_ends }));
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
