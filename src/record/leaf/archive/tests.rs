use super::*;

fn record() -> LeafRecord {
    let info = ChunkInfo { codec: Codec::Lz4, raw_len: 16, stored_len: 5, crc32: 1, hash: [3; 16] };
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
    refuse(&|leaf| leaf.shards[1].chunks.clear(), "[1..2, 0..4] has 16 bytes, its chunks have 0");
    refuse(&|leaf| leaf.shards[1].chunks[0].raw_len = 15, "a chunk of float32 has 15 raw bytes");
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
    let page = include_str!("../../../docs/format.md");
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
