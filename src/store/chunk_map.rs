//! Chunk → the elements of the array that it has.

use std::ops::Range;

use crate::record::LeafRecord;
use crate::shape::{CommonRuns, Grid, Region, boxes, copy_common};

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

    /// The size of its contents.
    pub(super) fn size_bytes(&self) -> usize {
        self.run.len() * self.element_bytes
    }

    /// What the chunk has of `region`, as runs of its contents and of what a buffer for the region holds:
    /// where each begins in the one and in the other.
    pub(super) fn runs(&self, region: &Region) -> impl Iterator<Item = (usize, CommonRuns)> {
        let mut start = 0;
        self.boxes().filter_map(move |part| {
            let in_chunk = start;
            start += part.elements() * self.element_bytes;
            Some((in_chunk, CommonRuns::new(self.element_bytes, &part, region)?))
        })
    }

    /// Copies what the chunk, whose contents are `raw`, has of `region` to `out`, which is as long as that.
    pub(super) fn copy(&self, raw: &[u8], region: &Region, out: &mut [u8]) {
        for (part, bytes) in self.parts(raw) {
            copy_common(self.element_bytes, (&part, bytes), (region, out));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::{ChunkInfo, Codec};
    use crate::dtype::DType;
    use crate::record::{Parts, StoredChunk};
    use crate::shape::Shape;
    use crate::shape::tests::elements;
    use crate::tree::LeafMeta;
    use proptest::prelude::*;

    /// An array of `uint16` that is cut by `cuts` and, in each part, after so many elements.
    fn record(shape: Shape, cuts: Vec<Vec<usize>>, chunk_elements: usize) -> LeafRecord {
        let grid = Grid::cut(&shape, cuts);
        let (mut chunks, mut chunk_ends) = (Vec::new(), Vec::new());
        for part in grid.parts() {
            for start in (0..part.elements().max(1)).step_by(chunk_elements) {
                let raw_len = 2 * chunk_elements.min(part.elements() - start);
                let raw_len = u32::try_from(raw_len).unwrap();
                let (codec, crc32, hash) = (Codec::Raw, 0, [0; 16]);
                let info = ChunkInfo { codec, raw_len, stored_len: raw_len, crc32, hash };
                chunks.push(StoredChunk { pack: 1, offset: 0, info });
            }
            chunk_ends.push(chunks.len());
        }
        let meta = LeafMeta::array(DType::U16, shape);
        let parts = Some(Box::new(Parts { grid, chunk_ends }));
        LeafRecord { meta, sharding: None, parts, chunks }
    }

    proptest! {
        /// Reading a region reads the chunks that have elements of it, and no others.
        #[test]
        fn the_chunks_of_a_region_are_those_that_it_meets(
            axes in prop::collection::vec(
                (0usize..7, prop::collection::vec(0usize..7, 0..3), 0usize..8, 0usize..8),
                0..4,
            ),
            chunk_elements in 1usize..9,
        ) {
            let shape = Shape::new(axes.iter().map(|axis| axis.0).collect::<Vec<_>>()).unwrap();
            let cuts = axes.iter().map(|axis| axis.1.clone()).collect();
            let record = record(shape.clone(), cuts, chunk_elements);
            let range = |(length, _, a, b): &(usize, Vec<usize>, usize, usize)| {
                let (a, b) = (*a.min(length), *b.min(length));
                a.min(b)..a.max(b)
            };
            let region = Region::new(axes.iter().map(range).collect::<Vec<_>>());
            let wanted = elements(&region, &shape);
            let mut met = Vec::new();
            let mut number = 0;
            for part in record.grid().parts() {
                for chunk in elements(&part, &shape).chunks(chunk_elements) {
                    if chunk.iter().any(|element| wanted.contains(element)) {
                        met.push(number);
                    }
                    number += 1;
                }
            }
            let map = ChunkMap::new(&record);
            let found: Vec<_> = map.of_region(&region).map(|chunk| chunk.number).collect();
            prop_assert_eq!(found, met);
        }
    }
}
