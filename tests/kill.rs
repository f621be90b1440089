//! The trainer of `examples/train_digits` under real `kill -9`: it ends as if never killed.

#![cfg(unix)]

#[path = "common/example.rs"]
mod example;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use example::example;
use milepost::CheckpointStore;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const STEPS: u64 = 4000;
const SAVE_EVERY: u64 = 10;
const KILLS: u32 = 25;

fn train(trainer: &Path, store: &Path) -> Command {
    let mut command = Command::new(trainer);
    let (steps, every) = (STEPS.to_string(), SAVE_EVERY.to_string());
    command.args(["--steps", &steps, "--save-every", &every, "--seed", "7", "--store"]);
    command.arg(store).stdin(Stdio::null()).stderr(Stdio::null()).stdout(Stdio::piped());
    command
}

fn last_line(trainer: &Path, store: &Path) -> String {
    let output = train(trainer, store).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

/// Waits until the trainer has saved a step from `step` on, or has ended.
fn wait_for_step(child: &mut Child, store: &Path, step: u64) -> Option<u64> {
    loop {
        let latest = CheckpointStore::open_read_only(store).and_then(|store| store.latest_step());
        match latest {
            Ok(Some(latest)) if latest >= step => return Some(latest),
            _ if child.try_wait().unwrap().is_some() => return None,
            _ => std::thread::yield_now(),
        }
    }
}

#[test]
fn a_killed_trainer_ends_as_one_that_was_not() {
    let trainer = example("train_digits");
    let folder = tempfile::tempdir().unwrap();
    let expected = last_line(&trainer, &folder.path().join("whole.milepost"));
    assert!(expected.starts_with(&format!("step {STEPS} loss ")), "{expected}");

    let store = folder.path().join("killed.milepost");
    let mut rng = StdRng::seed_from_u64(1);
    let (mut kills, mut latest) = (0, 0);
    while kills < KILLS {
        let mut child = train(&trainer, &store).spawn().unwrap();
        let goal = latest + SAVE_EVERY * rng.random_range(1..12);
        let seen = wait_for_step(&mut child, &store, goal).expect("the trainer was killed first");
        // Not always right after a commit.
        for _ in 0..rng.random_range(0..200_000) {
            std::hint::spin_loop();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;

        let before = fs::read(&store).unwrap();
        let left = CheckpointStore::open_read_only(&store).unwrap();
        latest = left.latest_step().unwrap().unwrap();
        assert!(latest >= seen, "step {seen} was saved and is gone, the latest is {latest}");
        let report = left.verify().unwrap();
        assert!(report.faults.is_empty(), "after kill {kills}: {:?}", report.faults);
        drop(left);
        assert!(fs::read(&store).unwrap() == before, "reading changed the file");
    }
    assert!(latest < STEPS, "all kills hit a running trainer");
    assert_eq!(last_line(&trainer, &store), expected);
}
