//! Saves that fail: who is told, and what goes on.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use milepost::keep_policy::{KeepPolicy, Predicate};
use milepost::{
    CheckpointManager, DType, ErrorKind, KeyPath, LeafMeta, LeafSource, ManagerOptions, Region,
    Result, SaveOptions, Shape, StepInfo, Tree,
};

use super::{Folder, report};

/// Fails with the metric "broken".
fn breakable() -> impl KeepPolicy + 'static {
    Predicate::new(|info: &StepInfo| {
        assert!(!info.metrics.contains_key("broken"), "the policy is broken");
        true
    })
}

#[test]
fn an_error_reaches_the_handle_the_next_save_and_who_waits_each_once() {
    let folder = Folder::new();
    let manager = folder.open(ManagerOptions::new().keep(breakable()));
    manager.save(1, &1u64).unwrap();
    let broken = SaveOptions::new().metric("broken", 1.0);
    let handle = manager.save_with(2, &2u64, &broken).unwrap();
    let check = |error: milepost::Error| {
        assert_eq!((error.kind(), error.step()), (ErrorKind::Panicked, Some(2)), "{error}");
        assert!(error.to_string().contains("the policy is broken"), "{error}");
        error.to_string()
    };
    check(handle.clone().wait().unwrap_err());
    check(manager.wait_until_finished().unwrap_err());
    manager.wait_until_finished().unwrap();
    let told = check(manager.save(3, &3u64).unwrap_err());
    assert!(told.contains("step 3 was not begun"), "{told}");
    // The same manager goes on, and the step that failed was never there.
    assert_eq!(manager.all_steps().unwrap(), [1]);
    report(manager.save(3, &3u64).unwrap());
    report(manager.save(4, &4u64).unwrap());
    manager.wait_until_finished().unwrap();
    assert_eq!(manager.all_steps().unwrap(), [1, 3, 4]);
    // Saves that wait behind one that fails are not touched by it.
    let fails = manager.save_with(5, &5u64, &broken).unwrap();
    let goes_on = manager.save(6, &6u64);
    check_step(&fails.wait().unwrap_err(), 5);
    let told = match goes_on {
        Ok(handle) => {
            report(handle);
            manager.save_blocking(7, &7u64).unwrap_err()
        }
        Err(error) => error,
    };
    check_step(&told, 5);
    check_step(&manager.close().unwrap_err(), 5);
}

#[track_caller]
fn check_step(error: &milepost::Error, step: u64) {
    assert_eq!((error.kind(), error.step()), (ErrorKind::Panicked, Some(step)), "{error}");
}

/// Gives rows of an array of 16 MiB, up to the one at which it fails or panics.
struct Breaking {
    row: usize,
    panics: bool,
}

impl LeafSource for Breaking {
    fn structure(&self) -> Result<Tree<LeafMeta>> {
        Ok(Tree::Leaf(LeafMeta::array(DType::U8, Shape::new([16, 1 << 20])?)))
    }

    fn read_region(&self, _: &KeyPath, region: &Region, out: &mut [u8]) -> Result<()> {
        if region.ranges()[0].end > self.row {
            assert!(!self.panics, "the source is broken");
            return Err(CheckpointManager::open(Path::new("/"), ManagerOptions::new()).unwrap_err());
        }
        out.fill(u8::try_from(region.ranges()[0].start).unwrap());
        Ok(())
    }
}

/// It fails while nothing is written yet, and while the writer waits for more.
#[test]
fn a_source_that_breaks_while_it_is_copied_costs_its_own_save() {
    let folder = Folder::new();
    for budget in [2 << 20, 64 << 20] {
        let options = ManagerOptions::new().staging_budget(budget).unwrap();
        let manager = folder.open(options);
        let step = manager.latest_step().unwrap().unwrap_or(0) + 1;
        for row in [0, 7, 15] {
            let source = Breaking { row, panics: false };
            let error = manager.save_source(step, &source, &SaveOptions::new()).unwrap_err();
            assert_eq!((error.kind(), error.step()), (ErrorKind::NotAStore, Some(step)));
            let source = Breaking { row, panics: true };
            let save = || manager.save_source(step, &source, &SaveOptions::new());
            let panic = catch_unwind(AssertUnwindSafe(save)).unwrap_err();
            assert_eq!(panic.downcast_ref(), Some(&"the source is broken"));
        }
        // The caller knows already.
        manager.wait_until_finished().unwrap();
        let source = Breaking { row: 16, panics: false };
        report(manager.save_source(step, &source, &SaveOptions::new()).unwrap());
        let report = manager.store().verify().unwrap();
        assert!(report.faults.is_empty() && report.unfinished_packs == 0, "{report:?}");
    }
}

#[test]
fn what_can_not_be_saved_is_refused_at_once() {
    let folder = Folder::new();
    let manager = folder.open(ManagerOptions::new());
    let twice = Tree::record("S", [("a", Tree::None), ("a", Tree::None)]);
    let error = manager.save(1, &twice).unwrap_err();
    assert_eq!((error.kind(), error.step()), (ErrorKind::InvalidInput, Some(1)));
    report(manager.save(1, &1u64).unwrap());
    let again = manager.save_with(1, &1u64, &SaveOptions::new().force()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AlreadyExists);
    manager.wait_until_finished().unwrap();
}
