//! Policies that look at the numbers of the steps alone.

use std::collections::BTreeSet;
use std::time::SystemTime;

use super::KeepPolicy;
use crate::error::{Error, Result};
use crate::store::StepInfo;

/// Keeps the newest steps, this many. With 0 the newest one stays all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatestN(pub usize);

impl KeepPolicy for LatestN {
    fn keep(&self, steps: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        steps.iter().rev().take(self.0).map(|info| info.step).collect()
    }
}

/// Keeps the steps that are multiples of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EveryNSteps(u64);

impl EveryNSteps {
    /// Keeps the multiples of `steps`.
    ///
    /// # Errors
    /// `InvalidInput` if `steps` is 0.
    pub fn new(steps: u64) -> Result<Self> {
        if steps == 0 {
            return Err(
                Error::invalid("the interval between kept steps is 0").advise("give at least 1")
            );
        }
        Ok(Self(steps))
    }
}

impl KeepPolicy for EveryNSteps {
    fn keep(&self, steps: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        steps.iter().map(|info| info.step).filter(|step| step.is_multiple_of(self.0)).collect()
    }
}

/// Keeps these steps, where they are saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnSteps(BTreeSet<u64>);

impl OnSteps {
    /// Keeps `steps`.
    pub fn new(steps: impl IntoIterator<Item = u64>) -> Self {
        Self(steps.into_iter().collect())
    }
}

impl KeepPolicy for OnSteps {
    fn keep(&self, steps: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        steps.iter().map(|info| info.step).filter(|step| self.0.contains(step)).collect()
    }
}
