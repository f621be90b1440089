//! Reading one commit: what is read through one [`ReadTx`] belongs together, whatever a writer
//! does meanwhile.

use std::ops::RangeBounds;

use redb::{
    OwnedAccessGuard, ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata,
    StorageError, TableError,
};

use super::fault::{self, contain, contain_drop};
use super::tables::{
    CONTRIBUTIONS, CREATED_KEY, FORMAT_KEY, LEAVES, META, PACK_MARK_KEY, PACK_REFS, PACKS, PENDING,
    SHARDINGS, STEPS, STORE_ID_KEY, STRUCTURES,
};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{FORMAT_VERSION, decode_mark};

/// The tables as of one commit.
pub(crate) struct ReadTx(Option<Tables>);

struct Tables {
    meta: ReadOnlyTable<&'static str, &'static [u8]>,
    steps: ReadOnlyTable<u64, &'static [u8]>,
    structures: ReadOnlyTable<u64, &'static [u8]>,
    leaves: ReadOnlyTable<(u64, &'static [u8]), &'static [u8]>,
    shardings: Option<ReadOnlyTable<u64, &'static [u8]>>,
    packs: ReadOnlyTable<u64, &'static [u8]>,
    pack_refs: ReadOnlyTable<u64, u64>,
    pending: Option<ByStepAndRank>,
    contributions: Option<ByStepAndRank>,
}

/// A step, and a rank that has begun to save it.
pub(crate) type StepAndRank = (u64, u64);

/// The bytes of one pack. They stay where they are for as long as this lives.
pub(crate) struct Pack(OwnedAccessGuard<&'static [u8]>);

impl Pack {
    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.value()
    }
}

impl ReadTx {
    pub(super) fn new(tx: ReadTransaction) -> Result<Self> {
        let tables = contain(|| {
            // A newer format may have other tables: it says so in the one that never changes.
            let meta = tx.open_table(META)?;
            if let Some(version) = meta.get_owned(FORMAT_KEY)?
                && let Ok(version) = version.value().try_into().map(u32::from_le_bytes)
                && !(1..=FORMAT_VERSION).contains(&version)
            {
                return Ok(Err(no_format_of_ours(version)));
            }
            Ok::<_, redb::Error>(Ok(Tables {
                meta,
                steps: tx.open_table(STEPS)?,
                structures: tx.open_table(STRUCTURES)?,
                leaves: tx.open_table(LEAVES)?,
                shardings: if_there(tx.open_table(SHARDINGS))?,
                packs: tx.open_table(PACKS)?,
                pack_refs: tx.open_table(PACK_REFS)?,
                pending: if_there(tx.open_table(PENDING))?,
                contributions: if_there(tx.open_table(CONTRIBUTIONS))?,
            }))
        });
        contain_drop(tx);
        Ok(Self(Some(tables??)))
    }

    fn tables(&self) -> Result<&Tables> {
        // The tables are only taken away when this is dropped.
        self.0.as_ref().ok_or_else(|| Error::damaged("the read transaction has ended"))
    }

    /// The format version; `None` if there is none.
    pub(super) fn format_version(&self) -> Result<Option<u32>> {
        let bytes = self.meta(FORMAT_KEY)?;
        Ok(bytes.and_then(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?))))
    }

    /// The 16 bytes that name the store.
    pub(crate) fn store_id(&self) -> Result<[u8; 16]> {
        let bytes = self.meta(STORE_ID_KEY)?.and_then(|bytes| bytes.try_into().ok());
        bytes.ok_or_else(|| Error::damaged("the store has no id"))
    }

    /// When the store was created, in nanoseconds since 1970-01-01 UTC.
    pub(crate) fn created_unix_ns(&self) -> Result<u64> {
        let bytes = self.meta(CREATED_KEY)?.and_then(|bytes| bytes.try_into().ok());
        bytes
            .map(u64::from_le_bytes)
            .ok_or_else(|| Error::damaged("the store has no creation time"))
    }

    /// The pack high-water mark: packs above it belong to no step.
    pub(crate) fn pack_mark(&self) -> Result<u64> {
        let record = self.meta(PACK_MARK_KEY)?;
        let record = record.ok_or_else(|| Error::damaged("the store has no pack mark"))?;
        Ok(decode_mark(&record)?)
    }

    fn meta(&self, key: &str) -> Result<Option<Vec<u8>>> {
        let table = &self.tables()?.meta;
        contain(|| Ok::<_, StorageError>(table.get_owned(key)?.map(|guard| guard.value().to_vec())))
    }

    /// The steps, ascending.
    pub(crate) fn steps(&self) -> Result<Vec<u64>> {
        keys(&self.tables()?.steps, ..)
    }

    /// The highest step.
    pub(crate) fn last_step(&self) -> Result<Option<u64>> {
        last_key(&self.tables()?.steps)
    }

    /// The record of `step`.
    pub(crate) fn step(&self, step: u64) -> Result<Option<Vec<u8>>> {
        get(&self.tables()?.steps, step)
    }

    /// The steps with their records, ascending.
    pub(crate) fn step_records(&self) -> Result<Vec<(u64, Vec<u8>)>> {
        rows(&self.tables()?.steps)
    }

    /// The structure record of `step`.
    pub(crate) fn structure(&self, step: u64) -> Result<Option<Vec<u8>>> {
        get(&self.tables()?.structures, step)
    }

    /// The shardings record of `step`.
    pub(crate) fn shardings(&self, step: u64) -> Result<Option<Vec<u8>>> {
        self.tables()?.shardings.as_ref().map_or(Ok(None), |table| get(table, step))
    }

    /// The steps that have a shardings record, ascending.
    pub(crate) fn sharding_steps(&self) -> Result<Vec<u64>> {
        self.tables()?.shardings.as_ref().map_or_else(|| Ok(Vec::new()), |table| keys(table, ..))
    }

    /// The record of the leaf at the encoded `path` of `step`.
    pub(crate) fn leaf(&self, step: u64, path: &[u8]) -> Result<Option<Vec<u8>>> {
        let table = &self.tables()?.leaves;
        contain(|| {
            let record = table.get_owned((step, path))?;
            Ok::<_, StorageError>(record.map(|guard| guard.value().to_vec()))
        })
    }

    /// The encoded paths and the records of the leaves of `step`, ascending by path.
    pub(crate) fn leaves(&self, step: u64) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let table = &self.tables()?.leaves;
        contain(|| {
            let mut leaves = Vec::new();
            for entry in table.range_owned((step, &[][..])..)? {
                let (key, record) = entry?;
                let (found, path) = key.value();
                if found != step {
                    break;
                }
                leaves.push((path.to_vec(), record.value().to_vec()));
            }
            Ok::<_, StorageError>(leaves)
        })
    }

    /// The steps that have a structure record, ascending.
    pub(crate) fn structure_steps(&self) -> Result<Vec<u64>> {
        keys(&self.tables()?.structures, ..)
    }

    /// The steps that have leaf records, ascending.
    pub(crate) fn leaf_steps(&self) -> Result<Vec<u64>> {
        let table = &self.tables()?.leaves;
        contain(|| {
            let (mut steps, mut next) = (Vec::new(), Some(0));
            // One look at each step, however many leaves it has.
            while let Some(from) = next
                && let Some(entry) = table.range_owned((from, &[][..])..)?.next()
            {
                let (step, _) = entry?.0.value();
                if step < from {
                    // Only on a damaged page; going on from there might not end.
                    return Err(StorageError::Corrupted("leaf records do not ascend".to_owned()));
                }
                steps.push(step);
                next = step.checked_add(1);
            }
            Ok(steps)
        })
    }

    /// A pack.
    pub(crate) fn pack(&self, pack: u64) -> Result<Option<Pack>> {
        let table = &self.tables()?.packs;
        contain(|| {
            let guard = table.get_owned(pack)?;
            // On a damaged page it is this that panics; here it is contained.
            let length = guard.as_ref().map(|guard| guard.value().len());
            debug_assert_eq!(length.is_some(), guard.is_some());
            Ok::<_, StorageError>(guard.map(Pack))
        })
    }

    /// The number of packs.
    pub(crate) fn pack_count(&self) -> Result<u64> {
        let table = &self.tables()?.packs;
        contain(|| table.len())
    }

    /// The highest pack.
    pub(crate) fn last_pack(&self) -> Result<Option<u64>> {
        last_key(&self.tables()?.packs)
    }

    /// The numbers of packs up to `mark` and above it.
    pub(crate) fn pack_counts(&self, mark: u64) -> Result<(u64, u64)> {
        let all = self.pack_count()?;
        let Some(first) = mark.checked_add(1) else {
            return Ok((all, 0));
        };
        let table = &self.tables()?.packs;
        let above = contain(|| {
            table.range_owned(first..)?.try_fold(0, |above, entry| entry.map(|_| above + 1))
        })?;
        Ok((all.saturating_sub(above), above))
    }

    /// The packs up to `mark`, ascending. This reads all of them: redb keeps keys beside values.
    pub(crate) fn packs_up_to(&self, mark: u64) -> Result<Vec<u64>> {
        keys(&self.tables()?.packs, ..=mark)
    }

    /// The packs with the number of steps that use them, ascending.
    pub(crate) fn pack_refs(&self) -> Result<Vec<(u64, u64)>> {
        let table = &self.tables()?.pack_refs;
        contain(|| {
            let row = |(pack, count): (Guard<u64>, Guard<u64>)| (pack.value(), count.value());
            table.range_owned::<u64>(..)?.map(|entry| entry.map(row)).collect()
        })
    }

    /// The steps and ranks with their pending records, ascending.
    pub(crate) fn pending(&self) -> Result<Vec<(StepAndRank, Vec<u8>)>> {
        let Some(table) = &self.tables()?.pending else { return Ok(Vec::new()) };
        contain(|| {
            let row = |(key, record): (Guard<StepAndRank>, Guard<Bytes>)| {
                (key.value(), record.value().to_vec())
            };
            table.range_owned::<StepAndRank>(..)?.map(|entry| entry.map(row)).collect()
        })
    }

    /// The steps and ranks that have a contribution record, ascending.
    pub(crate) fn contributors(&self) -> Result<Vec<StepAndRank>> {
        let Some(table) = &self.tables()?.contributions else { return Ok(Vec::new()) };
        contain(|| {
            let key = |(key, _): (Guard<StepAndRank>, Guard<Bytes>)| key.value();
            table.range_owned::<StepAndRank>(..)?.map(|entry| entry.map(key)).collect()
        })
    }

    /// The contribution record of `rank` to `step`.
    pub(crate) fn contribution(&self, step: u64, rank: u64) -> Result<Option<Vec<u8>>> {
        let Some(table) = &self.tables()?.contributions else { return Ok(None) };
        contain(|| {
            let record = table.get_owned((step, rank))?;
            Ok::<_, StorageError>(record.map(|guard| guard.value().to_vec()))
        })
    }

    /// Whether `error` only says that an earlier one, which was returned then, closed the store.
    pub(crate) fn is_follow_up(error: &Error) -> bool {
        fault::is_closed(error)
    }
}

impl Drop for ReadTx {
    fn drop(&mut self) {
        contain_drop(self.0.take());
    }
}

type Bytes = &'static [u8];
type Guard<V> = OwnedAccessGuard<V>;
type ByNumber = ReadOnlyTable<u64, Bytes>;
type ByStepAndRank = ReadOnlyTable<StepAndRank, Bytes>;

/// A table, unless there is none of its name.
fn if_there<T>(table: Result<T, TableError>) -> Result<Option<T>, TableError> {
    match table {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn get(table: &ByNumber, key: u64) -> Result<Option<Vec<u8>>> {
    contain(|| Ok::<_, StorageError>(table.get_owned(key)?.map(|guard| guard.value().to_vec())))
}

/// All rows, ascending.
fn rows(table: &ByNumber) -> Result<Vec<(u64, Vec<u8>)>> {
    contain(|| {
        let row =
            |(key, record): (Guard<u64>, Guard<Bytes>)| (key.value(), record.value().to_vec());
        table.range_owned::<u64>(..)?.map(|entry| entry.map(row)).collect()
    })
}

/// The keys in `range`, ascending.
fn keys(table: &ByNumber, range: impl RangeBounds<u64>) -> Result<Vec<u64>> {
    contain(|| {
        let key = |(key, _): (Guard<u64>, Guard<Bytes>)| key.value();
        table.range_owned(range)?.map(|entry| entry.map(key)).collect()
    })
}

fn last_key(table: &ByNumber) -> Result<Option<u64>> {
    contain(|| Ok::<_, StorageError>(table.last()?.map(|(key, _)| key.value())))
}

fn no_format_of_ours(version: u32) -> Error {
    if version == 0 {
        return Error::damaged("the store has format 0, which no milepost writes");
    }
    Error::new(
        ErrorKind::UnsupportedVersion,
        format!("the store has format {version}, this milepost reads up to {FORMAT_VERSION}"),
    )
    .advise("use a newer milepost; the file was not changed")
}
