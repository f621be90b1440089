//! A state of 256 MiB, saved until the file has stopped growing.

use super::whole::Bench;
use super::{KEPT, Run, store_file};
use crate::common::report::{Row, Rows};
use crate::workload::Workload;

pub(super) const METRICS: &[&str] = &[
    "steady_save",
    "steady_restore",
    "steady_restore_beside_pages",
    "steady_memory",
    "steady_file_size",
];

pub(super) fn run(run: &Run, rows: &mut Rows) {
    use std::os::unix::fs::MetadataExt;

    let workload = Workload::state_256mib();
    let mut bench = Bench::new(run, &workload);
    for step in bench.warm_up(run) {
        bench.round(step);
    }
    bench.samples.steady().into_iter().for_each(|row| rows.other(row));
    let file = store_file(&run.folder.join(workload.name));
    let allocated = std::fs::metadata(file).expect("the file of the store").blocks() * 512;
    let bound = 1.1 * (KEPT + 1) as f64 * workload.size_bytes() as f64;
    let row = Row::new(workload.name, "steady_file_size", allocated as f64 / 1e6, "MB");
    rows.other(row.below(bound / 1e6));
}
