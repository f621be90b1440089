//! Ranks that do not mean the same step: refused with what differs, and told to all.

use super::*;

/// Rank 0 of 2 gives `one`, then rank 1 gives `other`, which is refused with each of `says`.
fn refuse(one: &Tree<Leaf<'_>>, other: &Tree<Leaf<'_>>, says: &[&str]) {
    let world = World::new(2);
    let stores = world.open_all();
    stores[0].save(1, one, &SaveOptions::new()).unwrap();
    let error = stores[1].save(1, other, &SaveOptions::new()).unwrap_err();
    assert_eq!((error.kind(), error.step()), (ErrorKind::Mismatch, Some(1)));
    let waited = stores[0].wait_committed(1, Duration::from_mins(1)).unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::Mismatch);
    for say in says {
        assert!(error.to_string().contains(say), "{error}");
        assert!(waited.to_string().contains(say), "{waited}");
    }
    assert!(waited.to_string().contains("rank 1 was refused"), "{waited}");
    check(&stores[0]);
    assert_eq!(stores[0].all_steps().unwrap(), [0; 0]);
    // Both can try again, and nothing of the first try is left.
    stores[0].save(1, one, &SaveOptions::new()).unwrap();
    stores[1].save(1, one, &SaveOptions::new()).unwrap_or_else(|error| {
        assert!(error.to_string().contains("given by no rank"), "{error}");
        world.save(&stores[0], 1).unwrap();
        world.save(&stores[1], 1).unwrap()
    });
    stores[0].delete(1).unwrap();
    assert_eq!(stores[1].stats().unwrap().packs, 0);
    check(&stores[1]);
}

fn map(
    leaves: impl IntoIterator<Item = (&'static str, Tree<Leaf<'static>>)>,
) -> Tree<Leaf<'static>> {
    Tree::map(leaves)
}

fn array<T: milepost::Element>(element: T, length: usize) -> Tree<Leaf<'static>> {
    Tree::Leaf(Leaf::from_vec(vec![element; length], [length]).unwrap())
}

#[test]
fn other_shapes_and_element_types_are_named() {
    let one = map([("a", array(1u8, 3)), ("b", array(1u8, 3))]);
    let other = map([("a", array(1u8, 4)), ("b", array(1i8, 3))]);
    refuse(
        &one,
        &other,
        &[
            "rank 1 and rank 0 differ in 2 places",
            "a: uint8[4] on rank 1, uint8[3] on rank 0",
            "b: int8[3] on rank 1, uint8[3] on rank 0",
        ],
    );
}

#[test]
fn other_structures_are_named() {
    let one = map([("a", array(1u8, 3)), ("b", Tree::list([]))]);
    let other = map([("a", array(1u8, 3)), ("b", Tree::tuple([])), ("c", array(1u8, 3))]);
    refuse(
        &one,
        &other,
        &[
            "rank 1 and rank 0 differ in 2 places",
            "b: a tuple on rank 1, a list on rank 0",
            "c: uint8[3] on rank 1, not on rank 0",
        ],
    );
}

/// Who saves again after a refusal waits for the others, and is not told of the refusal once more.
#[test]
fn a_refusal_is_over_when_a_step_is_saved_again() {
    let world = World::new(2);
    let options = |number| ManagerOptions::new().rank(world.rank(number));
    let managers =
        [0, 1].map(|number| CheckpointManager::open(&world.path, options(number)).unwrap());
    let [good, bad] = [3, 4].map(|length| map([("a", array(1u8, length))]));
    managers[0].save_blocking(1, &good).unwrap();
    managers[1].save_blocking(1, &bad).unwrap_err();
    let error = managers[0].wait_committed(1, Duration::from_mins(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch);

    assert!(managers[0].save(1, &good).unwrap().wait().unwrap().is_saved());
    let error = managers[0].wait_committed(1, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(managers[1].save(1, &good).unwrap().wait().unwrap().is_saved());
    managers[0].wait_committed(1, Duration::ZERO).unwrap();
}

#[test]
fn another_sharding_is_named() {
    let world = World::new(2);
    let leaf = |axis: Option<&str>, device: usize| {
        let mesh = Mesh::new(world.devices(), [("x", 2)]).unwrap();
        let sharding = NamedSharding::new(mesh, PartitionSpec::new([axis])).unwrap();
        let length = if axis.is_some() { 2 } else { 4 };
        let own =
            (world.devices()[device].clone(), Leaf::from_vec(vec![7u8; length], [length]).unwrap());
        map([("w", Tree::Leaf(Leaf::from_local_shards(DType::U8, [4], sharding, [own]).unwrap()))])
    };
    refuse(
        &leaf(Some("x"), 0),
        &leaf(None, 1),
        &["w: uint8[4] over", "on rank 1", "in 2 parts on rank 0"],
    );
}

#[test]
fn regions_that_no_rank_gives_or_two_give_are_named() {
    let world = World::new(2);
    let stores = world.open_all();
    let state = |number: u32| world.state(world.rank(number), 1);
    stores[0].save(1, &state(1), &SaveOptions::new()).unwrap();
    let error = stores[1].save(1, &state(1), &SaveOptions::new()).unwrap_err();
    let error = error.to_string();
    assert!(error.contains("regions are given by no rank"), "{error}");
    assert!(error.contains("w: [0..5, 0..7] of uint32[9, 7], which is on cuda:0"), "{error}");
    assert!(!error.contains("[5..9"), "{error}");

    stores[0].save(1, &world.state_of_all(1), &SaveOptions::new()).unwrap();
    let error = stores[1].save(1, &state(1), &SaveOptions::new()).unwrap_err().to_string();
    assert!(error.contains("2 regions are given twice"), "{error}");
    assert!(error.contains("w: [5..9, 0..7] of uint32[9, 7] by rank 0 and rank 1"), "{error}");
    assert_eq!(states(&world.path).len(), 2);
    check(&stores[0]);

    world.save_all(&stores, 1);
    check(&stores[1]);
}

#[test]
fn the_number_of_ranks_is_told_to_those_that_have_another() {
    let world = World::new(2);
    let stores = world.open_all();
    world.save(&stores[0], 1).unwrap();
    let other = open(&world.path, Rank::new(2, 3).unwrap(), StoreOptions::new());
    assert_eq!(states(&world.path), []);
    let error = world.save(&stores[1], 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    let expected = "this process is rank 1 of 2, and the store was opened as rank 2 of 3 since";
    assert!(error.to_string().contains(expected), "{error}");
    let world = World { size: 3, ..world };
    world.save(&other, 1).unwrap();
    world.save(&world.open(0), 1).unwrap();
    world.save(&world.open(1), 1).unwrap();
    assert_eq!(other.read(1).unwrap().restore().unwrap(), world.whole(1));
    check(&other);
}

#[test]
fn a_writer_without_a_rank_and_ranks_exclude_each_other() {
    let world = World::new(2);
    let store = CheckpointStore::create(&world.path).unwrap();
    let error = CheckpointStore::open_as_rank(&world.path, world.rank(0), StoreOptions::new());
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Locked);
    drop(store);
    let rank = world.open(0);
    assert_eq!(CheckpointStore::open(&world.path).unwrap_err().kind(), ErrorKind::Locked);
    let error = rank.compact().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    for (number, size) in [(0, 0), (2, 2), (0, milepost::limits::MAX_RANKS + 1)] {
        assert_eq!(Rank::new(number, size).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
}
