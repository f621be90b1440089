//! The settings of a manager.

use super::keep_policy::{All, KeepPolicy};
use super::save_policy::{Always, EveryNSteps, SavePolicy};
use crate::error::{Error, Result};
use crate::limits::MIN_STAGING_BUDGET_BYTES;
use crate::store::{Rank, StoreOptions};

/// The settings of a [`CheckpointManager`](crate::CheckpointManager).
///
/// ```
/// use std::time::Duration;
///
/// use milepost::keep_policy::{BestN, KeepPolicy, LatestN};
/// use milepost::save_policy::{Every, OnSteps, SavePolicy};
/// use milepost::{Compression, ManagerOptions, StoreOptions};
///
/// let options = ManagerOptions::new()
///     // Every ten minutes, and the last step of the run.
///     .save(Every(Duration::from_secs(600)).or(OnSteps::new([250_000])))
///     .keep(LatestN(3).or(BestN::max("accuracy", 1)))
///     .store(StoreOptions::new().compression(Compression::Lz4));
/// ```
#[derive(Debug)]
pub struct ManagerOptions {
    pub(super) save: Box<dyn SavePolicy>,
    pub(super) keep: Box<dyn KeepPolicy>,
    pub(super) store: StoreOptions,
    pub(super) rank: Option<Rank>,
    pub(super) staging_budget_bytes: usize,
    pub(super) queue_length: usize,
    pub(super) when_full: WhenFull,
}

/// What becomes of a save when as many are under way as may be. One that is
/// [forced](crate::SaveOptions::force) waits, and is never skipped or superseded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenFull {
    /// The call waits until another save is finished: no step is lost.
    #[default]
    Block,
    /// The save is skipped, and the call says so: the trainer is never held up by the queue.
    Skip,
    /// The save takes the place of the one that has waited longest, whose handle says so.
    KeepNewest,
}

/// 1 GiB.
const DEFAULT_STAGING_BUDGET_BYTES: usize = 1 << 30;

impl Default for ManagerOptions {
    fn default() -> Self {
        Self {
            save: Box::new(Always),
            keep: Box::new(All),
            store: StoreOptions::default(),
            rank: None,
            staging_budget_bytes: DEFAULT_STAGING_BUDGET_BYTES,
            queue_length: 1,
            when_full: WhenFull::default(),
        }
    }
}

impl ManagerOptions {
    /// The defaults: every save is done, every step is kept; borrowed leaves are copied into at most
    /// 1 GiB; one save may wait behind the one that is being written, and others
    /// [block](WhenFull::Block).
    pub fn new() -> Self {
        Self::default()
    }

    /// Which steps are saved.
    #[must_use]
    pub fn save(mut self, policy: impl SavePolicy + 'static) -> Self {
        self.save = Box::new(policy);
        self
    }

    /// Saves the steps that are multiples of `steps`.
    ///
    /// # Errors
    /// `InvalidInput` if `steps` is 0.
    pub fn save_interval_steps(self, steps: u64) -> Result<Self> {
        Ok(self.save(EveryNSteps::new(steps)?))
    }

    /// Which saved steps stay.
    #[must_use]
    pub fn keep(mut self, policy: impl KeepPolicy + 'static) -> Self {
        self.keep = Box::new(policy);
        self
    }

    /// The settings of the store below.
    #[must_use]
    pub fn store(mut self, options: StoreOptions) -> Self {
        self.store = options;
        self
    }

    /// Makes the manager one of several that share the file, as
    /// [`CheckpointStore::open_as_rank`](crate::CheckpointStore::open_as_rank) says. A save is finished when what this
    /// rank gives to the step is durable; [`wait_committed`](crate::CheckpointManager::wait_committed) waits for the others.
    ///
    /// Each rank asks its own save policy, so that must come to the same on all of them: one that goes by the
    /// number of the step does; one that goes by the clock may not, nor a [queue](Self::queue) that skips saves,
    /// and then there are steps that never get complete. The keep policy of the last rank to arrive decides which steps stay.
    #[must_use]
    pub fn rank(mut self, rank: Rank) -> Self {
        self.rank = Some(rank);
        self
    }

    /// How much memory borrowed leaves may be copied into, in bytes. It is taken when it is needed and
    /// kept for the next save. A save returns at once if its borrowed leaves fit, and what they
    /// need at most is a sixteenth and 8 MiB more than their size; a larger state is copied and written
    /// part by part, and the call returns when its last part is copied. Leaves that are handed over or
    /// shared need none.
    ///
    /// # Errors
    /// `InvalidInput` if the budget is less than [`MIN_STAGING_BUDGET_BYTES`], 2 MiB.
    pub fn staging_budget(mut self, bytes: usize) -> Result<Self> {
        if bytes < MIN_STAGING_BUDGET_BYTES {
            return Err(Error::invalid(format!(
                "a staging budget of {bytes} bytes is too small, it takes {MIN_STAGING_BUDGET_BYTES}"
            ))
            .advise("`save_blocking` copies nothing, and needs none"));
        }
        self.staging_budget_bytes = bytes;
        Ok(self)
    }

    /// How many saves may wait behind the one that is being written, and what becomes of others.
    /// With none, a save waits until the one before is durable.
    #[must_use]
    pub fn queue(mut self, waiting: usize, when_full: WhenFull) -> Self {
        self.queue_length = waiting;
        self.when_full = when_full;
        self
    }
}
