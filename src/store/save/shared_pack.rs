//! Packs that chunks share.
//!
//! A pack takes a page of a power of two, and what it does not fill is lost. So a few packs are open at
//! a time, a chunk goes into the fullest that has room, and what is open at the end is packed again,
//! the last of it into smaller pages.

use super::plan::page_bytes;
use crate::limits::{CHUNK_ALIGN_BYTES, MIN_PAGE_BYTES, PACK_OVERHEAD_BYTES};

/// The packs that are open at a time.
const OPEN: usize = 6;

/// Some chunks in a pack, each with whom it is for.
#[derive(Debug)]
pub(in crate::store) struct SharedPack<M> {
    bytes: Vec<u8>,
    members: Vec<Member<M>>,
}

/// A chunk in a pack.
#[derive(Debug)]
struct Member<M> {
    whose: M,
    offset: usize,
    length: usize,
}

/// Packs of at most `capacity` bytes that are being filled. A pack gets its number when it is
/// written, since the database takes ascending numbers fastest.
#[derive(Debug)]
pub(in crate::store) struct SharedPacks<M> {
    capacity: usize,
    open: Vec<SharedPack<M>>,
}

impl<M> SharedPack<M> {
    /// A pack with memory for so many bytes, which are not touched before they are needed.
    fn new(capacity: usize) -> Self {
        Self { bytes: Vec::with_capacity(capacity), members: Vec::new() }
    }

    fn has_room(&self, length: usize, capacity: usize) -> bool {
        self.bytes.len().next_multiple_of(CHUNK_ALIGN_BYTES) + length <= capacity
    }

    fn push(&mut self, whose: M, stored: &[u8]) {
        let offset = self.bytes.len().next_multiple_of(CHUNK_ALIGN_BYTES);
        self.bytes.resize(offset, 0);
        self.bytes.extend_from_slice(stored);
        self.members.push(Member { whose, offset, length: stored.len() });
    }

    pub(in crate::store) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whose the chunks are, with their offsets.
    pub(in crate::store) fn into_members(self) -> impl Iterator<Item = (M, u32)> {
        // A pack is far below 4 GiB.
        let member =
            |Member { whose, offset, .. }| (whose, u32::try_from(offset).unwrap_or(u32::MAX));
        self.members.into_iter().map(member)
    }

    /// The page that the pack takes.
    pub(in crate::store) fn page_bytes(&self) -> usize {
        page_bytes(self.bytes.len())
    }
}

impl<M> SharedPacks<M> {
    pub(in crate::store) fn new(capacity: usize) -> Self {
        Self { capacity, open: Vec::new() }
    }

    /// Adds a chunk. Returns a pack that has to be written to make room for it.
    pub(in crate::store) fn push(&mut self, whose: M, stored: &[u8]) -> Option<SharedPack<M>> {
        let capacity = self.capacity;
        let fits = self.open.iter_mut().filter(|pack| pack.has_room(stored.len(), capacity));
        if let Some(pack) = fits.max_by_key(|pack| pack.bytes.len()) {
            pack.push(whose, stored);
            return None;
        }
        let full = if self.open.len() < OPEN { None } else { self.take_fullest() };
        let mut pack = SharedPack::new(capacity);
        pack.push(whose, stored);
        self.open.push(pack);
        full
    }

    fn take_fullest(&mut self) -> Option<SharedPack<M>> {
        let packs = self.open.iter().enumerate();
        let fullest = packs.max_by_key(|(_, pack)| pack.bytes.len())?.0;
        Some(self.open.swap_remove(fullest))
    }

    /// Takes what is left, packed again.
    pub(in crate::store) fn finish(&mut self) -> Vec<SharedPack<M>> {
        pack_again(std::mem::take(&mut self.open), self.capacity)
    }
}

/// Packs the chunks of `packs` into as few packs of `capacity` as first fit finds, the largest chunks
/// first, and those of a pack that leaves more than a quarter of its page unused into smaller ones.
fn pack_again<M>(packs: Vec<SharedPack<M>>, capacity: usize) -> Vec<SharedPack<M>> {
    let mut chunks = Vec::new();
    for SharedPack { bytes, members } in &packs {
        let chunk = |member: &Member<M>| bytes.get(member.offset..member.offset + member.length);
        chunks.extend(members.iter().map(|member| chunk(member).unwrap_or_default().to_vec()));
    }
    let members = packs.into_iter().flat_map(|pack| pack.members).map(|member| member.whose);
    let mut chunks: Vec<(M, Vec<u8>)> = members.zip(chunks).collect();
    chunks.sort_by_key(|(_, stored)| std::cmp::Reverse(stored.len()));
    let mut filled: Vec<SharedPack<M>> = Vec::new();
    for (whose, stored) in chunks {
        if let Some(pack) = filled.iter_mut().find(|pack| pack.has_room(stored.len(), capacity)) {
            pack.push(whose, &stored);
        } else {
            let mut pack = SharedPack::new(capacity);
            pack.push(whose, &stored);
            filled.push(pack);
        }
    }
    let mut fitting = Vec::new();
    for pack in filled {
        let page_bytes = pack.page_bytes();
        let is_sparse = pack.bytes.len() + page_bytes / 4 < page_bytes;
        if is_sparse && pack.members.len() > 1 && page_bytes > MIN_PAGE_BYTES {
            fitting.extend(pack_again(vec![pack], page_bytes / 2 - PACK_OVERHEAD_BYTES));
        } else {
            fitting.push(pack);
        }
    }
    fitting
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_fits_the_smallest_page_stays_together() {
        let mut packs = SharedPacks::new((128 << 10) - PACK_OVERHEAD_BYTES);
        for number in 0..30 {
            assert!(packs.push(number, &[7; 80]).is_none());
        }
        let packs = packs.finish();
        assert_eq!(packs.iter().map(|pack| pack.members.len()).collect::<Vec<_>>(), [30]);
    }

    proptest! {
        #[test]
        fn every_chunk_is_somewhere_and_little_is_lost(
            lengths in prop::collection::vec(1usize..32_752, 1..200),
        ) {
            const CAPACITY: usize = (128 << 10) - PACK_OVERHEAD_BYTES;
            let chunk = |number: usize| vec![u8::try_from(number % 251).unwrap(); lengths[number]];
            let mut packs = SharedPacks::new(CAPACITY);
            let mut written: Vec<_> =
                (0..lengths.len()).filter_map(|number| packs.push(number, &chunk(number))).collect();
            written.extend(packs.finish());
            let mut seen = vec![false; lengths.len()];
            let mut page_bytes = 0;
            for pack in written {
                prop_assert!(pack.bytes().len() <= CAPACITY);
                page_bytes += pack.page_bytes();
                let bytes = pack.bytes().to_vec();
                for (number, offset) in pack.into_members() {
                    let offset = usize::try_from(offset).unwrap();
                    prop_assert_eq!(offset % CHUNK_ALIGN_BYTES, 0);
                    prop_assert_eq!(&bytes[offset..offset + lengths[number]], chunk(number));
                    prop_assert!(!std::mem::replace(&mut seen[number], true));
                }
            }
            prop_assert!(seen.into_iter().all(|seen| seen));
            let total: usize = lengths.iter().sum();
            // A pack fills three quarters of its page, but for what one last page leaves.
            prop_assert!(page_bytes < total + total / 3 + 65_536, "{page_bytes} for {total}");
        }
    }
}
