//! What did not change is not written again, whatever becomes of the steps that share it.

mod common;

use std::fs;
use std::path::PathBuf;

use milepost::{CheckpointStore, Compression, Leaf, SaveOptions, SaveReport, StoreOptions, Tree};
use proptest::prelude::*;

struct Store {
    folder: tempfile::TempDir,
    store: CheckpointStore,
}

impl Store {
    fn new() -> Self {
        Self::with(StoreOptions::new())
    }

    fn with(options: StoreOptions) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = CheckpointStore::create_with(folder.path().join("store"), options).unwrap();
        Self { folder, store }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn save(&self, step: u64, state: &Tree<Leaf<'_>>) -> SaveReport {
        self.store.save(step, state, &SaveOptions::new()).unwrap()
    }

    fn check(&self) {
        let report = self.store.verify().unwrap();
        assert!(report.faults.is_empty() && report.is_complete(), "{:?}", report.faults);
        assert_eq!(report.unfinished_packs, 0);
    }
}

/// `megabytes` of noise.
fn noise(seed: u32, megabytes: usize) -> Vec<u32> {
    common::noise(seed, megabytes * 250_000)
}

fn array(elements: Vec<u32>) -> Tree<Leaf<'static>> {
    let length = elements.len();
    Tree::Leaf(Leaf::from_vec(elements, [length]).unwrap())
}

#[test]
fn frozen_leaves_are_written_once() {
    let store = Store::new();
    let state = |step: u32| {
        Tree::map([("frozen", array(noise(1, 20))), ("trained", array(noise(step, 1)))])
    };
    let first = store.save(1, &state(1));
    assert_eq!(first.cost.reused_chunks, 0);
    assert_eq!(first.cost.written_bytes, 21_000_000);
    for step in 2..6 {
        let cost = store.save(u64::from(step), &state(step)).cost;
        // Step 2 left a pack half dead that both leaves shared: what is frozen of it moves once.
        let moved = if step == 3 { 12_160 } else { 0 };
        let expected = (20_000_000 - moved, 1_000_000 + moved);
        assert_eq!((cost.reused_bytes, cost.written_bytes), expected);
    }
    assert!(fs::metadata(store.path()).unwrap().len() < 40_000_000);
    for step in 1..6 {
        assert_eq!(store.store.read(u64::from(step)).unwrap().restore().unwrap(), state(step));
    }
    store.check();
}

/// The chunks of a leaf depended on what stood before it, so a longer log made the weights new.
#[test]
fn a_leaf_that_grows_leaves_the_others_as_they_are() {
    let store = Store::new();
    let state = |length: usize| {
        let log = Tree::Leaf(Leaf::string("x".repeat(length)));
        Tree::map([("log", log), ("w", array(noise(1, 1)))])
    };
    store.save(1, &state(10_000));
    let cost = store.save(2, &state(70_000)).cost;
    assert_eq!((cost.reused_bytes, cost.written_bytes), (1_000_000, 70_000));
}

#[test]
fn only_the_chunks_that_changed_are_written() {
    let store = Store::new();
    let mut elements = noise(1, 20);
    store.save(1, &array(elements.clone()));
    elements[3_000_000] ^= 1;
    let cost = store.save(2, &array(elements.clone())).cost;
    assert_eq!(cost.written_chunks, 1);
    assert_eq!(store.store.read(2).unwrap().restore().unwrap(), array(elements));
}

/// A leaf of another path or element type with the same bytes is another one: its checksums are.
#[test]
fn the_same_bytes_elsewhere_are_written() {
    let store = Store::new();
    let bytes: Vec<u8> = noise(1, 1).into_iter().flat_map(u32::to_le_bytes).collect();
    store.save(1, &Tree::map([("a", array(noise(1, 1)))]));
    assert_eq!(store.save(2, &Tree::map([("b", array(noise(1, 1)))])).cost.reused_chunks, 0);
    let length = bytes.len();
    let other = Tree::map([("b", Tree::Leaf(Leaf::from_vec(bytes, [length]).unwrap()))]);
    assert_eq!(store.save(3, &other).cost.reused_chunks, 0);
    assert_eq!(store.store.read(3).unwrap().restore().unwrap(), other);
}

/// A stored chunk is compared before it is used again, so damage does not spread to later steps.
#[test]
fn a_damaged_chunk_is_written_anew() {
    let store = Store::new();
    let state = array(noise(1, 2));
    store.save(1, &state);
    let path = store.path();
    drop(store.store);
    let mut bytes = fs::read(&path).unwrap();
    let pattern: Vec<u8> =
        noise(1, 2)[100_000..100_004].iter().flat_map(|e| e.to_le_bytes()).collect();
    let at = bytes.windows(16).position(|window| window == pattern).unwrap();
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();

    let store = CheckpointStore::open(&path).unwrap();
    assert!(store.read(1).unwrap().restore().is_err());
    let cost = store.save(2, &state, &SaveOptions::new()).unwrap().cost;
    assert_eq!(cost.written_chunks, 1);
    assert_eq!(store.read(2).unwrap().restore().unwrap(), state);
}

#[test]
fn a_step_is_replaced_by_one_that_shares_its_packs() {
    let store = Store::new();
    let state = |step: u32| Tree::map([("a", array(noise(1, 2))), ("b", array(noise(step, 1)))]);
    store.save(1, &state(1));
    let replace = SaveOptions::new().replace();
    let report = store.store.save(1, &state(2), &replace).unwrap();
    assert_eq!(report.cost.reused_bytes, 2_000_000);
    assert_eq!(store.store.read(1).unwrap().restore().unwrap(), state(2));
    store.check();
    store.store.delete(1).unwrap();
    assert_eq!(store.store.stats().unwrap().packs, 0);
}

/// The memory is known again, so there is nothing to hash or to compare.
#[test]
fn shared_memory_that_nobody_changed_is_not_looked_at() {
    let store = Store::new();
    let mut shared = ndarray::ArcArray::from_vec(noise(1, 8));
    // A checkpoint wraps its arrays anew each time.
    let save = |step, shared: &ndarray::ArcArray<u32, ndarray::Ix1>| {
        store.store.save(step, shared, &SaveOptions::new()).unwrap()
    };
    save(1, &shared);
    assert_eq!(save(2, &shared).cost.written_chunks, 0);
    damage_all_packs(&store);
    // Looked at, they would be found damaged and be written anew.
    let cost = save(3, &shared).cost;
    assert_eq!((cost.written_chunks, cost.reused_bytes), (0, 8_000_000));
    // Whoever changes a shared array gets one of his own: that is seen.
    shared[7] ^= 1;
    assert!(save(4, &shared).cost.written_chunks > 0);
    let mut back = ndarray::ArcArray::from_vec(vec![0; 2_000_000]);
    store.store.read(4).unwrap().restore_into(&mut back).unwrap();
    assert_eq!(back, shared);
}

/// Overwrites the contents of the first chunks of all packs in the file.
fn damage_all_packs(store: &Store) {
    use std::os::unix::fs::FileExt;
    let bytes = fs::read(store.path()).unwrap();
    let file = fs::OpenOptions::new().write(true).open(store.path()).unwrap();
    let elements = noise(1, 8);
    let pattern: Vec<u8> = elements[1000..1004].iter().flat_map(|e| e.to_le_bytes()).collect();
    let at = bytes.windows(16).position(|window| window == pattern).unwrap();
    file.write_all_at(&[0; 16], u64::try_from(at).unwrap()).unwrap();
}

/// Scalars take less of a pack than the gaps between them, which made each pack of them seem dead.
#[test]
fn small_scalars_are_written_once() {
    let store = Store::new();
    let state = Tree::list((0..3000u16).map(|number| Tree::Leaf(Leaf::scalar(number))));
    store.save(1, &state);
    for step in 2..5 {
        assert_eq!(store.save(step, &state).cost.written_chunks, 0);
    }
    assert_eq!(store.store.compact().unwrap().repacked_packs, 0);
    store.check();
}

/// What is left of a pack moves once, and then is among others that stay.
#[test]
fn what_moved_out_of_a_mostly_dead_pack_stays() {
    for compression in [Compression::None, Compression::Lz4] {
        let options = StoreOptions::new().compression(compression);
        let store = Store::with(options);
        // One in four stays; the elements have gaps, so LZ4 leaves less than there was.
        let state = |step: u32| {
            Tree::list((0..40u32).map(|number| {
                let seed = if number % 4 == 0 { number } else { 1000 * step + number };
                array(common::gappy(seed, 5000))
            }))
        };
        store.save(1, &state(1));
        let written = [2, 3, 4, 5].map(|step| {
            let report = store.save(step, &state(u32::try_from(step).unwrap()));
            store.store.delete(step - 1).unwrap();
            report.cost.written_chunks
        });
        // A leaf is one chunk. Step 2 leaves packs mostly dead, step 3 moves what stays.
        assert_eq!(written, [30, 40, 30, 30], "{compression:?}");
        assert_eq!(store.store.compact().unwrap().repacked_packs, 0);
        assert_eq!(store.store.read(5).unwrap().restore().unwrap(), state(5));
        store.check();
    }
}

/// Memory that nobody changed kept the packs that its chunks had shared for as long as it lived.
#[test]
fn shared_memory_does_not_keep_mostly_dead_packs() {
    let store = Store::new();
    let frozen: Vec<_> =
        (0..10).map(|seed| ndarray::ArcArray::from_vec(noise(seed, 1)[..2000].to_vec())).collect();
    let state = |step: u32| {
        let frozen = frozen.iter().map(|array| Tree::Leaf(Leaf::from(array.clone().into_dyn())));
        let trained = (0..90).map(|number| array(noise(1000 * step + number, 1)[..2000].to_vec()));
        let trained: Vec<_> = trained.collect();
        // Each frozen leaf among nine that change.
        let leaves = frozen.zip(trained.chunks(9).map(<[_]>::to_vec));
        Tree::list(leaves.flat_map(|(frozen, trained)| std::iter::once(frozen).chain(trained)))
    };
    for step in 1..6 {
        store.save(u64::from(step), &state(step));
        if step > 1 {
            store.store.delete(u64::from(step) - 1).unwrap();
        }
    }
    assert_eq!(store.store.compact().unwrap().repacked_packs, 0);
    assert_eq!(store.save(6, &state(5)).cost.written_chunks, 0);
    store.check();
}

/// What is left of a pack that many small leaves shared must not stay for the last of them.
#[test]
fn packs_that_are_mostly_dead_are_left() {
    let store = Store::new();
    let mut seeds: Vec<u32> = (0..1000).collect();
    let state = |seeds: &[u32]| Tree::list(seeds.iter().map(|seed| array(vec![*seed; 200])));
    store.save(0, &state(&seeds));
    for step in 1..50u64 {
        // Other leaves change in every step, and each is idle for twenty.
        for seed in seeds.iter_mut().skip(usize::try_from(step % 20).unwrap()).step_by(20) {
            *seed += 1000;
        }
        store.save(step, &state(&seeds));
        store.store.delete(step - 1).unwrap();
        let found = store.store.stats().unwrap();
        assert!(found.allocated_bytes < 4 * found.live_bytes, "{found:?}");
    }
    assert_eq!(store.store.read(49).unwrap().restore().unwrap(), state(&seeds));
    store.check();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// In whatever order steps go that share packs, nothing of the others goes, and at the end
    /// nothing is left.
    #[test]
    fn steps_are_deleted_in_any_order(
        changes in prop::collection::vec((0usize..6, 0u32..3), 2..8),
        order in prop::collection::vec(any::<prop::sample::Index>(), 8),
        lz4: bool,
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store");
        let compression = if lz4 { Compression::Lz4 } else { Compression::None };
        let options = StoreOptions::new().compression(compression);
        let store = CheckpointStore::create_with(&path, options).unwrap();
        let mut seeds = [0u32; 6];
        let mut states = Vec::new();
        for (step, (leaf, seed)) in (0u64..).zip(&changes) {
            seeds[*leaf] = *seed;
            let leaves = seeds.iter().enumerate().map(|(number, seed)| {
                let mut elements = noise(*seed, 1);
                // Leaves of all sizes, with long runs for LZ4.
                elements.truncate([10, 2_000, 20_000, 70_000, 140_000, 250_000][number]);
                elements.iter_mut().step_by(3).for_each(|element| *element = 7);
                array(elements)
            });
            let state = Tree::list(leaves);
            store.save(step, &state, &SaveOptions::new()).unwrap();
            states.push((step, state));
        }
        for index in order {
            if states.is_empty() {
                break;
            }
            let (step, _) = states.remove(index.index(states.len()));
            store.delete(step).unwrap();
            for (step, state) in &states {
                prop_assert_eq!(&store.read(*step).unwrap().restore().unwrap(), state);
            }
            prop_assert!(store.verify().unwrap().faults.is_empty());
        }
        if states.is_empty() {
            prop_assert_eq!(store.stats().unwrap().packs, 0);
        }
    }
}
