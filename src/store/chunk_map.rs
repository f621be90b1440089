//! Chunk → the elements of the array that it has.

use std::ops::Range;

use crate::record::LeafRecord;
use crate::shape::{Grid, Region, boxes, copy_common};

/// Where the chunks of a leaf lie in the array.
pub(super) struct ChunkMap {
    grid: Grid,
    element_bytes: usize,
    /// For each part the number of its first chunk, and that of all chunks at the end.
    first_chunks: Vec<usize>,
    /// Where each chunk begins, in bytes of its part.
    starts: Vec<usize>,
    lengths: Vec<usize>,
}

/// A chunk, and the elements that it has: those of the part `region` with the numbers `run`.
#[derive(Debug, Clone)]
pub(super) struct PlacedChunk {
    /// Its number in the leaf.
    pub(super) number: usize,
    pub(super) part: usize,
    /// Its number in the part.
    pub(super) index: usize,
    region: Region,
    run: Range<usize>,
    element_bytes: usize,
}

impl ChunkMap {
    pub(super) fn new(record: &LeafRecord) -> Self {
        let ends = record
            .parts
            .as_ref()
            .map_or_else(|| vec![record.chunks.len()], |parts| parts.chunk_ends.clone());
        let mut starts = Vec::with_capacity(record.chunks.len());
        let lengths: Vec<usize> = record
            .chunks
            .iter()
            .map(|chunk| usize::try_from(chunk.info.raw_len).unwrap_or(usize::MAX))
            .collect();
        let first_chunks: Vec<usize> = std::iter::once(0).chain(ends).collect();
        for part in first_chunks.windows(2) {
            let [first, end] = part else { continue };
            let mut start = 0;
            for length in lengths.get(*first..*end).unwrap_or_default() {
                starts.push(start);
                start += length;
            }
        }
        let element_bytes = record.meta.dtype.size_bytes();
        Self { grid: record.grid(), element_bytes, first_chunks, starts, lengths }
    }

    /// The chunks that have elements of `region`, in their order.
    pub(super) fn of_region(&self, region: &Region) -> impl Iterator<Item = PlacedChunk> {
        let parts = self.grid.parts_of(region).into_iter();
        parts.flat_map(|part| self.of_part(part, region)).filter(|chunk| chunk.meets(region))
    }

    /// The chunks of a part from the first to the last one that has elements of `region`.
    fn of_part(&self, part: usize, region: &Region) -> impl Iterator<Item = PlacedChunk> {
        let of_part = self.grid.part(part);
        let (first, end) = self.bounds(part);
        let starts = self.starts.get(first..end).unwrap_or_default();
        let bytes = of_part.common(region).map_or(0..0, |common| {
            let elements = of_part.span_of(&common);
            elements.start * self.element_bytes..elements.end * self.element_bytes
        });
        let from = starts.partition_point(|start| *start <= bytes.start).saturating_sub(1);
        let to = starts.partition_point(|start| *start < bytes.end);
        (from..to).map(move |index| {
            let number = first + index;
            let start = self.starts.get(number).copied().unwrap_or_default();
            let length = self.lengths.get(number).copied().unwrap_or_default();
            PlacedChunk {
                number,
                part,
                index,
                region: of_part.clone(),
                run: start / self.element_bytes..(start + length) / self.element_bytes,
                element_bytes: self.element_bytes,
            }
        })
    }

    fn bounds(&self, part: usize) -> (usize, usize) {
        let bound = |part: usize| self.first_chunks.get(part).copied().unwrap_or_default();
        (bound(part), bound(part + 1))
    }
}

impl PlacedChunk {
    /// What the chunk has, as boxes whose elements follow each other in it.
    fn boxes(&self) -> impl Iterator<Item = Region> {
        let boxes = boxes(&self.region.shape(), self.run.clone());
        boxes.into_iter().map(|inner| self.region.outer(&inner))
    }

    fn meets(&self, region: &Region) -> bool {
        self.boxes().any(|part| part.meets(region))
    }

    /// The contents `raw` of the chunk as boxes of the array.
    pub(super) fn parts<'r>(&self, raw: &'r [u8]) -> impl Iterator<Item = (Region, &'r [u8])> {
        let mut rest = raw;
        self.boxes().map(move |part| {
            let length = part.elements() * self.element_bytes;
            let (head, tail) = rest.split_at_checked(length).unwrap_or_default();
            rest = tail;
            (part, head)
        })
    }

    /// Copies what the chunk, whose contents are `raw`, has of `region` to `out`, which is as long as that.
    pub(super) fn copy(&self, raw: &[u8], region: &Region, out: &mut [u8]) {
        for (part, bytes) in self.parts(raw) {
            copy_common(self.element_bytes, (&part, bytes), (region, out));
        }
    }
}
