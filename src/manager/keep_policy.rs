//! Which saved steps stay: policies that a trainer combines with [`or`](KeepPolicy::or).
//!
//! A policy is a pure function from what is known of the saved steps to those it keeps. The
//! manager applies it in the transaction of each save. Whatever it says, the newest step and
//! pinned steps stay.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, SystemTime};

use crate::error::{Error, Result};
use crate::store::StepInfo;

/// Decides which saved steps stay.
pub trait KeepPolicy: fmt::Debug + Send + Sync {
    /// The numbers of the steps to keep, out of `steps`, which ascend by number. `now` is the
    /// time of the save. The same arguments give the same answer.
    fn keep(&self, steps: &[StepInfo], now: SystemTime) -> BTreeSet<u64>;

    /// Keeps what either policy keeps.
    fn or<P: KeepPolicy + 'static>(self, other: P) -> AnyOf
    where
        Self: Sized + 'static,
    {
        AnyOf(vec![Box::new(self), Box::new(other)])
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

/// Keeps the newest steps, this many. With 0 the newest one stays all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatestN(pub usize);

impl KeepPolicy for LatestN {
    fn keep(&self, steps: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        steps
            .iter()
            .rev()
            .take(self.0)
            .map(|info| info.step)
            .collect()
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
        steps
            .iter()
            .map(|info| info.step)
            .filter(|step| step.is_multiple_of(self.0))
            .collect()
    }
}

/// Keeps the oldest step and, from there on, each one that was saved at least this long after the
/// one kept before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Every(pub Duration);

impl KeepPolicy for Every {
    fn keep(&self, steps: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        let mut last: Option<SystemTime> = None;
        let mut kept = BTreeSet::new();
        for info in steps {
            let age = last.map(|last| info.committed_at.duration_since(last).unwrap_or_default());
            if age.is_none_or(|age| age >= self.0) {
                last = Some(info.committed_at);
                kept.insert(info.step);
            }
        }
        kept
    }
}

/// Keeps these steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnSteps(BTreeSet<u64>);

impl OnSteps {
    /// Keeps `steps`.
    pub fn new(steps: impl IntoIterator<Item = u64>) -> Self {
        Self(steps.into_iter().collect())
    }
}

impl KeepPolicy for OnSteps {
    fn keep(&self, _: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        self.0.clone()
    }
}

/// Whether the largest or the smallest value of a metric is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BestMode {
    /// The largest: an accuracy.
    Max,
    /// The smallest: a loss.
    Min,
}

/// Keeps the steps with the best values of a metric, this many. A NaN is worse than any number; of
/// equal values the newer step is the better one. Steps without the metric are kept and not
/// counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BestN {
    metric: String,
    mode: BestMode,
    count: usize,
}

impl BestN {
    /// Keeps the `count` steps with the largest values of `metric`.
    pub fn max(metric: impl Into<String>, count: usize) -> Self {
        Self {
            metric: metric.into(),
            mode: BestMode::Max,
            count,
        }
    }

    /// Keeps the `count` steps with the smallest values of `metric`.
    pub fn min(metric: impl Into<String>, count: usize) -> Self {
        Self {
            metric: metric.into(),
            mode: BestMode::Min,
            count,
        }
    }
}

impl KeepPolicy for BestN {
    fn keep(&self, steps: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        let without = steps
            .iter()
            .filter(|info| !info.metrics.contains_key(&self.metric));
        let best = ranked(steps, &self.metric, self.mode)
            .into_iter()
            .take(self.count);
        without.map(|info| info.step).chain(best).collect()
    }
}

/// Keeps the steps that were saved at most this long ago.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatestDuration(pub Duration);

impl KeepPolicy for LatestDuration {
    fn keep(&self, steps: &[StepInfo], now: SystemTime) -> BTreeSet<u64> {
        let age = |info: &StepInfo| now.duration_since(info.committed_at).unwrap_or_default();
        steps
            .iter()
            .filter(|info| age(info) <= self.0)
            .map(|info| info.step)
            .collect()
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
        steps
            .iter()
            .filter(|info| (self.0)(info))
            .map(|info| info.step)
            .collect()
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
        self.0
            .iter()
            .flat_map(|policy| policy.keep(steps, now))
            .collect()
    }
}

/// The steps that are to go: those that `policy` does not keep, without the newest and without
/// pinned ones. `steps` ascend by number.
pub(super) fn victims(policy: &dyn KeepPolicy, steps: &[StepInfo], now: SystemTime) -> Vec<u64> {
    let kept = policy.keep(steps, now);
    let newest = steps.last().map(|info| info.step);
    let goes =
        |info: &&StepInfo| !kept.contains(&info.step) && !info.pinned && Some(info.step) != newest;
    steps.iter().filter(goes).map(|info| info.step).collect()
}

/// The step with the best value of `metric`, ranked as [`BestN`] does.
pub(super) fn best_step(steps: &[StepInfo], metric: &str, mode: BestMode) -> Option<u64> {
    ranked(steps, metric, mode).first().copied()
}

/// The steps that have `metric`, best first.
fn ranked(steps: &[StepInfo], metric: &str, mode: BestMode) -> Vec<u64> {
    let value = |info: &StepInfo| info.metrics.get(metric).map(|value| (*value, info.step));
    let mut ranked: Vec<(f64, u64)> = steps.iter().filter_map(value).collect();
    ranked.sort_by(|a, b| compare(a.0, b.0, mode).then(b.1.cmp(&a.1)));
    ranked.into_iter().map(|(_, step)| step).collect()
}

/// The better value is `Less`. Zeros of either sign are equal, as are all NaNs.
fn compare(a: f64, b: f64, mode: BestMode) -> Ordering {
    let by_value = match mode {
        BestMode::Max => b.partial_cmp(&a),
        BestMode::Min => a.partial_cmp(&b),
    };
    by_value.unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    /// That many seconds after the epoch.
    pub(in super::super) fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    /// A step that was saved at as many seconds as its number.
    pub(in super::super) fn info(step: u64) -> StepInfo {
        StepInfo {
            step,
            committed_at: at(step),
            metrics: BTreeMap::new(),
            custom_metadata: None,
            pinned: false,
            leaf_count: 0,
            logical_bytes: 0,
            stored_bytes: 0,
            digest: [0; 16],
        }
    }

    fn scored(step: u64, accuracy: f64) -> StepInfo {
        StepInfo {
            metrics: BTreeMap::from([("accuracy".to_owned(), accuracy)]),
            ..info(step)
        }
    }

    /// What is left after each of the `saved` steps, one after the other.
    fn history(
        policy: &dyn KeepPolicy,
        saved: impl IntoIterator<Item = StepInfo>,
    ) -> Vec<Vec<u64>> {
        let mut steps: Vec<StepInfo> = Vec::new();
        let mut history = Vec::new();
        for info in saved {
            let now = info.committed_at;
            steps.push(info);
            let victims = victims(policy, &steps, now);
            steps.retain(|info| !victims.contains(&info.step));
            history.push(steps.iter().map(|info| info.step).collect());
        }
        history
    }

    fn left(policy: &dyn KeepPolicy, saved: impl IntoIterator<Item = StepInfo>) -> Vec<u64> {
        history(policy, saved).pop().unwrap()
    }

    #[test]
    fn each_policy_keeps_its_steps() {
        let ten = || (1..=10).map(info);
        assert_eq!(left(&All, ten()).len(), 10);
        assert_eq!(left(&LatestN(3), ten()), [8, 9, 10]);
        assert_eq!(left(&LatestN(0), ten()), [10]);
        assert_eq!(left(&EveryNSteps::new(4).unwrap(), ten()), [4, 8, 10]);
        assert_eq!(left(&Every(Duration::from_secs(4)), ten()), [1, 5, 9, 10]);
        assert_eq!(left(&OnSteps::new([2, 7, 99]), ten()), [2, 7, 10]);
        assert_eq!(
            left(&LatestDuration(Duration::from_secs(2)), ten()),
            [8, 9, 10]
        );
        assert_eq!(
            left(&Predicate::new(|info: &StepInfo| info.step % 5 == 1), ten()),
            [1, 6, 10]
        );
        assert_eq!(left(&AnyOf::new([]), ten()), [10]);
        assert_eq!(left(&LatestN(2).or(OnSteps::new([1])), ten()), [1, 9, 10]);
        assert!(EveryNSteps::new(0).is_err());
    }

    #[test]
    fn the_best_stay_and_the_newest_too_however_bad() {
        let saved = [(1, 0.5), (2, 0.9), (3, 0.1), (4, 0.9), (5, 0.2)];
        let steps = || {
            saved
                .iter()
                .map(|(step, accuracy)| scored(*step, *accuracy))
        };
        assert_eq!(
            history(&BestN::max("accuracy", 1), steps()),
            [vec![1], vec![2], vec![2, 3], vec![4], vec![4, 5]]
        );
        assert_eq!(left(&BestN::min("accuracy", 2), steps()), [3, 5]);
        assert_eq!(
            left(&LatestN(3).or(BestN::max("accuracy", 1)), steps()),
            [3, 4, 5]
        );
    }

    #[test]
    fn a_nan_is_worse_than_any_number_and_steps_without_the_metric_stay() {
        let steps = [
            scored(1, f64::NAN),
            scored(2, f64::NEG_INFINITY),
            info(3),
            scored(4, f64::NAN),
            info(5),
        ];
        assert_eq!(best_step(&steps, "accuracy", BestMode::Max), Some(2));
        assert_eq!(best_step(&steps, "accuracy", BestMode::Min), Some(2));
        assert_eq!(best_step(&steps[3..], "accuracy", BestMode::Max), Some(4));
        assert_eq!(best_step(&steps, "loss", BestMode::Max), None);
        let kept = BestN::max("accuracy", 1).keep(&steps, at(9));
        assert_eq!(kept, BTreeSet::from([2, 3, 5]));
    }

    #[test]
    fn a_pinned_step_stays() {
        let steps = [
            StepInfo {
                pinned: true,
                ..info(1)
            },
            info(2),
            info(3),
        ];
        assert_eq!(left(&LatestN(1), steps), [1, 3]);
    }

    fn any_steps() -> impl Strategy<Value = Vec<StepInfo>> {
        let value = prop_oneof![Just(f64::NAN), Just(0.0), Just(-0.0), -2.0f64..2.0];
        let step = (prop::option::of(value), any::<bool>(), 0u64..100);
        prop::collection::btree_map(0u64..50, step, 0..12).prop_map(|steps| {
            let build = |(step, (accuracy, pinned, seconds)): (u64, (Option<f64>, bool, u64))| {
                let scored = accuracy.map_or_else(|| info(step), |value| scored(step, value));
                StepInfo {
                    pinned,
                    committed_at: at(seconds),
                    ..scored
                }
            };
            steps.into_iter().map(build).collect()
        })
    }

    fn policies() -> Vec<Box<dyn KeepPolicy>> {
        vec![
            Box::new(LatestN(2)),
            Box::new(EveryNSteps(3)),
            Box::new(Every(Duration::from_secs(10))),
            Box::new(BestN::max("accuracy", 2)),
            Box::new(BestN::min("accuracy", 1)),
            Box::new(LatestDuration(Duration::from_secs(30))),
            Box::new(LatestN(1).or(BestN::max("accuracy", 1))),
        ]
    }

    proptest! {
        #[test]
        fn retention_is_safe_and_stable(steps in any_steps()) {
            for policy in policies() {
                let gone = victims(&*policy, &steps, at(100));
                prop_assert!(steps.last().is_none_or(|newest| !gone.contains(&newest.step)));
                for info in &steps {
                    prop_assert!(!(info.pinned && gone.contains(&info.step)));
                }
                let rest: Vec<_> =
                    steps.iter().filter(|info| !gone.contains(&info.step)).cloned().collect();
                prop_assert_eq!(rest.len() + gone.len(), steps.len());
                let again = victims(&*policy, &rest, at(100));
                prop_assert!(again.is_empty(), "{:?} {:?}", policy, again);
            }
        }

        #[test]
        fn any_of_keeps_the_union(steps in any_steps()) {
            let union: BTreeSet<u64> =
                policies().iter().flat_map(|policy| policy.keep(&steps, at(100))).collect();
            prop_assert_eq!(AnyOf::new(policies()).keep(&steps, at(100)), union);
        }
    }
}
