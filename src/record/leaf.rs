//! The leaf record: what the leaf is, and where its chunks are.

use std::iter;

use rkyv::rancor;
use rkyv::{Archive, Deserialize, Serialize};

use super::RecordError;
use super::envelope::{Kind, open, seal_within_limit};
use crate::codec::{ChunkInfo, Codec};
use crate::dtype::DType;
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_CHUNK_BYTES, MAX_DIMENSIONS, MAX_PACK_BYTES};
use crate::shape::Shape;
use crate::tree::{LeafKind, LeafMeta};

/// Where the stored bytes of a chunk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Extent {
    /// The pack in which they begin.
    pub(crate) pack: u64,
    /// Where in it they begin.
    pub(crate) offset: u32,
    /// How many they are.
    pub(crate) length: u32,
}

/// Consecutive bytes of one pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) pack: u64,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Piece {
    /// How many bytes of the pack it takes, up to where the next one can begin.
    pub(crate) fn aligned_bytes(self) -> usize {
        self.end.saturating_sub(self.start).next_multiple_of(CHUNK_ALIGN_BYTES)
    }
}

impl Extent {
    /// The bytes up to the end of the largest pack; those beyond it, if there are any, go on at the
    /// beginning of the pack with the next number.
    pub(crate) fn pieces(self) -> (Piece, Option<Piece>) {
        let [start, length] =
            [self.offset, self.length].map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let end = start.saturating_add(length);
        let first = Piece { pack: self.pack, start, end: end.min(MAX_PACK_BYTES) };
        let rest = (end > MAX_PACK_BYTES).then(|| Piece {
            // A record says so only of a pack that has a next one.
            pack: self.pack.saturating_add(1),
            start: 0,
            end: end - MAX_PACK_BYTES,
        });
        (first, rest)
    }

    /// The packs that the bytes are in: one, or two with consecutive numbers.
    pub(crate) fn packs(self) -> impl Iterator<Item = u64> {
        let (first, rest) = self.pieces();
        iter::once(first).chain(rest).map(|piece| piece.pack)
    }
}

/// Where a chunk is, and what it is like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoredChunk {
    pub(crate) pack: u64,
    /// The offset in the pack, in bytes.
    pub(crate) offset: u32,
    pub(crate) info: ChunkInfo,
}

impl StoredChunk {
    pub(crate) fn extent(&self) -> Extent {
        Extent { pack: self.pack, offset: self.offset, length: self.info.stored_len }
    }
}

/// A leaf of one step. Its chunks, one after the other, are its contents.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LeafRecord {
    pub(crate) meta: LeafMeta,
    pub(crate) chunks: Vec<StoredChunk>,
}

#[derive(Archive, Serialize, Deserialize)]
struct LeafV1 {
    kind: u8,
    dtype: u8,
    shape: Vec<u64>,
    /// The saved sharding as JSON; none yet.
    sharding: Option<String>,
    shards: Vec<ShardV1>,
}

/// The part of the array that starts at `start` and has `shape`. An unsharded leaf is one shard.
#[derive(Archive, Serialize, Deserialize)]
struct ShardV1 {
    start: Vec<u64>,
    shape: Vec<u64>,
    chunks: Vec<ChunkV1>,
}

#[derive(Archive, Serialize, Deserialize)]
struct ChunkV1 {
    pack: u64,
    offset: u32,
    stored_len: u32,
    raw_len: u32,
    crc32: u32,
    codec: u8,
    hash: [u8; 16],
}

// The layout on disk follows from rkyv's features; a change of it would show here first.
const _: () = assert!(size_of::<ArchivedChunkV1>() == 8 + 4 * 4 + 1 + 16);
const _: () = assert!(align_of::<ArchivedLeafV1>() == 1);

impl LeafRecord {
    pub(crate) fn encode(&self, step: u64, path: &[u8]) -> Result<Vec<u8>, RecordError> {
        let lengths = self.meta.shape.lengths();
        let shape: Vec<u64> =
            lengths.iter().map(|&length| u64::try_from(length).unwrap_or(u64::MAX)).collect();
        let chunk = |chunk: &StoredChunk| ChunkV1 {
            pack: chunk.pack,
            offset: chunk.offset,
            stored_len: chunk.info.stored_len,
            raw_len: chunk.info.raw_len,
            crc32: chunk.info.crc32,
            codec: chunk.info.codec.code(),
            hash: chunk.info.hash,
        };
        let archive = LeafV1 {
            kind: self.meta.kind.code(),
            dtype: self.meta.dtype.code(),
            sharding: None,
            shards: vec![ShardV1 {
                start: vec![0; shape.len()],
                shape: shape.clone(),
                chunks: self.chunks.iter().map(chunk).collect(),
            }],
            shape,
        };
        let payload = rkyv::to_bytes::<rancor::Error>(&archive)
            .map_err(|error| Kind::Leaf.archive(&error))?;
        seal_within_limit(Kind::Leaf, &identity(step, path), &payload)
    }

    pub(crate) fn decode(step: u64, path: &[u8], record: &[u8]) -> Result<Self, RecordError> {
        let payload = open(Kind::Leaf, &identity(step, path), record)?;
        let archive = rkyv::access::<ArchivedLeafV1, rancor::Error>(payload)
            .map_err(|error| Kind::Leaf.archive(&error))?;
        let meta = meta(archive)?;
        let shard = match archive.shards.as_slice() {
            [shard] if archive.sharding.is_none() => shard,
            shards => return Err(fault(format!("it has {} shards", shards.len()))),
        };
        if shard.shape.as_slice() != archive.shape.as_slice()
            || shard.start.len() != archive.shape.len()
            || shard.start.iter().any(|start| *start != 0)
        {
            return Err(fault("its shard is not the whole array"));
        }
        let chunks: Vec<StoredChunk> = shard.chunks.iter().map(chunk).collect::<Result<_, _>>()?;
        let expected = meta.size_bytes().map_err(|error| fault(error.to_string()))?;
        let found = chunks.iter().map(|chunk| u64::from(chunk.info.raw_len)).sum::<u64>();
        if u64::try_from(expected) != Ok(found) {
            return Err(fault(format!("{meta} has {expected} bytes, its chunks have {found}")));
        }
        Ok(Self { meta, chunks })
    }
}

fn meta(archive: &ArchivedLeafV1) -> Result<LeafMeta, RecordError> {
    let kind = LeafKind::from_code(archive.kind)
        .ok_or_else(|| fault(format!("its kind is {}", archive.kind)))?;
    let dtype = DType::from_code(archive.dtype)
        .ok_or_else(|| fault(format!("its element type is {}", archive.dtype)))?;
    if archive.shape.len() > MAX_DIMENSIONS {
        return Err(fault(format!("it has {} dimensions", archive.shape.len())));
    }
    let lengths = archive.shape.iter().map(|length| usize::try_from(length.to_native()));
    let lengths =
        lengths.collect::<Result<Vec<_>, _>>().map_err(|error| fault(error.to_string()))?;
    let shape = Shape::new(lengths).map_err(|error| fault(error.to_string()))?;
    let meta = LeafMeta::new(kind, dtype, shape);
    meta.check().map_err(|error| fault(error.to_string()))?;
    Ok(meta)
}

fn chunk(archive: &ArchivedChunkV1) -> Result<StoredChunk, RecordError> {
    let codec = Codec::from_code(archive.codec)
        .ok_or_else(|| fault(format!("a chunk has codec {}", archive.codec)))?;
    let chunk = StoredChunk {
        pack: archive.pack.to_native(),
        offset: archive.offset.to_native(),
        info: ChunkInfo {
            codec,
            raw_len: archive.raw_len.to_native(),
            stored_len: archive.stored_len.to_native(),
            crc32: archive.crc32.to_native(),
            hash: archive.hash,
        },
    };
    let bytes = |length: u32| usize::try_from(length).unwrap_or(usize::MAX);
    let (raw, stored, offset) =
        (bytes(chunk.info.raw_len), bytes(chunk.info.stored_len), bytes(chunk.offset));
    if raw == 0 || raw > MAX_CHUNK_BYTES {
        return Err(fault(format!("a chunk has {raw} raw bytes")));
    }
    if offset >= MAX_PACK_BYTES || stored > MAX_CHUNK_BYTES || offset % CHUNK_ALIGN_BYTES != 0 {
        return Err(fault(format!("a chunk has {stored} bytes at {offset} of its pack")));
    }
    if offset + stored > MAX_PACK_BYTES && chunk.pack == u64::MAX {
        return Err(fault("a chunk goes on in the pack after the last one"));
    }
    Ok(chunk)
}

fn identity(step: u64, path: &[u8]) -> Vec<u8> {
    [&step.to_le_bytes(), path].concat()
}

fn fault(message: impl Into<String>) -> RecordError {
    Kind::Leaf.content(message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> LeafRecord {
        let info =
            ChunkInfo { codec: Codec::Lz4, raw_len: 16, stored_len: 5, crc32: 1, hash: [3; 16] };
        let chunk = StoredChunk { pack: 9, offset: 32, info };
        LeafRecord {
            meta: LeafMeta::array(DType::F32, Shape::new([2, 4]).unwrap()),
            chunks: vec![chunk, StoredChunk { pack: 10, offset: 0, ..chunk }],
        }
    }

    #[test]
    fn a_leaf_record_comes_back() {
        let bytes = record().encode(3, b"p").unwrap();
        assert_eq!(LeafRecord::decode(3, b"p", &bytes).unwrap(), record());
        let empty = LeafRecord {
            meta: LeafMeta::array(DType::F32, Shape::new([0, 4]).unwrap()),
            chunks: vec![],
        };
        let bytes = empty.encode(3, b"p").unwrap();
        assert_eq!(LeafRecord::decode(3, b"p", &bytes).unwrap(), empty);
    }

    #[test]
    fn what_a_pack_has_no_room_for_goes_on_in_the_next() {
        let end = u32::try_from(MAX_PACK_BYTES).unwrap();
        let extent = Extent { pack: 7, offset: end - 16, length: 16 };
        let piece = |pack, start, end| Piece { pack, start, end };
        let head = piece(7, MAX_PACK_BYTES - 16, MAX_PACK_BYTES);
        assert_eq!(extent.pieces(), (head, None));
        let longer = Extent { length: 21, ..extent };
        assert_eq!(longer.pieces(), (head, Some(piece(8, 0, 5))));
        assert!(extent.packs().eq([7]) && longer.packs().eq([7, 8]));
    }

    #[test]
    fn damage_and_another_place_are_noticed() {
        let mut bytes = record().encode(3, b"p").unwrap();
        assert!(LeafRecord::decode(4, b"p", &bytes).is_err());
        assert!(LeafRecord::decode(3, b"q", &bytes).is_err());
        bytes[20] ^= 4;
        assert!(LeafRecord::decode(3, b"p", &bytes).is_err());
    }

    #[test]
    fn what_a_sealed_record_claims_is_checked_too() {
        let refuse = |change: &dyn Fn(&mut LeafRecord), message: &str| {
            let mut record = record();
            change(&mut record);
            let bytes = record.encode(3, b"p").unwrap();
            let error = LeafRecord::decode(3, b"p", &bytes).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        };
        refuse(&|record| record.chunks.truncate(1), "has 32 bytes, its chunks have 16");
        refuse(&|record| record.chunks[0].offset = 8, "at 8 of its pack");
        refuse(&|record| record.chunks[0].offset = 1 << 30, "of its pack");
        refuse(&|record| record.chunks[0].info.stored_len = 1 << 20, "1048576 bytes at 32 of");
        let at_the_end = |record: &mut LeafRecord| {
            record.chunks[0] = StoredChunk { pack: u64::MAX, ..record.chunks[0] };
            record.chunks[0].info.stored_len = u32::try_from(MAX_PACK_BYTES).unwrap();
        };
        refuse(&at_the_end, "in the pack after the last one");
        refuse(&|record| record.chunks[0].info.raw_len = 0, "0 raw bytes");
        refuse(&|record| record.meta.kind = LeafKind::Scalar, "a scalar can't be float32[2, 4]");
        refuse(&|record| record.meta.shape = Shape::in_memory(&[1 << 60, 8]), "more elements");
    }

    /// The example of `format.md`.
    #[test]
    fn the_bytes_are_those_of_the_format() {
        let info = ChunkInfo {
            codec: Codec::Raw,
            raw_len: 24,
            stored_len: 24,
            crc32: 0x0102_0304,
            hash: [0xaa; 16],
        };
        let record = LeafRecord {
            meta: LeafMeta::array(DType::F32, Shape::new([2, 3]).unwrap()),
            chunks: vec![StoredChunk { pack: 9, offset: 32, info }],
        };
        let bytes = record.encode(100, &[3, b'w', 0]).unwrap();
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let page = include_str!("../docs/format.md");
        let example = page.split("<!-- example: leaf -->").nth(1).unwrap();
        let example = example.split("```").nth(1).unwrap();
        // Each line is an offset, the bytes, and what they are behind a `|`.
        let shown: Vec<&str> = example
            .lines()
            .filter_map(|line| line.split('|').next()?.split_once(':'))
            .flat_map(|(_, bytes)| bytes.split_whitespace())
            .collect();
        assert_eq!(shown, hex);
    }
}
