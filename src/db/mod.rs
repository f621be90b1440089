//! The database file: tables and transactions, and the only place that knows redb.
//!
//! * A writer has the file to itself (`SingleWriter` mode); readers in any process read beside it
//!   and see each commit.
//! * Every commit is durable and records the allocator's state (quick repair), so that opening
//!   after a crash takes milliseconds.
//! * A file is looked at read-only before it is opened for writing: one that is not a store of
//!   ours, or is newer, is left exactly as it was.
//! * redb can panic on a damaged file. Every call into it goes through [`fault::contain`].

mod create;
mod fault;
mod read;
mod tables;
mod unclean;
mod write;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use redb::ReadableDatabase;

use crate::error::{Error, ErrorKind, Result};
use crate::record::FORMAT_VERSION;
use fault::contain;

pub(crate) use read::{Pack, ReadTx};
pub(crate) use write::WriteTx;

/// redb's cache for a writer. A transaction may dirty half of it before pages are written twice;
/// a larger one makes reading and writing slower, not faster.
const WRITER_CACHE_BYTES: usize = 64 << 20;

/// redb's cache for a reader. Payload is read once, and into memory that is still in the cores'
/// caches if there is little of it.
const READER_CACHE_BYTES: usize = 1 << 20;

/// The most payload that one transaction should write: what leaves room for the tables in the
/// half of the cache that a transaction can dirty without writing pages twice.
pub(crate) const WAVE_BYTES: usize = WRITER_CACHE_BYTES / 2 - (4 << 20);

/// An open database file.
pub(crate) struct Database {
    handle: Handle,
    /// A writer's own reader, whose small cache makes reading payload faster; opened when needed.
    payload_reader: OnceLock<redb::ReadOnlyDatabase>,
    path: PathBuf,
}

enum Handle {
    Writer(redb::Database),
    Reader(redb::ReadOnlyDatabase),
}

impl Database {
    /// Creates a new store file and opens it for writing.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        create::create(path).map_err(|error| error.in_file(path))?;
        Self::open_writer(path)
    }

    /// Opens an existing store file for writing.
    pub(crate) fn open_writer(path: &Path) -> Result<Self> {
        // Opening for writing marks the file at once, so first see whether it is ours.
        drop(Self::open_reader(path)?);
        let open = || builder(WRITER_CACHE_BYTES).open(path);
        let database = contain(open).map_err(|error| writer_advice(error).in_file(path))?;
        Ok(Self::new(Handle::Writer(database), path))
    }

    /// Opens an existing store file for reading, beside a writer too; the file is not changed,
    /// also not if a crash left it unclean.
    pub(crate) fn open_reader(path: &Path) -> Result<Self> {
        check_file(path).map_err(|error| error.in_file(path))?;
        let open = || builder(READER_CACHE_BYTES).open_read_only(path);
        let database = match contain(open) {
            Err(error) if fault::is_unclean(&error) => unclean::open(path, READER_CACHE_BYTES),
            result => result,
        };
        let database = database.map_err(|error| error.in_file(path))?;
        let database = Self::new(Handle::Reader(database), path);
        database
            .check_format()
            .map_err(|error| error.in_file(path))?;
        Ok(database)
    }

    fn new(handle: Handle, path: &Path) -> Self {
        Self {
            handle,
            payload_reader: OnceLock::new(),
            path: path.to_owned(),
        }
    }

    /// The path that the file was opened with.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to read the latest commit.
    pub(crate) fn read(&self) -> Result<ReadTx> {
        let begin = || match &self.handle {
            Handle::Writer(database) => database.begin_read(),
            Handle::Reader(database) => database.begin_read(),
        };
        contain(begin)
            .and_then(ReadTx::new)
            .map_err(|error| error.in_file(&self.path))
    }

    /// Begins to read the latest commit, payload above all.
    pub(crate) fn read_payload(&self) -> Result<ReadTx> {
        let own = self.read()?;
        if matches!(self.handle, Handle::Reader(_)) {
            return Ok(own);
        }
        if self.payload_reader.get().is_none()
            && let Ok(reader) = contain(|| builder(READER_CACHE_BYTES).open_read_only(&self.path))
        {
            // Of two threads that come here at once one reader is dropped again.
            let _ = self.payload_reader.set(reader);
        }
        let Some(reader) = self.payload_reader.get() else {
            return Ok(own);
        };
        let tx = contain(|| reader.begin_read()).and_then(ReadTx::new)?;
        // The file may have been moved away, and another one put in its place.
        Ok(if tx.store_id()? == own.store_id()? {
            tx
        } else {
            own
        })
    }

    /// Begins to write; waits for a write transaction of another thread.
    pub(crate) fn write(&self) -> Result<WriteTx<'_>> {
        let Handle::Writer(database) = &self.handle else {
            return Err(
                Error::new(ErrorKind::ReadOnly, "the store is open for reading only")
                    .advise("open it for writing")
                    .in_file(&self.path),
            );
        };
        WriteTx::begin(database, &self.path)
    }

    fn check_format(&self) -> Result<()> {
        let tables = self.read()?;
        match tables.format_version()? {
            Some(version) if version > FORMAT_VERSION => Err(Error::new(
                ErrorKind::UnsupportedVersion,
                format!(
                    "the store has format {version}, this milepost reads up to {FORMAT_VERSION}"
                ),
            )
            .advise("use a newer milepost; the file was not changed")),
            Some(_) => Ok(()),
            None => Err(not_a_store("it has no milepost format version")),
        }
    }
}

/// The settings that all opens share.
fn builder(cache_bytes: usize) -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(cache_bytes);
    builder.set_concurrency_mode(redb::ConcurrencyMode::SingleWriter);
    builder
}

/// Refuses what can't be a store file, by name.
fn check_file(path: &Path) -> Result<()> {
    let metadata = fs::metadata(path).map_err(|error| {
        let advice = "check the path, or create the store first";
        match error.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(ErrorKind::NotFound, "there is no such file").advise(advice)
            }
            _ => Error::from_io(error, "can't look at the file"),
        }
    })?;
    if metadata.is_dir() {
        return Err(not_a_store("it is a directory, and a store is one file"));
    }
    if metadata.is_file() && metadata.len() == 0 {
        return Err(not_a_store("the file is empty").advise("delete it to have a store created"));
    }
    Ok(())
}

fn not_a_store(why: &str) -> Error {
    Error::new(
        ErrorKind::NotAStore,
        format!("this is not a milepost store: {why}"),
    )
    .advise("check the path; the file was not changed")
}

fn writer_advice(error: Error) -> Error {
    match error.kind() {
        ErrorKind::ReadOnly => error.advise("open it for reading only, or change its permissions"),
        _ => error,
    }
}
