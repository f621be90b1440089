//! An embedded checkpoint store for long-running machine-learning trainers.
//!
//! All of a trainer's state goes into one file; each saved step is one transaction, there whole or
//! not at all.
//!
//! * [`CheckpointManager`] decides when to save and what to keep; a trainer embeds it.
//! * [`CheckpointStore`] is the file: save, read, delete, verify.
//! * [`StepReader`] reads one step: all of it, one leaf, or a region of a leaf.
//! * [`Tree`], [`Leaf`] and [`LeafMut`] are the state: containers with arrays, scalars, strings,
//!   bytes and JSON values at [`KeyPath`]s. [`Checkpoint`] makes a type of yours a state,
//!   [`checkpoint_fields!`] does it for structs.
//! * [`LeafSource`] is the joint: whatever has leaves can be saved.
//! * [`sharding`] says which region of an array each device of a mesh holds.
//! * [`Error`] says what, where, and what to do.
//!
//! # Example
//!
//! The ten lines that embed it are in the documentation of [`CheckpointManager`]. A whole training
//! program is `examples/train_digits`.
//!
//! [`ndarray`], [`half`], [`float8`], [`num_complex`] and [`serde_json`] are here as
//! `milepost::ndarray` and so on, in the versions whose types are leaves and metadata.
//!
//! # Sharing the file
//!
//! One writer at a time; any number of readers beside it, in any process. A second writer gets
//! [`ErrorKind::Locked`]. The processes of one training job can share the file as ranks
//! ([`CheckpointStore::open_as_rank`]), each of which saves what its devices hold. Opening for reading never changes the file, also not after a crash.
//!
//! # Panics
//!
//! Nothing that a user or a file does is answered with a panic. redb can panic on a damaged file;
//! that is caught and returned as [`ErrorKind::Damaged`]. It can't be caught in a program built
//! with `panic = "abort"`, which a damaged file then ends: keep `panic = "unwind"`, the default.
//!
//! # Features
//!
//! * `cli`: the `milepost` command line.

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
pub mod sharding;

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
mod turn;

pub use codec::Compression;
pub use dtype::{DType, Element};
pub use error::{Error, ErrorKind, Result};
pub use manager::{
    CheckpointManager, ManagerOptions, SaveHandle, SaveOutcome, SkipReason, WhenFull, keep_policy,
    save_policy,
};
pub use path::{Key, KeyPath};
pub use shape::{Region, Shape};
pub use store::{
    CheckpointStore, ChunkHint, CompactReport, LeafView, PendingRank, PendingStep, Rank, RankState,
    SaveCost, SaveOptions, SaveReport, StepInfo, StepReader, StoreOptions, StoreStats,
    VerifyReport, restore,
};
pub use tree::{Checkpoint, Leaf, LeafKind, LeafMeta, LeafMut, LeafSource, Tree};

// Their types are in signatures here: use them from here, and their versions fit.
#[doc(no_inline)]
pub use {float8, half, ndarray, num_complex, serde_json};

#[doc = include_str!("docs/format.md")]
pub mod format {}

/// The examples of the README, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
