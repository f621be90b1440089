//! redb's database objects: opening them, and what they can be asked for.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use redb::ReadableDatabase;
use redb::backends::FileBackend;

use super::early_sync::EarlySync;
use super::fault::{self, contain};
use super::read::ReadTx;
use super::unclean;
use crate::error::{Error, ErrorKind, Result};

/// redb's cache for a reader. Payload is read once, and into memory that is still in the cores'
/// caches if there is little of it.
const READER_CACHE_BYTES: usize = 1 << 20;

/// How many may have a file open for writing at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    One,
    /// In any number of processes. They take turns: one write transaction at a time.
    Many,
}

impl Writers {
    /// redb's cache for a writer. A transaction may dirty half of it before pages are written twice,
    /// so it sets the size of a wave; it is also nearly all the memory that a save takes. Of several writers
    /// each empties it when another one has written, and has to touch its memory anew: there a smaller one
    /// is faster.
    pub(super) fn cache_bytes(self) -> usize {
        match self {
            Self::One => 80 << 20,
            Self::Many => 48 << 20,
        }
    }

    /// The most payload that one transaction should write: what leaves room for the tables in the
    /// half of the cache that a transaction can dirty without writing pages twice.
    fn wave_bytes(self) -> usize {
        self.cache_bytes() / 2 - (4 << 20)
    }
}

pub(super) enum Handle {
    Writer {
        writers: Writers,
        database: redb::Database,
        /// The open file, to tell it from one that is put at its path.
        file: File,
        /// A reader of our own, whose small cache makes reading payload faster; opened when it is
        /// needed.
        payload_reader: OnceLock<redb::ReadOnlyDatabase>,
    },
    Reader(redb::ReadOnlyDatabase),
    /// An error closed the database, and it could not be opened again yet.
    Closed,
}

impl Handle {
    pub(super) fn open_writer(path: &Path, writers: Writers) -> Result<Self> {
        let (database, file) = contain(|| {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            let again = file.try_clone()?;
            if file.metadata()?.len() == 0 {
                // Emptied since it was looked at; redb would make a new database of it.
                return Err(redb::Error::Corrupted("the file is empty".to_owned()));
            }
            let file = EarlySync::new(file)?;
            #[cfg(test)]
            let file = super::injected::Breakable::new(file, path);
            let builder = builder(writers.cache_bytes(), writers);
            Ok::<_, redb::Error>((builder.create_with_backend(file)?, again))
        })?;
        Ok(Self::Writer { writers, database, file, payload_reader: OnceLock::new() })
    }

    /// Opens a file for reading that a crash may have left unclean.
    pub(super) fn open_reader(path: &Path) -> Result<Self> {
        let database =
            match contain(|| builder(READER_CACHE_BYTES, Writers::One).open_read_only(path)) {
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

    /// The most payload that one transaction should write.
    pub(super) fn wave_bytes(&self) -> usize {
        match self {
            Self::Writer { writers, .. } => writers.wave_bytes(),
            Self::Reader(_) | Self::Closed => 0,
        }
    }

    /// Begins a write transaction.
    pub(super) fn write(&self) -> Result<redb::WriteTransaction> {
        let database = self.writer()?;
        let mut tx = contain(|| database.begin_write())?;
        tx.set_quick_repair(true);
        Ok(tx)
    }

    /// Moves pages to the front of the file and makes it shorter.
    pub(super) fn compact(&mut self) -> Result<()> {
        let Self::Writer { database, .. } = self else { return self.writer().map(drop) };
        contain(|| database.compact())?;
        // redb compacts without recording the allocator's state; the next open would walk the file.
        let tx = self.write()?;
        contain(|| tx.commit())
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
        let Self::Writer { writers, file, payload_reader, .. } = self else {
            return self.read();
        };
        if payload_reader.get().is_none()
            && let Ok(reader) = contain(|| open_same(file, path, *writers))
        {
            // Of two threads that come here at once one reader is dropped again.
            let _ = payload_reader.set(reader);
        }
        match payload_reader.get() {
            Some(reader) => contain(|| reader.begin_read()).and_then(ReadTx::new),
            None => self.read(),
        }
    }

    /// Checks that what is written now will be found at `path`.
    pub(super) fn check_in_place(&self, path: &Path) -> Result<()> {
        let Self::Writer { file, .. } = self else { return Ok(()) };
        match std::fs::metadata(path).and_then(|at_path| is_same(file, &at_path)) {
            Ok(true) => Ok(()),
            Ok(false) => Err(displaced("another file is at the path of the store")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(displaced("the file of the store was deleted or moved away"))
            }
            Err(error) => Err(Error::from_io(error, "can't look at the file")),
        }
    }
}

/// Opens the file at `path` for reading, if it is `file`. A copy that was put in its place may
/// hold other steps, and the same ones with other contents.
fn open_same(
    file: &File,
    path: &Path,
    writers: Writers,
) -> Result<redb::ReadOnlyDatabase, redb::Error> {
    let at_path = File::open(path)?;
    if !is_same(file, &at_path.metadata()?)? {
        return Err(io::Error::from(io::ErrorKind::NotFound).into());
    }
    let backend = FileBackend::new(at_path)?;
    Ok(builder(READER_CACHE_BYTES, writers).open_read_only_with_backend(backend)?)
}

#[cfg(unix)]
fn is_same(file: &File, other: &Metadata) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let own = file.metadata()?;
    Ok((own.dev(), own.ino()) == (other.dev(), other.ino()))
}

/// Other systems don't let an open file be replaced.
#[cfg(not(unix))]
fn is_same(_: &File, _: &Metadata) -> io::Result<bool> {
    Ok(true)
}

fn displaced(message: &str) -> Error {
    Error::new(ErrorKind::Io, message)
        .advise("bring the file back, or open the store at another path: nothing was written")
}

/// The settings that all opens share. A reader may follow writers of either mode.
pub(super) fn builder(cache_bytes: usize, writers: Writers) -> redb::Builder {
    let mut builder = redb::Builder::new();
    builder.set_cache_size(cache_bytes);
    builder.set_concurrency_mode(match writers {
        Writers::One => redb::ConcurrencyMode::SingleWriter,
        Writers::Many => redb::ConcurrencyMode::MultiWriter,
    });
    builder
}

pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Io, "an earlier error closed the store")
        .advise("see whether the file is still there, and open the store again")
        .with_source(redb::Error::PreviousIo)
}
