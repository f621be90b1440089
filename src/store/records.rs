//! The leaf records of a step, by path.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::db::ReadTx;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::{LeafRecord, decode_shardings};
use crate::sharding::Sharding;
use crate::tree::LeafMeta;

/// A leaf record with the encoded path of its leaf.
pub(super) type PathAndRecord = (Vec<u8>, LeafRecord);

/// The leaf records of a step, in the order of their encoded paths.
pub(super) fn leaf_records(tx: &ReadTx, step: u64) -> Result<Vec<PathAndRecord>> {
    let decode = |(path, record): (Vec<u8>, Vec<u8>)| {
        let record = LeafRecord::decode(step, &path, &record).map_err(|error| {
            let error = Error::from(error).at_step(step);
            match KeyPath::decode(&path) {
                Ok(path) => error.at_path(&path),
                Err(_) => error,
            }
        })?;
        Ok((path, record))
    };
    tx.leaves(step)?.into_iter().map(decode).collect()
}

/// The leaf records of a step, to be looked up by path.
///
/// Whoever asks for them goes through a tree, whose order is mostly that of the paths: the record
/// after the one found last is tried first.
pub(super) struct Records {
    list: Vec<PathAndRecord>,
    next: AtomicUsize,
    /// What the records name by their numbers.
    shardings: Vec<Sharding>,
}

/// The shardings of a step, if `records` name any.
pub(super) fn shardings_of<'r>(
    tx: &ReadTx,
    step: u64,
    records: impl IntoIterator<Item = &'r LeafRecord>,
) -> Result<Vec<Sharding>> {
    if records.into_iter().all(|record| record.sharding.is_none()) {
        return Ok(Vec::new());
    }
    let record = tx.shardings(step)?;
    let record = record.ok_or_else(|| Error::damaged("the shardings of the step are missing"))?;
    Ok(decode_shardings(step, &record)?)
}

pub(super) fn sharding_of<'s>(
    record: &LeafRecord,
    shardings: &'s [Sharding],
) -> Result<Option<&'s Sharding>> {
    let Some(number) = record.sharding else { return Ok(None) };
    let sharding = usize::try_from(number).ok().and_then(|number| shardings.get(number));
    let unknown = || {
        let found = shardings.len();
        Error::damaged(format!("the leaf has sharding {number}, the step has {found} of them"))
    };
    sharding.ok_or_else(unknown).map(Some)
}

/// What the leaf of `record` is, with its sharding.
pub(super) fn meta_of(record: &LeafRecord, shardings: &[Sharding]) -> Result<LeafMeta> {
    let Some(sharding) = sharding_of(record, shardings)? else { return Ok(record.meta.clone()) };
    sharding.layout(&record.meta.shape).map_err(|error| {
        Error::damaged(format!("{} can't have its sharding", record.meta)).with_source(error)
    })?;
    Ok(LeafMeta { sharding: Some(sharding.clone()), ..record.meta.clone() })
}

impl Records {
    pub(super) fn read(tx: &ReadTx, step: u64) -> Result<Self> {
        let list = leaf_records(tx, step)?;
        let shardings = shardings_of(tx, step, list.iter().map(|(_, record)| record))?;
        Ok(Self { shardings, ..Self::from(list) })
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// The sharding that was saved with the leaf of `record`.
    pub(super) fn sharding(&self, record: &LeafRecord) -> Result<Option<&Sharding>> {
        sharding_of(record, &self.shardings)
    }

    /// What the leaf at `path` is.
    pub(super) fn meta(&self, path: &KeyPath) -> Result<LeafMeta> {
        let (_, record) = self.get(path)?;
        meta_of(record, &self.shardings).map_err(|error| error.at_path(path))
    }

    /// The record of the leaf at `path`.
    ///
    /// # Errors
    /// `Damaged` if it is missing: the structure of the step has the leaf.
    pub(super) fn get(&self, path: &KeyPath) -> Result<&PathAndRecord> {
        let encoded = path.encode();
        let has_path = |row: &&PathAndRecord| row.0 == encoded;
        let next = self.next.load(Ordering::Relaxed);
        let place = match self.list.get(next).filter(has_path) {
            Some(_) => Ok(next),
            None => self.list.binary_search_by(|row| row.0.cmp(&encoded)),
        };
        if let Ok(place) = place {
            self.next.store(place + 1, Ordering::Relaxed);
        }
        let found = place.ok().and_then(|place| self.list.get(place));
        found.ok_or_else(|| Error::damaged("the record of the leaf is missing").at_path(path))
    }
}

impl From<Vec<PathAndRecord>> for Records {
    fn from(list: Vec<PathAndRecord>) -> Self {
        Self { list, next: AtomicUsize::new(0), shardings: Vec::new() }
    }
}
