//! The settings of a manager.

use super::keep_policy::{All, KeepPolicy};
use super::save_policy::{Always, EveryNSteps, SavePolicy};
use crate::error::Result;
use crate::store::StoreOptions;

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
}

impl Default for ManagerOptions {
    fn default() -> Self {
        Self { save: Box::new(Always), keep: Box::new(All), store: StoreOptions::default() }
    }
}

impl ManagerOptions {
    /// The defaults: every save is done, every step is kept.
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
}
