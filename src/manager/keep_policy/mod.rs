//! Which saved steps stay: policies that a trainer combines with [`or`](KeepPolicy::or).
//!
//! A policy is a pure function from what is known of the saved steps to those it keeps. The
//! manager applies it in the transaction of each save. Whatever it says, the step being saved, the
//! newest step and pinned steps stay, also when a clock is wrong.
//!
//! A policy runs while the store is locked for writing: what it saves to the same store, deletes or
//! pins there, is refused with `InvalidInput`. Reading is fine.
//!
//! ```
//! use std::time::Duration;
//!
//! use milepost::keep_policy::{BestN, Every, EveryNSteps, KeepPolicy, LatestN};
//! use milepost::ManagerOptions;
//!
//! // The newest three, the best two, one an hour, and every 100,000th.
//! let policy = LatestN(3)
//!     .or(BestN::min("loss", 2))
//!     .or(Every(Duration::from_secs(3600)))
//!     .or(EveryNSteps::new(100_000)?);
//! let options = ManagerOptions::new().keep(policy);
//! # Ok::<(), milepost::Error>(())
//! ```

mod best;
mod number;
#[cfg(test)]
pub(super) mod tests;
mod time;

use std::collections::BTreeSet;
use std::fmt;
use std::time::SystemTime;

use crate::store::StepInfo;

pub use best::{BestMode, BestN, Unmeasured};
pub use number::{EveryNSteps, LatestN, OnSteps};
pub use time::{Every, LatestDuration};

/// Decides which saved steps stay.
///
/// ```
/// use std::collections::BTreeSet;
/// use std::time::SystemTime;
///
/// use milepost::StepInfo;
/// use milepost::keep_policy::KeepPolicy;
///
/// /// Keeps the steps whose custom metadata names a release.
/// #[derive(Debug)]
/// struct Released;
///
/// impl KeepPolicy for Released {
///     fn keep(&self, steps: &[StepInfo], _now: SystemTime) -> BTreeSet<u64> {
///         let released = |info: &&StepInfo| {
///             info.custom_metadata.as_ref().is_some_and(|data| data["release"].is_string())
///         };
///         steps.iter().filter(released).map(|info| info.step).collect()
///     }
/// }
/// ```
pub trait KeepPolicy: fmt::Debug + Send + Sync {
    /// The numbers of the steps to keep, out of `steps`, which ascend by number. `now` is the
    /// time of the save. The same arguments give the same answer. A number that is not in `steps`
    /// has no effect.
    fn keep(&self, steps: &[StepInfo], now: SystemTime) -> BTreeSet<u64>;

    /// Keeps what either policy keeps.
    fn or<P: KeepPolicy + 'static>(self, other: P) -> AnyOf
    where
        Self: Sized + 'static,
    {
        AnyOf(vec![Box::new(self), Box::new(other)])
    }
}

impl<P: KeepPolicy + ?Sized> KeepPolicy for Box<P> {
    fn keep(&self, steps: &[StepInfo], now: SystemTime) -> BTreeSet<u64> {
        (**self).keep(steps, now)
    }
}

/// Keeps every step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct All;

impl KeepPolicy for All {
    fn keep(&self, steps: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        steps.iter().map(|info| info.step).collect()
    }
}

/// Keeps the steps that a function says.
pub struct Predicate<F>(F);

impl<F: Fn(&StepInfo) -> bool + Send + Sync> Predicate<F> {
    /// Keeps the steps for which `predicate` returns true.
    pub fn new(predicate: F) -> Self {
        Self(predicate)
    }
}

impl<F: Fn(&StepInfo) -> bool + Send + Sync> KeepPolicy for Predicate<F> {
    fn keep(&self, steps: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        steps.iter().filter(|info| (self.0)(info)).map(|info| info.step).collect()
    }
}

impl<F> fmt::Debug for Predicate<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

/// Keeps what any of several policies keeps; without any, the newest step alone.
#[derive(Debug)]
pub struct AnyOf(Vec<Box<dyn KeepPolicy>>);

impl AnyOf {
    /// Keeps what any of `policies` keeps.
    pub fn new(policies: impl IntoIterator<Item = Box<dyn KeepPolicy>>) -> Self {
        Self(policies.into_iter().collect())
    }
}

impl KeepPolicy for AnyOf {
    fn keep(&self, steps: &[StepInfo], now: SystemTime) -> BTreeSet<u64> {
        self.0.iter().flat_map(|policy| policy.keep(steps, now)).collect()
    }
}

/// The steps that are to go: those that `policy` does not keep, without the newest and without
/// pinned ones. `steps` ascend by number.
pub(crate) fn victims(policy: &dyn KeepPolicy, steps: &[StepInfo], now: SystemTime) -> Vec<u64> {
    let kept = policy.keep(steps, now);
    let newest = steps.last().map(|info| info.step);
    let goes =
        |info: &&StepInfo| !kept.contains(&info.step) && !info.pinned && Some(info.step) != newest;
    steps.iter().filter(goes).map(|info| info.step).collect()
}
