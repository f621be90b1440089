//! Policies that look at when the steps were saved, by the clock of the machine that saved.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::KeepPolicy;
use crate::store::StepInfo;

/// Keeps the oldest step and, from there on, each one that was saved at least this long after the
/// one kept before it. Applied again to what it kept, it keeps the same.
///
/// A step whose clock was behind that of the step kept before it counts as saved at the same time:
/// it is not kept, nor are the steps after it until their clock has caught up and the interval has
/// passed. So a clock that was set back thins the history out; [`or`](KeepPolicy::or) a policy by
/// number, such as [`EveryNSteps`](super::EveryNSteps), where that matters.
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

/// Keeps the steps that were saved at most this long ago. A step from the future, by a clock that
/// was set back since, counts as saved now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatestDuration(pub Duration);

impl KeepPolicy for LatestDuration {
    fn keep(&self, steps: &[StepInfo], now: SystemTime) -> BTreeSet<u64> {
        let age = |info: &StepInfo| now.duration_since(info.committed_at).unwrap_or_default();
        steps.iter().filter(|info| age(info) <= self.0).map(|info| info.step).collect()
    }
}
