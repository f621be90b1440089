//! redb's database objects: opening them, and what they can be asked for.

use std::fs::OpenOptions;
use std::path::Path;
use std::sync::OnceLock;

use redb::ReadableDatabase;

use super::early_sync::EarlySync;
use super::fault::{self, contain};
use super::read::ReadTx;
use super::unclean;
use crate::error::{Error, ErrorKind, Result};

/// redb's cache for a writer. A transaction may dirty half of it before pages are written twice,
/// so it sets the size of a wave; it is also nearly all the memory that a save takes.
pub(super) const WRITER_CACHE_BYTES: usize = 80 << 20;

/// redb's cache for a reader. Payload is read once, and into memory that is still in the cores'
/// caches if there is little of it.
const READER_CACHE_BYTES: usize = 1 << 20;

pub(super) enum Handle {
    Writer {
        database: redb::Database,
        /// A reader of our own, whose small cache makes reading payload faster; opened when it is
        /// needed.
        payload_reader: OnceLock<redb::ReadOnlyDatabase>,
    },
    Reader(redb::ReadOnlyDatabase),
    /// An error closed the database, and it could not be opened again yet.
    Closed,
}

impl Handle {
    pub(super) fn open_writer(path: &Path) -> Result<Self> {
        let database = contain(|| {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            if file.metadata()?.len() == 0 {
                // Emptied since it was looked at; redb would make a new database of it.
                return Err(redb::Error::Corrupted("the file is empty".to_owned()));
            }
            let file = EarlySync::new(file)?;
            Ok::<_, redb::Error>(builder(WRITER_CACHE_BYTES).create_with_backend(file)?)
        })?;
        Ok(Self::Writer { database, payload_reader: OnceLock::new() })
    }

    /// Opens a file for reading that a crash may have left unclean.
    pub(super) fn open_reader(path: &Path) -> Result<Self> {
        let database = match contain(|| builder(READER_CACHE_BYTES).open_read_only(path)) {
            Err(error) if fault::is_unclean(&error) => unclean::open(path, READER_CACHE_BYTES),
            result => result,
        };
        Ok(Self::Reader(database?))
    }

    /// The writer, or why there is none.
    pub(super) fn writer(&self) -> Result<&redb::Database> {
        match self {
            Self::Writer { database, .. } => Ok(database),
            Self::Reader(_) => {
                Err(Error::new(ErrorKind::ReadOnly, "the store is open for reading only")
                    .advise("open it for writing"))
            }
            Self::Closed => Err(closed()),
        }
    }

    /// Begins a write transaction.
    pub(super) fn write(&self) -> Result<redb::WriteTransaction> {
        let database = self.writer()?;
        let mut tx = contain(|| database.begin_write())?;
        tx.set_quick_repair(true);
        Ok(tx)
    }

    pub(super) fn read(&self) -> Result<ReadTx> {
        let tx = match self {
            Self::Writer { database, .. } => contain(|| database.begin_read()),
            Self::Reader(database) => contain(|| database.begin_read()),
            Self::Closed => Err(closed()),
        };
        tx.and_then(ReadTx::new)
    }

    /// Begins to read payload: through a reader with a small cache, if there can be one.
    pub(super) fn read_payload(&self, path: &Path) -> Result<ReadTx> {
        let own = self.read()?;
        let Self::Writer { payload_reader, .. } = self else {
            return Ok(own);
        };
        if payload_reader.get().is_none()
            && let Ok(reader) = contain(|| builder(READER_CACHE_BYTES).open_read_only(path))
        {
            // Of two threads that come here at once one reader is dropped again.
            let _ = payload_reader.set(reader);
        }
        let Some(reader) = payload_reader.get() else {
            return Ok(own);
        };
        let tx = contain(|| reader.begin_read()).and_then(ReadTx::new)?;
        // The file may have been moved away, and another one put in its place.
        Ok(if tx.store_id()? == own.store_id()? { tx } else { own })
    }
}

/// The settings that all opens share.
pub(super) fn builder(cache_bytes: usize) -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(cache_bytes);
    builder.set_concurrency_mode(redb::ConcurrencyMode::SingleWriter);
    builder
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Io, "an earlier error closed the store")
        .advise("see whether the file is still there, and open the store again")
        .with_source(redb::Error::PreviousIo)
}
