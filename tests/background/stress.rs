//! A thousand saves of a state that changes all the time, against a plain model.

use std::collections::BTreeMap;

use milepost::keep_policy::{KeepPolicy, LatestN, Predicate};
use milepost::{
    CheckpointManager, ErrorKind, Leaf, ManagerOptions, SaveHandle, SaveOptions, SaveOutcome,
    SkipReason, StepInfo, Tree, WhenFull,
};
use ndarray::ArcArray1;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::Folder;

/// Keeps the latest four, and panics at the metric "broken".
fn keep() -> impl KeepPolicy + 'static {
    let breaks = Predicate::new(|info: &StepInfo| {
        assert!(!info.metrics.contains_key("broken"), "the policy is broken");
        false
    });
    LatestN(4).or(breaks)
}

/// What the trainer has: arrays that are borrowed, and arrays that are shared.
struct State {
    borrowed: Vec<Vec<u32>>,
    shared: Vec<ArcArray1<u32>>,
}

impl State {
    fn tree(&self) -> Tree<Leaf<'_>> {
        let borrowed = self
            .borrowed
            .iter()
            .map(|array| Tree::Leaf(Leaf::from_slice(array, [array.len()]).unwrap()));
        let shared = self.shared.iter().map(|array| Tree::Leaf(Leaf::from(array.clone())));
        Tree::tuple([Tree::list(borrowed), Tree::list(shared)])
    }

    fn copy(&self) -> Tree<Leaf<'static>> {
        self.tree().map_leaves(|_, leaf| Ok(leaf.into_owned())).unwrap()
    }

    /// Changes some elements, and now and then the number or the length of the arrays.
    fn change(&mut self, rng: &mut StdRng) {
        for array in &mut self.borrowed {
            if rng.random_bool(0.5) && !array.is_empty() {
                let index = rng.random_range(0..array.len());
                array[index] = rng.random();
            }
        }
        for array in &mut self.shared {
            if rng.random_bool(0.5) && !array.is_empty() {
                let index = rng.random_range(0..array.len());
                array[index] = rng.random();
            }
        }
        if rng.random_bool(0.1) {
            let length = match rng.random_range(0..4) {
                0 => rng.random_range(0..300_000),
                _ => rng.random_range(0..2000),
            };
            self.borrowed.push(vec![rng.random(); length]);
            self.shared.push(ArcArray1::from_elem(length / 2, rng.random()));
        }
        if self.borrowed.len() > 5 {
            self.borrowed.remove(rng.random_range(0..5));
            self.shared.remove(rng.random_range(0..5));
        }
    }
}

struct Run {
    rng: StdRng,
    manager: CheckpointManager,
    state: State,
    /// What each accepted save should hold, and whether it is to fail.
    under_way: BTreeMap<u64, (SaveHandle, Tree<Leaf<'static>>, bool)>,
    saved: BTreeMap<u64, Tree<Leaf<'static>>>,
    /// Failed saves that no later save has told yet.
    untold: Vec<u64>,
    failures: usize,
}

impl Run {
    fn save(&mut self, step: u64) {
        let fails = self.rng.random_bool(0.05);
        let mut options = SaveOptions::new();
        if fails {
            options = options.metric("broken", 1.0);
        }
        if self.rng.random_bool(0.1) {
            options = options.force();
        }
        let result = if self.rng.random_bool(0.1) {
            // The rest of the budget may be in saves that are on their way.
            match self.manager.snapshot(&self.state.tree()) {
                Ok(snapshot) => self.manager.save_with(step, &snapshot, &options),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                    return;
                }
            }
        } else {
            self.manager.save_with(step, &self.state.tree(), &options)
        };
        match result {
            Ok(handle) => {
                self.under_way.insert(step, (handle, self.state.copy(), fails));
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Panicked, "{error}");
                self.untold.push(error.step().unwrap());
            }
        }
    }

    /// Waits for one of the saves.
    fn wait(&mut self) {
        let steps: Vec<u64> = self.under_way.keys().copied().collect();
        if let Some(step) = steps.get(self.rng.random_range(0..steps.len().max(1))) {
            let (handle, tree, fails) = self.under_way.remove(step).unwrap();
            match handle.wait() {
                Ok(SaveOutcome::Saved(report)) => {
                    assert!(!fails);
                    assert_eq!(report.info.step, *step);
                    self.saved.insert(*step, tree);
                }
                Ok(SaveOutcome::Skipped(reason)) => assert!(
                    matches!(reason, SkipReason::QueueFull | SkipReason::Superseded { .. }),
                    "{reason}"
                ),
                Ok(other) => panic!("{other:?}"),
                Err(error) => {
                    assert!(fails, "{error}");
                    assert_eq!(error.step(), Some(*step));
                    self.failures += 1;
                }
            }
        }
    }

    /// Every step that is there is what it was when it was saved.
    fn check(&mut self) {
        while !self.under_way.is_empty() {
            self.wait();
        }
        for step in self.manager.all_steps().unwrap() {
            assert!(self.manager.restore(step).unwrap() == self.saved[&step], "step {step}");
        }
        let report = self.manager.store().verify().unwrap();
        assert!(report.faults.is_empty() && report.unfinished_packs == 0, "{report:?}");
    }
}

fn run(seed: u64, saves: u64, when_full: WhenFull) {
    println!("seed {seed}, {when_full:?}");
    let folder = Folder::new();
    let options =
        ManagerOptions::new().keep(keep()).queue(2, when_full).staging_budget(4 << 20).unwrap();
    let mut run = Run {
        rng: StdRng::seed_from_u64(seed),
        manager: folder.open(options),
        state: State { borrowed: Vec::new(), shared: Vec::new() },
        under_way: BTreeMap::new(),
        saved: BTreeMap::new(),
        untold: Vec::new(),
        failures: 0,
    };
    for step in 1..=saves {
        let (state, rng) = (&mut run.state, &mut run.rng);
        state.change(rng);
        run.save(step);
        // The trainer goes on at once.
        run.state.change(&mut run.rng);
        if run.rng.random_bool(0.3) {
            run.wait();
        }
        if step % 200 == 0 {
            run.check();
        }
    }
    run.check();
    // Each failure was told to one later save, or to who waited in the end.
    while let Err(error) = run.manager.wait_until_finished() {
        assert_eq!(error.kind(), ErrorKind::Panicked);
        run.failures -= 1;
    }
    assert_eq!(run.failures, 0);
    let told: std::collections::BTreeSet<u64> = run.untold.iter().copied().collect();
    assert_eq!(told.len(), run.untold.len(), "no failure is told twice");
}

#[test]
fn a_thousand_saves_are_what_they_were_when_they_were_accepted() {
    std::thread::scope(|scope| {
        scope.spawn(|| run(1, 400, WhenFull::Block));
        scope.spawn(|| run(2, 300, WhenFull::Skip));
        scope.spawn(|| run(3, 300, WhenFull::KeepNewest));
    });
}

/// Many more, with new seeds each time.
#[test]
#[ignore = "takes minutes: cargo test --release --test background -- --ignored --nocapture"]
fn many_more_saves() {
    for _ in 0..10 {
        for when_full in [WhenFull::Block, WhenFull::Skip, WhenFull::KeepNewest] {
            run(rand::random(), 3000, when_full);
        }
    }
}
