//! Saving, deleting and pinning: every change of the set of steps is one commit.

mod chunk;
mod contents;
mod encoding;
mod leaves;
mod pack_writer;
mod packer;
mod plan;
mod report;
mod reuse;
mod shared_pack;
mod staging;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use super::{
    CheckpointStore, Existing, SaveOptions, StepInfo, Sweep, Writer, readable_infos, step_record,
};
use crate::db::{ReadTx, WriteTx};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{
    LeafRecord, PackRange, StepRecord, encode_shardings, encode_structure, to_unix_ns,
};
use crate::sharding::Sharding;
use crate::tree::{LeafMeta, LeafSource, Tree};
use chunk::{Encoder, ToSave};
use leaves::{PlannedLeaf, SourceLeaves};
use packer::{Packed, Target, pack};
use report::Accepted;
use reuse::Reuse;

pub(super) use pack_writer::PackWriter;
pub use report::{SaveCost, SaveReport};
pub(super) use reuse::LastStep;
pub(super) use shared_pack::{PackStream, SharedPack, SharedPacks};
pub(crate) use staging::{Arena, StagedSave};

/// From what is known of all steps, the new one included, ascending: which are to go.
pub(super) type Retention<'r> = dyn Fn(&[StepInfo]) -> Vec<u64> + 'r;

/// What is known of a step before its contents are written.
struct Plan {
    step: u64,
    custom_metadata: Option<String>,
    structure: Tree<LeafMeta>,
    shardings: Vec<Sharding>,
}

/// What was found when a step was checked.
#[derive(Debug, Clone, Copy)]
struct Checked {
    /// The pack mark.
    mark: u64,
    /// Whether the step is there, and pinned.
    was_pinned: bool,
}

impl CheckpointStore {
    /// Saves a step and removes the victims of `retention` in the same commit.
    pub(crate) fn save_and_retain(
        &self,
        step: u64,
        source: &dyn LeafSource,
        options: &SaveOptions,
        retention: Option<&Retention<'_>>,
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
        retention: Option<&Retention<'_>>,
    ) -> Result<SaveReport> {
        let accepted = Accepted::now();
        let mut writer = self.lock_writer()?;
        let checked = self.check_free(step, options)?;
        let structure = source.structure()?;
        let leaves = SourceLeaves::new(source, &structure, &self.options, options.record_sharding)?;
        let plan = Plan {
            step,
            custom_metadata: options.checked_metadata()?,
            structure,
            shardings: leaves.shardings.clone(),
        };
        let reuse = self.reuse(&mut writer, checked, &leaves.list)?;
        let encoder = Encoder { leaves: &leaves.list, reuse: &reuse };
        let mut batches = leaves.batches(&reuse, accepted);
        let contents = ToSave { encoder, batches: &mut batches };
        self.write(&mut writer, checked, &plan, options, contents, retention)
    }

    /// What can be reused of the newest step, after what a save before left behind is swept. What is
    /// remembered of the step is taken away: only a save that succeeds knows it again.
    fn reuse(
        &self,
        writer: &mut Writer,
        checked: Checked,
        leaves: &[PlannedLeaf],
    ) -> Result<Reuse> {
        if writer.sweep == Sweep::Due {
            self.sweep(checked.mark)?;
        }
        let last = writer.last.take();
        Ok(Reuse::new(self.database.read_payload()?, last, leaves))
    }

    /// Writes a step with what `batches` give, and removes the victims of `retention`.
    fn write(
        &self,
        writer: &mut Writer,
        checked: Checked,
        plan: &Plan,
        options: &SaveOptions,
        contents: ToSave<'_, '_>,
        retention: Option<&Retention<'_>>,
    ) -> Result<SaveReport> {
        let (began, step) = (Instant::now(), plan.step);
        let structure = encode_structure(step, &plan.structure)?;
        let tx = self.database.write()?;
        // Until the last commit succeeds, packs of this save may be left in the file.
        writer.sweep = Sweep::Due;
        let target = Target { step, tx, first_pack: checked.mark + 1 };
        let ToSave { encoder, batches } = contents;
        let packed = pack(encoder, batches, target, self.options.threads)?;
        let accepted = batches.accepted();
        let Packed { tx, rows, totals, packs, counts, last } = packed;
        let mark = packs.last().map_or(checked.mark, |last| checked.mark.max(*last));
        let record = StepRecord {
            started_unix_ns: to_unix_ns(accepted.at),
            committed_unix_ns: to_unix_ns(SystemTime::now()),
            metrics: options.metrics.clone(),
            custom_metadata: plan.custom_metadata.clone(),
            // Replacing a pinned step does not unpin it.
            pinned: options.pinned || checked.was_pinned,
            leaf_count: totals.leaf_count,
            chunk_count: totals.chunk_count,
            logical_bytes: totals.logical_bytes,
            stored_bytes: totals.stored_bytes,
            packs: PackRange::of(packs),
            digest: totals.digest(),
        };
        let info = StepInfo::from_record(step, &record)?;
        let removed = match retention {
            Some(retention) => self.victims(&info, retention)?,
            None => Vec::new(),
        };
        // Counted before those that use them too are removed.
        tx.retain_packs(&record.packs)?;
        if options.existing == Existing::Replace {
            self.remove_if_saved(&tx, step)?;
        }
        tx.put_structure(step, &structure)?;
        tx.put_leaf_records(step, &rows)?;
        if !plan.shardings.is_empty() {
            tx.put_shardings(step, &encode_shardings(step, &plan.shardings)?)?;
        }
        tx.put_step(step, &record.encode(step)?)?;
        tx.set_pack_mark(mark)?;
        for victim in &removed {
            self.remove_if_saved(&tx, *victim)?;
        }
        tx.commit()?;
        *writer = Writer { sweep: Sweep::Done, last: Some(Arc::new(last)) };
        tracing::debug!(bytes = counts.new_bytes, ?removed, "saved");
        Ok(SaveReport { info, removed, cost: SaveCost::new(&counts, &accepted, began) })
    }

    /// Removes what a save that did not end left above the mark, and makes its room free.
    pub(super) fn sweep(&self, mark: u64) -> Result<()> {
        let tx = self.database.write()?;
        let swept = tx.sweep_packs_above(mark)?;
        // In commits of its own, since what comes now may need the room: pages that one commit
        // frees can be used again after the next one, and so can those that were freed before a
        // save that failed.
        tx.commit()?;
        self.database.write()?.commit()?;
        if swept > 0 {
            tracing::info!(packs = swept, "removed the packs of a save that did not end");
        }
        Ok(())
    }

    /// Checks that `step` may be saved.
    fn check_free(&self, step: u64, options: &SaveOptions) -> Result<Checked> {
        let tx = self.database.read()?;
        let saved = tx.step(step)?;
        if options.existing == Existing::Refuse && saved.is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, "this step is saved already")
                .advise("replace it (`SaveOptions::replace`), or delete it first"));
        }
        let record = saved.and_then(|record| StepRecord::decode(step, &record).ok());
        let mark = tx.pack_mark()?;
        Ok(Checked { mark, was_pinned: record.is_some_and(|record| record.pinned) })
    }

    /// The steps that `retention` removes once `new` is there. A save never removes what it saves,
    /// also if it is an old step that the next save will remove. A step whose record is damaged
    /// stays, and does not keep others from being saved.
    fn victims(&self, new: &StepInfo, retention: &Retention<'_>) -> Result<Vec<u64>> {
        let mut infos = readable_infos(&self.database.read()?)?;
        infos.retain(|info| info.step != new.step);
        infos.push(new.clone());
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
        let packs = packs_of(&read, step)?;
        tx.remove_step(step)?;
        tx.release_packs(&packs)
    }

    /// Deletes `step`.
    ///
    /// # Errors
    /// `NotFound` if it is not saved; `InvalidInput` if it is pinned; `ReadOnly`; `Damaged`,
    /// `OutOfSpace` or `Io`: nothing was deleted.
    pub fn delete(&self, step: u64) -> Result<()> {
        let _writer = self.lock_writer()?;
        self.delete_all(&[step])
    }

    /// Deletes all steps after `step`, in one commit, and returns them.
    ///
    /// # Errors
    /// `NotFound` if `step` itself is not saved; else as [`delete`](Self::delete).
    pub fn rollback_to(&self, step: u64) -> Result<Vec<u64>> {
        let _writer = self.lock_writer()?;
        self.with_tx(|tx| step_record(tx, step))?;
        let later: Vec<u64> = self.all_steps()?.into_iter().filter(|saved| *saved > step).collect();
        if !later.is_empty() {
            self.delete_all(&later)?;
        }
        Ok(later)
    }

    /// Deletes steps; the caller holds the writer's lock.
    fn delete_all(&self, steps: &[u64]) -> Result<()> {
        let read = self.database.read()?;
        for step in steps {
            let pinned = match step_record(&read, *step) {
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
        drop(read);
        let tx = self.database.write()?;
        for step in steps {
            self.remove_if_saved(&tx, *step).map_err(|error| error.at_step(*step))?;
        }
        tx.commit()
    }

    /// Pins `step`: no keep policy removes it, and it can't be deleted. It can be replaced, and
    /// stays pinned then.
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
        let _writer = self.lock_writer()?;
        let record = self.with_tx(|tx| step_record(tx, step))?;
        let tx = self.database.write()?;
        tx.put_step(step, &StepRecord { pinned, ..record }.encode(step)?)?;
        tx.commit()
    }
}

/// The packs of a saved step; of one with a damaged record those that its leaf records name.
fn packs_of(read: &ReadTx, step: u64) -> Result<Vec<PackRange>> {
    match step_record(read, step) {
        Ok(record) => Ok(record.packs),
        Err(error) if error.kind() == ErrorKind::Damaged => {
            let mut packs = BTreeSet::new();
            for (path, record) in read.leaves(step)? {
                let record = LeafRecord::decode(step, &path, &record);
                let chunks = record.into_iter().flat_map(|record| record.chunks);
                packs.extend(chunks.flat_map(|chunk| chunk.extent().packs()));
            }
            Ok(packs.into_iter().map(|first| PackRange { first, count: 1 }).collect())
        }
        Err(error) => Err(error),
    }
}
