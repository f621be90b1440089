//! W1 in several sizes: whether a byte of a large state costs more than one of a small state.

use super::Run;
use crate::common::meter::Meter;
use crate::common::report::{Row, Rows, median};
use crate::common::state::State;
use crate::common::store::Store;
use crate::train::train;
use crate::workload::{Scale, Workload};

pub(super) const METRICS: &[&str] = &["scaling", "save_time"];

/// Saves until a file that keeps one step has stopped growing.
const WARM_UP: u64 = 3;

/// A state of one size.
struct Sized {
    workload: Workload,
    state: State,
    store: Store,
    /// Of each round.
    seconds_per_gb: Vec<f64>,
}

pub(super) fn run(run: &Run, rows: &mut Rows) {
    let full: &[_] = &[Scale::Quarter, Scale::Half, Scale::Whole, Scale::Double];
    let quick: &[_] = &[Scale::Eighth, Scale::Quarter];
    let folder = run.new_folder("scaling");
    let open = |scale: &Scale| {
        let workload = Workload::gpt2(*scale);
        let state = workload.load(&run.data);
        let path = folder.join(workload.name).with_extension("milepost");
        let store = Store::open(&path, Some(1)).expect("a new store");
        Sized { workload, state, store, seconds_per_gb: Vec::new() }
    };
    let mut sizes: Vec<Sized> = run.pick(full, quick).iter().map(open).collect();
    for step in 1..=WARM_UP + run.rounds {
        for sized in &mut sizes {
            let seconds_per_gb = sized.save(step);
            if step > WARM_UP {
                sized.seconds_per_gb.push(seconds_per_gb);
            }
        }
    }
    let (smallest, largest) = (&sizes[0], &sizes[sizes.len() - 1]);
    let rounds = smallest.seconds_per_gb.iter().zip(&largest.seconds_per_gb);
    let growth = median(rounds.map(|(smallest, largest)| largest / smallest));
    rows.figure(Row::new(largest.workload.name, "scaling", growth, "times").below(1.15));
    for sized in &sizes {
        let seconds_per_gb = median(sized.seconds_per_gb.iter().copied());
        rows.other(Row::new(sized.workload.name, "save_time", seconds_per_gb, "s/GB"));
    }
}

impl Sized {
    /// Saves the next step; seconds per GB.
    fn save(&mut self, step: u64) -> f64 {
        train(&mut self.state);
        let bytes = self.workload.size_bytes();
        let meter = Meter::start(2 * bytes);
        self.store.save(step, &self.state).expect("a save");
        meter.seconds() / (bytes as f64 / 1e9)
    }
}
