//! The rows of what ranks have saved of steps that are not committed.

use std::time::{Duration, SystemTime};

use crate::db::{ReadTx, StepAndRank, WriteTx};
use crate::error::Result;
use crate::record::{PendingRecord, to_unix_ns};

/// A step, a rank and its pending record; `None` for one that is damaged.
type PendingRow = (u64, u64, Option<PendingRecord>);

/// The pending records, ascending by step and rank.
pub(in crate::store) fn pending_rows(tx: &ReadTx) -> Result<Vec<PendingRow>> {
    let decode = |((step, rank), record): (StepAndRank, Vec<u8>)| {
        let record = PendingRecord::decode(step, rank, &record);
        if let Err(error) = &record {
            tracing::warn!(step, rank, %error, "the pending record of a rank is damaged");
        }
        (step, rank, record.ok())
    };
    Ok(tx.pending()?.into_iter().map(decode).collect())
}

/// Drops in `tx` what ranks gave to steps that were not committed, where `is_over` says so. The packs of one
/// whose record is damaged stay, and `verify` finds them.
pub(in crate::store) fn drop_pending(
    tx: &WriteTx<'_>,
    read: &ReadTx,
    is_over: impl Fn(u64, u64, Option<&PendingRecord>) -> bool,
) -> Result<()> {
    for (step, rank, record) in pending_rows(read)? {
        if is_over(step, rank, record.as_ref()) {
            tracing::debug!(step, rank, "a contribution is done with");
            tx.remove_pending(step, rank)?;
            tx.release_packs(&record.map(|record| record.packs).unwrap_or_default())?;
        }
    }
    Ok(())
}

/// Drops what has waited for longer than `grace`, but for what waits for the step that is being saved.
pub(in crate::store) fn drop_stale(
    tx: &WriteTx<'_>,
    read: &ReadTx,
    saving: Option<u64>,
    grace: Duration,
) -> Result<()> {
    let oldest = SystemTime::now().checked_sub(grace).map_or(0, to_unix_ns);
    drop_pending(tx, read, |step, _, record| {
        saving != Some(step) && record.is_none_or(|record| record.since_unix_ns < oldest)
    })
}
