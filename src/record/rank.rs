//! The records of ranks that share a file: who has it open, and who has saved what of a step.

use rkyv::rancor;
use rkyv::{Archive, Deserialize, Serialize};

use super::envelope::{Kind, open, seal_within_limit};
use super::step::pack_ranges;
use super::{PackRange, RecordError};
use crate::limits::MAX_RANKS;

/// One opening of a store by a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RankRecord {
    /// How many ranks there are.
    pub(crate) world_size: u32,
    /// A hash of what the job is called; zeros if it has no name.
    pub(crate) job: [u8; 16],
    /// Random bytes that tell it from every other opening.
    pub(crate) session: [u8; 16],
    pub(crate) opened_unix_ns: u64,
}

#[derive(Archive, Serialize, Deserialize)]
struct RankV1 {
    world_size: u32,
    job: [u8; 16],
    session: [u8; 16],
    opened_unix_ns: u64,
}

impl RankRecord {
    pub(crate) fn encode(&self, rank: u64) -> Result<Vec<u8>, RecordError> {
        let Self { world_size, job, session, opened_unix_ns } = *self;
        let archive = RankV1 { world_size, job, session, opened_unix_ns };
        let payload = rkyv::to_bytes::<rancor::Error>(&archive)
            .map_err(|error| Kind::Rank.archive(&error))?;
        seal_within_limit(Kind::Rank, 1, &rank.to_le_bytes(), &payload)
    }

    pub(crate) fn decode(rank: u64, record: &[u8]) -> Result<Self, RecordError> {
        let payload = open(Kind::Rank, &rank.to_le_bytes(), record)?;
        let archive = rkyv::access::<ArchivedRankV1, rancor::Error>(payload)
            .map_err(|error| Kind::Rank.archive(&error))?;
        let world_size = archive.world_size.to_native();
        check_rank(Kind::Rank, rank, world_size)?;
        let opened_unix_ns = archive.opened_unix_ns.to_native();
        Ok(Self { world_size, job: archive.job, session: archive.session, opened_unix_ns })
    }
}

/// What a rank has saved of a step that is not committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PendingRecord {
    pub(crate) world_size: u32,
    /// Why its contribution did not go with the others, if it was refused. Then it is not there.
    pub(crate) refusal: Option<String>,
    /// When it was saved or refused, nanoseconds since 1970-01-01 UTC.
    pub(crate) since_unix_ns: u64,
    /// The packs of its chunks, which are counted.
    pub(crate) packs: Vec<PackRange>,
}

#[derive(Archive, Serialize, Deserialize)]
struct PendingV1 {
    world_size: u32,
    refusal: Option<String>,
    since_unix_ns: u64,
    packs: Vec<PackRange>,
}

// As in `format.md`.
const _: () = assert!(size_of::<ArchivedRankV1>() == 4 + 16 + 16 + 8);
const _: () = assert!(size_of::<ArchivedPendingV1>() == 4 + 9 + 8 + 8);

impl PendingRecord {
    pub(crate) fn encode(&self, step: u64, rank: u64) -> Result<Vec<u8>, RecordError> {
        let archive = PendingV1 {
            world_size: self.world_size,
            refusal: self.refusal.clone(),
            since_unix_ns: self.since_unix_ns,
            packs: self.packs.clone(),
        };
        let payload = rkyv::to_bytes::<rancor::Error>(&archive)
            .map_err(|error| Kind::Pending.archive(&error))?;
        seal_within_limit(Kind::Pending, 1, &identity(step, rank), &payload)
    }

    pub(crate) fn decode(step: u64, rank: u64, record: &[u8]) -> Result<Self, RecordError> {
        let payload = open(Kind::Pending, &identity(step, rank), record)?;
        let archive = rkyv::access::<ArchivedPendingV1, rancor::Error>(payload)
            .map_err(|error| Kind::Pending.archive(&error))?;
        let world_size = archive.world_size.to_native();
        check_rank(Kind::Pending, rank, world_size)?;
        Ok(Self {
            world_size,
            refusal: archive.refusal.as_ref().map(ToString::to_string),
            since_unix_ns: archive.since_unix_ns.to_native(),
            packs: pack_ranges(Kind::Pending, &archive.packs)?,
        })
    }
}

pub(super) fn identity(step: u64, rank: u64) -> [u8; 16] {
    (u128::from(rank) << 64 | u128::from(step)).to_le_bytes()
}

pub(super) fn check_rank(kind: Kind, rank: u64, world_size: u32) -> Result<(), RecordError> {
    if rank < u64::from(world_size) && world_size <= MAX_RANKS {
        return Ok(());
    }
    Err(kind.content(format!("it is of rank {rank} of {world_size}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pending(refusal: Option<&str>) -> PendingRecord {
        PendingRecord {
            world_size: 4,
            refusal: refusal.map(ToOwned::to_owned),
            since_unix_ns: 5,
            packs: vec![PackRange { first: 2, count: 3 }],
        }
    }

    #[test]
    fn the_records_of_ranks_come_back() {
        let opened =
            RankRecord { world_size: 4, job: [1; 16], session: [3; 16], opened_unix_ns: 8 };
        let bytes = opened.encode(3).unwrap();
        assert_eq!(RankRecord::decode(3, &bytes), Ok(opened));
        assert!(RankRecord::decode(2, &bytes).is_err());
        for refusal in [None, Some("no")] {
            let record = pending(refusal);
            let bytes = record.encode(7, 3).unwrap();
            assert_eq!(PendingRecord::decode(7, 3, &bytes).as_ref(), Ok(&record));
            assert!(PendingRecord::decode(8, 3, &bytes).is_err());
            assert!(PendingRecord::decode(7, 2, &bytes).is_err());
        }
    }

    #[test]
    fn what_a_sealed_record_claims_is_checked() {
        let refuse = |change: &dyn Fn(&mut PendingRecord), says: &str| {
            let mut record = pending(None);
            change(&mut record);
            let bytes = record.encode(7, 3).unwrap();
            let error = PendingRecord::decode(7, 3, &bytes).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        };
        refuse(&|record| record.world_size = 3, "of rank 3 of 3");
        refuse(&|record| record.world_size = u32::MAX, "of rank 3 of 4294967295");
        refuse(&|record| record.packs[0].first = 0, "pack 0");
    }
}
