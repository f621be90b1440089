//! `verify` finds everything that isn't as it was written. Most tests damage one thing, through redb
//! itself and under right checksums, and expect one fault that names it.

mod packs;
mod rows;

use std::fs;
use std::path::PathBuf;

use milepost::{CheckpointStore, Error, ErrorKind, Leaf, SaveOptions, Tree, VerifyReport};
use redb::{ReadableTable, WriteTransaction};

use rows::*;

/// Fields in another order than that of their names, three chunks of `w` that have packs of their
/// own, and two equal scalars in a pack that they share with the rest of `w`.
/// Steps have nothing in common, so that each has packs of its own.
fn state(step: u32) -> Tree<Leaf<'static>> {
    let w: Vec<u32> = (step..200_000 + step).collect();
    let scalar = Leaf::scalar(u64::from(step));
    Tree::record(
        "State",
        [
            ("w", Tree::Leaf(Leaf::from_vec(w, [2, 100_000]).unwrap())),
            ("a", Tree::Leaf(scalar.clone())),
            ("empty", Tree::Leaf(Leaf::from_vec(Vec::<f32>::new(), [0]).unwrap())),
            ("b", Tree::Leaf(scalar)),
        ],
    )
}

struct Store {
    folder: tempfile::TempDir,
}

impl Store {
    /// Steps 2 and 3; step 1 is gone, and so are the packs below theirs.
    fn new() -> Self {
        let store = Self { folder: tempfile::tempdir().unwrap() };
        let writer = CheckpointStore::create(store.path()).unwrap();
        for step in 1..4 {
            let options = SaveOptions::new().metric("loss", 0.5);
            writer.save(u64::from(step), &state(step), &options).unwrap();
        }
        writer.delete(1).unwrap();
        store
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    /// A store after `damage`.
    fn damaged(damage: impl Fn(&WriteTransaction)) -> Self {
        let store = Self::new();
        let mut builder = redb::Builder::new();
        builder.set_concurrency_mode(redb::ConcurrencyMode::SingleWriter);
        let database = builder.open(store.path()).unwrap();
        let tx = database.begin_write().unwrap();
        damage(&tx);
        tx.commit().unwrap();
        store
    }

    fn verify(&self) -> VerifyReport {
        CheckpointStore::open_read_only(self.path()).unwrap().verify().unwrap()
    }
}

/// The faults after `damage`, with the parts that tell where they are.
fn faults(damage: impl Fn(&WriteTransaction)) -> Vec<Error> {
    let report = Store::damaged(damage).verify();
    assert!(report.is_complete() && report.steps >= 1, "{report:?}");
    report.faults
}

/// Expects one fault after `damage`, there and with this text.
#[track_caller]
fn expect(at: (Option<u64>, Option<&str>), says: &str, damage: impl Fn(&WriteTransaction)) {
    let faults = faults(damage);
    let [fault] = &faults[..] else { panic!("expected one fault, {says:?}: {faults:?}") };
    let path = fault.path().map(ToString::to_string);
    assert_eq!((fault.step(), path.as_deref()), at, "{fault}");
    assert_eq!(fault.kind(), ErrorKind::Damaged);
    assert!(fault.to_string().contains(says), "{fault}\nexpected: {says}");
}

const STEP_3: (Option<u64>, Option<&str>) = (Some(3), None);
const NOWHERE: (Option<u64>, Option<&str>) = (None, None);

#[test]
fn what_is_whole_has_no_faults() {
    let report = Store::new().verify();
    assert!(report.faults.is_empty() && report.is_complete(), "{:?}", report.faults);
    assert_eq!((report.steps, report.leaves, report.unfinished_packs), (2, 8, 0));
    assert!(report.chunks >= 10 && report.stored_bytes == 2 * 800_016);
}

#[test]
fn the_sums_of_a_step_are_made_again() {
    for (field, says) in [
        (34, "says 5 leaves, there are 4"),
        (42, "chunks, there are"),
        (50, "says 800017 raw bytes, there are 800016"),
        (58, "says 800017 stored bytes, there are 800016"),
    ] {
        expect(STEP_3, says, |tx| {
            change_step(tx, 3, |record, at| {
                let value = u64_at(record, at + field) + 1;
                put(record, at + field, value);
            });
        });
    }
    expect(STEP_3, "the step record has digest ", |tx| {
        change_step(tx, 3, |record, at| record[at + 74] ^= 1);
    });
}

#[test]
fn a_changed_hash_is_a_fault_of_the_chunk_and_of_the_digest() {
    let faults =
        faults(|tx| change_leaf(tx, A, |record, chunks| record[chunks[0] + CHUNK_HASH] ^= 1));
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults[0].to_string().contains("step 3, a, chunk 0: the contents don't have"));
    assert!(faults[1].to_string().contains("step 3: the step record has digest"), "{faults:?}");
}

/// It was a fault of each pack that the step uses.
#[test]
fn a_step_record_that_cannot_be_read_is_one_fault() {
    expect(STEP_3, "step record has checksum", |tx| change(tx, STEPS, 3, |record| record[50] ^= 1));
    expect(STEP_3, "step record has", |tx| change(tx, STEPS, 3, |record| record.truncate(5)));
    expect(STEP_3, "packs from pack 7 on", |tx| {
        change_step(tx, 3, |record, at| {
            let range = follow(record, at + STEP_PACKS);
            put(record, range + 8, u64::MAX);
            put(record, at + 42, u64::MAX);
        });
    });
}

#[test]
fn a_leaf_record_that_cannot_be_read_is_one_fault() {
    for (path, name) in [(A, "a"), (W, "w")] {
        expect((Some(3), Some(name)), "leaf record has checksum", |tx| {
            let mut table = tx.open_table(LEAVES).unwrap();
            let mut record = table.get((3, path)).unwrap().unwrap().value().to_vec();
            record[30] ^= 1;
            table.insert((3, path), &record[..]).unwrap();
        });
    }
}

/// With neither the list of packs nor all leaves it is not known which packs a step uses.
#[test]
fn what_is_not_known_is_no_fault_of_the_packs() {
    let faults = faults(|tx| {
        change(tx, STEPS, 3, |record| record[50] ^= 1);
        let mut table = tx.open_table(LEAVES).unwrap();
        table.insert((3, W), &b"what is no record"[..]).unwrap();
    });
    assert_eq!(faults.len(), 2, "{faults:?}");
    assert!(faults.iter().all(|fault| fault.step() == Some(3)), "{faults:?}");
}

#[test]
fn structure_and_leaf_records_are_compared_both_ways() {
    let leaf = |name| (Some(3), Some(name));
    expect(STEP_3, "structure record is missing", |tx| {
        tx.open_table(STRUCTURES).unwrap().remove(3).unwrap();
    });
    expect(STEP_3, "structure record has checksum", |tx| {
        change(tx, STRUCTURES, 3, |record| record[20] ^= 1);
    });
    expect(leaf("empty"), "the record of the leaf is missing", |tx| remove_leaf(tx, EMPTY));
    expect(leaf("w"), "the record of the leaf is missing", |tx| remove_leaf(tx, W));
    expect(leaf("extra"), "has a record and is not in the structure", |tx| {
        copy_leaf(tx, EMPTY, 3, b"\x03extra\0");
    });
    expect(STEP_3, "0x04 is no kind of key", |tx| copy_leaf(tx, EMPTY, 3, b"\x04"));
    // All of what is missing is named, not the first alone.
    let both = faults(|tx| {
        remove_leaf(tx, A);
        remove_leaf(tx, B);
    });
    let paths: Vec<_> = both.iter().map(|fault| fault.path().unwrap().to_string()).collect();
    assert_eq!(paths, ["a", "b"]);
}

#[test]
fn rows_of_no_step_are_found() {
    let at = |step| (Some(step), None);
    expect(at(9), "has a structure record and no step record", |tx| {
        let mut table = tx.open_table(STRUCTURES).unwrap();
        let record = table.get(3).unwrap().unwrap().value().to_vec();
        table.insert(9, &record[..]).unwrap();
    });
    for step in [0, 1, 9, u64::MAX] {
        expect(at(step), "has leaf records and no step record", |tx| {
            copy_leaf(tx, EMPTY, step, EMPTY);
            copy_leaf(tx, EMPTY, step, A);
        });
    }
    let faults = faults(|tx| {
        tx.open_table(STEPS).unwrap().remove(3).unwrap();
    });
    let says: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(says.len(), 3, "{says:?}");
    assert!(says[2].contains(": used by no step, recorded as used by 1"), "{says:?}");
}

/// Nothing is done as often as a record says that there is something to be done.
/// Zero was taken for a format that is older than all.
#[test]
fn format_0_is_refused() {
    let store = Store::damaged(|tx| {
        tx.open_table(META).unwrap().insert("format", &[0u8; 4][..]).unwrap();
    });
    let bytes = fs::read(store.path()).unwrap();
    for opened in
        [CheckpointStore::open_read_only(store.path()), CheckpointStore::open(store.path())]
    {
        let error = opened.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Damaged);
        assert!(error.to_string().contains("has format 0"), "{error}");
    }
    assert!(fs::read(store.path()).unwrap() == bytes, "the file was not changed");
}

/// Once a read has failed redb refuses every other one. Each was a fault of another leaf.
#[test]
fn a_file_that_is_cut_while_it_is_open_is_one_fault() {
    let (mut ended, whole) = (0, Store::new());
    let length = fs::metadata(whole.path()).unwrap().len();
    for eighths in 1..8 {
        let store = Store::new();
        let reader = CheckpointStore::open_read_only(store.path()).unwrap();
        let file = fs::OpenOptions::new().write(true).open(store.path()).unwrap();
        file.set_len(length / 8 * eighths).unwrap();
        let Ok(report) = reader.verify() else { continue };
        let says: Vec<_> = report.faults.iter().map(ToString::to_string).collect();
        assert!(!says.iter().any(|text| text.contains("an earlier error")), "{says:?}");
        if !report.is_complete() {
            ended += 1;
            assert!(says.last().unwrap().contains("shorter than it says"), "{says:?}");
        }
    }
    assert!(ended > 0, "some cuts are met after the list of steps was read");
}
