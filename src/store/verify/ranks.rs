//! What ranks gave to steps that are not committed.

use std::collections::BTreeSet;

use super::{Check, Go};
use crate::error::Error;
use crate::record::{Contribution, PendingRecord};

impl Check<'_> {
    /// Checks the records of contributions, and counts the packs that they use. Their chunks are checked
    /// when the step is there.
    pub(super) fn contributions(&mut self) -> Go {
        let Some(pending) = self.read(self.tx.pending())? else { return Ok(()) };
        let contributors = self.read(self.tx.contributors())?.unwrap_or_default();
        let mut without: BTreeSet<(u64, u64)> = contributors.into_iter().collect();
        for ((step, rank), record) in pending {
            let has_contribution = without.remove(&(step, rank));
            let record = match PendingRecord::decode(step, rank, &record) {
                Ok(record) => record,
                Err(error) => {
                    self.uncounted_steps += 1;
                    self.fault(Error::from(error).at_step(step))?;
                    continue;
                }
            };
            self.count_listed(step, &record.packs)?;
            if has_contribution == record.refusal.is_some() {
                let (was, has) =
                    if has_contribution { ("refused", "a") } else { ("not refused", "no") };
                let message = format!("rank {rank} was {was} and has {has} contribution");
                self.fault(Error::damaged(message).at_step(step))?;
            } else if has_contribution {
                let contribution = self.read(self.tx.contribution(step, rank))?.flatten();
                let decode = |record: Vec<u8>| Contribution::decode(step, rank, &record).err();
                if let Some(error) = contribution.and_then(decode) {
                    self.fault(Error::from(error).at_step(step))?;
                }
            }
        }
        for (step, rank) in without {
            let message = format!("rank {rank} has a contribution and no pending record");
            self.fault(Error::damaged(message).at_step(step))?;
        }
        Ok(())
    }
}
