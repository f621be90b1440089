//! How long four ranks take to save a state to one file, beside one process that has all of it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Instant;

use milepost::{CheckpointStore, Compression, Rank, SaveOptions, StoreOptions};

use crate::common::meter::touch;
use crate::common::report::{Row, Rows, median};
use crate::common::store::THREADS;
use crate::state::{STEP, shards_of};

pub(crate) const METRIC: &str = "save_by_ranks";

const RANKS: u32 = 4;

pub(crate) fn run(folder: &Path, parts: usize, rounds: u64, rows: &mut Rows) {
    if !rows.wants(METRIC) {
        return;
    }
    eprintln!("measuring {METRIC}");
    let mut times = Vec::new();
    // One more round, which warms up.
    for round in 0..=rounds {
        let [one, ranks] =
            [1, RANKS].map(|world_size| save_in_processes(folder, parts, world_size));
        if round > 0 {
            times.push([one, ranks]);
        }
    }
    let [one, ranks] = [0, 1].map(|side| median(times.iter().map(|times| times[side])));
    let ratio = median(times.iter().map(|[one, ranks]| ranks / one));
    let row = Row::new("4_processes", METRIC, ranks, "s").beside(one, ratio).at_most(1.3);
    rows.figure(row);
}

/// The seconds from the word to begin until the step is there, saved by so many processes: it is when all of
/// them have saved what they have of it.
fn save_in_processes(folder: &Path, parts: usize, world_size: u32) -> f64 {
    let store = folder.join("saved");
    let mut processes: Vec<_> =
        (0..world_size).map(|rank| start(&store, parts, rank, world_size)).collect();
    for (_, out) in &mut processes {
        wait_for_line(out);
    }
    let began = Instant::now();
    for (process, _) in &mut processes {
        let mut stdin = process.stdin.take().expect("a pipe");
        stdin.write_all(b"\n").expect("the process listens");
    }
    for (_, out) in &mut processes {
        wait_for_line(out);
    }
    let seconds = began.elapsed().as_secs_f64();
    for (mut process, _) in processes {
        assert!(process.wait().expect("a status").success(), "a save failed");
    }
    let saved = CheckpointStore::open_read_only(&store).expect("a store");
    assert_eq!(saved.all_steps().expect("steps"), [STEP]);
    drop(saved);
    std::fs::remove_file(store).expect("the store can be removed");
    seconds
}

fn start(
    store: &Path,
    parts: usize,
    rank: u32,
    world_size: u32,
) -> (Child, BufReader<ChildStdout>) {
    let mut bench = Command::new(std::env::current_exe().expect("this program"));
    bench.arg("--save").arg(store);
    bench.arg("--as-rank").args([rank, world_size].map(|number| number.to_string()));
    bench.args(["--parts", &parts.to_string()]);
    bench.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut process = bench.spawn().expect("the process starts");
    let out = process.stdout.take().expect("a pipe");
    (process, BufReader::new(out))
}

fn wait_for_line(out: &mut BufReader<ChildStdout>) {
    let mut line = String::new();
    out.read_line(&mut line).expect("the process writes");
    assert!(!line.is_empty(), "the process ended before it was done");
}

/// Says a line when all is ready, and another one when the step is saved.
pub(crate) fn save(path: &Path, parts: usize, rank: u32, world_size: u32) {
    let (state, size_bytes) = shards_of(parts, rank, world_size);
    let options = StoreOptions::new().compression(Compression::None).threads(THREADS);
    let store = if world_size == 1 {
        CheckpointStore::create_with(path, options)
    } else {
        let rank = Rank::new(rank, world_size).expect("a rank");
        CheckpointStore::open_as_rank(path, rank, options)
    };
    let store = store.expect("a store");
    touch(2 * size_bytes);
    println!("ready");
    let mut word = [0];
    std::io::stdin().read_exact(&mut word).expect("the word to begin");
    store.save(STEP, &state, &SaveOptions::new()).expect("a save");
    println!("saved");
}
