//! W2: how many small leaves are saved and restored in a second.

use super::{KEPT, Run, WARM_UP, store_file};
use crate::common::meter::Meter;
use crate::common::report::{Row, Rows, median};
use crate::common::store::Store;
use crate::train::{copy_of, train};
use crate::workload::Workload;

pub(super) const METRICS: &[&str] = &["leaves_save_rate", "leaves_restore_rate"];

pub(super) fn run(run: &Run, rows: &mut Rows) {
    let workload = Workload::small_arrays();
    let mut state = workload.load(&run.data);
    let mut target = copy_of(&state);
    let count = state.arrays().len() as f64;
    let folder = run.new_folder(workload.name);
    let store = Store::open(&store_file(&folder), Some(KEPT)).expect("a new store");
    let (mut saves, mut restores) = (Vec::new(), Vec::new());
    // The states are small and their times short: twice the rounds.
    for step in 1..=WARM_UP + 2 * run.rounds {
        train(&mut state);
        let meter = Meter::start(4 * workload.size_bytes());
        store.save(step, &state).expect("a save");
        let save = meter.seconds();
        let meter = Meter::start(4 * workload.size_bytes());
        store.restore_into(step, &mut target).expect("a restore");
        let restore = meter.seconds();
        assert!(target == state, "the state came back");
        if step > WARM_UP {
            saves.push(save);
            restores.push(restore);
        }
    }
    let row =
        |metric, seconds| Row::new(workload.name, metric, count / median(seconds), "leaves/s");
    rows.figure(row("leaves_save_rate", saves).above(300_000.0));
    rows.figure(row("leaves_restore_rate", restores).above(600_000.0));
}
