//! Which chunks the steps use, and how many steps use each.

use std::collections::BTreeMap;

use super::leaf_records;
use crate::db::ReadTx;
use crate::error::Result;

/// Where a chunk is: the pack, and the offset in it.
pub(super) type Place = (u64, u32);

/// The chunks that steps use.
#[derive(Default)]
pub(super) struct Usage(BTreeMap<Place, ChunkUse>);

#[derive(Debug, Clone, Copy)]
pub(super) struct ChunkUse {
    pub(super) stored_bytes: u32,
    pub(super) steps: u64,
}

impl Usage {
    /// Looks at all leaf records.
    pub(super) fn count(tx: &ReadTx) -> Result<Self> {
        let mut usage = Self::default();
        for step in tx.steps()? {
            for (_, record) in leaf_records(tx, step)? {
                for chunk in record.chunks {
                    let stored_bytes = chunk.info.stored_len;
                    let place = (chunk.pack, chunk.offset);
                    usage.0.entry(place).or_insert(ChunkUse { stored_bytes, steps: 0 }).steps += 1;
                }
            }
        }
        Ok(usage)
    }

    /// The stored bytes of the chunks that at least so many steps use, each counted once.
    pub(super) fn stored_bytes(&self, steps: u64) -> u64 {
        let used = self.0.values().filter(|chunk| chunk.steps >= steps);
        used.map(|chunk| u64::from(chunk.stored_bytes)).sum()
    }

    /// The chunks by their packs, ascending.
    pub(super) fn by_pack(&self) -> BTreeMap<u64, Vec<(Place, ChunkUse)>> {
        let mut packs: BTreeMap<u64, Vec<(Place, ChunkUse)>> = BTreeMap::new();
        for (place, chunk) in &self.0 {
            packs.entry(place.0).or_default().push((*place, *chunk));
        }
        packs
    }
}
