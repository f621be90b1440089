//! Changing saved steps: deleting, rolling back and pinning. Each is one commit.

use super::ranks::drop_pending;
use super::{CheckpointStore, step_record};
use crate::db::{ReadTx, WriteTx};
use crate::error::{Error, ErrorKind, Result};
use crate::record::StepRecord;

impl CheckpointStore {
    /// Deletes `step`, with what [ranks](Self::open_as_rank) gave to replace it.
    ///
    /// # Errors
    /// `NotFound` if it is not saved; `InvalidInput` if it is pinned; `ReadOnly`; `Locked` if another process
    /// has taken the place of this rank; `Damaged`, `OutOfSpace` or `Io`: nothing was deleted.
    pub fn delete(&self, step: u64) -> Result<()> {
        let _writer = self.lock_writer()?;
        let _turn = self.wait_for_turn()?;
        let (tx, read) = self.begin_change()?;
        self.delete_all(&tx, &read, &[step])?;
        drop_pending(&tx, &read, |found, _, _| found == step)?;
        tx.commit()
    }

    /// Deletes all steps after `step`, in one commit, and returns them. What [ranks](Self::open_as_rank) gave to
    /// such steps, or to replace `step`, is dropped too: one of them rolls back, while the others save nothing.
    ///
    /// # Errors
    /// `NotFound` if `step` itself is not saved; else as [`delete`](Self::delete).
    pub fn rollback_to(&self, step: u64) -> Result<Vec<u64>> {
        let _writer = self.lock_writer()?;
        let _turn = self.wait_for_turn()?;
        let (tx, read) = self.begin_change()?;
        step_record(&read, step).map_err(|error| error.in_file(self.path()))?;
        let mut later = read.steps().map_err(|error| error.in_file(self.path()))?;
        later.retain(|saved| *saved > step);
        self.delete_all(&tx, &read, &later)?;
        drop_pending(&tx, &read, |found, _, _| found >= step)?;
        tx.commit()?;
        Ok(later)
    }

    /// Begins to change steps that are there, with a look at what is there: nobody else writes meanwhile.
    fn begin_change(&self) -> Result<(WriteTx<'_>, ReadTx)> {
        let tx = self.database.write()?;
        if let Some(member) = self.member {
            member.check(&tx).map_err(|error| error.in_file(self.path()))?;
        }
        let read = self.database.read()?;
        Ok((tx, read))
    }

    /// Deletes steps in `tx`; the caller holds the writer's lock.
    fn delete_all(&self, tx: &WriteTx<'_>, read: &ReadTx, steps: &[u64]) -> Result<()> {
        for step in steps {
            let pinned = match step_record(read, *step) {
                Ok(record) => record.pinned,
                // What is damaged can be deleted.
                Err(error) if error.kind() == ErrorKind::Damaged => false,
                Err(error) => return Err(error.in_file(self.path())),
            };
            if pinned {
                return Err(Error::invalid("this step is pinned")
                    .advise("unpin it first; nothing was deleted")
                    .at_step(*step)
                    .in_file(self.path()));
            }
        }
        for step in steps {
            self.remove_if_saved(tx, *step).map_err(|error| error.at_step(*step))?;
        }
        Ok(())
    }

    /// Pins `step`: no keep policy removes it, and it can't be deleted. It can be replaced, and
    /// stays pinned then.
    ///
    /// # Errors
    /// `NotFound` if it is not saved; `ReadOnly`, `Locked`, `Damaged`, `OutOfSpace` or `Io`.
    pub fn pin(&self, step: u64) -> Result<()> {
        self.set_pinned(step, true)
    }

    /// Undoes [`pin`](Self::pin).
    ///
    /// # Errors
    /// As there.
    pub fn unpin(&self, step: u64) -> Result<()> {
        self.set_pinned(step, false)
    }

    fn set_pinned(&self, step: u64, pinned: bool) -> Result<()> {
        let _writer = self.lock_writer()?;
        let _turn = self.wait_for_turn()?;
        let (tx, read) = self.begin_change()?;
        let record = step_record(&read, step).map_err(|error| error.in_file(self.path()))?;
        tx.put_step(step, &StepRecord { pinned, ..record }.encode(step)?)?;
        tx.commit()
    }
}
