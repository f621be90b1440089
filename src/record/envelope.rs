//! The 8 bytes before every record: checksum, kind and version.
//!
//! The checksum covers the identity of the record (the key it is stored under) as well as its
//! bytes, so a record in the wrong place is noticed. It is checked before anything else.

use super::RecordError;
use crate::codec::crc32;
use crate::limits::MAX_RECORD_BYTES;

const HEADER_BYTES: usize = 8;

/// The version of records of which there is no other.
const VERSION: u8 = 1;

/// What a record is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Step,
    Structure,
    Leaf,
    Mark,
    Shardings,
    Rank,
    Pending,
    Contribution,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Structure => "structure",
            Self::Leaf => "leaf",
            Self::Mark => "pack mark",
            Self::Shardings => "shardings",
            Self::Rank => "rank",
            Self::Pending => "pending",
            Self::Contribution => "contribution",
        }
    }

    /// The highest version there is.
    fn last_version(self) -> u8 {
        match self {
            Self::Leaf => 2,
            _ => VERSION,
        }
    }

    fn code(self) -> u8 {
        match self {
            Self::Step => 1,
            Self::Structure => 2,
            Self::Leaf => 3,
            Self::Mark => 4,
            Self::Shardings => 5,
            Self::Rank => 6,
            Self::Pending => 7,
            Self::Contribution => 8,
        }
    }

    pub(super) fn archive(self, error: &rkyv::rancor::Error) -> RecordError {
        RecordError::Archive { kind: self.name(), message: error.to_string() }
    }

    pub(super) fn content(self, message: impl Into<String>) -> RecordError {
        RecordError::Content { kind: self.name(), message: message.into() }
    }
}

/// The record of `kind` that is stored under the key `identity`.
pub(super) fn seal(kind: Kind, identity: &[u8], payload: &[u8]) -> Vec<u8> {
    seal_version(kind, VERSION, identity, payload)
}

/// [`seal`] for a kind of which there are several versions.
pub(super) fn seal_version(kind: Kind, version: u8, identity: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = [kind.code(), version, 0, 0];
    let checksum = checksum(identity, header, payload);
    let mut record = Vec::with_capacity(HEADER_BYTES + payload.len());
    record.extend_from_slice(&checksum.to_le_bytes());
    record.extend_from_slice(&header);
    record.extend_from_slice(payload);
    record
}

/// [`seal`] for a payload whose size the user decides.
pub(super) fn seal_within_limit(
    kind: Kind,
    version: u8,
    identity: &[u8],
    payload: &[u8],
) -> Result<Vec<u8>, RecordError> {
    let found = payload.len().saturating_add(HEADER_BYTES);
    if found > MAX_RECORD_BYTES {
        return Err(RecordError::TooLarge { kind: kind.name(), limit: MAX_RECORD_BYTES, found });
    }
    Ok(seal_version(kind, version, identity, payload))
}

/// The payload of a record that was sealed as `kind` under `identity`, of which there is one version.
pub(super) fn open<'r>(
    kind: Kind,
    identity: &[u8],
    record: &'r [u8],
) -> Result<&'r [u8], RecordError> {
    Ok(open_version(kind, identity, record)?.1)
}

/// The version and the payload of a record that was sealed as `kind` under `identity`.
pub(super) fn open_version<'r>(
    kind: Kind,
    identity: &[u8],
    record: &'r [u8],
) -> Result<(u8, &'r [u8]), RecordError> {
    let name = kind.name();
    if record.len() > MAX_RECORD_BYTES {
        return Err(RecordError::Long { kind: name, limit: MAX_RECORD_BYTES, found: record.len() });
    }
    let short = RecordError::Short { kind: name, expected: HEADER_BYTES, found: record.len() };
    let Some((stored, rest)) = record.split_first_chunk::<4>() else {
        return Err(short);
    };
    let Some((header, payload)) = rest.split_first_chunk::<4>() else {
        return Err(short);
    };
    let (expected, found) = (u32::from_le_bytes(*stored), checksum(identity, *header, payload));
    if expected != found {
        return Err(RecordError::Checksum { kind: name, expected, found });
    }
    let [code, version, _, _] = *header;
    if code != kind.code() {
        return Err(RecordError::Kind { kind: name, found: code });
    }
    let expected = kind.last_version();
    if !(1..=expected).contains(&version) {
        return Err(RecordError::Version { kind: name, expected, found: version });
    }
    Ok((version, payload))
}

fn checksum(identity: &[u8], header: [u8; 4], payload: &[u8]) -> u32 {
    crc32(&[&header, identity, payload])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_and_every_cut_is_noticed() {
        let record = seal(Kind::Step, b"7", b"payload");
        assert_eq!(open(Kind::Step, b"7", &record), Ok(&b"payload"[..]));
        for bit in 0..record.len() * 8 {
            let mut damaged = record.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(open(Kind::Step, b"7", &damaged).is_err(), "bit {bit}");
        }
        for length in 0..record.len() {
            assert!(open(Kind::Step, b"7", &record[..length]).is_err(), "length {length}");
        }
    }

    #[test]
    fn a_record_in_the_wrong_place_is_noticed() {
        let record = seal(Kind::Step, b"7", b"payload");
        assert!(matches!(open(Kind::Step, b"8", &record), Err(RecordError::Checksum { .. })));
        assert!(matches!(open(Kind::Leaf, b"7", &record), Err(RecordError::Kind { .. })));
    }

    #[test]
    fn what_is_too_large_to_be_read_is_not_written() {
        // Never touched, so it takes no memory.
        let payload = vec![0; MAX_RECORD_BYTES - HEADER_BYTES + 1];
        let error = seal_within_limit(Kind::Leaf, 1, b"7", &payload).unwrap_err();
        let error = crate::error::Error::from(error);
        assert_eq!(error.kind(), crate::error::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("1073741825 bytes"), "{error}");
    }

    #[test]
    fn a_newer_version_is_named() {
        let record = seal_version(Kind::Leaf, 3, b"k", b"");
        let error = open(Kind::Leaf, b"k", &record).unwrap_err();
        assert_eq!(error.to_string(), "the leaf record has version 3, this milepost reads up to 2");
    }
}
