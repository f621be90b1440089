//! The manager: when to save, what to keep, and the thread that writes.

mod background;
pub mod keep_policy;
mod options;
mod outcome;
mod save;
pub mod save_policy;

use std::path::Path;

use crate::error::Result;
use crate::store::{CheckpointStore, CompactReport, StepInfo, StepReader};
use crate::tree::{Checkpoint, Leaf, Tree};
use background::Background;
use keep_policy::BestMode;

pub use background::SaveHandle;
pub use options::{ManagerOptions, WhenFull};
pub use outcome::{SaveOutcome, SkipReason};

/// A store that a trainer saves to: a save policy decides which steps are saved, a keep policy
/// which of them stay.
///
/// Saves go on in the background: [`save`](Self::save) returns when the state may change again. What
/// reads a step or changes the set of steps waits until the saves accepted before are finished;
/// [`latest_step`](Self::latest_step), [`all_steps`](Self::all_steps) and
/// [`step_info`](Self::step_info) tell at once what is durable. Dropping the manager finishes what was
/// accepted.
///
/// It is the one writer of its file, unless it is one of several
/// [ranks](ManagerOptions::rank). To look at a run from elsewhere, an evaluator or another
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
/// manager.wait_until_finished()?;
/// assert_eq!(manager.all_steps()?, [10, 90, 100]);
/// assert_eq!(manager.best_step("accuracy", milepost::keep_policy::BestMode::Max)?, Some(10));
/// # Ok(())
/// # }
/// ```
pub struct CheckpointManager {
    background: Background,
}

impl CheckpointManager {
    /// Opens the store at `path` for writing, and creates it if there is no file.
    ///
    /// # Errors
    /// As [`CheckpointStore::open`] and [`CheckpointStore::create`], for a rank as
    /// [`CheckpointStore::open_as_rank`].
    pub fn open(path: impl AsRef<Path>, options: ManagerOptions) -> Result<Self> {
        let settings = options.store.clone();
        let store = match options.rank {
            Some(rank) => CheckpointStore::open_as_rank(path, rank, settings)?,
            None => CheckpointStore::open_or_create(path, settings)?,
        };
        Ok(Self { background: Background::new(store, options) })
    }

    /// The store below. It knows nothing of saves that are on their way.
    pub fn store(&self) -> &CheckpointStore {
        &self.background.shared().store
    }

    /// Restores `step` in the structure in which it was saved.
    ///
    /// # Errors
    /// As [`CheckpointStore::read`] and [`StepReader::restore`].
    pub fn restore(&self, step: u64) -> Result<Tree<Leaf<'static>>> {
        self.read(step)?.restore()
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
        self.read(step)?.restore_into(state)
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
        self.background.drain();
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
        self.background.drain();
        self.store().read(step)
    }

    /// The highest durable step; `None` if there is none.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn latest_step(&self) -> Result<Option<u64>> {
        self.store().latest_step()
    }

    /// The numbers of the durable steps, ascending.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn all_steps(&self) -> Result<Vec<u64>> {
        self.store().all_steps()
    }

    /// The step with the best value of the metric `name`, as [`CheckpointStore::best_step`].
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn best_step(&self, name: &str, mode: BestMode) -> Result<Option<u64>> {
        self.store().best_step(name, mode)
    }

    /// What is known of `step`.
    ///
    /// # Errors
    /// As [`CheckpointStore::step_info`].
    pub fn step_info(&self, step: u64) -> Result<StepInfo> {
        self.store().step_info(step)
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
        let _turn = self.background.take_turn()?;
        self.background.finish_others();
        self.store().delete(step)
    }

    /// Pins `step`: no keep policy removes it, and it can't be deleted.
    ///
    /// # Errors
    /// As [`CheckpointStore::pin`].
    pub fn pin(&self, step: u64) -> Result<()> {
        let _turn = self.background.take_turn()?;
        self.background.finish_others();
        self.store().pin(step)
    }

    /// Undoes [`pin`](Self::pin).
    ///
    /// # Errors
    /// As [`CheckpointStore::unpin`].
    pub fn unpin(&self, step: u64) -> Result<()> {
        let _turn = self.background.take_turn()?;
        self.background.finish_others();
        self.store().unpin(step)
    }

    /// Makes the file as small as it can be.
    ///
    /// # Errors
    /// As [`CheckpointStore::compact`].
    pub fn compact(&self) -> Result<CompactReport> {
        let _turn = self.background.take_turn()?;
        self.background.finish_others();
        self.store().compact()
    }

    /// Deletes all steps after `step`, in one commit, and returns them.
    ///
    /// # Errors
    /// As [`CheckpointStore::rollback_to`].
    pub fn rollback_to(&self, step: u64) -> Result<Vec<u64>> {
        let _turn = self.background.take_turn()?;
        self.background.finish_others();
        self.store().rollback_to(step)
    }
}

impl std::fmt::Debug for CheckpointManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckpointManager")
            .field("path", &self.store().path())
            .field("options", &self.background.shared().options)
            .finish()
    }
}
