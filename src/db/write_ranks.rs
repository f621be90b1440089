//! Writing what ranks that share a file have on their way to a step.

use redb::ReadableTable;

use super::tables::{CONTRIBUTIONS, PENDING, RANKS};
use super::write::WriteTx;
use crate::error::Result;

impl WriteTx<'_> {
    /// The ranks with their records, ascending.
    pub(crate) fn ranks(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        self.run(|tx| {
            let table = tx.open_table(RANKS)?;
            let mut ranks = Vec::new();
            for entry in table.iter()? {
                let (rank, record) = entry?;
                ranks.push((rank.value(), record.value().to_vec()));
            }
            Ok(ranks)
        })
    }

    /// Adds or replaces the record of `rank`.
    pub(crate) fn put_rank(&self, rank: u64, record: &[u8]) -> Result<()> {
        self.run(|tx| {
            tx.open_table(RANKS)?.insert(rank, record)?;
            Ok(())
        })
    }

    /// Removes the record of `rank`.
    pub(crate) fn remove_rank(&self, rank: u64) -> Result<()> {
        self.run(|tx| {
            tx.open_table(RANKS)?.remove(rank)?;
            Ok(())
        })
    }

    /// Adds or replaces the pending record of `rank` for `step`.
    pub(crate) fn put_pending(&self, step: u64, rank: u64, record: &[u8]) -> Result<()> {
        self.run(|tx| {
            tx.open_table(PENDING)?.insert((step, rank), record)?;
            Ok(())
        })
    }

    /// Adds or replaces the contribution record of `rank` to `step`.
    pub(crate) fn put_contribution(&self, step: u64, rank: u64, record: &[u8]) -> Result<()> {
        self.run(|tx| {
            tx.open_table(CONTRIBUTIONS)?.insert((step, rank), record)?;
            Ok(())
        })
    }

    /// Removes what `rank` has of `step` but its packs, which are released apart.
    pub(crate) fn remove_pending(&self, step: u64, rank: u64) -> Result<()> {
        self.run(|tx| {
            tx.open_table(PENDING)?.remove((step, rank))?;
            tx.open_table(CONTRIBUTIONS)?.remove((step, rank))?;
            Ok(())
        })
    }
}
