//! What a step record says of all leaves together. `format.md` specifies the digest.

use crate::codec::Digest;
use crate::record::LeafRecord;

/// Counts, sizes and the digest of the leaves of a step, added in the order of the structure.
#[derive(Default)]
pub(super) struct Totals {
    pub(super) leaf_count: u64,
    pub(super) chunk_count: u64,
    /// Raw bytes of all leaves.
    pub(super) logical_bytes: u64,
    /// Stored bytes of all chunks.
    pub(super) stored_bytes: u64,
    digest: Digest,
}

impl Totals {
    /// Adds the leaf at the encoded `path`.
    pub(super) fn add(&mut self, path: &[u8], record: &LeafRecord) {
        self.leaf_count += 1;
        self.digest.update(path);
        self.digest.update(&[record.meta.kind.code(), record.meta.dtype.code()]);
        for length in record.meta.shape.lengths() {
            self.digest.update(&u64::try_from(*length).unwrap_or(u64::MAX).to_le_bytes());
        }
        for chunk in &record.chunks {
            self.chunk_count += 1;
            self.logical_bytes += u64::from(chunk.info.raw_len);
            self.stored_bytes += u64::from(chunk.info.stored_len);
            self.digest.update(&chunk.info.hash);
        }
    }

    /// The digest of the step.
    pub(super) fn digest(&self) -> [u8; 16] {
        self.digest.finish()
    }
}
