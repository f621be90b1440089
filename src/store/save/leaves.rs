//! Source → leaves that are to be saved, each checked, and cut into batches of chunks.

use std::ops::Range;
use std::sync::{Arc, OnceLock};

use super::chunk::{Batches, Chunk, Raw};
use super::plan::{chunk_count, cuts};
use super::report::Accepted;
use super::reuse::{Memory, Reuse};
use crate::codec::{self, Compression};
use crate::dtype::{DType, Element, zeroed};
use crate::error::{Error, Result};
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_LEAF_CHUNKS};
use crate::path::KeyPath;
use crate::shape::boxes;
use crate::store::compression::CompressionRules;
use crate::tree::{Data, LeafKind, LeafMeta, LeafSource, Tree};

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
    pub(super) fn cuts(&self) -> impl Iterator<Item = (u32, Range<usize>)> {
        // It has far fewer: see `check_chunks`.
        (0u32..).zip(cuts(self.size_bytes, self.compression))
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

    /// Checks that the chunks of the leaf fit a record, before any of them is written.
    fn check_chunks(&self) -> Result<()> {
        let found = chunk_count(self.size_bytes, self.compression);
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
    /// The whole contents of each leaf, if they are in memory: the source has them there, or they
    /// are a text.
    pub(super) contents: Vec<Option<Data<'s>>>,
}

impl<'s> SourceLeaves<'s> {
    pub(super) fn new(
        source: &'s dyn LeafSource,
        structure: &Tree<LeafMeta>,
        compression: &CompressionRules,
    ) -> Result<Self> {
        let all = source.borrow_all();
        let (mut list, mut contents) = (Vec::new(), Vec::new());
        structure.visit(&mut |path, node| {
            let Tree::Leaf(meta) = node else { return Ok(()) };
            let in_memory = match &all {
                Some(all) => all.get(list.len()).map(|leaf| leaf.data()),
                None => source.borrow(path).map(Data::Borrowed),
            };
            let plan = || -> Result<_> {
                meta.check()?;
                let leaf = PlannedLeaf {
                    encoded: path.encode(),
                    size_bytes: meta.size_bytes()?,
                    meta: meta.clone(),
                    compression: compression.of(path),
                    chosen: OnceLock::new(),
                };
                leaf.check_chunks()?;
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
        Ok(Self { source, list: Arc::new(list), contents })
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
        if let Some(unchanged) = contents.as_ref().and_then(|data| reuse.unchanged(number, data)) {
            return Box::new(unchanged.into_iter());
        }
        let chunk = move |(index, run): (u32, Range<usize>)| {
            let raw = match contents {
                Some(data) => Raw::Slice(data.bytes(), run),
                None => Raw::Unread(self.source, run),
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

/// The contents of a leaf, as long as they should be. A string or JSON value is checked to be one;
/// a text has no parts that could be checked on their own, so it is read as a whole.
fn checked<'s>(
    source: &dyn LeafSource,
    leaf: &PlannedLeaf,
    contents: Option<Data<'s>>,
) -> Result<Option<Data<'s>>> {
    let PlannedLeaf { meta, size_bytes, .. } = leaf;
    if let Some(contents) = &contents
        && contents.bytes().len() != *size_bytes
    {
        return Err(Error::invalid(format!(
            "the source gives {} bytes for {meta}, expected {size_bytes}",
            contents.bytes().len()
        )));
    }
    if !matches!(meta.kind, LeafKind::String | LeafKind::Json) {
        return Ok(contents);
    }
    let text = match contents {
        Some(text) => text,
        None => Data::shared(read_run(source, leaf, 0..*size_bytes)?),
    };
    meta.check_text(text.bytes())?;
    Ok(Some(text))
}

/// Reads the bytes `run` of a leaf from a source that doesn't have it in memory.
pub(super) fn read_run(
    source: &dyn LeafSource,
    leaf: &PlannedLeaf,
    run: Range<usize>,
) -> Result<Vec<u8>> {
    let mut raw: Vec<u8> = zeroed(run.len()).map_err(|error| leaf.locate(error))?;
    read_run_into(source, leaf, run, &mut raw)?;
    Ok(raw)
}

/// [`read_run`] into memory of the same length.
pub(super) fn read_run_into(
    source: &dyn LeafSource,
    leaf: &PlannedLeaf,
    run: Range<usize>,
    out: &mut [u8],
) -> Result<()> {
    let element_bytes = leaf.meta.dtype.size_bytes();
    let elements = run.start / element_bytes..run.end / element_bytes;
    let path = KeyPath::decode(&leaf.encoded)?;
    let mut rest = out;
    for region in boxes(&leaf.meta.shape, elements) {
        let (out, after) = rest.split_at_mut(region.elements() * element_bytes);
        source.read_region(&path, &region, out).map_err(|error| error.at_path(&path))?;
        rest = after;
    }
    Ok(())
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
        let contents = self.leaves.contents.get(leaf).and_then(Option::as_ref);
        let unchanged = self.changed.get(leaf) == Some(&false);
        contents.map_or_else(Memory::default, |data| Memory::of(data, unchanged))
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
