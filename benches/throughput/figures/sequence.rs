//! W5: what a file takes of the disk in a long run that keeps three steps.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{KEPT, Run, store_file};
use crate::common::report::{Row, Rows};
use crate::common::store::Store;
use crate::train::train;
use crate::workload::{Scale, Workload};

pub(super) const METRICS: &[&str] = &["file_size", "file_growth", "file_length"];

/// From this step on the file is not to grow.
const SETTLED: u64 = 10;

pub(super) fn run(run: &Run, rows: &mut Rows) {
    // Its shapes are those of W1, so it has no data of its own.
    const NAME: &str = "W5";
    let workload = Workload::gpt2(Scale::Quarter);
    let steps = run.pick(200, SETTLED);
    let mut state = workload.load(&run.data);
    let folder = run.new_folder(NAME);
    let path = store_file(&folder);
    let store = Store::open(&path, Some(KEPT)).expect("a new store");
    let mut sizes = Vec::new();
    for step in 1..=steps {
        train(&mut state);
        store.save(step, &state).expect("a save");
        if step >= SETTLED {
            sizes.push(file_sizes(&path));
        }
    }
    let (first, last) = (sizes[0], sizes[sizes.len() - 1]);
    let most = sizes.iter().map(|size| size.allocated).max().unwrap_or(0);
    let bound = 1.1 * (KEPT + 1) as f64 * workload.size_bytes() as f64;
    let megabytes = |metric, bytes| Row::new(NAME, metric, bytes as f64 / 1e6, "MB");
    rows.figure(megabytes("file_size", most).below(bound / 1e6));
    if steps > SETTLED {
        let growth = last.allocated as f64 / first.allocated as f64;
        rows.other(Row::new(NAME, "file_growth", growth, "times").below(1.0));
    }
    // The length counts the unused end of the file, which has no blocks.
    rows.other(megabytes("file_length", last.length));
}

#[derive(Clone, Copy)]
struct FileSizes {
    length: u64,
    /// What it takes of the disk.
    allocated: u64,
}

fn file_sizes(path: &Path) -> FileSizes {
    let metadata = fs::metadata(path).expect("the file of the store");
    FileSizes { length: metadata.len(), allocated: metadata.blocks() * 512 }
}
