//! How fast milepost saves and restores, beside the same bytes copied, written and read raw.
//!
//! ```text
//! cargo bench --bench throughput -- [--quick] [--only NAME...] [--rounds N] [--json FILE]
//!                                   [--dir FOLDER] [--data FOLDER]
//! ```
//!
//! Each round measures the raw limits and the store one after the other, with memory touched
//! before each timed part; figures are medians over the rounds, ratios are taken within a round.
//! `limit` is what the raw operation gave, or a bound that we set ourselves; `reach` is what the
//! ratio should be. `raw_…` rows are the limits themselves. A full run needs 16 GiB of memory and
//! 20 GB of disk. It needs Linux.

#![expect(clippy::cast_precision_loss, reason = "figures are sizes and times far below 2^52")]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each bench uses a part of it")]
mod common;
mod figures;
mod raw;
mod train;
mod workload;

use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use common::report::{self, Rows};
use figures::{GROUPS, Run, Size};

/// The figures that we hold ourselves to, in the order in which they are reported.
const FIGURES: [&str; 18] = [
    "save_return_owned",
    "save_return_borrowed",
    "save_durable",
    "restore_into",
    "restore_fresh",
    "leaf_read",
    "write_amplification",
    "save_cpu",
    "memory_extra",
    "leaf_bytes",
    "leaves_save_rate",
    "leaves_restore_rate",
    "changed_bytes",
    "file_size",
    "codec_bf16",
    "codec_f32",
    "scaling",
    "trainer_slowdown",
];

/// Throughput of milepost beside raw copies and file operations.
#[derive(Parser)]
struct Options {
    /// Smaller states and fewer rounds: two minutes on two cores
    #[arg(long)]
    quick: bool,
    /// Only these rows
    #[arg(long, num_args = 1.., value_name = "NAME", value_parser = metrics())]
    only: Vec<String>,
    /// Measured rounds, after the warm-up: 9, or 3 with --quick
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: Option<u64>,
    /// Write the rows as JSON to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// The folder for the stores, on the disk that is to be measured
    #[arg(long, default_value = ".")]
    dir: PathBuf,
    /// The folder for the workloads, which are made once
    #[arg(long, default_value = "target/bench-data")]
    data: PathBuf,
    /// A file of little-endian float32 weights for the codec rows, instead of generated ones
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

/// The names of all rows.
fn metrics() -> PossibleValuesParser {
    GROUPS.iter().flat_map(|group| group.metrics.iter().copied()).collect::<Vec<_>>().into()
}

fn main() {
    let options = Options::parse();
    let folder = tempfile::tempdir_in(&options.dir).expect("a folder for the stores");
    let size = if options.quick { Size::Quick } else { Size::Full };
    let run = Run {
        folder: folder.path().to_owned(),
        data: options.data,
        weights: options.weights,
        rounds: options.rounds.unwrap_or(if options.quick { 3 } else { 9 }),
        size,
    };
    let mut rows = Rows::new(&FIGURES, options.only);
    for group in GROUPS {
        if group.metrics.iter().any(|metric| rows.wants(metric)) {
            group.run(&run, &mut rows);
        }
    }
    let rows = rows.into_sorted();
    print!("{}", report::table(&rows));
    if let Some(file) = &options.json {
        report::write_json(&rows, file).expect("the JSON file can be written");
    }
}
