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
    early: Mutex<Early>,
}

/// What was synced early.
#[derive(Debug, Default)]
struct Early {
    /// The sync that has begun last, until it is asked for its result.
    running: Option<JoinHandle<io::Result<()>>>,
    /// The error of one before. The system reports an error of the disk to one sync only, so it is
    /// kept for the sync that redb asks for.
    failed: Option<io::Error>,
}

impl Early {
    /// Waits for the sync that is running.
    fn join(&mut self) {
        let Some(thread) = self.running.take() else { return };
        let panicked = || Err(io::Error::other("the thread that syncs panicked"));
        if let Err(error) = thread.join().unwrap_or_else(|_| panicked()) {
            self.failed.get_or_insert(error);
        }
    }

    /// Waits for the sync that is running, and gives the error of it or of one before.
    fn finish(&mut self) -> io::Result<()> {
        self.join();
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl EarlySync {
    pub(super) fn new(file: File) -> Result<Self, DatabaseError> {
        let again = file.try_clone().map_err(redb::StorageError::from)?;
        Ok(Self {
            locked: FileBackend::new(file)?,
            file: Arc::new(again),
            unsynced: AtomicUsize::new(0),
            early: Mutex::default(),
        })
    }

    fn early(&self) -> MutexGuard<'_, Early> {
        self.early.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a sync, unless one is still running.
    fn begin_sync(&self) {
        let mut early = self.early();
        if early.running.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        early.join();
        self.unsynced.store(0, Ordering::Relaxed);
        let file = Arc::clone(&self.file);
        let thread = thread::Builder::new().name("milepost-sync".to_owned());
        // Where there is no thread to be had, the sync that redb asks for does it all.
        early.running = thread.spawn(move || file.sync_data()).ok();
    }
}

impl StorageBackend for EarlySync {
    forward! {locked:
        len() -> io::Result<u64>;
        read(offset: u64, out: &mut [u8]) -> io::Result<()>;
        set_len(len: u64) -> io::Result<()>;
    }

    fn sync_data(&self) -> io::Result<()> {
        let early = self.early().finish();
        self.unsynced.store(0, Ordering::Relaxed);
        self.locked.sync_data().and(early)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.locked.write(offset, data)?;
        let unsynced = self.unsynced.fetch_add(data.len(), Ordering::Relaxed) + data.len();
        if unsynced >= EARLY_SYNC_BYTES {
            self.begin_sync();
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        let early = self.early().finish();
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

    fn backend() -> EarlySync {
        EarlySync::new(tempfile::tempfile().unwrap()).unwrap()
    }

    #[test]
    fn an_early_sync_that_fails_fails_the_next_sync_and_no_write() {
        let backend = backend();
        let failing = thread::spawn(|| Err(io::Error::other("the disk is gone")));
        backend.early().running = Some(failing);
        backend.write(0, &vec![7; 2 * EARLY_SYNC_BYTES]).unwrap();
        let error = backend.sync_data().unwrap_err();
        assert_eq!(error.to_string(), "the disk is gone");
        backend.sync_data().unwrap();
    }

    #[test]
    fn what_is_written_is_synced_early_and_read_back() {
        let backend = backend();
        let half = vec![7; EARLY_SYNC_BYTES / 2];
        backend.write(0, &half).unwrap();
        assert!(backend.early().running.is_none());
        backend.write(u64::try_from(half.len()).unwrap(), &half).unwrap();
        let thread = backend.early().running.take().unwrap();
        thread.join().unwrap().unwrap();
        let mut out = vec![0; EARLY_SYNC_BYTES];
        backend.read(0, &mut out).unwrap();
        assert!(out.iter().all(|byte| *byte == 7));
        backend.close().unwrap();
    }
}
