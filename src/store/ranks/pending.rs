//! Steps that wait for ranks: listing them, and waiting with them.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use super::pending_rows::pending_rows;
use crate::db::ReadTx;
use crate::error::{Error, ErrorKind, Result};
use crate::record::from_unix_ns;
use crate::store::{CheckpointStore, StepInfo, step_record};

/// A step that some ranks have saved, and that is not committed as yet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingStep {
    /// The number of the step.
    pub step: u64,
    /// How many ranks save it.
    pub world_size: u32,
    /// The ranks that have saved it, ascending.
    pub ranks: Vec<PendingRank>,
}

/// What a rank has saved of a step.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingRank {
    /// The number of the rank.
    pub rank: u32,
    /// What became of it.
    pub state: RankState,
    /// Since when, by the clock of the machine.
    pub since: SystemTime,
}

/// What became of what a rank saved.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum RankState {
    /// All that it gives is there.
    Arrived,
    /// What it gave did not go with what the others gave, for this reason, and is not there.
    Refused(String),
}

impl PendingStep {
    /// The ranks that have not arrived, ascending.
    pub fn missing_ranks(&self) -> Vec<u32> {
        let arrived = |rank: u32| {
            self.ranks.iter().any(|found| found.rank == rank && found.state == RankState::Arrived)
        };
        (0..self.world_size).filter(|rank| !arrived(*rank)).collect()
    }
}

fn pending_steps(tx: &ReadTx) -> Result<BTreeMap<u64, PendingStep>> {
    let mut steps = BTreeMap::new();
    for (step, rank, record) in pending_rows(tx)? {
        let (Some(record), Ok(rank)) = (record, u32::try_from(rank)) else { continue };
        let pending = steps.entry(step).or_insert_with(|| PendingStep {
            step,
            world_size: record.world_size,
            ranks: Vec::new(),
        });
        let state = record.refusal.map_or(RankState::Arrived, RankState::Refused);
        pending.ranks.push(PendingRank { rank, state, since: from_unix_ns(record.since_unix_ns) });
    }
    Ok(steps)
}

/// How long to wait before looking again. A database tells other processes nothing by itself; a look
/// takes some ten microseconds.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

impl CheckpointStore {
    /// The steps that some [ranks](Self::open_as_rank) have saved and that wait for others, ascending.
    ///
    /// What waits is dropped when its rank opens the store again, or saves the step again, and by
    /// the saves of others when it has not changed for
    /// [`pending_grace`](crate::StoreOptions::pending_grace).
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn pending_steps(&self) -> Result<Vec<PendingStep>> {
        self.with_tx(|tx| Ok(pending_steps(tx)?.into_values().collect()))
    }

    /// Waits until all ranks have saved `step` and it is durable. If the step is there and something waits to
    /// replace it, the new one is waited for. Stores that were opened for reading can wait too.
    ///
    /// # Errors
    /// `TimedOut` after `timeout`, with the ranks that have not arrived; `Mismatch` as soon as a rank is
    /// refused, with the reason; `Damaged` or `Io`.
    pub fn wait_committed(&self, step: u64, timeout: Duration) -> Result<StepInfo> {
        let deadline = Instant::now().checked_add(timeout);
        let mut pause = FIRST_PAUSE;
        let mut watch = Watch::default();
        loop {
            let (saved, pending) = self.with_tx(|tx| look(tx, step))?;
            if let Some(info) = watch.see(saved, pending.is_some()) {
                return Ok(info);
            }
            let left = deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(timed_out(pending.as_ref(), timeout)
                    .at_step(step)
                    .in_file(self.path()));
            }
            thread::sleep(left.map_or(pause, |left| left.min(pause)));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}

impl CheckpointStore {
    /// The highest step to which this rank has given its contribution and that waits for others, and since when.
    pub(crate) fn latest_contribution(&self) -> Result<Option<(u64, SystemTime)>> {
        Ok(self.own_contributions()?.pop())
    }

    /// Whether this rank has given its contribution to `step`, which waits for others.
    pub(crate) fn has_contributed(&self, step: u64) -> Result<bool> {
        Ok(self.own_contributions()?.iter().any(|own| own.0 == step))
    }

    /// Ascending by step. Those to steps of which another rank was refused don't count: they are to be given
    /// again.
    fn own_contributions(&self) -> Result<Vec<(u64, SystemTime)>> {
        let Some(rank) = self.rank() else { return Ok(Vec::new()) };
        let own = |step: PendingStep| {
            let was_refused = |rank: &PendingRank| matches!(rank.state, RankState::Refused(_));
            if step.ranks.iter().any(was_refused) {
                return None;
            }
            let own = step.ranks.iter().find(|found| found.rank == rank.number())?;
            Some((step.step, own.since))
        };
        self.with_tx(|tx| Ok(pending_steps(tx)?.into_values().filter_map(own).collect()))
    }
}

/// Tells a step from the one that it takes the place of.
#[derive(Default)]
struct Watch {
    /// The step that was there while something waited to replace it.
    old: Option<StepInfo>,
}

impl Watch {
    /// The step, if it is the one that was waited for. What was to replace it may have been dropped meanwhile:
    /// then it is still the old one.
    fn see(&mut self, saved: Option<StepInfo>, something_waits: bool) -> Option<StepInfo> {
        if something_waits {
            self.old = saved;
            return None;
        }
        saved.filter(|info| self.old.as_ref() != Some(info))
    }
}

/// What there is of `step`: itself, and what waits.
fn look(tx: &ReadTx, step: u64) -> Result<(Option<StepInfo>, Option<PendingStep>)> {
    let pending = pending_steps(tx)?.remove(&step);
    let refused = pending.iter().flat_map(|pending| &pending.ranks).find_map(|rank| {
        let RankState::Refused(reason) = &rank.state else { return None };
        Some((rank.rank, reason))
    });
    if let Some((rank, reason)) = refused {
        return Err(Error::new(ErrorKind::Mismatch, format!("rank {rank} was refused: {reason}"))
            .at_step(step));
    }
    let saved = match tx.step(step)? {
        Some(_) => Some(StepInfo::from_record(step, &step_record(tx, step)?)?),
        None => None,
    };
    Ok((saved, pending))
}

fn timed_out(pending: Option<&PendingStep>, timeout: Duration) -> Error {
    let message = match pending {
        Some(pending) => {
            let missing: Vec<_> = pending.missing_ranks().iter().map(u32::to_string).collect();
            let (s, have) = if missing.len() == 1 { ("", "has") } else { ("s", "have") };
            format!(
                "rank{s} {} of {} {have} not arrived after {timeout:?}",
                missing.join(", "),
                pending.world_size
            )
        }
        None => format!(
            "nothing of it is there after {timeout:?}: no rank has saved it, or a keep policy removed it"
        ),
    };
    Error::new(ErrorKind::TimedOut, message).advise("see whether all ranks are well")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_replaced_is_not_taken_for_the_new_step() {
        let info = |seconds| StepInfo {
            step: 1,
            committed_at: SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            metrics: BTreeMap::new(),
            custom_metadata: None,
            pinned: false,
            leaf_count: 0,
            logical_bytes: 0,
            stored_bytes: 0,
            digest: [0; 16],
        };
        let mut watch = Watch::default();
        assert_eq!(watch.see(None, false), None);
        assert_eq!(watch.see(Some(info(1)), false), Some(info(1)));
        assert_eq!(watch.see(Some(info(1)), true), None);
        // A rank opened the store again.
        assert_eq!(watch.see(Some(info(1)), false), None);
        assert_eq!(watch.see(Some(info(1)), true), None);
        assert_eq!(watch.see(Some(info(2)), false), Some(info(2)));
    }
}
