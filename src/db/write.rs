//! Writing: one transaction, whole or absent. Dropped without a commit it leaves no trace.

use std::path::Path;
use std::sync::Arc;

use redb::Error::Corrupted;
use redb::{ReadableTable, Table, WriteTransaction};

use super::fault::contain;
use super::handle::Handle;
use super::tables::{LEAVES, META, PACK_MARK_KEY, PACK_REFS, PACKS, SHARDINGS, STEPS, STRUCTURES};
use crate::error::{Error, Result};
use crate::record::{PackRange, encode_mark};
use crate::turn::Turn;

/// A write transaction.
pub(crate) struct WriteTx<'d> {
    handle: Arc<Handle>,
    tx: Option<WriteTransaction>,
    path: &'d Path,
    /// Whoever opens the file again waits for this to be gone.
    _writing: Turn<'d, ()>,
}

impl<'d> WriteTx<'d> {
    pub(super) fn new(
        handle: Arc<Handle>,
        tx: WriteTransaction,
        path: &'d Path,
        writing: Turn<'d, ()>,
    ) -> Self {
        Self { handle, tx: Some(tx), path, _writing: writing }
    }

    /// Runs an operation on the transaction.
    pub(super) fn run<T>(
        &self,
        operation: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T> {
        let tx = self.tx.as_ref().ok_or_else(|| Error::damaged("the write transaction has ended"));
        tx.and_then(|tx| contain(|| operation(tx))).map_err(|error| error.in_file(self.path))
    }

    /// Adds a pack. The bytes are copied once, into the page of the database that holds them.
    pub(crate) fn insert_pack(&self, pack: u64, bytes: &[u8]) -> Result<()> {
        self.run(|tx| {
            if tx.open_table(PACKS)?.insert(pack, bytes)?.is_some() {
                return Err(Corrupted(format!("pack {pack} is above the mark and in use")));
            }
            Ok(())
        })
    }

    /// Removes the packs above `mark`, which belong to no step, and says how many there were.
    pub(crate) fn sweep_packs_above(&self, mark: u64) -> Result<u64> {
        self.run(|tx| {
            let Some(first) = mark.checked_add(1) else { return Ok(0) };
            if let Some(entry) = tx.open_table(PACK_REFS)?.range(first..)?.next() {
                let pack = entry?.0.value();
                return Err(Corrupted(format!("pack {pack} is above the mark and in use")));
            }
            // Not with `extract_from_if`: its drop panics on a damaged file, and where that happens
            // while an error unwinds, the process is gone.
            let mut table = tx.open_table(PACKS)?;
            let mut swept = 0;
            while let Some(pack) = last_pack(&table)?.filter(|pack| *pack >= first) {
                if table.remove(pack)?.is_none() {
                    // On a damaged page; going on might not end.
                    return Err(Corrupted(format!("pack {pack} is there and can't be found")));
                }
                swept += 1;
            }
            Ok(swept)
        })
    }

    /// Sets the pack high-water mark.
    pub(crate) fn set_pack_mark(&self, mark: u64) -> Result<()> {
        self.run(|tx| {
            tx.open_table(META)?.insert(PACK_MARK_KEY, &encode_mark(mark)[..])?;
            Ok(())
        })
    }

    /// Adds or replaces the record of `step`.
    pub(crate) fn put_step(&self, step: u64, record: &[u8]) -> Result<()> {
        self.run(|tx| {
            tx.open_table(STEPS)?.insert(step, record)?;
            Ok(())
        })
    }

    /// Adds the structure of `step`.
    pub(crate) fn put_structure(&self, step: u64, structure: &[u8]) -> Result<()> {
        self.run(|tx| {
            tx.open_table(STRUCTURES)?.insert(step, structure)?;
            Ok(())
        })
    }

    /// Adds the shardings of `step`.
    pub(crate) fn put_shardings(&self, step: u64, shardings: &[u8]) -> Result<()> {
        self.run(|tx| {
            tx.open_table(SHARDINGS)?.insert(step, shardings)?;
            Ok(())
        })
    }

    /// Adds or replaces leaf records of `step`, by encoded path.
    pub(crate) fn put_leaf_records(&self, step: u64, leaves: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.run(|tx| {
            let mut table = tx.open_table(LEAVES)?;
            for (path, record) in leaves {
                table.insert((step, &path[..]), &record[..])?;
            }
            Ok(())
        })
    }

    /// Removes the records of `step`. Its packs are released apart.
    pub(crate) fn remove_step(&self, step: u64) -> Result<()> {
        self.run(|tx| {
            tx.open_table(STEPS)?.remove(step)?;
            tx.open_table(STRUCTURES)?.remove(step)?;
            tx.open_table(SHARDINGS)?.remove(step)?;
            let mut leaves = tx.open_table(LEAVES)?;
            let from = (step, &[][..]);
            match step.checked_add(1) {
                Some(next) => leaves.retain_in(from..(next, &[][..]), |_, _| false)?,
                None => leaves.retain_in(from.., |_, _| false)?,
            }
            Ok(())
        })
    }

    /// Counts one more step that uses `packs`.
    pub(crate) fn retain_packs(&self, packs: &[PackRange]) -> Result<()> {
        self.run(|tx| {
            let mut refs = tx.open_table(PACK_REFS)?;
            for pack in numbers(packs) {
                let count = refs.get(pack)?.map_or(0, |count| count.value());
                refs.insert(pack, count.saturating_add(1))?;
            }
            Ok(())
        })
    }

    /// Counts one step or pending rank less that uses `packs`, and removes those that none uses any more.
    pub(crate) fn release_packs(&self, packs: &[PackRange]) -> Result<()> {
        self.run(|tx| {
            let mut refs = tx.open_table(PACK_REFS)?;
            let mut table = tx.open_table(PACKS)?;
            for pack in numbers(packs) {
                let Some(count) = refs.get(pack)?.map(|count| count.value()) else {
                    // It may be another step's, so it stays; what is damaged must not keep others
                    // from being saved.
                    tracing::warn!(pack, "a pack is used and not counted");
                    continue;
                };
                if count > 1 {
                    refs.insert(pack, count - 1)?;
                } else {
                    refs.remove(pack)?;
                    table.remove(pack)?;
                }
            }
            Ok(())
        })
    }

    /// The most payload that it should write.
    pub(crate) fn wave_bytes(&self) -> usize {
        self.handle.wave_bytes()
    }

    /// Commits what was written so far and begins the next transaction.
    pub(crate) fn commit_wave(&mut self) -> Result<()> {
        self.commit_tx()?;
        self.tx = Some(self.handle.write().map_err(|error| error.in_file(self.path))?);
        Ok(())
    }

    /// Commits: durable when this returns. After an error nothing of the transaction is visible,
    /// or, if the error came late, all of it.
    pub(crate) fn commit(mut self) -> Result<()> {
        self.commit_tx()
    }

    fn commit_tx(&mut self) -> Result<()> {
        let Some(tx) = self.tx.take() else {
            return Ok(());
        };
        contain(|| tx.commit()).map_err(|error| error.in_file(self.path))
    }
}

impl Drop for WriteTx<'_> {
    fn drop(&mut self) {
        // Asked for, since redb does not abort by itself while a panic of the caller unwinds.
        if let Some(tx) = self.tx.take()
            && let Err(error) = contain(|| tx.abort())
        {
            tracing::warn!(%error, "a write transaction could not be aborted");
        }
    }
}

fn last_pack(table: &Table<'_, u64, &[u8]>) -> Result<Option<u64>, redb::Error> {
    Ok(table.last()?.map(|(pack, _)| pack.value()))
}

fn numbers(packs: &[PackRange]) -> impl Iterator<Item = u64> {
    packs.iter().flat_map(|range| range.numbers())
}
