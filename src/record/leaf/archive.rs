//! The bytes of a leaf record.

use rkyv::rancor;
use rkyv::{Archive, Deserialize, Serialize};

use super::{LeafRecord, Parts, StoredChunk};
use crate::codec::{ChunkInfo, Codec};
use crate::dtype::DType;
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_CHUNK_BYTES, MAX_DIMENSIONS, MAX_PACK_BYTES};
use crate::record::RecordError;
use crate::record::envelope::{Kind, open_version, seal_within_limit};
use crate::shape::{Grid, Region, Shape};
use crate::tree::{LeafKind, LeafMeta};

#[derive(Archive, Serialize, Deserialize)]
struct LeafV1 {
    kind: u8,
    dtype: u8,
    shape: Vec<u64>,
    /// Always none.
    sharding: Option<String>,
    /// One.
    shards: Vec<ShardV1>,
}

/// A leaf with a sharding, or in several parts.
#[derive(Archive, Serialize, Deserialize)]
struct LeafV2 {
    kind: u8,
    dtype: u8,
    shape: Vec<u64>,
    sharding: Option<u32>,
    shards: Vec<ShardV1>,
}

/// The part of the array that starts at `start` and has `shape`.
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
const _: () = assert!(size_of::<ArchivedLeafV2>() == 1 + 1 + 8 + 5 + 8);

impl LeafRecord {
    pub(crate) fn encode(&self, step: u64, path: &[u8]) -> Result<Vec<u8>, RecordError> {
        let (kind, dtype) = (self.meta.kind.code(), self.meta.dtype.code());
        let (shape, identity) = (self.meta.shape.lengths(), identity(step, path));
        let shape: Vec<u64> = shape.iter().copied().map(wide).collect();
        let archive = match (&self.parts, self.sharding) {
            (None, None) => {
                let shards = vec![shard(&Region::whole(&self.meta.shape), &self.chunks)];
                let leaf = LeafV1 { kind, dtype, shape, sharding: None, shards };
                (1, rkyv::to_bytes::<rancor::Error>(&leaf))
            }
            (parts, sharding) => {
                let shards = match parts {
                    None => vec![shard(&Region::whole(&self.meta.shape), &self.chunks)],
                    Some(parts) => self.shards(parts),
                };
                let leaf = LeafV2 { kind, dtype, shape, sharding, shards };
                (2, rkyv::to_bytes::<rancor::Error>(&leaf))
            }
        };
        let (version, payload) = archive;
        let payload = payload.map_err(|error| Kind::Leaf.archive(&error))?;
        seal_within_limit(Kind::Leaf, version, &identity, &payload)
    }

    fn shards(&self, parts: &Parts) -> Vec<ShardV1> {
        let chunks = |number| self.chunks.get(parts.chunks_of_part(number)).unwrap_or_default();
        let regions = parts.grid.parts().enumerate();
        regions.map(|(number, region)| shard(&region, chunks(number))).collect()
    }

    pub(crate) fn decode(step: u64, path: &[u8], record: &[u8]) -> Result<Self, RecordError> {
        let (version, payload) = open_version(Kind::Leaf, &identity(step, path), record)?;
        if version == 1 {
            let leaf = rkyv::access::<ArchivedLeafV1, rancor::Error>(payload)
                .map_err(|error| Kind::Leaf.archive(&error))?;
            let record = decode(leaf.kind, leaf.dtype, &leaf.shape, &leaf.shards)?;
            if leaf.sharding.is_some() || record.parts.is_some() {
                return Err(fault("it is sharded, which this version of it can't be"));
            }
            return Ok(record);
        }
        let leaf = rkyv::access::<ArchivedLeafV2, rancor::Error>(payload)
            .map_err(|error| Kind::Leaf.archive(&error))?;
        let sharding = leaf.sharding.as_ref().map(|number| number.to_native());
        Ok(Self { sharding, ..decode(leaf.kind, leaf.dtype, &leaf.shape, &leaf.shards)? })
    }
}

fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn shard(region: &Region, chunks: &[StoredChunk]) -> ShardV1 {
    let chunk = |chunk: &StoredChunk| ChunkV1 {
        pack: chunk.pack,
        offset: chunk.offset,
        stored_len: chunk.info.stored_len,
        raw_len: chunk.info.raw_len,
        crc32: chunk.info.crc32,
        codec: chunk.info.codec.code(),
        hash: chunk.info.hash,
    };
    ShardV1 {
        start: region.ranges().iter().map(|range| wide(range.start)).collect(),
        shape: region.ranges().iter().map(|range| wide(range.len())).collect(),
        chunks: chunks.iter().map(chunk).collect(),
    }
}

type Number = rkyv::Archived<u64>;

/// What both versions say.
fn decode(
    kind: u8,
    dtype: u8,
    shape: &[Number],
    shards: &[ArchivedShardV1],
) -> Result<LeafRecord, RecordError> {
    let meta = meta(kind, dtype, shape)?;
    let regions: Vec<Region> = shards.iter().map(region).collect::<Result<_, _>>()?;
    let Some(grid) = Grid::of_regions(&meta.shape, &regions) else {
        return Err(fault(format!("its {} shards don't tile {meta}", shards.len())));
    };
    if meta.kind != LeafKind::Array && shards.len() > 1 {
        return Err(fault(format!("a {} has {} shards", meta.kind, shards.len())));
    }
    let (mut chunks, mut chunk_ends) = (Vec::new(), Vec::with_capacity(shards.len()));
    for (shard, region) in shards.iter().zip(&regions) {
        let first = chunks.len();
        for archive in shard.chunks.iter() {
            let chunk = chunk(archive)?;
            let raw_len = usize::try_from(chunk.info.raw_len).unwrap_or(usize::MAX);
            if !raw_len.is_multiple_of(meta.dtype.size_bytes()) {
                return Err(fault(format!("a chunk of {} has {raw_len} raw bytes", meta.dtype)));
            }
            chunks.push(chunk);
        }
        chunk_ends.push(chunks.len());
        let of_shard = chunks.get(first..).unwrap_or_default();
        let found = of_shard.iter().map(|chunk| u64::from(chunk.info.raw_len)).sum::<u64>();
        // It lies in the array, whose size does not overflow.
        let expected = region.elements() * meta.dtype.size_bytes();
        if u64::try_from(expected) != Ok(found) {
            let what =
                if shards.len() == 1 { meta.to_string() } else { format!("the shard {region}") };
            return Err(fault(format!("{what} has {expected} bytes, its chunks have {found}")));
        }
    }
    let parts = (shards.len() > 1).then(|| Box::new(Parts { grid, chunk_ends }));
    Ok(LeafRecord { meta, sharding: None, parts, chunks })
}

fn region(shard: &ArchivedShardV1) -> Result<Region, RecordError> {
    let range = |(start, length): (&Number, &Number)| {
        let start = usize::try_from(start.to_native()).ok()?;
        Some(start..start.checked_add(usize::try_from(length.to_native()).ok()?)?)
    };
    if shard.start.len() != shard.shape.len() || shard.shape.len() > MAX_DIMENSIONS {
        return Err(fault(format!("a shard has {} dimensions", shard.shape.len())));
    }
    let ranges: Option<Vec<_>> = shard.start.iter().zip(shard.shape.iter()).map(range).collect();
    Ok(Region::new(ranges.ok_or_else(|| fault("a shard ends beyond any array"))?))
}

fn meta(kind: u8, dtype: u8, shape: &[Number]) -> Result<LeafMeta, RecordError> {
    let kind = LeafKind::from_code(kind).ok_or_else(|| fault(format!("its kind is {kind}")))?;
    let dtype =
        DType::from_code(dtype).ok_or_else(|| fault(format!("its element type is {dtype}")))?;
    if shape.len() > MAX_DIMENSIONS {
        return Err(fault(format!("it has {} dimensions", shape.len())));
    }
    let lengths = shape.iter().map(|length| usize::try_from(length.to_native()));
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
        let meta = LeafMeta::array(DType::F32, Shape::new([2, 4]).unwrap());
        LeafRecord::whole(meta, vec![chunk, StoredChunk { pack: 10, offset: 0, ..chunk }])
    }

    #[test]
    fn a_leaf_record_comes_back() {
        let bytes = record().encode(3, b"p").unwrap();
        assert_eq!(LeafRecord::decode(3, b"p", &bytes).unwrap(), record());
        let meta = LeafMeta::array(DType::F32, Shape::new([0, 4]).unwrap());
        let empty = LeafRecord::whole(meta, vec![]);
        let bytes = empty.encode(3, b"p").unwrap();
        assert_eq!(LeafRecord::decode(3, b"p", &bytes).unwrap(), empty);
    }

    /// Two rows over two devices, and one row that is whole.
    fn sharded() -> LeafRecord {
        let record = record();
        let grid = Grid::cut(&record.meta.shape, [vec![1], vec![]]);
        let parts = Some(Box::new(Parts { grid, chunk_ends: vec![1, 2] }));
        LeafRecord { sharding: Some(3), parts, ..record }
    }

    #[test]
    fn a_sharded_leaf_is_a_record_of_version_2() {
        for record in [
            sharded(),
            LeafRecord { sharding: None, ..sharded() },
            LeafRecord { parts: None, ..sharded() },
        ] {
            let bytes = record.encode(3, b"p").unwrap();
            assert_eq!(bytes[5], 2);
            assert_eq!(LeafRecord::decode(3, b"p", &bytes).unwrap(), record);
        }
        assert_eq!(record().encode(3, b"p").unwrap()[5], 1);
        let ids = |record: &LeafRecord| {
            let ids = record.chunks_with_ids(b"p").map(|(id, _)| (id.shard, id.index));
            ids.collect::<Vec<_>>()
        };
        assert_eq!((ids(&record()), ids(&sharded())), (vec![(0, 0), (0, 1)], vec![(0, 0), (1, 0)]));
    }

    #[test]
    fn shards_that_do_not_tile_the_array_are_refused() {
        let refuse = |change: &dyn Fn(&mut LeafV2), message: &str| {
            let record = sharded();
            let parts = record.parts.as_ref().unwrap();
            let mut leaf = LeafV2 {
                kind: record.meta.kind.code(),
                dtype: record.meta.dtype.code(),
                shape: vec![2, 4],
                sharding: None,
                shards: record.shards(parts),
            };
            change(&mut leaf);
            let payload = rkyv::to_bytes::<rancor::Error>(&leaf).unwrap();
            let bytes = seal_within_limit(Kind::Leaf, 2, &identity(3, b"p"), &payload).unwrap();
            let error = LeafRecord::decode(3, b"p", &bytes).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        };
        refuse(&|leaf| leaf.shards.truncate(1), "its 1 shards don't tile float32[2, 4]");
        refuse(&|leaf| leaf.shards.swap(0, 1), "don't tile");
        refuse(&|leaf| leaf.shards[1].start[0] = 0, "don't tile");
        refuse(&|leaf| leaf.shards[1].start[1] = u64::MAX, "ends beyond any array");
        refuse(&|leaf| leaf.shards[1].shape[1] = 1 << 40, "don't tile");
        refuse(&|leaf| leaf.shards[1].shape.truncate(1), "a shard has 1 dimensions");
        refuse(&|leaf| leaf.shards.clear(), "its 0 shards don't tile");
        refuse(
            &|leaf| leaf.shards[1].chunks.clear(),
            "[1..2, 0..4] has 16 bytes, its chunks have 0",
        );
        refuse(
            &|leaf| leaf.shards[1].chunks[0].raw_len = 15,
            "a chunk of float32 has 15 raw bytes",
        );
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
        let meta = LeafMeta::array(DType::F32, Shape::new([2, 3]).unwrap());
        let record = LeafRecord::whole(meta, vec![StoredChunk { pack: 9, offset: 32, info }]);
        let bytes = record.encode(100, &[3, b'w', 0]).unwrap();
        let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let page = include_str!("../../docs/format.md");
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
