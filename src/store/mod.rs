//! The store: steps in one file, each saved whole or not at all, and checked when read.

mod change;
mod chunk_map;
mod compact;
mod compare;
mod fill;
mod options;
mod packs;
mod ranks;
mod reader;
mod records;
pub mod restore;
mod save;
mod stats;
mod step_info;
mod threads;
mod totals;
mod usage;
mod verify;
mod view;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use crate::db::{Database, ReadTx, Writers};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{StepRecord, from_unix_ns};
use crate::tree::{Checkpoint, LeafSource};
use crate::turn::{Mark, Turn, TurnMutex};

pub use compact::CompactReport;
pub use options::{ChunkHint, SaveOptions, StoreOptions};
pub use ranks::{PendingRank, PendingStep, Rank, RankState};
pub use reader::StepReader;
pub use save::{SaveCost, SaveReport};
pub use stats::StoreStats;
pub use step_info::StepInfo;
pub use verify::VerifyReport;
pub use view::LeafView;

pub(crate) use options::{Admission, Existing};
use ranks::Member;
use save::LastStep;
pub(crate) use save::{Arena, StagedSave};

/// A file of checkpoints: any number of training steps, each one transaction.
///
/// One writer has the file open at a time, or several [ranks](Self::open_as_rank) of one job; any number of
/// readers, in this process and in others, read beside them and see each commit. All methods can be called from several threads; writes
/// happen one after the other.
///
/// ```
/// # fn main() -> milepost::Result<()> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("run.milepost");
/// use milepost::{CheckpointStore, Leaf, SaveOptions, Tree};
///
/// let store = CheckpointStore::create(&path)?;
/// let weights = ndarray::array![[1.0f32, 2.0], [3.0, 4.0]];
/// let state = Tree::map([("w", Tree::Leaf(Leaf::from(&weights)))]);
/// store.save(100, &state, &SaveOptions::new().metric("loss", 0.25))?;
///
/// let restored = store.read(100)?.restore()?;
/// assert_eq!(restored, state);
/// # Ok(())
/// # }
/// ```
pub struct CheckpointStore {
    database: Database,
    options: StoreOptions,
    writer: TurnMutex<Writer>,
    /// Who it is if it shares the file with other ranks.
    member: Option<Member>,
}

/// What writes have to know of the writes before.
struct Writer {
    sweep: Sweep,
    /// The step that was saved last, to find in the next one what did not change.
    last: Option<Arc<LastStep>>,
}

/// Whether all packs belong to steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sweep {
    Done,
    /// A save that did not end, in this process or before, may have left packs above the mark.
    Due,
}

impl CheckpointStore {
    /// Creates a store. The file is readable by its owner only.
    ///
    /// # Errors
    /// `AlreadyExists` if there is a file of this name, which is left alone; `NotFound` if there
    /// is no such folder; `ReadOnly`, `OutOfSpace` or `Io` from the file system.
    pub fn create(path: impl AsRef<Path>) -> Result<Self> {
        Self::create_with(path, StoreOptions::default())
    }

    /// [`create`](Self::create) with settings.
    ///
    /// # Errors
    /// As there.
    pub fn create_with(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        Ok(Self::new(Database::create(path.as_ref())?, options, Sweep::Done))
    }

    /// Opens an existing store for writing.
    ///
    /// # Errors
    /// `NotFound` if there is no such file; `NotAStore` or `UnsupportedVersion` if it is none of
    /// ours, or newer: it is left as it was; `Locked` if another writer has it open; `ReadOnly`
    /// if it may not be written; `Damaged` if its structure is; `Io` from the file system.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(path, StoreOptions::default())
    }

    /// [`open`](Self::open) with settings.
    ///
    /// # Errors
    /// As there.
    pub fn open_with(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        Ok(Self::new(Database::open_writer(path.as_ref(), Writers::One)?, options, Sweep::Due))
    }

    /// Opens a store for writing, and creates it if there is no file.
    ///
    /// # Errors
    /// As [`open`](Self::open) and [`create`](Self::create).
    pub fn open_or_create(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        let path = path.as_ref();
        match Self::open_with(path, options.clone()) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                match Self::create_with(path, options.clone()) {
                    // Another process was faster.
                    Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                        Self::open_with(path, options)
                    }
                    result => result,
                }
            }
            result => result,
        }
    }

    /// Opens an existing store for reading, beside a writer too. The file is not changed, and
    /// need not be writable; a crash of its writer does not keep it from being read.
    ///
    /// # Errors
    /// `NotFound`, `NotAStore`, `UnsupportedVersion`, `Damaged` or `Io`, as [`open`](Self::open).
    pub fn open_read_only(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_read_only_with(path, StoreOptions::default())
    }

    /// [`open_read_only`](Self::open_read_only) with settings.
    ///
    /// # Errors
    /// As there.
    pub fn open_read_only_with(path: impl AsRef<Path>, options: StoreOptions) -> Result<Self> {
        Ok(Self::new(Database::open_reader(path.as_ref())?, options, Sweep::Done))
    }

    fn new(database: Database, options: StoreOptions, sweep: Sweep) -> Self {
        let writer = Writer { sweep, last: None };
        Self { database, options, writer: TurnMutex::new(writer), member: None }
    }

    /// The path that the store was opened with.
    pub fn path(&self) -> &Path {
        self.database.path()
    }

    /// The numbers of the saved steps, ascending.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn all_steps(&self) -> Result<Vec<u64>> {
        self.with_tx(ReadTx::steps)
    }

    /// The highest saved step; `None` if there is none.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn latest_step(&self) -> Result<Option<u64>> {
        self.with_tx(ReadTx::last_step)
    }

    /// Whether `step` is saved.
    ///
    /// # Errors
    /// `Damaged` or `Io`.
    pub fn contains(&self, step: u64) -> Result<bool> {
        self.with_tx(|tx| Ok(tx.step(step)?.is_some()))
    }

    /// What is known of all saved steps, ascending.
    ///
    /// # Errors
    /// `Damaged` if the record of a step is; `Io`.
    pub fn steps(&self) -> Result<Vec<StepInfo>> {
        self.with_tx(step_infos)
    }

    /// What is known of `step`.
    ///
    /// # Errors
    /// `NotFound` if it is not saved; `Damaged` or `Io`.
    pub fn step_info(&self, step: u64) -> Result<StepInfo> {
        self.with_tx(|tx| StepInfo::from_record(step, &step_record(tx, step)?))
    }

    /// The highest step with a sound record, and when its save began. One whose number is damaged,
    /// and so higher than any that comes, must not keep the next ones from being saved.
    pub(crate) fn latest_readable(&self) -> Result<Option<(u64, SystemTime)>> {
        self.with_tx(|tx| {
            for step in tx.steps()?.into_iter().rev() {
                match step_record(tx, step) {
                    Err(error) if error.kind() == ErrorKind::Damaged => {
                        tracing::warn!(step, %error, "the record of a step is damaged");
                    }
                    record => return Ok(Some((step, from_unix_ns(record?.started_unix_ns)))),
                }
            }
            Ok(None)
        })
    }

    /// What is known of the steps with sound records, ascending.
    pub(crate) fn readable_steps(&self) -> Result<Vec<StepInfo>> {
        self.with_tx(readable_infos)
    }

    /// Opens `step` for reading. It can be read to the end also if it is deleted meanwhile.
    ///
    /// # Errors
    /// `NotFound` if it is not saved; `Damaged` or `Io`.
    pub fn read(&self, step: u64) -> Result<StepReader> {
        let tx = self.database.read_payload()?;
        StepReader::new(tx, step, self.options.threads, self.path())
            .map_err(|error| error.in_file(self.path()))
    }

    /// Saves `state` as `step`, or what this [rank](Self::open_as_rank) gives to it. It is durable when this
    /// returns.
    ///
    /// # Errors
    /// `AlreadyExists` if the step is saved and `options` do not say to replace it;
    /// `InvalidInput` if the state can't be stored; `Mismatch` if it does not go with what other ranks gave,
    /// and `Locked` if another process has taken the place of this rank; `ReadOnly`; `OutOfSpace`, `Io` or `Damaged`: all
    /// other steps are as they were, and nothing of this one can be seen. (If the disk fails in
    /// the very last sync, the step may be there all the same, whole.)
    pub fn save<C: Checkpoint + ?Sized>(
        &self,
        step: u64,
        state: &C,
        options: &SaveOptions,
    ) -> Result<SaveReport> {
        self.save_source(step, &state.to_tree(), options)
    }

    /// [`save`](Self::save) from any source of leaves. Only a [`Tree`](crate::Tree) can give local shards: what
    /// other sources give is whole, and of several ranks the first one saves it.
    ///
    /// # Errors
    /// As there, and what the source returns.
    pub fn save_source(
        &self,
        step: u64,
        source: &dyn LeafSource,
        options: &SaveOptions,
    ) -> Result<SaveReport> {
        self.save_and_retain(step, source, options, None)
    }

    /// Waits until no other thread writes. A policy or a source of leaves that is called by a save
    /// would wait for itself, so it is refused.
    fn lock_writer(&self) -> Result<Turn<'_, Writer>> {
        self.writer.lock().ok_or_else(|| self.in_a_save())
    }

    /// Whether this thread is in the middle of a write, or is one that a write waits for.
    pub(crate) fn is_in_a_write(&self) -> bool {
        self.writer.is_held_here()
    }

    /// Makes this thread one that a save waits for.
    pub(crate) fn count_as_writing(&self) -> Mark<'_> {
        self.writer.count_as_held()
    }

    /// Why a policy or a source of leaves is refused.
    pub(crate) fn in_a_save(&self) -> Error {
        Error::invalid("this thread is in the middle of a save of the same store")
            .advise("policies and sources of leaves can read the store, and not change it")
            .in_file(self.path())
    }

    fn with_tx<T>(&self, read: impl Fn(&ReadTx) -> Result<T>) -> Result<T> {
        self.database.read_with(read)
    }
}

impl std::fmt::Debug for CheckpointStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckpointStore").field("path", &self.path()).finish_non_exhaustive()
    }
}

/// The record of a step that should be there.
fn step_record(tx: &ReadTx, step: u64) -> Result<StepRecord> {
    let Some(record) = tx.step(step)? else {
        let steps = tx.steps()?;
        let advice = match (steps.first(), steps.last()) {
            (Some(first), Some(last)) if first == last => format!("one step is saved: {first}"),
            (Some(first), Some(last)) => {
                format!("{} steps are saved, from {first} to {last}", steps.len())
            }
            _ => "no step is saved in this store".to_owned(),
        };
        return Err(Error::new(ErrorKind::NotFound, "this step is not saved")
            .advise(advice)
            .at_step(step));
    };
    StepRecord::decode(step, &record).map_err(|error| Error::from(error).at_step(step))
}

/// The steps with records that can be read, ascending. One that is damaged must not keep others
/// from being saved or found.
fn readable_infos(tx: &ReadTx) -> Result<Vec<StepInfo>> {
    let mut infos = Vec::new();
    for (step, record) in tx.step_records()? {
        let record = StepRecord::decode(step, &record).map_err(Error::from);
        match record.and_then(|record| StepInfo::from_record(step, &record)) {
            Ok(info) => infos.push(info),
            Err(error) => tracing::warn!(step, %error, "the record of a step is damaged"),
        }
    }
    Ok(infos)
}

fn step_infos(tx: &ReadTx) -> Result<Vec<StepInfo>> {
    let decode = |(step, record): (u64, Vec<u8>)| {
        let record = StepRecord::decode(step, &record);
        let record = record.map_err(|error| Error::from(error).at_step(step))?;
        StepInfo::from_record(step, &record)
    };
    tx.step_records()?.into_iter().map(decode).collect()
}
