//! The step record: all that is known of a step without its structure and leaves. It is small,
//! so that policies can look at the records of a thousand steps at every save.

use std::collections::BTreeMap;

use rkyv::rancor;
use rkyv::{Archive, Deserialize, Serialize};

use super::RecordError;
use super::envelope::{Kind, open, seal_within_limit};
use crate::limits::{MAX_CUSTOM_METADATA_BYTES, MAX_METRICS};

/// Packs with consecutive numbers.
#[derive(Archive, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PackRange {
    pub(crate) first: u64,
    pub(crate) count: u64,
}

impl PackRange {
    /// The last pack; `None` if there is none, or no such number.
    pub(crate) fn last(self) -> Option<u64> {
        self.first.checked_add(self.count.checked_sub(1)?)
    }

    /// The numbers of the packs.
    pub(crate) fn numbers(self) -> impl Iterator<Item = u64> {
        self.first..self.first.saturating_add(self.count)
    }

    /// The fewest ranges with the ascending `packs`.
    pub(crate) fn of(packs: impl IntoIterator<Item = u64>) -> Vec<Self> {
        let mut ranges: Vec<Self> = Vec::new();
        for pack in packs {
            match ranges.last_mut() {
                Some(range) if range.last().and_then(|last| last.checked_add(1)) == Some(pack) => {
                    range.count += 1;
                }
                _ => ranges.push(Self { first: pack, count: 1 }),
            }
        }
        ranges
    }

    /// Whether one of the ascending `ranges` has `pack`.
    pub(crate) fn any_contains(ranges: &[Self], pack: u64) -> bool {
        let after = ranges.partition_point(|range| range.first <= pack);
        let range = after.checked_sub(1).and_then(|at| ranges.get(at));
        range.is_some_and(|range| range.contains(pack))
    }

    pub(crate) fn contains(self, pack: u64) -> bool {
        pack.checked_sub(self.first).is_some_and(|place| place < self.count)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct StepRecord {
    /// Nanoseconds since 1970-01-01 UTC, when the save began and when it was about to commit.
    pub(crate) started_unix_ns: u64,
    pub(crate) committed_unix_ns: u64,
    pub(crate) metrics: BTreeMap<String, f64>,
    /// JSON text.
    pub(crate) custom_metadata: Option<String>,
    pub(crate) pinned: bool,
    pub(crate) leaf_count: u64,
    pub(crate) chunk_count: u64,
    /// Raw bytes of all leaves.
    pub(crate) logical_bytes: u64,
    /// Stored bytes of all chunks.
    pub(crate) stored_bytes: u64,
    /// The packs that hold the chunks: ascending, none empty, none twice.
    pub(crate) packs: Vec<PackRange>,
    /// Over all leaves: paths, kinds, element types, shapes and content hashes of the chunks.
    pub(crate) digest: [u8; 16],
}

#[derive(Archive, Serialize, Deserialize)]
struct StepV1 {
    started_unix_ns: u64,
    committed_unix_ns: u64,
    metrics: Vec<MetricV1>,
    custom_metadata: Option<String>,
    pinned: bool,
    leaf_count: u64,
    chunk_count: u64,
    logical_bytes: u64,
    stored_bytes: u64,
    packs: Vec<PackRange>,
    digest: [u8; 16],
}

#[derive(Archive, Serialize, Deserialize)]
pub(super) struct MetricV1 {
    name: String,
    value: f64,
}

pub(super) fn archive_metrics(metrics: &BTreeMap<String, f64>) -> Vec<MetricV1> {
    metrics.iter().map(|(name, value)| MetricV1 { name: name.clone(), value: *value }).collect()
}

/// The step metrics of a record of `kind`, and its custom metadata.
pub(super) fn decode_extras(
    kind: Kind,
    metrics: &[ArchivedMetricV1],
    metadata: Option<&str>,
) -> Result<(BTreeMap<String, f64>, Option<String>), RecordError> {
    if metrics.len() > MAX_METRICS {
        return Err(kind.content(format!(
            "it has {} metrics, more than the limit of {MAX_METRICS}",
            metrics.len()
        )));
    }
    if metadata.is_some_and(|text| text.len() > MAX_CUSTOM_METADATA_BYTES) {
        return Err(kind.content("its custom metadata exceeds the limit"));
    }
    let metrics = metrics.iter().map(|row| (row.name.to_string(), row.value.to_native()));
    Ok((metrics.collect(), metadata.map(ToOwned::to_owned)))
}

impl StepRecord {
    pub(crate) fn encode(&self, step: u64) -> Result<Vec<u8>, RecordError> {
        let archive = StepV1 {
            started_unix_ns: self.started_unix_ns,
            committed_unix_ns: self.committed_unix_ns,
            metrics: archive_metrics(&self.metrics),
            custom_metadata: self.custom_metadata.clone(),
            pinned: self.pinned,
            leaf_count: self.leaf_count,
            chunk_count: self.chunk_count,
            logical_bytes: self.logical_bytes,
            stored_bytes: self.stored_bytes,
            packs: self.packs.clone(),
            digest: self.digest,
        };
        let payload = rkyv::to_bytes::<rancor::Error>(&archive)
            .map_err(|error| Kind::Step.archive(&error))?;
        let record = seal_within_limit(Kind::Step, 1, &step.to_le_bytes(), &payload)?;
        // A step that can't be read again must not be committed.
        Self::decode(step, &record)?;
        Ok(record)
    }

    pub(crate) fn decode(step: u64, record: &[u8]) -> Result<Self, RecordError> {
        let payload = open(Kind::Step, &step.to_le_bytes(), record)?;
        let archive = rkyv::access::<ArchivedStepV1, rancor::Error>(payload)
            .map_err(|error| Kind::Step.archive(&error))?;
        let metadata = archive.custom_metadata.as_ref().map(rkyv::string::ArchivedString::as_str);
        let (metrics, custom_metadata) = decode_extras(Kind::Step, &archive.metrics, metadata)?;
        let packs = pack_ranges(Kind::Step, &archive.packs)?;
        let chunk_count = archive.chunk_count.to_native();
        let pack_count = packs.iter().fold(0, |sum: u64, range| sum.saturating_add(range.count));
        // A chunk may begin in one pack and end in the next.
        if pack_count > chunk_count.saturating_mul(2) {
            return Err(
                Kind::Step.content(format!("it uses {pack_count} packs for {chunk_count} chunks"))
            );
        }
        Ok(Self {
            started_unix_ns: archive.started_unix_ns.to_native(),
            committed_unix_ns: archive.committed_unix_ns.to_native(),
            metrics,
            custom_metadata,
            pinned: archive.pinned,
            leaf_count: archive.leaf_count.to_native(),
            chunk_count,
            logical_bytes: archive.logical_bytes.to_native(),
            stored_bytes: archive.stored_bytes.to_native(),
            packs,
            digest: archive.digest,
        })
    }
}

/// The packs of a record of `kind`. Whatever the numbers claim, no more is done than there are ranges.
pub(super) fn pack_ranges(
    kind: Kind,
    archive: &[ArchivedPackRange],
) -> Result<Vec<PackRange>, RecordError> {
    let fault = |message: String| Err(kind.content(message));
    let mut ranges = Vec::with_capacity(archive.len());
    let mut highest = 0;
    for range in archive {
        let range = PackRange { first: range.first.to_native(), count: range.count.to_native() };
        let PackRange { first, count } = range;
        if first == 0 {
            return fault("it uses pack 0, and packs are numbered from 1".to_owned());
        }
        if first <= highest {
            return fault(format!("it lists pack {first} after pack {highest}"));
        }
        let Some(last) = range.last() else {
            return fault(format!("it lists {count} packs from pack {first} on"));
        };
        highest = last;
        ranges.push(range);
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> StepRecord {
        StepRecord {
            started_unix_ns: 1,
            committed_unix_ns: 2,
            metrics: BTreeMap::from([("loss".into(), -0.0), ("psnr".into(), f64::INFINITY)]),
            custom_metadata: Some("{}".into()),
            pinned: true,
            leaf_count: 3,
            chunk_count: 9,
            logical_bytes: 5,
            stored_bytes: 6,
            packs: vec![PackRange { first: 7, count: 8 }],
            digest: [9; 16],
        }
    }

    #[test]
    fn a_step_record_comes_back() {
        let bytes = record().encode(12).unwrap();
        assert_eq!(StepRecord::decode(12, &bytes).unwrap(), record());
        let empty = StepRecord { custom_metadata: None, metrics: BTreeMap::new(), ..record() };
        assert_eq!(StepRecord::decode(0, &empty.encode(0).unwrap()).unwrap(), empty);
    }

    #[test]
    fn damage_and_another_step_are_noticed() {
        let mut bytes = record().encode(12).unwrap();
        assert!(StepRecord::decode(13, &bytes).is_err());
        let last = bytes.len() - 1;
        bytes[last] ^= 0x80;
        assert!(StepRecord::decode(12, &bytes).is_err());
    }

    #[test]
    fn pack_ranges_ascend_and_hold_packs_that_can_be() {
        let decode = |packs: &[(u64, u64)]| {
            let range = |&(first, count): &(u64, u64)| PackRange { first, count };
            let packs = packs.iter().map(range).collect();
            let record = StepRecord { packs, chunk_count: u64::MAX, ..record() };
            record.encode(12).map_err(|error| error.to_string())
        };
        assert!(decode(&[(1, 2), (3, 1), (9, 1 << 60)]).is_ok());
        assert!(decode(&[(u64::MAX, 1)]).is_ok());
        for (packs, says) in [
            (&[(0, 2)][..], "pack 0, and packs are numbered from 1"),
            (&[(4, 0)], "0 packs from pack 4 on"),
            (&[(4, 2), (2, 1)], "pack 2 after pack 5"),
            (&[(4, 2), (5, 1)], "pack 5 after pack 5"),
            (&[(2, u64::MAX)], "18446744073709551615 packs from pack 2 on"),
            (&[(1, u64::MAX), (5, 1)], "pack 5 after pack 18446744073709551615"),
        ] {
            let error = decode(packs).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn there_are_at_most_twice_as_many_packs_as_chunks() {
        let with = |count| StepRecord {
            chunk_count: 4,
            packs: vec![PackRange { first: 1, count: 3 }, PackRange { first: 9, count }],
            ..record()
        };
        let bytes = with(5).encode(12).unwrap();
        assert_eq!(StepRecord::decode(12, &bytes).unwrap(), with(5));
        let error = with(6).encode(12).unwrap_err().to_string();
        assert!(error.contains("it uses 9 packs for 4 chunks"), "{error}");
    }

    #[test]
    fn a_range_knows_its_packs_up_to_the_highest_number() {
        let range = PackRange { first: u64::MAX, count: 1 };
        assert!(range.contains(u64::MAX) && !range.contains(u64::MAX - 1) && !range.contains(0));
        assert_eq!((range.last(), PackRange { count: 2, ..range }.last()), (Some(u64::MAX), None));
        assert_eq!(PackRange { first: 3, count: 0 }.last(), None);
        let ranges = PackRange::of([1, 2, 5, u64::MAX]);
        assert_eq!(ranges.iter().flat_map(|range| range.numbers()).count(), 3);
        assert_eq!(ranges.len(), 3);
    }
}
