//! Reading everything, to say what is not as it was written.

use std::collections::BTreeMap;

use super::fill::{chunk_error, open_pack, stored_bytes};
use super::{CheckpointStore, step_record};
use crate::codec::{self, ChunkId};
use crate::db::{Pack, ReadTx};
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::{LeafRecord, decode_structure};

/// What a verification read, and every fault that it found.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct VerifyReport {
    /// The number of steps looked at.
    pub steps: u64,
    /// The number of leaves whose records were read.
    pub leaves: u64,
    /// The number of chunks that were read and decoded.
    pub chunks: u64,
    /// The size of those chunks as they are stored, in bytes.
    pub stored_bytes: u64,
    /// Packs of a save that was cut short. They are no fault: the next save removes them.
    pub unfinished_packs: u64,
    /// The faults, each with the step, leaf and chunk that it is in.
    pub faults: Vec<Error>,
}

impl CheckpointStore {
    /// Reads and checks every record and every chunk of every step, and counts the references to
    /// packs again. Works beside a running trainer: what is checked is one commit.
    ///
    /// # Errors
    /// Only if the check can't be done at all: `Io`, or `Damaged` if not even the list of steps
    /// can be read. What it finds is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        let tx = self.database.read()?;
        let steps = tx.steps().map_err(|error| error.in_file(self.path()))?;
        let mut check = Check { tx: &tx, report: VerifyReport::default(), refs: BTreeMap::new() };
        for step in steps {
            check.step(step);
        }
        check.references();
        let mut report = check.report;
        report.faults = report.faults.into_iter().map(|fault| fault.in_file(self.path())).collect();
        Ok(report)
    }
}

struct Check<'t> {
    tx: &'t ReadTx,
    report: VerifyReport,
    /// Pack → steps that use it, counted again.
    refs: BTreeMap<u64, u64>,
}

impl Check<'_> {
    fn step(&mut self, step: u64) {
        self.report.steps += 1;
        let before = (self.report.leaves, self.report.chunks);
        let place = |error: Error| error.at_step(step);
        let record = match step_record(self.tx, step) {
            Ok(record) => record,
            Err(fault) => return self.report.faults.push(place(fault)),
        };
        let packs = record.packs.iter();
        for pack in packs.flat_map(|range| range.first..range.first.saturating_add(range.count)) {
            *self.refs.entry(pack).or_default() += 1;
        }
        if let Err(fault) = self.leaves(step) {
            self.report.faults.push(place(fault));
        }
        if let Err(fault) = self.structure(step) {
            self.report.faults.push(place(fault));
        }
        let found = (self.report.leaves - before.0, self.report.chunks - before.1);
        let expected = (record.leaf_count, record.chunk_count);
        if found != expected {
            self.report.faults.push(place(Error::damaged(format!(
                "{} leaves and {} chunks were read, the step has {} and {}",
                found.0, found.1, expected.0, expected.1
            ))));
        }
    }

    /// Checks that structure and leaf records name the same leaves.
    fn structure(&self, step: u64) -> Result<()> {
        let record = self.tx.structure(step)?;
        let record = record.ok_or_else(|| Error::damaged("the structure record is missing"))?;
        let mut leaves = 0u64;
        decode_structure(step, &record, &mut |path| {
            leaves += 1;
            match self.tx.leaf(step, &path.encode())? {
                Some(_) => Ok(()),
                None => Err(Error::damaged("the record of the leaf is missing").at_path(path)),
            }
        })?;
        Ok(())
    }

    fn leaves(&mut self, step: u64) -> Result<()> {
        let (tx, report) = (self.tx, &mut self.report);
        for (encoded, record) in tx.leaves(step)? {
            report.leaves += 1;
            let located = |error: Error| match KeyPath::decode(&encoded) {
                Ok(path) => error.at_step(step).at_path(&path),
                Err(_) => error.at_step(step),
            };
            match LeafRecord::decode(step, &encoded, &record) {
                Ok(record) => chunks(tx, &encoded, &record, report, &located),
                Err(fault) => report.faults.push(located(fault.into())),
            }
        }
        Ok(())
    }

    /// Compares the stored reference counts with those counted here.
    fn references(&mut self) {
        let result = (|| -> Result<()> {
            for (pack, stored) in self.tx.pack_refs()? {
                let counted = self.refs.remove(&pack).unwrap_or(0);
                if counted != stored {
                    self.report.faults.push(Error::damaged(format!(
                        "pack {pack} says that {stored} steps use it, {counted} do"
                    )));
                }
            }
            for pack in self.refs.keys() {
                self.report
                    .faults
                    .push(Error::damaged(format!("pack {pack} is used but not counted")));
            }
            let mark = self.tx.pack_mark()?;
            let (below, above) = self.tx.pack_counts(mark)?;
            self.report.unfinished_packs = above;
            let counted = self.tx.pack_refs()?.len();
            if u64::try_from(counted) != Ok(below) {
                self.report.faults.push(Error::damaged(format!(
                    "there are {below} packs, {counted} are counted as used"
                )));
            }
            Ok(())
        })();
        if let Err(fault) = result {
            self.report.faults.push(fault);
        }
    }
}

/// Checks every chunk of a leaf, on to the next one after a fault.
fn chunks(
    tx: &ReadTx,
    encoded: &[u8],
    record: &LeafRecord,
    report: &mut VerifyReport,
    located: &dyn Fn(Error) -> Error,
) {
    let mut open: Option<(u64, Pack)> = None;
    let mut raw = Vec::new();
    for (index, chunk) in (0u32..).zip(&record.chunks) {
        let id = ChunkId { path: encoded, shard: 0, index, dtype: record.meta.dtype };
        let mut check = || -> Result<()> {
            let pack = match open.take() {
                Some((number, pack)) if number == chunk.pack => pack,
                _ => open_pack(tx, chunk.pack)?,
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
        report.chunks += 1;
        report.stored_bytes += u64::from(chunk.info.stored_len);
        if let Err(fault) = check() {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            report.faults.push(located(fault.at_chunk(index)));
        }
    }
}
