//! The order of steps by a metric: one order, for what is kept and for what is the best step.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::time::SystemTime;

use super::KeepPolicy;
use crate::error::Result;
use crate::store::{CheckpointStore, StepInfo};

/// Whether the largest or the smallest value of a metric is the best.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BestMode {
    /// The largest: an accuracy.
    Max,
    /// The smallest: a loss.
    Min,
}

/// What becomes of steps that were saved without the metric of a [`BestN`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unmeasured {
    /// They are all kept, and do not count among the best.
    #[default]
    Keep,
    /// They are not kept: the next save removes them, unless another policy keeps them.
    Drop,
}

/// Keeps the steps with the best values of a metric, this many. A NaN is worse than any number, the
/// infinities included; of equal values the newer step is the better one.
///
/// **A step saved without the metric is kept, and not counted**, as Orbax does it: it may be the
/// best one, nobody has measured. A trainer that saves every 100 steps and gives the metric with
/// every tenth of these saves so keeps nine steps of ten for good. Where the metric is not given
/// with every save, say [`Unmeasured::Drop`]:
///
/// ```
/// # fn main() -> milepost::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// use milepost::keep_policy::{BestN, KeepPolicy, LatestN, Unmeasured};
/// use milepost::{CheckpointManager, ManagerOptions, SaveOptions};
///
/// let best = BestN::max("accuracy", 1).unmeasured(Unmeasured::Drop);
/// let options = ManagerOptions::new().keep(LatestN(2).or(best));
/// let manager = CheckpointManager::open(folder.path().join("run.milepost"), options)?;
/// for step in 1..=25u64 {
///     let measured = step % 10 == 0;
///     let save = SaveOptions::new();
///     let save = if measured { save.metric("accuracy", 1.0 / step as f64) } else { save };
///     manager.save_with(step, &step, &save)?;
/// }
/// manager.wait_until_finished()?;
/// assert_eq!(manager.all_steps()?, [10, 24, 25]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BestN {
    metric: String,
    mode: BestMode,
    count: usize,
    unmeasured: Unmeasured,
}

impl BestN {
    /// Keeps the `count` steps with the largest values of `metric`, and the steps without it.
    pub fn max(metric: impl Into<String>, count: usize) -> Self {
        Self::new(metric.into(), BestMode::Max, count)
    }

    /// Keeps the `count` steps with the smallest values of `metric`, and the steps without it.
    pub fn min(metric: impl Into<String>, count: usize) -> Self {
        Self::new(metric.into(), BestMode::Min, count)
    }

    fn new(metric: String, mode: BestMode, count: usize) -> Self {
        Self { metric, mode, count, unmeasured: Unmeasured::default() }
    }

    /// What becomes of the steps without the metric.
    #[must_use]
    pub fn unmeasured(mut self, unmeasured: Unmeasured) -> Self {
        self.unmeasured = unmeasured;
        self
    }
}

impl KeepPolicy for BestN {
    fn keep(&self, steps: &[StepInfo], _: SystemTime) -> BTreeSet<u64> {
        let best = ranked(steps, &self.metric, self.mode).into_iter().take(self.count);
        let without = steps.iter().filter(|info| !info.metrics.contains_key(&self.metric));
        match self.unmeasured {
            Unmeasured::Keep => best.chain(without.map(|info| info.step)).collect(),
            Unmeasured::Drop => best.collect(),
        }
    }
}

impl CheckpointStore {
    /// The step with the best value of the metric `name`, for evaluators that read beside the
    /// trainer; of equal ones the latest, and a NaN is worse than any number. `None` if no step
    /// has this metric. A step with a damaged record is passed over.
    ///
    /// What is best may change with the next commit of the trainer, and a step that is not the
    /// best any more may be removed: where a step is `NotFound` right after it was the best, ask
    /// again.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("run.milepost");
    /// use milepost::keep_policy::BestMode;
    /// use milepost::{CheckpointStore, SaveOptions};
    ///
    /// let trainer = CheckpointStore::create(&path)?;
    /// trainer.save(1, &10.0f32, &SaveOptions::new().metric("loss", 0.5))?;
    ///
    /// let evaluator = CheckpointStore::open_read_only(&path)?;
    /// trainer.save(2, &20.0f32, &SaveOptions::new().metric("loss", 0.3))?;
    /// assert_eq!(evaluator.best_step("loss", BestMode::Min)?, Some(2));
    /// assert_eq!(evaluator.step_info(2)?.metrics["loss"], 0.3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn best_step(&self, name: &str, mode: BestMode) -> Result<Option<u64>> {
        Ok(best_step(&self.readable_steps()?, name, mode))
    }
}

/// The step with the best value of `metric`, ranked as [`BestN`] does. `None` if no step has the
/// metric; a step whose value is NaN only if the value of all that have it is.
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
