//! Where stored bytes are in packs.

use std::iter;

use crate::limits::{CHUNK_ALIGN_BYTES, MAX_PACK_BYTES};

/// Where the stored bytes of a chunk are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Extent {
    /// The pack in which they begin.
    pub(crate) pack: u64,
    /// Where in it they begin.
    pub(crate) offset: u32,
    /// How many they are.
    pub(crate) length: u32,
}

/// Consecutive bytes of one pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) pack: u64,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Piece {
    /// How many bytes of the pack it takes, up to where the next one can begin.
    pub(crate) fn aligned_bytes(self) -> usize {
        self.end.saturating_sub(self.start).next_multiple_of(CHUNK_ALIGN_BYTES)
    }
}

impl Extent {
    /// The bytes up to the end of the largest pack; those beyond it, if there are any, go on at the
    /// beginning of the pack with the next number.
    pub(crate) fn pieces(self) -> (Piece, Option<Piece>) {
        let [start, length] =
            [self.offset, self.length].map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        let end = start.saturating_add(length);
        let first = Piece { pack: self.pack, start, end: end.min(MAX_PACK_BYTES) };
        let rest = (end > MAX_PACK_BYTES).then(|| Piece {
            // A record says so only of a pack that has a next one.
            pack: self.pack.saturating_add(1),
            start: 0,
            end: end - MAX_PACK_BYTES,
        });
        (first, rest)
    }

    /// The packs that the bytes are in: one, or two with consecutive numbers.
    pub(crate) fn packs(self) -> impl Iterator<Item = u64> {
        let (first, rest) = self.pieces();
        iter::once(first).chain(rest).map(|piece| piece.pack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pack_has_no_room_for_goes_on_in_the_next() {
        let end = u32::try_from(MAX_PACK_BYTES).unwrap();
        let extent = Extent { pack: 7, offset: end - 16, length: 16 };
        let piece = |pack, start, end| Piece { pack, start, end };
        let head = piece(7, MAX_PACK_BYTES - 16, MAX_PACK_BYTES);
        assert_eq!(extent.pieces(), (head, None));
        let longer = Extent { length: 21, ..extent };
        assert_eq!(longer.pieces(), (head, Some(piece(8, 0, 5))));
        assert!(extent.packs().eq([7]) && longer.packs().eq([7, 8]));
    }
}
