//! Records ↔ bytes: steps, structures and leaves as sealed rkyv archives, read in place.
//!
//! Archived types never leave this layer and never change: a new field makes a new version. What
//! a record claims is checked against the limits before anything is made of it. The bytes are
//! specified in `src/docs/format.md`.

mod contribution;
mod envelope;
mod extent;
mod leaf;
mod mark;
mod rank;
mod sharding;
mod step;
mod structure;
mod time;

pub(crate) use contribution::Contribution;
pub(crate) use extent::{Extent, Piece};
pub(crate) use leaf::{LeafRecord, Parts, StoredChunk};
pub(crate) use mark::{decode_mark, encode_mark};
pub(crate) use rank::{PendingRecord, RankRecord};
pub(crate) use sharding::{decode_shardings, encode_shardings};
pub(crate) use step::{PackRange, StepRecord};
pub(crate) use structure::{decode_structure, encode_structure};
pub(crate) use time::{from_unix_ns, to_unix_ns};

/// The version of the file format that this build writes. It reads every version up to it.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Why bytes are no record.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum RecordError {
    #[error("the {kind} record has {found} bytes, at least {expected} are needed")]
    Short { kind: &'static str, expected: usize, found: usize },
    #[error("the {kind} record has {found} bytes, more than the limit of {limit}")]
    Long { kind: &'static str, limit: usize, found: usize },
    #[error("the {kind} record would have {found} bytes, at most {limit} can be stored")]
    TooLarge { kind: &'static str, limit: usize, found: usize },
    #[error("the {kind} record has checksum {found:#010x}, expected {expected:#010x}")]
    Checksum { kind: &'static str, expected: u32, found: u32 },
    #[error("the {kind} record has version {found}, this milepost reads up to {expected}")]
    Version { kind: &'static str, expected: u8, found: u8 },
    #[error("the {kind} record is of another kind ({found})")]
    Kind { kind: &'static str, found: u8 },
    #[error("the {kind} record is no valid archive: {message}")]
    Archive { kind: &'static str, message: String },
    #[error("the {kind} record makes no sense: {message}")]
    Content { kind: &'static str, message: String },
}

/// `payload` as a record of each kind with a right checksum.
#[cfg(fuzzing)]
pub(crate) fn reseal(step: u64, rank: u64, payload: &[u8]) -> Vec<Vec<u8>> {
    use envelope::{Kind, seal};
    let leaf = [&step.to_le_bytes()[..], &[3, b'w', 0]].concat();
    let pending = rank::identity(step, rank);
    let (step, rank) = (step.to_le_bytes(), rank.to_le_bytes());
    vec![
        seal(Kind::Step, &step, payload),
        seal(Kind::Structure, &step, payload),
        seal(Kind::Leaf, &leaf, payload),
        envelope::seal_version(Kind::Leaf, 2, &leaf, payload),
        seal(Kind::Shardings, &step, payload),
        seal(Kind::Rank, &rank, payload),
        seal(Kind::Pending, &pending, payload),
        seal(Kind::Contribution, &pending, payload),
    ]
}

impl From<RecordError> for crate::error::Error {
    fn from(error: RecordError) -> Self {
        let kind = match error {
            RecordError::Version { .. } => crate::error::ErrorKind::UnsupportedVersion,
            RecordError::TooLarge { .. } => crate::error::ErrorKind::InvalidInput,
            _ => crate::error::ErrorKind::Damaged,
        };
        Self::new(kind, error.to_string()).with_source(error)
    }
}
