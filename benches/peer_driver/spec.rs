//! What is to be done.

use std::path::PathBuf;

use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Spec {
    pub(crate) op: String,
    /// The name under which the results are filed.
    #[serde(default)]
    pub(crate) system: String,
    /// A folder to read.
    pub(crate) workload: PathBuf,
    /// A folder to make, or to read.
    pub(crate) store: PathBuf,
    /// Where the result goes.
    pub(crate) json: PathBuf,
    /// How much memory is touched before a timed part, as a multiple of the workload.
    #[serde(default = "twice")]
    pub(crate) prefault: f64,
    /// How many saves.
    #[serde(default = "two")]
    pub(crate) reps: u64,
    /// Leave the files as the save left them.
    #[serde(default)]
    pub(crate) no_fsync: bool,
    /// The step to restore.
    #[serde(default)]
    pub(crate) step: u64,
    #[serde(default = "cold_and_warm")]
    pub(crate) modes: Vec<Mode>,
    /// The leaf to restore.
    #[serde(default)]
    pub(crate) leaf: String,
    /// How many steps to save.
    #[serde(default)]
    pub(crate) steps: u64,
    /// How many of them to keep; all if it is not there.
    pub(crate) keep: Option<usize>,
}

/// Where the files are when they are read.
#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mode {
    /// On the disk alone.
    Cold,
    /// In the page cache.
    Warm,
}

impl Mode {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

fn twice() -> f64 {
    2.0
}

fn two() -> u64 {
    2
}

fn cold_and_warm() -> Vec<Mode> {
    vec![Mode::Cold, Mode::Warm]
}
