//! The leaf record: what the leaf is, and where its chunks are.

mod archive;

use std::ops::Range;

use super::Extent;
use crate::codec::{ChunkId, ChunkInfo};
use crate::shape::Grid;
use crate::tree::LeafMeta;

pub(super) use archive::{ArchivedLeafV2, LeafV2};

/// Where a chunk is, and what it is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredChunk {
    pub(crate) pack: u64,
    /// The offset in the pack, in bytes.
    pub(crate) offset: u32,
    pub(crate) info: ChunkInfo,
}

impl StoredChunk {
    pub(crate) fn extent(&self) -> Extent {
        Extent { pack: self.pack, offset: self.offset, length: self.info.stored_len }
    }
}

/// A leaf of one step. The contents of its chunks, one after the other, are those of its parts.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LeafRecord {
    /// What the leaf is, without its sharding.
    pub(crate) meta: LeafMeta,
    /// The number of its sharding among those of the step.
    pub(crate) sharding: Option<u32>,
    /// `None` for an array in one part.
    pub(crate) parts: Option<Box<Parts>>,
    /// The chunks of all parts.
    pub(crate) chunks: Vec<StoredChunk>,
}

/// The parts in which an array is stored, each in C order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Parts {
    pub(crate) grid: Grid,
    /// For each part how many chunks it and those before it have.
    pub(crate) chunk_ends: Vec<usize>,
}

impl Parts {
    /// The part of the chunk `number` of the leaf, and its number in the part.
    pub(crate) fn part_of_chunk(&self, number: usize) -> (usize, usize) {
        let part = self.chunk_ends.partition_point(|end| *end <= number);
        let first = part.checked_sub(1).and_then(|before| self.chunk_ends.get(before));
        (part, number - first.copied().unwrap_or_default())
    }

    /// The chunks of the part `number`, as numbers of chunks of the leaf.
    pub(crate) fn chunks_of_part(&self, number: usize) -> Range<usize> {
        let end = |number: usize| self.chunk_ends.get(number).copied();
        number.checked_sub(1).and_then(end).unwrap_or_default()..end(number).unwrap_or_default()
    }
}

impl LeafRecord {
    /// A leaf in one part.
    #[cfg(test)]
    pub(crate) fn whole(meta: LeafMeta, chunks: Vec<StoredChunk>) -> Self {
        Self { meta, sharding: None, parts: None, chunks }
    }

    /// The chunks with what each must not be mistaken for another by; `path` is the encoded key path.
    pub(crate) fn chunks_with_ids<'r>(
        &'r self,
        path: &'r [u8],
    ) -> impl Iterator<Item = (ChunkId<'r>, &'r StoredChunk)> {
        let ends = self.parts.as_ref().map(|parts| &parts.chunk_ends[..]).unwrap_or_default();
        let (mut shard, mut first) = (0, 0);
        self.chunks.iter().enumerate().map(move |(number, chunk)| {
            while let Some(end) = ends.get(shard).filter(|end| **end <= number) {
                (shard, first) = (shard + 1, *end);
            }
            (ChunkId::new(path, shard, number - first, self.meta.dtype), chunk)
        })
    }

    /// The number of parts.
    pub(crate) fn part_count(&self) -> usize {
        self.parts.as_ref().map_or(1, |parts| parts.grid.part_count())
    }

    /// The chunks of the part `number`.
    pub(crate) fn chunks_of(&self, number: usize) -> &[StoredChunk] {
        match &self.parts {
            Some(parts) => self.chunks.get(parts.chunks_of_part(number)).unwrap_or_default(),
            None => &self.chunks,
        }
    }

    /// The raw bytes of the part `number`.
    pub(crate) fn part_bytes(&self, number: usize) -> usize {
        self.grid().part(number).elements() * self.meta.dtype.size_bytes()
    }

    /// The grid of the parts.
    pub(crate) fn grid(&self) -> Grid {
        let whole = || Grid::whole(&self.meta.shape);
        self.parts.as_ref().map_or_else(whole, |parts| parts.grid.clone())
    }
}
