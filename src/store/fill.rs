//! Chunks → memory: reads each pack once or twice, checks each chunk, and decodes it to its final place,
//! on several threads.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::chunk_map::{ChunkMap, PlacedChunk};
use super::packs::PackReader;
use super::threads::on_threads;
use crate::codec::{self, ChunkError, ChunkId};
use crate::db::ReadTx;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::{LeafRecord, StoredChunk};
use crate::shape::{Region, copy_common};

/// Below this a second thread costs more than it saves.
const BYTES_PER_THREAD: usize = 1 << 20;

/// The most packs that a thread takes at once, where chunks go on from each into the next: the pack
/// between two runs is opened for both of them.
const MAX_RUN_PACKS: usize = 8;

/// The least memory of which parts are filled by several threads at a time.
const SLAB_BYTES: usize = 1 << 20;

/// A leaf and the memory for parts of it.
pub(super) struct Destination<'m> {
    /// The encoded key path.
    pub(super) path: &'m [u8],
    pub(super) record: &'m LeafRecord,
    /// Regions of the array, each with memory that is exactly as long.
    pub(super) places: Vec<(Region, &'m mut [u8])>,
}

/// One chunk and its place.
struct Job<'m> {
    id: ChunkId<'m>,
    chunk: &'m StoredChunk,
    out: Out<'m>,
}

enum Out<'m> {
    /// The memory that has exactly the chunk.
    Whole(&'m mut [u8]),
    /// Several chunks go to the same memory.
    Parts(PlacedChunk, Arc<Vec<Slab<'m>>>),
}

/// Memory for a region. Threads take turns with it.
struct Slab<'m> {
    region: Region,
    memory: Mutex<&'m mut [u8]>,
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

/// The chunks of all destinations, by the pack in which they begin.
fn jobs_by_pack(destinations: Vec<Destination<'_>>) -> Result<BTreeMap<u64, Vec<Job<'_>>>> {
    let mut packs: BTreeMap<u64, Vec<Job<'_>>> = BTreeMap::new();
    for destination in destinations {
        let jobs = match whole_array(destination) {
            Ok((path, record, memory)) => in_order(path, record, memory)?,
            Err(destination) => in_parts(destination),
        };
        for job in jobs {
            packs.entry(job.chunk.pack).or_default().push(job);
        }
    }
    Ok(packs)
}

/// The only place of a destination, if the chunks of the leaf are its contents one after the other.
fn whole_array(
    destination: Destination<'_>,
) -> std::result::Result<(&[u8], &LeafRecord, &mut [u8]), Destination<'_>> {
    let Destination { path, record, mut places } = destination;
    let in_order = record.parts.as_ref().is_none_or(|parts| parts.grid.is_in_order());
    match (places.pop(), places.is_empty()) {
        (Some((region, memory)), true)
            if in_order && region == Region::whole(&record.meta.shape) =>
        {
            Ok((path, record, memory))
        }
        (last, _) => {
            places.extend(last);
            Err(Destination { path, record, places })
        }
    }
}

/// Chunks that are the contents of `memory` one after the other.
fn in_order<'m>(
    path: &'m [u8],
    record: &'m LeafRecord,
    memory: &'m mut [u8],
) -> Result<Vec<Job<'m>>> {
    let (mut jobs, mut rest) = (Vec::with_capacity(record.chunks.len()), memory);
    for (id, chunk) in record.chunks_with_ids(path) {
        let raw_len = usize::try_from(chunk.info.raw_len).unwrap_or(usize::MAX);
        let Some((out, after)) = std::mem::take(&mut rest).split_at_mut_checked(raw_len) else {
            return Err(Error::damaged("the chunks of the leaf are longer than the leaf")
                .at_path(&KeyPath::decode(path)?));
        };
        rest = after;
        jobs.push(Job { id, chunk, out: Out::Whole(out) });
    }
    Ok(jobs)
}

/// The chunks of which any place has a part.
fn in_parts(destination: Destination<'_>) -> Vec<Job<'_>> {
    let Destination { path, record, places } = destination;
    let map = ChunkMap::new(record);
    let mut met: Vec<PlacedChunk> =
        places.iter().flat_map(|(region, _)| map.of_region(region)).collect();
    met.sort_unstable_by_key(|chunk| chunk.number);
    met.dedup_by_key(|chunk| chunk.number);
    let slabs = Arc::new(places.into_iter().flat_map(slabs).collect::<Vec<_>>());
    let job = |placed: PlacedChunk| {
        let chunk = record.chunks.get(placed.number)?;
        let id = ChunkId::new(path, placed.part, placed.index, record.meta.dtype);
        Some(Job { id, chunk, out: Out::Parts(placed, Arc::clone(&slabs)) })
    };
    met.into_iter().filter_map(job).collect()
}

/// Cuts a place along its first axis.
fn slabs((region, memory): (Region, &mut [u8])) -> Vec<Slab<'_>> {
    let rows = region.ranges().first().map_or(1, ExactSizeIterator::len).max(1);
    let slab_rows = rows.div_ceil((memory.len() / SLAB_BYTES).max(1));
    let row_bytes = memory.len() / rows;
    let (mut slabs, mut rest, mut row) = (Vec::new(), memory, 0);
    while row < rows {
        let taken = slab_rows.min(rows - row);
        let (memory, after) = std::mem::take(&mut rest).split_at_mut(taken * row_bytes);
        slabs.push(Slab { region: region.rows(row..row + taken), memory: Mutex::new(memory) });
        (rest, row) = (after, row + taken);
    }
    slabs
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
        Out::Parts(placed, slabs) => {
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
