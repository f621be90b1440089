//! Ranks that share a file, in one process: each with a store of its own, as processes have.

#[path = "../common/mod.rs"]
mod common;
mod disagreements;
mod sweeps;
mod world;

use std::path::Path;
use std::time::Duration;

use milepost::keep_policy::LatestN;
use milepost::sharding::{
    Device, Mesh, NamedSharding, PartitionSpec, Platform, SingleDeviceSharding,
};
use milepost::{
    CheckpointManager, CheckpointStore, DType, ErrorKind, Leaf, LeafSource, ManagerOptions, Rank,
    RankState, SaveOptions, SaveReport, SkipReason, StoreOptions, Tree,
};
use proptest::prelude::*;
use world::{World, check, open, whole};

#[test]
fn a_step_is_there_when_the_last_rank_has_saved_it() {
    let world = World::new(4);
    let stores = world.open_all();
    let reader = CheckpointStore::open_read_only(&world.path).unwrap();
    for (rank, missing) in [(2, vec![0, 1, 3]), (0, vec![1, 3]), (3, vec![1])] {
        let report = world.save(&stores[rank], 5).unwrap();
        assert_eq!(report.missing_ranks, missing);
        assert_eq!(reader.latest_step().unwrap(), None);
        assert_eq!(reader.read(5).unwrap_err().kind(), ErrorKind::NotFound);
        let pending = &reader.pending_steps().unwrap()[0];
        assert_eq!((pending.step, pending.world_size), (5, 4));
        assert_eq!(pending.missing_ranks(), missing);
        check(&reader);
    }
    let error = reader.wait_committed(5, Duration::ZERO).unwrap_err();
    assert_eq!((error.kind(), error.step()), (ErrorKind::TimedOut, Some(5)));
    assert!(error.to_string().contains("rank 1 of 4 has not arrived"), "{error}");

    let report = world.save(&stores[1], 5).unwrap();
    assert_eq!(report.missing_ranks, [0; 0]);
    for store in stores.iter().chain([&reader]) {
        assert_eq!(store.wait_committed(5, Duration::ZERO).unwrap(), report.info);
        assert_eq!(store.pending_steps().unwrap(), []);
        check(store);
        assert_eq!(store.read(5).unwrap().restore().unwrap(), world.whole(5));
    }
    assert_eq!(reader.all_steps().unwrap(), [5]);
}

/// The step is the very one that a single process would have saved.
#[test]
fn what_ranks_save_has_the_digest_of_what_one_process_saves() {
    let world = World::new(3);
    let stores = world.open_all();
    let info = world.save_all(&stores, 7).info;
    let alone = CheckpointStore::create(world.path.with_extension("alone")).unwrap();
    let expected = alone.save(7, &world.given_whole(7), &SaveOptions::new()).unwrap().info;
    assert_eq!(info.digest, expected.digest);
    assert_eq!(
        (info.leaf_count, info.logical_bytes, info.stored_bytes),
        (expected.leaf_count, expected.logical_bytes, expected.stored_bytes)
    );
}

#[test]
fn what_did_not_change_is_not_written_again() {
    let world = World::new(2);
    let stores = world.open_all();
    world.save_all(&stores, 1);
    let before = stores[0].stats().unwrap().packs;
    for store in &stores {
        let again = store.save(2, &world.state(store.rank().unwrap(), 1), &SaveOptions::new());
        assert_eq!(again.unwrap().cost.written_chunks, 0);
    }
    assert_eq!(stores[0].stats().unwrap().packs, before);
    // Also after a restart, and by what was read from the file.
    drop(stores);
    let stores = world.open_all();
    for store in &stores {
        let again = store.save(3, &world.state(store.rank().unwrap(), 1), &SaveOptions::new());
        assert_eq!(again.unwrap().cost.written_chunks, 0);
    }
    check(&stores[0]);
    stores[0].rollback_to(2).unwrap();
    for step in [1, 2] {
        stores[1].delete(step).unwrap();
    }
    assert_eq!(stores[0].stats().unwrap().packs, 0);
    check(&stores[1]);
}

/// While one rank is on its way with what it took over from a step, another one removes that step.
#[test]
fn what_a_rank_uses_again_stays_while_it_waits() {
    let world = World::new(2);
    let stores = world.open_all();
    world.save_all(&stores, 1);
    let state = |rank: usize| world.state(stores[rank].rank().unwrap(), 1);
    stores[0].save(2, &state(0), &SaveOptions::new()).unwrap();
    stores[1].delete(1).unwrap();
    check(&stores[1]);
    stores[1].save(2, &state(1), &SaveOptions::new()).unwrap();
    check(&stores[0]);
    assert_eq!(stores[0].read(2).unwrap().restore().unwrap(), world.whole(1));
}

#[test]
fn metrics_and_metadata_are_those_of_the_lowest_rank_that_gives_them() {
    let world = World::new(3);
    let stores = world.open_all();
    let options = |rank: usize| {
        let options = SaveOptions::new().metric(format!("loss{rank}"), 0.5);
        match rank {
            0 => options,
            1 => options.metric("loss", 1.0).custom_metadata("one".into()),
            _ => options.metric("loss", 2.0).custom_metadata("two".into()).pin(),
        }
    };
    for rank in [2, 0, 1] {
        let state = world.state(stores[rank].rank().unwrap(), 4);
        stores[rank].save(4, &state, &options(rank)).unwrap();
    }
    let info = stores[0].step_info(4).unwrap();
    assert_eq!(info.custom_metadata, Some("one".into()));
    assert_eq!(info.metrics["loss"].to_bits(), 1.0f64.to_bits());
    assert_eq!(info.metrics.len(), 4);
    assert!(info.pinned);
}

#[test]
fn a_step_that_is_there_is_replaced_when_all_ranks_ask_for_it() {
    let world = World::new(2);
    let stores = world.open_all();
    world.save_all(&stores, 1);
    let error = world.save(&stores[0], 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    stores[1].pin(1).unwrap();

    let other = |rank: usize| world.state(stores[rank].rank().unwrap(), 9);
    stores[0].save(1, &other(0), &SaveOptions::new().replace()).unwrap();
    // The old one is there until the new one is.
    assert_eq!(stores[1].read(1).unwrap().restore().unwrap(), world.whole(1));
    let error = stores[1].wait_committed(1, Duration::ZERO).unwrap_err();
    assert!(error.to_string().contains("rank 1 of 2 has not arrived"), "{error}");
    stores[1].save(1, &other(1), &SaveOptions::new().replace()).unwrap();
    assert_eq!(stores[0].read(1).unwrap().restore().unwrap(), world.whole(9));
    assert!(stores[0].wait_committed(1, Duration::ZERO).unwrap().pinned);
    check(&stores[0]);
}

/// Managers in the background, with a keep policy.
#[test]
fn managers_save_in_the_background_and_keep_what_the_policy_says() {
    let world = World::new(2);
    let managers = [0, 1].map(|number| {
        let options = ManagerOptions::new()
            .rank(Rank::new(number, 2).unwrap())
            .save_interval_steps(2)
            .unwrap()
            .keep(LatestN(2));
        CheckpointManager::open(&world.path, options).unwrap()
    });
    for step in 1u32..=8 {
        for manager in &managers {
            let state = world.state(manager.store().rank().unwrap(), step);
            manager.save(step.into(), &state).unwrap();
            if step == 4 {
                // By then it has saved it.
                manager.wait_until_finished().unwrap();
                let again = manager.save(step.into(), &state).unwrap().wait().unwrap();
                assert!(!again.is_saved());
            }
        }
    }
    for manager in &managers {
        manager.wait_until_finished().unwrap();
        assert_eq!(manager.wait_committed(8, Duration::from_mins(1)).unwrap().step, 8);
        assert_eq!(manager.all_steps().unwrap(), [6, 8]);
        assert_eq!(manager.restore(8).unwrap(), world.whole(8));
        check(manager.store());
    }
    let own = world.state(managers[0].store().rank().unwrap(), 10);
    managers[0].save_blocking(10, &own).unwrap();
    // It waits for the other rank, and is not saved twice.
    match managers[0].save_blocking(10, &own).unwrap() {
        milepost::SaveOutcome::Skipped(reason) => assert_eq!(reason, SkipReason::AlreadySaved),
        other => panic!("{other:?}"),
    }
}

/// A stage of a pipeline has all of its layers, and nothing of the others'.
#[test]
fn an_array_of_one_device_is_given_by_its_rank() {
    let world = World::new(2);
    let stores = world.open_all();
    for (number, store) in stores.iter().enumerate() {
        let layer = |owner: usize| {
            let device = Device::new(Platform::Cuda, u32::try_from(owner).unwrap());
            let own = (owner == number).then(|| {
                (
                    device.clone(),
                    Leaf::from_vec(vec![u8::try_from(owner).unwrap(); 5], [5]).unwrap(),
                )
            });
            let sharding = SingleDeviceSharding::new(device);
            Tree::Leaf(Leaf::from_local_shards(DType::U8, [5], sharding, own).unwrap())
        };
        let state = Tree::list([layer(0), layer(1)]);
        store.save(3, &state, &SaveOptions::new()).unwrap();
    }
    let restored = stores[0].read(3).unwrap().restore().unwrap();
    let contents: Vec<_> =
        ["[0]", "[1]"].map(|path| restored.get(&path.parse().unwrap())).into_iter().collect();
    for (number, leaf) in contents.into_iter().enumerate() {
        let Some(Tree::Leaf(leaf)) = leaf else { panic!("{leaf:?}") };
        assert_eq!(leaf.contents().unwrap(), [u8::try_from(number).unwrap(); 5]);
    }
}

#[test]
fn what_one_process_has_of_an_array_is_no_step_of_its_own() {
    let world = World::new(2);
    let state = world.state(Rank::new(1, 2).unwrap(), 1);
    let store = CheckpointStore::create(&world.path).unwrap();
    let error = store.save(1, &state, &SaveOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(
        error
            .to_string()
            .contains("large: the region [0..300, 0..1000] of uint32[300, 2000] is missing"),
        "{error}"
    );
    assert!(error.to_string().contains("open the store as a rank"), "{error}");
    let mut out = vec![0; 9 * 7 * 4];
    let region = milepost::Region::new([0..9, 0..7]);
    let error = state.read_region(&"w".parse().unwrap(), &region, &mut out).unwrap_err();
    assert!(error.to_string().contains("not all in this process"), "{error}");
    // All of it is.
    let all = world.state_of_all(1);
    store.save(1, &all, &SaveOptions::new()).unwrap();
    assert_eq!(store.read(1).unwrap().restore().unwrap(), world.whole(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// Random arrays over random meshes, saved by random ranks in any order and read as a whole.
    #[test]
    fn ranks_save_any_array(
        lengths in prop::collection::vec(0usize..40, 0..4),
        (rows, columns) in (1usize..4, 1usize..4),
        axes in Just(vec![Some("x"), Some("y"), None]).prop_shuffle(),
        world_size in 1u32..5,
        background: bool,
        hint in prop::option::of(0usize..3),
        seed: u32,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let count = rows * columns;
        let devices: Vec<_> = (0..count).map(|number| Device::new(Platform::Cuda, u32::try_from(number).unwrap())).collect();
        let mesh = Mesh::new(devices.clone(), [("x", rows), ("y", columns)]).unwrap();
        let spec: Vec<_> = axes.into_iter().take(lengths.len()).collect();
        let sharding = NamedSharding::new(mesh, PartitionSpec::new(spec)).unwrap();
        let array = whole(&lengths, seed);
        let mut options = StoreOptions::new().compression(milepost::Compression::Auto);
        if let Some(axis) = hint.filter(|axis| *axis < lengths.len()) {
            let bytes = std::num::NonZeroUsize::new(100).unwrap();
            options = options.chunk_hint_for("**", milepost::ChunkHint::new([axis], bytes).unwrap()).unwrap();
        }
        for number in (0..world_size).rev() {
            let own = devices.iter().enumerate().filter(|(place, _)| place % usize::try_from(world_size).unwrap() == usize::try_from(number).unwrap());
            let sharding = milepost::sharding::Sharding::from(sharding.clone());
            let layout = sharding.layout(&array.meta().shape).unwrap();
            let own = own.map(|(_, device)| (device.clone(), world::cut(&array, &layout.region_of(device).unwrap())));
            let leaf = Leaf::from_local_shards(DType::U32, lengths.clone(), sharding.clone(), own).unwrap();
            let leaf = Tree::map([("a", Tree::Leaf(leaf))]);
            let rank = Rank::new(number, world_size).unwrap();
            if background {
                let options = ManagerOptions::new().rank(rank).store(options.clone());
                let manager = CheckpointManager::open(&path, options).unwrap();
                manager.save(1, &leaf).unwrap();
                manager.close().unwrap();
            } else {
                open(&path, rank, options.clone()).save(1, &leaf, &SaveOptions::new()).unwrap();
            }
        }
        let store = CheckpointStore::open_read_only(&path).unwrap();
        check(&store);
        let reader = store.read(1).unwrap();
        let read = reader.read_leaf(&"a".parse().unwrap()).unwrap();
        prop_assert_eq!(read.contents(), array.contents());
        prop_assert_eq!(&read.meta().shape, &array.meta().shape);
    }
}

fn reported(report: milepost::Result<SaveReport>) -> Vec<u32> {
    report.unwrap().missing_ranks
}

fn states(path: &Path) -> Vec<(u64, u32, RankState)> {
    let steps = CheckpointStore::open_read_only(path).unwrap().pending_steps().unwrap();
    let of = |step: milepost::PendingStep| {
        step.ranks.into_iter().map(move |rank| (step.step, rank.rank, rank.state))
    };
    steps.into_iter().flat_map(of).collect()
}
