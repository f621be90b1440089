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
pub(in crate::record) struct LeafV2 {
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
        let LeafV2 { kind, dtype, shape, sharding, shards } = self.to_archive();
        let archive = if sharding.is_none() && self.parts.is_none() {
            let leaf = LeafV1 { kind, dtype, shape, sharding: None, shards };
            (1, rkyv::to_bytes::<rancor::Error>(&leaf))
        } else {
            let leaf = LeafV2 { kind, dtype, shape, sharding, shards };
            (2, rkyv::to_bytes::<rancor::Error>(&leaf))
        };
        let (version, payload) = archive;
        let payload = payload.map_err(|error| Kind::Leaf.archive(&error))?;
        seal_within_limit(Kind::Leaf, version, &identity(step, path), &payload)
    }

    pub(in crate::record) fn to_archive(&self) -> LeafV2 {
        let shards = match &self.parts {
            None => vec![shard(&Region::whole(&self.meta.shape), &self.chunks)],
            Some(parts) => self.shards(parts),
        };
        LeafV2 {
            kind: self.meta.kind.code(),
            dtype: self.meta.dtype.code(),
            shape: self.meta.shape.lengths().iter().copied().map(wide).collect(),
            sharding: self.sharding,
            shards,
        }
    }

    /// A leaf of which each part is there or has no chunks.
    pub(in crate::record) fn of_contribution(leaf: &ArchivedLeafV2) -> Result<Self, RecordError> {
        let sharding = leaf.sharding.as_ref().map(|number| number.to_native());
        let record = decode(leaf.kind, leaf.dtype, &leaf.shape, &leaf.shards, Parted::InPart)?;
        Ok(Self { sharding, ..record })
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
            let record = decode(leaf.kind, leaf.dtype, &leaf.shape, &leaf.shards, Parted::Whole)?;
            if leaf.sharding.is_some() || record.parts.is_some() {
                return Err(fault("it is sharded, which this version of it can't be"));
            }
            return Ok(record);
        }
        let leaf = rkyv::access::<ArchivedLeafV2, rancor::Error>(payload)
            .map_err(|error| Kind::Leaf.archive(&error))?;
        let sharding = leaf.sharding.as_ref().map(|number| number.to_native());
        Ok(Self {
            sharding,
            ..decode(leaf.kind, leaf.dtype, &leaf.shape, &leaf.shards, Parted::Whole)?
        })
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

/// Whether all parts of a leaf have to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parted {
    Whole,
    InPart,
}

/// What both versions say.
fn decode(
    kind: u8,
    dtype: u8,
    shape: &[Number],
    shards: &[ArchivedShardV1],
    parted: Parted,
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
        if parted == Parted::InPart && found == 0 {
            continue;
        }
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
mod tests;
