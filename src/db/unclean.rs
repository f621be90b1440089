//! Reading a file that a crash left behind, without writing to it.
//!
//! redb marks a file while a writer has it open. A reader that finds the mark without a live
//! writer is refused, since some commits of redb need a repair. Ours never do: every commit is in
//! two phases, so the primary commit slot names a whole, durable commit, and a reader uses
//! nothing else. What tells redb that the mark means "a writer is at work" is a lock on one byte
//! (`docs/design.md` of redb, "Lock bytes"); this backend says that it is held. All other locks are
//! real, so a writer that opens the file meanwhile leaves alone what we read.

use std::fs::File;
use std::ops::Bound;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use super::fault;
use super::handle::builder;
use crate::error::{Error, Result};

/// The byte that a writer holds while the mark only says that it is there.
const CONSISTENT_BYTE: Bound<u64> = Bound::Included((1 << 62) + 4);

pub(super) fn open(path: &Path, cache_bytes: usize) -> Result<redb::ReadOnlyDatabase> {
    let file = File::open(path).map_err(|error| Error::from_io(error, "can't open the file"))?;
    fault::contain(|| {
        let backend = UncleanFile(FileBackend::new(file)?);
        builder(cache_bytes).open_read_only_with_backend(backend)
    })
}

#[derive(Debug)]
struct UncleanFile(FileBackend);

type Io<T> = std::result::Result<T, std::io::Error>;
type Lock<T> = std::result::Result<T, BackendError>;

impl StorageBackend for UncleanFile {
    fn len(&self) -> Io<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Io<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> Io<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> Io<()> {
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> Io<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> Io<()> {
        self.0.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<bool> {
        self.0.try_lock_range(start, end)
    }

    fn try_lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<bool> {
        self.0.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<()> {
        self.0.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<()> {
        self.0.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<()> {
        self.0.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Lock<bool> {
        if start == CONSISTENT_BYTE && end == CONSISTENT_BYTE {
            return Ok(true);
        }
        self.0.query_lock_range(start, end)
    }
}
