//! Saving in the background: what the trainer does meanwhile changes nothing, nothing that was
//! accepted is lost, and no error is.

mod faults;
mod stress;

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use milepost::keep_policy::{KeepPolicy, Predicate};
use milepost::save_policy::{self, EveryNSteps};
use milepost::{
    CheckpointManager, ErrorKind, Leaf, ManagerOptions, SaveHandle, SaveOptions, SaveOutcome,
    SaveReport, SkipReason, StepInfo, Tree, WhenFull,
};
use ndarray::ArcArray1;

/// A keep policy that keeps everything, and lets the writer end a save only when it is told to.
struct Gate {
    open: Sender<()>,
    /// The steps that arrive at the gate, which are written but not committed.
    arrived: Receiver<u64>,
}

fn gate() -> (Gate, impl KeepPolicy + 'static) {
    let ((open, opened), (arrive, arrived)) = (channel(), channel());
    // Asked for each step, of which the last is the new one.
    let ends = Mutex::new((opened, arrive, 0));
    let policy = Predicate::new(move |info: &StepInfo| {
        let mut ends = ends.lock().unwrap();
        if info.step > ends.2 {
            ends.2 = info.step;
            ends.1.send(info.step).unwrap();
            ends.0.recv().unwrap();
        }
        true
    });
    (Gate { open, arrived }, policy)
}

impl Gate {
    fn let_through(&self, step: u64) {
        assert_eq!(self.arrived.recv().unwrap(), step);
        self.open.send(()).unwrap();
    }
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn store(&self) -> PathBuf {
        self.0.path().join("run.milepost")
    }

    fn open(&self, options: ManagerOptions) -> CheckpointManager {
        CheckpointManager::open(self.store(), options).unwrap()
    }
}

fn report(handle: SaveHandle) -> SaveReport {
    match handle.wait().unwrap() {
        SaveOutcome::Saved(report) => *report,
        other => panic!("not saved: {other:?}"),
    }
}

fn skipped(handle: SaveHandle) -> SkipReason {
    match handle.wait().unwrap() {
        SaveOutcome::Skipped(reason) => reason,
        other => panic!("saved: {other:?}"),
    }
}

fn restore<C: milepost::Checkpoint>(manager: &CheckpointManager, step: u64, mut into: C) -> C {
    manager.restore_into(step, &mut into).unwrap();
    into
}

#[test]
fn what_the_trainer_changes_after_the_call_is_not_in_the_step() {
    let folder = Folder::new();
    let (gate, policy) = gate();
    let manager = folder.open(ManagerOptions::new().keep(policy));
    let mut borrowed: Vec<u32> = (0..1_000_000).collect();
    let mut shared = ArcArray1::from_vec((0..1_000_000u32).rev().collect());
    let (before, shared_before) = (borrowed.clone(), shared.to_vec());
    let state = (&mut borrowed, &mut shared);
    let tree = Tree::tuple([
        Tree::Leaf(Leaf::from(ndarray::ArrayView1::from(&state.0[..]))),
        Tree::Leaf(Leaf::from(state.1.clone())),
    ]);
    let handle = manager.save(1, &tree).unwrap();
    drop(tree);
    borrowed.fill(7);
    shared.fill(8);
    assert!(!handle.is_finished());
    assert!(handle.poll().is_none() && handle.wait_for(Duration::ZERO).is_none());
    assert_eq!(manager.latest_step().unwrap(), None);
    gate.let_through(1);
    let report = report(handle);
    assert_eq!((report.info.step, report.cost.copied_bytes), (1, 4_000_000));
    let back = manager.restore(1).unwrap();
    let Tree::Tuple(leaves) = back else { panic!("a tuple") };
    let found: Vec<Vec<u32>> = leaves
        .into_iter()
        .map(|leaf| match leaf {
            Tree::Leaf(leaf) => leaf.into_array::<u32>().unwrap().into_iter().collect(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(found, [before, shared_before]);
}

/// A leaf that is larger than the budget, and a state that is many times as large, are copied and
/// written part by part.
#[test]
fn a_state_larger_than_the_budget_is_saved_part_by_part() {
    let folder = Folder::new();
    let budget = milepost::limits::MIN_STAGING_BUDGET_BYTES;
    let manager = folder.open(ManagerOptions::new().staging_budget(budget).unwrap());
    let state: Vec<Vec<u32>> =
        (0..9u32).map(|leaf| (leaf..leaf + 300_000 * (leaf % 3 + 1)).collect()).collect();
    let mut changing = state.clone();
    let handle = manager.save(1, &changing).unwrap();
    for leaf in &mut changing {
        leaf.fill(0);
    }
    let bytes: usize = state.iter().map(|leaf| leaf.len() * 4).sum();
    assert_eq!(report(handle).cost.copied_bytes, u64::try_from(bytes).unwrap());
    assert_eq!(restore(&manager, 1, changing), state);
    let error = ManagerOptions::new().staging_budget(budget - 1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("2097151"), "{error}");
}

#[test]
fn snapshots_are_saved_as_they_were_and_give_their_memory_back() {
    let folder = Folder::new();
    let budget = 8 << 20;
    let manager = folder.open(ManagerOptions::new().staging_budget(budget).unwrap());
    let mut state = vec![1u64; 400_000];
    for step in 1..10 {
        state.fill(step);
        let snapshot = manager.snapshot(&state).unwrap();
        // There is no room for a second one, but always for what a save has to copy.
        let error = manager.snapshot(&state).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        state.fill(0);
        report(manager.save(2 * step, &state).unwrap());
        let cost = report(manager.save(2 * step + 1, &snapshot).unwrap()).cost;
        assert_eq!(cost.copied_bytes, 0);
        assert_eq!(restore(&manager, 2 * step + 1, Vec::<u64>::new()), vec![step; 400_000]);
    }
}

#[test]
fn saves_wait_for_a_place_in_their_order() {
    let folder = Folder::new();
    let (gate, policy) = gate();
    let manager = folder.open(ManagerOptions::new().keep(policy).queue(1, WhenFull::Block));
    manager.save(1, &1u64).unwrap();
    manager.save(2, &2u64).unwrap();
    std::thread::scope(|scope| {
        let third = scope.spawn(|| manager.save(3, &3u64).unwrap());
        gate.let_through(1);
        let third = third.join().unwrap();
        assert!(!third.is_finished());
        gate.let_through(2);
        gate.let_through(3);
        assert_eq!(report(third).info.step, 3);
    });
    assert_eq!(manager.all_steps().unwrap(), [1, 2, 3]);
}

#[test]
fn a_full_queue_skips_if_told_so() {
    let folder = Folder::new();
    let (gate, policy) = gate();
    let manager = folder.open(ManagerOptions::new().keep(policy).queue(0, WhenFull::Skip));
    let first = manager.save(1, &1u64).unwrap();
    assert_eq!(skipped(manager.save(2, &2u64).unwrap()), SkipReason::QueueFull);
    // The last step of a run is not to be lost.
    let forced = SaveOptions::new().force();
    std::thread::scope(|scope| {
        let last = scope.spawn(|| manager.save_with(3, &3u64, &forced).unwrap());
        gate.let_through(1);
        report(first);
        gate.let_through(3);
        report(last.join().unwrap());
    });
    assert_eq!(manager.all_steps().unwrap(), [1, 3]);
}

#[test]
fn the_newest_takes_the_place_of_the_oldest_that_waits_if_told_so() {
    let folder = Folder::new();
    let (gate, policy) = gate();
    let manager = folder.open(ManagerOptions::new().keep(policy).queue(2, WhenFull::KeepNewest));
    let first = manager.save(1, &1u64).unwrap();
    assert_eq!(gate.arrived.recv().unwrap(), 1);
    let forced = SaveOptions::new().force();
    let waiting: Vec<SaveHandle> = vec![
        manager.save_with(2, &2u64, &forced).unwrap(),
        manager.save(3, &3u64).unwrap(),
        manager.save(4, &4u64).unwrap(),
        manager.save(5, &5u64).unwrap(),
    ];
    let outcomes: Vec<bool> = waiting.iter().map(SaveHandle::is_finished).collect();
    assert_eq!(outcomes, [false, true, true, false]);
    gate.open.send(()).unwrap();
    gate.let_through(2);
    gate.let_through(5);
    report(first);
    let mut waiting = waiting.into_iter();
    report(waiting.next().unwrap());
    assert_eq!(skipped(waiting.next().unwrap()), SkipReason::Superseded { by: 4 });
    assert_eq!(skipped(waiting.next().unwrap()), SkipReason::Superseded { by: 5 });
    report(waiting.next().unwrap());
    assert_eq!(manager.all_steps().unwrap(), [1, 2, 5]);
}

/// A later save that was superseded once counted as one of those that were waited for.
#[test]
fn who_waits_waits_for_what_was_accepted_before() {
    let folder = Folder::new();
    let (gate, policy) = gate();
    let manager = folder.open(ManagerOptions::new().keep(policy).queue(3, WhenFull::KeepNewest));
    let forced = SaveOptions::new().force();
    for step in 1..4 {
        manager.save_with(step, &step, &forced).unwrap();
    }
    let (begun, has_begun) = channel();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            begun.send(()).unwrap();
            manager.wait_until_finished().unwrap();
        });
        has_begun.recv().unwrap();
        for step in 4..7 {
            manager.save(step, &step).unwrap();
        }
        gate.let_through(1);
        gate.let_through(2);
        assert_eq!(gate.arrived.recv().unwrap(), 3);
        assert!(!waiter.is_finished(), "step 3 is not durable yet");
        gate.open.send(()).unwrap();
        gate.let_through(6);
        waiter.join().unwrap();
    });
    manager.wait_until_finished().unwrap();
    assert_eq!(manager.all_steps().unwrap(), [1, 2, 3, 6]);
}

/// A policy that was asked while the save before was on its way once saved a step twice.
#[test]
fn what_is_on_its_way_counts_as_saved() {
    let folder = Folder::new();
    let (gate, keep) = gate();
    let latest = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&latest);
    let save = save_policy::Predicate::new(move |_, context: &save_policy::SaveContext| {
        seen.lock().unwrap().push(context.latest.map(|latest| latest.step));
        true
    });
    let manager =
        folder.open(ManagerOptions::new().save(save).keep(keep).queue(9, WhenFull::Block));
    manager.save(10, &1u64).unwrap();
    assert_eq!(skipped(manager.save(10, &1u64).unwrap()), SkipReason::AlreadySaved);
    assert_eq!(skipped(manager.save(9, &1u64).unwrap()), SkipReason::NotNewer { latest: 10 });
    manager.save(11, &1u64).unwrap();
    assert_eq!(*latest.lock().unwrap(), [None, Some(10)]);
    gate.let_through(10);
    gate.let_through(11);
    manager.wait_until_finished().unwrap();
}

#[test]
fn dropping_and_closing_finish_what_was_accepted() {
    let folder = Folder::new();
    let state = |step: u64| vec![step; 100_000];
    for close in [false, true] {
        let manager = folder.open(ManagerOptions::new().queue(9, WhenFull::Block));
        let first = manager.latest_step().unwrap().unwrap_or(0) + 1;
        let handles: Vec<SaveHandle> =
            (first..first + 5).map(|step| manager.save(step, &state(step)).unwrap()).collect();
        if close {
            manager.close().unwrap();
        } else {
            drop(manager);
        }
        assert!(handles.into_iter().all(|handle| handle.is_finished()));
        let manager = folder.open(ManagerOptions::new());
        assert_eq!(manager.all_steps().unwrap(), (1..first + 5).collect::<Vec<_>>());
        assert_eq!(restore(&manager, first + 4, Vec::<u64>::new()), state(first + 4));
    }
}

#[test]
fn reading_and_deleting_come_after_what_was_accepted() {
    let folder = Folder::new();
    let manager = folder.open(ManagerOptions::new().queue(9, WhenFull::Block));
    let state = |step: u64| vec![step; 1_000_000];
    manager.save(1, &state(1)).unwrap();
    assert_eq!(restore(&manager, 1, Vec::<u64>::new()), state(1));
    manager.save(2, &state(2)).unwrap();
    let mut latest = Vec::<u64>::new();
    assert_eq!(manager.restore_latest(&mut latest).unwrap(), Some(2));
    manager.save(3, &state(3)).unwrap();
    manager.pin(3).unwrap();
    manager.save(4, &state(4)).unwrap();
    assert_eq!(manager.rollback_to(3).unwrap(), [4]);
    manager.save(5, &state(5)).unwrap();
    manager.delete(5).unwrap();
    manager.save(6, &state(6)).unwrap();
    assert!(manager.save_blocking(7, &state(7)).unwrap().is_saved());
    assert_eq!(manager.all_steps().unwrap(), [1, 2, 3, 6, 7]);
}

#[test]
fn threads_that_save_at_once_each_get_their_step() {
    let folder = Folder::new();
    let options = ManagerOptions::new().staging_budget(4 << 20).unwrap();
    let manager = folder.open(options.save(EveryNSteps::new(1).unwrap()));
    let forced = SaveOptions::new().force();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (manager, forced) = (&manager, &forced);
            scope.spawn(move || {
                for round in 0..5 {
                    let step = round * 4 + thread;
                    let mut state = vec![step; 200_000];
                    let handle = manager.save_with(step, &state, forced).unwrap();
                    state.fill(u64::MAX);
                    drop(handle);
                }
            });
        }
    });
    for step in 0..20 {
        assert_eq!(restore(&manager, step, Vec::<u64>::new()), vec![step; 200_000]);
    }
    manager.close().unwrap();
}
