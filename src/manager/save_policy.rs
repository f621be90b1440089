//! Which steps are saved: policies that a trainer combines with [`or`](SavePolicy::or).
//!
//! ```
//! use std::time::Duration;
//!
//! use milepost::ManagerOptions;
//! use milepost::save_policy::{Every, EveryNSteps, OnSteps, SavePolicy};
//!
//! // Every 1000 steps, every ten minutes where those take longer, and the last step of the run.
//! let policy = EveryNSteps::new(1000)?
//!     .or(Every(Duration::from_secs(600)))
//!     .or(OnSteps::new([1_234_567]));
//! let options = ManagerOptions::new().save(policy);
//! # Ok::<(), milepost::Error>(())
//! ```

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};

/// What a save policy can look at.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct SaveContext {
    /// The latest step that is saved or on its way; `None` if there is none.
    pub latest: Option<LatestSave>,
    /// The time now, by the clock of this machine.
    pub now: SystemTime,
}

impl SaveContext {
    /// A context: the latest save and the time now.
    pub fn new(latest: Option<LatestSave>, now: SystemTime) -> Self {
        Self { latest, now }
    }
}

/// A step that is saved or on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatestSave {
    /// The number of the step.
    pub step: u64,
    /// When its save began, by the clock of the machine that saved.
    pub at: SystemTime,
}

/// Decides whether a step is saved. It is asked at every call of `save`, in the trainer's thread,
/// and remembers nothing: the same step and context give the same answer.
///
/// A manager never asks for a step before the latest one, and for that one only if it is to
/// be replaced.
pub trait SavePolicy: fmt::Debug + Send + Sync {
    /// Whether `step` is to be saved.
    fn should_save(&self, step: u64, context: &SaveContext) -> bool;

    /// Saves what either policy asks for.
    fn or<P: SavePolicy + 'static>(self, other: P) -> AnyOf
    where
        Self: Sized + 'static,
    {
        AnyOf(vec![Box::new(self), Box::new(other)])
    }
}

impl<P: SavePolicy + ?Sized> SavePolicy for Box<P> {
    fn should_save(&self, step: u64, context: &SaveContext) -> bool {
        (**self).should_save(step, context)
    }
}

/// Saves every step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Always;

impl SavePolicy for Always {
    fn should_save(&self, _: u64, _: &SaveContext) -> bool {
        true
    }
}

/// Saves the steps that are multiples of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EveryNSteps(u64);

impl EveryNSteps {
    /// Saves the multiples of `steps`.
    ///
    /// # Errors
    /// `InvalidInput` if `steps` is 0.
    pub fn new(steps: u64) -> Result<Self> {
        if steps == 0 {
            return Err(
                Error::invalid("the interval between saves is 0 steps").advise("give at least 1")
            );
        }
        Ok(Self(steps))
    }
}

impl SavePolicy for EveryNSteps {
    fn should_save(&self, step: u64, _: &SaveContext) -> bool {
        step.is_multiple_of(self.0)
    }
}

/// Saves when the latest step was saved at least this long ago, and at once if none is. A clock
/// that went back since then saves too, rather than never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Every(pub Duration);

impl SavePolicy for Every {
    fn should_save(&self, _: u64, context: &SaveContext) -> bool {
        context.latest.is_none_or(|latest| {
            // An error means that the clock went back.
            let age = context.now.duration_since(latest.at);
            age.map_or(true, |age| age >= self.0)
        })
    }
}

/// Saves these steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnSteps(BTreeSet<u64>);

impl OnSteps {
    /// Saves `steps`.
    pub fn new(steps: impl IntoIterator<Item = u64>) -> Self {
        Self(steps.into_iter().collect())
    }
}

impl SavePolicy for OnSteps {
    fn should_save(&self, step: u64, _: &SaveContext) -> bool {
        self.0.contains(&step)
    }
}

/// Saves if nothing is saved yet, whatever the step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstCall;

impl SavePolicy for FirstCall {
    fn should_save(&self, _: u64, context: &SaveContext) -> bool {
        context.latest.is_none()
    }
}

/// Saves when a function says so.
pub struct Predicate<F>(F);

impl<F: Fn(u64, &SaveContext) -> bool + Send + Sync> Predicate<F> {
    /// Saves when `predicate` returns true.
    pub fn new(predicate: F) -> Self {
        Self(predicate)
    }
}

impl<F: Fn(u64, &SaveContext) -> bool + Send + Sync> SavePolicy for Predicate<F> {
    fn should_save(&self, step: u64, context: &SaveContext) -> bool {
        (self.0)(step, context)
    }
}

impl<F> fmt::Debug for Predicate<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Predicate")
    }
}

/// Saves what any of several policies asks for; without any, nothing.
#[derive(Debug)]
pub struct AnyOf(Vec<Box<dyn SavePolicy>>);

impl AnyOf {
    /// Saves what any of `policies` asks for.
    pub fn new(policies: impl IntoIterator<Item = Box<dyn SavePolicy>>) -> Self {
        Self(policies.into_iter().collect())
    }
}

impl SavePolicy for AnyOf {
    fn should_save(&self, step: u64, context: &SaveContext) -> bool {
        self.0.iter().any(|policy| policy.should_save(step, context))
    }
}

#[cfg(test)]
mod tests {
    use super::super::keep_policy::tests::at;
    use super::*;
    use proptest::prelude::*;

    fn save(step: u64) -> LatestSave {
        LatestSave { step, at: at(step) }
    }

    /// The steps of 1..=10 that are saved, one second apart, each saved step becoming the latest.
    fn saved(policy: &dyn SavePolicy) -> Vec<u64> {
        let mut latest = None;
        let mut saved = Vec::new();
        for step in 1..=10 {
            if policy.should_save(step, &SaveContext::new(latest, at(step))) {
                latest = Some(save(step));
                saved.push(step);
            }
        }
        saved
    }

    #[test]
    fn each_policy_saves_its_steps() {
        assert_eq!(saved(&Always).len(), 10);
        assert_eq!(saved(&EveryNSteps::new(4).unwrap()), [4, 8]);
        assert_eq!(saved(&Every(Duration::from_secs(3))), [1, 4, 7, 10]);
        assert_eq!(saved(&OnSteps::new([3, 99, 5])), [3, 5]);
        assert_eq!(saved(&FirstCall), [1]);
        assert_eq!(saved(&Predicate::new(|step, _: &SaveContext| step > 8)), [9, 10]);
        assert_eq!(
            saved(&FirstCall.or(EveryNSteps::new(5).unwrap()).or(OnSteps::new([6]))),
            [1, 5, 6, 10]
        );
        assert_eq!(saved(&AnyOf::new([])), [0; 0]);
    }

    #[test]
    fn a_policy_shows_what_it_is() {
        let policy = FirstCall.or(Predicate::new(|step, _: &SaveContext| step == 7));
        assert_eq!(format!("{policy:?}"), "AnyOf([FirstCall, Predicate])");
    }

    #[test]
    fn an_interval_of_no_steps_is_refused() {
        assert!(EveryNSteps::new(0).unwrap_err().to_string().contains("0 steps"));
    }

    #[test]
    fn a_clock_that_went_back_does_not_stop_the_saving() {
        let context = SaveContext::new(Some(save(100)), at(10));
        assert!(Every(Duration::from_secs(3)).should_save(101, &context));
    }

    fn policies() -> Vec<Box<dyn SavePolicy>> {
        vec![
            Box::new(FirstCall),
            Box::new(EveryNSteps::new(3).unwrap()),
            Box::new(Every(Duration::from_secs(10))),
            Box::new(OnSteps::new([2, 11])),
        ]
    }

    proptest! {
        #[test]
        fn any_of_saves_what_any_saves(
            step in 0u64..20,
            latest in prop::option::of(0u64..20),
            now in 0u64..40,
        ) {
            let context = SaveContext::new(latest.map(save), at(now));
            for (a, b) in policies().into_iter().zip(policies().into_iter().skip(1)) {
                let either = a.should_save(step, &context) || b.should_save(step, &context);
                prop_assert_eq!(AnyOf::new([a, b]).should_save(step, &context), either);
            }
        }
    }
}
