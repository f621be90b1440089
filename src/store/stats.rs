//! Our own counters: what a store holds and what it takes on disk.

use std::time::SystemTime;

use super::usage::Usage;
use super::{CheckpointStore, StepInfo, step_infos};
use crate::error::Result;
use crate::record::from_unix_ns;

/// What a store holds and what it takes on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoreStats {
    /// 16 random bytes that name the store, chosen when it was created.
    pub store_id: [u8; 16],
    /// When the store was created.
    pub created_at: SystemTime,
    /// The number of saved steps.
    pub steps: u64,
    /// The size of the contents of all steps, in bytes.
    pub logical_bytes: u64,
    /// The size of what is stored of them, in bytes, without records and page overhead.
    pub stored_bytes: u64,
    /// The number of packs, those of unfinished saves and of what waits for other ranks included.
    pub packs: u64,
    /// The size of the chunks that steps use, each counted once, in bytes.
    pub live_bytes: u64,
    /// The size of those that more than one step uses.
    pub shared_bytes: u64,
    /// What the file takes on the disk beyond the live bytes: records, what waits for other ranks, room for
    /// the next step, and what is dead in packs. [`compact`](CheckpointStore::compact) gives most of it back.
    pub reclaimable_bytes: u64,
    /// The size of the file, in bytes.
    pub file_bytes: u64,
    /// What the file takes on the disk, in bytes: less than its size where parts were never written.
    pub allocated_bytes: u64,
}

impl CheckpointStore {
    /// Counts what the store holds. Reads all records, and no contents.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn stats(&self) -> Result<StoreStats> {
        let file_bytes = self.database.file_bytes()?;
        let allocated_bytes = self.database.allocated_bytes()?;
        self.with_tx(|tx| {
            let usage = Usage::count(tx)?;
            let live_bytes = usage.stored_bytes(1);
            let infos = step_infos(tx)?;
            Ok(StoreStats {
                store_id: tx.store_id()?,
                created_at: from_unix_ns(tx.created_unix_ns()?),
                steps: u64::try_from(infos.len()).unwrap_or(u64::MAX),
                logical_bytes: sum(&infos, |info| info.logical_bytes),
                stored_bytes: sum(&infos, |info| info.stored_bytes),
                packs: tx.pack_count()?,
                live_bytes,
                shared_bytes: usage.stored_bytes(2),
                reclaimable_bytes: allocated_bytes.saturating_sub(live_bytes),
                file_bytes,
                allocated_bytes,
            })
        })
    }
}

/// Numbers from a file may be anything.
fn sum(infos: &[StepInfo], bytes: impl Fn(&StepInfo) -> u64) -> u64 {
    infos.iter().map(bytes).fold(0, u64::saturating_add)
}
