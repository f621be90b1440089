//! Saving: in the background, or until it is durable.

use std::time::{Duration, Instant, SystemTime};

use super::background::{Background, SaveHandle};
use super::keep_policy::victims;
use super::save_policy::{LatestSave, SaveContext};
use super::{CheckpointManager, SaveOutcome, SkipReason};
use crate::error::Result;
use crate::store::{Admission, Existing, SaveOptions, StepInfo};
use crate::tree::{Checkpoint, Leaf, LeafSource, Tree};

impl CheckpointManager {
    /// Whether [`save`](Self::save) would save `step` now: to be asked before what only a save
    /// needs, such as an evaluation.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("run.milepost");
    /// # use milepost::{CheckpointManager, ManagerOptions, SaveOptions};
    /// # let evaluate = |weights: &[f32]| f64::from(weights[0]);
    /// let options = ManagerOptions::new().save_interval_steps(10)?;
    /// let manager = CheckpointManager::open(&path, options)?;
    /// let weights = vec![0.5f32; 8];
    /// for step in 1..=25 {
    ///     // ... train ...
    ///     if manager.should_save(step)? {
    ///         let options = SaveOptions::new().metric("accuracy", evaluate(&weights));
    ///         manager.save_with(step, &weights, &options)?;
    ///     }
    /// }
    /// // The last step too, on the interval or not.
    /// manager.save_with(25, &weights, &SaveOptions::new().force())?;
    /// manager.wait_until_finished()?;
    /// assert_eq!(manager.all_steps()?, [10, 20, 25]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn should_save(&self, step: u64) -> Result<bool> {
        Ok(self.skip_reason(step, &SaveOptions::new())?.is_none())
    }

    /// Saves `state` as `step` if the save policy asks for it, and removes the steps that the keep
    /// policy does not keep, in one commit.
    ///
    /// This returns as soon as the state may change again; a thread of the manager's own does the
    /// rest. What is shared by reference count (`ArcArray`, the leaves of a [`Tree`](crate::Tree)) is
    /// not copied: whoever changes such an array meanwhile gets a copy of his own. (So does who changes
    /// one that a save found unchanged: it stays shared, to be known again.) What is
    /// borrowed is copied once, into memory that is kept between saves, see
    /// [`ManagerOptions::staging_budget`](crate::ManagerOptions::staging_budget).
    ///
    /// The error of a save that failed in the background reaches its [`SaveHandle`], the next call
    /// that saves, which then does not save itself, and
    /// [`wait_until_finished`](Self::wait_until_finished): each of them once, and each names the step
    /// that failed. All other steps are as they were, and the next save is tried anew.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("run.milepost");
    /// use milepost::keep_policy::LatestN;
    /// use milepost::{CheckpointManager, ManagerOptions, SaveOutcome, SkipReason};
    ///
    /// let options = ManagerOptions::new().save_interval_steps(2)?.keep(LatestN(1));
    /// let manager = CheckpointManager::open(&path, options)?;
    /// manager.save(2, &0.5f32)?;
    /// match manager.save(4, &0.25f32)?.wait()? {
    ///     SaveOutcome::Saved(report) => assert_eq!(report.removed, [2]),
    ///     other => unreachable!("{other:?}"),
    /// }
    /// let skipped = manager.save(5, &0.125f32)?.wait()?;
    /// assert!(matches!(skipped, SaveOutcome::Skipped(SkipReason::OffPolicy)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if the state can't be stored; `OutOfMemory` if there is none to copy it to;
    /// `ReadOnly`; the error of an earlier save. Nothing was begun then.
    pub fn save<C: Checkpoint + ?Sized>(&self, step: u64, state: &C) -> Result<SaveHandle> {
        self.save_with(step, state, &SaveOptions::new())
    }

    /// [`save`](Self::save) with metrics, metadata, or against the policy.
    ///
    /// # Errors
    /// As there; `AlreadyExists` if the save is forced, the step is saved, and the options do not say
    /// to replace it.
    pub fn save_with<C: Checkpoint + ?Sized>(
        &self,
        step: u64,
        state: &C,
        options: &SaveOptions,
    ) -> Result<SaveHandle> {
        self.unless_skipped(step, options, |background| {
            background.accept(step, &state.to_tree(), options)
        })
    }

    /// [`save_with`](Self::save_with) from any source of leaves. What it does not have in memory is
    /// read before this returns.
    ///
    /// # Errors
    /// As there, and what the source returns.
    pub fn save_source(
        &self,
        step: u64,
        source: &dyn LeafSource,
        options: &SaveOptions,
    ) -> Result<SaveHandle> {
        self.unless_skipped(step, options, |background| background.accept(step, source, options))
    }

    fn unless_skipped(
        &self,
        step: u64,
        options: &SaveOptions,
        save: impl FnOnce(&Background) -> Result<SaveHandle>,
    ) -> Result<SaveHandle> {
        let _turn = self.background.take_turn()?;
        self.background.earlier_error(step)?;
        match self.skip_reason(step, options)? {
            Some(reason) => Ok(SaveHandle::skipped(step, reason)),
            None => save(&self.background),
        }
    }

    /// Copies `state` as it is now, to be saved later: for a trainer that has the time for the copy
    /// at one moment, and knows whether it saves at another. What is shared is not copied.
    ///
    /// The copy takes of the [staging budget](crate::ManagerOptions::staging_budget), and gives it
    /// back when it is dropped and its save is finished.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("run.milepost");
    /// use milepost::{CheckpointManager, ManagerOptions, Tree};
    ///
    /// let manager = CheckpointManager::open(&path, ManagerOptions::new())?;
    /// let mut weights = vec![0.5f32; 8];
    /// let snapshot = manager.snapshot(&weights)?;
    /// weights.fill(f32::NAN);
    /// // The step went wrong: what is saved is what was before. Nothing is copied here.
    /// manager.save(1, &snapshot)?;
    ///
    /// // Leaf by leaf, each when its layer is updated.
    /// let bias = vec![0.0f32; 8];
    /// let state = Tree::map([
    ///     ("bias", manager.snapshot(&bias)?),
    ///     ("weights", manager.snapshot(&weights)?),
    /// ]);
    /// manager.save(2, &state)?;
    /// manager.wait_until_finished()?;
    /// manager.restore_into(1, &mut weights)?;
    /// assert_eq!(weights, [0.5; 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `OutOfMemory` if the budget has no room for the copy, all but two blocks of which (8 MiB each,
    /// or a quarter of a budget below 32 MiB) can go to snapshots; `InvalidInput` if the state is too
    /// deep.
    pub fn snapshot<C: Checkpoint + ?Sized>(&self, state: &C) -> Result<Tree<Leaf<'static>>> {
        let arena = &self.background.shared().arena;
        state.to_tree().map_leaves(|path, leaf| {
            arena.detach(&leaf).map_err(|error| error.at_path(path).in_file(self.store().path()))
        })
    }

    /// [`save`](Self::save) until the step is durable: in this thread, and without a copy. The saves
    /// accepted before are finished first.
    ///
    /// # Errors
    /// As [`CheckpointStore::save`](crate::CheckpointStore::save); the error of an earlier save.
    pub fn save_blocking<C: Checkpoint + ?Sized>(
        &self,
        step: u64,
        state: &C,
    ) -> Result<SaveOutcome> {
        self.save_blocking_with(step, state, &SaveOptions::new())
    }

    /// [`save_blocking`](Self::save_blocking) with metrics, metadata, or against the policy.
    ///
    /// # Errors
    /// As there.
    pub fn save_blocking_with<C: Checkpoint + ?Sized>(
        &self,
        step: u64,
        state: &C,
        options: &SaveOptions,
    ) -> Result<SaveOutcome> {
        let _turn = self.background.take_turn()?;
        self.background.finish_others();
        self.background.earlier_error(step)?;
        match self.skip_reason(step, options)? {
            Some(reason) => Ok(SaveOutcome::Skipped(reason)),
            None => self.save_now(step, &state.to_tree(), options),
        }
    }

    fn save_now(
        &self,
        step: u64,
        source: &dyn LeafSource,
        options: &SaveOptions,
    ) -> Result<SaveOutcome> {
        let keep = &*self.background.shared().options.keep;
        let retention = |steps: &[StepInfo]| victims(keep, steps, SystemTime::now());
        let saved = self.store().save_and_retain(step, source, options, Some(&retention));
        SaveOutcome::new(saved, options.admission)
    }

    /// Why a save would be skipped; `None` if it would not.
    fn skip_reason(&self, step: u64, options: &SaveOptions) -> Result<Option<SkipReason>> {
        if options.admission == Admission::Forced {
            return Ok(None);
        }
        let (under_way, store) = (self.background.under_way(), self.store());
        let durable = [store.latest_readable()?, store.latest_contribution()?];
        let durable = durable.into_iter().flatten().map(|(step, at)| LatestSave { step, at });
        let latest = under_way.iter().copied().chain(durable).max_by_key(|save| save.step);
        if let Some(latest) = latest {
            let is_here = || -> Result<bool> {
                let on_its_way = under_way.iter().any(|save| save.step == step);
                Ok(on_its_way || store.contains(step)? || store.has_contributed(step)?)
            };
            if options.existing == Existing::Refuse && is_here()? {
                return Ok(Some(SkipReason::AlreadySaved));
            }
            if step < latest.step {
                return Ok(Some(SkipReason::NotNewer { latest: latest.step }));
            }
        }
        let context = SaveContext::new(latest, SystemTime::now());
        let wanted = self.background.shared().options.save.should_save(step, &context);
        Ok(if wanted { None } else { Some(SkipReason::OffPolicy) })
    }

    /// Waits until the saves accepted so far are finished and all [ranks](crate::ManagerOptions::rank) have
    /// saved `step`, for at most so long.
    ///
    /// # Errors
    /// As [`CheckpointStore::wait_committed`](crate::CheckpointStore::wait_committed). If this rank's own save
    /// failed it is among those that have not arrived; its handle and
    /// [`wait_until_finished`](Self::wait_until_finished) say why. `InvalidInput` from within a save.
    pub fn wait_committed(&self, step: u64, timeout: Duration) -> Result<StepInfo> {
        let deadline = Instant::now().checked_add(timeout);
        self.background.drain_until(deadline)?;
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.store().wait_committed(step, left.unwrap_or(timeout))
    }

    /// Waits until the saves accepted so far are finished.
    ///
    /// # Errors
    /// That of the oldest of them that failed and was not returned here before; further ones are
    /// returned by further calls.
    pub fn wait_until_finished(&self) -> Result<()> {
        self.background.wait_until_finished()
    }

    /// [`wait_until_finished`](Self::wait_until_finished), and closes the store. Further errors are
    /// logged (`tracing`), as those of a manager that is dropped.
    ///
    /// # Errors
    /// As there.
    pub fn close(self) -> Result<()> {
        self.wait_until_finished()
    }
}
