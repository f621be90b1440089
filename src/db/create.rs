//! Making a store file: it appears under its name whole or not at all.
//!
//! It is made under a name of its own in the same folder and then linked, so a crash leaves no
//! half-made store where a trainer would look for one, and of two trainers that create the same
//! store at once one gets `AlreadyExists`.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use redb::backends::FileBackend;

use super::fault::{contain, contain_drop};
use super::tables::{
    CREATED_KEY, FORMAT_KEY, LEAVES, META, PACK_MARK_KEY, PACK_REFS, PACKS, STEPS, STORE_ID_KEY,
    STRUCTURES,
};
use super::{WRITER_CACHE_BYTES, builder};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{FORMAT_VERSION, encode_mark};

pub(super) fn create(path: &Path) -> Result<()> {
    if path.symlink_metadata().is_ok() {
        return Err(already_exists());
    }
    let draft = draft_path(path)?;
    let result = write_draft(&draft).and_then(|()| publish(&draft, path));
    if let Err(error) = fs::remove_file(&draft)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(file = %draft.display(), %error, "can't remove the draft of a new store");
    }
    result
}

fn already_exists() -> Error {
    Error::new(
        ErrorKind::AlreadyExists,
        "there is a file of this name already",
    )
    .advise("open it, or choose another name")
}

/// `.NAME.RANDOM.new` in the folder of `path`.
fn draft_path(path: &Path) -> Result<PathBuf> {
    let name = path
        .file_name()
        .ok_or_else(|| Error::invalid("the path does not name a file"))?;
    let mut draft = OsString::from(".");
    draft.push(name);
    draft.push(format!(
        ".{:016x}.new",
        RandomState::new().hash_one(std::process::id())
    ));
    Ok(path.with_file_name(draft))
}

fn write_draft(draft: &Path) -> Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    // A model may be worth more than the machine it is trained on: its owner alone may read it.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let file = options.open(draft).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::new(ErrorKind::NotFound, "there is no such folder")
            .advise("create the folder first")
            .with_source(error),
        _ => Error::from_io(error, "can't create the file"),
    })?;
    let database =
        contain(|| builder(WRITER_CACHE_BYTES).create_with_backend(FileBackend::new(file)?))?;
    let result = contain(|| initialize(&database));
    contain_drop(database);
    result
}

fn initialize(database: &redb::Database) -> Result<(), redb::Error> {
    let mut tx = database.begin_write()?;
    tx.set_quick_repair(true);
    {
        let mut meta = tx.open_table(META)?;
        meta.insert(FORMAT_KEY, &FORMAT_VERSION.to_le_bytes()[..])?;
        meta.insert(STORE_ID_KEY, &store_id()[..])?;
        meta.insert(CREATED_KEY, &unix_ns(SystemTime::now()).to_le_bytes()[..])?;
        meta.insert(PACK_MARK_KEY, &encode_mark(0)[..])?;
        tx.open_table(STEPS)?;
        tx.open_table(STRUCTURES)?;
        tx.open_table(LEAVES)?;
        tx.open_table(PACKS)?;
        tx.open_table(PACK_REFS)?;
    }
    tx.commit()?;
    Ok(())
}

fn publish(draft: &Path, path: &Path) -> Result<()> {
    let linked = fs::hard_link(draft, path).or_else(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => Err(error),
        // A file system without hard links: the name was free a moment ago.
        _ if path.symlink_metadata().is_err() => fs::rename(draft, path),
        _ => Err(std::io::ErrorKind::AlreadyExists.into()),
    });
    linked.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => already_exists(),
        _ => Error::from_io(error, "can't create the file"),
    })?;
    sync_folder(path).map_err(|error| Error::from_io(error, "can't sync the folder"))
}

/// Makes the new name durable, where the system has a way to.
fn sync_folder(path: &Path) -> std::io::Result<()> {
    if cfg!(unix) {
        let folder = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
    }
    Ok(())
}

/// 128 bits from the system's random keys for hash maps.
fn store_id() -> [u8; 16] {
    let half = || u128::from(RandomState::new().hash_one(0u8));
    (half() << 64 | half()).to_le_bytes()
}

/// Nanoseconds since 1970-01-01 UTC; 0 for times before.
fn unix_ns(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
