//! The file of a writer, which begins to write to the disk before it has to.
//!
//! A commit of redb hands its pages to the system one after the other, and then waits until the
//! disk has them. Here another thread has the first of them synced while the rest are handed over,
//! so that the disk and the processor work at the same time. What is durable does not change: a
//! sync that redb asks for first waits for that thread, then syncs the whole file, and fails if
//! either did.

use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use redb::backends::FileBackend;
use redb::{DatabaseError, StorageBackend};

use super::forward::{forward, forward_locks};

/// So many bytes handed over are worth a sync of their own: some milliseconds of a disk's time,
/// and three or four syncs in a wave.
const EARLY_SYNC_BYTES: usize = 8 << 20;

/// A file that syncs early.
#[derive(Debug)]
pub(super) struct EarlySync {
    locked: FileBackend,
    /// The same open file.
    file: Arc<File>,
    /// Bytes written since a sync last began.
    unsynced: AtomicUsize,
    /// The early sync that has begun and has not been asked for its result.
    running: Mutex<Option<JoinHandle<io::Result<()>>>>,
}

impl EarlySync {
    pub(super) fn new(file: File) -> Result<Self, DatabaseError> {
        let again = file.try_clone().map_err(redb::StorageError::from)?;
        Ok(Self {
            locked: FileBackend::new(file)?,
            file: Arc::new(again),
            unsynced: AtomicUsize::new(0),
            running: Mutex::new(None),
        })
    }

    fn running(&self) -> MutexGuard<'_, Option<JoinHandle<io::Result<()>>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a sync, unless one is still running.
    fn begin_sync(&self) -> io::Result<()> {
        let mut running = self.running();
        if running.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(());
        }
        join(running.take())?;
        self.unsynced.store(0, Ordering::Relaxed);
        let file = Arc::clone(&self.file);
        // Where there is no thread to be had, the sync that redb asks for does it all.
        *running = thread::Builder::new().spawn(move || file.sync_data()).ok();
        Ok(())
    }
}

/// Waits for an early sync. The system reports an error of the disk to one sync only, so that one
/// must not be lost.
fn join(thread: Option<JoinHandle<io::Result<()>>>) -> io::Result<()> {
    let Some(thread) = thread else { return Ok(()) };
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the thread that syncs panicked")))
}

impl StorageBackend for EarlySync {
    forward! {locked:
        len() -> io::Result<u64>;
        read(offset: u64, out: &mut [u8]) -> io::Result<()>;
        set_len(len: u64) -> io::Result<()>;
    }

    fn sync_data(&self) -> io::Result<()> {
        let early = join(self.running().take());
        self.unsynced.store(0, Ordering::Relaxed);
        self.locked.sync_data().and(early)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.locked.write(offset, data)?;
        let unsynced = self.unsynced.fetch_add(data.len(), Ordering::Relaxed) + data.len();
        if unsynced >= EARLY_SYNC_BYTES { self.begin_sync() } else { Ok(()) }
    }

    fn close(&self) -> io::Result<()> {
        // The thread has the file open, and with it its locks.
        let early = join(self.running().take());
        self.locked.close().and(early)
    }

    forward_locks! {locked:
        try_lock_range -> bool;
        try_lock_shared_range -> bool;
        lock_range -> ();
        lock_shared_range -> ();
        unlock_range -> ();
        query_lock_range -> bool;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_early_sync_that_fails_fails_the_next_sync() {
        let backend = EarlySync::new(tempfile::tempfile().unwrap()).unwrap();
        let failing = thread::spawn(|| Err(io::Error::other("the disk is gone")));
        *backend.running() = Some(failing);
        let error = backend.sync_data().unwrap_err();
        assert_eq!(error.to_string(), "the disk is gone");
        backend.sync_data().unwrap();
    }

    #[test]
    fn what_is_written_is_synced_early_and_read_back() {
        let backend = EarlySync::new(tempfile::tempfile().unwrap()).unwrap();
        let half = vec![7; EARLY_SYNC_BYTES / 2];
        backend.write(0, &half).unwrap();
        assert!(backend.running().is_none());
        backend.write(u64::try_from(half.len()).unwrap(), &half).unwrap();
        assert!(backend.running().is_some());
        backend.close().unwrap();
        assert!(backend.running().is_none());
        let mut out = vec![0; EARLY_SYNC_BYTES];
        backend.read(0, &mut out).unwrap();
        assert!(out.iter().all(|byte| *byte == 7));
    }
}
