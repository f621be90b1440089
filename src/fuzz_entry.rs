//! What the fuzz targets call: the decoders, on any bytes. Compiled under `cfg(fuzzing)` alone.
//!
//! Each function returns without a panic whatever it is given, and asserts that what is accepted
//! is encoded to the same again.

use crate::codec::{self, ChunkId, ChunkInfo, Codec, Compression};
use crate::dtype::DType;
use crate::limits::MAX_CHUNK_BYTES;
use crate::path::KeyPath;
use crate::record::{
    Contribution, LeafRecord, PendingRecord, RankRecord, StepRecord, decode_mark, decode_shardings,
    decode_structure, encode_structure, reseal,
};

const STEP: u64 = 7;
const RANK: u64 = 2;

/// Decodes `data` as each kind of record: as it is, and under a right checksum, so that what a
/// record claims is reached too.
pub fn record(data: &[u8]) {
    records(data);
    for resealed in reseal(STEP, RANK, data) {
        records(&resealed);
    }
}

fn records(data: &[u8]) {
    let path = KeyPath::from(["w".into()]).encode();
    if let Ok(leaf) = LeafRecord::decode(STEP, &path, data) {
        let again = leaf.encode(STEP, &path).expect("a decoded record can be encoded");
        assert_eq!(LeafRecord::decode(STEP, &path, &again).as_ref(), Ok(&leaf));
    }
    if let Ok(step) = StepRecord::decode(STEP, data) {
        let again = step.encode(STEP).expect("a decoded record can be encoded");
        let back = StepRecord::decode(STEP, &again).expect("an encoded record can be decoded");
        // Not by `==`: a metric may be NaN.
        assert_eq!(format!("{back:?}"), format!("{step:?}"));
    }
    if let Ok(structure) = decode_structure(STEP, data, &mut |_| Ok(())) {
        let again = encode_structure(STEP, &structure).expect("a decoded record can be encoded");
        let back = decode_structure(STEP, &again, &mut |_| Ok(())).expect("it was encoded");
        assert_eq!(back, structure);
    }
    let _ = decode_mark(data);
    let _ = decode_shardings(STEP, data);
    if let Ok(opened) = RankRecord::decode(RANK, data) {
        let again = opened.encode(RANK).expect("a decoded record can be encoded");
        assert_eq!(RankRecord::decode(RANK, &again), Ok(opened));
    }
    if let Ok(pending) = PendingRecord::decode(STEP, RANK, data) {
        let again = pending.encode(STEP, RANK).expect("a decoded record can be encoded");
        assert_eq!(PendingRecord::decode(STEP, RANK, &again), Ok(pending));
    }
    if let Ok(contribution) = Contribution::decode(STEP, RANK, data) {
        let again = contribution.encode(STEP, RANK).expect("a decoded record can be encoded");
        let back = Contribution::decode(STEP, RANK, &again).expect("it was encoded");
        // Not by `==`: a metric may be NaN.
        assert_eq!(format!("{back:?}"), format!("{contribution:?}"));
    }
}

/// Decodes `data` as a chunk whose record was made by a hostile hand, and encodes and decodes it.
pub fn chunk(data: &[u8]) {
    let Some((header, stored)) = data.split_first_chunk::<8>() else {
        return;
    };
    let [codec, dtype, a, b, c, _, _, _] = *header;
    let raw_len = u32::from_le_bytes([a, b, c, 0]);
    let id = ChunkId {
        path: b"\x03w\0",
        shard: 0,
        index: 0,
        dtype: DType::from_code(dtype).unwrap_or(DType::U8),
    };
    let mut out = vec![0; usize::try_from(raw_len).unwrap_or(0).min(MAX_CHUNK_BYTES)];
    let info = ChunkInfo {
        codec: Codec::from_code(codec % 5).unwrap_or(Codec::Raw),
        raw_len,
        stored_len: u32::try_from(stored.len()).unwrap_or(u32::MAX),
        crc32: 0,
        hash: [0; 16],
    };
    let sealed = codec::with_checksum(id, info, stored);
    let _ = codec::decode(id, &info, stored, &mut out);
    let _ = codec::decode(id, &sealed, stored, &mut out);
    for compression in [
        Compression::None,
        Compression::Lz4,
        Compression::BytePlanes,
        Compression::BitPlanes,
        Compression::Auto,
    ] {
        let raw = &stored[..stored.len().min(MAX_CHUNK_BYTES)];
        let (info, encoded) = codec::encode(id, raw, codec::content_hash(raw), compression);
        let mut back = vec![0; raw.len()];
        codec::decode(id, &info, &encoded, &mut back).expect("an encoded chunk can be decoded");
        assert_eq!(back, raw);
    }
}

/// Decodes and parses `data` as a key path.
pub fn key_path(data: &[u8]) {
    if let Ok(path) = KeyPath::decode(data) {
        assert_eq!(path.encode(), data);
        assert_eq!(path.to_string().parse::<KeyPath>().expect("it was displayed"), path);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(path) = text.parse::<KeyPath>()
    {
        assert_eq!(path.to_string(), text);
    }
}
