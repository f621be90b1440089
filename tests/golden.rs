//! Files of every format version stay readable, and reading leaves them as they are.
//!
//! The files were made by `cargo test --test golden -- --ignored`, with the milepost of their
//! time. They are never made again: a new version of the format gets new files.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use milepost::sharding::{Device, Mesh, NamedSharding, PartitionSpec, Platform};
use milepost::{
    CheckpointStore, Compression, DType, ErrorKind, Leaf, LeafSource, Rank, SaveOptions,
    StoreOptions, Tree,
};
use redb::TableDefinition;

const META: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("meta");

/// With leaf records of version 2.
const SHARDED: &str = "v1-sharded.milepost";

/// With the tables of ranks: rank 0 of 2 has given its contribution to step 2, which waits.
const RANKS: &str = "v1-ranks.milepost";

const VERSION_1: [(&str, Compression); 5] = [
    ("v1.milepost", Compression::None),
    ("v1-lz4.milepost", Compression::Lz4),
    ("v1-byte-planes.milepost", Compression::BytePlanes),
    // Made before exponents were raised.
    ("v1-bit-planes.milepost", Compression::BitPlanes),
    ("v1-raised-bit-planes.milepost", Compression::BitPlanes),
];

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// An array that has chunks in packs of its own and in a shared one, and that LZ4 shrinks.
fn large() -> Tree<Leaf<'static>> {
    let elements: Vec<u16> =
        (0..70_000u32).map(|index| u16::try_from(index / 7).unwrap()).collect();
    Tree::tuple([Tree::Leaf(Leaf::from_vec(elements, [7, 10_000]).unwrap())])
}

/// An array over two devices along its last axis, of which each chunk has a part of every row.
fn sharded() -> (Tree<Leaf<'static>>, Tree<Leaf<'static>>) {
    let gpus = [0, 1].map(|ordinal| Device::new(Platform::Cuda, ordinal));
    let mesh = Mesh::new(gpus.clone(), [("model", 2)]).unwrap();
    let spec = PartitionSpec::new([None, Some("model")]);
    let sharding = NamedSharding::new(mesh, spec).unwrap();
    let whole: Vec<u32> = (0..70_000).collect();
    let half = |first: usize| -> Vec<u32> {
        whole.chunks(10_000).flat_map(|row| row[first..first + 5_000].to_vec()).collect()
    };
    let halves = [half(0), half(5_000)].map(|half| Leaf::from_vec(half, [7, 5_000]).unwrap());
    let shards = Leaf::from_shards([7, 10_000], sharding, gpus.into_iter().zip(halves)).unwrap();
    (Tree::Leaf(shards), Tree::Leaf(Leaf::from_vec(whole, [7, 10_000]).unwrap()))
}

fn check_sharded(path: &Path) {
    let store = CheckpointStore::open_read_only(path).unwrap();
    let reader = store.read(1).unwrap();
    let (shards, whole) = sharded();
    assert_eq!(reader.restore().unwrap(), whole);
    assert_eq!(reader.structure().unwrap(), shards.structure().unwrap());
    assert_eq!(reader.info().digest_hex(), "e09e06f6b3b346e7d2d5105f8fd755a7");
    assert!(store.verify().unwrap().faults.is_empty());
}

fn options() -> SaveOptions {
    SaveOptions::new()
        .metric("loss", 0.25)
        .metric("a metric with a long name", f64::NEG_INFINITY)
        .custom_metadata(serde_json::json!({"run": "golden", "lr": [1e-3, 3e-4]}))
        .pin()
}

fn make(path: &Path, compression: Compression) {
    let store = StoreOptions::new().compression(compression);
    let store = CheckpointStore::create_with(path, store).unwrap();
    store.save(7, &common::zoo(), &options()).unwrap();
    store.save(u64::MAX, &large(), &SaveOptions::new()).unwrap();
}

fn check(path: &Path) {
    let before = fs::read(path).unwrap();
    let store = CheckpointStore::open_read_only(path).unwrap();
    assert_eq!(store.all_steps().unwrap(), [7, u64::MAX]);
    let reader = store.read(7).unwrap();
    assert_eq!(reader.restore().unwrap(), common::zoo());
    let info = reader.info();
    let metrics: Vec<_> =
        info.metrics.iter().map(|(name, value)| (&name[..], value.to_bits())).collect();
    let expected = [("a metric with a long name", f64::NEG_INFINITY), ("loss", 0.25)];
    assert_eq!(metrics, expected.map(|(name, value)| (name, value.to_bits())));
    let metadata = serde_json::json!({"run": "golden", "lr": [1e-3, 3e-4]});
    assert_eq!(info.custom_metadata, Some(metadata));
    assert!(!store.step_info(u64::MAX).unwrap().pinned);
    assert!(info.pinned);
    // The digest is over contents, so it is that of every file with these leaves in these chunks.
    assert_eq!(info.digest_hex(), "4aecaadb68b6b9d4bf19bd01402cdb10");
    assert_eq!(store.read(u64::MAX).unwrap().restore().unwrap(), large());
    let report = store.verify().unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    drop((reader, store));
    assert!(fs::read(path).unwrap() == before, "reading changed the file");
}

#[test]
#[ignore = "makes the golden files; only for a new version of the format"]
fn make_golden_files() {
    for (name, compression) in VERSION_1 {
        // A file that is there was made by the milepost of its time.
        if !golden(name).exists() {
            make(&golden(name), compression);
        }
    }
    if !golden(SHARDED).exists() {
        make_sharded(&golden(SHARDED));
    }
    if !golden(RANKS).exists() {
        make_ranks(&golden(RANKS));
    }
}

fn make_sharded(path: &Path) {
    let store = CheckpointStore::create(path).unwrap();
    store.save(1, &sharded().0, &SaveOptions::new()).unwrap();
}

#[test]
fn sharded_leaves_are_read() {
    check_sharded(&golden(SHARDED));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(SHARDED);
    make_sharded(&path);
    check_sharded(&path);
}

fn open_as_rank(path: &Path, number: u32) -> CheckpointStore {
    CheckpointStore::open_as_rank(path, Rank::new(number, 2).unwrap(), StoreOptions::new()).unwrap()
}

/// What a rank gives to a step: 40 of 80 numbers.
fn contribution(rank: u32, step: u32) -> Tree<Leaf<'static>> {
    let gpus = [0, 1].map(|ordinal| Device::new(Platform::Cuda, ordinal));
    let own = gpus[usize::try_from(rank).unwrap()].clone();
    let mesh = Mesh::new(gpus, [("data", 2)]).unwrap();
    let sharding = NamedSharding::new(mesh, PartitionSpec::new([Some("data")])).unwrap();
    let rows: Vec<u32> = (0..40).map(|number| step * 100 + rank * 40 + number).collect();
    let shard = (own, Leaf::from_vec(rows, [4, 10]).unwrap());
    let array = Leaf::from_local_shards(DType::U32, [8, 10], sharding, [shard]).unwrap();
    Tree::map([("array", Tree::Leaf(array)), ("step", Tree::Leaf(Leaf::scalar(step)))])
}

fn make_ranks(path: &Path) {
    let [first, second] = [0, 1].map(|rank| open_as_rank(path, rank));
    second.save(1, &contribution(1, 1), &SaveOptions::new()).unwrap();
    first.save(1, &contribution(0, 1), &SaveOptions::new()).unwrap();
    first.save(2, &contribution(0, 2), &SaveOptions::new().metric("loss", 0.5)).unwrap();
}

fn check_ranks(path: &Path) {
    let whole = |step: u32| {
        let array = Leaf::from_vec((step * 100..step * 100 + 80).collect(), [8, 10]).unwrap();
        Tree::map([("array", Tree::Leaf(array)), ("step", Tree::Leaf(Leaf::scalar(step)))])
    };
    let store = CheckpointStore::open_read_only(path).unwrap();
    assert_eq!(store.all_steps().unwrap(), [1]);
    assert_eq!(store.read(1).unwrap().restore().unwrap(), whole(1));
    let pending = store.pending_steps().unwrap();
    assert_eq!((pending[0].step, pending[0].missing_ranks()), (2, vec![1]));
    assert!(store.verify().unwrap().faults.is_empty());
    // The other rank comes, to a copy.
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    fs::copy(path, &copy).unwrap();
    let second = open_as_rank(&copy, 1);
    let report = second.save(2, &contribution(1, 2), &SaveOptions::new()).unwrap();
    assert_eq!(report.missing_ranks, [0; 0]);
    assert_eq!(report.info.metrics["loss"].to_bits(), 0.5f64.to_bits());
    assert_eq!(second.read(2).unwrap().restore().unwrap(), whole(2));
    assert!(second.verify().unwrap().faults.is_empty());
}

#[test]
fn what_a_rank_gave_waits_for_the_others() {
    check_ranks(&golden(RANKS));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(RANKS);
    make_ranks(&path);
    check_ranks(&path);
}

#[test]
fn files_of_version_1_are_read() {
    for (name, _) in VERSION_1 {
        check(&golden(name));
    }
}

#[test]
fn what_is_written_today_is_read_too() {
    let folder = tempfile::tempdir().unwrap();
    for (name, compression) in common::COMPRESSIONS {
        let path = folder.path().join(name);
        make(&path, compression);
        check(&path);
    }
}

#[test]
fn a_newer_format_is_refused_by_name_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("newer.milepost");
    fs::copy(golden("v1.milepost"), &path).unwrap();
    let database = redb::Database::open(&path).unwrap();
    let tx = database.begin_write().unwrap();
    tx.open_table(META).unwrap().insert("format", &2u32.to_le_bytes()[..]).unwrap();
    tx.commit().unwrap();
    drop(database);
    let before = fs::read(&path).unwrap();
    for result in [CheckpointStore::open(&path), CheckpointStore::open_read_only(&path)] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedVersion);
        assert!(error.to_string().contains("format 2, this milepost reads up to 1"), "{error}");
    }
    assert!(fs::read(&path).unwrap() == before, "a refused file was changed");
}
