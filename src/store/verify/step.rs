//! One step: its record, its structure and its leaves, each against the others.

use std::collections::{BTreeMap, BTreeSet};

use super::chunks::ChunkReader;
use super::{Check, Go};
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::{LeafRecord, PackRange, StepRecord, decode_structure};
use crate::store::StepInfo;
use crate::store::records::{meta_of, shardings_of};
use crate::store::totals::Totals;

/// The leaves of a step, by encoded key path.
pub(super) struct Leaves {
    pub(super) list: Vec<(Vec<u8>, LeafRecord)>,
    pub(super) known: Known,
}

/// How much is known of the leaves of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Known {
    /// All of them, in the order of the structure.
    InOrder,
    /// All that have rows, in the order of the rows: the structure can't be read.
    AsRows,
    /// Not all of them.
    InPart,
}

/// Encoded key path → record, or `None` if that can't be read.
type Rows = BTreeMap<Vec<u8>, Option<LeafRecord>>;

impl Check<'_> {
    pub(super) fn step(&mut self, step: u64) -> Go {
        self.report.steps += 1;
        let record = self.step_record(step)?;
        let rows = self.leaf_rows(step)?;
        let structure = self.structure(step)?;
        let leaves = self.leaves(step, rows, structure)?;
        self.overlaps(step, &leaves.list)?;
        self.shardings(step, &leaves.list)?;
        if let Some(record) = &record {
            self.totals(step, record, &leaves)?;
        }
        self.packs(step, record.as_ref(), &leaves)
    }

    /// Compares the shardings of a step with those that its leaves name.
    fn shardings(&mut self, step: u64, leaves: &[(Vec<u8>, LeafRecord)]) -> Go {
        let records = leaves.iter().map(|(_, record)| record);
        let shardings = shardings_of(self.tx, step, records).map_err(|error| error.at_step(step));
        let Some(shardings) = self.read(shardings)? else { return Ok(()) };
        for (path, record) in leaves {
            if let Err(fault) = meta_of(record, &shardings) {
                let path = KeyPath::decode(path).unwrap_or_default();
                self.fault(fault.at_step(step).at_path(&path))?;
            }
        }
        Ok(())
    }

    fn step_record(&mut self, step: u64) -> Go<Option<StepRecord>> {
        let row = self.tx.step(step).map_err(|error| error.at_step(step));
        let Some(row) = self.read(row)? else { return Ok(None) };
        let decode = || -> Result<StepRecord> {
            let row = row.ok_or_else(|| Error::damaged("the step record is missing"))?;
            let record = StepRecord::decode(step, &row)?;
            StepInfo::from_record(step, &record)?;
            Ok(record)
        };
        match decode() {
            Ok(record) => Ok(Some(record)),
            Err(fault) => self.fault(fault.at_step(step)).map(|()| None),
        }
    }

    /// The leaf records of a step with their chunks checked; `None` if the rows can't be read.
    fn leaf_rows(&mut self, step: u64) -> Go<Option<Rows>> {
        let rows = self.tx.leaves(step).map_err(|error| error.at_step(step));
        let Some(rows) = self.read(rows)? else { return Ok(None) };
        let (mut decoded, mut reader) = (Rows::new(), ChunkReader::default());
        for (encoded, row) in rows {
            self.report.leaves += 1;
            let path = match KeyPath::decode(&encoded) {
                Ok(path) => path,
                Err(fault) => {
                    // The row is of no leaf that there can be, so no leaf is lacking for it.
                    self.fault(fault.at_step(step))?;
                    continue;
                }
            };
            let record = match LeafRecord::decode(step, &encoded, &row) {
                Ok(record) => {
                    self.chunks(&mut reader, step, &encoded, &record)?;
                    Some(record)
                }
                Err(fault) => {
                    self.fault(Error::from(fault).at_step(step).at_path(&path))?;
                    None
                }
            };
            decoded.insert(encoded, record);
        }
        Ok(Some(decoded))
    }

    /// The paths of the leaves in the order of the structure; `None` if that can't be read.
    fn structure(&mut self, step: u64) -> Go<Option<Vec<KeyPath>>> {
        let row = self.tx.structure(step).map_err(|error| error.at_step(step));
        let Some(row) = self.read(row)? else { return Ok(None) };
        let decode = || -> Result<Vec<KeyPath>> {
            let row = row.ok_or_else(|| Error::damaged("the structure record is missing"))?;
            let mut paths = Vec::new();
            decode_structure(step, &row, &mut |path| {
                paths.push(path.clone());
                Ok(())
            })?;
            Ok(paths)
        };
        match decode() {
            Ok(paths) => Ok(Some(paths)),
            Err(fault) => self.fault(fault.at_step(step)).map(|()| None),
        }
    }

    /// Compares structure and rows both ways. A row that the structure does not have is none of
    /// the leaves.
    fn leaves(
        &mut self,
        step: u64,
        rows: Option<Rows>,
        structure: Option<Vec<KeyPath>>,
    ) -> Go<Leaves> {
        let Some(mut rows) = rows else {
            return Ok(Leaves { list: Vec::new(), known: Known::InPart });
        };
        let Some(structure) = structure else {
            let readable = rows.values().all(Option::is_some);
            let known = if readable { Known::AsRows } else { Known::InPart };
            let list = rows.into_iter().filter_map(|(path, record)| Some((path, record?)));
            return Ok(Leaves { list: list.collect(), known });
        };
        let (mut list, mut known) = (Vec::new(), Known::InOrder);
        for path in structure {
            let encoded = path.encode();
            match rows.remove(&encoded) {
                Some(Some(record)) => list.push((encoded, record)),
                Some(None) => known = Known::InPart,
                None => {
                    known = Known::InPart;
                    let fault = Error::damaged("the record of the leaf is missing");
                    self.fault(fault.at_step(step).at_path(&path))?;
                }
            }
        }
        for encoded in rows.into_keys() {
            let fault = Error::damaged("the leaf has a record and is not in the structure");
            let path = KeyPath::decode(&encoded).unwrap_or_default();
            self.fault(fault.at_step(step).at_path(&path))?;
        }
        Ok(Leaves { list, known })
    }

    /// Compares counts, sums and digest with those of the leaves.
    fn totals(&mut self, step: u64, record: &StepRecord, leaves: &Leaves) -> Go {
        if leaves.known == Known::InPart {
            return Ok(());
        }
        let mut found = Totals::default();
        for (path, leaf) in &leaves.list {
            found.add(path, leaf);
        }
        for (what, says, found) in [
            ("leaves", record.leaf_count, found.leaf_count),
            ("chunks", record.chunk_count, found.chunk_count),
            ("raw bytes", record.logical_bytes, found.logical_bytes),
            ("stored bytes", record.stored_bytes, found.stored_bytes),
        ] {
            if says != found {
                let message = format!("the step record says {says} {what}, there are {found}");
                self.fault(Error::damaged(message).at_step(step))?;
            }
        }
        let (says, found) = (u128::from_be_bytes(record.digest), found.digest());
        let found = u128::from_be_bytes(found);
        if leaves.known == Known::InOrder && says != found {
            let message =
                format!("the step record has digest {says:032x}, its leaves have {found:032x}");
            self.fault(Error::damaged(message).at_step(step))?;
        }
        Ok(())
    }

    /// Compares the list of packs with those that the chunks are in, and counts the step for them.
    fn packs(&mut self, step: u64, record: Option<&StepRecord>, leaves: &Leaves) -> Go {
        let chunks = leaves.list.iter().flat_map(|(_, leaf)| &leaf.chunks);
        let used: BTreeSet<u64> = chunks.flat_map(|chunk| chunk.extent().packs()).collect();
        let listed = record.map_or(&[][..], |record| &record.packs);
        if record.is_some() {
            let is_listed = |pack: &&u64| PackRange::any_contains(listed, **pack);
            if let Some(pack) = used.iter().find(|pack| !is_listed(pack)) {
                let message = format!("a chunk is in pack {pack}, which the step does not list");
                self.fault(Error::damaged(message).at_step(step))?;
            } else if leaves.known != Known::InPart
                && let Some(pack) = listed.iter().find_map(|range| first_unused(*range, &used))
            {
                let message = format!("the step lists pack {pack}, and no chunk of it is there");
                self.fault(Error::damaged(message).at_step(step))?;
            }
        }
        self.check_mark(
            step,
            listed.last().and_then(|range| range.last()).max(used.last().copied()),
        )?;
        match (leaves.known, record) {
            (Known::InPart, Some(record)) => self.count_listed(step, &record.packs),
            (known, _) => {
                self.uncounted_steps += u64::from(known == Known::InPart);
                for pack in used {
                    *self.counted_refs.entry(pack).or_default() += 1;
                }
                Ok(())
            }
        }
    }
}

/// The first pack of a range that is not used: found after as many looks as packs are used.
fn first_unused(range: crate::record::PackRange, used: &BTreeSet<u64>) -> Option<u64> {
    let last = range.last()?;
    let mut next = range.first;
    for pack in used.range(range.first..=last) {
        if *pack != next {
            return Some(next);
        }
        next = pack.checked_add(1)?;
    }
    (next <= last).then_some(next)
}
