//! W1: how long a save in the background holds the trainer up.

use super::{KEPT, Run, WARM_UP, store_file};
use crate::common::meter::Meter;
use crate::common::report::{Row, Rows, median};
use crate::common::state::{HandOver, State};
use crate::common::store::{Saved, Store};
use crate::raw;
use crate::train::{copy_of, train};
use crate::workload::{Scale, Workload};

pub(super) const METRICS: &[&str] = &[
    "save_return_owned",
    "save_return_borrowed",
    "background_save_borrowed",
    "background_save_owned",
];

pub(super) fn run(run: &Run, rows: &mut Rows) {
    let workload = Workload::gpt2(run.pick(Scale::Whole, Scale::Quarter));
    let mut state = workload.load(&run.data);
    let mut target = copy_of(&state);
    let folder = run.new_folder("returns");
    let store = Store::open(&store_file(&folder), Some(KEPT)).expect("a new store");
    let save = |step, state: &mut State, hand_over| -> Saved {
        train(state);
        state.arrays_mut().into_iter().for_each(|array| array.hand_over = hand_over);
        Meter::start(2 * workload.size_bytes());
        store.save_in_background(step, state).expect("a save")
    };
    let (mut ratios, mut copies) = (Vec::new(), Vec::new());
    let (mut borrowed, mut owned) = (Vec::new(), Vec::new());
    for round in 0..WARM_UP + run.rounds {
        let saved = save(2 * round, &mut state, HandOver::Borrowed);
        let meter = Meter::start(2 * workload.size_bytes());
        raw::copy(&state, &mut target);
        let copy_s = meter.seconds();
        let shared = save(2 * round + 1, &mut state, HandOver::Shared);
        if round >= WARM_UP {
            ratios.push(saved.returned_s / copy_s);
            copies.push(copy_s);
            borrowed.push(saved);
            owned.push(shared);
        }
    }
    let name = workload.name;
    let ms = |metric, saves: &[Saved], of: fn(&Saved) -> f64| {
        Row::new(name, metric, median(saves.iter().map(of)) * 1e3, "ms")
    };
    rows.figure(ms("save_return_owned", &owned, |saved| saved.returned_s).below(1.0));
    let row = ms("save_return_borrowed", &borrowed, |saved| saved.returned_s);
    rows.figure(row.beside(median(copies) * 1e3, median(ratios)).at_most(1.25));
    rows.other(ms("background_save_borrowed", &borrowed, |saved| saved.durable_s));
    rows.other(ms("background_save_owned", &owned, |saved| saved.durable_s));
}
