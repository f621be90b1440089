//! A plan for people to read.

use std::fmt;

use comfy_table::{CellAlignment, Table, presets};

use super::RestorePlan;
use super::loads::{DeviceLoad, as_f64, wide};

const COLUMNS: [&str; 8] =
    ["device", "arrays", "regions", "MB", "chunks", "MB of chunks", "read ×", "memory MB"];

impl fmt::Display for RestorePlan<'_> {
    /// A row for each device, or for several in a row that are alike. A device that has less memory than
    /// its regions need is marked with `!`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING).set_header(COLUMNS);
        for alike in self.devices.chunk_by(are_alike) {
            let [first, ..] = alike else { continue };
            table.add_row(row(first, alike));
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        for line in table.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        let values = self.leaves.iter().filter(|layout| layout.is_none()).count();
        let arrays = wide(self.report.arrays.len());
        write!(
            f,
            "{arrays} arrays, {values} other leaves; this process reads {} chunks, {} MB as stored",
            self.report.chunks_read,
            megabytes(self.report.bytes_read)
        )
    }
}

/// Whether two devices differ in nothing but their names.
fn are_alike(one: &DeviceLoad, other: &DeviceLoad) -> bool {
    let renamed = DeviceLoad { info: one.info.clone(), ..other.clone() };
    one.memory_limit_bytes() == other.memory_limit_bytes() && *one == renamed
}

fn row(load: &DeviceLoad, alike: &[DeviceLoad]) -> [String; 8] {
    let device = match alike {
        [_, .., last] => format!("{} to {}", load.device(), last.device()),
        _ => load.device().to_string(),
    };
    let limit = match load.memory_limit_bytes() {
        Some(limit) if load.exceeds_memory() => format!("! {}", megabytes(limit)),
        Some(limit) => megabytes(limit),
        None => String::new(),
    };
    [
        device,
        load.arrays.to_string(),
        load.regions.to_string(),
        megabytes(load.bytes),
        load.chunks.to_string(),
        megabytes(load.chunk_bytes),
        load.read_amplification().map(|times| format!("{times:.3}")).unwrap_or_default(),
        limit,
    ]
}

fn megabytes(bytes: u64) -> String {
    format!("{:.3}", as_f64(bytes) / 1e6)
}
