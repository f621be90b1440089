//! The figures as rows: a table for people, JSON for programs.

use std::fs;
use std::io;
use std::path::Path;

use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};

use crate::measure::median;

#[derive(Default)]
pub(crate) struct Rows(Vec<Row>);

struct Row {
    workload: &'static str,
    metric: String,
    value: f64,
    unit: &'static str,
    limit: f64,
    ratio: f64,
}

impl Rows {
    /// A rate in GB/s beside the rate of the raw operation; the ratio is the median of the
    /// rounds' ratios, and 1 is as fast as raw.
    pub(crate) fn rate(
        &mut self,
        workload: &'static str,
        metric: &str,
        gb: f64,
        seconds: &[f64],
        raw_seconds: &[f64],
    ) {
        let ratios: Vec<f64> =
            raw_seconds.iter().zip(seconds).map(|(raw, seconds)| raw / seconds).collect();
        self.0.push(Row {
            workload,
            metric: metric.to_owned(),
            value: gb / median(seconds),
            unit: "GB/s",
            limit: gb / median(raw_seconds),
            ratio: median(&ratios),
        });
    }

    /// A value that should stay below a bound: a ratio up to 1 is within it.
    pub(crate) fn bound(
        &mut self,
        workload: &'static str,
        metric: &str,
        value: f64,
        unit: &'static str,
        limit: f64,
    ) {
        let metric = metric.to_owned();
        self.0.push(Row { workload, metric, value, unit, limit, ratio: value / limit });
    }

    /// A value that should reach a bound: a ratio from 1 on does.
    pub(crate) fn at_least(
        &mut self,
        workload: &'static str,
        metric: &str,
        value: f64,
        unit: &'static str,
        limit: f64,
    ) {
        self.bound(workload, metric, value, unit, limit);
    }

    pub(crate) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["workload", "metric", "value", "unit", "limit", "ratio"]);
        for row in &self.0 {
            table.add_row([
                row.workload.to_owned(),
                row.metric.clone(),
                format!("{:.3}", row.value),
                row.unit.to_owned(),
                format!("{:.3}", row.limit),
                format!("{:.2}", row.ratio),
            ]);
        }
        for column in [2, 4, 5] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        format!("{table}\n")
    }

    pub(crate) fn write_json(&self, file: &Path) -> io::Result<()> {
        let row = |row: &Row| {
            json!({
                "workload": row.workload,
                "metric": row.metric,
                "value": row.value,
                "unit": row.unit,
                "limit": row.limit,
                "ratio": row.ratio,
            })
        };
        let rows: Value = self.0.iter().map(row).collect();
        fs::write(file, format!("{rows:#}\n"))
    }
}
