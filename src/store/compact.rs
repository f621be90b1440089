//! Giving space back: what is left of mostly dead packs moves together, and the file gets shorter.

use std::collections::{BTreeSet, HashMap};

use super::save::{SharedPack, SharedPacks};
use super::usage::{ChunkUse, Place, Usage};
use super::{CheckpointStore, Sweep, leaf_records, step_record};
use crate::db::{ReadTx, WAVE_BYTES, WriteTx};
use crate::error::{Error, Result};
use crate::limits::{MAX_PACK_BYTES, MIN_OWN_PACK_BYTES};
use crate::record::{PackRange, StepRecord};
use crate::store::fill::open_pack;

/// What [`CheckpointStore::compact`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CompactReport {
    /// What the file took on the disk before, in bytes.
    pub before_bytes: u64,
    /// What it takes now.
    pub after_bytes: u64,
    /// Packs of which less than half was in use, and which are gone.
    pub repacked_packs: u64,
    /// The size of the chunks that were in them and moved, in bytes.
    pub moved_bytes: u64,
}

impl CompactReport {
    /// What was given back to the file system.
    pub fn freed_bytes(&self) -> u64 {
        self.before_bytes.saturating_sub(self.after_bytes)
    }
}

impl CheckpointStore {
    /// Makes the file as small as it can be: what is left of packs of which steps use less than half
    /// moves into new ones, and the free pages of the file go back to the file system. No step
    /// changes.
    ///
    /// A file that a running trainer writes to keeps room for its next step; compacting it makes that
    /// save slower, since the room has to be made anew. It is for a file that is put away, or that
    /// keeps less than it did. All of the file may be read and written. A crash in the middle
    /// loses nothing; the next open may then have to walk the whole file.
    ///
    /// # Errors
    /// `Locked` if a step is being read, by a [`StepReader`](crate::StepReader) here or in another
    /// process: packs may have moved together all the same, and nothing else was done. `ReadOnly`;
    /// `Damaged` if a leaf record is; `OutOfSpace` or `Io`.
    pub fn compact(&self) -> Result<CompactReport> {
        let compact = || {
            let writer = self.lock_writer()?;
            // Chunks get other places.
            writer.borrow_mut().last = None;
            let before_bytes = self.database.allocated_bytes()?;
            let mark = self.database.read()?.pack_mark()?;
            if writer.borrow().sweep == Sweep::Due {
                self.sweep(mark)?;
            }
            // Until the last commit succeeds, new packs may be left in the file.
            writer.borrow_mut().sweep = Sweep::Due;
            let (repacked_packs, moved_bytes) = self.repack(mark)?;
            writer.borrow_mut().sweep = Sweep::Done;
            self.database.compact()?;
            let after_bytes = self.database.allocated_bytes()?;
            Ok(CompactReport { before_bytes, after_bytes, repacked_packs, moved_bytes })
        };
        compact().map_err(|error: Error| error.in_file(self.path()))
    }

    /// Moves what is left of mostly dead packs; how many there were, and how much moved.
    fn repack(&self, mark: u64) -> Result<(u64, u64)> {
        let read = self.database.read_payload()?;
        let sparse = sparse_packs(&read)?;
        if sparse.is_empty() {
            return Ok((0, 0));
        }
        let mut mover = Mover::new(self.database.write()?, mark);
        for (pack, chunks) in &sparse {
            mover.add(&read, *pack, chunks)?;
        }
        mover.finish()?;
        let Mover { mut tx, moved, moved_bytes, next_pack, .. } = mover;
        tx.commit_wave()?;
        for step in read.steps()? {
            move_step(&tx, &read, step, &moved)?;
        }
        tx.set_pack_mark(next_pack - 1)?;
        tx.commit()?;
        Ok((u64::try_from(sparse.len()).unwrap_or(u64::MAX), moved_bytes))
    }
}

type PackChunks = (u64, Vec<(Place, ChunkUse)>);

/// The packs of which less than half is in use.
fn sparse_packs(read: &ReadTx) -> Result<Vec<PackChunks>> {
    let mut sparse = Vec::new();
    for (pack, chunks) in Usage::count(read)?.by_pack() {
        let used: usize = chunks.iter().map(|(_, chunk)| bytes(*chunk)).sum();
        // The largest pack is not sparse if half of it is used, so it need not be looked at.
        if used * 2 < MAX_PACK_BYTES && used * 2 < open_pack(read, pack)?.bytes().len() {
            sparse.push((pack, chunks));
        }
    }
    Ok(sparse)
}

fn bytes(chunk: ChunkUse) -> usize {
    usize::try_from(chunk.stored_bytes).unwrap_or(usize::MAX)
}

/// Moves chunks into new packs.
struct Mover<'d> {
    tx: WriteTx<'d>,
    wave_bytes: usize,
    next_pack: u64,
    /// For chunks of small and of large packs, with the places that they had.
    packs: [SharedPacks<Place>; 2],
    moved: HashMap<Place, Place>,
    moved_bytes: u64,
}

impl<'d> Mover<'d> {
    fn new(tx: WriteTx<'d>, mark: u64) -> Self {
        Self {
            tx,
            wave_bytes: 0,
            next_pack: mark + 1,
            packs: [MIN_OWN_PACK_BYTES, MAX_PACK_BYTES].map(SharedPacks::new),
            moved: HashMap::new(),
            moved_bytes: 0,
        }
    }

    /// Moves the chunks of a pack. They are copied as they are: damaged ones stay damaged.
    fn add(&mut self, read: &ReadTx, number: u64, chunks: &[(Place, ChunkUse)]) -> Result<()> {
        let pack = open_pack(read, number)?;
        let size = usize::from(pack.bytes().len() > MIN_OWN_PACK_BYTES);
        for (place, chunk) in chunks {
            let start = usize::try_from(place.1).unwrap_or(usize::MAX);
            let stored = pack.bytes().get(start..start.saturating_add(bytes(*chunk)));
            let stored = stored.ok_or_else(|| {
                Error::damaged(format!("pack {number} ends within the chunk at {start}"))
            })?;
            let packs = self.packs.get_mut(size);
            if let Some(full) = packs.and_then(|packs| packs.push(*place, stored)) {
                self.write(full)?;
            }
            self.moved_bytes += u64::from(chunk.stored_bytes);
        }
        Ok(())
    }

    fn write(&mut self, pack: SharedPack<Place>) -> Result<()> {
        if self.wave_bytes > WAVE_BYTES - MAX_PACK_BYTES {
            self.tx.commit_wave()?;
            self.wave_bytes = 0;
        }
        self.tx.insert_pack(self.next_pack, pack.bytes())?;
        self.wave_bytes += pack.page_bytes();
        for (place, offset) in pack.into_members() {
            self.moved.insert(place, (self.next_pack, offset));
        }
        self.next_pack += 1;
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let rest: Vec<_> = self.packs.iter_mut().flat_map(SharedPacks::finish).collect();
        for pack in rest {
            self.write(pack)?;
        }
        Ok(())
    }
}

/// Lets the records of a step say where its chunks are now.
fn move_step(
    tx: &WriteTx<'_>,
    read: &ReadTx,
    step: u64,
    moved: &HashMap<Place, Place>,
) -> Result<()> {
    let (mut rows, mut packs) = (Vec::new(), BTreeSet::new());
    for (path, mut record) in leaf_records(read, step)? {
        let mut changed = false;
        for chunk in &mut record.chunks {
            if let Some((pack, offset)) = moved.get(&(chunk.pack, chunk.offset)) {
                (chunk.pack, chunk.offset) = (*pack, *offset);
                changed = true;
            }
            packs.insert(chunk.pack);
        }
        if changed {
            rows.push((path.clone(), record.encode(step, &path)?));
        }
    }
    if rows.is_empty() {
        return Ok(());
    }
    let old = step_record(read, step)?;
    let new = StepRecord { packs: PackRange::of(packs), ..old.clone() };
    tx.put_leaf_records(step, &rows)?;
    tx.retain_packs(&new.packs)?;
    tx.release_packs(&old.packs)?;
    tx.put_step(step, &new.encode(step)?)
}
