//! Reading one commit: what is read through one [`ReadTx`] belongs together, whatever a writer
//! does meanwhile.

use redb::{
    OwnedAccessGuard, ReadOnlyTable, ReadTransaction, ReadableTable, ReadableTableMetadata,
};

use super::fault::{contain, contain_drop};
use super::tables::{
    CREATED_KEY, FORMAT_KEY, LEAVES, META, PACK_MARK_KEY, PACK_REFS, PACKS, STEPS, STORE_ID_KEY,
    STRUCTURES,
};
use crate::error::{Error, Result};
use crate::record::decode_mark;

/// The tables as of one commit.
pub(crate) struct ReadTx(Option<Tables>);

struct Tables {
    meta: ReadOnlyTable<&'static str, &'static [u8]>,
    steps: ReadOnlyTable<u64, &'static [u8]>,
    structures: ReadOnlyTable<u64, &'static [u8]>,
    leaves: ReadOnlyTable<(u64, &'static [u8]), &'static [u8]>,
    packs: ReadOnlyTable<u64, &'static [u8]>,
    pack_refs: ReadOnlyTable<u64, u64>,
}

/// Takes the encoded path and the record of a leaf.
pub(crate) type LeafVisitor<'v> = dyn FnMut(&[u8], &[u8]) -> Result<()> + 'v;

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
            Ok::<_, redb::TableError>(Tables {
                meta: tx.open_table(META)?,
                steps: tx.open_table(STEPS)?,
                structures: tx.open_table(STRUCTURES)?,
                leaves: tx.open_table(LEAVES)?,
                packs: tx.open_table(PACKS)?,
                pack_refs: tx.open_table(PACK_REFS)?,
            })
        });
        contain_drop(tx);
        Ok(Self(Some(tables?)))
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
        contain(|| table.get_owned(key)).map(|guard| guard.map(|guard| guard.value().to_vec()))
    }

    /// The steps, ascending.
    pub(crate) fn steps(&self) -> Result<Vec<u64>> {
        let table = &self.tables()?.steps;
        let mut range = contain(|| table.range_owned::<u64>(..))?;
        let mut steps = Vec::new();
        while let Some((step, _)) = contain(|| range.next().transpose())? {
            steps.push(step.value());
        }
        Ok(steps)
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
        let table = &self.tables()?.steps;
        let mut range = contain(|| table.range_owned::<u64>(..))?;
        let mut records = Vec::new();
        while let Some((step, record)) = contain(|| range.next().transpose())? {
            records.push((step.value(), record.value().to_vec()));
        }
        Ok(records)
    }

    /// The structure record of `step`.
    pub(crate) fn structure(&self, step: u64) -> Result<Option<Vec<u8>>> {
        get(&self.tables()?.structures, step)
    }

    /// The record of the leaf at the encoded `path` of `step`.
    pub(crate) fn leaf(&self, step: u64, path: &[u8]) -> Result<Option<Vec<u8>>> {
        let table = &self.tables()?.leaves;
        let guard = contain(|| table.get_owned((step, path)))?;
        Ok(guard.map(|guard| guard.value().to_vec()))
    }

    /// Calls `visit` with the encoded path and the record of each leaf of `step`.
    pub(crate) fn for_each_leaf(&self, step: u64, visit: &mut LeafVisitor<'_>) -> Result<()> {
        let table = &self.tables()?.leaves;
        let mut range = contain(|| table.range_owned((step, &[][..])..))?;
        while let Some((key, record)) = contain(|| range.next().transpose())? {
            let (found, path) = key.value();
            if found != step {
                break;
            }
            visit(path, record.value())?;
        }
        Ok(())
    }

    /// A pack.
    pub(crate) fn pack(&self, pack: u64) -> Result<Option<Pack>> {
        let table = &self.tables()?.packs;
        Ok(contain(|| table.get_owned(pack))?.map(Pack))
    }

    /// The number of packs.
    pub(crate) fn pack_count(&self) -> Result<u64> {
        let table = &self.tables()?.packs;
        contain(|| table.len())
    }

    /// The numbers of packs up to `mark` and above it.
    pub(crate) fn pack_counts(&self, mark: u64) -> Result<(u64, u64)> {
        let all = self.pack_count()?;
        let Some(first) = mark.checked_add(1) else {
            return Ok((all, 0));
        };
        let table = &self.tables()?.packs;
        let mut range = contain(|| table.range_owned(first..))?;
        let mut above = 0;
        while contain(|| range.next().transpose())?.is_some() {
            above += 1;
        }
        Ok((all.saturating_sub(above), above))
    }

    /// The packs with the number of steps that use them, ascending.
    pub(crate) fn pack_refs(&self) -> Result<Vec<(u64, u64)>> {
        let table = &self.tables()?.pack_refs;
        let mut range = contain(|| table.range_owned::<u64>(..))?;
        let mut refs = Vec::new();
        while let Some((pack, count)) = contain(|| range.next().transpose())? {
            refs.push((pack.value(), count.value()));
        }
        Ok(refs)
    }
}

impl Drop for ReadTx {
    fn drop(&mut self) {
        contain_drop(self.0.take());
    }
}

type ByNumber = ReadOnlyTable<u64, &'static [u8]>;

fn get(table: &ByNumber, key: u64) -> Result<Option<Vec<u8>>> {
    let guard = contain(|| table.get_owned(key))?;
    Ok(guard.map(|guard| guard.value().to_vec()))
}

fn last_key(table: &ByNumber) -> Result<Option<u64>> {
    let last = contain(|| table.last().map(|entry| entry.map(|(key, _)| key.value())))?;
    Ok(last)
}
