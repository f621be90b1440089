//! What ranks leave behind, and when it goes.

use super::*;

#[test]
fn a_rank_that_opens_the_store_again_gives_everything_anew() {
    let world = World::new(2);
    let stores = world.open_all();
    world.save(&stores[0], 1).unwrap();
    // A second process of the same rank: the first one is not listened to any more.
    let again = world.open(0);
    assert_eq!(states(&world.path), []);
    let error = world.save(&stores[0], 2).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    let expected = "another process has opened the store as rank 0 of 2";
    assert!(error.to_string().contains(expected), "{error}");
    for error in [stores[0].pin(7).unwrap_err(), stores[0].delete(7).unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::Locked);
    }
    assert_eq!(reported(world.save(&stores[1], 1)), [0]);
    assert_eq!(reported(world.save(&again, 1)), [0; 0]);
    check(&again);
}

#[test]
fn a_step_that_a_rank_saves_again_is_what_it_saved_last() {
    let world = World::new(2);
    let stores = world.open_all();
    let other = world.state(world.rank(0), 8);
    stores[0].save(1, &other, &SaveOptions::new()).unwrap();
    assert_eq!(states(&world.path), [(1, 0, RankState::Arrived)]);
    check(&stores[0]);
    world.save_all(&stores, 1);
    assert_eq!(stores[0].read(1).unwrap().restore().unwrap(), world.whole(1));
    stores[0].delete(1).unwrap();
    assert_eq!(stores[0].stats().unwrap().packs, 0);
    check(&stores[0]);
}

#[test]
fn what_waits_for_longer_than_the_grace_is_swept_by_another_step() {
    let world = World::new(2);
    let patient = world.open(0);
    world.save(&patient, 1).unwrap();
    let hasty = open(&world.path, world.rank(1), StoreOptions::new().pending_grace(Duration::ZERO));
    // Not by the step itself, which may be late.
    let own = world.state(world.rank(1), 3);
    assert_eq!(reported(hasty.save(3, &own, &SaveOptions::new())), [0]);
    assert_eq!(states(&world.path), [(3, 1, RankState::Arrived)]);
    world.save(&patient, 3).unwrap();
    assert_eq!(patient.all_steps().unwrap(), [3]);
    check(&patient);
    patient.delete(3).unwrap();
    assert_eq!(patient.stats().unwrap().packs, 0);
}

/// Else the step after the rollback would be of what was given before and after it.
#[test]
fn a_rollback_drops_what_waits_after_it() {
    let world = World::new(2);
    let stores = world.open_all();
    world.save_all(&stores, 1);
    world.save_all(&stores, 2);
    world.save(&stores[0], 2).unwrap_err();
    world.save(&stores[0], 3).unwrap();
    assert_eq!(stores[1].rollback_to(1).unwrap(), [2]);
    assert_eq!(states(&world.path), []);
    assert_eq!(reported(world.save(&stores[1], 3)), [0]);
    check(&stores[0]);
}

#[test]
fn a_step_that_is_late_can_still_be_completed() {
    let world = World::new(2);
    let stores = world.open_all();
    world.save(&stores[0], 1).unwrap();
    let hasty = open(&world.path, world.rank(1), StoreOptions::new().pending_grace(Duration::ZERO));
    world.save(&hasty, 1).unwrap();
    assert_eq!(hasty.all_steps().unwrap(), [1]);
}

/// A save that failed leaves packs behind, and the next one sweeps them before it writes its own.
#[test]
fn a_step_that_is_late_is_not_swept_with_what_a_save_left_behind() {
    let world = World::new(2);
    world.save(&world.open(1), 1).unwrap();
    let hasty = open(&world.path, world.rank(0), StoreOptions::new().pending_grace(Duration::ZERO));
    hasty.save_source(2, &failing(), &SaveOptions::new()).unwrap_err();
    assert_eq!(reported(world.save(&hasty, 1)), [0; 0]);
    check(&hasty);
}

#[test]
fn a_step_is_deleted_with_what_was_to_replace_it() {
    let world = World::new(2);
    let stores = world.open_all();
    world.save_all(&stores, 1);
    let other = world.state(world.rank(0), 8);
    for undo in [
        (|store: &CheckpointStore| store.rollback_to(1).map(drop)) as fn(&CheckpointStore) -> _,
        |store| store.delete(1),
    ] {
        stores[0].save(1, &other, &SaveOptions::new().replace()).unwrap();
        assert_eq!(states(&world.path), [(1, 0, RankState::Arrived)]);
        undo(&stores[1]).unwrap();
        assert_eq!(states(&world.path), []);
        check(&stores[0]);
    }
    assert_eq!(stores[0].stats().unwrap().packs, 0);
}

/// A rank of the job that was started again may come before the others.
#[test]
fn a_job_that_is_started_again_takes_nothing_of_the_one_before() {
    let world = World::new(2);
    let open = |number: u32, job: &str| {
        open(&world.path, world.rank(number).in_job(job), StoreOptions::new())
    };
    let before = [open(0, "first"), open(1, "first")];
    world.save(&before[0], 1).unwrap();
    let second = open(1, "second");
    assert_eq!(reported(world.save(&second, 1)), [0]);
    let error = world.save(&before[0], 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("rank 1 of another job has opened the store"), "{error}");
    assert_eq!(reported(world.save(&open(0, "second"), 1)), [0; 0]);
    check(&second);
}

/// A source whose second leaf can't be read: by then the first one is in the file.
struct Failing(Tree<Leaf<'static>>);

impl LeafSource for Failing {
    fn structure(&self) -> milepost::Result<Tree<milepost::LeafMeta>> {
        self.0.structure()
    }

    fn read_region(
        &self,
        path: &milepost::KeyPath,
        region: &milepost::Region,
        out: &mut [u8],
    ) -> milepost::Result<()> {
        if path.to_string() == "last" {
            return self.0.read_region(&"absent".parse().unwrap(), region, out);
        }
        self.0.read_region(path, region, out)
    }
}

fn failing() -> Failing {
    // More than two waves.
    let large = Leaf::from_vec(vec![5u8; 100 << 20], [100 << 20]).unwrap();
    Failing(Tree::map([("first", Tree::Leaf(large)), ("last", Tree::Leaf(Leaf::scalar(1u8)))]))
}

#[test]
fn what_a_rank_had_written_when_it_failed_goes_with_the_next_save_of_any() {
    let world = World::new(2);
    let stores = world.open_all();
    stores[0].save_source(1, &failing(), &SaveOptions::new()).unwrap_err();
    assert_eq!(states(&world.path), []);
    let report = stores[0].verify().unwrap();
    assert!(report.faults.is_empty() && report.unfinished_packs > 100, "{report:?}");
    world.save(&stores[1], 2).unwrap();
    check(&stores[1]);
    world.save(&stores[0], 2).unwrap();
    stores[0].delete(2).unwrap();
    assert_eq!(stores[0].stats().unwrap().packs, 0);
}

#[test]
fn a_writer_without_a_rank_leaves_what_waits() {
    let world = World::new(2);
    let store = world.open(0);
    world.save(&world.open(1), 2).unwrap();
    store.save_source(1, &failing(), &SaveOptions::new()).unwrap_err();
    drop(store);
    let store = CheckpointStore::open(&world.path).unwrap();
    store.save(5, &world.given_whole(5), &SaveOptions::new()).unwrap();
    assert_eq!(states(&world.path), [(2, 1, RankState::Arrived)]);
    check(&store);
    store.compact().unwrap();
    check(&store);
    drop(store);
    world.save(&world.open(0), 2).unwrap();
    let store = CheckpointStore::open_read_only(&world.path).unwrap();
    assert_eq!(store.all_steps().unwrap(), [2, 5]);
    assert_eq!(store.read(2).unwrap().restore().unwrap(), world.whole(2));
    check(&store);
}

/// What a rank remembers of its last save is not taken for a part of the step if that was made of something
/// else.
#[test]
fn what_was_dropped_is_not_used_again() {
    let world = World::new(2);
    let stores = world.open_all();
    world.save_all(&stores, 1);
    let other = |rank: usize, seed| world.state(stores[rank].rank().unwrap(), seed);
    // It is to take the place of step 1, and waits for that.
    stores[0].save(1, &other(0, 8), &SaveOptions::new().replace()).unwrap();
    let hasty = open(&world.path, world.rank(1), StoreOptions::new().pending_grace(Duration::ZERO));
    world.save(&hasty, 2).unwrap();
    assert_eq!(states(&world.path), [(2, 1, RankState::Arrived)]);
    let report = stores[0].save(3, &other(0, 8), &SaveOptions::new()).unwrap();
    assert!(report.cost.written_bytes > 1_000_000, "{report:?}");
    hasty.save(3, &other(1, 8), &SaveOptions::new()).unwrap();
    check(&hasty);
    assert_eq!(hasty.read(3).unwrap().restore().unwrap(), world.whole(8));
}
