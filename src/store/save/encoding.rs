//! Encoding a batch of chunks on several threads, beside the thread that writes.

use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;

use parking_lot::Mutex;

use super::chunk::{Chunk, EncodedChunk, Encoder};
use super::reuse::StoredReader;
use crate::error::Result;
use crate::turn::Turns;

/// Below this a second thread costs more than it saves.
const MIN_THREAD_BYTES: usize = 128 << 10;

/// What a thread takes at once.
const RUN_BYTES: usize = 256 << 10;

/// The encoded chunks in their order; or the panic of a source.
pub(super) type Encoded<'s> = thread::Result<Result<Vec<EncodedChunk<'s>>>>;

/// Runs `write`, and encodes `batch` meanwhile; this thread encodes too when it has written.
pub(super) fn encode_beside<'s, R>(
    encoder: Encoder<'_>,
    batch: Vec<Chunk<'s>>,
    threads: NonZeroUsize,
    write: impl FnOnce() -> R,
) -> (R, Encoded<'s>) {
    let bytes: usize = batch.iter().map(|chunk| chunk.raw.len()).sum();
    let others = match bytes {
        ..MIN_THREAD_BYTES => 0,
        // One at least, since this thread writes first. Each takes at least one chunk.
        _ => threads.get().saturating_sub(1).max(1).min(batch.len()).min(bytes.div_ceil(RUN_BYTES)),
    };
    let queue = Mutex::new(Queue { next_run: 0, chunks: batch.into_iter() });
    let work = || encode_runs(encoder, &queue);
    // What a source does in another thread it does within this save.
    let turns = Turns::of_this_thread();
    let help = || {
        turns.clone().work_for();
        work()
    };
    let (written, results) = thread::scope(|scope| {
        // Where there are no threads to be had, this one does the work.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, help).ok();
        let helpers: Vec<_> = (0..others).map_while(spawn).collect();
        let written = write();
        let own = catch_unwind(AssertUnwindSafe(work));
        let results = helpers.into_iter().map(thread::ScopedJoinHandle::join).chain([own]);
        (written, results.collect::<Vec<_>>())
    });
    (written, in_order(results))
}

struct Queue<'s> {
    next_run: usize,
    chunks: std::vec::IntoIter<Chunk<'s>>,
}

/// Some chunks in a row, with the number of the row.
type Run<T> = (usize, Vec<T>);

impl<'s> Queue<'s> {
    fn take(&mut self) -> Option<Run<Chunk<'s>>> {
        let (mut run, mut bytes) = (Vec::new(), 0);
        while bytes < RUN_BYTES
            && let Some(chunk) = self.chunks.next()
        {
            bytes += chunk.raw.len();
            run.push(chunk);
        }
        self.next_run += 1;
        (!run.is_empty()).then_some((self.next_run, run))
    }
}

fn encode_runs<'s>(
    encoder: Encoder<'_>,
    queue: &Mutex<Queue<'s>>,
) -> Result<Vec<Run<EncodedChunk<'s>>>> {
    let mut reader = StoredReader::default();
    let mut runs = Vec::new();
    loop {
        // Apart, so that the lock is not held for longer.
        let next = queue.lock().take();
        let Some((number, run)) = next else { return Ok(runs) };
        let ready = run.into_iter().map(|chunk| encoder.encode(chunk, &mut reader));
        runs.push((number, ready.collect::<Result<_>>()?));
    }
}

/// What a thread has encoded.
type Runs<'s> = thread::Result<Result<Vec<Run<EncodedChunk<'s>>>>>;

fn in_order(results: Vec<Runs<'_>>) -> Encoded<'_> {
    let mut runs = Vec::new();
    for result in results {
        match result? {
            Ok(some) => runs.extend(some),
            Err(error) => return Ok(Err(error)),
        }
    }
    runs.sort_by_key(|(number, _)| *number);
    Ok(Ok(runs.into_iter().flat_map(|(_, run)| run).collect()))
}
