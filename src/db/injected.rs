//! A disk that fails when a test says so.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use redb::StorageBackend;

use super::early_sync::EarlySync;
use super::forward::{forward, forward_locks};

static DISKS: Mutex<BTreeMap<PathBuf, Arc<Disk>>> = Mutex::new(BTreeMap::new());

/// The disk that a store file is on.
#[derive(Debug, Default)]
pub(crate) struct Disk(Mutex<Health>);

#[derive(Debug, Default)]
struct Health {
    /// What is still done before the failure.
    operations_left: Option<u64>,
    failure: Failure,
    failed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Failure {
    /// One operation fails.
    #[default]
    Once,
    /// All fail, until the disk is mended.
    Lasting,
}

/// The disk of the file at `path`.
pub(crate) fn disk(path: &Path) -> Arc<Disk> {
    Arc::clone(DISKS.lock().entry(path.to_owned()).or_default())
}

impl Disk {
    /// Lets writes, syncs and changes of the length fail after so many of them.
    pub(crate) fn fail_after(&self, operations: u64, failure: Failure) {
        *self.0.lock() = Health { operations_left: Some(operations), failure, failed: false };
    }

    /// Lets all succeed; whether one failed.
    pub(crate) fn mend(&self) -> bool {
        std::mem::take(&mut *self.0.lock()).failed
    }

    fn operation(&self) -> io::Result<()> {
        let mut health = self.0.lock();
        match &mut health.operations_left {
            None => return Ok(()),
            Some(0) => {}
            Some(left) => {
                *left -= 1;
                return Ok(());
            }
        }
        health.failed = true;
        if health.failure == Failure::Once {
            health.operations_left = None;
        }
        Err(io::Error::other("the disk is broken"))
    }
}

#[derive(Debug)]
pub(super) struct Breakable {
    file: EarlySync,
    disk: Arc<Disk>,
}

impl Breakable {
    pub(super) fn new(file: EarlySync, path: &Path) -> Self {
        Self { file, disk: disk(path) }
    }
}

impl StorageBackend for Breakable {
    forward! {file:
        len() -> io::Result<u64>;
        read(offset: u64, out: &mut [u8]) -> io::Result<()>;
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.disk.operation().and_then(|()| self.file.set_len(len))
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.operation().and_then(|()| self.file.sync_data())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.disk.operation().and_then(|()| self.file.write(offset, data))
    }

    fn close(&self) -> io::Result<()> {
        self.file.close()
    }

    forward_locks! {file:
        try_lock_range -> bool;
        try_lock_shared_range -> bool;
        lock_range -> ();
        lock_shared_range -> ();
        unlock_range -> ();
        query_lock_range -> bool;
    }
}
