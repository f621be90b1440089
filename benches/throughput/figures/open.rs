//! Opening a store that keeps 1,000 steps, until the number of the latest one is known.

use std::time::Instant;

use milepost::CheckpointStore;

use super::{Run, store_file};
use crate::common::report::{Row, Rows, median};
use crate::common::store::Store;
use crate::workload::Workload;

pub(super) const METRICS: &[&str] = &["open_latest_step", "open_read_only_latest_step"];

const STEPS: u64 = 1000;

pub(super) fn run(run: &Run, rows: &mut Rows) {
    const NAME: &str = "steps_1000";
    let path = store_file(&run.new_folder(NAME));
    let state = Workload::norm().load(&run.data);
    let store = Store::open(&path, None).expect("a new store");
    for step in 1..=STEPS {
        store.save(step, &state).expect("a save");
    }
    drop(store);
    for (metric, read_only) in [("open_latest_step", false), ("open_read_only_latest_step", true)] {
        let mut times = Vec::new();
        for _ in 0..10 * run.rounds {
            let began = Instant::now();
            let store = if read_only {
                CheckpointStore::open_read_only(&path)
            } else {
                CheckpointStore::open(&path)
            };
            let store = store.expect("the store opens");
            assert_eq!(store.latest_step().expect("a step"), Some(STEPS));
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        rows.other(Row::new(NAME, metric, median(times), "ms").below(1.0));
    }
}
