//! Where the chunks of leaves go: each to memory that is its own, if it can be.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Destination;
use crate::codec::ChunkId;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::{LeafRecord, StoredChunk};
use crate::shape::Region;
use crate::store::chunk_map::{ChunkMap, PlacedChunk};

/// Runs that are shorter on average take more memory and time to tell apart than they are worth.
const MIN_RUN_BYTES: usize = 2 << 10;

/// The least memory of which parts are filled by several threads at a time.
const SLAB_BYTES: usize = 1 << 20;

/// One chunk and its place.
pub(super) struct Job<'m> {
    pub(super) id: ChunkId<'m>,
    pub(super) chunk: &'m StoredChunk,
    pub(super) out: Out<'m>,
}

pub(super) enum Out<'m> {
    /// The memory that has exactly the chunk.
    Whole(&'m mut [u8]),
    Pieces(Pieces<'m>),
    /// Several chunks go to the same memory.
    Slabs(PlacedChunk, Arc<Vec<Slab<'m>>>),
}

/// Memory for runs of a chunk, with where in it each begins.
type Pieces<'m> = Vec<(usize, &'m mut [u8])>;

/// Memory for a region. Threads take turns with it.
pub(super) struct Slab<'m> {
    pub(super) region: Region,
    pub(super) memory: Mutex<&'m mut [u8]>,
}

/// The chunks of all destinations, by the pack in which they begin.
pub(super) fn jobs_by_pack(
    destinations: Vec<Destination<'_>>,
) -> Result<BTreeMap<u64, Vec<Job<'_>>>> {
    let mut packs: BTreeMap<u64, Vec<Job<'_>>> = BTreeMap::new();
    for destination in destinations {
        let path = destination.path;
        let jobs = match whole_array(destination) {
            Ok((record, memory)) => in_order(path, record, memory),
            Err(destination) => in_parts(destination),
        };
        let at_leaf = |error: Error| match KeyPath::decode(path) {
            Ok(path) => error.at_path(&path),
            Err(_) => error,
        };
        for job in jobs.map_err(at_leaf)? {
            packs.entry(job.chunk.pack).or_default().push(job);
        }
    }
    Ok(packs)
}

/// The only place of a destination, if the chunks of the leaf are its contents one after the other.
fn whole_array(
    destination: Destination<'_>,
) -> std::result::Result<(&LeafRecord, &mut [u8]), Destination<'_>> {
    let Destination { path, record, mut places } = destination;
    let in_order = record.parts.as_ref().is_none_or(|parts| parts.grid.is_in_order());
    match (places.pop(), places.is_empty()) {
        (Some((region, memory)), true)
            if in_order && region == Region::whole(&record.meta.shape) =>
        {
            Ok((record, memory))
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
            return Err(Error::damaged("the chunks of the leaf are longer than the leaf"));
        };
        rest = after;
        jobs.push(Job { id, chunk, out: Out::Whole(out) });
    }
    Ok(jobs)
}

/// The chunks of which any place has a part.
fn in_parts<'m>(destination: Destination<'m>) -> Result<Vec<Job<'m>>> {
    let Destination { path, record, places } = destination;
    let map = ChunkMap::new(record);
    let met: Vec<Vec<PlacedChunk>> =
        places.iter().map(|(region, _)| map.of_region(region).collect()).collect();
    let bytes: usize = places.iter().map(|(_, memory)| memory.len()).sum();
    let runs = places.iter().zip(&met).flat_map(|((region, _), chunks)| {
        chunks.iter().flat_map(move |chunk| chunk.runs(region)).map(|(_, runs)| runs.len())
    });
    // A place has one run at least, however small it is.
    let outs = if runs.sum::<usize>() <= bytes / MIN_RUN_BYTES + met.len() {
        in_pieces(places, met)?
    } else {
        in_slabs(places, met)
    };
    let job = |(placed, out): (PlacedChunk, Out<'m>)| {
        let chunk = record.chunks.get(placed.number)?;
        let id = ChunkId::new(path, placed.part, placed.index, record.meta.dtype);
        Some(Job { id, chunk, out })
    };
    Ok(outs.into_iter().filter_map(job).collect())
}

/// Gives each chunk the memory of its runs, so that threads wait for nothing.
fn in_pieces<'m>(
    places: Vec<(Region, &'m mut [u8])>,
    met: Vec<Vec<PlacedChunk>>,
) -> Result<Vec<(PlacedChunk, Out<'m>)>> {
    let mut chunks: BTreeMap<usize, (PlacedChunk, Pieces<'m>)> = BTreeMap::new();
    for ((region, memory), met) in places.into_iter().zip(met) {
        // Where each run goes, of which chunk it is, where in that it begins, and its length.
        let mut runs: Vec<(usize, usize, usize, usize)> = Vec::new();
        for chunk in met {
            for (start, common) in chunk.runs(&region) {
                let length = common.run_bytes();
                runs.extend(common.map(|(from, to)| (to, chunk.number, start + from, length)));
            }
            chunks.entry(chunk.number).or_insert_with(|| (chunk, Vec::new()));
        }
        runs.sort_unstable();
        let (mut rest, mut at) = (memory, 0);
        for (to, number, from, length) in runs {
            let taken = std::mem::take(&mut rest).split_at_mut_checked(length);
            let Some((piece, after)) = taken.filter(|_| to == at) else {
                return Err(not_covered());
            };
            (rest, at) = (after, at + length);
            if let Some((_, pieces)) = chunks.get_mut(&number) {
                pieces.push((from, piece));
            }
        }
        if !rest.is_empty() {
            return Err(not_covered());
        }
    }
    let out = |(chunk, mut pieces): (PlacedChunk, Pieces<'m>)| {
        let is_whole = matches!(&pieces[..], [(0, piece)] if piece.len() == chunk.size_bytes());
        if is_whole && let Some((_, memory)) = pieces.pop() {
            return (chunk, Out::Whole(memory));
        }
        (chunk, Out::Pieces(pieces))
    };
    Ok(chunks.into_values().map(out).collect())
}

fn not_covered() -> Error {
    Error::damaged("the chunks of the leaf do not have all of it")
}

/// Lets the chunks share the memory, where their runs are too short to be told apart.
fn in_slabs(
    places: Vec<(Region, &mut [u8])>,
    met: Vec<Vec<PlacedChunk>>,
) -> Vec<(PlacedChunk, Out<'_>)> {
    let mut met: Vec<PlacedChunk> = met.into_iter().flatten().collect();
    met.sort_unstable_by_key(|chunk| chunk.number);
    met.dedup_by_key(|chunk| chunk.number);
    let slabs = Arc::new(places.into_iter().flat_map(slabs).collect::<Vec<_>>());
    let out = |placed: PlacedChunk| (placed.clone(), Out::Slabs(placed, Arc::clone(&slabs)));
    met.into_iter().map(out).collect()
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
