//! Chunk ↔ stored bytes.
//!
//! A chunk is a contiguous run of the raw bytes of one shard. What is stored of it is exactly
//! its encoded bytes, so a raw chunk goes from the caller's memory to the database as it is;
//! everything else that is known of it is a [`ChunkInfo`] in the leaf record. Its checksum covers
//! the identity of the chunk as well as the stored bytes, and is checked before a byte is decoded.

mod checksum;
mod choose;
mod exponents;
mod lz4;
mod planes;
mod scratch;
mod transpose;

use std::borrow::Cow;

use crate::dtype::DType;
use crate::limits::MAX_CHUNK_BYTES;

pub(crate) use checksum::{Digest, content_hash, crc32};
pub(crate) use choose::choose;
use exponents::Exponents;
use planes::Planes;
use scratch::Scratch;
use transpose::Unit;

/// How the bytes of a chunk are stored. The code is part of the file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Codec {
    /// As they are.
    Raw,
    /// One LZ4 block (the block format of the LZ4 project, without frame or size prefix).
    Lz4,
    /// Split into the bytes of its elements, see [`planes`].
    BytePlanes,
    /// Split into the bits of its elements, see [`planes`].
    BitPlanes,
    /// By how much the exponents of its floats are raised, see [`exponents`], a little-endian `u32`;
    /// then the bit planes of the raised floats.
    RaisedBitPlanes,
}

impl Codec {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Raw => 0,
            Self::Lz4 => 1,
            Self::BytePlanes => 2,
            Self::BitPlanes => 3,
            Self::RaisedBitPlanes => 4,
        }
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Raw),
            1 => Some(Self::Lz4),
            2 => Some(Self::BytePlanes),
            3 => Some(Self::BitPlanes),
            4 => Some(Self::RaisedBitPlanes),
            _ => None,
        }
    }
}

/// Which codec a save tries. Whatever it is, a chunk that gets less than a sixteenth shorter is
/// stored raw, so that reading it costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Compression {
    /// Store every chunk raw: the fastest in both directions, and the default.
    #[default]
    None,
    /// LZ4. It suits text, masks, indices and whatever repeats; float weights get no shorter.
    Lz4,
    /// LZ4 on planes of bytes: the first bytes of all elements, then all second bytes, and so on.
    /// On trained weights raw and stored bytes are about as 1.09 to 1 for `float32` and as 1.19 to
    /// 1 for `bfloat16`. Encoding is slower than with `BitPlanes`; decoding costs about the same.
    BytePlanes,
    /// LZ4 on planes of bits: the lowest bits of all elements, then the next ones, and so on. About
    /// 1.16 to 1 for trained weights in `float32` and 1.38 to 1 in `bfloat16`. The rest of
    /// such a number is noise, which nothing shrinks. It suits `bool` arrays as well.
    BitPlanes,
    /// Whichever of these gains most, found out by trying all of them on a part of the data. Where
    /// one that is cheaper to decode comes within 2 % of the best, that one is taken.
    Auto,
}

impl Compression {
    /// The codec that chunks of this element type are tried with. For `Auto` that is what [`choose`]
    /// says.
    fn codec(self, dtype: DType) -> Codec {
        match self {
            Self::None | Self::Auto => Codec::Raw,
            Self::Lz4 => Codec::Lz4,
            Self::BytePlanes => Codec::BytePlanes,
            Self::BitPlanes if Exponents::of(dtype).is_some() => Codec::RaisedBitPlanes,
            Self::BitPlanes => Codec::BitPlanes,
        }
    }
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

impl<'a> ChunkId<'a> {
    /// Chunk `index` of a shard; there are far fewer than 2^32 of either.
    pub(crate) fn new(path: &'a [u8], shard: usize, index: usize, dtype: DType) -> Self {
        let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self { path, shard: narrow(shard), index: narrow(index), dtype }
    }
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
    #[error("the chunk has {found} raw bytes, expected a multiple of {expected}")]
    Elements { expected: usize, found: usize },
    #[error("the stored chunk has {found} bytes, its header alone has {expected}")]
    Header { expected: usize, found: usize },
    #[error("the exponents of the chunk are raised, {dtype} has none")]
    NoExponent { dtype: DType },
    #[error("the exponents of the chunk are raised by {found}, expected at most {expected}")]
    Raised { expected: u32, found: u32 },
    #[error("plane {plane} of the chunk has {found} stored bytes, expected at most {expected}")]
    PlaneLength { plane: usize, expected: usize, found: usize },
    #[error("the planes of the chunk have {found} stored bytes, their header says {expected}")]
    PlanesLength { expected: usize, found: usize },
    #[error("plane {plane} of the chunk is no LZ4 block of {expected} bytes: {message}")]
    PlaneLz4 { plane: usize, expected: usize, message: String },
    #[error(
        "the last byte of plane {plane} of the chunk is {last:#04x}, \
         expected nothing above its {elements} lowest bits"
    )]
    PlanePadding { plane: usize, elements: usize, last: u8 },
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
    let codec = match compression {
        Compression::Auto => choose(id.dtype, &[raw]).codec(id.dtype),
        fixed => fixed.codec(id.dtype),
    };
    let compressed = match codec {
        Codec::Raw => None,
        codec => {
            Scratch::with(|scratch| scratch.compress(codec, id.dtype, raw).map(<[u8]>::to_vec))
        }
    };
    let (codec, stored) = match compressed {
        Some(compressed) => (codec, Cow::Owned(compressed)),
        None => (Codec::Raw, Cow::Borrowed(raw)),
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
        Codec::Lz4 => lz4::decompress(stored, out)
            .map_err(|message| ChunkError::Lz4 { raw_len: info.raw_len, message })?,
        Codec::BytePlanes => decode_planes(Unit::Byte, id.dtype, stored, out)?,
        Codec::BitPlanes => decode_planes(Unit::Bit, id.dtype, stored, out)?,
        Codec::RaisedBitPlanes => decode_raised(id.dtype, stored, out)?,
    }
    Ok(())
}

/// Checks `stored` and gives the raw chunk: where it is if it is stored raw, else decoded to `memory`.
pub(crate) fn view<'r>(
    id: ChunkId<'_>,
    info: &ChunkInfo,
    stored: &'r [u8],
    memory: &'r mut Vec<u8>,
) -> Result<&'r [u8], ChunkError> {
    if info.codec == Codec::Raw && info.raw_len == info.stored_len {
        check(id, info, stored)?;
        return Ok(stored);
    }
    memory.resize(usize::try_from(info.raw_len).unwrap_or(usize::MAX), 0);
    decode(id, info, stored, memory)?;
    Ok(memory)
}

fn decode_planes(
    unit: Unit,
    dtype: DType,
    stored: &[u8],
    out: &mut [u8],
) -> Result<(), ChunkError> {
    let layout = Planes::new(unit, dtype, out.len())?;
    Scratch::with(|scratch| planes::decode(layout, stored, out, &mut scratch.planes))
}

fn decode_raised(dtype: DType, stored: &[u8], out: &mut [u8]) -> Result<(), ChunkError> {
    let exponents = Exponents::of(dtype).ok_or(ChunkError::NoExponent { dtype })?;
    let layout = Planes::new(Unit::Bit, dtype, out.len())?;
    let header_bytes = size_of::<u32>() + layout.header_bytes();
    let split = stored.split_first_chunk().filter(|_| stored.len() >= header_bytes);
    let Some((raised_by, planes)) = split else {
        return Err(ChunkError::Header { expected: header_bytes, found: stored.len() });
    };
    let raised_by = u32::from_le_bytes(*raised_by);
    if raised_by > exponents.all_set {
        return Err(ChunkError::Raised { expected: exponents.all_set, found: raised_by });
    }
    Scratch::with(|scratch| planes::decode(layout, planes, out, &mut scratch.planes))?;
    exponents.lower(raised_by, out);
    Ok(())
}

/// Whether `stored_len` bytes instead of `raw_len` are worth the decoding: a sixteenth less.
fn is_worth_it(stored_len: usize, raw_len: usize) -> bool {
    stored_len + raw_len / 16 < raw_len
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
#[cfg(any(test, fuzzing))]
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
mod tests;
