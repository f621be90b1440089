//! Chunks → memory: reads each pack once or twice, checks each chunk, and decodes it to its final place,
//! on several threads.

mod places;

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::packs::PackReader;
use super::threads::on_threads;
use crate::codec::{self, ChunkError, ChunkId};
use crate::db::ReadTx;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::LeafRecord;
use crate::shape::{Region, copy_common};
use places::{Job, Out, Slab, jobs_by_pack};

/// Below this a second thread costs more than it saves.
const BYTES_PER_THREAD: usize = 1 << 20;

/// The most packs that a thread takes at once, where chunks go on from each into the next: the pack
/// between two runs is opened for both of them.
const MAX_RUN_PACKS: usize = 8;

/// A leaf and the memory for parts of it.
pub(super) struct Destination<'m> {
    /// The encoded key path.
    pub(super) path: &'m [u8],
    pub(super) record: &'m LeafRecord,
    /// Regions of the array, each with memory that is exactly as long.
    pub(super) places: Vec<(Region, &'m mut [u8])>,
}

/// Fills `destinations` with leaves of `step`. After an error their contents are undefined.
pub(super) fn fill(
    tx: &ReadTx,
    step: u64,
    destinations: Vec<Destination<'_>>,
    threads: NonZeroUsize,
) -> Result<()> {
    let places = destinations.iter().flat_map(|leaf| &leaf.places);
    let total_bytes: usize = places.map(|(_, memory)| memory.len()).sum();
    let packs = jobs_by_pack(destinations).map_err(|error| error.at_step(step))?;
    let threads = threads.get().min(total_bytes / BYTES_PER_THREAD).min(packs.len());
    // Short runs, too, where there are few packs, so that all threads have some.
    let run_packs = (packs.len() / (2 * threads.max(1))).clamp(1, MAX_RUN_PACKS);
    let (queue, failed) = (Mutex::new(packs.into_values()), AtomicBool::new(false));
    let work = || -> Result<()> {
        let mut raw = Vec::new();
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
            jobs.try_for_each(|job| read_chunk(tx, job, &mut reader, &mut raw))
                .map_err(|error| error.at_step(step))
                .inspect_err(|_| failed.store(true, Ordering::Relaxed))?;
        }
        Ok(())
    };
    on_threads(threads, work)
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

fn read_chunk(tx: &ReadTx, job: Job<'_>, reader: &mut PackReader, raw: &mut Vec<u8>) -> Result<()> {
    let Job { id, chunk, out } = job;
    let stored = reader.read(tx, chunk.extent()).map_err(|error| locate(error, id))?;
    match out {
        Out::Whole(out) => {
            codec::decode(id, &chunk.info, stored, out).map_err(|error| chunk_error(error, id))
        }
        Out::Pieces(pieces) => {
            let raw = codec::view(id, &chunk.info, stored, raw)
                .map_err(|error| chunk_error(error, id))?;
            for (start, piece) in pieces {
                let run = raw.get(start..start + piece.len()).ok_or_else(|| {
                    locate(Error::damaged("the chunk is shorter than its part of the leaf"), id)
                })?;
                piece.copy_from_slice(run);
            }
            Ok(())
        }
        Out::Slabs(placed, slabs) => {
            let raw = codec::view(id, &chunk.info, stored, raw)
                .map_err(|error| chunk_error(error, id))?;
            for (part, bytes) in placed.parts(raw) {
                for Slab { region, memory } in slabs.iter().filter(|slab| part.meets(&slab.region))
                {
                    copy_common(
                        id.dtype.size_bytes(),
                        (&part, bytes),
                        (region, &mut memory.lock()),
                    );
                }
            }
            Ok(())
        }
    }
}

/// A fault of a chunk as an error that says where and what to do.
pub(super) fn chunk_error(error: ChunkError, id: ChunkId<'_>) -> Error {
    locate(Error::damaged(error.to_string()).with_source(error), id)
}

/// An error of the chunk `id`, with where it is and what to do.
pub(super) fn locate(error: Error, id: ChunkId<'_>) -> Error {
    at_chunk(error, id).advise("restore another step, or the other leaves of this one")
}

/// An error of the chunk `id`, with where it is.
pub(super) fn at_chunk(error: Error, id: ChunkId<'_>) -> Error {
    let [shard, index] =
        [id.shard, id.index].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
    match KeyPath::decode(id.path) {
        Ok(path) => error.at_path(&path).at_chunk(shard, index),
        Err(_) => error.at_chunk(shard, index),
    }
}
