//! Source → leaves that are to be saved, each checked, and cut into batches of chunks.

use std::collections::HashMap;
use std::sync::Arc;

use super::chunk::{Batches, Chunk, Raw};
use super::contents::{checked, part_of};
use super::planned_leaf::{Cut, PlannedLeaf};
use super::report::Accepted;
use super::reuse::{Memory, Reuse};
use crate::error::{Error, Result};
use crate::sharding::Sharding;
use crate::store::options::StoreOptions;
use crate::store::ranks::Rank;
use crate::tree::{Contents, Data, LeafMeta, LeafSource, Tree};

/// The raw bytes that are encoded while the batch before is written.
pub(super) const BATCH_BYTES: usize = 8 << 20;

/// What decides how leaves are stored.
#[derive(Clone, Copy)]
pub(super) struct Settings<'o> {
    pub(super) options: &'o StoreOptions,
    pub(super) record_sharding: bool,
    pub(super) rank: Option<Rank>,
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
        settings: Settings<'_>,
    ) -> Result<Self> {
        let Settings { options, record_sharding, rank } = settings;
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
                let mut leaf = PlannedLeaf::new(path, meta, *options.compression.of(path))?;
                let sharding = meta.sharding.as_ref();
                leaf.cut_into_parts(sharding, options.chunk_hints.of(path).as_ref())?;
                leaf.store_parts(in_memory.as_ref(), rank)?;
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
        if leaf.is_stored_elsewhere() {
            return Box::new(std::iter::empty());
        }
        if let Some(Contents::Whole(data)) = contents
            && let Some(unchanged) = reuse.unchanged(number, data)
        {
            return Box::new(unchanged.into_iter());
        }
        let chunk = move |Cut { part, index, run }: Cut| {
            let raw = match contents.as_ref().and_then(|contents| part_of(leaf, contents, part)) {
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
    use crate::codec::Compression;
    use crate::dtype::DType;
    use crate::path::KeyPath;
    use crate::shape::Shape;

    #[test]
    fn leaves_have_no_more_bytes_in_all_than_a_file() {
        let path = KeyPath::from(["w".into()]);
        let meta = LeafMeta::array(DType::U8, Shape::new([1]).unwrap());
        let leaf = || {
            let mut leaf = PlannedLeaf::new(&path, &meta, Compression::None).unwrap();
            leaf.size_bytes = 1 << 62;
            leaf
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
