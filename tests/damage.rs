//! Damaged files: what is read is what was written, or an error; never a panic or other data.

mod common;

use std::fs;
use std::path::Path;

use milepost::keep_policy::{BestMode, LatestN};
use milepost::{
    CheckpointManager, CheckpointStore, Compression, ErrorKind, ManagerOptions, Result,
    SaveOptions, StoreOptions,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use redb::{ReadableTable, TableDefinition};

fn make(path: &Path, compression: Compression) {
    let options = StoreOptions::new().compression(compression);
    let store = CheckpointStore::create_with(path, options).unwrap();
    for step in [3, 4] {
        let options = SaveOptions::new().metric("loss", 0.5);
        store.save(step, &common::zoo(), &options).unwrap();
    }
}

/// Reads everything. What can be read must be right.
fn read_all(path: &Path) -> Result<()> {
    let store = CheckpointStore::open_read_only(path)?;
    for step in store.all_steps()? {
        // A number that no step has may come from a damaged key; reading it must fail.
        let restored = store.read(step)?.restore()?;
        assert!([3, 4].contains(&step) && restored == common::zoo(), "step {step} is other data");
    }
    let report = store.verify()?;
    report.faults.into_iter().next().map_or(Ok(()), Err)
}

fn damage(seed: u64, tries: usize, change: impl Fn(&mut StdRng, &mut Vec<u8>)) {
    let folder = tempfile::tempdir().unwrap();
    let mut noticed = 0;
    for (name, compression) in common::COMPRESSIONS {
        let path = folder.path().join(name);
        make(&path, compression);
        let whole = fs::read(&path).unwrap();
        let mut rng = StdRng::seed_from_u64(seed);
        let damaged = folder.path().join("damaged");
        for _ in 0..tries {
            let mut bytes = whole.clone();
            change(&mut rng, &mut bytes);
            fs::write(&damaged, &bytes).unwrap();
            if let Err(error) = read_all(&damaged) {
                noticed += 1;
                assert!(!error.to_string().is_empty());
            }
            assert!(fs::read(&damaged).unwrap() == bytes, "reading changed the file");
        }
    }
    assert!(noticed > tries / 10, "{noticed} of {tries} were noticed: most of the file is used");
}

#[test]
fn flipped_bits_are_noticed_or_harmless() {
    damage(1, 200, |rng, bytes| {
        let at = rng.random_range(0..bytes.len());
        bytes[at] ^= 1 << rng.random_range(0..8);
    });
}

/// Most pages are told apart by their first bytes: lengths, kinds and numbers of entries. A panic
/// of redb on one of those once left the library.
#[test]
fn flipped_bits_at_the_beginnings_of_pages_are_noticed_or_harmless() {
    damage(4, 1500, |rng, bytes| {
        let used: Vec<usize> = (0..bytes.len())
            .step_by(4096)
            .filter(|page| bytes[*page..page + 96].iter().any(|byte| *byte != 0))
            .collect();
        let at = used[rng.random_range(0..used.len())] + rng.random_range(0..96);
        bytes[at] ^= 1 << rng.random_range(0..8);
    });
}

#[test]
fn overwritten_and_cut_files_are_noticed_or_harmless() {
    damage(2, 60, |rng, bytes| {
        let from = rng.random_range(0..bytes.len());
        let to = (from + rng.random_range(1..5000)).min(bytes.len());
        bytes[from..to].fill(rng.random());
    });
    damage(3, 40, |rng, bytes| {
        bytes.truncate(rng.random_range(1..bytes.len()));
    });
}

/// A damaged chunk costs its leaf; the rest of the step and the other steps are read.
#[test]
fn a_damaged_chunk_is_named_and_the_rest_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let leaf = |fill: u8| milepost::Leaf::from_vec(vec![fill; 200_000], [200_000]).unwrap();
    let tree = |fill| {
        milepost::Tree::map(
            [("a", leaf(fill)), ("b", leaf(fill + 1))]
                .map(|(name, leaf)| (name, milepost::Tree::Leaf(leaf))),
        )
    };
    let store = CheckpointStore::create(&path).unwrap();
    store.save(1, &tree(0x11), &SaveOptions::new()).unwrap();
    store.save(2, &tree(0x44), &SaveOptions::new()).unwrap();
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(1000).position(|window| window.iter().all(|b| *b == 0x45)).unwrap();
    bytes[at + 500] = 0;
    fs::write(&path, &bytes).unwrap();

    let store = CheckpointStore::open_read_only(&path).unwrap();
    let error = store.read(2).unwrap().restore().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged);
    assert!(error.step() == Some(2) && error.chunk().is_some(), "{error}");
    assert_eq!(error.path().unwrap().to_string(), "b");
    assert!(error.to_string().contains("restore another step"), "{error}");
    let whole = store.read(2).unwrap().read_leaf(&"a".parse().unwrap()).unwrap();
    assert_eq!(whole, leaf(0x44));
    assert_eq!(store.read(1).unwrap().restore().unwrap(), tree(0x11));
    let report = store.verify().unwrap();
    assert_eq!(report.faults.len(), 1);
    assert_eq!(report.faults[0].step(), Some(2));
}

/// Retention looks at the records of all steps; a damaged one once kept every later step from
/// being saved.
#[test]
fn a_damaged_step_record_does_not_stop_the_saving() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let manager = || {
        let options = ManagerOptions::new().keep(LatestN(2));
        CheckpointManager::open(&path, options).unwrap()
    };
    let state = milepost::Tree::Leaf(milepost::Leaf::scalar(1u8));
    let metric = |value| SaveOptions::new().metric("loss", value);
    let first = manager();
    first.save_blocking_with(1, &state, &metric(0.123_456_789)).unwrap();
    first.save_blocking_with(2, &state, &metric(0.5)).unwrap();
    drop(first);
    let pattern = 0.123_456_789f64.to_le_bytes();
    let mut bytes = fs::read(&path).unwrap();
    let places: Vec<_> = (0..bytes.len() - 8).filter(|at| bytes[*at..*at + 8] == pattern).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at] ^= 1;
    }
    fs::write(&path, &bytes).unwrap();

    let manager = manager();
    assert_eq!(manager.step_info(1).unwrap_err().kind(), ErrorKind::Damaged);
    for step in 3..6 {
        assert!(manager.save_blocking_with(step, &state, &metric(0.5)).unwrap().is_saved());
    }
    assert_eq!(manager.all_steps().unwrap(), [1, 4, 5]);
    let report = manager.store().verify().unwrap();
    assert!(report.faults.iter().all(|fault| fault.step().is_none_or(|step| step == 1)));
    assert!(!report.faults.is_empty());
    assert_eq!(manager.best_step("loss", BestMode::Min).unwrap(), Some(5));
    // What is damaged can be deleted, and leaves nothing behind.
    manager.delete(1).unwrap();
    assert_eq!(manager.all_steps().unwrap(), [4, 5]);
    let report = manager.store().verify().unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
}

/// One flipped bit made the number of a step higher than any that came: every save was skipped.
#[test]
fn a_damaged_step_number_does_not_stop_the_saving() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let open = || CheckpointManager::open(&path, ManagerOptions::new().keep(LatestN(2))).unwrap();
    open().save_blocking(3, &1u8).unwrap();
    with_tables(&path, |tx| {
        let mut steps = tx.open_table(STEPS).unwrap();
        let record = steps.get(3).unwrap().unwrap().value().to_vec();
        steps.insert(3 | 1 << 40, &record[..]).unwrap();
    });
    let manager = open();
    for step in 4..7 {
        assert!(manager.save_blocking(step, &1u8).unwrap().is_saved());
    }
    assert!(!manager.should_save(5).unwrap());
    let report = manager.store().verify().unwrap();
    assert_eq!(report.faults.len(), 2, "{:?}", report.faults);
}

/// Retention met the step whose pack was not counted at every save, and failed.
#[test]
fn a_pack_that_is_not_counted_does_not_stop_the_saving() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let open = || CheckpointManager::open(&path, ManagerOptions::new().keep(LatestN(2))).unwrap();
    open().save_blocking(1, &1u8).unwrap();
    with_tables(&path, |tx| {
        assert!(tx.open_table(PACK_REFS).unwrap().remove(1).unwrap().is_some());
    });
    let manager = open();
    let report = manager.store().verify().unwrap();
    let text = report.faults[0].to_string();
    assert!(text.contains("pack 1: used by 1 step, and not recorded"), "{text}");
    for step in 2..6 {
        assert!(manager.save_blocking(step, &1u8).unwrap().is_saved());
    }
    assert_eq!(manager.all_steps().unwrap(), [4, 5]);
    manager.restore(5).unwrap();
}

const STEPS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("steps");
const PACK_REFS: TableDefinition<'_, u64, u64> = TableDefinition::new("pack_refs");

/// Changes the tables of a store behind its back.
fn with_tables(path: &Path, change: impl FnOnce(&redb::WriteTransaction)) {
    let mut builder = redb::Builder::new();
    builder.set_concurrency_mode(redb::ConcurrencyMode::SingleWriter);
    let database = builder.open(path).unwrap();
    let tx = database.begin_write().unwrap();
    change(&tx);
    tx.commit().unwrap();
}
