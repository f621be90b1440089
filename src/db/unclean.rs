//! Reading a file that a crash left behind, without writing to it.
//!
//! redb marks a file while a writer has it open. A reader that finds the mark without a live
//! writer is refused, since some commits of redb need a repair. Ours never do: every commit is in
//! two phases, so the primary commit slot names a whole, durable commit, and a reader uses
//! nothing else. What tells redb that the mark means "a writer is at work" is a lock on one byte
//! (`docs/design.md` of redb, "Lock bytes"); this backend says that it is held. All other locks are
//! real, so a writer that opens the file meanwhile leaves alone what we read.
//!
//! A commit is acknowledged after its slot is made the primary one on the disk. A crash between
//! the two leaves a commit that nobody was told of: a reader sees the file before or after it,
//! and so may the next writer.

use std::fs::File;
use std::io;
use std::ops::Bound;
use std::path::Path;

use redb::backends::FileBackend;
use redb::{BackendError, StorageBackend};

use super::fault;
use super::forward::{forward, forward_locks};
use super::handle::{Writers, builder};
use crate::error::Error;

/// The byte that a writer holds while the mark only says that it is there.
const CONSISTENT_BYTE: Bound<u64> = Bound::Included((1 << 62) + 4);

pub(super) fn open(
    path: &Path,
    cache_bytes: usize,
) -> crate::error::Result<redb::ReadOnlyDatabase> {
    let file = File::open(path).map_err(|error| Error::from_io(error, "can't open the file"))?;
    fault::contain(|| {
        let backend = UncleanFile(FileBackend::new(file)?);
        builder(cache_bytes, Writers::One).open_read_only_with_backend(backend)
    })
}

#[derive(Debug)]
struct UncleanFile(FileBackend);

impl StorageBackend for UncleanFile {
    forward! {0:
        len() -> io::Result<u64>;
        read(offset: u64, out: &mut [u8]) -> io::Result<()>;
        set_len(len: u64) -> io::Result<()>;
        sync_data() -> io::Result<()>;
        write(offset: u64, data: &[u8]) -> io::Result<()>;
        close() -> io::Result<()>;
    }

    forward_locks! {0:
        try_lock_range -> bool;
        try_lock_shared_range -> bool;
        lock_range -> ();
        lock_shared_range -> ();
        unlock_range -> ();
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        if start == CONSISTENT_BYTE && end == CONSISTENT_BYTE {
            return Ok(true);
        }
        self.0.query_lock_range(start, end)
    }
}
