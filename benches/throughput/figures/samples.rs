//! What the rounds of a whole state cost, and the rows that follow from it.

use std::collections::BTreeMap;

use crate::common::meter::{Cost, Meter};
use crate::common::report::{Row, Rows, median};

const MIB: f64 = (1 << 20) as f64;

/// The leaf whose time has a bound: 9.4 MB of W1.
const LEAF_BYTES: f64 = 9_437_184.0;

/// The costs of each operation, a round after the other.
pub(super) struct Samples {
    workload: &'static str,
    /// The size of the state.
    bytes: f64,
    /// Resident memory with the state and its target, before the store was opened.
    baseline: f64,
    costs: BTreeMap<&'static str, Vec<Cost>>,
}

impl Samples {
    pub(super) fn new(workload: &'static str, bytes: u64, baseline: u64) -> Self {
        let (bytes, baseline) = (bytes as f64, baseline as f64);
        Self { workload, bytes, baseline, costs: BTreeMap::new() }
    }

    /// Ends what `meter` measures.
    pub(super) fn add(&mut self, metric: &'static str, meter: &Meter) {
        self.costs.entry(metric).or_default().push(meter.stop());
    }

    /// Rates of the whole state beside the raw ones.
    pub(super) fn rates(&self) -> [Row; 3] {
        [
            self.rate_beside("save_durable", "raw_write_preallocated").at_least(0.8),
            self.rate_beside("restore_into", "raw_read_into").at_least(1.0),
            self.rate_beside("restore_fresh", "raw_read_fresh").at_least(0.8),
        ]
    }

    /// The steady state of a store of 256 MiB states, beside a new file and a raw read.
    pub(super) fn steady(&self) -> [Row; 4] {
        let over =
            |metric| self.median(metric, |cost| (cost.peak_rss as f64 - self.baseline) / MIB);
        let most = over("save_durable").max(over("restore_into"));
        [
            self.renamed_rate_beside("steady_save", "save_durable", "raw_write_new").at_least(0.7),
            self.renamed_rate_beside("steady_restore", "restore_into", "raw_read_into")
                .at_least(0.7),
            self.restore_beside_pages("steady_restore_beside_pages"),
            self.row("steady_memory", most, "MiB").below(96.0),
        ]
    }

    /// A restore beside what it has to do in any store with a pager that checks what it reads.
    pub(super) fn restore_beside_pages(&self, name: &'static str) -> Row {
        let raw = "raw_read_through_pages";
        self.renamed_rate_beside(name, "restore_into", raw)
    }

    /// The raw operations in `metrics`.
    pub(super) fn raw_rates(&self, metrics: impl Iterator<Item = &'static str>, rows: &mut Rows) {
        for metric in metrics {
            rows.other(self.rate(metric));
        }
    }

    /// What a save writes, and the processor time that it takes beside a raw write.
    pub(super) fn save_costs(&self, rows: &mut Rows) {
        let written = self.median("save_durable", |cost| cost.io.wchar as f64);
        rows.figure(self.row("write_amplification", written / self.bytes, "times").below(1.05));
        let (raw, per_gb) = ("raw_write_preallocated", |cost: &Cost| cost.cpu_s * 1e9 / self.bytes);
        let row = self.row("save_cpu", self.median("save_durable", per_gb), "s/GB");
        let ratio = self.ratio("save_durable", raw, per_gb);
        rows.figure(row.beside(self.median(raw, per_gb), ratio).at_most(3.0));
    }

    /// How far the memory of the process peaks over what the states take.
    pub(super) fn memory(&self, rows: &mut Rows) {
        let over = |metric, states: f64| {
            self.median(metric, |cost| (cost.peak_rss as f64 - self.baseline - states) / MIB)
        };
        let parts = [
            ("save_memory", over("save_durable", 0.0)),
            ("restore_into_memory", over("restore_into", 0.0)),
            ("restore_fresh_memory", over("restore_fresh", self.bytes)),
        ];
        let most = parts.iter().map(|part| part.1).fold(0.0, f64::max);
        rows.figure(self.row("memory_extra", most, "MiB").below(96.0));
        for (metric, mib) in parts {
            rows.other(self.row(metric, mib, "MiB").below(96.0));
        }
    }

    /// The time of a leaf of `bytes` bytes, whose bound is less for a smaller one, and what is read
    /// for it.
    pub(super) fn leaf(&self, bytes: usize, rows: &mut Rows) {
        let (bytes, ms) = (bytes as f64, |cost: &Cost| cost.seconds * 1e3);
        let row = self.row("leaf_read", self.median("leaf_read", ms), "ms");
        rows.figure(row.below(3.0 * bytes / LEAF_BYTES));
        let read = self.median("leaf_read", |cost| cost.io.rchar as f64);
        rows.figure(self.row("leaf_bytes", read / MIB, "MiB").below(bytes / MIB + 0.25));
        rows.other(self.row("raw_leaf_read", self.median("raw_leaf_read", ms), "ms"));
    }

    fn row(&self, metric: &'static str, value: f64, unit: &'static str) -> Row {
        Row::new(self.workload, metric, value, unit)
    }

    fn gb_per_s(&self, metric: &str) -> f64 {
        self.bytes / 1e9 / self.median(metric, |cost| cost.seconds)
    }

    fn rate(&self, metric: &'static str) -> Row {
        self.row(metric, self.gb_per_s(metric), "GB/s")
    }

    fn rate_beside(&self, metric: &'static str, raw: &str) -> Row {
        self.renamed_rate_beside(metric, metric, raw)
    }

    /// The rate of `metric` in a row called `name`.
    fn renamed_rate_beside(&self, name: &'static str, metric: &str, raw: &str) -> Row {
        let ratio = self.ratio(raw, metric, |cost| cost.seconds);
        self.row(name, self.gb_per_s(metric), "GB/s").beside(self.gb_per_s(raw), ratio)
    }

    fn each(&self, metric: &str, value: impl Fn(&Cost) -> f64) -> impl Iterator<Item = f64> {
        self.costs[metric].iter().map(value)
    }

    fn median(&self, metric: &str, value: impl Fn(&Cost) -> f64) -> f64 {
        median(self.each(metric, value))
    }

    /// The median over the rounds of `metric` by `other`.
    fn ratio(&self, metric: &str, other: &str, value: impl Fn(&Cost) -> f64) -> f64 {
        let pairs = self.each(metric, &value).zip(self.each(other, &value));
        median(pairs.map(|(value, other)| value / other))
    }
}
