//! The database file: tables and transactions, and the only place that knows redb.
//!
//! * A writer has the file to itself (`SingleWriter` mode), or several take turns, a transaction at a
//!   time (`MultiWriter`). Readers in any process read beside them and see each commit.
//! * Every commit is durable and records the allocator's state (quick repair), so that opening
//!   after a crash takes milliseconds.
//! * A file is looked at read-only before it is opened for writing: one that is not a store of
//!   ours, or is newer, is left exactly as it was.
//! * redb can panic on a damaged file. Every call into it goes through [`fault::contain`].

mod create;
mod early_sync;
mod fault;
mod file_turn;
mod forward;
mod handle;
#[cfg(test)]
pub(crate) mod injected;
mod read;
mod tables;
mod unclean;
mod write;
mod write_ranks;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::RwLock;

use crate::error::{Error, ErrorKind, Result};
use crate::turn::TurnMutex;
use fault::contain_drop;
use handle::Handle;

pub(crate) use create::random_id;
pub(crate) use file_turn::FileTurn;
pub(crate) use handle::Writers;
pub(crate) use read::{Pack, ReadTx, StepAndRank};
pub(crate) use write::WriteTx;

/// An open database file.
///
/// After an error of the file system redb refuses to go on; the next call then opens the file
/// again, so that a store works as soon as the cause is gone.
pub(crate) struct Database {
    handle: RwLock<Arc<Handle>>,
    /// Held by a write transaction until it is over.
    writing: TurnMutex<()>,
    path: PathBuf,
    /// The same file if the process has changed its folder since.
    absolute: PathBuf,
    store_id: [u8; 16],
    access: Access,
}

/// What a database was opened for, also after an error has closed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write(Writers),
}

impl Database {
    /// Creates a new store file and opens it for writing.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        create::create(path).map_err(|error| error.in_file(path))?;
        Self::open_writer(path, Writers::One)
    }

    /// Opens a store file for several writers, and creates it if there is none.
    pub(crate) fn open_or_create_shared(path: &Path) -> Result<Self> {
        match create::create(path) {
            // Another process was faster, or it was there long ago.
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(error.in_file(path)),
            _ => Self::open_writer(path, Writers::Many),
        }
    }

    /// Opens an existing store file for writing.
    pub(crate) fn open_writer(path: &Path, writers: Writers) -> Result<Self> {
        // Opening for writing marks the file at once, so first see whether it is ours.
        let store_id = check_format(path).map_err(|error| error.in_file(path))?.1;
        let handle =
            open_same_for_writing(path, store_id, writers).map_err(|error| error.in_file(path))?;
        Self::new(handle, path, store_id, Access::Write(writers))
    }

    /// Opens an existing store file for reading, beside a writer too; the file is not changed,
    /// also not if a crash left it unclean.
    pub(crate) fn open_reader(path: &Path) -> Result<Self> {
        let (handle, store_id) = check_format(path).map_err(|error| error.in_file(path))?;
        Self::new(handle, path, store_id, Access::Read)
    }

    fn new(handle: Handle, path: &Path, store_id: [u8; 16], access: Access) -> Result<Self> {
        let absolute = std::path::absolute(path)
            .map_err(|error| Error::from_io(error, "can't find the folder").in_file(path))?;
        let handle = RwLock::new(Arc::new(handle));
        let writing = TurnMutex::new(());
        Ok(Self { handle, writing, path: path.to_owned(), absolute, store_id, access })
    }

    /// The path that the file was opened with.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The size of the file, in bytes.
    pub(crate) fn file_bytes(&self) -> Result<u64> {
        let metadata = fs::metadata(&self.absolute);
        let metadata = metadata.map_err(|error| Error::from_io(error, "can't look at the file"));
        metadata.map(|metadata| metadata.len()).map_err(|error| error.in_file(&self.path))
    }

    /// What the file takes of the disk, in bytes: less than its size where parts were never written.
    pub(crate) fn allocated_bytes(&self) -> Result<u64> {
        let metadata = fs::metadata(&self.absolute);
        let metadata = metadata.map_err(|error| Error::from_io(error, "can't look at the file"));
        metadata.map(|metadata| allocated(&metadata)).map_err(|error| error.in_file(&self.path))
    }

    /// Gives the free pages of the file back to the file system.
    pub(crate) fn compact(&self) -> Result<()> {
        let _writing = self.writing.lock().ok_or_else(|| self.busy())?;
        let mut handle = self.handle.write();
        let mut compact = || {
            // Nobody else has it while this thread writes.
            let handle = Arc::get_mut(&mut handle).ok_or_else(handle::closed)?;
            handle.check_in_place(&self.absolute)?;
            handle.compact()
        };
        compact().map_err(|error| error.in_file(&self.path))
    }

    /// Begins to read the latest commit.
    pub(crate) fn read(&self) -> Result<ReadTx> {
        self.with_handle(|handle| handle.read())
    }

    /// Reads something of the latest commit that is not payload.
    pub(crate) fn read_with<T>(&self, read: impl Fn(&ReadTx) -> Result<T>) -> Result<T> {
        self.with_handle(|handle| read(&handle.read()?))
    }

    /// Begins to read the latest commit, payload above all.
    pub(crate) fn read_payload(&self) -> Result<ReadTx> {
        self.with_handle(|handle| handle.read_payload(&self.absolute))
    }

    /// Begins to write; waits for a write transaction of another thread.
    pub(crate) fn write(&self) -> Result<WriteTx<'_>> {
        let writing = self.writing.lock().ok_or_else(|| self.busy())?;
        let (handle, tx) = self.with_handle(|handle| {
            handle.check_in_place(&self.absolute)?;
            Ok((Arc::clone(handle), handle.write()?))
        })?;
        Ok(WriteTx::new(handle, tx, &self.path, writing))
    }

    /// Waits until it is this writer's turn among several.
    pub(crate) fn wait_for_turn(&self) -> Result<FileTurn> {
        FileTurn::wait(&self.absolute).map_err(|error| error.in_file(&self.path))
    }

    fn busy(&self) -> Error {
        Error::invalid("this thread is in the middle of a write transaction").in_file(&self.path)
    }

    /// Runs `operation` on the open database, and once more on a newly opened one if an earlier
    /// error has closed it.
    fn with_handle<T>(&self, operation: impl Fn(&Arc<Handle>) -> Result<T>) -> Result<T> {
        let attempt = || {
            // Held meanwhile: who opens the file again needs the old database to be gone.
            let handle = self.handle.read();
            (operation(&handle), Arc::downgrade(&handle))
        };
        let result = match attempt() {
            (Err(error), failed) if fault::is_closed(&error) => {
                self.reopen(&failed).and_then(|()| attempt().0)
            }
            (result, _) => result,
        };
        result.map_err(|error| error.in_file(&self.path))
    }

    /// Opens the file again in place of `failed`, unless another thread has done so.
    fn reopen(&self, failed: &Weak<Handle>) -> Result<()> {
        // Waits for the write transaction that failed, unless it is this thread's own, or that of the one
        // that it works for.
        let _writing = self.writing.lock();
        let mut current = self.handle.write();
        if !std::ptr::eq(Arc::as_ptr(&current), failed.as_ptr()) {
            return Ok(());
        }
        tracing::warn!(file = %self.path.display(), "opening the store again after an error");
        if Arc::strong_count(&current) > 1 {
            // It is: the transaction is not over yet.
            return Err(handle::closed());
        }
        // The old database holds the lock of the writer until it is gone.
        contain_drop(std::mem::replace(&mut *current, Arc::new(Handle::Closed)));
        let (reader, store_id) = check_format(&self.absolute)?;
        if store_id != self.store_id {
            return Err(another_store());
        }
        *current = Arc::new(match self.access {
            Access::Read => reader,
            Access::Write(writers) => open_same_for_writing(&self.absolute, store_id, writers)?,
        });
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let handle = self.handle.get_mut();
        contain_drop(std::mem::replace(handle, Arc::new(Handle::Closed)));
    }
}

/// Opens a file for reading and checks that it is a store that we can read.
fn check_format(path: &Path) -> Result<(Handle, [u8; 16])> {
    check_file(path)?;
    let handle = Handle::open_reader(path)?;
    let tables = handle.read()?;
    if tables.format_version()?.is_none_or(|version| version == 0) {
        return Err(not_a_store("it has no milepost format version"));
    }
    let store_id = tables.store_id()?;
    drop(tables);
    Ok((handle, store_id))
}

/// Opens a file for writing that was looked at before, if it still is that store.
fn open_same_for_writing(path: &Path, store_id: [u8; 16], writers: Writers) -> Result<Handle> {
    let handle = Handle::open_writer(path, writers)?;
    if handle.read()?.store_id()? != store_id {
        return Err(another_store());
    }
    Ok(handle)
}

#[cfg(unix)]
fn allocated(metadata: &fs::Metadata) -> u64 {
    // See stat(2).
    const BLOCK_BYTES: u64 = 512;
    std::os::unix::fs::MetadataExt::blocks(metadata).saturating_mul(BLOCK_BYTES)
}

#[cfg(not(unix))]
fn allocated(metadata: &fs::Metadata) -> u64 {
    metadata.len()
}

fn another_store() -> Error {
    Error::new(ErrorKind::Io, "another store is at the path of this one")
        .advise("bring the file back, or open the store anew")
}

/// Refuses what can't be a store file, by name.
fn check_file(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|error| {
        let advice = "check the path, or create the store first";
        match error.kind() {
            std::io::ErrorKind::NotFound if path.is_symlink() => {
                Error::new(ErrorKind::Io, "this is a symbolic link to a file that is not there")
                    .advise("create the store where it leads to, or remove the link")
            }
            std::io::ErrorKind::NotFound => {
                Error::new(ErrorKind::NotFound, "there is no such file").advise(advice)
            }
            _ => Error::from_io(error, "can't look at the file"),
        }
    })?;
    if metadata.is_dir() {
        return Err(not_a_store("it is a directory, and a store is one file"));
    }
    if !metadata.is_file() {
        return Err(not_a_store("it is a pipe, a socket or a device, and a store is a file"));
    }
    if metadata.len() == 0 {
        return Err(not_a_store("the file is empty").advise("delete it to have a store created"));
    }
    Ok(())
}

fn not_a_store(why: &str) -> Error {
    Error::new(ErrorKind::NotAStore, format!("this is not a milepost store: {why}"))
        .advise("check the path; the file was not changed")
}
