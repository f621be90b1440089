//! Accepted saves in their order, and the errors that still have to be told.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use super::handle::Slot;
use crate::error::{Error, Result};
use crate::manager::save_policy::LatestSave;
use crate::manager::{SaveOutcome, SkipReason};
use crate::store::{Admission, StagedSave};

/// A save that waits for the writer.
pub(super) struct Job {
    /// Its place among all saves that were accepted.
    pub(super) number: u64,
    pub(super) step: u64,
    pub(super) accepted_at: SystemTime,
    pub(super) admission: Admission,
    pub(super) save: StagedSave,
    pub(super) slot: Arc<Slot>,
}

/// The saves that are under way.
#[derive(Default)]
pub(super) struct Queue {
    waiting: VecDeque<Job>,
    /// The contents of the last waiting save are still being copied, and the writer is to leave it
    /// alone so that it does not slow the copy down.
    pub(super) staging: Staging,
    /// The save that is being written, with its number.
    active: Option<(u64, LatestSave)>,
    /// How many saves were accepted so far.
    accepted: u64,
    /// Errors that no later save has returned yet, and those that nobody who waited has.
    untold_to_saves: Untold,
    untold_to_waits: Untold,
    pub(super) closing: bool,
}

/// Errors in their order: the oldest ones, and how many came after them.
#[derive(Default)]
struct Untold {
    oldest: VecDeque<Error>,
    more: u64,
}

impl Untold {
    /// A trainer may never ask, and go on while each save fails.
    const MOST: usize = 100;

    fn push(&mut self, error: Error) {
        if self.oldest.len() < Self::MOST {
            self.oldest.push_back(error);
        } else {
            self.more += 1;
        }
    }

    /// The oldest error. The last one that was kept says how many were not.
    fn pop(&mut self) -> Option<Error> {
        let error = self.oldest.pop_front()?;
        if !self.oldest.is_empty() || self.more == 0 {
            return Some(error);
        }
        let more = std::mem::take(&mut self.more);
        Some(error.with_note(&format!("{more} saves after it failed, too: their handles say why")))
    }
}

#[derive(Default, PartialEq, Eq)]
pub(super) enum Staging {
    #[default]
    Done,
    Going,
}

impl Queue {
    /// Adds a save, of the number that it is given, whose contents are about to be copied.
    pub(super) fn push(&mut self, job: impl FnOnce(u64) -> Job) {
        self.accepted += 1;
        self.staging = Staging::Going;
        self.waiting.push_back(job(self.accepted));
    }

    /// The next save for the writer.
    pub(super) fn next(&mut self) -> Option<Job> {
        if self.waiting.len() == 1 && self.staging == Staging::Going {
            return None;
        }
        let job = self.waiting.pop_front()?;
        self.active = Some((job.number, LatestSave { step: job.step, at: job.accepted_at }));
        Some(job)
    }

    /// Takes back the last save, whose contents could not be copied, unless the writer has it.
    pub(super) fn withdraw(&mut self) -> Option<Job> {
        self.waiting.pop_back()
    }

    /// Drops the save that has waited longest and was not forced, for a newer one; whether there was
    /// one.
    pub(super) fn supersede(&mut self, by: u64) -> bool {
        let oldest = self.waiting.iter().position(|job| job.admission == Admission::ByPolicy);
        let Some(job) = oldest.and_then(|oldest| self.waiting.remove(oldest)) else {
            return false;
        };
        tracing::debug!(step = job.step, by, "a waiting save is superseded");
        job.slot.settle(Ok(SaveOutcome::Skipped(SkipReason::Superseded { by })));
        true
    }

    /// Remembers the error of the save that was written.
    pub(super) fn finish(&mut self, error: Option<Error>) {
        self.active = None;
        if let Some(error) = error {
            self.untold_to_saves.push(error.clone());
            self.untold_to_waits.push(error);
        }
    }

    /// The saves that are under way, the one that is being written first.
    pub(super) fn under_way(&self) -> impl Iterator<Item = LatestSave> {
        let waiting =
            self.waiting.iter().map(|job| LatestSave { step: job.step, at: job.accepted_at });
        self.active.iter().map(|active| active.1).chain(waiting)
    }

    /// How many saves were accepted so far.
    pub(super) fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Whether none of the first `accepted` saves is under way any more.
    pub(super) fn has_finished(&self, accepted: u64) -> bool {
        let active = self.active.iter().map(|active| active.0);
        let mut under_way = active.chain(self.waiting.iter().map(|job| job.number));
        under_way.all(|number| number > accepted)
    }

    /// The oldest error that no save has returned yet, instead of saving `step`.
    pub(super) fn tell_save(&mut self, step: u64) -> Result<()> {
        let Some(error) = self.untold_to_saves.pop() else { return Ok(()) };
        let instead = format!("this save failed in the background, and step {step} was not begun");
        Err(error.with_note(&instead))
    }

    /// The oldest error that nobody who waited has got yet.
    pub(super) fn tell_wait(&mut self) -> Result<()> {
        self.untold_to_waits.pop().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_nobody_asks_for_are_counted() {
        let mut untold = Untold::default();
        for number in 0..150 {
            untold.push(Error::invalid(format!("save {number}")));
        }
        let told: Vec<String> =
            std::iter::from_fn(|| untold.pop()).map(|error| error.to_string()).collect();
        assert_eq!(told.len(), 100);
        assert!(told[0].contains("save 0") && !told[0].contains("after it"), "{}", told[0]);
        assert!(
            told[99].contains("save 99") && told[99].contains("50 saves after it"),
            "{}",
            told[99]
        );
        untold.push(Error::invalid("another"));
        assert!(!untold.pop().unwrap().to_string().contains("after it"));
    }
}
