//! Our own counters: what a store holds and what it takes on disk.

use std::time::SystemTime;

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
    /// The number of packs, those of unfinished saves included.
    pub packs: u64,
    /// The size of the file, in bytes.
    pub file_bytes: u64,
}

impl CheckpointStore {
    /// Counts what the store holds.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn stats(&self) -> Result<StoreStats> {
        let file_bytes = self.database.file_bytes()?;
        self.with_tx(|tx| {
            let infos = step_infos(tx)?;
            Ok(StoreStats {
                store_id: tx.store_id()?,
                created_at: from_unix_ns(tx.created_unix_ns()?),
                steps: u64::try_from(infos.len()).unwrap_or(u64::MAX),
                logical_bytes: sum(&infos, |info| info.logical_bytes),
                stored_bytes: sum(&infos, |info| info.stored_bytes),
                packs: tx.pack_count()?,
                file_bytes,
            })
        })
    }
}

/// Numbers from a file may be anything.
fn sum(infos: &[StepInfo], bytes: impl Fn(&StepInfo) -> u64) -> u64 {
    infos.iter().map(bytes).fold(0, u64::saturating_add)
}
