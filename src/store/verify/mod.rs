//! Reading everything, to say what is not as it was written.
//!
//! * One damaged thing is one fault, as far as that can be told: what is made of other things is
//!   compared only where those could be read.
//! * No loop is longer than there are rows, whatever their contents claim.
//! * What can't be read any more ends the check, and is reported once.

mod chunks;
mod packs;
mod ranks;
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
    /// The number of leaves whose records were looked at.
    pub leaves: u64,
    /// The number of chunks that were looked at.
    pub chunks: u64,
    /// The size of those chunks as they are stored, in bytes.
    pub stored_bytes: u64,
    /// Packs of a save that was cut short, or that is at work. They are no fault: the next save
    /// removes what is left of one that was cut short.
    pub unfinished_packs: u64,
    /// The faults, each with the step, leaf and chunk that it is in.
    ///
    /// Most are [`ErrorKind::Damaged`]. [`ErrorKind::UnsupportedVersion`] is a record that a newer
    /// milepost wrote. Any other kind says why the file could not be read any further.
    pub faults: Vec<Error>,
    cut_short: Option<Stop>,
}

impl VerifyReport {
    /// Whether the check came to its end. If not, the file could not be read any further after the
    /// last fault, and what follows there was not looked at.
    pub fn is_complete(&self) -> bool {
        self.cut_short.is_none()
    }
}

impl CheckpointStore {
    /// Reads and checks every record and every chunk of every step, makes sums, digests and
    /// references to packs again, and looks for what belongs to no step. Works beside a running
    /// trainer: what is checked is one commit.
    ///
    /// # Errors
    /// Only if the check can't be done at all: `Io`, or `Damaged` if not even the list of steps
    /// can be read. What it finds is in the report, also an error that ends the check.
    pub fn verify(&self) -> Result<VerifyReport> {
        let tx = self.database.read()?;
        let steps = tx.steps().map_err(|error| error.in_file(self.path()))?;
        let mut check = Check::new(&tx);
        check.report.cut_short = check.all(&steps).err();
        let mut report = check.report;
        report.faults = report.faults.into_iter().map(|fault| fault.in_file(self.path())).collect();
        Ok(report)
    }
}

/// The check can't go on: nothing more can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stop;

/// What a part of the check came to, unless it stopped.
type Go<T = ()> = std::result::Result<T, Stop>;

struct Check<'t> {
    tx: &'t ReadTx,
    report: VerifyReport,
    /// Whether the database has refused something already.
    read_failed: bool,
    /// The pack high-water mark, if it can be read.
    mark: Option<u64>,
    /// Pack → steps that use it, as stored, if that can be read.
    stored_refs: Option<BTreeMap<u64, u64>>,
    /// Pack → steps that use it, counted again.
    counted_refs: BTreeMap<u64, u64>,
    /// Steps and pending ranks of which it is not known which packs they use.
    uncounted_steps: u64,
    /// Packs that chunks say they are in, and which are not there.
    missing_packs: BTreeSet<u64>,
    /// Whether a step was found to use a pack above the mark.
    mark_passed: bool,
}

impl<'t> Check<'t> {
    fn new(tx: &'t ReadTx) -> Self {
        Self {
            tx,
            report: VerifyReport::default(),
            read_failed: false,
            mark: None,
            stored_refs: None,
            counted_refs: BTreeMap::new(),
            uncounted_steps: 0,
            missing_packs: BTreeSet::new(),
            mark_passed: false,
        }
    }

    fn all(&mut self, steps: &[u64]) -> Go {
        self.read(self.tx.created_unix_ns())?;
        self.mark = self.read(self.tx.pack_mark())?;
        let refs = self.read(self.tx.pack_refs())?;
        self.stored_refs = refs.map(BTreeMap::from_iter);
        for step in steps {
            self.step(*step)?;
        }
        self.orphans(steps)?;
        self.contributions()?;
        self.references()?;
        self.pack_rows()
    }

    /// What was read; a fault if it could not be.
    fn read<T>(&mut self, result: Result<T>) -> Go<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            // What closed the store is in the report already.
            Err(error) if self.read_failed && ReadTx::is_follow_up(&error) => Err(Stop),
            Err(error) => {
                self.read_failed = true;
                self.fault(error).map(|()| None)
            }
        }
    }

    /// Adds a fault, and stops if it is none of the contents.
    fn fault(&mut self, fault: Error) -> Go {
        let kind = fault.kind();
        self.report.faults.push(fault);
        match kind {
            ErrorKind::Damaged | ErrorKind::UnsupportedVersion => Ok(()),
            _ => Err(Stop),
        }
    }

    /// Finds records of steps that are not there.
    fn orphans(&mut self, steps: &[u64]) -> Go {
        let structures = self.read(self.tx.structure_steps())?.unwrap_or_default();
        let leaves = self.read(self.tx.leaf_steps())?.unwrap_or_default();
        let shardings = self.read(self.tx.sharding_steps())?.unwrap_or_default();
        for (found, what) in [
            (structures, "a structure record"),
            (leaves, "leaf records"),
            (shardings, "a shardings record"),
        ] {
            for step in found.into_iter().filter(|step| steps.binary_search(step).is_err()) {
                let message = format!("this step has {what} and no step record");
                self.fault(Error::damaged(message).at_step(step))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After an error of the disk every read fails, which was once reported as a fault of each leaf.
    #[test]
    fn an_error_of_the_disk_ends_the_check_and_is_reported_once() {
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::create(folder.path().join("store")).unwrap();
        let tx = store.database.read().unwrap();
        let mut check = Check::new(&tx);
        assert_eq!(check.fault(Error::damaged("a chunk")), Ok(()));
        let broken = || Error::from_io(std::io::Error::other("broken"), "the disk");
        assert_eq!(check.read::<()>(Err(broken())), Err(Stop));
        let kinds: Vec<_> = check.report.faults.iter().map(Error::kind).collect();
        assert_eq!(kinds, [ErrorKind::Damaged, ErrorKind::Io]);
    }
}
