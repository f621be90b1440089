//! What is known of a saved step without reading its leaves.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::error::{Error, Result};
use crate::record::{StepRecord, from_unix_ns};

/// What is known of a saved step without reading its leaves.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct StepInfo {
    /// The number of the step.
    pub step: u64,
    /// When the save was about to commit, by the clock of the machine that saved.
    pub committed_at: SystemTime,
    /// The step metrics, by name.
    pub metrics: BTreeMap<String, f64>,
    /// What the user wanted kept with the step.
    pub custom_metadata: Option<serde_json::Value>,
    /// Whether the step is kept whatever the keep policy says.
    pub pinned: bool,
    /// The number of leaves.
    pub leaf_count: u64,
    /// The size of the contents of all leaves, in bytes.
    pub logical_bytes: u64,
    /// The size of what is stored of them, in bytes, without records and page overhead.
    pub stored_bytes: u64,
    /// A 128-bit digest over all leaves: paths, kinds, element types, shapes and contents. Equal
    /// states saved with the same options have equal digests.
    pub digest: [u8; 16],
}

impl StepInfo {
    pub(crate) fn from_record(step: u64, record: &StepRecord) -> Result<Self> {
        let metadata = record.custom_metadata.as_deref().map(serde_json::from_str).transpose();
        let custom_metadata = metadata.map_err(|error| {
            Error::damaged("the custom metadata is no JSON").at_step(step).with_source(error)
        })?;
        Ok(Self {
            step,
            committed_at: from_unix_ns(record.committed_unix_ns),
            metrics: record.metrics.clone(),
            custom_metadata,
            pinned: record.pinned,
            leaf_count: record.leaf_count,
            logical_bytes: record.logical_bytes,
            stored_bytes: record.stored_bytes,
            digest: record.digest,
        })
    }

    /// The digest as 32 hexadecimal digits.
    pub fn digest_hex(&self) -> String {
        // The bytes are in reading order.
        format!("{:032x}", u128::from_be_bytes(self.digest))
    }
}
