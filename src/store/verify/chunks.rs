//! The chunks of one step: what is in them, and where they are.

use super::{Check, Go};
use crate::codec::{self, ChunkId};
use crate::db::Pack;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::{LeafRecord, StoredChunk};
use crate::store::fill::{chunk_error, stored_bytes};

/// Memory and the last pack, kept from leaf to leaf.
#[derive(Default)]
pub(super) struct ChunkReader {
    pack: Option<(u64, Pack)>,
    raw: Vec<u8>,
}

impl Check<'_> {
    /// Checks every chunk of a leaf, on to the next one after a fault.
    pub(super) fn chunks(
        &mut self,
        reader: &mut ChunkReader,
        step: u64,
        path: &[u8],
        record: &LeafRecord,
    ) -> Go {
        for (index, chunk) in (0u32..).zip(&record.chunks) {
            self.report.chunks += 1;
            self.report.stored_bytes += u64::from(chunk.info.stored_len);
            let place = |error| place(error, step, path, index);
            if reader.pack.as_ref().is_none_or(|(number, _)| *number != chunk.pack) {
                reader.pack = None;
                match self.read(self.tx.pack(chunk.pack).map_err(place))? {
                    Some(Some(pack)) => reader.pack = Some((chunk.pack, pack)),
                    Some(None) => {
                        self.missing_packs.insert(chunk.pack);
                        let missing = format!("pack {} is missing", chunk.pack);
                        self.fault(place(Error::damaged(missing)))?;
                    }
                    None => {}
                }
            }
            let id = ChunkId { path, shard: 0, index, dtype: record.meta.dtype };
            if let Some((_, pack)) = &reader.pack
                && let Err(fault) = contents(pack, id, chunk, &mut reader.raw)
            {
                self.fault(place(fault))?;
            }
        }
        Ok(())
    }

    /// Finds chunks that share bytes.
    pub(super) fn overlaps(&mut self, step: u64, leaves: &[(Vec<u8>, LeafRecord)]) -> Go {
        let mut chunks: Vec<_> = leaves.iter().flat_map(places).collect();
        chunks.sort_unstable_by_key(|chunk| (chunk.pack, chunk.start));
        let mut before: Option<Placed<'_>> = None;
        for chunk in chunks {
            if let Some(before) = before.filter(|before| before.reaches_into(&chunk)) {
                let fault = Error::damaged(format!(
                    "the chunk is at {} to {} of pack {}, where chunk {} of {} is too",
                    chunk.start,
                    chunk.end,
                    chunk.pack,
                    before.index,
                    KeyPath::decode(before.path).unwrap_or_default(),
                ));
                self.fault(place(fault, step, chunk.path, chunk.index))?;
            }
            // Of two that overlap the longer one may reach into the next.
            before = before.filter(|before| before.hides_end_of(&chunk)).or(Some(chunk));
        }
        Ok(())
    }
}

/// Where a chunk is in its pack.
#[derive(Clone, Copy)]
struct Placed<'l> {
    pack: u64,
    start: u64,
    end: u64,
    path: &'l [u8],
    index: u32,
}

impl Placed<'_> {
    fn reaches_into(&self, next: &Self) -> bool {
        self.pack == next.pack && self.end > next.start
    }

    fn hides_end_of(&self, next: &Self) -> bool {
        self.pack == next.pack && self.end >= next.end
    }
}

fn places((path, record): &(Vec<u8>, LeafRecord)) -> impl Iterator<Item = Placed<'_>> {
    (0u32..).zip(&record.chunks).map(move |(index, chunk)| {
        let start = u64::from(chunk.offset);
        let end = start + u64::from(chunk.info.stored_len);
        Placed { pack: chunk.pack, start, end, path, index }
    })
}

/// Checks that what a chunk decodes to is what was saved.
fn contents(pack: &Pack, id: ChunkId<'_>, chunk: &StoredChunk, raw: &mut Vec<u8>) -> Result<()> {
    let stored = stored_bytes(pack, chunk)?;
    raw.resize(usize::try_from(chunk.info.raw_len).unwrap_or(usize::MAX), 0);
    codec::decode(id, &chunk.info, stored, raw).map_err(|error| chunk_error(error, id))?;
    if codec::content_hash(raw) != chunk.info.hash {
        return Err(Error::damaged("the contents don't have the recorded hash"));
    }
    Ok(())
}

/// `error` with the chunk that it is of.
fn place(error: Error, step: u64, path: &[u8], index: u32) -> Error {
    let error = error.at_step(step).at_chunk(usize::try_from(index).unwrap_or(usize::MAX));
    match KeyPath::decode(path) {
        Ok(path) => error.at_path(&path),
        Err(_) => error,
    }
}
