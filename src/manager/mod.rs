//! The manager: when to save, what to keep.

pub mod keep_policy;
mod options;
mod outcome;
pub mod save_policy;

use std::path::Path;
use std::time::SystemTime;

use crate::error::{ErrorKind, Result};
use crate::store::{Admission, CheckpointStore, Existing, SaveOptions, StepInfo, StepReader};
use crate::tree::{Checkpoint, Leaf, LeafSource, Tree};
use keep_policy::{BestMode, victims};
use save_policy::SaveContext;

pub use options::ManagerOptions;
pub use outcome::{SaveOutcome, SkipReason};

/// A store that a trainer saves to: a save policy decides which steps are saved, a keep policy
/// which of them stay.
///
/// It is the one writer of its file. To look at a run from elsewhere, an evaluator or another
/// process opens the same file with [`CheckpointStore::open_read_only`], which has
/// [`latest_step`](CheckpointStore::latest_step), [`best_step`](CheckpointStore::best_step),
/// [`step_info`](CheckpointStore::step_info) with the metrics, and [`read`](CheckpointStore::read).
///
/// ```
/// # fn main() -> milepost::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("run.milepost");
/// use milepost::keep_policy::{BestN, KeepPolicy, LatestN};
/// use milepost::{CheckpointManager, ManagerOptions, SaveOptions};
///
/// struct TrainState { step: u64, weights: Vec<f32> }
/// milepost::checkpoint_fields!(TrainState { step, weights });
///
/// let options = ManagerOptions::new()
///     .save_interval_steps(10)?
///     .keep(LatestN(2).or(BestN::max("accuracy", 1)));
/// let manager = CheckpointManager::open(&path, options)?;
///
/// let mut state = TrainState { step: 0, weights: vec![0.0; 8] };
/// manager.restore_latest(&mut state)?;
/// while state.step < 100 {
///     state.step += 1;
///     state.weights[0] += 0.5;
///     let accuracy = 1.0 / state.step as f64;
///     manager.save_with(state.step, &state, &SaveOptions::new().metric("accuracy", accuracy))?;
/// }
/// assert_eq!(manager.all_steps()?, [10, 90, 100]);
/// assert_eq!(manager.best_step("accuracy", milepost::keep_policy::BestMode::Max)?, Some(10));
/// # Ok(())
/// # }
/// ```
pub struct CheckpointManager {
    store: CheckpointStore,
    options: ManagerOptions,
}

impl CheckpointManager {
    /// Opens the store at `path` for writing, and creates it if there is no file.
    ///
    /// # Errors
    /// As [`CheckpointStore::open`] and [`CheckpointStore::create`].
    pub fn open(path: impl AsRef<Path>, options: ManagerOptions) -> Result<Self> {
        let store = CheckpointStore::open_or_create(path, options.store.clone())?;
        Ok(Self { store, options })
    }

    /// The store below.
    pub fn store(&self) -> &CheckpointStore {
        &self.store
    }

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
    /// assert_eq!(manager.all_steps()?, [10, 20]);
    /// // The last step too, on the interval or not.
    /// manager.save_with(25, &weights, &SaveOptions::new().force())?;
    /// assert_eq!(manager.latest_step()?, Some(25));
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
    /// match manager.save(4, &0.25f32)? {
    ///     SaveOutcome::Saved(report) => assert_eq!(report.removed, [2]),
    ///     other => unreachable!("{other:?}"),
    /// }
    /// let skipped = manager.save(5, &0.125f32)?;
    /// assert!(matches!(skipped, SaveOutcome::Skipped(SkipReason::OffPolicy)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`CheckpointStore::save`].
    pub fn save<C: Checkpoint + ?Sized>(&self, step: u64, state: &C) -> Result<SaveOutcome> {
        self.save_with(step, state, &SaveOptions::new())
    }

    /// [`save`](Self::save) with metrics, metadata, or against the policy.
    ///
    /// # Errors
    /// As [`CheckpointStore::save`]; `AlreadyExists` if the save is forced, the step is saved,
    /// and the options do not say to replace it.
    pub fn save_with<C: Checkpoint + ?Sized>(
        &self,
        step: u64,
        state: &C,
        options: &SaveOptions,
    ) -> Result<SaveOutcome> {
        match self.skip_reason(step, options)? {
            Some(reason) => Ok(SaveOutcome::Skipped(reason)),
            None => self.save_now(step, &state.to_tree(), options),
        }
    }

    /// [`save_with`](Self::save_with) from any source of leaves.
    ///
    /// The source is read while the store is locked for writing, partly by another thread: one that
    /// saves to the same store, deletes or pins there, is refused or waits for itself for ever.
    /// Reading another step there is fine.
    ///
    /// # Errors
    /// As there, and what the source returns.
    pub fn save_source(
        &self,
        step: u64,
        source: &dyn LeafSource,
        options: &SaveOptions,
    ) -> Result<SaveOutcome> {
        match self.skip_reason(step, options)? {
            Some(reason) => Ok(SaveOutcome::Skipped(reason)),
            None => self.save_now(step, source, options),
        }
    }

    fn save_now(
        &self,
        step: u64,
        source: &dyn LeafSource,
        options: &SaveOptions,
    ) -> Result<SaveOutcome> {
        let keep = &*self.options.keep;
        let retention = |steps: &[StepInfo]| victims(keep, steps, SystemTime::now());
        match self.store.save_and_retain(step, source, options, Some(&retention)) {
            // Another thread saved it since the policy was asked.
            Err(error)
                if error.kind() == ErrorKind::AlreadyExists
                    && options.admission != Admission::Forced =>
            {
                Ok(SaveOutcome::Skipped(SkipReason::AlreadySaved))
            }
            result => result.map(|report| SaveOutcome::Saved(Box::new(report))),
        }
    }

    /// Why a save would be skipped; `None` if it would not.
    fn skip_reason(&self, step: u64, options: &SaveOptions) -> Result<Option<SkipReason>> {
        if options.admission == Admission::Forced {
            return Ok(None);
        }
        let latest = self.store.latest_readable()?;
        if let Some(latest) = latest.as_ref().map(|info| info.step) {
            if options.existing == Existing::Refuse && self.store.contains(step)? {
                return Ok(Some(SkipReason::AlreadySaved));
            }
            if step < latest {
                return Ok(Some(SkipReason::NotNewer { latest }));
            }
        }
        let context = SaveContext::new(latest.as_ref(), SystemTime::now());
        let wanted = self.options.save.should_save(step, &context);
        Ok(if wanted { None } else { Some(SkipReason::OffPolicy) })
    }

    /// Restores `step` in the structure in which it was saved.
    ///
    /// # Errors
    /// As [`CheckpointStore::read`] and [`StepReader::restore`].
    pub fn restore(&self, step: u64) -> Result<Tree<Leaf<'static>>> {
        self.store.read(step)?.restore()
    }

    /// Restores `step` into `state`, straight into the memory that it has.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("run.milepost");
    /// use milepost::{CheckpointManager, ErrorKind, ManagerOptions, ndarray::Array2};
    ///
    /// let manager = CheckpointManager::open(&path, ManagerOptions::new())?;
    /// manager.save(7, &Array2::<f32>::ones((2, 3)))?;
    ///
    /// let mut weights = Array2::<f32>::zeros((2, 3));
    /// manager.restore_into(7, &mut weights)?;
    /// assert_eq!(weights, Array2::<f32>::ones((2, 3)));
    ///
    /// let mut other = Array2::<f32>::zeros((3, 2));
    /// let error = manager.restore_into(7, &mut other).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Mismatch);
    /// assert_eq!(other, Array2::<f32>::zeros((3, 2)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`CheckpointStore::read`] and [`StepReader::restore_into`].
    pub fn restore_into<C: Checkpoint + ?Sized>(&self, step: u64, state: &mut C) -> Result<()> {
        self.store.read(step)?.restore_into(state)
    }

    /// Restores the newest step into `state`, and says which one it is. `None` if no step is
    /// saved: then `state` is as it was. It is how a trainer starts, first or again:
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("run.milepost");
    /// use milepost::{CheckpointManager, ManagerOptions};
    ///
    /// let manager = CheckpointManager::open(&path, ManagerOptions::new())?;
    /// let mut weights = vec![0.5f32; 8];
    /// assert_eq!(manager.restore_latest(&mut weights)?, None);
    /// manager.save(10, &vec![1.5f32; 8])?;
    /// assert_eq!(manager.restore_latest(&mut weights)?, Some(10));
    /// assert_eq!(weights, [1.5; 8]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// A newest step that is damaged or does not fit `state` is an error. Neither an older step nor
    /// a fresh start takes its place unasked.
    ///
    /// # Errors
    /// As [`restore_into`](Self::restore_into).
    pub fn restore_latest<C: Checkpoint + ?Sized>(&self, state: &mut C) -> Result<Option<u64>> {
        let latest = self.latest_step()?;
        if let Some(step) = latest {
            self.restore_into(step, state)?;
        }
        Ok(latest)
    }

    /// Opens `step` for reading.
    ///
    /// # Errors
    /// As [`CheckpointStore::read`].
    pub fn read(&self, step: u64) -> Result<StepReader> {
        self.store.read(step)
    }

    /// The highest saved step; `None` if there is none.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn latest_step(&self) -> Result<Option<u64>> {
        self.store.latest_step()
    }

    /// The numbers of the saved steps, ascending.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn all_steps(&self) -> Result<Vec<u64>> {
        self.store.all_steps()
    }

    /// The step with the best value of the metric `name`, as [`CheckpointStore::best_step`].
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn best_step(&self, name: &str, mode: BestMode) -> Result<Option<u64>> {
        self.store.best_step(name, mode)
    }

    /// What is known of `step`.
    ///
    /// # Errors
    /// As [`CheckpointStore::step_info`].
    pub fn step_info(&self, step: u64) -> Result<StepInfo> {
        self.store.step_info(step)
    }

    /// The step metrics of `step`, by name.
    ///
    /// # Errors
    /// As [`CheckpointStore::step_info`].
    pub fn metrics(&self, step: u64) -> Result<std::collections::BTreeMap<String, f64>> {
        Ok(self.step_info(step)?.metrics)
    }

    /// The custom metadata of `step`; `None` if it was saved without.
    ///
    /// # Errors
    /// As [`CheckpointStore::step_info`].
    pub fn custom_metadata(&self, step: u64) -> Result<Option<serde_json::Value>> {
        Ok(self.step_info(step)?.custom_metadata)
    }

    /// Deletes `step`.
    ///
    /// # Errors
    /// As [`CheckpointStore::delete`].
    pub fn delete(&self, step: u64) -> Result<()> {
        self.store.delete(step)
    }

    /// Pins `step`: no keep policy removes it, and it can't be deleted.
    ///
    /// # Errors
    /// As [`CheckpointStore::pin`].
    pub fn pin(&self, step: u64) -> Result<()> {
        self.store.pin(step)
    }

    /// Undoes [`pin`](Self::pin).
    ///
    /// # Errors
    /// As [`CheckpointStore::unpin`].
    pub fn unpin(&self, step: u64) -> Result<()> {
        self.store.unpin(step)
    }

    /// Deletes all steps after `step`, in one commit, and returns them.
    ///
    /// # Errors
    /// As [`CheckpointStore::rollback_to`].
    pub fn rollback_to(&self, step: u64) -> Result<Vec<u64>> {
        self.store.rollback_to(step)
    }
}

impl std::fmt::Debug for CheckpointManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckpointManager")
            .field("path", &self.store.path())
            .field("options", &self.options)
            .finish()
    }
}
