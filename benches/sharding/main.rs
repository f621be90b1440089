//! How fast a state that is spread over devices comes back on others, beside the same state unsharded; and how
//! fast ranks save it to one file, beside one process.
//!
//! ```text
//! cargo bench --bench sharding -- [--quick] [--only NAME...] [--rounds N] [--json FILE]
//!                                 [--dir FOLDER]
//! ```
//!
//! Devices are simulated: their regions go to ordinary memory. Each round restores the same arrays
//! unsharded and sharded one after the other, each in a process of its own, as a trainer that starts does:
//! in one that has freed such arrays before, the allocator clears for small ones what it clears by mapping
//! for large ones. Memory is touched before each timed part; figures are medians over the rounds, ratios are
//! taken within a round. `reach` is what the ratio should be. The sharded state is stored with chunk hints,
//! the unsharded one without. A full run needs 8 GiB of memory and 5 GB of disk. It needs Linux.

#![expect(clippy::cast_precision_loss, reason = "figures are sizes and times far below 2^52")]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each bench uses a part of it")]
mod common;
mod planning;
mod reads;
mod restores;
mod saves;
mod state;

use std::path::PathBuf;

use clap::Parser;
use clap::builder::PossibleValuesParser;

use common::report::{self, Rows};

/// The figures, in the order in which they are reported.
const FIGURES: [&str; 4] = [restores::METRIC, reads::METRIC, planning::METRIC, saves::METRIC];

/// Restores onto other devices than a state was saved on.
#[derive(Parser)]
struct Options {
    /// A smaller state and fewer rounds: half a minute on two cores
    #[arg(long)]
    quick: bool,
    /// Only these rows
    #[arg(long, num_args = 1.., value_name = "NAME", value_parser = PossibleValuesParser::new(FIGURES))]
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
    /// Restore this store, and print how many seconds that took
    #[arg(long, hide = true)]
    restore: Option<PathBuf>,
    /// Onto so many devices along each axis of the mesh, instead of as whole arrays
    #[arg(long, hide = true, num_args = 2, requires = "restore")]
    onto: Vec<usize>,
    /// Save this store when a line comes in, and print one then
    #[arg(long, hide = true)]
    save: Option<PathBuf>,
    /// As this rank of so many
    #[arg(long, hide = true, num_args = 2, requires = "save", default_values_t = [0, 1])]
    as_rank: Vec<u32>,
    /// With so many parts of the rows of each array
    #[arg(long, hide = true, requires = "save", default_value_t = 1)]
    parts: usize,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = Options::parse();
    if let Some(store) = &options.restore {
        restores::restore(store, &options.onto);
        return;
    }
    if let (Some(store), [rank, world_size]) = (&options.save, &options.as_rank[..]) {
        saves::save(store, options.parts, *rank, *world_size);
        return;
    }
    let folder = tempfile::tempdir_in(&options.dir).expect("a folder for the stores");
    let rounds = options.rounds.unwrap_or(if options.quick { 3 } else { 9 });
    let mut rows = Rows::new(&FIGURES, options.only);
    if rows.wants(restores::METRIC) || rows.wants(reads::METRIC) {
        let stores = state::Stores::create(folder.path(), if options.quick { 4 } else { 1 });
        restores::run(&stores, rounds, &mut rows);
        reads::run(&stores, &mut rows);
    }
    if rows.wants(planning::METRIC) {
        planning::run(folder.path(), if options.quick { 10 } else { 1 }, rounds, &mut rows);
    }
    saves::run(folder.path(), if options.quick { 4 } else { 1 }, rounds, &mut rows);
    let rows = rows.into_sorted();
    print!("{}", report::table(&rows));
    if let Some(file) = &options.json {
        report::write_json(&rows, file).expect("the JSON file can be written");
    }
}
