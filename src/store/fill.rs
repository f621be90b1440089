//! Chunks → memory: reads each pack once, checks each chunk, and decodes it to its final place,
//! on several threads.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;

use crate::codec::{self, ChunkError, ChunkId};
use crate::db::{Pack, ReadTx};
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::{LeafRecord, StoredChunk};

/// Below this a second thread costs more than it saves.
const BYTES_PER_THREAD: usize = 1 << 20;

/// A leaf and the memory for its contents, which is exactly as long.
pub(super) struct Destination<'m> {
    /// The encoded key path.
    pub(super) path: &'m [u8],
    pub(super) record: &'m LeafRecord,
    pub(super) memory: &'m mut [u8],
}

/// One chunk and its place.
struct Job<'m> {
    id: ChunkId<'m>,
    chunk: &'m StoredChunk,
    out: &'m mut [u8],
}

/// Fills `destinations` with leaves of `step`. After an error their contents are undefined.
pub(super) fn fill(
    tx: &ReadTx,
    step: u64,
    destinations: Vec<Destination<'_>>,
    threads: NonZeroUsize,
) -> Result<()> {
    let total_bytes: usize = destinations.iter().map(|leaf| leaf.memory.len()).sum();
    let packs = jobs_by_pack(destinations).map_err(|error| error.at_step(step))?;
    let threads = threads.get().min(total_bytes / BYTES_PER_THREAD).min(packs.len());
    let read = |(pack, jobs)| read_pack(tx, pack, jobs).map_err(|error| error.at_step(step));
    if threads <= 1 {
        return packs.into_iter().try_for_each(read);
    }
    let (queue, failed) = (Mutex::new(packs.into_iter()), AtomicBool::new(false));
    let work = || -> Result<()> {
        while !failed.load(Ordering::Relaxed) {
            let Some(next) = queue.lock().next() else {
                break;
            };
            read(next).inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        // Where there are no threads to be had, this one does the work.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
        let helpers: Vec<_> = (1..threads).map_while(spawn).collect();
        let mut result = work();
        for helper in helpers {
            // A panic in a helper is our own bug: it goes on here.
            let other = helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(other);
        }
        result
    })
}

/// The chunks of all destinations, by the pack that holds them.
fn jobs_by_pack(destinations: Vec<Destination<'_>>) -> Result<BTreeMap<u64, Vec<Job<'_>>>> {
    let mut packs: BTreeMap<u64, Vec<Job<'_>>> = BTreeMap::new();
    for Destination { path, record, memory } in destinations {
        let mut rest = memory;
        for (index, chunk) in (0u32..).zip(&record.chunks) {
            let raw_len = usize::try_from(chunk.info.raw_len).unwrap_or(usize::MAX);
            let Some((out, after)) = std::mem::take(&mut rest).split_at_mut_checked(raw_len) else {
                return Err(Error::damaged("the chunks of the leaf are longer than the leaf")
                    .at_path(&KeyPath::decode(path)?));
            };
            rest = after;
            let id = ChunkId { path, shard: 0, index, dtype: record.meta.dtype };
            packs.entry(chunk.pack).or_default().push(Job { id, chunk, out });
        }
    }
    Ok(packs)
}

fn read_pack(tx: &ReadTx, number: u64, jobs: Vec<Job<'_>>) -> Result<()> {
    let Some(first) = jobs.first() else {
        return Ok(());
    };
    let pack = open_pack(tx, number).map_err(|error| locate(error, first.id))?;
    for Job { id, chunk, out } in jobs {
        let stored = stored_bytes(&pack, chunk).map_err(|error| locate(error, id))?;
        codec::decode(id, &chunk.info, stored, out).map_err(|error| chunk_error(error, id))?;
    }
    Ok(())
}

/// Opens a pack that a chunk says it is in.
pub(super) fn open_pack(tx: &ReadTx, number: u64) -> Result<Pack> {
    tx.pack(number)?.ok_or_else(|| Error::damaged(format!("pack {number} is missing")))
}

/// The stored bytes of a chunk in its pack.
pub(super) fn stored_bytes<'p>(pack: &'p Pack, chunk: &StoredChunk) -> Result<&'p [u8]> {
    let start = usize::try_from(chunk.offset).unwrap_or(usize::MAX);
    let length = usize::try_from(chunk.info.stored_len).unwrap_or(usize::MAX);
    let bytes = pack.bytes();
    bytes.get(start..start.saturating_add(length)).ok_or_else(|| {
        Error::damaged(format!(
            "pack {} has {} bytes, the chunk should be {length} bytes at {start}",
            chunk.pack,
            bytes.len()
        ))
    })
}

/// A fault of a chunk as an error that says where and what to do.
pub(super) fn chunk_error(error: ChunkError, id: ChunkId<'_>) -> Error {
    locate(Error::damaged(error.to_string()).with_source(error), id)
}

/// An error of the chunk `id`, with where it is and what to do.
pub(super) fn locate(error: Error, id: ChunkId<'_>) -> Error {
    let index = usize::try_from(id.index).unwrap_or(usize::MAX);
    let error = match KeyPath::decode(id.path) {
        Ok(path) => error.at_path(&path).at_chunk(index),
        Err(_) => error.at_chunk(index),
    };
    error.advise("restore another step, or the other leaves of this one")
}
