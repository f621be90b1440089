//! Leaf → chunks: where a leaf is cut.
//!
//! A leaf is cut by its size and compression alone, whatever stands beside it, so that the same leaf
//! has the same chunks in every step, and those that did not change can be found again.

use std::ops::Range;

use crate::codec::Compression;
use crate::limits::{
    COMPRESSED_CHUNK_BYTES, MAX_PACK_BYTES, MIN_OWN_PACK_BYTES, MIN_PAGE_BYTES,
    PACK_OVERHEAD_BYTES, TAIL_CHUNK_BYTES,
};

/// The chunks of a leaf, as ranges of its bytes.
///
/// A raw leaf is cut into chunks that fill page classes of their own, largest first. What remains is
/// cut into parts of which several share a pack.
pub(super) struct Cuts {
    compression: Compression,
    next: usize,
    end: usize,
}

/// About how many chunks a leaf of `size_bytes` has: at most a few more than this.
pub(super) fn chunk_count(size_bytes: usize, compression: Compression) -> usize {
    match compression {
        Compression::None => size_bytes / MAX_PACK_BYTES,
        _ => size_bytes / COMPRESSED_CHUNK_BYTES,
    }
}

/// How a leaf of `size_bytes` is cut.
pub(super) fn cuts(size_bytes: usize, compression: Compression) -> Cuts {
    Cuts { compression, next: 0, end: size_bytes }
}

impl Iterator for Cuts {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let rest = self.end - self.next;
        if rest == 0 {
            return None;
        }
        let length = match self.compression {
            Compression::None if rest >= MIN_OWN_PACK_BYTES => own_pack_bytes(rest),
            Compression::None => rest.min(TAIL_CHUNK_BYTES),
            _ => rest.min(COMPRESSED_CHUNK_BYTES),
        };
        let start = self.next;
        self.next += length;
        Some(start..self.next)
    }
}

/// The page that a pack of `bytes` takes.
pub(super) fn page_bytes(bytes: usize) -> usize {
    (bytes + PACK_OVERHEAD_BYTES).next_power_of_two().max(MIN_PAGE_BYTES)
}

/// Whether a stored chunk of this length fills a page class, and so is a pack by itself.
pub(super) fn fills_pack(stored_bytes: usize) -> bool {
    stored_bytes >= MIN_OWN_PACK_BYTES && (stored_bytes + PACK_OVERHEAD_BYTES).is_power_of_two()
}

/// The largest pack that fills its page and has at most `rest` bytes, which are at least
/// [`MIN_OWN_PACK_BYTES`].
fn own_pack_bytes(rest: usize) -> usize {
    let page_bytes = 1usize << (rest.min(MAX_PACK_BYTES) + PACK_OVERHEAD_BYTES).ilog2();
    page_bytes - PACK_OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::CHUNK_ALIGN_BYTES;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_chunks_are_the_leaf(
            size in prop_oneof![0usize..100, 0usize..300_000, 0usize..20_000_000],
            lz4: bool,
        ) {
            let compression = if lz4 { Compression::Lz4 } else { Compression::None };
            let mut end = 0;
            for chunk in cuts(size, compression) {
                prop_assert_eq!(chunk.start, end);
                // Elements of every type lie whole in a chunk.
                prop_assert!(chunk.start.is_multiple_of(CHUNK_ALIGN_BYTES));
                prop_assert!(lz4 || fills_pack(chunk.len()) || chunk.len() <= TAIL_CHUNK_BYTES);
                end = chunk.end;
            }
            prop_assert_eq!(end, size);
        }
    }

    #[test]
    fn own_packs_fill_their_pages() {
        assert_eq!(own_pack_bytes(MIN_OWN_PACK_BYTES), MIN_OWN_PACK_BYTES);
        assert_eq!(own_pack_bytes(2 * MIN_OWN_PACK_BYTES), MIN_OWN_PACK_BYTES);
        assert_eq!(own_pack_bytes((256 << 10) - 16), (256 << 10) - 16);
        assert_eq!(own_pack_bytes((256 << 10) - 17), (128 << 10) - 16);
        assert_eq!(own_pack_bytes(1 << 30), MAX_PACK_BYTES);
    }

    #[test]
    fn what_remains_of_a_leaf_shares_packs() {
        let lengths = |size| cuts(size, Compression::None).map(|cut| cut.len()).collect::<Vec<_>>();
        assert_eq!(lengths(0), [0; 0]);
        assert_eq!(lengths(100_000), [TAIL_CHUNK_BYTES, TAIL_CHUNK_BYTES, TAIL_CHUNK_BYTES, 1744]);
        assert_eq!(lengths(MAX_PACK_BYTES + 5), [MAX_PACK_BYTES, 5]);
        // Full parts leave nothing unused in the pack that they share.
        const { assert!(MIN_OWN_PACK_BYTES - 4 * TAIL_CHUNK_BYTES < 64) };
    }
}
