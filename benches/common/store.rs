//! Every call that saves or restores.

use std::num::NonZeroUsize;
use std::path::Path;
use std::time::Instant;

use milepost::keep_policy::LatestN;
use milepost::{
    CheckpointManager, Compression, KeyPath, Leaf, ManagerOptions, Result, StoreOptions, Tree,
};

use super::state::State;

/// Threads of a restore: as many as the raw reads that it is compared with.
pub(crate) const THREADS: NonZeroUsize = NonZeroUsize::new(2).expect("2 is not 0");

/// Room for the whole of the largest state that is saved in the background.
const STAGING_BYTES: usize = 2 << 30;

/// When a save had reached what, in seconds since it began.
pub(crate) struct Saved {
    /// The state may change again.
    pub(crate) returned_s: f64,
    /// The step is durable.
    pub(crate) durable_s: f64,
}

pub(crate) struct Store(CheckpointManager);

impl Store {
    /// Opens or creates the store at `path`, which keeps the `keep` latest steps, or all of them.
    pub(crate) fn open(path: &Path, keep: Option<usize>) -> Result<Self> {
        let store = StoreOptions::new().compression(Compression::None).threads(THREADS);
        let options = ManagerOptions::new().store(store).staging_budget(STAGING_BYTES)?;
        let options = match keep {
            Some(count) => options.keep(LatestN(count)),
            None => options,
        };
        CheckpointManager::open(path, options).map(Self)
    }

    /// Saves `state` in this thread, until it is durable.
    pub(crate) fn save(&self, step: u64, state: &State) -> Result<()> {
        let outcome = self.0.save_blocking(step, state)?;
        assert!(outcome.is_saved(), "step {step} is saved, not skipped");
        Ok(())
    }

    /// Saves `state` in the background, and waits until it is durable.
    pub(crate) fn save_in_background(&self, step: u64, state: &State) -> Result<Saved> {
        let began = Instant::now();
        let handle = self.0.save(step, state)?;
        let returned_s = began.elapsed().as_secs_f64();
        assert!(handle.wait()?.is_saved(), "step {step} is saved, not skipped");
        Ok(Saved { returned_s, durable_s: began.elapsed().as_secs_f64() })
    }

    /// Saves `state` in the background, and calls `train` until it is durable.
    pub(crate) fn save_beside(
        &self,
        step: u64,
        state: &State,
        mut train: impl FnMut(),
    ) -> Result<()> {
        let handle = self.0.save(step, state)?;
        while !handle.is_finished() {
            train();
        }
        assert!(handle.wait()?.is_saved(), "step {step} is saved, not skipped");
        Ok(())
    }

    /// Restores into memory that is there.
    pub(crate) fn restore_into(&self, step: u64, target: &mut State) -> Result<()> {
        self.0.restore_into(step, target)
    }

    /// Restores into new memory.
    pub(crate) fn restore_fresh(&self, step: u64) -> Result<Tree<Leaf<'static>>> {
        self.0.restore(step)
    }

    /// Restores one leaf into new memory.
    pub(crate) fn read_leaf(&self, step: u64, path: &KeyPath) -> Result<Leaf<'static>> {
        self.0.read(step)?.read_leaf(path)
    }

    pub(crate) fn delete(&self, step: u64) -> Result<()> {
        self.0.delete(step)
    }

    pub(crate) fn all_steps(&self) -> Result<Vec<u64>> {
        self.0.all_steps()
    }
}
