//! Arrays that are spread over devices: saved as their shards, read as a whole or by region.

mod arrays;
mod chunk_hints;
#[path = "../common/mod.rs"]
mod common;
mod placing;
mod restore;

use arrays::{Array, arrays, named, state};
use milepost::sharding::{Device, Platform, SingleDeviceSharding};
use milepost::{
    CheckpointManager, CheckpointStore, Compression, DType, ErrorKind, Leaf, LeafSource,
    ManagerOptions, Region, SaveOptions, StoreOptions, Tree,
};
use proptest::prelude::*;

#[track_caller]
fn check(store: &CheckpointStore) {
    let report = store.verify().unwrap();
    assert!(report.is_complete() && report.faults.is_empty(), "{:?}", report.faults);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Saved as shards, in the background and at once, read as a whole and by region.
    #[test]
    fn what_is_saved_as_shards_is_read_as_a_whole(
        arrays in prop::collection::vec(arrays(), 1..4),
        compression in prop::sample::select(vec![Compression::None, Compression::Lz4]),
        corners in prop::collection::vec((0usize..130, 0usize..130), 3),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let options = ManagerOptions::new().store(StoreOptions::new().compression(compression));
        let manager = CheckpointManager::open(folder.path().join("run"), options).unwrap();
        manager.save_blocking(1, &state(&arrays, Array::leaf)).unwrap();
        manager.save(2, &state(&arrays, Array::leaf)).unwrap().wait().unwrap();
        for step in [1, 2] {
            prop_assert_eq!(manager.restore(step).unwrap(), state(&arrays, Array::whole));
            let mut into = state(&arrays, |array| {
                Leaf::from_vec(vec![7u32; array.elements.len()], array.shape.clone()).unwrap()
            });
            manager.restore_into(step, &mut into).unwrap();
            prop_assert_eq!(into, state(&arrays, Array::whole));
        }
        check(manager.store());
        let reader = manager.store().read(2).unwrap();
        for (number, array) in arrays.iter().enumerate() {
            let path = format!("[{number}]").parse().unwrap();
            let meta = reader.leaf_meta(&path).unwrap();
            prop_assert_eq!(meta.sharding.as_ref(), Some(&array.sharding));
            prop_assert_eq!(reader.read_leaf(&path).unwrap(), array.whole());
            let range = |(length, (a, b)): (&usize, &(usize, usize))| {
                let (a, b) = (*a.min(length), *b.min(length));
                a.min(b)..a.max(b)
            };
            let region = Region::new(array.shape.iter().zip(&corners).map(range).collect::<Vec<_>>());
            let mut bytes = vec![0; region.elements() * 4];
            reader.read_region(&path, &region, &mut bytes).unwrap();
            let expected = array.region(&region).into_iter().flat_map(u32::to_le_bytes);
            prop_assert_eq!(bytes, expected.collect::<Vec<_>>());
        }
        // The second save wrote nothing, and nothing of either is left when both are gone.
        drop(reader);
        let stats = manager.store().stats().unwrap();
        prop_assert_eq!(stats.live_bytes, stats.shared_bytes);
        for step in [1, 2] {
            manager.store().delete(step).unwrap();
        }
        prop_assert_eq!(manager.store().stats().unwrap().packs, 0);
        check(manager.store());
    }

    /// From one store to another, through borrowed shards, and cut anew where the sharding changes.
    #[test]
    fn a_step_is_saved_again_as_it_is_or_with_another_sharding(
        array in arrays(),
        other in arrays(),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::create(folder.path().join("one")).unwrap();
        let shards = array.shards();
        let borrowed = shards.iter().map(|(device, elements, lengths)| {
            (device.clone(), Leaf::from_slice(elements, lengths.clone()).unwrap())
        });
        let leaf =
            Leaf::from_shards(array.shape.clone(), array.sharding.clone(), borrowed).unwrap();
        store.save(1, &Tree::Leaf(leaf), &SaveOptions::new()).unwrap();
        let copy = CheckpointStore::create(folder.path().join("two")).unwrap();
        copy.save_source(1, &store.read(1).unwrap(), &SaveOptions::new()).unwrap();
        let root = "/".parse().unwrap();
        prop_assert_eq!(copy.read(1).unwrap().restore().unwrap(), Tree::Leaf(array.whole()));
        let meta = copy.read(1).unwrap().leaf_meta(&root).unwrap();
        prop_assert_eq!(meta.sharding.as_ref(), Some(&array.sharding));
        // Another sharding of the same array, beside the first step.
        if let Ok(whole) = array.whole().with_sharding(other.sharding.clone()) {
            copy.save(2, &Tree::Leaf(whole), &SaveOptions::new()).unwrap();
            prop_assert_eq!(copy.read(2).unwrap().restore().unwrap(), Tree::Leaf(array.whole()));
            let meta = copy.read(2).unwrap().leaf_meta(&root).unwrap();
            prop_assert_eq!(meta.sharding, Some(other.sharding));
        }
        check(&copy);
    }
}

/// A large array whose shards are cut along its last axis: every chunk has rows of all of it.
#[test]
fn columns_come_back_to_their_rows() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let shape = vec![1_200, 1_001];
    let elements = common::noise(1, 1_200 * 1_001);
    for spec in [&[None, Some("x")][..], &[Some("x")], &[Some("x"), Some("y")], &[]] {
        let sharding = named(&[("x", 4), ("y", 2)], spec);
        let array = Array { shape: shape.clone(), elements: elements.clone(), sharding };
        let step = store.latest_step().unwrap().map_or(1, |step| step + 1);
        store.save(step, &Tree::Leaf(array.leaf()), &SaveOptions::new()).unwrap();
        let reader = store.read(step).unwrap();
        assert_eq!(reader.restore().unwrap(), Tree::Leaf(array.whole()));
        let region = Region::new([5..700, 3..1_000]);
        let mut bytes = vec![0; region.elements() * 4];
        reader.read_region(&"/".parse().unwrap(), &region, &mut bytes).unwrap();
        let expected: Vec<u8> =
            array.region(&region).into_iter().flat_map(u32::to_le_bytes).collect();
        assert!(bytes == expected, "{spec:?}");
    }
    check(&store);
}

#[test]
fn replicas_are_written_once() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    for (step, (spec, expected)) in
        (1..).zip([(&[][..], 400_000), (&[Some("x")], 400_000), (&[None, Some("y")], 400_000)])
    {
        let sharding = named(&[("x", 4), ("y", 2)], spec);
        let elements = common::noise(u32::try_from(step).unwrap(), 100_000);
        let array = Array { shape: vec![100, 1000], elements, sharding };
        let report = store.save(step, &Tree::Leaf(array.leaf()), &SaveOptions::new()).unwrap();
        assert_eq!(report.cost.written_bytes, expected, "{spec:?}");
    }
}

#[test]
fn a_sharding_is_recorded_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let array = Array {
        shape: vec![10, 10],
        elements: common::noise(3, 100),
        sharding: named(&[("x", 2)], &[None, Some("x")]),
    };
    let options = SaveOptions::new().record_sharding(false);
    store.save(1, &Tree::Leaf(array.leaf()), &options).unwrap();
    let root = "/".parse().unwrap();
    assert_eq!(store.read(1).unwrap().leaf_meta(&root).unwrap().sharding, None);
    assert_eq!(store.read(1).unwrap().restore().unwrap(), Tree::Leaf(array.whole()));
    check(&store);
    // It goes with its step.
    store.save(2, &Tree::Leaf(array.leaf()), &SaveOptions::new()).unwrap();
    let replace = SaveOptions::new().replace();
    store.save(2, &Tree::Leaf(array.whole()), &replace).unwrap();
    assert_eq!(store.read(2).unwrap().leaf_meta(&root).unwrap().sharding, None);
    check(&store);
}

#[test]
fn a_chunk_that_did_not_change_is_found_in_its_shard() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let mut array = Array {
        shape: vec![8, 50_000],
        elements: common::noise(3, 400_000),
        sharding: named(&[("x", 8)], &[Some("x")]),
    };
    store.save(1, &Tree::Leaf(array.leaf()), &SaveOptions::new()).unwrap();
    array.elements[123_456] ^= 1;
    let cost = store.save(2, &Tree::Leaf(array.leaf()), &SaveOptions::new()).unwrap().cost;
    assert_eq!(cost.written_chunks, 1);
    // The same elements in other shards are other chunks.
    array.sharding = named(&[("x", 4)], &[Some("x")]);
    let cost = store.save(3, &Tree::Leaf(array.leaf()), &SaveOptions::new()).unwrap().cost;
    assert_eq!(cost.reused_chunks, 0);
    assert_eq!(store.read(3).unwrap().restore().unwrap(), Tree::Leaf(array.whole()));
    check(&store);
}

#[test]
fn shards_that_are_none_are_refused_by_name() {
    let sharding = named(&[("x", 2), ("y", 2)], &[Some("x")]);
    let half = || Leaf::from_vec(vec![1u32; 6], [2, 3]).unwrap();
    let refused = |shards: Vec<(u32, Leaf<'static>)>| {
        let shards =
            shards.into_iter().map(|(ordinal, leaf)| (Device::new(Platform::Cuda, ordinal), leaf));
        let error = Leaf::from_shards([4, 3], sharding.clone(), shards).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        error.to_string()
    };
    let missing = refused(vec![(0, half()), (1, half())]);
    assert!(missing.contains("[2..4, 0..3]"), "{missing}");
    assert!(missing.contains("cuda:2 or cuda:3"), "{missing}");
    assert!(refused(vec![(0, half()), (0, half())]).contains("cuda:0 is given twice"));
    let unknown = refused(vec![(0, half()), (2, half()), (9, half())]);
    assert!(unknown.contains("cuda:9 is no device of"), "{unknown}");
    let whole = Leaf::from_vec(vec![1u32; 12], [4, 3]).unwrap();
    let shape = refused(vec![(0, half()), (3, whole)]);
    assert!(
        shape.contains("the shard of cuda:3 is uint32[4, 3], expected uint32[2, 3]"),
        "{shape}"
    );
    let dtype = refused(vec![(0, half()), (3, Leaf::from_vec(vec![1i32; 6], [2, 3]).unwrap())]);
    assert!(dtype.contains("the shard of cuda:3 is int32[2, 3]"), "{dtype}");
    assert!(refused(vec![]).contains("no shard of the array [4, 3]"));
    let shards = [(Device::new(Platform::Cuda, 0), half())];
    let short = Leaf::from_shards([4], sharding.clone(), shards);
    assert!(short.is_err() || sharding.devices().len() == 4);
    let single = SingleDeviceSharding::new(Device::new(Platform::Cpu, 0));
    let error = Leaf::scalar(1u8).with_sharding(single).unwrap_err();
    assert!(error.to_string().contains("a scalar can't be sharded"), "{error}");
}

/// What a leaf record names and the step does not have is damage, not an unsharded leaf.
#[test]
fn lost_shardings_are_noticed() {
    const SHARDINGS: redb::TableDefinition<'_, u64, &[u8]> =
        redb::TableDefinition::new("shardings");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let sharding = named(&[("x", 2)], &[Some("x")]);
    let array = Array { shape: vec![4], elements: vec![1, 2, 3, 4], sharding };
    let store = CheckpointStore::create(&path).unwrap();
    store.save(1, &Tree::Leaf(array.leaf()), &SaveOptions::new()).unwrap();
    drop(store);
    let database = redb::Database::open(&path).unwrap();
    let tx = database.begin_write().unwrap();
    tx.open_table(SHARDINGS).unwrap().remove(1).unwrap();
    tx.commit().unwrap();
    drop(database);
    let store = CheckpointStore::open(&path).unwrap();
    let faults = store.verify().unwrap().faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    let error = store.read(1).unwrap().leaf_meta(&"/".parse().unwrap()).unwrap_err();
    for error in [&error, &faults[0]] {
        assert_eq!((error.kind(), error.step()), (ErrorKind::Damaged, Some(1)));
        assert!(error.to_string().contains("the shardings of the step are missing"), "{error}");
    }
    // Its elements are all there.
    let leaf = store.read(1).unwrap().read_leaf(&"/".parse().unwrap()).unwrap();
    assert_eq!(leaf, array.whole());
}

/// Uneven lengths leave the last devices with nothing, which need not be given.
#[test]
fn empty_shards_may_be_left_out() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let sharding = named(&[("x", 4)], &[Some("x")]);
    let array = Array { shape: vec![5], elements: vec![1, 2, 3, 4, 5], sharding };
    let shards = array.shards().into_iter().filter(|(_, elements, _)| !elements.is_empty());
    let shards = shards
        .map(|(device, elements, lengths)| (device, Leaf::from_vec(elements, lengths).unwrap()));
    let leaf = Leaf::from_shards([5], array.sharding.clone(), shards).unwrap();
    assert_eq!(leaf.shards().count(), 3);
    store.save(1, &Tree::Leaf(leaf), &SaveOptions::new()).unwrap();
    assert_eq!(store.read(1).unwrap().restore().unwrap(), Tree::Leaf(array.whole()));
    // An array without elements is one that nobody needs to hold a part of.
    let empty = Array { shape: vec![0, 3], elements: vec![], sharding: array.sharding };
    store.save(2, &Tree::Leaf(empty.leaf()), &SaveOptions::new()).unwrap();
    let meta = store.read(2).unwrap().leaf_meta(&"/".parse().unwrap()).unwrap();
    assert_eq!((meta.dtype, meta.sharding), (DType::U32, Some(empty.sharding)));
    check(&store);
}
