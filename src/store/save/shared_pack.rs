//! A pack that chunks are collected in.

use crate::limits::CHUNK_ALIGN_BYTES;

/// A pack that chunks are collected in. It gets its number when it is written, since the database
/// takes ascending numbers fastest; so it remembers for whom each chunk is.
#[derive(Debug)]
pub(in crate::store) struct SharedPack<M> {
    capacity: usize,
    bytes: Vec<u8>,
    members: Vec<M>,
}

impl<M> Default for SharedPack<M> {
    /// A pack without room.
    fn default() -> Self {
        Self::new(0)
    }
}

impl<M> SharedPack<M> {
    /// An empty pack of at most `capacity` bytes.
    pub(in crate::store) fn new(capacity: usize) -> Self {
        Self { capacity, bytes: Vec::new(), members: Vec::new() }
    }

    pub(in crate::store) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Whether there is room for a chunk of `length` bytes.
    pub(in crate::store) fn has_room(&self, length: usize) -> bool {
        self.bytes.len().next_multiple_of(CHUNK_ALIGN_BYTES) + length <= self.capacity
    }

    /// Adds a chunk, and returns its offset.
    pub(in crate::store) fn push(&mut self, member: M, stored: &[u8]) -> u32 {
        let aligned = self.bytes.len().next_multiple_of(CHUNK_ALIGN_BYTES);
        self.bytes.resize(aligned, 0);
        self.bytes.extend_from_slice(stored);
        self.members.push(member);
        // A pack is far below 4 GiB.
        u32::try_from(aligned).unwrap_or(u32::MAX)
    }

    pub(in crate::store) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Empties the pack; its memory stays.
    pub(in crate::store) fn clear(&mut self) -> impl Iterator<Item = M> {
        self.bytes.clear();
        self.members.drain(..)
    }
}
