//! What bit planes make of weights: the parameters of W1, or those in a file.

use std::fs;

use milepost::half::bf16;
use milepost::ndarray::Array1;
use milepost::{Checkpoint, CheckpointStore, Compression, SaveOptions, StoreOptions};

use super::{Run, store_file};
use crate::common::meter::Meter;
use crate::common::report::{Row, Rows};
use crate::workload::{Scale, Workload};

pub(super) const METRICS: &[&str] =
    &["codec_bf16", "codec_f32", "codec_bf16_save", "codec_f32_save"];

pub(super) fn run(run: &Run, rows: &mut Rows) {
    let (name, weights) = match &run.weights {
        Some(file) => {
            let bytes = fs::read(file).expect("the file of the weights");
            let (elements, rest) = bytes.as_chunks::<4>();
            assert!(rest.is_empty(), "the file has whole float32 elements");
            ("weights", elements.iter().map(|element| f32::from_le_bytes(*element)).collect())
        }
        None => ("W1_weights", generated(run)),
    };
    let weights: Array1<f32> = Array1::from_vec(weights);
    let halves = weights.mapv(bf16::from_f32);
    let bf16 = save(run, "codec_bf16", &halves, 2 * weights.len());
    let f32 = save(run, "codec_f32", &weights, 4 * weights.len());
    rows.figure(Row::new(name, "codec_bf16", bf16.0, "times").below(0.75));
    rows.figure(Row::new(name, "codec_f32", f32.0, "times").below(0.88));
    rows.other(Row::new(name, "codec_bf16_save", bf16.1, "GB/s"));
    rows.other(Row::new(name, "codec_f32_save", f32.1, "GB/s"));
}

/// The parameters of W1/4.
fn generated(run: &Run) -> Vec<f32> {
    Workload::gpt2(Scale::Quarter).load(&run.data).params()
}

/// Saves `array` once: the bytes that were written by those that it has, and GB/s.
fn save<C: Checkpoint>(run: &Run, metric: &str, array: &C, bytes: usize) -> (f64, f64) {
    let path = store_file(&run.new_folder(metric));
    let options = StoreOptions::new().compression(Compression::BitPlanes);
    let store = CheckpointStore::create_with(path, options).expect("a new store");
    let meter = Meter::start(2 * bytes as u64);
    store.save(1, array, &SaveOptions::new()).expect("a save");
    let cost = meter.stop();
    (cost.io.wchar as f64 / bytes as f64, bytes as f64 / 1e9 / cost.seconds)
}
