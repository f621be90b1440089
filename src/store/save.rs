//! Saving, deleting and pinning: every change of the set of steps is one commit.

use std::time::{Duration, Instant, SystemTime};

use super::packer::Leaves;
use super::step_info::to_unix_ns;
use super::{CheckpointStore, Existing, SaveOptions, StepInfo, Writer, step_record};
use crate::db::WriteTx;
use crate::error::{Error, ErrorKind, Result};
use crate::record::{StepRecord, encode_structure};
use crate::tree::LeafSource;

/// From what is known of all steps, the new one included, ascending: which are to go.
pub(super) type Retention<'r> = dyn Fn(&[StepInfo]) -> Vec<u64> + 'r;

/// What a save did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SaveReport {
    /// The saved step.
    pub info: StepInfo,
    /// The steps that the same commit removed: victims of the keep policy, never the saved step.
    pub removed: Vec<u64>,
    /// How long the save took until it was durable.
    pub elapsed: Duration,
}

impl CheckpointStore {
    /// Saves a step and removes the victims of `retention` in the same commit.
    pub(crate) fn save_and_retain(
        &self,
        step: u64,
        source: &dyn LeafSource,
        options: &SaveOptions,
        retention: &Retention<'_>,
    ) -> Result<SaveReport> {
        self.save_source_and_retain(step, source, options, retention)
            .map_err(|error| error.at_step(step).in_file(self.path()))
    }

    #[tracing::instrument(level = "debug", name = "save", skip_all, fields(step))]
    fn save_source_and_retain(
        &self,
        step: u64,
        source: &dyn LeafSource,
        options: &SaveOptions,
        retention: &Retention<'_>,
    ) -> Result<SaveReport> {
        let (began, started) = (Instant::now(), SystemTime::now());
        let mut writer = self.writer.lock();
        let mark = self.check_free(step, options)?;
        let custom_metadata = options.checked_metadata()?;
        let structure = source.structure()?;
        let metas = structure.leaves()?;
        let leaves = Leaves::new(source, &metas, self.options.compression)?;
        let structure_record = encode_structure(step, &structure)?;

        let tx = self.database.write()?;
        if *writer == Writer::Unswept {
            sweep(&tx, mark)?;
        }
        // Until the last commit succeeds, packs of this save may be left in the file.
        *writer = Writer::Unswept;
        let packed = leaves.pack(step, tx, mark + 1)?;
        let packs = (packed.packs.count > 0).then_some(packed.packs);
        let record = StepRecord {
            started_unix_ns: to_unix_ns(started),
            committed_unix_ns: to_unix_ns(SystemTime::now()),
            metrics: options.metrics.clone(),
            custom_metadata,
            pinned: options.pinned,
            leaf_count: u64::try_from(metas.len()).unwrap_or(u64::MAX),
            chunk_count: packed.chunk_count,
            logical_bytes: packed.logical_bytes,
            stored_bytes: packed.stored_bytes,
            packs: packs.into_iter().collect(),
            digest: packed.digest,
        };
        let info = StepInfo::from_record(step, &record)?;
        let removed = self.victims(&info, retention)?;
        let tx = packed.tx;
        if options.existing == Existing::Replace {
            self.remove_if_saved(&tx, step)?;
        }
        tx.put_leaves(step, &structure_record, &packed.leaves)?;
        tx.put_step(step, &record.encode(step)?)?;
        tx.retain_packs(&record.packs)?;
        tx.set_pack_mark(mark + packed.packs.count)?;
        for victim in &removed {
            self.remove_if_saved(&tx, *victim)?;
        }
        tx.commit()?;
        *writer = Writer::Clean;
        tracing::debug!(bytes = record.stored_bytes, ?removed, "saved");
        Ok(SaveReport { info, removed, elapsed: began.elapsed() })
    }

    /// Checks that `step` may be saved, and returns the pack mark.
    fn check_free(&self, step: u64, options: &SaveOptions) -> Result<u64> {
        let tx = self.database.read()?;
        if options.existing == Existing::Refuse && tx.step(step)?.is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, "this step is saved already")
                .advise("delete it first, or ask for it to be replaced"));
        }
        tx.pack_mark()
    }

    /// The steps that `retention` removes once `new` is there. A save never removes what it saves,
    /// also if it is an old step that the next save will remove. A step whose record is damaged
    /// stays, and does not keep others from being saved.
    fn victims(&self, new: &StepInfo, retention: &Retention<'_>) -> Result<Vec<u64>> {
        let mut infos = vec![new.clone()];
        for (step, record) in self.database.read()?.step_records()? {
            let info = StepRecord::decode(step, &record).map_err(Error::from);
            match info.and_then(|record| StepInfo::from_record(step, &record)) {
                Ok(info) if step != new.step => infos.push(info),
                Ok(_) => {}
                Err(error) => tracing::warn!(step, %error, "a damaged step is kept as it is"),
            }
        }
        infos.sort_by_key(|info| info.step);
        let mut victims = retention(&infos);
        victims.retain(|victim| *victim != new.step);
        Ok(victims)
    }

    /// Removes a step and what only it uses, if it was saved in an earlier transaction.
    fn remove_if_saved(&self, tx: &WriteTx<'_>, step: u64) -> Result<()> {
        let read = self.database.read()?;
        if read.step(step)?.is_none() {
            return Ok(());
        }
        let record = step_record(&read, step)?;
        tx.remove_step(step)?;
        tx.release_packs(&record.packs)
    }

    /// Deletes `step`.
    ///
    /// # Errors
    /// `NotFound` if it is not saved; `InvalidInput` if it is pinned; `ReadOnly`; `Damaged`,
    /// `OutOfSpace` or `Io`: nothing was deleted.
    pub fn delete(&self, step: u64) -> Result<()> {
        self.delete_all(&[step])
    }

    /// Deletes all steps after `step`, in one commit, and returns them.
    ///
    /// # Errors
    /// `NotFound` if `step` itself is not saved; else as [`delete`](Self::delete).
    pub fn rollback_to(&self, step: u64) -> Result<Vec<u64>> {
        self.step_info(step)?;
        let later: Vec<u64> = self.all_steps()?.into_iter().filter(|saved| *saved > step).collect();
        if !later.is_empty() {
            self.delete_all(&later)?;
        }
        Ok(later)
    }

    fn delete_all(&self, steps: &[u64]) -> Result<()> {
        let _writer = self.writer.lock();
        let read = self.database.read()?;
        for step in steps {
            let record = step_record(&read, *step).map_err(|error| error.in_file(self.path()))?;
            if record.pinned {
                return Err(Error::invalid("this step is pinned")
                    .advise("unpin it first; nothing was deleted")
                    .at_step(*step)
                    .in_file(self.path()));
            }
        }
        drop(read);
        let tx = self.database.write()?;
        for step in steps {
            self.remove_if_saved(&tx, *step).map_err(|error| error.at_step(*step))?;
        }
        tx.commit()
    }

    /// Pins `step`: no keep policy removes it, and it can't be deleted.
    ///
    /// # Errors
    /// `NotFound` if it is not saved; `ReadOnly`, `Damaged`, `OutOfSpace` or `Io`.
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
        let _writer = self.writer.lock();
        let record = self.with_tx(|tx| step_record(tx, step))?;
        let tx = self.database.write()?;
        tx.put_step(step, &StepRecord { pinned, ..record }.encode(step)?)?;
        tx.commit()
    }
}

/// Removes what a save that did not end left above the mark.
fn sweep(tx: &WriteTx<'_>, mark: u64) -> Result<()> {
    let swept = tx.sweep_packs_above(mark)?;
    if swept > 0 {
        tracing::info!(packs = swept, "removed the packs of a save that did not end");
    }
    Ok(())
}
