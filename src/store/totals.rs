//! What a step record says of all its leaves together.
//!
//! The digest is specified in `format.md`. Its order is that of the structure, in which fields of a
//! struct stand as they were declared, and not that of the rows.

use crate::codec::Digest;
use crate::record::LeafRecord;

/// Counts, sums and digest of the leaves that were added.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) leaf_count: u64,
    pub(super) chunk_count: u64,
    /// Raw bytes.
    pub(super) logical_bytes: u64,
    pub(super) stored_bytes: u64,
    digest: Digest,
}

impl Totals {
    /// Adds the next leaf, whose encoded key path is `path`.
    pub(super) fn add(&mut self, path: &[u8], record: &LeafRecord) {
        self.leaf_count += 1;
        self.digest.update(path);
        self.digest.update(&[record.meta.kind.code(), record.meta.dtype.code()]);
        for length in record.meta.shape.lengths() {
            let length = u64::try_from(*length).unwrap_or(u64::MAX);
            self.digest.update(&length.to_le_bytes());
        }
        if let Some(parts) = &record.parts {
            for range in parts.grid.parts().flat_map(|part| part.ranges().to_vec()) {
                for bound in [range.start, range.end] {
                    self.digest.update(&u64::try_from(bound).unwrap_or(u64::MAX).to_le_bytes());
                }
            }
        }
        for chunk in &record.chunks {
            self.chunk_count += 1;
            self.logical_bytes += u64::from(chunk.info.raw_len);
            self.stored_bytes += u64::from(chunk.info.stored_len);
            self.digest.update(&chunk.info.hash);
        }
    }

    /// The digest of the leaves, in the order in which they were added.
    pub(super) fn digest(self) -> [u8; 16] {
        self.digest.finish()
    }
}
