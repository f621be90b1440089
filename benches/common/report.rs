//! The figures as rows: a table for people, JSON for programs.

use std::fs;
use std::io;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// The middle value of the samples.
pub(crate) fn median(samples: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = samples.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[derive(Serialize)]
pub(crate) struct Row {
    workload: &'static str,
    metric: &'static str,
    value: f64,
    unit: &'static str,
    /// What the value is compared with: what the raw operation gave, or a bound.
    limit: Option<f64>,
    ratio: Option<f64>,
    /// What the ratio should be.
    #[serde(skip)]
    reach: Option<String>,
}

impl Row {
    pub(crate) fn new(
        workload: &'static str,
        metric: &'static str,
        value: f64,
        unit: &'static str,
    ) -> Self {
        Self { workload, metric, value, unit, limit: None, ratio: None, reach: None }
    }

    /// A value beside the one of a raw operation. `ratio` is the median over the rounds of the
    /// ratios within a round, so it need not be that of the two medians.
    pub(crate) fn beside(self, limit: f64, ratio: f64) -> Self {
        Self { limit: Some(limit), ratio: Some(ratio), ..self }
    }

    pub(crate) fn at_least(self, ratio: f64) -> Self {
        Self { reach: Some(format!(">= {ratio}")), ..self }
    }

    pub(crate) fn at_most(self, ratio: f64) -> Self {
        Self { reach: Some(format!("<= {ratio}")), ..self }
    }

    /// A value that is to stay below a bound.
    pub(crate) fn below(self, bound: f64) -> Self {
        let ratio = self.value / bound;
        self.beside(bound, ratio).at_most(1.0)
    }

    /// A value that is to reach a bound.
    pub(crate) fn above(self, bound: f64) -> Self {
        let ratio = self.value / bound;
        self.beside(bound, ratio).at_least(1.0)
    }
}

/// The rows of a run. Those that were not asked for are dropped.
pub(crate) struct Rows {
    only: Vec<String>,
    order: &'static [&'static str],
    figures: Vec<Row>,
    others: Vec<Row>,
}

impl Rows {
    /// `order` has the figures that we hold ourselves to, as they are reported: other rows follow. An
    /// empty `only` stands for all.
    pub(crate) fn new(order: &'static [&'static str], only: Vec<String>) -> Self {
        Self { only, order, figures: Vec::new(), others: Vec::new() }
    }

    pub(crate) fn wants(&self, metric: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == metric)
    }

    /// Adds one of our figures.
    pub(crate) fn figure(&mut self, row: Row) {
        if self.wants(row.metric) {
            self.figures.push(row);
        }
    }

    /// Adds a row that stands beside the figures.
    pub(crate) fn other(&mut self, row: Row) {
        if self.wants(row.metric) {
            self.others.push(row);
        }
    }

    /// The rows in the order in which they are reported.
    pub(crate) fn into_sorted(mut self) -> Vec<Row> {
        let place = |row: &Row| self.order.iter().position(|figure| *figure == row.metric);
        self.figures.sort_by_key(place);
        self.figures.extend(self.others);
        self.figures
    }
}

pub(crate) fn table(rows: &[Row]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table.set_header(["workload", "metric", "value", "unit", "limit", "ratio", "reach"]);
    for row in rows {
        let number = |number: Option<f64>| number.map_or(String::new(), |it| format!("{it:.3}"));
        table.add_row([
            row.workload.to_owned(),
            row.metric.to_owned(),
            number(Some(row.value)),
            row.unit.to_owned(),
            number(row.limit),
            number(row.ratio),
            row.reach.clone().unwrap_or_default(),
        ]);
    }
    for column in [2, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    format!("{table}\n")
}

pub(crate) fn write_json(rows: &[Row], file: &Path) -> io::Result<()> {
    let text = serde_json::to_string_pretty(rows).map_err(io::Error::other)?;
    fs::write(file, text + "\n")
}
