//! Who uses which packs, over all steps.

use std::collections::BTreeSet;
use std::fmt;

use super::{Check, Go};
use crate::error::Error;
use crate::record::PackRange;

impl Check<'_> {
    /// Checks the highest pack of a step against the mark. A mark that is too low is one fault,
    /// however many steps are above it.
    pub(super) fn check_mark(&mut self, step: u64, highest: Option<u64>) -> Go {
        match (self.mark, highest) {
            (Some(mark), Some(pack)) if pack > mark && !self.mark_passed => {
                self.mark_passed = true;
                let message = format!("the step uses pack {pack}, above the pack mark of {mark}");
                self.fault(Error::damaged(message).at_step(step))
            }
            _ => Ok(()),
        }
    }

    /// Counts a step, whose leaves can't all be read, for the packs that it lists, as far as there
    /// are rows for them.
    pub(super) fn count_listed(&mut self, step: u64, listed: &[PackRange]) -> Go {
        let Some(stored) = &self.stored_refs else { return Ok(()) };
        let mut not_counted = 0u64;
        for range in listed {
            let Some(last) = range.last() else { continue };
            let mut counted = 0;
            for pack in stored.range(range.first..=last).map(|(pack, _)| *pack) {
                counted += 1;
                *self.counted_refs.entry(pack).or_default() += 1;
            }
            not_counted = not_counted.saturating_add(range.count.saturating_sub(counted));
        }
        if not_counted == 0 {
            return Ok(());
        }
        let message =
            format!("not recorded as used: {not_counted} of the packs that the step lists");
        self.fault(Error::damaged(message).at_step(step))
    }

    /// Compares the stored reference counts with those counted here.
    pub(super) fn references(&mut self) -> Go {
        let Some(stored) = &self.stored_refs else { return Ok(()) };
        let packs: BTreeSet<u64> = stored.keys().chain(self.counted_refs.keys()).copied().collect();
        let wrong = packs.into_iter().filter_map(|pack| {
            let counted = self.counted_refs.get(&pack).copied().unwrap_or(0);
            let most = counted.saturating_add(self.uncounted_steps);
            let stored = stored.get(&pack).copied();
            let right = match stored {
                Some(stored) => stored > 0 && (counted..=most).contains(&stored),
                None => counted == 0,
            };
            (!right).then_some((pack, (stored, counted)))
        });
        for (packs, (stored, counted)) in runs(wrong) {
            let each = if packs.is_one() { "" } else { "each " };
            let used = match counted {
                0 => "used by no step".to_owned(),
                1 => format!("{each}used by 1 step"),
                counted => format!("{each}used by {counted} steps"),
            };
            let message = match stored {
                None => format!("{packs}: {used}, and not recorded as used"),
                Some(stored) => format!("{packs}: {used}, recorded as used by {stored}"),
            };
            self.fault(Error::damaged(message))?;
        }
        Ok(())
    }

    /// Compares the packs that are there with those that are used.
    pub(super) fn pack_rows(&mut self) -> Go {
        let (Some(mark), Some(stored)) = (self.mark, &self.stored_refs) else { return Ok(()) };
        let known: BTreeSet<u64> = stored.keys().chain(self.counted_refs.keys()).copied().collect();
        let Some((below, above)) = self.read(self.tx.pack_counts(mark))? else { return Ok(()) };
        let count = |packs: usize| u64::try_from(packs).unwrap_or(u64::MAX);
        let there = known.iter().filter(|pack| !self.missing_packs.contains(pack));
        let (used_below, used_above): (Vec<u64>, Vec<u64>) = there.partition(|pack| **pack <= mark);
        self.report.unfinished_packs = above.saturating_sub(count(used_above.len()));
        if below == count(used_below.len()) {
            return Ok(());
        }
        let Some(found) = self.read(self.tx.packs_up_to(mark))? else { return Ok(()) };
        if count(found.len()) != below {
            let message =
                format!("{below} packs are counted up to the mark, {} are there", found.len());
            self.fault(Error::damaged(message))?;
        }
        let found: BTreeSet<u64> = found.into_iter().collect();
        let unused: Vec<_> = found.difference(&known).map(|pack| (*pack, ())).collect();
        for (packs, ()) in runs(unused) {
            self.fault(Error::damaged(format!("{packs}: there, and used by no step")))?;
        }
        // A use that no step has is a fault already.
        let lost = used_below
            .into_iter()
            .filter(|pack| !found.contains(pack) && self.counted_refs.contains_key(pack));
        let lost: Vec<_> = lost.map(|pack| (pack, ())).collect();
        for (packs, ()) in runs(lost) {
            self.fault(Error::damaged(format!("{packs}: used and missing")))?;
        }
        Ok(())
    }
}

/// Packs with consecutive numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Run {
    first: u64,
    last: u64,
}

impl Run {
    fn is_one(self) -> bool {
        self.first == self.last
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { first, last } if first == last => write!(f, "pack {first}"),
            Self { first, last } => write!(f, "packs {first} to {last}"),
        }
    }
}

/// Neighbours of which the same is said, together. The packs ascend.
fn runs<T: PartialEq>(packs: impl IntoIterator<Item = (u64, T)>) -> Vec<(Run, T)> {
    let mut runs: Vec<(Run, T)> = Vec::new();
    for (pack, said) in packs {
        match runs.last_mut() {
            Some((run, same)) if *same == said && run.last.checked_add(1) == Some(pack) => {
                run.last = pack;
            }
            _ => runs.push((Run { first: pack, last: pack }, said)),
        }
    }
    runs
}
