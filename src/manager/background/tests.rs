//! The disk fails at each operation of a save in the background.

use std::path::Path;

use crate::db::injected::{Failure, disk};
use crate::keep_policy::LatestN;
use crate::{CheckpointManager, Error, ErrorKind, Leaf, ManagerOptions, SaveHandle, Tree};

/// Leaves in packs of their own and in shared ones; the first half changes with each step.
fn state(step: u64) -> Tree<Leaf<'static>> {
    let leaf = |number: u64| {
        let length = 1 << (4 * number);
        let first = if number < 3 { step * 100 } else { 0 };
        Tree::Leaf(Leaf::from_vec(vec![first + number; length], [length]).unwrap())
    };
    Tree::list((0..5).map(leaf))
}

fn open(path: &Path) -> CheckpointManager {
    CheckpointManager::open(path, ManagerOptions::new().keep(LatestN(2))).unwrap()
}

#[track_caller]
fn check_error(error: &Error) {
    assert_eq!((error.kind(), error.step()), (ErrorKind::Io, Some(3)), "{error}");
    assert!(error.to_string().contains("the disk is broken"), "{error}");
}

/// Saves step 3 on a disk that fails after so many operations; whether it did.
fn fail_after(operations: u64, failure: Failure) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let manager = open(&path);
    for step in 1..3 {
        manager.save_blocking(step, &state(step)).unwrap();
    }
    let disk = disk(&path);
    disk.fail_after(operations, failure);
    let outcome = manager.save(3, &state(3)).and_then(SaveHandle::wait);
    if !disk.mend() {
        assert!(outcome.unwrap().is_saved());
        return false;
    }
    match outcome {
        Err(error) => {
            check_error(&error);
            check_error(&manager.wait_until_finished().unwrap_err());
            check_error(&manager.save(4, &state(4)).unwrap_err());
        }
        // It failed in what is done after the commit.
        Ok(outcome) => assert!(outcome.is_saved()),
    }
    manager.wait_until_finished().unwrap();
    // Only an error of the very last sync leaves the step there, and then whole.
    let steps = manager.all_steps().unwrap();
    assert!(steps == [1, 2] || steps == [2, 3], "{steps:?}");
    for step in steps {
        assert_eq!(manager.restore(step).unwrap(), state(step));
    }
    // The same manager goes on.
    let outcome = manager.save(5, &state(5)).unwrap().wait().unwrap();
    assert!(outcome.is_saved());
    let report = manager.store().verify().unwrap();
    assert!(report.faults.is_empty() && report.unfinished_packs == 0, "{report:?}");
    drop(manager);
    let manager = open(&path);
    assert_eq!(manager.latest_step().unwrap(), Some(5));
    assert_eq!(manager.restore(5).unwrap(), state(5));
    true
}

#[test]
fn a_disk_that_fails_at_any_operation_costs_one_save_and_tells_it() {
    for failure in [Failure::Once, Failure::Lasting] {
        let failed = (0..1000).take_while(|operations| fail_after(*operations, failure)).count();
        assert!(failed > 5, "{failed} operations of a save failed");
    }
}
