//! Reading everything, to say what is not as it was written.

mod step;

use std::collections::{BTreeMap, BTreeSet};

use super::CheckpointStore;
use crate::db::ReadTx;
use crate::error::{Error, ErrorKind, Result};

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
    /// Reads and checks every record and every chunk of every step, compares them with each
    /// other, counts the references to packs again, and looks for rows that belong to nothing.
    /// Works beside a running trainer: what is checked is one commit.
    ///
    /// # Errors
    /// Only if the check can't be done at all: `Io`, or `Damaged` if not even the list of steps
    /// can be read. What it finds is in the report.
    pub fn verify(&self) -> Result<VerifyReport> {
        let check = || {
            let tx = self.database.read()?;
            let mut check = Check::new(&tx);
            match check.all() {
                Err(error) if check.report.faults.is_empty() => return Err(error),
                Err(error) => check.report.faults.push(
                    Error::damaged("the check ended here: nothing more could be read")
                        .with_source(error),
                ),
                Ok(()) => {}
            }
            Ok(check.report)
        };
        let mut report = check().map_err(|error| error.in_file(self.path()))?;
        report.faults = report.faults.into_iter().map(|fault| fault.in_file(self.path())).collect();
        Ok(report)
    }
}

struct Check<'t> {
    tx: &'t ReadTx,
    report: VerifyReport,
    /// Pack → steps that use it, counted again.
    refs: BTreeMap<u64, u64>,
    /// The packs of some step are not known, so that references can't be counted.
    uncountable: bool,
}

impl<'t> Check<'t> {
    fn new(tx: &'t ReadTx) -> Self {
        Self { tx, report: VerifyReport::default(), refs: BTreeMap::new(), uncountable: false }
    }

    fn all(&mut self) -> Result<()> {
        let steps = self.tx.step_records()?;
        for (step, record) in &steps {
            self.step(*step, record)?;
        }
        let steps: BTreeSet<u64> = steps.into_iter().map(|(step, _)| step).collect();
        self.orphans(&steps)?;
        self.references()
    }

    /// Takes down a fault, and says whether the check can go on after it: after an error of the
    /// file system it can't.
    fn note(&mut self, error: Error) -> Result<()> {
        match error.kind() {
            ErrorKind::Damaged | ErrorKind::UnsupportedVersion => {
                self.report.faults.push(error);
                Ok(())
            }
            _ => Err(error),
        }
    }

    /// Looks for records of steps that are not there.
    fn orphans(&mut self, steps: &BTreeSet<u64>) -> Result<()> {
        let tables = [("structure", self.tx.structure_steps()), ("leaf", self.tx.leaf_steps())];
        for (what, found) in tables {
            let found = match found {
                Ok(found) => found,
                Err(error) => return self.note(error),
            };
            for step in found.into_iter().filter(|step| !steps.contains(step)) {
                let message = format!("there are {what} records of a step that is not there");
                self.report.faults.push(Error::damaged(message).at_step(step));
            }
        }
        Ok(())
    }

    /// Compares the stored reference counts with those counted here.
    fn references(&mut self) -> Result<()> {
        let counts = || {
            let (mark, stored) = (self.tx.pack_mark()?, self.tx.pack_refs()?);
            Ok((mark, stored, self.tx.pack_counts(mark)?))
        };
        let (mark, stored, (below, above)) = match counts() {
            Ok(counts) => counts,
            Err(error) => return self.note(error),
        };
        self.report.unfinished_packs = above;
        if self.uncountable {
            return Ok(());
        }
        let rows = u64::try_from(stored.len()).unwrap_or(u64::MAX);
        let mut faults = Vec::new();
        for (pack, stored) in stored {
            let counted = self.refs.remove(&pack).unwrap_or(0);
            if counted != stored {
                faults.push(format!("pack {pack} says that {stored} steps use it, {counted} do"));
            }
            if pack > mark {
                faults.push(format!("pack {pack} is in use, and above the pack mark {mark}"));
            }
        }
        let uncounted = self.refs.keys();
        faults.extend(uncounted.map(|pack| format!("pack {pack} is used but not counted")));
        if rows != below {
            faults.push(format!("there are {below} packs, {rows} are counted as used"));
        }
        self.report.faults.extend(faults.into_iter().map(Error::damaged));
        Ok(())
    }
}
