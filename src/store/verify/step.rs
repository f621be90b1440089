//! The check of one step.

use std::collections::BTreeMap;
use std::ops::Range;

use super::Check;
use crate::codec::{self, ChunkId};
use crate::db::Pack;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::{LeafRecord, PackRange, StepRecord, decode_structure};
use crate::store::fill::{chunk_error, open_pack, stored_bytes};
use crate::store::totals::Totals;

/// What the leaf records of a step say.
#[derive(Default)]
struct Leaves {
    /// By encoded path.
    records: BTreeMap<Vec<u8>, LeafRecord>,
    /// Pack → where chunks lie in it.
    packs: BTreeMap<u64, Vec<Range<u32>>>,
    /// Some record could not be read, so the rest says too little.
    incomplete: bool,
}

impl Check<'_> {
    /// Checks a step with this record.
    pub(super) fn step(&mut self, step: u64, record: &[u8]) -> Result<()> {
        self.report.steps += 1;
        let record = match StepRecord::decode(step, record) {
            Ok(record) => Some(record),
            Err(error) => {
                self.note(Error::from(error).at_step(step))?;
                None
            }
        };
        let leaves = self.leaves(step)?;
        let totals = match self.structure(step, &leaves) {
            Ok(totals) => Some(totals),
            Err(error) => {
                self.note(error.at_step(step))?;
                None
            }
        };
        for (pack, places) in &leaves.packs {
            if let Some(message) = overlap(*pack, places.clone()) {
                self.report.faults.push(Error::damaged(message).at_step(step));
            }
        }
        let packs = match (&record, leaves.incomplete) {
            (_, false) => Some(leaves.packs.keys().copied().collect::<Vec<_>>()),
            (Some(record), true) => numbers(&record.packs, self.tx.pack_count()?),
            (None, true) => None,
        };
        match packs {
            Some(packs) => {
                for pack in packs {
                    *self.refs.entry(pack).or_default() += 1;
                }
            }
            None => self.uncountable = true,
        }
        if let (Some(record), Some(totals), false) = (record, totals, leaves.incomplete) {
            let faults = differences(&record, &totals, &leaves.packs).into_iter();
            self.report.faults.extend(faults.map(|message| Error::damaged(message).at_step(step)));
        }
        Ok(())
    }

    /// Checks all leaf records of a step and their chunks.
    fn leaves(&mut self, step: u64) -> Result<Leaves> {
        let mut leaves = Leaves::default();
        let rows = match self.tx.leaves(step) {
            Ok(rows) => rows,
            Err(error) => {
                self.note(error.at_step(step))?;
                return Ok(Leaves { incomplete: true, ..leaves });
            }
        };
        for (encoded, record) in rows {
            self.report.leaves += 1;
            let path = KeyPath::decode(&encoded);
            let locate = |error: Error| match &path {
                Ok(path) => error.at_step(step).at_path(path),
                Err(_) => error.at_step(step),
            };
            match LeafRecord::decode(step, &encoded, &record) {
                Ok(record) => {
                    self.chunks(&encoded, &record, &locate)?;
                    for chunk in &record.chunks {
                        let end = chunk.offset.saturating_add(chunk.info.stored_len);
                        leaves.packs.entry(chunk.pack).or_default().push(chunk.offset..end);
                    }
                    leaves.records.insert(encoded, record);
                }
                Err(error) => {
                    leaves.incomplete = true;
                    self.note(locate(error.into()))?;
                }
            }
        }
        Ok(leaves)
    }

    /// Checks every chunk of a leaf, on to the next one after a fault.
    fn chunks(
        &mut self,
        encoded: &[u8],
        record: &LeafRecord,
        locate: &dyn Fn(Error) -> Error,
    ) -> Result<()> {
        let mut open: Option<(u64, Pack)> = None;
        let mut raw = Vec::new();
        for (index, chunk) in (0u32..).zip(&record.chunks) {
            let id = ChunkId { path: encoded, shard: 0, index, dtype: record.meta.dtype };
            let mut check = || -> Result<()> {
                let pack = match open.take() {
                    Some((number, pack)) if number == chunk.pack => pack,
                    _ => open_pack(self.tx, chunk.pack)?,
                };
                let stored = stored_bytes(&pack, chunk)?;
                raw.resize(usize::try_from(chunk.info.raw_len).unwrap_or(usize::MAX), 0);
                codec::decode(id, &chunk.info, stored, &mut raw)
                    .map_err(|error| chunk_error(error, id))?;
                if codec::content_hash(&raw) != chunk.info.hash {
                    return Err(Error::damaged("the contents don't have the recorded hash"));
                }
                open = Some((chunk.pack, pack));
                Ok(())
            };
            let result = check();
            self.report.chunks += 1;
            self.report.stored_bytes += u64::from(chunk.info.stored_len);
            if let Err(error) = result {
                let index = usize::try_from(index).unwrap_or(usize::MAX);
                self.note(locate(error.at_chunk(index)))?;
            }
        }
        Ok(())
    }

    /// Checks that the structure names the leaves that have records, and no others; adds them up.
    fn structure(&self, step: u64, leaves: &Leaves) -> Result<Totals> {
        let record = self.tx.structure(step)?;
        let record = record.ok_or_else(|| Error::damaged("the structure record is missing"))?;
        let (mut named, mut totals) = (0, Totals::default());
        decode_structure(step, &record, &mut |path| {
            named += 1;
            let encoded = path.encode();
            match leaves.records.get(&encoded) {
                Some(record) => totals.add(&encoded, record),
                None if leaves.incomplete => {}
                None => {
                    let message = "the record of the leaf is missing";
                    return Err(Error::damaged(message).at_path(path));
                }
            }
            Ok(())
        })?;
        if !leaves.incomplete && named != leaves.records.len() {
            return Err(Error::damaged(format!(
                "the structure names {named} leaves, {} have records",
                leaves.records.len()
            )));
        }
        Ok(totals)
    }
}

/// What the step record says otherwise than its leaf records.
fn differences(
    record: &StepRecord,
    totals: &Totals,
    packs: &BTreeMap<u64, Vec<Range<u32>>>,
) -> Vec<String> {
    let mut faults = Vec::new();
    for (what, recorded, found) in [
        ("leaves", record.leaf_count, totals.leaf_count),
        ("chunks", record.chunk_count, totals.chunk_count),
        ("bytes of contents", record.logical_bytes, totals.logical_bytes),
        ("stored bytes", record.stored_bytes, totals.stored_bytes),
    ] {
        if recorded != found {
            faults.push(format!("the step record says {recorded} {what}, there are {found}"));
        }
    }
    if record.digest != totals.digest() {
        faults.push("the leaf records don't have the digest of the step record".to_owned());
    }
    let limit = u64::try_from(packs.len()).unwrap_or(u64::MAX);
    if numbers(&record.packs, limit).is_none_or(|named| !named.iter().eq(packs.keys())) {
        faults.push("the step record names other packs than the leaf records".to_owned());
    }
    faults
}

/// The numbers of the packs, if they are at most `limit`.
fn numbers(packs: &[PackRange], limit: u64) -> Option<Vec<u64>> {
    let count = packs.iter().fold(0u64, |sum, range| sum.saturating_add(range.count));
    let numbers = packs.iter().flat_map(|range| range.numbers());
    (count <= limit).then(|| numbers.collect())
}

/// Which chunks of a pack lie over each other.
fn overlap(pack: u64, mut places: Vec<Range<u32>>) -> Option<String> {
    places.sort_unstable_by_key(|place| place.start);
    let pairs = places.iter().zip(places.iter().skip(1));
    let (first, second) = pairs.into_iter().find(|(first, second)| first.end > second.start)?;
    Some(format!("in pack {pack} the chunks at {first:?} and {second:?} overlap"))
}
