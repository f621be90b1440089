//! Files as the operating system sees them: in the page cache, on the disk.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use serde::Serialize;

/// What the files below a folder take.
#[derive(Serialize)]
pub(crate) struct Disk {
    pub(crate) files: u64,
    /// Their lengths.
    pub(crate) bytes: u64,
    /// Their blocks: less than the lengths where files have holes.
    pub(crate) allocated: u64,
}

pub(crate) fn disk_usage(folder: &Path) -> io::Result<Disk> {
    let mut disk = Disk { files: 0, bytes: 0, allocated: 0 };
    for file in files_below(folder)? {
        let metadata = fs::metadata(file)?;
        disk.files += 1;
        disk.bytes += metadata.len();
        disk.allocated += metadata.blocks() * 512;
    }
    Ok(disk)
}

/// Writes out what is to be written on all disks, so that none of it falls into a timed part.
pub(crate) fn sync_all() {
    rustix::fs::sync();
}

/// Syncs every file below `folder`, and every folder.
pub(crate) fn sync_below(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_below(&path)?;
        } else {
            File::open(path)?.sync_all()?;
        }
    }
    File::open(folder)?.sync_all()
}

/// Drops the files below `folder` from the page cache.
pub(crate) fn evict(folder: &Path) -> io::Result<()> {
    sync_all();
    for file in files_below(folder)? {
        fadvise(File::open(file)?, 0, None, Advice::DontNeed)?;
    }
    Ok(())
}

/// Reads the files below `folder` into the page cache.
pub(crate) fn warm(folder: &Path) -> io::Result<()> {
    let mut buffer = vec![0; 8 << 20];
    for file in files_below(folder)? {
        let mut file = File::open(file)?;
        while file.read(&mut buffer)? > 0 {}
    }
    Ok(())
}

fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(files_below(&path)?);
        } else {
            files.push(path);
        }
    }
    Ok(files)
}
