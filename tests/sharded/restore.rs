//! What was saved on some devices comes back on others.

use std::collections::BTreeMap;
use std::path::Path;

use milepost::restore::{
    ArrayPlacement, DeviceLoad, HostBuffer, HostPlacer, PlacedArray, Placer, Restored,
    RestoredLeaf, ShardToPlace,
};
use milepost::sharding::{
    Device, DeviceInfo, DeviceMap, DeviceRegistry, Mesh, NamedSharding, PartitionSpec, Platform,
    Sharding, ShardingPolicies, ShardingPolicy, ShardingReason,
};
use milepost::{
    CheckpointStore, ErrorKind, KeyPath, Leaf, LeafMeta, LeafSource, Region, Result, SaveOptions,
    StoreOptions, Tree,
};
use parking_lot::Mutex;
use proptest::prelude::*;

use crate::arrays::{Array, arrays, gpus, named};
use crate::common;

pub(crate) fn registry(devices: impl IntoIterator<Item = Device>) -> DeviceRegistry {
    DeviceRegistry::new(devices.into_iter().map(DeviceInfo::new)).unwrap()
}

/// `weights`, cut in two, and a scalar.
pub(crate) fn save_on_gpus(store: &CheckpointStore) -> Array {
    let sharding = named(&[("model", 2)], &[None, Some("model")]);
    let array = Array { shape: vec![3, 4], elements: (0..12).collect(), sharding };
    let state = Tree::map([
        ("lr", Tree::Leaf(Leaf::scalar(0.5f32))),
        ("weights", Tree::Leaf(array.leaf())),
    ]);
    store.save(1, &state, &SaveOptions::new()).unwrap();
    array
}

fn weights<A>(restored: &Restored<A>) -> &PlacedArray<A> {
    match restored.tree.get(&"weights".parse().unwrap()) {
        Some(Tree::Leaf(RestoredLeaf::Array(array))) => array,
        _ => panic!("there are no weights"),
    }
}

/// Each device with the elements that it has.
fn elements(array: &PlacedArray<Leaf<'static>>) -> Vec<(String, Vec<u32>)> {
    let elements = |leaf: &Leaf<'_>| leaf.as_array::<u32>().unwrap().iter().copied().collect();
    let shards = array.shards.iter();
    shards.map(|shard| (shard.device.to_string(), elements(&shard.array))).collect()
}

#[test]
fn what_a_gpu_saved_comes_back_where_there_is_none() {
    // Another process made the file.
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1-sharded.milepost");
    let store = CheckpointStore::open_read_only(file).unwrap();
    let reader = store.read(1).unwrap();
    let plan = reader.plan(None, &DeviceRegistry::host(), ShardingPolicy::Automatic).unwrap();
    let restored = plan.execute(&HostPlacer).unwrap();
    let [placement] = restored.report.arrays() else { panic!("one array") };
    assert_eq!(placement.saved().unwrap().devices(), gpus(2));
    assert_eq!(placement.sharding().to_string(), "SingleDeviceSharding(cpu:0)");
    assert_eq!(placement.reason(), ShardingReason::DevicesMissing);
    let Tree::Leaf(RestoredLeaf::Array(array)) = &restored.tree else { panic!("an array") };
    let whole = (0..70_000).collect();
    assert_eq!(elements(array), [("cpu:0".to_owned(), whole)]);

    // Strict, it says what is missing and what to do.
    let error = reader.plan(None, &DeviceRegistry::host(), ShardingPolicy::AsSaved).unwrap_err();
    assert_eq!((error.kind(), error.step()), (ErrorKind::DevicesMissing, Some(1)));
    for part in [
        "v1-sharded.milepost, step 1: 1 arrays can't be restored as asked",
        "it was saved on cuda:0, cuda:1, which is not here:\n    /",
        "the devices here are cpu:0",
        "ShardingPolicy::Automatic",
        "ShardingPolicy::MapDevices",
        "ShardingPolicy::Sharding or OntoMesh",
    ] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    let map = DeviceMap::new([("cuda:*", "cpu:0")]).unwrap();
    let policy = ShardingPolicy::MapDevices(map);
    let mapped = reader.plan(None, &DeviceRegistry::host(), policy).unwrap();
    assert_eq!(mapped.report().arrays()[0].reason(), ShardingReason::Mapped);
}

#[test]
fn a_strict_error_names_every_array_by_its_devices() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("run")).unwrap();
    let over = |count| named(&[("x", count)], &[Some("x")]);
    let leaf = |count: usize| {
        let leaf = Leaf::from_vec(vec![0u32; count], [count]).unwrap();
        Tree::Leaf(leaf.with_sharding(over(count)).unwrap())
    };
    let here = Tree::list((0..40).map(|number| leaf(1 + number % 3)));
    store.save(7, &here, &SaveOptions::new()).unwrap();
    let reader = store.read(7).unwrap();
    let error = reader.plan(None, &registry(gpus(2)), ShardingPolicy::AsSaved).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("13 arrays") && text.contains("of which cuda:2 is not here"), "{text}");
    for number in 0..40 {
        let named = text.lines().any(|line| line.trim() == format!("[{number}]"))
            || text.contains(&format!("[{number}];"));
        assert_eq!(named, number % 3 == 2, "{number}: {text}");
    }
}

#[test]
fn the_target_decides_where_it_names_a_sharding() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("run")).unwrap();
    // Saved without a sharding: an explicit one is followed, and so is the target's.
    let whole = Leaf::from_vec((0..12u32).collect(), [3, 4]).unwrap();
    let state = Tree::map([("weights", Tree::Leaf(whole))]);
    store.save(1, &state, &SaveOptions::new()).unwrap();
    let reader = store.read(1).unwrap();
    let columns = named(&[("model", 2)], &[None, Some("model")]);
    let expected = [
        ("cuda:0".to_owned(), vec![0, 1, 4, 5, 8, 9]),
        ("cuda:1".to_owned(), vec![2, 3, 6, 7, 10, 11]),
    ];
    let policy = ShardingPolicy::Sharding(columns.clone());
    let plan = reader.plan(None, &registry(gpus(2)), policy).unwrap();
    let restored = plan.execute(&HostPlacer).unwrap();
    assert_eq!(restored.report.arrays()[0].reason(), ShardingReason::Policy);
    assert_eq!(elements(weights(&restored)), expected);

    let target = reader
        .structure()
        .unwrap()
        .map_leaves(|_, meta: LeafMeta| Ok(meta.with_sharding(columns.clone())));
    let target = target.unwrap();
    let plan = reader.plan(Some(&target), &registry(gpus(2)), ShardingPolicy::Automatic).unwrap();
    let restored = plan.execute(&HostPlacer).unwrap();
    assert_eq!(restored.report.arrays()[0].reason(), ShardingReason::Target);
    assert_eq!(elements(weights(&restored)), expected);
    assert_eq!(weights(&restored).meta.sharding, Some(columns));

    // A target of another shape is refused before anything is read.
    let other =
        Tree::map([("weights", Tree::Leaf(Leaf::from_vec(vec![0u32; 12], [4, 3]).unwrap()))]);
    let other = other.map_leaves(|_, leaf| Ok(leaf.meta().clone())).unwrap();
    let error = reader.plan(Some(&other), &registry(gpus(2)), ShardingPolicy::Automatic);
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Mismatch);
}

#[test]
fn policies_go_by_path_and_values_go_to_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("run")).unwrap();
    save_on_gpus(&store);
    let reader = store.read(1).unwrap();
    let policies = ShardingPolicies::new(ShardingPolicy::AsSaved)
        .for_leaves("w*", ShardingPolicy::Host)
        .unwrap();
    let plan = reader.plan(None, &registry(gpus(2)), policies).unwrap();
    let restored = plan.execute(&HostPlacer).unwrap();
    assert_eq!(elements(weights(&restored))[0].0, "cpu:0");
    match restored.tree.get(&"lr".parse().unwrap()) {
        Some(Tree::Leaf(RestoredLeaf::Value(lr))) => assert_eq!(*lr, Leaf::scalar(0.5f32)),
        other => panic!("{other:?}"),
    }
    assert_eq!(restored.report.arrays().len(), 1);
}

#[test]
fn the_plan_says_what_each_device_gets_before_anything_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("run")).unwrap();
    save_on_gpus(&store);
    let reader = store.read(1).unwrap();
    // The rows go to four devices, the last of which gets nothing; 20 bytes are enough for one row.
    let limits = |info: DeviceInfo| match info.device().ordinal() {
        2 => info.with_memory_limit_bytes(15),
        _ => info.with_memory_limit_bytes(20),
    };
    let gpus = gpus(4).into_iter().map(DeviceInfo::new).map(limits);
    let registry = DeviceRegistry::new(gpus).unwrap();
    let rows = ShardingPolicy::Sharding(named(&[("data", 4)], &[Some("data")]));
    let plan = reader.plan(None, &registry, rows).unwrap();
    let loads = plan.devices();
    let bytes: Vec<_> = loads.iter().map(DeviceLoad::bytes).collect();
    assert_eq!(bytes, [16, 16, 16, 0]);
    // Both saved shards, of 24 bytes each, have a part of each row.
    assert_eq!((loads[0].chunks(), loads[0].chunk_bytes()), (2, 48));
    assert_eq!(loads[0].read_amplification(), Some(3.0));
    assert_eq!((loads[3].arrays(), loads[3].regions(), loads[3].chunks()), (1, 0, 0));
    assert_eq!(loads[3].read_amplification(), None);
    assert_eq!(plan.report().chunks_read(), 3, "of two shards and the scalar");
    let table = plan.to_string();
    let line = |start: &str| table.lines().find(|line| line.trim().starts_with(start)).unwrap();
    assert!(line("cuda:0 to cuda:1").contains("3.000"), "{table}");
    assert!(line("cuda:2").contains("! 0.000"), "{table}");
    // It does not fit, and nothing is asked of the placer.
    let error = plan.execute(&Refusing).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("cuda:2 needs 16 bytes and has 15"), "{error}");
}

/// Gives nothing.
struct Refusing;

impl Placer for Refusing {
    type Buffer = Vec<u8>;
    type Array = ();

    fn allocate(&self, shard: &ShardToPlace<'_>) -> Result<Vec<u8>> {
        panic!("memory for {}", shard.path());
    }

    fn place(&self, shard: &ShardToPlace<'_>, _: Vec<u8>) -> Result<Vec<()>> {
        panic!("a place for {}", shard.path());
    }
}

#[test]
fn a_process_reads_only_what_its_own_devices_need() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("run")).unwrap();
    let array = save_on_gpus(&store);
    let reader = store.read(1).unwrap();
    let gpus = gpus(2).into_iter().map(|gpu| {
        let process = gpu.ordinal();
        DeviceInfo::new(gpu).with_process(process)
    });
    let registry = DeviceRegistry::of_process(1, gpus).unwrap();
    let plan = reader.plan(None, &registry, ShardingPolicy::AsSaved).unwrap();
    assert_eq!(plan.report().chunks_read(), 2, "of one of two shards, and of the scalar");
    assert_eq!(plan.devices().iter().map(DeviceLoad::bytes).sum::<u64>(), 48);
    let restored = plan.execute(&HostPlacer).unwrap();
    let half = array.region(&Region::new([0..3, 2..4]));
    assert_eq!(elements(weights(&restored)), [("cuda:1".to_owned(), half)]);
    let error = weights(&restored).clone().into_leaf().unwrap_err();
    assert!(error.to_string().contains("[0..3, 0..2]"), "{error}");
}

/// Counts what it is asked for.
#[derive(Default)]
struct Counting(Mutex<BTreeMap<(KeyPath, String), usize>>);

impl Placer for Counting {
    type Buffer = HostBuffer;
    type Array = Leaf<'static>;

    fn allocate(&self, shard: &ShardToPlace<'_>) -> Result<HostBuffer> {
        let key = (shard.path().clone(), format!("{:?}", shard.region().ranges()));
        // Of an empty array several parts may be the same.
        if shard.size_bytes() > 0 {
            *self.0.lock().entry(key).or_default() += 1;
        }
        HostPlacer.allocate(shard)
    }

    fn place(&self, shard: &ShardToPlace<'_>, contents: HostBuffer) -> Result<Vec<Leaf<'static>>> {
        assert!(!shard.devices().is_empty());
        HostPlacer.place(shard, contents)
    }
}

/// A mesh of one to three axes of other names over 1 to 8 devices in some order, and along which axes each
/// of five dimensions is cut.
fn other_shardings() -> impl Strategy<Value = (Mesh, Vec<Vec<String>>)> {
    let axes = prop::sample::select(vec![
        vec![1],
        vec![8],
        vec![6],
        vec![2, 3],
        vec![4, 2],
        vec![2, 2, 2],
    ]);
    (axes, any::<[prop::sample::Index; 3]>(), any::<bool>()).prop_map(|(axes, places, reversed)| {
        let count = axes.iter().product::<usize>();
        let mut devices: Vec<Device> = (0..u32::try_from(count).unwrap())
            .map(|ordinal| Device::new(Platform::Tpu, ordinal))
            .collect();
        if reversed {
            devices.reverse();
        }
        let names: Vec<_> = ["y", "data", "x"].into_iter().take(axes.len()).collect();
        let mut spec = vec![Vec::new(); 5];
        for (name, place) in names.iter().zip(places) {
            // Beyond the last dimension it replicates.
            if let Some(dimension) = spec.get_mut(place.index(6)) {
                dimension.push((*name).to_owned());
            }
        }
        (Mesh::new(devices, names.into_iter().zip(axes)).unwrap(), spec)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Saved under one sharding, restored under another, saved again as it came, and restored whole.
    #[test]
    fn any_sharding_comes_back_under_any_other(
        arrays in prop::collection::vec(arrays(), 1..4),
        (mesh, spec) in other_shardings(),
        compression in prop::sample::select(common::COMPRESSIONS.map(|row| row.1).to_vec()),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().compression(compression);
        let store = CheckpointStore::create_with(folder.path().join("run"), options).unwrap();
        let state = Tree::list(arrays.iter().map(|array| Tree::Leaf(array.leaf())));
        store.save(1, &state, &SaveOptions::new()).unwrap();
        let reader = store.read(1).unwrap();
        let onto = |meta: LeafMeta| {
            let spec = spec.iter().take(meta.shape.lengths().len()).cloned();
            let named = NamedSharding::new(mesh.clone(), PartitionSpec::from_dimensions(spec));
            meta.with_sharding(named.unwrap())
        };
        let target = reader.structure().unwrap().map_leaves(|_, meta| Ok(onto(meta))).unwrap();
        let here = registry(mesh.devices().iter().cloned());
        let plan = reader.plan(Some(&target), &here, ShardingPolicy::Automatic).unwrap();
        let counting = Counting::default();
        let restored = plan.execute(&counting).unwrap();
        prop_assert!(counting.0.lock().values().all(|times| *times == 1));

        let mut saved_again = Vec::new();
        for (number, array) in arrays.iter().enumerate() {
            let path: KeyPath = format!("[{number}]").parse().unwrap();
            let Some(Tree::Leaf(RestoredLeaf::Array(placed))) = restored.tree.get(&path) else {
                panic!("{path} is no array");
            };
            let sharding: &Sharding = placed.meta.sharding.as_ref().unwrap();
            prop_assert_eq!(placed.shards.len(), mesh.devices().len());
            let layout = sharding.layout(&placed.meta.shape).unwrap();
            for shard in &placed.shards {
                let region = layout.region_of(&shard.device).unwrap();
                prop_assert_eq!(&shard.region, &region);
                let elements = shard.array.as_array::<u32>().unwrap();
                let found: Vec<u32> = elements.iter().copied().collect();
                prop_assert_eq!(found, array.region(&shard.region));
            }
            saved_again.push(Tree::Leaf(placed.clone().into_leaf().unwrap()));
        }
        let total: u64 = plan.devices().iter().map(DeviceLoad::bytes).sum();
        let placed = arrays.iter().zip(plan.report().arrays());
        let of_array = |(array, placement): (&Array, &ArrayPlacement)| {
            let shape = milepost::Shape::new(array.shape.clone()).unwrap();
            let layout = placement.sharding().layout(&shape).unwrap();
            let shards = layout.shards().map(|shard| shard.region.elements() * shard.devices.len() * 4);
            shards.sum::<usize>()
        };
        prop_assert_eq!(total, placed.map(of_array).sum::<usize>() as u64);

        store.save(2, &Tree::list(saved_again), &SaveOptions::new()).unwrap();
        let whole = Tree::list(arrays.iter().map(|array| Tree::Leaf(array.whole())));
        prop_assert_eq!(store.read(2).unwrap().restore().unwrap(), whole);
    }
}
