//! Chunks → memory: reads each pack once or twice, checks each chunk, and decodes it to its final place,
//! on several threads.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;

use super::packs::PackReader;
use crate::codec::{self, ChunkError, ChunkId};
use crate::db::ReadTx;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::{LeafRecord, StoredChunk};

/// Below this a second thread costs more than it saves.
const BYTES_PER_THREAD: usize = 1 << 20;

/// The most packs that a thread takes at once, where chunks go on from each into the next: the pack
/// between two runs is opened for both of them.
const MAX_RUN_PACKS: usize = 8;

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
    // Short runs, too, where there are few packs, so that all threads have some.
    let run_packs = (packs.len() / (2 * threads.max(1))).clamp(1, MAX_RUN_PACKS);
    let (queue, failed) = (Mutex::new(packs.into_values()), AtomicBool::new(false));
    let work = || -> Result<()> {
        while !failed.load(Ordering::Relaxed) {
            // Apart, so that the lock is not held for longer.
            let run = next_run(&mut *queue.lock(), run_packs);
            if run.is_empty() {
                break;
            }
            // The packs of a run are let go before the next one, so that the same memory, which is
            // in the cache, serves them all.
            let mut reader = PackReader::default();
            let mut jobs = run.into_iter().flatten();
            jobs.try_for_each(|job| read_chunk(tx, job, &mut reader))
                .map_err(|error| error.at_step(step))
                .inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    if threads <= 1 {
        return work();
    }
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

/// The chunks of the next pack, and of those after it that chunks of the one before go on in: of at
/// most so many packs.
fn next_run<'m>(packs: &mut dyn Iterator<Item = Vec<Job<'m>>>, most: usize) -> Vec<Vec<Job<'m>>> {
    let mut run: Vec<Vec<Job<'m>>> = Vec::new();
    let goes_on =
        |jobs: &Vec<Job<'_>>| jobs.iter().any(|job| job.chunk.extent().pieces().1.is_some());
    while run.is_empty() || (run.len() < most && run.last().is_some_and(goes_on)) {
        let Some(jobs) = packs.next() else { break };
        run.push(jobs);
    }
    run
}

fn read_chunk(tx: &ReadTx, job: Job<'_>, reader: &mut PackReader) -> Result<()> {
    let Job { id, chunk, out } = job;
    let stored = reader.read(tx, chunk.extent()).map_err(|error| locate(error, id))?;
    codec::decode(id, &chunk.info, stored, out).map_err(|error| chunk_error(error, id))
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
