//! Extent → stored bytes: what is stored of a chunk, out of the packs that it is in.

use crate::db::{Pack, ReadTx};
use crate::error::{Error, Result};
use crate::record::{Extent, Piece};

/// Opens a pack that a chunk says it is in.
pub(super) fn open_pack(tx: &ReadTx, number: u64) -> Result<Pack> {
    tx.pack(number)?.ok_or_else(|| missing(number))
}

fn missing(number: u64) -> Error {
    Error::damaged(format!("pack {number} is missing"))
}

/// The bytes of a piece, out of the pack that it is in.
pub(super) fn piece_of(pack: &Pack, piece: Piece) -> Result<&[u8]> {
    let Piece { pack: number, start, end } = piece;
    let bytes = pack.bytes();
    bytes.get(start..end).ok_or_else(|| {
        Error::damaged(format!(
            "pack {number} has {} bytes, the chunk should be {} bytes at {start}",
            bytes.len(),
            end.saturating_sub(start),
        ))
    })
}

/// Reads stored bytes, and keeps the two packs that it opened last: the chunks of a leaf mostly follow
/// each other, and one that goes on in the next pack needs both.
#[derive(Default)]
pub(super) struct PackReader {
    last: Option<(u64, Pack)>,
    before: Option<(u64, Pack)>,
    /// Stored bytes out of two packs.
    joined: Vec<u8>,
}

impl PackReader {
    /// Opens a pack, if it is not open; `None` if it is not there.
    pub(super) fn open(&mut self, tx: &ReadTx, number: u64) -> Result<Option<&Pack>> {
        let is_it = |open: &Option<(u64, Pack)>| open.as_ref().is_some_and(|open| open.0 == number);
        if !is_it(&self.last) {
            std::mem::swap(&mut self.last, &mut self.before);
        }
        if !is_it(&self.last) {
            // The older one is let go before memory is taken for another.
            self.last = None;
            self.last = tx.pack(number)?.map(|pack| (number, pack));
        }
        Ok(self.last.as_ref().map(|(_, pack)| pack))
    }

    /// The stored bytes at `extent`.
    pub(super) fn read(&mut self, tx: &ReadTx, extent: Extent) -> Result<&[u8]> {
        let (first, rest) = extent.pieces();
        let Some(rest) = rest else {
            let pack = self.open(tx, first.pack)?.ok_or_else(|| missing(first.pack))?;
            return piece_of(pack, first);
        };
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        for piece in [first, rest] {
            let pack = self.open(tx, piece.pack)?.ok_or_else(|| missing(piece.pack))?;
            joined.extend_from_slice(piece_of(pack, piece)?);
        }
        self.joined = joined;
        Ok(&self.joined)
    }
}
