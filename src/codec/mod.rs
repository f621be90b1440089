//! Chunk ↔ stored bytes.
//!
//! A chunk is a contiguous run of the raw bytes of one shard. What is stored of it is exactly
//! its encoded bytes, so a raw chunk goes from the caller's memory to the database as it is;
//! everything else that is known of it is a [`ChunkInfo`] in the leaf record. Its checksum covers
//! the identity of the chunk as well as the stored bytes, and is checked before a byte is decoded.

mod checksum;

use std::borrow::Cow;

use crate::dtype::DType;
use crate::limits::MAX_CHUNK_BYTES;

pub(crate) use checksum::{Digest, content_hash, crc32};

/// How the bytes of a chunk are stored. The code is part of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    /// As they are.
    Raw,
    /// One LZ4 block (the block format of the LZ4 project, without frame or size prefix).
    Lz4,
}

impl Codec {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Lz4 => 1,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Raw),
            1 => Some(Self::Lz4),
            _ => None,
        }
    }
}

/// Which codec a save tries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Store every chunk raw. The default: LZ4 alone gains nothing on float weights.
    #[default]
    None,
    /// LZ4 for each chunk that it shrinks by at least a sixteenth, raw for the others.
    Lz4,
}

/// Which chunk of which leaf: what a chunk must not be mistaken for another by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ChunkId<'a> {
    /// The encoded key path of the leaf.
    pub(crate) path: &'a [u8],
    pub(crate) shard: u32,
    pub(crate) index: u32,
    pub(crate) dtype: DType,
}

/// What the leaf record knows of a chunk, except where it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkInfo {
    pub(crate) codec: Codec,
    pub(crate) raw_len: u32,
    pub(crate) stored_len: u32,
    pub(crate) crc32: u32,
    /// The 128-bit hash of the raw bytes, by which equal chunks are found.
    pub(crate) hash: [u8; 16],
}

/// Why a chunk can't be decoded.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(crate) enum ChunkError {
    #[error("the stored chunk has {found} bytes, its record says {expected}")]
    StoredLength { expected: u32, found: usize },
    #[error("the chunk has {found} raw bytes, its place has {expected}")]
    RawLength { expected: usize, found: u32 },
    #[error("the chunk checksum is {found:#010x}, its record says {expected:#010x}")]
    Checksum { expected: u32, found: u32 },
    #[error("the chunk is no LZ4 block of {raw_len} bytes: {message}")]
    Lz4 { raw_len: u32, message: String },
}

/// Encodes `raw`, at most [`MAX_CHUNK_BYTES`] with the content hash `hash`, and describes it. Raw bytes
/// stay borrowed.
pub(crate) fn encode<'r>(
    id: ChunkId<'_>,
    raw: &'r [u8],
    hash: [u8; 16],
    compression: Compression,
) -> (ChunkInfo, Cow<'r, [u8]>) {
    debug_assert!(raw.len() <= MAX_CHUNK_BYTES);
    let (codec, stored) = match compression {
        Compression::None => (Codec::Raw, Cow::Borrowed(raw)),
        Compression::Lz4 => {
            let compressed = lz4_flex::block::compress(raw);
            if compressed.len() + raw.len() / 16 < raw.len() {
                (Codec::Lz4, Cow::Owned(compressed))
            } else {
                (Codec::Raw, Cow::Borrowed(raw))
            }
        }
    };
    let mut info =
        ChunkInfo { codec, raw_len: length(raw), stored_len: length(&stored), crc32: 0, hash };
    info.crc32 = checksum(id, &info, &stored);
    (info, stored)
}

/// Checks `stored` and decodes it to `out`, which must be exactly as long as the raw chunk.
/// Nothing is written to `out` unless the checksum is right.
pub(crate) fn decode(
    id: ChunkId<'_>,
    info: &ChunkInfo,
    stored: &[u8],
    out: &mut [u8],
) -> Result<(), ChunkError> {
    if usize::try_from(info.raw_len) != Ok(out.len()) {
        return Err(ChunkError::RawLength { expected: out.len(), found: info.raw_len });
    }
    check(id, info, stored)?;
    match info.codec {
        Codec::Raw if stored.len() == out.len() => out.copy_from_slice(stored),
        Codec::Raw => {
            return Err(ChunkError::RawLength { expected: stored.len(), found: info.raw_len });
        }
        Codec::Lz4 => {
            let fault = |message| ChunkError::Lz4 { raw_len: info.raw_len, message };
            let written = lz4_flex::block::decompress_into(stored, out)
                .map_err(|error| fault(error.to_string()))?;
            if written != out.len() {
                return Err(fault(format!("it holds {written} bytes")));
            }
        }
    }
    Ok(())
}

/// Checks the length and the checksum of `stored`.
pub(crate) fn check(id: ChunkId<'_>, info: &ChunkInfo, stored: &[u8]) -> Result<(), ChunkError> {
    if usize::try_from(info.stored_len) != Ok(stored.len()) {
        return Err(ChunkError::StoredLength { expected: info.stored_len, found: stored.len() });
    }
    let found = checksum(id, info, stored);
    if found != info.crc32 {
        return Err(ChunkError::Checksum { expected: info.crc32, found });
    }
    Ok(())
}

/// `info` with the checksum that `stored` has, for chunks made by a hostile hand.
#[cfg(fuzzing)]
pub(crate) fn with_checksum(id: ChunkId<'_>, info: ChunkInfo, stored: &[u8]) -> ChunkInfo {
    ChunkInfo { crc32: checksum(id, &info, stored), ..info }
}

/// The crc32 of a chunk: over its identity, then its stored bytes.
fn checksum(id: ChunkId<'_>, info: &ChunkInfo, stored: &[u8]) -> u32 {
    crc32(&[
        &length(id.path).to_le_bytes(),
        id.path,
        &id.shard.to_le_bytes(),
        &id.index.to_le_bytes(),
        &[id.dtype.code(), info.codec.code()],
        &info.raw_len.to_le_bytes(),
        &info.stored_len.to_le_bytes(),
        stored,
    ])
}

/// A length of at most [`MAX_CHUNK_BYTES`] or of a key path: both are far below 4 GiB.
fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: ChunkId<'_> = ChunkId { path: b"\x03w\0", shard: 0, index: 2, dtype: DType::F32 };

    proptest! {
        #[test]
        fn a_chunk_comes_back(raw in prop::collection::vec(0u8..4, 0..5000), lz4: bool) {
            let compression = if lz4 { Compression::Lz4 } else { Compression::None };
            let (info, stored) = encode(ID, &raw, content_hash(&raw), compression);
            prop_assert!(stored.len() <= raw.len());
            let mut out = vec![9; raw.len()];
            decode(ID, &info, &stored, &mut out).unwrap();
            prop_assert_eq!(out, raw);
        }

        #[test]
        fn a_flipped_bit_is_noticed(bit in 0usize..8 * 300, lz4: bool) {
            let raw = [7u8; 300];
            let compression = if lz4 { Compression::Lz4 } else { Compression::None };
            let (info, stored) = encode(ID, &raw, content_hash(&raw), compression);
            let mut stored = stored.into_owned();
            let bit = bit % (stored.len() * 8);
            stored[bit / 8] ^= 1 << (bit % 8);
            let mut out = [0; 300];
            let error = decode(ID, &info, &stored, &mut out).unwrap_err();
            let noticed = matches!(error, ChunkError::Checksum { .. });
            prop_assert!(noticed);
            prop_assert_eq!(out, [0; 300]);
        }
    }

    #[test]
    fn compressible_data_shrinks_and_the_rest_stays_raw() {
        let (info, stored) = encode(ID, &[0; 4096], [0; 16], Compression::Lz4);
        assert_eq!(info.codec, Codec::Lz4);
        assert!(stored.len() < 100);
        let noise: Vec<u8> =
            (0..1024u32).flat_map(|i| (i.wrapping_mul(2_654_435_761)).to_le_bytes()).collect();
        assert_eq!(encode(ID, &noise, [0; 16], Compression::Lz4).0.codec, Codec::Raw);
    }

    #[test]
    fn a_chunk_in_the_wrong_place_is_noticed() {
        let (info, stored) = encode(ID, b"some bytes", [0; 16], Compression::None);
        let mut out = [0; 10];
        for other in [
            ChunkId { path: b"\x03v\0", ..ID },
            ChunkId { shard: 1, ..ID },
            ChunkId { index: 3, ..ID },
            ChunkId { dtype: DType::I32, ..ID },
        ] {
            assert!(decode(other, &info, &stored, &mut out).is_err(), "{other:?}");
        }
        assert!(decode(ID, &ChunkInfo { codec: Codec::Lz4, ..info }, &stored, &mut out).is_err());
        assert!(decode(ID, &info, &stored[..9], &mut out).is_err());
        assert!(decode(ID, &info, &stored, &mut out[..9]).is_err());
    }
}
