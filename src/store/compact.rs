//! Giving space back: what is left of mostly dead packs moves together, and the file gets shorter.

use std::collections::{BTreeSet, HashMap};

use super::packs::{PackReader, open_pack};
use super::records::leaf_records;
use super::save::{PackStream, PackWriter, SharedPack, SharedPacks};
use super::usage::Usage;
use super::{CheckpointStore, Sweep, step_record};
use crate::db::{ReadTx, WriteTx};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_PACK_BYTES, MIN_OWN_PACK_BYTES};
use crate::record::{Extent, PackRange, StepRecord};

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
    /// Makes the file smaller: what is left of packs of which steps use less than half moves into new
    /// ones, until there are no such packs, and the free pages of the file go back to the file system.
    /// No step changes.
    ///
    /// A file that a running trainer writes to keeps room for its next step; compacting it makes that
    /// save slower, since the room has to be made anew. It is for a file that is put away, or that
    /// keeps less than it did. All of the file may be read and written. A crash in the middle
    /// loses nothing; the next open may then have to walk the whole file.
    ///
    /// # Errors
    /// `Locked` if a step is being read, by a [`StepReader`](crate::StepReader) here or in another
    /// process: packs may have moved together all the same, and nothing else was done. `ReadOnly`;
    /// `Damaged` if a step or leaf record is, or a pack is missing: `verify` finds it, and what it
    /// damages can be deleted; `Unsupported` for a [rank](Self::open_as_rank); `OutOfSpace` or `Io`. After these every step is still there.
    pub fn compact(&self) -> Result<CompactReport> {
        let compact = || {
            if let Some(rank) = self.rank() {
                let message = format!("{rank} can't compact a file that others may write to");
                return Err(Error::new(ErrorKind::Unsupported, message)
                    .advise("open it without a rank when no rank has it open"));
            }
            let mut writer = self.lock_writer()?;
            // Chunks get other places.
            writer.last = None;
            let before_bytes = self.database.allocated_bytes()?;
            if writer.sweep == Sweep::Due {
                self.sweep(self.database.read()?.pack_mark()?, None)?;
            }
            // Until the last commit succeeds, new packs may be left in the file.
            writer.sweep = Sweep::Due;
            let (mut repacked_packs, mut moved_bytes) = (0, 0);
            // A chunk that moves out of two packs may leave little in the second one. It ends, since
            // no new pack is mostly dead.
            loop {
                let (packs, bytes) = self.repack()?;
                if packs == 0 {
                    break;
                }
                repacked_packs += packs;
                moved_bytes += bytes;
            }
            writer.sweep = Sweep::Done;
            self.database.compact()?;
            let after_bytes = self.database.allocated_bytes()?;
            Ok(CompactReport { before_bytes, after_bytes, repacked_packs, moved_bytes })
        };
        compact().map_err(|error: Error| error.in_file(self.path()))
    }

    /// Moves what is left of mostly dead packs; how many there were, and how much moved.
    fn repack(&self) -> Result<(u64, u64)> {
        let read = self.database.read_payload()?;
        let mark = read.pack_mark()?;
        let (chunks, packs) = sparse_packs(&read)?;
        if packs == 0 {
            return Ok((0, 0));
        }
        let mut mover = Mover::new(self.database.write()?, mark, &chunks);
        let mut reader = PackReader::default();
        for chunk in chunks {
            mover.add(&read, &mut reader, chunk)?;
        }
        drop(reader);
        mover.write_rest()?;
        let Mover { writer, moved, moved_bytes, .. } = mover;
        let (mut tx, last) = writer.finish();
        tx.commit_wave()?;
        for step in read.steps()? {
            move_step(&tx, &read, step, &moved)?;
        }
        tx.set_pack_mark(last.unwrap_or(mark))?;
        tx.commit()?;
        Ok((packs, moved_bytes))
    }
}

/// The chunks that are in packs of which less than half is in use, and the number of these packs.
fn sparse_packs(read: &ReadTx) -> Result<(BTreeSet<Extent>, u64)> {
    let (mut chunks, mut packs) = (BTreeSet::new(), 0);
    for (pack, used) in Usage::count(read)?.by_pack() {
        // The largest pack is not sparse if half of it is used, so it need not be looked at.
        if used.bytes * 2 < MAX_PACK_BYTES && used.bytes * 2 < open_pack(read, pack)?.bytes().len()
        {
            chunks.extend(used.chunks);
            packs += 1;
        }
    }
    Ok((chunks, packs))
}

/// Moves chunks into new packs.
struct Mover<'d> {
    writer: PackWriter<'d>,
    /// For chunks of small packs.
    small: SharedPacks<Extent>,
    /// For chunks of large packs, which are of compressed leaves.
    large: PackStream<Extent>,
    /// Where each chunk is now: pack and offset.
    moved: HashMap<Extent, (u64, u32)>,
    moved_bytes: u64,
}

impl<'d> Mover<'d> {
    /// Moves `chunks` into packs above `mark`.
    fn new(tx: WriteTx<'d>, mark: u64, chunks: &BTreeSet<Extent>) -> Self {
        let align = u64::try_from(CHUNK_ALIGN_BYTES).unwrap_or(u64::MAX);
        let bytes = chunks.iter().map(|chunk| u64::from(chunk.length).next_multiple_of(align));
        let most_packs = PackStream::<Extent>::most_packs(bytes.sum());
        Self {
            writer: PackWriter::new(tx, mark + 1 + most_packs),
            small: SharedPacks::new(MIN_OWN_PACK_BYTES),
            large: PackStream::new(mark + 1),
            moved: HashMap::new(),
            moved_bytes: 0,
        }
    }

    /// Moves a chunk. It is copied as it is: a damaged one stays damaged.
    fn add(&mut self, read: &ReadTx, reader: &mut PackReader, chunk: Extent) -> Result<()> {
        let pack = reader.open(read, chunk.pack)?;
        let is_large = pack.is_some_and(|pack| pack.bytes().len() > MIN_OWN_PACK_BYTES);
        let stored = reader.read(read, chunk)?;
        if is_large {
            if let Some((number, full)) = self.large.push(chunk, stored) {
                self.write(number, full)?;
            }
        } else if let Some(full) = self.small.push(chunk, stored) {
            self.write_next(full)?;
        }
        self.moved_bytes += u64::from(chunk.length);
        Ok(())
    }

    fn write(&mut self, number: u64, pack: SharedPack<Extent>) -> Result<()> {
        self.writer.write(number, pack.bytes())?;
        self.remember(number, pack);
        Ok(())
    }

    fn write_next(&mut self, pack: SharedPack<Extent>) -> Result<()> {
        let number = self.writer.write_next(pack.bytes())?;
        self.remember(number, pack);
        Ok(())
    }

    fn remember(&mut self, number: u64, pack: SharedPack<Extent>) {
        self.moved.extend(pack.into_members().map(|(chunk, offset)| (chunk, (number, offset))));
    }

    /// Writes what is still collected.
    fn write_rest(&mut self) -> Result<()> {
        let (next, rest) = self.large.finish();
        if let Some((number, pack)) = next {
            self.write(number, pack)?;
        }
        rest.into_iter().chain(self.small.finish()).try_for_each(|pack| self.write_next(pack))
    }
}

/// Lets the records of a step say where its chunks are now.
fn move_step(
    tx: &WriteTx<'_>,
    read: &ReadTx,
    step: u64,
    moved: &HashMap<Extent, (u64, u32)>,
) -> Result<()> {
    let (mut rows, mut packs) = (Vec::new(), BTreeSet::new());
    for (path, mut record) in leaf_records(read, step)? {
        let mut changed = false;
        for chunk in &mut record.chunks {
            if let Some((pack, offset)) = moved.get(&chunk.extent()) {
                (chunk.pack, chunk.offset) = (*pack, *offset);
                changed = true;
            }
            packs.extend(chunk.extent().packs());
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
