//! What a save did, and what it cost.

use std::time::{Duration, Instant, SystemTime};

use super::packer::Counts;
use crate::store::StepInfo;

/// What a save did.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct SaveReport {
    /// The saved step; of a [rank](crate::CheckpointStore::open_as_rank), as long as others are missing, what
    /// this one gave to it.
    pub info: StepInfo,
    /// The steps that the same commit removed: victims of the keep policy, never the saved step.
    pub removed: Vec<u64>,
    /// The ranks that have not saved the step as yet, ascending. As long as there are any, it can't be seen.
    pub missing_ranks: Vec<u32>,
    /// What the save cost.
    pub cost: SaveCost,
}

/// What a save cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct SaveCost {
    /// How long the caller waited: for a place in the queue, and for staging memory.
    pub waited: Duration,
    /// How long it took to copy what was borrowed.
    pub copied: Duration,
    /// How long it took to write the step, until it was durable.
    pub written: Duration,
    /// From the call until the step was durable.
    pub elapsed: Duration,
    /// Bytes that were copied before the call returned.
    pub copied_bytes: u64,
    /// Bytes of contents that were written, encoded.
    pub written_bytes: u64,
    /// Chunks that were written.
    pub written_chunks: u64,
    /// Bytes of contents that were in the file already.
    pub reused_bytes: u64,
    /// Chunks that were in the file already.
    pub reused_chunks: u64,
}

/// When a save was accepted, and what it cost until then.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accepted {
    pub(super) at: SystemTime,
    pub(super) since: Instant,
    pub(super) waited: Duration,
    pub(super) copied: Duration,
    pub(super) copied_bytes: u64,
}

impl Accepted {
    pub(super) fn now() -> Self {
        Self {
            at: SystemTime::now(),
            since: Instant::now(),
            waited: Duration::ZERO,
            copied: Duration::ZERO,
            copied_bytes: 0,
        }
    }
}

impl SaveCost {
    pub(super) fn new(counts: &Counts, accepted: &Accepted, began: Instant) -> Self {
        Self {
            waited: accepted.waited,
            copied: accepted.copied,
            written: began.elapsed(),
            elapsed: accepted.since.elapsed(),
            copied_bytes: accepted.copied_bytes,
            written_bytes: counts.new_bytes,
            written_chunks: counts.new_chunks,
            reused_bytes: counts.reused_bytes,
            reused_chunks: counts.reused_chunks,
        }
    }
}
