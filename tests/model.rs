//! Random operations against a plain model in memory.

use std::collections::BTreeMap;
use std::path::Path;

use milepost::keep_policy::{BestMode, BestN, KeepPolicy, LatestN};
use milepost::save_policy::EveryNSteps;
use milepost::{
    CheckpointManager, Compression, ErrorKind, Leaf, ManagerOptions, SaveHandle, SaveOptions,
    SaveOutcome, SkipReason, StepReader, StoreOptions, Tree,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const INTERVAL: u64 = 2;
const LATEST: usize = 3;

#[derive(Debug, Clone)]
struct Saved {
    tree: Tree<Leaf<'static>>,
    loss: Option<f64>,
    pinned: bool,
}

/// What the store should hold.
#[derive(Default)]
struct Model {
    steps: BTreeMap<u64, Saved>,
}

impl Model {
    fn best(&self) -> Option<u64> {
        let scored = self.steps.iter().filter_map(|(step, saved)| Some((*step, saved.loss?)));
        let number = |loss: f64| if loss.is_nan() { f64::INFINITY } else { loss };
        // A NaN is worse than infinity too; the generated losses have no infinity.
        scored.min_by(|a, b| number(a.1).total_cmp(&number(b.1)).then(b.0.cmp(&a.0))).map(|s| s.0)
    }

    /// Saves, and removes what `LatestN(3).or(BestN::min("loss", 1))` does not keep.
    fn save(&mut self, new: u64, saved: Saved) -> Vec<u64> {
        self.steps.insert(new, saved);
        let latest: Vec<u64> = self.steps.keys().rev().take(LATEST).copied().collect();
        let best = self.best();
        let goes = |step: &u64, saved: &Saved| {
            let kept = latest.contains(step) || Some(*step) == best || saved.loss.is_none();
            // A save never removes what it saves, even if it is an old step.
            !kept && !saved.pinned && *step != new
        };
        let gone: Vec<u64> =
            self.steps.iter().filter(|(step, saved)| goes(step, saved)).map(|(s, _)| *s).collect();
        self.steps.retain(|step, _| !gone.contains(step));
        gone
    }
}

fn open(path: &Path, compression: Compression) -> CheckpointManager {
    let options = ManagerOptions::new()
        .save(EveryNSteps::new(INTERVAL).unwrap())
        .keep(LatestN(LATEST).or(BestN::min("loss", 1)))
        .store(StoreOptions::new().compression(compression));
    CheckpointManager::open(path, options).unwrap()
}

/// Some leaves are those of the tree before, in the same place or in another.
fn random_tree(rng: &mut StdRng, before: &Tree<Leaf<'static>>) -> Tree<Leaf<'static>> {
    let leaves = rng.random_range(0..6);
    let Tree::List(before) = before else { panic!("a list") };
    Tree::list((0..leaves).map(|number: usize| {
        let old = if rng.random_bool(0.9) { number } else { rng.random_range(0..6) };
        match before.get(old) {
            // Shared, or in memory of its own.
            Some(old) if rng.random_bool(0.3) => return old.clone(),
            Some(Tree::Leaf(old)) if rng.random_bool(0.3) => {
                let elements = old.as_array::<u8>().unwrap().to_owned();
                return Tree::Leaf(Leaf::from(elements));
            }
            _ => {}
        }
        let length = match rng.random_range(0..20) {
            0 => rng.random_range(0..300_000),
            _ => rng.random_range(0..600),
        };
        let first: u8 = rng.random();
        Tree::Leaf(Leaf::from_vec(vec![first; length], [length]).unwrap())
    }))
}

fn borrowed<'a>(tree: &'a Tree<Leaf<'static>>) -> Tree<Leaf<'a>> {
    let Tree::List(leaves) = tree else { panic!("a list") };
    let borrow = |tree: &'a Tree<Leaf<'static>>| match tree {
        Tree::Leaf(leaf) => {
            let shape = leaf.meta().shape.lengths();
            Tree::Leaf(Leaf::from_raw(leaf.meta().dtype, shape, leaf.contents().unwrap()).unwrap())
        }
        _ => panic!("a leaf"),
    };
    Tree::list(leaves.iter().map(borrow))
}

struct Run {
    rng: StdRng,
    model: Model,
    manager: CheckpointManager,
    last_tree: Tree<Leaf<'static>>,
    /// Steps that are read while others are written, with what they should hold.
    readers: Vec<(StepReader, Tree<Leaf<'static>>)>,
}

impl Run {
    fn step(&mut self) -> u64 {
        let latest = self.model.steps.keys().next_back().copied().unwrap_or(0);
        match self.rng.random_range(0..4) {
            0 => self.rng.random_range(0..latest + 2),
            _ => latest + self.rng.random_range(1..4),
        }
    }

    fn save(&mut self) {
        let (step, tree) = (self.step(), random_tree(&mut self.rng, &self.last_tree));
        self.last_tree = tree.clone();
        let (force, replace, pinned) =
            (self.rng.random_bool(0.3), self.rng.random_bool(0.3), self.rng.random_bool(0.05));
        let loss = match self.rng.random_range(0..20) {
            0 => None,
            1 => Some(f64::NAN),
            n => Some(f64::from(n) / self.rng.random_range(1.0..9.0)),
        };
        let mut options = SaveOptions::new();
        options = if force { options.force() } else { options };
        options = if replace { options.replace() } else { options };
        options = if pinned { options.pin() } else { options };
        options = loss.map_or(options.clone(), |loss| options.metric("loss", loss));

        let there = self.model.steps.contains_key(&step);
        let latest = self.model.steps.keys().next_back().copied();
        let result = match self.rng.random_range(0..3) {
            0 => self.manager.save_blocking_with(step, &tree, &options),
            1 => self.manager.save_with(step, &tree, &options).and_then(SaveHandle::wait),
            // Borrowed, so that it is copied.
            _ => {
                let borrowed = borrowed(&tree);
                self.manager.save_with(step, &borrowed, &options).and_then(SaveHandle::wait)
            }
        };
        let expected = match () {
            () if force && there && !replace => {
                assert_eq!(result.unwrap_err().kind(), ErrorKind::AlreadyExists);
                return;
            }
            () if force => None,
            () if there && !replace => Some(SkipReason::AlreadySaved),
            () if latest.is_some_and(|latest| step < latest) => {
                latest.map(|latest| SkipReason::NotNewer { latest })
            }
            () if step % INTERVAL != 0 => Some(SkipReason::OffPolicy),
            () => None,
        };
        match (result.unwrap(), expected) {
            (SaveOutcome::Skipped(reason), Some(expected)) => assert_eq!(reason, expected),
            (SaveOutcome::Saved(report), None) => {
                // Replacing a pinned step does not unpin it.
                let pinned = pinned || self.model.steps.get(&step).is_some_and(|old| old.pinned);
                let removed = self.model.save(step, Saved { tree, loss, pinned });
                assert_eq!(report.removed, removed);
            }
            (outcome, expected) => panic!("{outcome:?}, expected {expected:?}"),
        }
    }

    fn any_saved(&mut self) -> Option<u64> {
        let steps: Vec<u64> = self.model.steps.keys().copied().collect();
        (!steps.is_empty()).then(|| steps[self.rng.random_range(0..steps.len())])
    }

    fn delete(&mut self) {
        let step = self.any_saved().filter(|_| self.rng.random_bool(0.9)).unwrap_or(u64::MAX);
        let result = self.manager.delete(step);
        match self.model.steps.get(&step) {
            None => assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound),
            Some(saved) if saved.pinned => {
                assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidInput);
            }
            Some(_) => {
                result.unwrap();
                self.model.steps.remove(&step);
            }
        }
    }

    fn roll_back(&mut self) {
        let Some(step) = self.any_saved() else { return };
        let later: Vec<u64> = self.model.steps.range(step + 1..).map(|(step, _)| *step).collect();
        let pinned = later.iter().any(|step| self.model.steps[step].pinned);
        match self.manager.rollback_to(step) {
            Ok(gone) => {
                assert!(!pinned);
                assert_eq!(gone, later);
                self.model.steps.retain(|saved, _| *saved <= step);
            }
            Err(error) => assert!(pinned && error.kind() == ErrorKind::InvalidInput, "{error}"),
        }
    }

    fn pin(&mut self) {
        let Some(step) = self.any_saved() else { return };
        let pinned = self.rng.random_bool(0.3);
        let result = if pinned { self.manager.pin(step) } else { self.manager.unpin(step) };
        result.unwrap();
        self.model.steps.get_mut(&step).unwrap().pinned = pinned;
    }

    fn read(&mut self) {
        if let Some(step) = self.any_saved() {
            let expected = self.model.steps[&step].tree.clone();
            let reader = self.manager.read(step).unwrap();
            assert_eq!(reader.restore().unwrap(), expected);
            self.readers.push((reader, expected));
        }
        // An old reader still reads what it was opened for.
        if self.readers.len() > 3 {
            let (reader, expected) = self.readers.remove(0);
            assert_eq!(reader.restore().unwrap(), expected);
        }
    }

    fn compare(&self) {
        let steps: Vec<u64> = self.model.steps.keys().copied().collect();
        assert_eq!(self.manager.all_steps().unwrap(), steps);
        assert_eq!(self.manager.latest_step().unwrap(), steps.last().copied());
        assert_eq!(self.manager.best_step("loss", BestMode::Min).unwrap(), self.model.best());
    }

    fn check_all(&self) {
        for (step, saved) in &self.model.steps {
            assert_eq!(self.manager.restore(*step).unwrap(), saved.tree, "step {step}");
            assert_eq!(self.manager.step_info(*step).unwrap().pinned, saved.pinned);
        }
        let report = self.manager.store().verify().unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        assert_eq!(report.unfinished_packs, 0);
    }
}

fn run(seed: u64, operations: usize, compression: Compression) {
    println!("seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.milepost");
    let manager = open(&path, compression);
    let rng = StdRng::seed_from_u64(seed);
    let last_tree = Tree::list([]);
    let mut run = Run { rng, model: Model::default(), manager, last_tree, readers: Vec::new() };
    for operation in 0..operations {
        match run.rng.random_range(0..100) {
            0..60 => run.save(),
            60..68 => run.delete(),
            68..71 => run.roll_back(),
            71..80 => run.pin(),
            80..98 => run.read(),
            _ => {
                run.readers.clear();
                // The file is free again once the old manager is gone.
                let Run { rng, model, manager, last_tree, .. } = run;
                drop(manager);
                let manager = open(&path, compression);
                run = Run { rng, model, manager, last_tree, readers: vec![] };
            }
        }
        run.compare();
        if operation % 500 == 0 {
            run.check_all();
        }
    }
    run.check_all();
    run.readers.clear();
    for (step, saved) in run.model.steps.clone() {
        if saved.pinned {
            run.manager.unpin(step).unwrap();
        }
        run.manager.delete(step).unwrap();
    }
    assert_eq!(run.manager.store().stats().unwrap().packs, 0, "packs are left over");
}

/// 10,000 operations. A failure says its seed.
#[test]
fn random_operations_do_what_a_model_does() {
    std::thread::scope(|scope| {
        scope.spawn(|| run(1, 5000, Compression::None));
        scope.spawn(|| run(2, 5000, Compression::Lz4));
    });
}

/// Many more, with new seeds each time.
#[test]
#[ignore = "takes minutes: cargo test --release --test model -- --ignored --nocapture"]
fn many_more_random_operations() {
    for _ in 0..20 {
        run(rand::random(), 20_000, Compression::None);
        run(rand::random(), 20_000, Compression::Lz4);
    }
}
