//! The rows of a step that is to be committed.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::error::Result;
use crate::record::{LeafRecord, PackRange, StepRecord, to_unix_ns};
use crate::store::totals::Totals;

/// What goes with a step besides its leaves.
#[derive(Default)]
pub(in crate::store) struct Extras {
    pub(in crate::store) started_unix_ns: u64,
    pub(in crate::store) metrics: BTreeMap<String, f64>,
    pub(in crate::store) custom_metadata: Option<String>,
    pub(in crate::store) pinned: bool,
}

/// A step that is to be committed.
pub(super) struct NewStep {
    pub(super) step: u64,
    pub(super) record: StepRecord,
    /// Encoded paths and leaf records.
    pub(super) rows: Vec<(Vec<u8>, Vec<u8>)>,
}

impl NewStep {
    /// A step of `leaves`, in the order of its structure, whose chunks are in `packs`.
    pub(super) fn new<'l>(
        step: u64,
        extras: Extras,
        leaves: impl ExactSizeIterator<Item = (&'l Vec<u8>, &'l LeafRecord)> + Clone,
        packs: Vec<PackRange>,
    ) -> Result<Self> {
        let mut rows = Vec::with_capacity(leaves.len());
        for (path, record) in leaves.clone() {
            rows.push((path.clone(), record.encode(step, path)?));
        }
        Ok(Self { step, record: step_record(extras, leaves, packs), rows })
    }
}

/// The record of a step of `leaves`, in the order of its structure, whose chunks are in `packs`.
pub(super) fn step_record<'l>(
    extras: Extras,
    leaves: impl Iterator<Item = (&'l Vec<u8>, &'l LeafRecord)>,
    packs: Vec<PackRange>,
) -> StepRecord {
    let mut totals = Totals::default();
    for (path, record) in leaves {
        totals.add(path, record);
    }
    StepRecord {
        started_unix_ns: extras.started_unix_ns,
        committed_unix_ns: to_unix_ns(SystemTime::now()),
        metrics: extras.metrics,
        custom_metadata: extras.custom_metadata,
        pinned: extras.pinned,
        leaf_count: totals.leaf_count,
        chunk_count: totals.chunk_count,
        logical_bytes: totals.logical_bytes,
        stored_bytes: totals.stored_bytes,
        packs,
        digest: totals.digest(),
    }
}
