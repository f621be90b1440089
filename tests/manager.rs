//! The manager as a trainer and an evaluator use it.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, OnceLock};

use milepost::keep_policy::{BestMode, BestN, KeepPolicy, LatestN, Predicate, Unmeasured};
use milepost::{
    CheckpointManager, CheckpointStore, ErrorKind, ManagerOptions, SaveOptions, StepInfo,
};

fn open(path: &Path, keep: impl KeepPolicy + 'static) -> CheckpointManager {
    CheckpointManager::open(path, ManagerOptions::new().keep(keep)).unwrap()
}

fn scored(name: &str, value: f64) -> SaveOptions {
    SaveOptions::new().metric(name, value)
}

#[test]
fn a_trainer_starts_from_the_newest_step_or_afresh() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let manager = open(&path, LatestN(2));
    let mut state = vec![7u32];
    assert_eq!(manager.restore_latest(&mut state).unwrap(), None);
    assert_eq!(state, [7]);

    manager.save_blocking(1, &vec![10u32]).unwrap();
    manager.save_blocking(5, &vec![50u32, 51]).unwrap();
    assert_eq!(manager.restore_latest(&mut state).unwrap(), Some(5));
    assert_eq!(state, [50, 51]);
    manager.restore_into(1, &mut state).unwrap();
    assert_eq!(state, [10]);

    // What does not fit is no reason to start afresh either.
    let mut other = 1.5f32;
    let error = manager.restore_latest(&mut other).unwrap_err();
    assert_eq!((error.kind(), error.step()), (ErrorKind::Mismatch, Some(5)));
    assert_eq!(other.to_bits(), 1.5f32.to_bits());
}

/// Going on from an older step, or from none, would throw away work that nobody knew was lost.
#[test]
fn a_damaged_newest_step_is_an_error_and_no_fresh_start() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let manager = open(&path, LatestN(2));
    manager.save_blocking(1, &vec![0x11u8; 5000]).unwrap();
    manager.save_blocking(2, &vec![0x22u8; 5000]).unwrap();
    drop(manager);
    let mut bytes = fs::read(&path).unwrap();
    let at = bytes.windows(5000).position(|window| *window == [0x22; 5000]).unwrap();
    bytes[at + 2500] ^= 1;
    fs::write(&path, bytes).unwrap();

    let manager = open(&path, LatestN(2));
    let error = manager.restore_latest(&mut vec![0u8; 5000]).unwrap_err();
    assert_eq!((error.kind(), error.step()), (ErrorKind::Damaged, Some(2)));
    let mut state = Vec::<u8>::new();
    manager.restore_into(1, &mut state).unwrap();
    assert_eq!(state, [0x11; 5000]);
}

#[test]
fn an_evaluator_follows_the_best_step_beside_the_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let trainer = open(&path, LatestN(1).or(BestN::max("accuracy", 1)));
    let evaluator = CheckpointStore::open_read_only(&path).unwrap();
    assert_eq!(evaluator.best_step("accuracy", BestMode::Max).unwrap(), None);

    for (step, accuracy) in [(1u64, 0.5), (2, 0.9), (3, 0.7), (4, f64::NAN)] {
        trainer.save_blocking_with(step, &step, &scored("accuracy", accuracy)).unwrap();
    }
    assert_eq!(evaluator.all_steps().unwrap(), [2, 4]);
    assert_eq!(evaluator.latest_step().unwrap(), Some(4));
    assert_eq!(evaluator.best_step("accuracy", BestMode::Max).unwrap(), Some(2));
    assert_eq!(evaluator.best_step("loss", BestMode::Min).unwrap(), None);
    assert_eq!(evaluator.step_info(2).unwrap().metrics, [("accuracy".to_owned(), 0.9)].into());
    let mut best = 0u64;
    evaluator.read(2).unwrap().restore_into(&mut best).unwrap();
    assert_eq!(best, 2);

    // The next commit is seen as it comes, and the trainer says the same.
    trainer.save_blocking_with(5, &5u64, &scored("accuracy", 0.95)).unwrap();
    assert_eq!(evaluator.best_step("accuracy", BestMode::Max).unwrap(), Some(5));
    assert_eq!(trainer.best_step("accuracy", BestMode::Max).unwrap(), Some(5));
    let error = evaluator.save(6, &6u64, &SaveOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
}

/// A trainer that measured with every tenth save kept nearly every step with "the latest three or the
/// best one".
#[test]
fn steps_without_the_metric_pile_up_unless_told_to_go() {
    let folder = tempfile::tempdir().unwrap();
    let left = |name: &str, best: BestN| {
        let manager = open(&folder.path().join(name), LatestN(3).or(best));
        for step in 1..=50u32 {
            let measured = step.is_multiple_of(10);
            let accuracy = scored("accuracy", 1.0 / f64::from(step));
            let options = if measured { accuracy } else { SaveOptions::new() };
            manager.save_blocking_with(u64::from(step), &step, &options).unwrap();
        }
        manager.all_steps().unwrap()
    };
    let best = || BestN::max("accuracy", 1);
    assert_eq!(left("default", best()).len(), 47);
    assert_eq!(left("keep", best().unmeasured(Unmeasured::Keep)).len(), 47);
    assert_eq!(left("drop", best().unmeasured(Unmeasured::Drop)), [10, 48, 49, 50]);
}

/// Policies and sources run inside a save; that they may read is promised.
#[test]
fn a_policy_and_a_source_may_read_the_store_that_is_saving() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let shared: Arc<OnceLock<CheckpointManager>> = Arc::default();
    let inside = Arc::clone(&shared);
    // Keeps what was committed before the save that asks: all but the steps that went earlier.
    let committed = Predicate::new(move |info: &StepInfo| {
        let manager = inside.get().unwrap();
        manager.all_steps().unwrap().contains(&info.step) && manager.restore(info.step).is_ok()
    });
    let manager = shared.get_or_init(|| open(&path, committed));
    manager.save_blocking(1, &1u64).unwrap();
    let handle = manager.save_source(2, &manager.read(1).unwrap(), &SaveOptions::new());
    assert!(handle.unwrap().wait().unwrap().is_saved());
    assert_eq!(manager.all_steps().unwrap(), [1, 2]);
    assert_eq!(manager.restore(2).unwrap(), manager.restore(1).unwrap());
}

/// It waited for itself.
#[test]
fn a_policy_that_writes_to_its_own_store_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let manager: Arc<OnceLock<CheckpointManager>> = Arc::default();
    let policy = {
        let manager = Arc::clone(&manager);
        Predicate::new(move |_: &StepInfo| {
            let Some(manager) = manager.get() else { return true };
            let refused = [
                manager.save_blocking(9, &1u8).map(drop).unwrap_err(),
                manager.delete(1).unwrap_err(),
                manager.pin(1).unwrap_err(),
            ];
            for error in refused {
                assert_eq!(error.kind(), ErrorKind::InvalidInput);
                assert!(error.to_string().contains("in the middle of a save"), "{error}");
            }
            assert!(manager.all_steps().unwrap().len() < 3);
            true
        })
    };
    let opened = open(&folder.path().join("run.milepost"), policy);
    opened.save_blocking(1, &1u8).unwrap();
    manager.set(opened).ok().unwrap();
    let manager = manager.get().unwrap();
    manager.save_blocking(2, &1u8).unwrap();
    manager.save_blocking(3, &1u8).unwrap();
    assert_eq!(manager.all_steps().unwrap(), [1, 2, 3]);
}

#[test]
fn of_threads_that_save_the_same_step_one_does_and_the_others_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let manager = open(&folder.path().join("run.milepost"), LatestN(100));
    for step in 1..=20u64 {
        let outcomes: Vec<bool> = std::thread::scope(|scope| {
            let save = || manager.save_blocking(step, &step).unwrap().is_saved();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(save)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(outcomes.iter().filter(|saved| **saved).count(), 1, "step {step}");
    }
    assert_eq!(manager.all_steps().unwrap(), (1..=20).collect::<Vec<_>>());
}

/// A panic of a policy ends its save; the file stays clean and the manager goes on.
#[test]
fn a_policy_that_panics_costs_its_save_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let manager = open(
        &path,
        Predicate::new(|info: &StepInfo| {
            assert!(info.metrics.is_empty(), "the policy is broken");
            true
        }),
    );
    manager.save_blocking(1, &1u8).unwrap();
    let save = || manager.save_blocking_with(2, &1u8, &scored("loss", 1.0));
    let panic = catch_unwind(AssertUnwindSafe(save)).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"the policy is broken"));
    assert_eq!(manager.all_steps().unwrap(), [1]);
    manager.save_blocking(3, &1u8).unwrap();
    let report = manager.store().verify().unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    drop(manager);
    // redb itself finds nothing to repair.
    let mut builder = redb::Builder::new();
    builder.set_concurrency_mode(redb::ConcurrencyMode::SingleWriter);
    builder.open_read_only(&path).unwrap();
}
