//! Reading one saved step.

use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;

use super::chunk_map::ChunkMap;
use super::compare::differences;
use super::fill::{self, Destination, chunk_error, locate};
use super::packs::PackReader;
use super::records::{Records, meta_of, shardings_of};
use super::{StepInfo, step_record};
use crate::codec::{self, ChunkId};
use crate::db::ReadTx;
use crate::dtype::zeroed;
use crate::error::{Error, ErrorKind, Result};
use crate::path::KeyPath;
use crate::record::{LeafRecord, decode_structure};
use crate::shape::Region;
use crate::tree::{Checkpoint, FreshLeaf, Leaf, LeafMeta, LeafMut, LeafSource, Tree, check_region};

/// A saved step, as it was when it was opened: deleting or replacing the step meanwhile does not
/// change what is read here.
///
/// Every chunk is checked whenever it is read.
pub struct StepReader {
    pub(super) tx: ReadTx,
    info: StepInfo,
    pub(super) threads: NonZeroUsize,
    file: PathBuf,
    /// The leaf that a region was last read of: its other regions mostly follow.
    last: Mutex<Option<Arc<OpenLeaf>>>,
}

/// A leaf that regions are read of.
struct OpenLeaf {
    encoded: Vec<u8>,
    record: LeafRecord,
    chunks: ChunkMap,
}

impl StepReader {
    pub(super) fn new(tx: ReadTx, step: u64, threads: NonZeroUsize, file: &Path) -> Result<Self> {
        let info = StepInfo::from_record(step, &step_record(&tx, step)?)?;
        Ok(Self { tx, info, threads, file: file.to_owned(), last: Mutex::new(None) })
    }

    /// What is known of the step.
    pub fn info(&self) -> &StepInfo {
        &self.info
    }

    /// Restores the whole step in the structure in which it was saved, container kinds included.
    ///
    /// # Errors
    /// `Damaged` with the leaf and chunk if something is not as it was written; `Io`.
    pub fn restore(&self) -> Result<Tree<Leaf<'static>>> {
        let restore = || {
            let records = self.records()?;
            let structure = self.structure_of(&records)?;
            let mut fresh = structure.map_leaves(|_, meta| FreshLeaf::new(meta))?;
            self.fill_leaves(fresh_targets(&mut fresh), &records)?;
            fresh.map_leaves(|path, leaf| leaf.into_leaf().map_err(|error| error.at_path(path)))
        };
        restore().map_err(|error| self.place(error))
    }

    /// Restores the step into `state`, straight into the memory that it has.
    ///
    /// # Errors
    /// `Mismatch` if the saved structure, an element type or a shape is not that of `state`, with
    /// all differences: then `state` is as it was. `Damaged` with the leaf and chunk, or `Io`:
    /// then parts of `state` may be overwritten.
    pub fn restore_into<C: Checkpoint + ?Sized>(&self, state: &mut C) -> Result<()> {
        let mut restore = || {
            let records = self.records()?;
            let saved = self.structure_of(&records)?;
            let targets = state.to_tree_mut();
            targets.check()?;
            let differences = differences(&saved, &targets);
            if !differences.is_empty() {
                return Err(differences.into_error());
            }
            let mut leaves = Vec::new();
            targets.map_leaves(|path, leaf| {
                leaves.push((path.clone(), leaf));
                Ok(())
            })?;
            self.fill_leaves(leaves, &records)
        };
        restore().map_err(|error| self.place(error))
    }

    /// Restores one leaf. Only its chunks are read.
    ///
    /// # Errors
    /// `NotFound` if there is no such leaf; `Damaged` or `Io`.
    pub fn read_leaf(&self, path: &KeyPath) -> Result<Leaf<'static>> {
        let read = || {
            let encoded = path.encode();
            let record = self.leaf_record(path, &encoded)?;
            let mut fresh = FreshLeaf::new(record.meta.clone())?;
            let records = Records::from(vec![(encoded, record)]);
            self.fill_leaves(vec![(path.clone(), LeafMut::fresh(&mut fresh))], &records)?;
            fresh.into_leaf()
        };
        read().map_err(|error| self.place(error.at_path(path)))
    }

    /// What is known of a leaf. Its contents are not read.
    ///
    /// # Errors
    /// As [`read_leaf`](Self::read_leaf).
    pub fn leaf_meta(&self, path: &KeyPath) -> Result<LeafMeta> {
        let meta = || {
            let record = self.leaf_record(path, &path.encode())?;
            let shardings = shardings_of(&self.tx, self.info.step, [&record])?;
            meta_of(&record, &shardings)
        };
        meta().map_err(|error: Error| self.place(error.at_path(path)))
    }

    pub(super) fn place(&self, error: Error) -> Error {
        error.at_step(self.info.step).in_file(&self.file)
    }

    pub(super) fn leaf_record(&self, path: &KeyPath, encoded: &[u8]) -> Result<LeafRecord> {
        let record = self.tx.leaf(self.info.step, encoded)?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "there is no such leaf in this step")
                .at_path(path)
                .advise("its structure lists the leaves that there are")
        })?;
        Ok(LeafRecord::decode(self.info.step, encoded, &record)?)
    }

    pub(super) fn records(&self) -> Result<Records> {
        Records::read(&self.tx, self.info.step)
    }

    pub(super) fn structure_of(&self, records: &Records) -> Result<Tree<LeafMeta>> {
        let step = self.info.step;
        let structure = self.tx.structure(step)?;
        let structure =
            structure.ok_or_else(|| Error::damaged("the structure of the step is missing"))?;
        let mut found = 0;
        let tree = decode_structure(step, &structure, &mut |path| {
            found += 1;
            records.meta(path)
        })?;
        if found != records.len() {
            return Err(Error::damaged(format!(
                "the step has {} leaf records, its structure {found} leaves",
                records.len()
            )));
        }
        Ok(tree)
    }

    /// Reads the leaves at the given paths, which have records, to their places.
    pub(super) fn fill_leaves(
        &self,
        targets: Vec<(KeyPath, LeafMut<'_>)>,
        records: &Records,
    ) -> Result<()> {
        let mut leaves = Vec::with_capacity(targets.len());
        for (path, mut target) in targets {
            let (encoded, record) = records.get(&path)?;
            target.prepare(&record.meta).map_err(|error| error.at_path(&path))?;
            leaves.push((path, target, Vec::new(), encoded, record));
        }
        let mut destinations = Vec::with_capacity(leaves.len());
        for (path, target, staged, encoded, record) in &mut leaves {
            let size_bytes = record.meta.size_bytes()?;
            let memory = if let Some(memory) = target.memory() {
                memory
            } else {
                *staged = zeroed(size_bytes).map_err(|error| error.at_path(path))?;
                &mut staged[..]
            };
            if memory.len() != size_bytes {
                return Err(Error::invalid(format!(
                    "the place for the leaf has {} bytes, the leaf has {size_bytes}",
                    memory.len()
                ))
                .at_path(path));
            }
            let places = vec![(Region::whole(&record.meta.shape), memory)];
            destinations.push(Destination { path: encoded, record, places });
        }
        fill::fill(&self.tx, self.info.step, destinations, self.threads)?;
        for (path, target, staged, _, _) in &mut leaves {
            if target.memory().is_none() {
                target.finish(staged).map_err(|error| error.at_path(path))?;
            }
            target.settle().map_err(|error| error.at_path(path))?;
        }
        Ok(())
    }

    /// The leaf at `path`, whose record is decoded once for all its regions.
    fn open_leaf(&self, path: &KeyPath) -> Result<Arc<OpenLeaf>> {
        let encoded = path.encode();
        if let Some(open) = &*self.last.lock()
            && open.encoded == encoded
        {
            return Ok(Arc::clone(open));
        }
        let record = self.leaf_record(path, &encoded)?;
        let open = Arc::new(OpenLeaf { encoded, chunks: ChunkMap::new(&record), record });
        *self.last.lock() = Some(Arc::clone(&open));
        Ok(open)
    }

    /// Writes the part of a leaf that lies in `region` to `out`. Reads the chunks that it meets.
    fn read_part(&self, leaf: &OpenLeaf, region: &Region, out: &mut [u8]) -> Result<()> {
        let OpenLeaf { encoded, record, chunks } = leaf;
        let (mut raw, mut packs) = (Vec::new(), PackReader::default());
        for placed in chunks.of_region(region) {
            let Some(chunk) = record.chunks.get(placed.number) else { continue };
            let id = ChunkId::new(encoded, placed.part, placed.index, record.meta.dtype);
            let stored = packs.read(&self.tx, chunk.extent()).map_err(|error| locate(error, id))?;
            let raw = codec::view(id, &chunk.info, stored, &mut raw)
                .map_err(|error| chunk_error(error, id))?;
            placed.copy(raw, region, out);
        }
        Ok(())
    }
}

impl LeafSource for StepReader {
    fn structure(&self) -> Result<Tree<LeafMeta>> {
        let structure = || self.structure_of(&self.records()?);
        structure().map_err(|error| self.place(error))
    }

    fn read_region(&self, path: &KeyPath, region: &Region, out: &mut [u8]) -> Result<()> {
        let mut read = || {
            let leaf = self.open_leaf(path)?;
            check_region(&leaf.record.meta, region, out)?;
            self.read_part(&leaf, region, out)
        };
        read().map_err(|error| self.place(error.at_path(path)))
    }
}

impl std::fmt::Debug for StepReader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StepReader").field("info", &self.info).finish_non_exhaustive()
    }
}

/// Places for the leaves of a new tree, with their paths.
fn fresh_targets(tree: &mut Tree<FreshLeaf>) -> Vec<(KeyPath, LeafMut<'_>)> {
    let mut targets = Vec::new();
    tree.visit_leaves_mut(&mut |path, leaf| targets.push((path.clone(), LeafMut::fresh(leaf))));
    targets
}
