//! The contribution record: all that one rank gives to a step, until the last rank's has come.

use std::collections::BTreeMap;

use rkyv::rancor;
use rkyv::{Archive, Deserialize, Serialize};

use super::envelope::{Kind, open, seal_within_limit};
use super::leaf::{ArchivedLeafV2, LeafV2};
use super::rank::identity;
use super::sharding::{archive_shardings, from_archive};
use super::step::{ArchivedMetricV1, MetricV1, archive_metrics, decode_extras};
use super::{LeafRecord, RecordError};
use crate::limits::MAX_LEAVES;
use crate::sharding::Sharding;

/// What one rank gives to a step.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Contribution {
    pub(crate) metrics: BTreeMap<String, f64>,
    /// JSON text.
    pub(crate) custom_metadata: Option<String>,
    pub(crate) pinned: bool,
    /// Nanoseconds since 1970-01-01 UTC.
    pub(crate) started_unix_ns: u64,
    /// The structure record of the step.
    pub(crate) structure: Vec<u8>,
    /// What the leaves name by their numbers.
    pub(crate) shardings: Vec<Sharding>,
    /// All leaves of the step in the order of its structure, by encoded path. Each part of a leaf that the
    /// rank did not store has no chunks.
    pub(crate) leaves: Vec<(Vec<u8>, LeafRecord)>,
}

#[derive(Archive, Serialize, Deserialize)]
struct ContributionV1 {
    metrics: Vec<MetricV1>,
    custom_metadata: Option<String>,
    pinned: bool,
    started_unix_ns: u64,
    structure: Vec<u8>,
    shardings: Vec<String>,
    leaves: Vec<ContributedLeafV1>,
}

#[derive(Archive, Serialize, Deserialize)]
struct ContributedLeafV1 {
    path: Vec<u8>,
    leaf: LeafV2,
}

// As in `format.md`.
const _: () = assert!(size_of::<ArchivedContributionV1>() == 8 + 9 + 1 + 8 + 8 + 8 + 8);
const _: () = assert!(size_of::<ArchivedContributedLeafV1>() == 8 + 23);

impl Contribution {
    pub(crate) fn encode(&self, step: u64, rank: u64) -> Result<Vec<u8>, RecordError> {
        let leaf = |(path, leaf): &(Vec<u8>, LeafRecord)| ContributedLeafV1 {
            path: path.clone(),
            leaf: leaf.to_archive(),
        };
        let archive = ContributionV1 {
            metrics: archive_metrics(&self.metrics),
            custom_metadata: self.custom_metadata.clone(),
            pinned: self.pinned,
            started_unix_ns: self.started_unix_ns,
            structure: self.structure.clone(),
            shardings: archive_shardings(&self.shardings),
            leaves: self.leaves.iter().map(leaf).collect(),
        };
        let payload = rkyv::to_bytes::<rancor::Error>(&archive)
            .map_err(|error| Kind::Contribution.archive(&error))?;
        seal_within_limit(Kind::Contribution, 1, &identity(step, rank), &payload)
    }

    pub(crate) fn decode(step: u64, rank: u64, record: &[u8]) -> Result<Self, RecordError> {
        let kind = Kind::Contribution;
        let payload = open(kind, &identity(step, rank), record)?;
        let archive = rkyv::access::<ArchivedContributionV1, rancor::Error>(payload)
            .map_err(|error| kind.archive(&error))?;
        if archive.leaves.len() > MAX_LEAVES {
            return Err(kind.content(format!("it has {} leaves", archive.leaves.len())));
        }
        let metadata = archive.custom_metadata.as_ref().map(rkyv::string::ArchivedString::as_str);
        let metrics: &[ArchivedMetricV1] = &archive.metrics;
        let (metrics, custom_metadata) = decode_extras(kind, metrics, metadata)?;
        let leaf = |row: &ArchivedContributedLeafV1| {
            let leaf: &ArchivedLeafV2 = &row.leaf;
            Ok((row.path.to_vec(), LeafRecord::of_contribution(leaf)?))
        };
        Ok(Self {
            metrics,
            custom_metadata,
            pinned: archive.pinned,
            started_unix_ns: archive.started_unix_ns.to_native(),
            structure: archive.structure.to_vec(),
            shardings: from_archive(kind, &archive.shardings)?,
            leaves: archive.leaves.iter().map(leaf).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Parts, StoredChunk};
    use super::*;
    use crate::codec::{ChunkInfo, Codec};
    use crate::dtype::DType;
    use crate::shape::{Grid, Shape};
    use crate::sharding::{Device, Platform, SingleDeviceSharding};
    use crate::tree::LeafMeta;

    #[test]
    fn a_contribution_comes_back_with_the_parts_that_are_not_its_own() {
        let info =
            ChunkInfo { codec: Codec::Raw, raw_len: 16, stored_len: 16, crc32: 1, hash: [3; 16] };
        let chunk = StoredChunk { pack: 9, offset: 32, info };
        let meta = LeafMeta::array(DType::F32, Shape::new([3, 4]).unwrap());
        let grid = Grid::cut(&meta.shape, [vec![1, 2], vec![]]);
        let parts = Some(Box::new(Parts { grid, chunk_ends: vec![0, 1, 1] }));
        let leaf = LeafRecord { meta: meta.clone(), sharding: Some(0), parts, chunks: vec![chunk] };
        let other = LeafRecord::whole(meta, vec![]);
        let device = Device::new(Platform::Cuda, 1);
        let contribution = Contribution {
            metrics: BTreeMap::from([("loss".into(), 0.5)]),
            custom_metadata: Some("{}".into()),
            pinned: true,
            started_unix_ns: 3,
            structure: vec![1, 2, 3],
            shardings: vec![SingleDeviceSharding::new(device).into()],
            leaves: vec![(b"p".to_vec(), leaf), (b"q".to_vec(), other)],
        };
        let bytes = contribution.encode(5, 1).unwrap();
        assert_eq!(Contribution::decode(5, 1, &bytes).as_ref(), Ok(&contribution));
        assert!(Contribution::decode(5, 2, &bytes).is_err());
        assert!(Contribution::decode(6, 1, &bytes).is_err());
        let mut half = contribution;
        half.leaves[0].1.chunks[0].info.raw_len = 12;
        let error = Contribution::decode(5, 1, &half.encode(5, 1).unwrap()).unwrap_err();
        assert!(error.to_string().contains("has 16 bytes, its chunks have 12"), "{error}");
    }
}
