//! Making a store file: it appears under its name whole or not at all.
//!
//! It is made under a name of its own in the same folder and then given its name, unless that is
//! taken. So a crash leaves no half-made store where a trainer would look for one, and of two
//! trainers that create the same store at once one gets `AlreadyExists`.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::SystemTime;

use redb::backends::FileBackend;
use tempfile::NamedTempFile;

use super::fault::{contain, contain_drop};
use super::handle::{Writers, builder};
use super::tables::{
    CREATED_KEY, FORMAT_KEY, LEAVES, META, PACK_MARK_KEY, PACK_REFS, PACKS, STEPS, STORE_ID_KEY,
    STRUCTURES,
};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{FORMAT_VERSION, encode_mark, to_unix_ns};

/// The file name of a draft begins so. A crash while a store is made may leave one behind.
const DRAFT_PREFIX: &str = ".milepost-";

pub(super) fn create(path: &Path) -> Result<()> {
    if path.file_name().is_none() {
        return Err(Error::invalid("the path does not name a file"));
    }
    if path.symlink_metadata().is_ok() {
        return Err(already_exists());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    // A model may be worth more than the machine it is trained on: a temporary file is readable
    // by its owner alone, and stays so.
    let draft = tempfile::Builder::new().prefix(DRAFT_PREFIX).suffix(".new").tempfile_in(folder);
    let draft = draft.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::new(ErrorKind::NotFound, "there is no such folder")
            .advise("create the folder first")
            .with_source(error),
        _ => Error::from_io(error, "can't create the file"),
    })?;
    write_draft(&draft)?;
    draft.persist_noclobber(path).map_err(|error| match error.error.kind() {
        std::io::ErrorKind::AlreadyExists => already_exists(),
        _ => Error::from_io(error.error, "can't create the file"),
    })?;
    sync_folder(folder).map_err(|error| Error::from_io(error, "can't sync the folder"))
}

fn already_exists() -> Error {
    Error::new(ErrorKind::AlreadyExists, "there is a file of this name already")
        .advise("open it, or choose another name")
}

fn write_draft(draft: &NamedTempFile) -> Result<()> {
    let file = draft.reopen().map_err(|error| Error::from_io(error, "can't open the new file"))?;
    let builder = builder(Writers::One.cache_bytes(), Writers::One);
    let database = contain(|| builder.create_with_backend(FileBackend::new(file)?))?;
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
        meta.insert(STORE_ID_KEY, &random_id()[..])?;
        meta.insert(CREATED_KEY, &to_unix_ns(SystemTime::now()).to_le_bytes()[..])?;
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

/// Makes the new name durable, where the system has a way to.
fn sync_folder(folder: &Path) -> std::io::Result<()> {
    if cfg!(unix) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// 128 bits from the system's random keys for hash maps. Processes that were forked from one have the same keys,
/// so they go with what tells these apart.
pub(crate) fn random_id() -> [u8; 16] {
    let apart = (std::process::id(), SystemTime::now());
    let half = || u128::from(RandomState::new().hash_one(apart));
    (half() << 64 | half()).to_le_bytes()
}
