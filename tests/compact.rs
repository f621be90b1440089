//! What is not used any more is told, and given back.

mod common;

use std::fs;
use std::path::PathBuf;

use milepost::{CheckpointStore, Compression, ErrorKind, Leaf, SaveOptions, StoreOptions, Tree};
use proptest::prelude::*;

struct Store {
    folder: tempfile::TempDir,
    store: CheckpointStore,
}

impl Store {
    fn new(compression: Compression) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = StoreOptions::new().compression(compression);
        let store = CheckpointStore::create_with(folder.path().join("store"), options).unwrap();
        Self { folder, store }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn save(&self, step: u64, state: &Tree<Leaf<'_>>) {
        self.store.save(step, state, &SaveOptions::new()).unwrap();
    }

    fn check(&self, states: &[(u64, Tree<Leaf<'static>>)]) {
        for (step, state) in states {
            assert_eq!(&self.store.read(*step).unwrap().restore().unwrap(), state, "step {step}");
        }
        let report = self.store.verify().unwrap();
        assert!(report.faults.is_empty() && report.unfinished_packs == 0, "{report:?}");
    }
}

fn leaf(first: u64, length: u64) -> Tree<Leaf<'static>> {
    let elements: Vec<u64> = (first..first + length).collect();
    let shape = [elements.len()];
    Tree::Leaf(Leaf::from_vec(elements, shape).unwrap())
}

#[test]
fn a_file_that_keeps_less_than_it_did_gets_shorter() {
    let store = Store::new(Compression::None);
    let state = |step: u64| leaf(step * 1_000_000, 500_000);
    for step in 1..=6 {
        store.save(step, &state(step));
    }
    for step in 1..=5 {
        store.store.delete(step).unwrap();
    }
    let before = store.store.stats().unwrap();
    assert_eq!((before.live_bytes, before.shared_bytes), (4_000_000, 0));
    assert!(before.reclaimable_bytes > 20_000_000, "{before:?}");
    let report = store.store.compact().unwrap();
    assert!(report.freed_bytes() > 15_000_000, "{report:?}");
    let after = store.store.stats().unwrap();
    assert_eq!(after.allocated_bytes, report.after_bytes);
    assert!(after.reclaimable_bytes < 5_000_000, "{after:?}");
    store.check(&[(6, state(6))]);
    // It goes on, also opened anew, and by a reader at once.
    store.save(7, &state(7));
    store.check(&[(6, state(6)), (7, state(7))]);
    let reader = CheckpointStore::open_read_only(store.path()).unwrap();
    assert_eq!(reader.all_steps().unwrap(), [6, 7]);
}

/// Of many leaves that shared packs one in ten is left.
#[test]
fn what_is_left_of_mostly_dead_packs_moves_together() {
    for compression in [Compression::None, Compression::Lz4] {
        let store = Store::new(compression);
        let whole = |step: u64| {
            let leaves = (0..2000u64).map(|number| {
                // Long enough for packs; random enough for LZ4 to leave something.
                let seed = if number % 10 == 0 { number } else { number + 10_000 * step };
                leaf(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 8, 100)
            });
            Tree::list(leaves)
        };
        store.save(1, &whole(1));
        let few = |step: u64| {
            let Tree::List(all) = whole(1) else { panic!("a list") };
            let kept = (0u64..).zip(all).map(|(number, leaf)| match number % 10 {
                0 => leaf,
                _ => Tree::Leaf(Leaf::scalar(step)),
            });
            Tree::list(kept)
        };
        store.save(2, &few(2));
        store.store.delete(1).unwrap();
        let report = store.store.compact().unwrap();
        assert!(report.repacked_packs > 0 && report.moved_bytes > 0, "{report:?}");
        assert!(report.after_bytes < report.before_bytes, "{report:?}");
        store.check(&[(2, few(2))]);
        // Nothing more is to be done.
        assert_eq!(store.store.compact().unwrap().repacked_packs, 0);
        // Chunks are found where they are now.
        let report = store.store.save(3, &few(2), &SaveOptions::new()).unwrap();
        assert_eq!(report.cost.written_chunks, 0);
        let stats = store.store.stats().unwrap();
        assert!(stats.shared_bytes == stats.live_bytes, "{stats:?}");
        for step in 2..4 {
            store.store.delete(step).unwrap();
        }
        assert_eq!(store.store.stats().unwrap().packs, 0);
    }
}

#[test]
fn a_step_that_is_being_read_keeps_its_place() {
    let store = Store::new(Compression::None);
    store.save(1, &leaf(0, 100_000));
    for reader in [
        store.store.read(1).unwrap(),
        CheckpointStore::open_read_only(store.path()).unwrap().read(1).unwrap(),
    ] {
        let error = store.store.compact().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Locked, "{error}");
        assert_eq!(reader.restore().unwrap(), leaf(0, 100_000));
    }
    store.store.compact().unwrap();
    store.check(&[(1, leaf(0, 100_000))]);
    let before = fs::metadata(store.path()).unwrap().len();
    let error = CheckpointStore::open_read_only(store.path()).unwrap().compact().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    assert_eq!(fs::metadata(store.path()).unwrap().len(), before);
}

/// Three of these take more than a pack, so the chunk of the last one goes on in a second.
fn one_chunk(seed: u32) -> Tree<Leaf<'static>> {
    Tree::Leaf(Leaf::from_vec(common::gappy(seed, 65_532), [65_532]).unwrap())
}

/// A step with one chunk, which is in two packs, was committed and could not be read.
#[test]
fn a_step_may_have_more_packs_than_chunks() {
    let store = Store::new(Compression::Lz4);
    let leaves = |names: &[&'static str]| {
        Tree::map(names.iter().map(|name| (*name, one_chunk(u32::from(name.as_bytes()[0])))))
    };
    store.save(1, &leaves(&["a", "b", "c"]));
    let report = store.store.save(2, &leaves(&["c"]), &SaveOptions::new()).unwrap();
    assert_eq!(report.cost.written_chunks, 0);
    store.check(&[(1, leaves(&["a", "b", "c"])), (2, leaves(&["c"]))]);
    assert_eq!(store.store.steps().unwrap().len(), 2);
    store.store.delete(1).unwrap();
    assert_eq!(store.store.stats().unwrap().packs, 2);
    store.check(&[(2, leaves(&["c"]))]);
}

/// What moves may get into two packs; what moves once need not move again.
#[test]
fn a_chunk_that_moves_may_get_into_two_packs() {
    let store = Store::new(Compression::Lz4);
    let state = |seed: u32, names: &[&'static str]| {
        let leaf = |name: &&'static str| (*name, one_chunk(seed + u32::from(name.as_bytes()[0])));
        Tree::map(names.iter().map(leaf))
    };
    let mut states = Vec::new();
    for round in 1..4 {
        let seed = round * 1000;
        let step = u64::from(2 * round);
        store.save(step, &state(seed, &["a", "b", "c"]));
        store.save(step + 1, &state(seed, &["a"]));
        store.store.delete(step).unwrap();
        states.push((step + 1, state(seed, &["a"])));
    }
    let report = store.store.compact().unwrap();
    assert_eq!(report.repacked_packs, 3);
    store.check(&states);
    assert_eq!(store.store.stats().unwrap().packs, 2);
    assert_eq!(store.store.steps().unwrap().len(), 3);
    // A step of its own now has the chunk that is in both packs.
    store.store.delete(3).unwrap();
    store.store.delete(5).unwrap();
    store.check(&states[2..]);
    assert_eq!(store.store.stats().unwrap().packs, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Compressed chunks of which many are in two packs, with leaves that stay from step to step, change
    /// with each, or are in the first step alone.
    #[test]
    fn chunks_in_two_packs_move_too(
        leaves in prop::collection::vec((0..3, 1usize..150_000), 1..12),
        first_stays: bool,
    ) {
        let store = Store::new(Compression::Lz4);
        let state = |step: u32| {
            let leaves = leaves.iter().zip(0u32..).filter_map(|((what, length), number)| {
                let seed = match what {
                    0 => number,
                    1 => 1000 * step + number,
                    _ => (step == 1).then_some(number)?,
                };
                let leaf = Leaf::from_vec(common::gappy(seed, *length), [*length]).unwrap();
                Some((format!("{number}"), Tree::Leaf(leaf)))
            });
            Tree::map(leaves)
        };
        store.save(1, &state(1));
        store.save(2, &state(2));
        let mut states = vec![(2, state(2))];
        if first_stays {
            states.push((1, state(1)));
        } else {
            store.store.delete(1).unwrap();
        }
        store.check(&states);
        let before = store.store.stats().unwrap();
        store.store.compact().unwrap();
        store.check(&states);
        let after = store.store.stats().unwrap();
        prop_assert_eq!(before.live_bytes, after.live_bytes);
        prop_assert_eq!(store.store.compact().unwrap().repacked_packs, 0);
        store.save(3, &state(3));
        states.push((3, state(3)));
        store.check(&states);
    }
}
