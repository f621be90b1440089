//! The manager: when to save, what to keep.

pub mod keep_policy;
mod options;
pub mod save_policy;

use std::path::Path;
use std::time::SystemTime;

use crate::error::{ErrorKind, Result};
use crate::store::{
    Admission, CheckpointStore, Existing, SaveOptions, SaveReport, StepInfo, StepReader,
};
use crate::tree::{Checkpoint, Leaf, LeafSource, Tree};
use keep_policy::{BestMode, best_step, victims};
use save_policy::SaveContext;

pub use options::ManagerOptions;

/// What [`CheckpointManager::save`] did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum SaveOutcome {
    /// The step is saved, and durable.
    Saved(SaveReport),
    /// The step was not saved, for this reason.
    Skipped(SkipReason),
}

impl SaveOutcome {
    /// Whether the step was saved.
    pub fn is_saved(&self) -> bool {
        matches!(self, Self::Saved(_))
    }
}

/// Why a step was not saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// The save policy did not ask for this step.
    OffPolicy,
    /// A later step is saved.
    NotNewer {
        /// The latest saved step.
        latest: u64,
    },
    /// This step is saved.
    AlreadySaved,
}

impl std::fmt::Display for SkipReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::OffPolicy => f.write_str("the save policy does not ask for this step"),
            Self::NotNewer { latest } => write!(f, "step {latest}, a later one, is saved"),
            Self::AlreadySaved => f.write_str("this step is saved already"),
        }
    }
}

/// A store that a trainer saves to: a save policy decides which steps are saved, a keep policy
/// which of them stay.
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
/// if let Some(step) = manager.latest_step()? {
///     state = manager.restore_into(step, state)?;
/// }
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

    /// Whether [`save`](Self::save) would save `step` now.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn should_save(&self, step: u64) -> Result<bool> {
        Ok(self.skip_reason(step, &SaveOptions::new())?.is_none())
    }

    /// Saves `state` as `step` if the save policy asks for it, and removes the steps that the keep
    /// policy does not keep, in one commit.
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
        let report = self.store.save_and_retain(step, source, options, &retention)?;
        Ok(SaveOutcome::Saved(report))
    }

    /// Why a save would be skipped; `None` if it would not.
    fn skip_reason(&self, step: u64, options: &SaveOptions) -> Result<Option<SkipReason>> {
        if options.admission == Admission::Forced {
            return Ok(None);
        }
        let latest = match self.store.latest_step()? {
            Some(latest) => Some((latest, self.info_for_policy(latest)?)),
            None => None,
        };
        if let Some(latest) = latest.as_ref().map(|(step, _)| *step) {
            if options.existing == Existing::Refuse && self.store.contains(step)? {
                return Ok(Some(SkipReason::AlreadySaved));
            }
            if step < latest {
                return Ok(Some(SkipReason::NotNewer { latest }));
            }
        }
        let latest = latest.as_ref().and_then(|(_, info)| info.as_ref());
        let context = SaveContext::new(latest, SystemTime::now());
        let wanted = self.options.save.should_save(step, &context);
        Ok(if wanted { None } else { Some(SkipReason::OffPolicy) })
    }

    /// What is known of the latest step; `None` if its record is damaged, which must not keep the
    /// next one from being saved.
    fn info_for_policy(&self, latest: u64) -> Result<Option<StepInfo>> {
        match self.store.step_info(latest) {
            Ok(info) => Ok(Some(info)),
            Err(error) if error.kind() == ErrorKind::Damaged => {
                tracing::warn!(step = latest, %error, "the latest step is damaged");
                Ok(None)
            }
            Err(error) => Err(error),
        }
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
    /// # Errors
    /// As [`CheckpointStore::read`] and [`StepReader::restore_into`].
    pub fn restore_into<C: Checkpoint>(&self, step: u64, mut state: C) -> Result<C> {
        self.store.read(step)?.restore_into(&mut state)?;
        Ok(state)
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

    /// The step with the best value of the metric `name`; of equal ones the latest, and a NaN is
    /// worse than any number. `None` if no step has this metric. A step with a damaged record is
    /// passed over.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn best_step(&self, name: &str, mode: BestMode) -> Result<Option<u64>> {
        Ok(best_step(&self.store.readable_steps()?, name, mode))
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
