//! Whole states: W1 and W3, saved again and again with the last three steps kept, every element
//! changed between two saves, and the raw operations beside them in every round.

use std::path::PathBuf;

use milepost::{Checkpoint, KeyPath};

use super::samples::Samples;
use super::{KEPT, Run, WARM_UP, store_file};
use crate::common::meter::{Meter, resident_bytes};
use crate::common::report::Rows;
use crate::common::state::{State, key_path};
use crate::common::store::{Store, THREADS};
use crate::raw::{self, Prepared};
use crate::train::{copy_of, train};
use crate::workload::{Scale, Workload};

pub(super) const METRICS: &[&str] = &[
    "save_durable",
    "restore_into",
    "restore_fresh",
    "leaf_read",
    "write_amplification",
    "save_cpu",
    "memory_extra",
    "leaf_bytes",
    "save_memory",
    "restore_into_memory",
    "restore_fresh_memory",
    "restore_into_beside_pages",
    "raw_leaf_read",
    "raw_memcpy",
    "raw_write_new",
    "raw_write_preallocated",
    "raw_write_existing",
    "raw_read_into_1_thread",
    "raw_read_into",
    "raw_read_through_pages",
    "raw_read_fresh_1_thread",
    "raw_read_fresh",
];

/// Those of raw operations on the whole state.
fn raw_metrics() -> impl Iterator<Item = &'static str> {
    let raw = METRICS.iter().filter(|metric| metric.starts_with("raw_"));
    raw.copied().filter(|metric| *metric != "raw_leaf_read")
}

/// The leaf that is read alone.
const LEAF: &str = "params/h_5/mlp/c_fc/kernel";

pub(super) fn run(run: &Run, rows: &mut Rows) {
    let mut w1 = Bench::new(run, &Workload::gpt2(run.pick(Scale::Whole, Scale::Quarter)));
    let leaf = key_path(LEAF);
    let mut leaf_bytes = 0;
    for step in w1.warm_up(run) {
        w1.round(step);
        leaf_bytes = w1.one_leaf(step, &leaf);
    }
    let samples = w1.samples;
    samples.rates().into_iter().for_each(|row| rows.figure(row));
    samples.save_costs(rows);
    samples.memory(rows);
    samples.leaf(leaf_bytes, rows);
    rows.other(samples.restore_beside_pages("restore_into_beside_pages"));
    samples.raw_rates(raw_metrics(), rows);

    let mut w3 = Bench::new(run, &Workload::one_array(run.pick(Scale::Whole, Scale::Eighth)));
    for step in w3.warm_up(run) {
        w3.round(step);
    }
    let samples = w3.samples;
    samples.rates().into_iter().for_each(|row| rows.other(row));
    samples.raw_rates(raw_metrics(), rows);
}

pub(super) struct Bench {
    store: Store,
    raw_path: PathBuf,
    state: State,
    target: State,
    pub(super) samples: Samples,
}

impl Bench {
    pub(super) fn new(run: &Run, workload: &Workload) -> Self {
        let folder = run.new_folder(workload.name);
        let state = workload.load(&run.data);
        let target = copy_of(&state);
        // What is counted from here on is all that the store takes, its caches included.
        let samples = Samples::new(workload.name, workload.size_bytes(), resident_bytes());
        let store = Store::open(&store_file(&folder), Some(KEPT)).expect("a new store");
        Self { store, raw_path: folder.join("raw"), state, target, samples }
    }

    /// Saves what is not measured. Gives the steps of the rounds.
    pub(super) fn warm_up(&mut self, run: &Run) -> std::ops::RangeInclusive<u64> {
        for step in 1..=WARM_UP {
            train(&mut self.state);
            self.store.save(step, &self.state).expect("a save");
        }
        WARM_UP + 1..=WARM_UP + run.rounds
    }

    /// Touches twice the size of the state, and begins.
    fn start(&self) -> Meter {
        Meter::start(2 * self.state.size_bytes())
    }

    pub(super) fn round(&mut self, step: u64) {
        train(&mut self.state);
        let meter = self.start();
        raw::copy(&self.state, &mut self.target);
        self.samples.add("raw_memcpy", &meter);
        self.raw_write("raw_write_new", Prepared::New);
        self.raw_write("raw_write_preallocated", Prepared::Preallocated);
        let meter = self.start();
        self.store.save(step, &self.state).expect("a save");
        self.samples.add("save_durable", &meter);
        self.raw_write("raw_write_existing", Prepared::Existing);
        self.reads_into(step);
        self.reads_fresh(step);
    }

    fn raw_write(&mut self, metric: &'static str, prepared: Prepared) {
        raw::prepare(&self.raw_path, &self.state, prepared);
        let meter = self.start();
        raw::write(&self.raw_path, &self.state);
        self.samples.add(metric, &meter);
    }

    /// Into memory that is there.
    fn reads_into(&mut self, step: u64) {
        for (metric, threads) in [("raw_read_into_1_thread", 1), ("raw_read_into", THREADS.get())] {
            let meter = self.start();
            raw::read_into(&self.raw_path, &mut self.target, threads);
            self.samples.add(metric, &meter);
        }
        let meter = self.start();
        raw::read_through_pages(&self.raw_path, &mut self.target, THREADS.get());
        self.samples.add("raw_read_through_pages", &meter);
        for array in self.target.arrays_mut() {
            array.values.bytes_mut().fill(0);
        }
        let meter = self.start();
        self.store.restore_into(step, &mut self.target).expect("a restore");
        self.samples.add("restore_into", &meter);
        assert!(self.target == self.state, "the state came back");
    }

    /// Into new memory.
    fn reads_fresh(&mut self, step: u64) {
        for (metric, threads) in [("raw_read_fresh_1_thread", 1), ("raw_read_fresh", THREADS.get())]
        {
            let meter = self.start();
            let memory = raw::read_fresh(&self.raw_path, self.state.size_bytes(), threads);
            self.samples.add(metric, &meter);
            drop(memory);
        }
        let meter = self.start();
        let tree = self.store.restore_fresh(step).expect("a restore");
        self.samples.add("restore_fresh", &meter);
        assert!(tree == self.state.to_tree(), "the state came back");
    }

    /// Gives the size of the leaf.
    fn one_leaf(&mut self, step: u64, leaf: &KeyPath) -> usize {
        // Far more than a leaf: what the processor's caches had of it is gone.
        let touched = 256 << 20;
        let meter = Meter::start(touched);
        let leaf = self.store.read_leaf(step, leaf).expect("the leaf");
        self.samples.add("leaf_read", &meter);
        let bytes = leaf.contents().map_or(0, <[u8]>::len);
        let meter = Meter::start(touched);
        let memory = raw::read_part_fresh(&self.raw_path, bytes);
        self.samples.add("raw_leaf_read", &meter);
        drop(memory);
        bytes
    }
}
