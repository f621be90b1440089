//! The chunks of one step: what is in them, and where they are.

use std::iter;

use super::{Check, Go};
use crate::codec::{self, ChunkId};
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::{LeafRecord, Piece, StoredChunk};
use crate::store::fill::{at_chunk, chunk_error};
use crate::store::packs::PackReader;

/// Memory and the last packs, kept from leaf to leaf.
#[derive(Default)]
pub(super) struct ChunkReader {
    packs: PackReader,
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
        for (id, chunk) in record.chunks_with_ids(path) {
            self.report.chunks += 1;
            self.report.stored_bytes += u64::from(chunk.info.stored_len);
            let place = |error| place(error, step, id);
            if self.opens(reader, chunk, place)?
                && let Err(fault) = self.contents(reader, id, chunk)
            {
                self.fault(place(fault))?;
            }
        }
        Ok(())
    }

    /// Whether the packs that a chunk is in can be read.
    fn opens(
        &mut self,
        reader: &mut ChunkReader,
        chunk: &StoredChunk,
        place: impl Fn(Error) -> Error,
    ) -> Go<bool> {
        for pack in chunk.extent().packs() {
            let opened = reader.packs.open(self.tx, pack).map(|pack| pack.is_some());
            match self.read(opened.map_err(&place))? {
                Some(true) => {}
                Some(false) => {
                    self.missing_packs.insert(pack);
                    self.fault(place(Error::damaged(format!("pack {pack} is missing"))))?;
                    return Ok(false);
                }
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Checks that what a chunk decodes to is what was saved.
    fn contents(
        &self,
        reader: &mut ChunkReader,
        id: ChunkId<'_>,
        chunk: &StoredChunk,
    ) -> Result<()> {
        let ChunkReader { packs, raw } = reader;
        let stored = packs.read(self.tx, chunk.extent())?;
        raw.resize(usize::try_from(chunk.info.raw_len).unwrap_or(usize::MAX), 0);
        codec::decode(id, &chunk.info, stored, raw).map_err(|error| chunk_error(error, id))?;
        if codec::content_hash(raw) != chunk.info.hash {
            return Err(Error::damaged("the contents don't have the recorded hash"));
        }
        Ok(())
    }

    /// Finds chunks that share bytes.
    pub(super) fn overlaps(&mut self, step: u64, leaves: &[(Vec<u8>, LeafRecord)]) -> Go {
        let mut chunks: Vec<_> = leaves.iter().flat_map(places).collect();
        chunks.sort_unstable_by_key(|chunk| (chunk.piece.pack, chunk.piece.start));
        let mut before: Option<Placed<'_>> = None;
        for chunk in chunks {
            if let Some(before) = before.filter(|before| before.reaches_into(&chunk)) {
                let fault = Error::damaged(format!(
                    "the chunk is at {} to {} of pack {}, where chunk {} of {} is too",
                    chunk.piece.start,
                    chunk.piece.end,
                    chunk.piece.pack,
                    before.id.index,
                    KeyPath::decode(before.id.path).unwrap_or_default(),
                ));
                self.fault(place(fault, step, chunk.id))?;
            }
            // Of two that overlap the longer one may reach into the next.
            before = before.filter(|before| before.hides_end_of(&chunk)).or(Some(chunk));
        }
        Ok(())
    }
}

/// The part of a chunk that is in one pack.
#[derive(Clone, Copy)]
struct Placed<'l> {
    piece: Piece,
    id: ChunkId<'l>,
}

impl Placed<'_> {
    fn reaches_into(&self, next: &Self) -> bool {
        self.piece.pack == next.piece.pack && self.piece.end > next.piece.start
    }

    fn hides_end_of(&self, next: &Self) -> bool {
        self.piece.pack == next.piece.pack && self.piece.end >= next.piece.end
    }
}

fn places((path, record): &(Vec<u8>, LeafRecord)) -> impl Iterator<Item = Placed<'_>> {
    record.chunks_with_ids(path).flat_map(|(id, chunk)| {
        let (first, rest) = chunk.extent().pieces();
        iter::once(first).chain(rest).map(move |piece| Placed { piece, id })
    })
}

/// `error` with the chunk that it is of.
fn place(error: Error, step: u64, id: ChunkId<'_>) -> Error {
    at_chunk(error, id).at_step(step)
}
