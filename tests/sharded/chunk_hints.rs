//! Arrays that are cut so that other slices than rows are cheap to read.

use std::num::NonZeroUsize;

use milepost::restore::RestorePlan;
use milepost::sharding::{DeviceInfo, DeviceRegistry, ShardingPolicy};
use milepost::{
    CheckpointManager, CheckpointStore, ChunkHint, ErrorKind, Leaf, LeafSource, ManagerOptions,
    Region, SaveOptions, StoreOptions, Tree,
};
use proptest::prelude::*;

use crate::arrays::{Array, arrays, gpus, named};

fn hint(axes: impl Into<Vec<usize>>, bytes: usize) -> ChunkHint {
    ChunkHint::new(axes, NonZeroUsize::new(bytes).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_region_of_an_array_with_a_hint_is_what_was_saved(
        array in arrays(),
        axes in prop::collection::vec(0usize..4, 1..4),
        bytes in 1usize..3000,
        ends: [[prop::sample::Index; 2]; 4],
        in_shards: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut axes: Vec<usize> = axes.into_iter().filter(|axis| *axis < array.shape.len()).collect();
        axes.sort_unstable();
        axes.dedup();
        let mut options = StoreOptions::new();
        if !axes.is_empty() {
            options = options.chunk_hint_for("w", hint(axes, bytes)).unwrap();
        }
        let store = CheckpointStore::create_with(folder.path().join("store"), options).unwrap();
        let leaf = if in_shards { array.leaf() } else { array.whole() };
        store.save(1, &Tree::map([("w", Tree::Leaf(leaf))]), &SaveOptions::new()).unwrap();
        let range = |(&length, [a, b]): (&usize, [prop::sample::Index; 2])| {
            let (a, b) = (a.index(length + 1), b.index(length + 1));
            a.min(b)..a.max(b)
        };
        let region = Region::new(array.shape.iter().zip(ends).map(range).collect::<Vec<_>>());
        let reader = store.read(1).unwrap();
        let mut out = vec![0; 4 * region.elements()];
        reader.read_region(&"w".parse().unwrap(), &region, &mut out).unwrap();
        let expected = array.region(&region).into_iter().flat_map(u32::to_le_bytes);
        prop_assert_eq!(out, expected.collect::<Vec<_>>());
        let whole = Tree::map([("w", Tree::Leaf(array.whole()))]);
        prop_assert_eq!(reader.restore().unwrap(), whole);
        let report = store.verify().unwrap();
        prop_assert!(report.faults.is_empty(), "{:?}", report.faults);
    }
}

/// 4 MiB on four devices, in two by two blocks.
fn blocks() -> Array {
    let sharding = named(&[("x", 2), ("y", 2)], &[Some("x"), Some("y")]);
    let elements = (0..1 << 20).collect();
    Array { shape: vec![512, 2048], elements, sharding }
}

/// What is read for each of 16 devices that have a slice of the columns, in slices, rounded up.
fn read_for_columns(store: &CheckpointStore, step: u64) -> Vec<u64> {
    let columns = named(&[("z", 16)], &[None, Some("z")]);
    let read = |process: u32| {
        let devices = gpus(16).into_iter().zip(0..);
        let devices = devices.map(|(device, of)| DeviceInfo::new(device).with_process(of));
        let registry = DeviceRegistry::of_process(process, devices).unwrap();
        let reader = store.read(step).unwrap();
        let policy = ShardingPolicy::Sharding(columns.clone());
        let plan: RestorePlan<'_> = reader.plan(None, &registry, policy).unwrap();
        let of_slice = plan.devices()[usize::try_from(process).unwrap()].bytes();
        plan.report().bytes_read().div_ceil(of_slice)
    };
    (0..16).map(read).collect()
}

#[test]
fn a_slice_along_the_axis_of_the_hint_reads_that_slice_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let array = blocks();
    let whole = Tree::map([("w", Tree::Leaf(array.whole()))]);
    let shards = Tree::map([("w", Tree::Leaf(array.leaf()))]);
    let store = CheckpointStore::create(&path).unwrap();
    store.save(1, &whole, &SaveOptions::new()).unwrap();
    store.save(2, &shards, &SaveOptions::new()).unwrap();
    assert_eq!(read_for_columns(&store, 1), [16; 16]);
    assert_eq!(read_for_columns(&store, 2), [8; 16], "of one of two columns of shards");
    drop(store);

    // A slice has 256 KiB, half of it in each of two shards.
    let mut steps = 3..;
    for (bytes, reads) in [(512 << 10, [2, 4]), (256 << 10, [1, 2]), (64 << 10, [1, 1])] {
        let options = StoreOptions::new().chunk_hint_for("**", hint([1], bytes)).unwrap();
        let manager = CheckpointManager::open(&path, ManagerOptions::new().store(options)).unwrap();
        for (state, read) in [&whole, &shards].into_iter().zip(reads) {
            // From a copy, and from the memory itself.
            let copied = steps.next().unwrap();
            assert!(manager.save(copied, state).unwrap().wait().unwrap().is_saved());
            let direct = steps.next().unwrap();
            assert!(manager.save_blocking(direct, state).unwrap().is_saved());
            let digests = [copied, direct].map(|step| {
                assert_eq!(read_for_columns(manager.store(), step), [read; 16], "step {step}");
                assert_eq!(manager.restore(step).unwrap(), whole);
                manager.step_info(step).unwrap().digest_hex()
            });
            assert_eq!(digests[0], digests[1]);
        }
    }
}

#[test]
fn a_hint_goes_by_path_and_must_fit() {
    let folder = tempfile::tempdir().unwrap();
    let options = StoreOptions::new()
        .chunk_hint_for("**", hint([1], 4096))
        .and_then(|options| options.chunk_hint_for("bias/*", None))
        .unwrap();
    let store = CheckpointStore::create_with(folder.path().join("store"), options).unwrap();
    let vector = || Tree::Leaf(Leaf::from_vec(vec![1u32; 5000], [5000]).unwrap());
    let state = |name| {
        Tree::map([
            ("bias", Tree::map([("b", vector())])),
            (name, Tree::map([("b", vector()), ("name", Tree::Leaf(Leaf::str("text")))])),
            ("step", Tree::Leaf(Leaf::scalar(1u8))),
        ])
    };
    let error = store.save(1, &state("other"), &SaveOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert_eq!(error.path().unwrap().to_string(), "other/b");
    assert!(error.to_string().contains("axis 1 of uint32[5000], which has 1"), "{error}");
    store.save(1, &state("bias"), &SaveOptions::new()).unwrap();

    let bytes = NonZeroUsize::MIN;
    for (axes, says) in [(vec![], "names no axis"), (vec![2, 0, 2], "names axis 2 twice")] {
        let error = ChunkHint::new(axes, bytes).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}
