//! W4: what a step writes of a state of which most does not change.

use super::{KEPT, Run, store_file};
use crate::common::meter::Meter;
use crate::common::report::{Row, Rows, median};
use crate::common::store::Store;
use crate::train::{changed_bytes, train};
use crate::workload::{Scale, Workload};

pub(super) const METRICS: &[&str] = &["changed_bytes", "changed_save"];

pub(super) fn run(run: &Run, rows: &mut Rows) {
    let workload = Workload::low_rank(run.pick(Scale::Whole, Scale::Quarter));
    let steps = run.pick(10, 5);
    let mut state = workload.load(&run.data);
    let folder = run.new_folder(workload.name);
    let store = Store::open(&store_file(&folder), Some(KEPT)).expect("a new store");
    store.save(1, &state).expect("a save");
    let (mut written, mut seconds) = (Vec::new(), Vec::new());
    for step in 2..=steps {
        train(&mut state);
        let meter = Meter::start(2 * workload.size_bytes());
        store.save(step, &state).expect("a save");
        let cost = meter.stop();
        written.push(cost.io.wchar as f64);
        seconds.push(cost.seconds);
    }
    let bound = 1.05 * changed_bytes(&state) as f64 + f64::from(64 << 10);
    let row = Row::new(workload.name, "changed_bytes", median(written) / 1e6, "MB");
    rows.figure(row.below(bound / 1e6));
    rows.other(Row::new(workload.name, "changed_save", median(seconds) * 1e3, "ms"));
}
