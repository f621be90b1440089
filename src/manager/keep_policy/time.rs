//! Policies that look at when the steps were saved, by the clock of the machine that saved.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use super::KeepPolicy;
use crate::store::StepInfo;

/// Keeps the oldest step and, from there on, each one whose clock is at least this far from that of
/// the step kept before it. Applied again to what it kept, it keeps the same.
///
/// A clock that was set, forwards or backwards, by more than the interval so begins a new interval:
/// it costs one step more than needed, never the history that follows. One that was set back by
/// less delays the next kept step by as much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Every(pub Duration);

impl KeepPolicy for Every {
    fn keep(&self, steps: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        let mut last: Option<SystemTime> = None;
        let mut kept = BTreeSet::new();
        for info in steps {
            if last.is_none_or(|last| apart(info.committed_at, last) >= self.0) {
                last = Some(info.committed_at);
                kept.insert(info.step);
            }
        }
        kept
    }
}

/// Keeps the steps that were saved at most this long ago. A step from the future, by a clock that
/// was set back since, counts as saved now.
///
/// A save while the clock is far ahead finds all steps but the newest too old: where the clock
/// can't be trusted, [`or`](KeepPolicy::or) it with [`LatestN`](super::LatestN).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatestDuration(pub Duration);

impl KeepPolicy for LatestDuration {
    fn keep(&self, steps: &[StepInfo], now: SystemTime) -> BTreeSet<u64> {
        let age = |info: &StepInfo| now.duration_since(info.committed_at).unwrap_or_default();
        steps.iter().filter(|info| age(info) <= self.0).map(|info| info.step).collect()
    }
}

/// The time between two readings of a clock, whichever is the later.
fn apart(a: SystemTime, b: SystemTime) -> Duration {
    a.duration_since(b).unwrap_or_else(|backwards| backwards.duration())
}
