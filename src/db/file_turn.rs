//! Several writers take turns, each for all transactions of a save.
//!
//! redb lets one process write at a time, but from one transaction to the next another one may go on. Who
//! waits for a whole turn finds packs above the mark only if their writer is gone, uses packs of steps that
//! nobody removes meanwhile, and keeps its cache, which redb empties when another process has written.

use std::fs::OpenOptions;
use std::ops::Bound;
use std::path::Path;

use redb::StorageBackend;
use redb::backends::FileBackend;

use super::fault::contain;
use crate::error::Result;

/// The byte that is locked: far beyond the end of a file, and below those that redb locks
/// (`docs/design.md` of redb, "Lock bytes").
const TURN_BYTE: Bound<u64> = Bound::Included((1 << 62) - 1);

/// The turn of a writer, until this is dropped or the process is gone.
#[derive(Debug)]
pub(crate) struct FileTurn(FileBackend);

impl FileTurn {
    /// Waits for the turn.
    pub(super) fn wait(path: &Path) -> Result<Self> {
        contain(|| {
            let file = OpenOptions::new().read(true).write(true).open(path)?;
            let file = FileBackend::new(file)?;
            file.lock_range(TURN_BYTE, TURN_BYTE).map_err(|error| match error {
                redb::BackendError::Io(error) => redb::Error::Io(error),
                _ => redb::Error::Unsupported,
            })?;
            Ok::<_, redb::Error>(Self(file))
        })
    }
}

impl Drop for FileTurn {
    fn drop(&mut self) {
        if let Err(error) = self.0.close() {
            // The lock goes with the file all the same.
            tracing::warn!(%error, "the turn of a writer could not be given back");
        }
    }
}
