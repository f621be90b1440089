//! How fast milepost saves and restores, beside the same bytes written and read raw.
//!
//! ```text
//! cargo bench --bench throughput [-- --json FILE] [--rounds N] [--dir FOLDER]
//! ```
//!
//! Each round measures the raw limits and the store one after the other, with memory touched
//! before each timed part; figures are medians over the rounds, ratios are taken within a round.
//! `limit` is the value of the raw operation, or the bound that we set ourselves.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    reason = "a bench stops loudly, and its figures are sizes and times far below 2^52"
)]

mod measure;
mod raw;
mod report;
mod state;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser;
use milepost::keep_policy::LatestN;
use milepost::{CheckpointManager, CheckpointStore, ManagerOptions, SaveOptions};

use measure::{median, memory_beyond, touch};
use report::Rows;
use state::State;

/// Throughput of milepost beside raw file operations.
#[derive(Parser)]
struct Options {
    /// Write the rows as JSON to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// Measured rounds, after the warm-up
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// The folder for the files, on the disk that is to be measured
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

/// Steps that the manager keeps.
const KEPT: usize = 3;

/// Saves before anything is measured: until the file has stopped growing.
const WARM_UP: usize = 6;

fn main() {
    let options = Options::parse();
    let folder = tempfile::tempdir_in(&options.dir).expect("a folder for the files");
    let mut rows = Rows::default();
    large_state(folder.path(), options.rounds, &mut rows);
    small_leaves(folder.path(), options.rounds, &mut rows);
    many_steps(folder.path(), options.rounds, &mut rows);
    print!("{}", rows.table());
    if let Some(file) = &options.json {
        rows.write_json(file).expect("the JSON file can be written");
    }
}

/// A training state of 256 MiB, saved again and again with the last three kept.
fn large_state(folder: &Path, rounds: usize, rows: &mut Rows) {
    const NAME: &str = "state_256MiB";
    let state = State::transformer(1);
    let mut target = State::transformer(2);
    let bytes = state.bytes();
    let gb = bytes as f64 / 1e9;
    let (path, raw_path) = (folder.join("large.milepost"), folder.join("raw"));
    // What is counted from here on is all that the store takes, its caches included.
    let baseline = measure::resident_mib();
    let options = ManagerOptions::new().keep(LatestN(KEPT));
    let manager = CheckpointManager::open(&path, options).expect("a new store");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);

    let mut samples: [Vec<f64>; 4] = Default::default();
    let mut extra_mib: [Vec<f64>; 2] = Default::default();
    for round in 0..WARM_UP + rounds {
        let step = round as u64 + 1;
        touch(2 * bytes);
        let raw_write = raw::write_new(&raw_path, &state);
        touch(2 * bytes);
        let (save_memory, save) = memory_beyond(baseline, || {
            let began = Instant::now();
            let saved = manager.save_blocking(step, &state).expect("a save");
            assert!(saved.is_saved());
            began.elapsed().as_secs_f64()
        });
        touch(2 * bytes);
        let raw_read = raw::read_into(&raw_path, &mut target, threads);
        touch(2 * bytes);
        let reader = manager.read(step).expect("the saved step");
        let (restore_memory, restore) = memory_beyond(baseline, || {
            let began = Instant::now();
            reader.restore_into(&mut target).expect("a restore");
            began.elapsed().as_secs_f64()
        });
        if round >= WARM_UP {
            for (samples, sample) in samples.iter_mut().zip([raw_write, save, raw_read, restore]) {
                samples.push(sample);
            }
            extra_mib[0].push(save_memory);
            extra_mib[1].push(restore_memory);
        }
    }
    assert!(target == state, "the state came back");

    let [raw_write, save, raw_read, restore] = &samples;
    rows.rate(NAME, "save_durable", gb, save, raw_write);
    rows.rate(NAME, "restore_into", gb, restore, raw_read);
    let bound = (KEPT + 1) as f64 * bytes as f64;
    let (length, used) = measure::file_sizes(&path);
    rows.bound(NAME, "file_disk_usage", used / 1e6, "MB", bound / 1e6);
    rows.bound(NAME, "file_length", length / 1e6, "MB", bound / 1e6);
    for (metric, samples) in ["save_memory", "restore_memory"].iter().zip(&extra_mib) {
        if samples.iter().all(|sample| sample.is_finite()) {
            rows.bound(NAME, metric, median(samples), "MiB", 96.0);
        }
    }
}

/// 20,000 leaves of 1 to 4 KiB.
fn small_leaves(folder: &Path, rounds: usize, rows: &mut Rows) {
    const NAME: &str = "leaves_20000";
    let state = State::small_leaves(20_000, 3);
    let mut target = State::small_leaves(20_000, 4);
    let options = ManagerOptions::new().keep(LatestN(KEPT));
    let path = folder.join("small.milepost");
    let manager = CheckpointManager::open(path, options).expect("a new store");
    let (mut save, mut restore) = (Vec::new(), Vec::new());
    for step in 1..=(WARM_UP + rounds) as u64 {
        touch(4 * state.bytes());
        let began = Instant::now();
        assert!(manager.save_blocking(step, &state).expect("a save").is_saved());
        save.push(began.elapsed().as_secs_f64());
        touch(4 * state.bytes());
        let reader = manager.read(step).expect("the saved step");
        let began = Instant::now();
        reader.restore_into(&mut target).expect("a restore");
        restore.push(began.elapsed().as_secs_f64());
    }
    assert!(target == state, "the state came back");
    let rate = |times: &[f64]| 20_000.0 / median(&times[WARM_UP..]);
    rows.at_least(NAME, "leaves_save_rate", rate(&save), "leaves/s", 300_000.0);
    rows.at_least(NAME, "leaves_restore_rate", rate(&restore), "leaves/s", 600_000.0);
}

/// Opening a store that keeps 1,000 steps, until the number of the latest one is known.
fn many_steps(folder: &Path, rounds: usize, rows: &mut Rows) {
    const NAME: &str = "steps_1000";
    let path = folder.join("steps.milepost");
    let store = CheckpointStore::create(&path).expect("a new store");
    let state = State::small_leaves(8, 5);
    for step in 1..=1000 {
        store.save(step, &state, &SaveOptions::new().metric("loss", 0.5)).expect("a save");
    }
    drop(store);
    for (metric, read_only) in [("open_latest_step", false), ("open_read_only_latest_step", true)] {
        let mut times = Vec::new();
        for _ in 0..10 * rounds {
            let began = Instant::now();
            let store = if read_only {
                CheckpointStore::open_read_only(&path)
            } else {
                CheckpointStore::open(&path)
            };
            let store = store.expect("the store opens");
            assert_eq!(store.latest_step().expect("a step"), Some(1000));
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        rows.bound(NAME, metric, median(&times), "ms", 1.0);
    }
}
