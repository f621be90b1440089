//! What the caller of a save holds of it.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::error::Result;
use crate::manager::{SaveOutcome, SkipReason};

/// A save that [`CheckpointManager::save`](crate::CheckpointManager::save) accepted or skipped.
///
/// Dropping it changes nothing: the save goes on, and its error reaches the next save and
/// [`wait_until_finished`](crate::CheckpointManager::wait_until_finished).
///
/// ```
/// # fn main() -> milepost::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("run.milepost");
/// use milepost::{CheckpointManager, ManagerOptions, SaveOutcome};
///
/// let manager = CheckpointManager::open(&path, ManagerOptions::new())?;
/// let mut weights = vec![0.5f32; 1000];
/// let handle = manager.save(1, &weights)?;
/// // The state may change at once.
/// weights.fill(1.5);
/// match handle.wait()? {
///     SaveOutcome::Saved(report) => assert_eq!(report.cost.copied_bytes, 4000),
///     SaveOutcome::Skipped(reason) => println!("not saved: {reason}"),
///     _ => {}
/// }
/// manager.restore_latest(&mut weights)?;
/// assert_eq!(weights, [0.5; 1000]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SaveHandle {
    step: u64,
    slot: Arc<Slot>,
}

/// Where the outcome of a save will be.
#[derive(Default)]
pub(super) struct Slot {
    outcome: Mutex<Option<Result<SaveOutcome>>>,
    settled: Condvar,
}

impl Slot {
    pub(super) fn settle(&self, outcome: Result<SaveOutcome>) {
        *self.outcome.lock() = Some(outcome);
        self.settled.notify_all();
    }
}

impl SaveHandle {
    pub(super) fn new(step: u64, slot: Arc<Slot>) -> Self {
        Self { step, slot }
    }

    /// The handle of a save that was not accepted.
    pub(in crate::manager) fn skipped(step: u64, reason: SkipReason) -> Self {
        let slot = Arc::<Slot>::default();
        slot.settle(Ok(SaveOutcome::Skipped(reason)));
        Self { step, slot }
    }

    /// The step.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Whether it is known what became of the save.
    pub fn is_finished(&self) -> bool {
        self.slot.outcome.lock().is_some()
    }

    /// What became of the save; `None` if that is not known yet.
    pub fn poll(&self) -> Option<Result<SaveOutcome>> {
        self.slot.outcome.lock().clone()
    }

    /// Waits until the step is durable, or will not be saved.
    ///
    /// # Errors
    /// As [`CheckpointStore::save`](crate::CheckpointStore::save); `Panicked` if the background
    /// writer did, in a keep policy for example.
    pub fn wait(self) -> Result<SaveOutcome> {
        let mut outcome = self.slot.outcome.lock();
        loop {
            if let Some(outcome) = &*outcome {
                return outcome.clone();
            }
            self.slot.settled.wait(&mut outcome);
        }
    }

    /// [`wait`](Self::wait) for at most so long; `None` if it is not known then what became of the
    /// save.
    pub fn wait_for(&self, timeout: Duration) -> Option<Result<SaveOutcome>> {
        let deadline = Instant::now().checked_add(timeout);
        let mut outcome = self.slot.outcome.lock();
        while outcome.is_none() {
            match deadline {
                Some(deadline) => {
                    if self.slot.settled.wait_until(&mut outcome, deadline).timed_out() {
                        break;
                    }
                }
                // Longer than there is time.
                None => self.slot.settled.wait(&mut outcome),
            }
        }
        outcome.clone()
    }
}

impl fmt::Debug for SaveHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut show = f.debug_struct("SaveHandle");
        show.field("step", &self.step).field("outcome", &self.poll()).finish_non_exhaustive()
    }
}
