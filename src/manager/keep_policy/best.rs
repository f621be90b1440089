//! The order of steps by a metric: one order, for what is kept and for what is the best step.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::SystemTime;

use super::KeepPolicy;
use crate::store::StepInfo;

/// Whether the largest or the smallest value of a metric is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BestMode {
    /// The largest: an accuracy.
    Max,
    /// The smallest: a loss.
    Min,
}

/// Keeps the steps with the best values of a metric, this many. A NaN is worse than any number, the
/// infinities included; of equal values the newer step is the better one. Steps without the metric
/// are kept and not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BestN {
    metric: String,
    mode: BestMode,
    count: usize,
}

impl BestN {
    /// Keeps the `count` steps with the largest values of `metric`.
    pub fn max(metric: impl Into<String>, count: usize) -> Self {
        Self { metric: metric.into(), mode: BestMode::Max, count }
    }

    /// Keeps the `count` steps with the smallest values of `metric`.
    pub fn min(metric: impl Into<String>, count: usize) -> Self {
        Self { metric: metric.into(), mode: BestMode::Min, count }
    }
}

impl KeepPolicy for BestN {
    fn keep(&self, steps: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        let without = steps.iter().filter(|info| !info.metrics.contains_key(&self.metric));
        let best = ranked(steps, &self.metric, self.mode).into_iter().take(self.count);
        without.map(|info| info.step).chain(best).collect()
    }
}

/// The step with the best value of `metric`, ranked as [`BestN`] does. `None` if no step has the
/// metric; a step whose value is NaN only if the value of all that have it is.
pub(crate) fn best_step(steps: &[StepInfo], metric: &str, mode: BestMode) -> Option<u64> {
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
