//! The figures, in groups that are measured together.

mod codec;
mod frozen;
mod leaves;
mod open;
mod returns;
mod samples;
mod scaling;
mod sequence;
mod slowdown;
mod steady;
mod whole;

use std::path::{Path, PathBuf};

use crate::common::report::Rows;

/// Saves before anything is measured: until a file that keeps [`KEPT`] steps has stopped growing.
const WARM_UP: u64 = 5;

/// Steps that a store keeps.
const KEPT: usize = 3;

/// How the groups are run.
pub(crate) struct Run {
    /// Where the stores go.
    pub(crate) folder: PathBuf,
    /// Where the workloads lie.
    pub(crate) data: PathBuf,
    /// A file of float32 weights, instead of generated ones.
    pub(crate) weights: Option<PathBuf>,
    pub(crate) rounds: u64,
    pub(crate) size: Size,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Size {
    Full,
    Quick,
}

impl Run {
    /// `full`, or `quick` where the run is to be a short one.
    fn pick<T>(&self, full: T, quick: T) -> T {
        match self.size {
            Size::Full => full,
            Size::Quick => quick,
        }
    }

    /// An empty folder of that name.
    fn new_folder(&self, name: &str) -> PathBuf {
        let folder = self.folder.join(name);
        std::fs::create_dir(&folder).expect("a new folder");
        folder
    }
}

/// What is measured together, with the names of its rows.
pub(crate) struct Group {
    pub(crate) metrics: &'static [&'static str],
    run: fn(&Run, &mut Rows),
}

impl Group {
    pub(crate) fn run(&self, run: &Run, rows: &mut Rows) {
        eprintln!("measuring {}", self.metrics.join(" "));
        (self.run)(run, rows);
    }
}

pub(crate) const GROUPS: [Group; 10] = [
    Group { metrics: returns::METRICS, run: returns::run },
    Group { metrics: whole::METRICS, run: whole::run },
    Group { metrics: leaves::METRICS, run: leaves::run },
    Group { metrics: frozen::METRICS, run: frozen::run },
    Group { metrics: sequence::METRICS, run: sequence::run },
    Group { metrics: codec::METRICS, run: codec::run },
    Group { metrics: scaling::METRICS, run: scaling::run },
    Group { metrics: slowdown::METRICS, run: slowdown::run },
    Group { metrics: steady::METRICS, run: steady::run },
    Group { metrics: open::METRICS, run: open::run },
];

/// The file of a store in `folder`.
fn store_file(folder: &Path) -> PathBuf {
    folder.join("run.milepost")
}
