//! How much a trainer that computes is slowed down while the writer runs beside it.

use std::hint::black_box;
use std::time::Instant;

use milepost::ndarray::Array2;

use super::{KEPT, Run, WARM_UP, store_file};
use crate::common::meter::touch;
use crate::common::report::{Row, Rows, median};
use crate::common::store::Store;
use crate::train::train;
use crate::workload::{Scale, Workload};

pub(super) const METRICS: &[&str] = &["trainer_slowdown"];

/// Products of matrices that are timed alone.
const ALONE: usize = 100;

pub(super) fn run(run: &Run, rows: &mut Rows) {
    let workload = Workload::gpt2(run.pick(Scale::Whole, Scale::Quarter));
    let mut state = workload.load(&run.data);
    let folder = run.new_folder("slowdown");
    let store = Store::open(&store_file(&folder), Some(KEPT)).expect("a new store");
    let weights = Array2::from_shape_fn((256, 256), |(row, column)| (row * column % 7) as f32);
    let product_s = || {
        let began = Instant::now();
        black_box(weights.dot(black_box(&weights)));
        began.elapsed().as_secs_f64()
    };
    let (mut alone, mut beside) = (Vec::new(), Vec::new());
    for step in 1..=WARM_UP + run.rounds {
        train(&mut state);
        touch(2 * workload.size_bytes());
        let before = median((0..ALONE).map(|_| product_s()));
        let mut meanwhile = Vec::new();
        store.save_beside(step, &state, || meanwhile.push(product_s())).expect("a save");
        if step > WARM_UP {
            alone.push(before);
            // The mean: what the trainer gets done while the save goes on.
            beside.push(meanwhile.iter().sum::<f64>() / meanwhile.len().max(1) as f64);
        }
    }
    let ratio = median(beside.iter().zip(&alone).map(|(beside, alone)| beside / alone));
    let row = Row::new(workload.name, "trainer_slowdown", median(beside) * 1e3, "ms");
    rows.figure(row.beside(median(alone) * 1e3, ratio));
}
