//! Packs: who uses which, how many there are, and where chunks are in them.

use redb::{ReadableTable, WriteTransaction};

use super::rows::*;
use super::{NOWHERE, STEP_3, Store, expect, faults};

#[test]
fn references_to_packs_are_counted_again() {
    let set = |pack: fn(u64, u64) -> u64, count: Option<u64>| {
        move |tx: &WriteTransaction| {
            let (first, packs) = packs(tx);
            let (pack, mut table) = (pack(first, packs), tx.open_table(PACK_REFS).unwrap());
            match count {
                Some(count) => table.insert(pack, count).unwrap().map(|_| ()),
                None => table.remove(pack).unwrap().map(|_| ()),
            };
        }
    };
    let first: fn(u64, u64) -> u64 = |first, _| first;
    expect(NOWHERE, ": used by 1 step, recorded as used by 2", set(first, Some(2)));
    expect(NOWHERE, ": used by 1 step, recorded as used by 0", set(first, Some(0)));
    expect(NOWHERE, ": used by 1 step, and not recorded as used", set(first, None));
    expect(NOWHERE, "pack 1: used by no step, recorded as used by 1", set(|_, _| 1, Some(1)));
    expect(NOWHERE, ": used by no step, recorded as used by 1", set(|first, n| first + n, Some(1)));
    // Neighbours are one fault.
    expect(NOWHERE, ": each used by 1 step, and not recorded as used", |tx| {
        let (first, count) = packs(tx);
        let mut table = tx.open_table(PACK_REFS).unwrap();
        for pack in first..first + count {
            table.remove(pack).unwrap();
        }
    });
}

#[test]
fn packs_that_nobody_uses_are_found_up_to_the_mark() {
    expect(NOWHERE, "packs 1 to 2: there, and used by no step", |tx| {
        let mut table = tx.open_table(PACKS).unwrap();
        table.insert(1, &b"what was forgotten"[..]).unwrap();
        table.insert(2, &b"what was forgotten"[..]).unwrap();
    });
    // Above the mark they are those of a save that did not end.
    let store = Store::damaged(|tx| {
        let (first, count) = packs(tx);
        tx.open_table(PACKS).unwrap().insert(first + count, &b"unfinished"[..]).unwrap();
    });
    let report = store.verify();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert_eq!(report.unfinished_packs, 1);
}

#[test]
fn a_lost_pack_is_a_fault_of_each_chunk_in_it_and_of_nothing_else() {
    let faults = faults(|tx| {
        let (first, count) = packs(tx);
        tx.open_table(PACKS).unwrap().remove(first + count - 1).unwrap();
    });
    let mut paths: Vec<_> = faults.iter().map(|fault| fault.path().unwrap().to_string()).collect();
    paths.dedup();
    assert_eq!(paths, ["a", "b", "w"], "{faults:?}");
    for fault in &faults {
        assert!(fault.chunk().is_some() && fault.to_string().contains("is missing"), "{fault}");
    }
    // A pack that is lost does not hide one that nobody uses.
    let faults = super::faults(|tx| {
        let (first, _) = packs(tx);
        let mut table = tx.open_table(PACKS).unwrap();
        table.remove(first).unwrap();
        table.insert(1, &b"what was forgotten"[..]).unwrap();
    });
    let says: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(says.len(), 2, "{says:?}");
    assert!(says[0].contains("w, chunk 0: pack") && says[1].contains("pack 1: there"), "{says:?}");
}

#[test]
fn the_list_of_packs_is_that_of_the_chunks() {
    let count = |change: fn(u64) -> u64| {
        move |tx: &WriteTransaction| {
            change_step(tx, 3, |record, at| {
                let range = follow(record, at + STEP_PACKS);
                let count = change(u64_at(record, range + 8));
                put(record, range + 8, count);
            });
        }
    };
    expect(STEP_3, "which the step does not list", count(|count| count - 1));
    // Step 2 is told that it uses a pack of step 3.
    expect((Some(2), None), "and no chunk of it is there", |tx| {
        change_step(tx, 2, |record, at| {
            let range = follow(record, at + STEP_PACKS);
            let count = u64_at(record, range + 8) + 1;
            put(record, range + 8, count);
        });
    });
    // The list goes above the mark too.
    let faults = faults(count(|count| count + 1));
    let says: Vec<_> = faults.iter().map(ToString::to_string).collect();
    assert_eq!(says.len(), 2, "{says:?}");
    assert!(says[1].contains("above the pack mark of"), "{says:?}");
}

#[test]
fn numbers_without_bound_do_not_keep_anyone_busy() {
    for leaf_is_whole in [true, false] {
        let faults = faults(|tx| {
            change_step(tx, 3, |record, at| {
                let range = follow(record, at + STEP_PACKS);
                put(record, range + 8, 1 << 60);
                put(record, at + 42, 1 << 61);
            });
            if !leaf_is_whole {
                remove_leaf(tx, W);
            }
        });
        assert!((2..5).contains(&faults.len()), "{faults:?}");
        assert!(faults.iter().all(|fault| fault.step() == Some(3)), "{faults:?}");
    }
}

#[test]
fn a_mark_that_is_too_low_or_cannot_be_read_is_one_fault() {
    let set = |mark: u64, seal_it: bool| {
        move |tx: &WriteTransaction| {
            let mut table = tx.open_table(META).unwrap();
            let mut record = table.get("pack_mark").unwrap().unwrap().value().to_vec();
            put(&mut record, 8, mark);
            if seal_it {
                seal(&mut record, b"pack_mark");
            }
            table.insert("pack_mark", &record[..]).unwrap();
        }
    };
    expect((Some(2), None), "above the pack mark of 1", set(1, true));
    expect(NOWHERE, "pack mark record has checksum", set(1, false));
    expect(NOWHERE, "the store has no pack mark", |tx| {
        tx.open_table(META).unwrap().remove("pack_mark").unwrap();
    });
    expect(NOWHERE, "the store has no creation time", |tx| {
        tx.open_table(META).unwrap().remove("created_unix_ns").unwrap();
    });
}

#[test]
fn chunks_share_no_bytes_and_stay_in_their_packs() {
    // The bytes are the same, so the checksum can't tell.
    expect((Some(3), Some("b")), "where chunk 0 of a is too", |tx| {
        let mut offset = 0;
        change_leaf(tx, A, |record, chunks| offset = u32_at(record, chunks[0] + CHUNK_OFFSET));
        change_leaf(tx, B, |record, chunks| {
            let at = chunks[0] + CHUNK_OFFSET;
            record[at..at + 4].copy_from_slice(&offset.to_le_bytes());
        });
    });
    expect((Some(3), Some("b")), "the chunk should be 8 bytes at 262144", |tx| {
        change_leaf(tx, B, |record, chunks| {
            let at = chunks[0] + CHUNK_OFFSET;
            record[at..at + 4].copy_from_slice(&262_144u32.to_le_bytes());
        });
    });
}
