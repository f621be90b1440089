//! What is in memory of a leaf in the parts in which it is stored, and what has to be read from its source.

use std::ops::Range;

use super::planned_leaf::PlannedLeaf;
use crate::dtype::zeroed;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::shape::boxes;
use crate::tree::{Contents, Data, LeafKind, LeafSource};

/// The contents of a leaf in the parts in which it is stored, as long as they should be; `None` if they
/// are not in memory so. A string or JSON value is checked to be one; a text has no parts that could be
/// checked on their own, so it is read as a whole.
pub(super) fn checked<'s>(
    source: &dyn LeafSource,
    leaf: &PlannedLeaf,
    contents: Option<Contents<'s>>,
) -> Result<Option<Contents<'s>>> {
    let PlannedLeaf { meta, size_bytes, .. } = leaf;
    if let Some(Contents::Whole(data)) = &contents
        && data.bytes().len() != *size_bytes
    {
        return Err(Error::invalid(format!(
            "the source gives {} bytes for {meta}, expected {size_bytes}",
            data.bytes().len()
        )));
    }
    let contents = contents.and_then(|contents| stored_parts(leaf, contents));
    if !matches!(meta.kind, LeafKind::String | LeafKind::Json) {
        return Ok(contents);
    }
    let text = match contents {
        Some(Contents::Whole(text)) => text,
        _ => Data::shared(read_run(source, leaf, 0, 0..*size_bytes)?),
    };
    meta.check_text(text.bytes())?;
    Ok(Some(Contents::Whole(text)))
}

/// `contents`, if they are in memory in the parts in which they are stored.
fn stored_parts<'s>(leaf: &PlannedLeaf, contents: Contents<'s>) -> Option<Contents<'s>> {
    let is_stored_so = match &contents {
        Contents::Whole(_) => leaf.parts.is_none(),
        Contents::Shards(shards, _) => {
            let stored = leaf.stored().map(|part| leaf.part(part));
            stored.eq(shards.iter().map(|(region, _)| region.clone()))
        }
    };
    is_stored_so.then_some(contents)
}

/// The bytes of a stored part.
pub(super) fn part_of<'c>(
    leaf: &PlannedLeaf,
    contents: &'c Contents<'_>,
    part: usize,
) -> Option<&'c [u8]> {
    match contents {
        Contents::Whole(data) => Some(data.bytes()),
        Contents::Shards(shards, _) => {
            shards.get(leaf.place_of(part)?).map(|(_, data)| data.bytes())
        }
    }
}

/// Reads the bytes `run` of a part of a leaf from a source that doesn't have it in memory so.
pub(super) fn read_run(
    source: &dyn LeafSource,
    leaf: &PlannedLeaf,
    part: usize,
    run: Range<usize>,
) -> Result<Vec<u8>> {
    let mut raw: Vec<u8> = zeroed(run.len()).map_err(|error| leaf.locate(error))?;
    read_run_into(source, leaf, part, run, &mut raw)?;
    Ok(raw)
}

/// [`read_run`] into memory of the same length.
pub(super) fn read_run_into(
    source: &dyn LeafSource,
    leaf: &PlannedLeaf,
    part: usize,
    run: Range<usize>,
    out: &mut [u8],
) -> Result<()> {
    let element_bytes = leaf.meta.dtype.size_bytes();
    let elements = run.start / element_bytes..run.end / element_bytes;
    let path = KeyPath::decode(&leaf.encoded)?;
    let part = leaf.part(part);
    let mut rest = out;
    for region in boxes(&part.shape(), elements) {
        let region = part.outer(&region);
        let (out, after) = rest.split_at_mut(region.elements() * element_bytes);
        source.read_region(&path, &region, out).map_err(|error| error.at_path(&path))?;
        rest = after;
    }
    Ok(())
}
