//! Which chunks the steps use, and how many steps use each.

use std::collections::BTreeMap;
use std::iter;

use super::records::leaf_records;
use crate::db::ReadTx;
use crate::error::Result;
use crate::record::Extent;

/// The chunks that steps use, each with the number of these steps.
#[derive(Default)]
pub(super) struct Usage(BTreeMap<Extent, u64>);

/// What steps use of one pack.
#[derive(Default)]
pub(super) struct PackUse {
    /// The bytes that are used, with the gaps between chunks.
    pub(super) bytes: usize,
    /// The chunks that are in the pack, also those that begin in the one before or end in the next.
    pub(super) chunks: Vec<Extent>,
}

impl Usage {
    /// Looks at all leaf records.
    pub(super) fn count(tx: &ReadTx) -> Result<Self> {
        let mut usage = Self::default();
        for step in tx.steps()? {
            for (_, record) in leaf_records(tx, step)? {
                for chunk in record.chunks {
                    *usage.0.entry(chunk.extent()).or_default() += 1;
                }
            }
        }
        Ok(usage)
    }

    /// The stored bytes of the chunks that at least so many steps use, each counted once.
    pub(super) fn stored_bytes(&self, steps: u64) -> u64 {
        let used = self.0.iter().filter(|chunk| *chunk.1 >= steps);
        used.map(|(chunk, _)| u64::from(chunk.length)).sum()
    }

    /// What is used of each pack, ascending.
    pub(super) fn by_pack(&self) -> BTreeMap<u64, PackUse> {
        let mut packs: BTreeMap<u64, PackUse> = BTreeMap::new();
        for chunk in self.0.keys() {
            let (first, rest) = chunk.pieces();
            for piece in iter::once(first).chain(rest) {
                let pack = packs.entry(piece.pack).or_default();
                pack.bytes += piece.aligned_bytes();
                pack.chunks.push(*chunk);
            }
        }
        packs
    }
}
