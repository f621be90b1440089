//! Four processes of `examples/ranks` that share a file, under real `kill -9`, restarts, slow and missing
//! ranks: what can be seen is always what a run without any of that saves.

#![cfg(unix)]

#[path = "common/example.rs"]
mod example;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use example::example;
use milepost::{CheckpointStore, ErrorKind};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};

const WORLD_SIZE: u32 = 4;
const SAVE_EVERY: u64 = 5;

/// The digests of the steps of a store.
fn digests(store: &CheckpointStore) -> BTreeMap<u64, String> {
    let steps = store.steps().unwrap();
    steps.into_iter().map(|info| (info.step, info.digest_hex())).collect()
}

struct Job {
    program: PathBuf,
    store: PathBuf,
    steps: u64,
    rows: u64,
    running: BTreeMap<u32, Child>,
}

impl Job {
    fn new(program: &Path, store: PathBuf, steps: u64, rows: u64) -> Self {
        Self { program: program.to_owned(), store, steps, rows, running: BTreeMap::new() }
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["--world-size", &WORLD_SIZE.to_string(), "--steps", &self.steps.to_string()]);
        command.args(["--rows", &self.rows.to_string()]);
        command.args(["--save-every", &SAVE_EVERY.to_string(), "--store"]).arg(&self.store);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    /// Starts the ranks that don't run.
    fn start(&mut self, ranks: impl IntoIterator<Item = u32>) {
        for rank in ranks {
            let mut command = self.command();
            let start = || command.args(["--rank", &rank.to_string()]).spawn().unwrap();
            self.running.entry(rank).or_insert_with(start);
        }
    }

    fn signal(&self, rank: u32, signal: Signal) {
        kill_process(Pid::from_child(&self.running[&rank]), signal).unwrap();
    }

    fn kill(&mut self, rank: u32) {
        let mut process = self.running.remove(&rank).unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    fn is_over(&mut self) -> bool {
        self.running.values_mut().any(|process| process.try_wait().unwrap().is_some())
    }

    fn reader(&self) -> CheckpointStore {
        CheckpointStore::open_read_only(&self.store).unwrap()
    }

    /// Looks at the store, again and again, until `done`. A job that is over by then was too short.
    fn look_until(&mut self, done: impl Fn(&CheckpointStore) -> bool) {
        loop {
            // Opened anew: the ranks may have been killed since.
            match CheckpointStore::open_read_only(&self.store) {
                Ok(store) if done(&store) => return,
                Err(error) if error.kind() != ErrorKind::NotFound => panic!("{error}"),
                _ => assert!(!self.is_over(), "a rank ended by itself"),
            }
            std::thread::yield_now();
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for process in self.running.values_mut() {
            // It may be over.
            let _ = process.kill().and_then(|()| process.wait());
        }
    }
}

fn spin(rng: &mut StdRng, most: u32) {
    for _ in 0..rng.random_range(0..most) {
        std::hint::spin_loop();
    }
}

struct Rounds {
    count: u64,
    /// A round goes on by so many saves at least, drawn up to this,
    goal: u64,
    /// and by fewer than this, more or less: the ranks go on while they are looked at.
    most: u64,
    /// Rows of the arrays of all ranks.
    rows: u64,
    /// The ranks are killed at any of so many moments.
    moments: u32,
}

/// Kills some ranks in each round, and the run ends all the same as one without that.
fn kill_ranks(rounds: &Rounds) {
    let Rounds { count, goal: saves, most, rows, moments } = *rounds;
    let steps = count * most * SAVE_EVERY;
    let program = example("ranks");
    let folder = tempfile::tempdir().unwrap();
    let whole = Job::new(&program, folder.path().join("whole.milepost"), steps, rows);
    assert!(whole.command().status().unwrap().success());
    let expected = digests(&whole.reader());
    assert_eq!(expected.len(), usize::try_from(steps / SAVE_EVERY).unwrap());

    let mut job = Job::new(&program, folder.path().join("killed.milepost"), steps, rows);
    let mut rng = StdRng::seed_from_u64(4);
    let all: Vec<u32> = (0..WORLD_SIZE).collect();
    let mut seen = BTreeMap::new();
    for round in 0..count {
        let latest = seen.last_key_value().map_or(0, |(step, _)| *step);
        match rng.random_range(0..4) {
            0 if round > 0 => miss_a_rank(&mut job, &mut rng),
            kind => {
                job.start(all.clone());
                if kind == 1 {
                    let slow = *all.choose(&mut rng).unwrap();
                    job.signal(slow, Signal::STOP);
                    spin(&mut rng, 2_000_000);
                    job.signal(slow, Signal::CONT);
                }
                let goal = latest + SAVE_EVERY * rng.random_range(1..=saves);
                job.look_until(|store| store.latest_step().unwrap() >= Some(goal));
            }
        }
        // Not always right after a commit.
        spin(&mut rng, moments);
        let victims = rng.random_range(1..=job.running.len());
        let running: Vec<u32> = job.running.keys().copied().collect();
        running.sample(&mut rng, victims).for_each(|rank| job.kill(*rank));

        let store = job.reader();
        let found = digests(&store);
        for (step, digest) in &found {
            assert_eq!(digest, &expected[step], "round {round}, step {step}");
        }
        assert!(seen.keys().all(|step| found.contains_key(step)), "round {round}: a step is lost");
        let report = store.verify().unwrap();
        assert!(report.is_complete() && report.faults.is_empty(), "{:?}", report.faults);
        seen = found;
    }
    assert!(seen.len() < expected.len(), "all kills hit running ranks");
    for rank in job.running.keys().copied().collect::<Vec<_>>() {
        job.kill(rank);
    }
    assert!(job.command().status().unwrap().success());
    assert_eq!(digests(&job.reader()), expected);
    assert_eq!(job.reader().pending_steps().unwrap(), []);
}

/// A round in which one rank does not run: nothing that lacks it is committed, and it is known who is missing.
fn miss_a_rank(job: &mut Job, rng: &mut StdRng) {
    let missing = rng.random_range(0..WORLD_SIZE);
    if job.running.contains_key(&missing) {
        job.kill(missing);
    }
    job.start((0..WORLD_SIZE).filter(|rank| *rank != missing));
    let waits = |store: &CheckpointStore| {
        let pending = store.pending_steps().unwrap();
        pending.into_iter().find(|pending| pending.missing_ranks() == [missing])
    };
    job.look_until(|store| waits(store).is_some());
    let store = job.reader();
    let step = waits(&store).unwrap().step;
    let error = store.wait_committed(step, Duration::ZERO).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let expected = format!("rank {missing} of {WORLD_SIZE} has not arrived");
    assert!(error.to_string().contains(&expected), "{error}");
    // What the missing rank had given before it was killed may have become a step.
    spin(rng, 400_000);
    assert!(store.latest_step().unwrap() < Some(step));
}

#[test]
fn killed_ranks_end_as_those_that_were_not() {
    kill_ranks(&Rounds { count: 24, goal: 3, most: 20, rows: 32, moments: 100_000 });
}

#[test]
#[ignore = "takes minutes: cargo test --release --test rank_processes -- --ignored --nocapture"]
fn killed_ranks_end_as_those_that_were_not_in_many_rounds() {
    kill_ranks(&Rounds { count: 250, goal: 3, most: 20, rows: 32, moments: 100_000 });
    // Each rank saves 30 MiB, in more than one transaction.
    kill_ranks(&Rounds { count: 8, goal: 1, most: 4, rows: 320_000, moments: 20_000_000 });
}

#[test]
fn ranks_that_mean_different_steps_both_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let program = example("ranks");
    let start = |rank: u32, rows: u32| {
        let mut command = Command::new(&program);
        command.args(["--world-size", "2", "--steps", "1", "--save-every", "1"]);
        command.args(["--rank", &rank.to_string(), "--rows", &rows.to_string(), "--store"]);
        command.arg(folder.path().join("run")).stdout(Stdio::null()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let ranks = [start(0, 32), start(1, 40)];
    for process in ranks {
        let output = process.wait_with_output().unwrap();
        assert!(!output.status.success());
        let error = String::from_utf8(output.stderr).unwrap();
        for (rank, rows) in [(0, 32), (1, 40)] {
            assert!(error.contains(&format!("float32[{rows}, 48]")), "{error}");
            assert!(error.contains(&format!("on rank {rank}")), "{error}");
        }
    }
    let store = CheckpointStore::open_read_only(folder.path().join("run")).unwrap();
    assert_eq!(store.all_steps().unwrap(), [0; 0]);
}
