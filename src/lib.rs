//! milepost: an embedded checkpoint store for long-running machine-learning trainers.

#![forbid(unsafe_code)]
// Nothing that a user or a file does may end in a panic, or in a cast that cuts.
#![warn(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::as_conversions
)]

#[cfg(target_endian = "big")]
compile_error!(
    "milepost stores little-endian data and maps it in place: it needs a little-endian target"
);

pub mod limits;

mod codec;
mod db;
mod dtype;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzz_entry;
mod manager;
mod path;
mod record;
mod shape;
mod store;
mod tree;

pub use codec::Compression;
pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use manager::{
    CheckpointManager, ManagerOptions, SaveOutcome, SkipReason, keep_policy, save_policy,
};
pub use path::{Key, KeyPath};
pub use shape::{Region, Shape};
pub use store::{
    CheckpointStore, SaveOptions, SaveReport, StepInfo, StepReader, StoreOptions, StoreStats,
    VerifyReport,
};
pub use tree::{Checkpoint, Leaf, LeafKind, LeafMeta, LeafMut, LeafSource, Tree};
