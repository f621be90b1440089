//! Packs that chunks share.
//!
//! A pack takes a page of a power of two, and what it does not fill is lost. There are two ways to
//! fill it. [`SharedPacks`] keep each chunk in one piece: a few packs are open at a time, and a chunk
//! goes into the fullest that has room. In a [`PackStream`] what has no room goes on in the next pack.
//! Both pack again what is open at the end, the last of it into smaller pages.

use super::plan::page_bytes;
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_PACK_BYTES, MIN_PAGE_BYTES, PACK_OVERHEAD_BYTES};

/// The packs that are open at a time.
const OPEN: usize = 6;

/// Some chunks in a pack, each with whom it is for.
#[derive(Debug)]
pub(in crate::store) struct SharedPack<M> {
    bytes: Vec<u8>,
    members: Vec<Member<M>>,
}

/// A run of bytes in a pack.
#[derive(Debug)]
struct Member<M> {
    part: Part<M>,
    offset: usize,
    length: usize,
}

#[derive(Debug)]
enum Part<M> {
    /// A chunk, or its beginning, and whom it is for.
    Beginning(M),
    /// The end of a chunk that began in the pack before: it is at the very beginning.
    End,
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

    /// The room for another chunk.
    fn room(&self, capacity: usize) -> usize {
        capacity.saturating_sub(self.bytes.len().next_multiple_of(CHUNK_ALIGN_BYTES))
    }

    fn push(&mut self, part: Part<M>, stored: &[u8]) {
        let offset = self.bytes.len().next_multiple_of(CHUNK_ALIGN_BYTES);
        self.bytes.resize(offset, 0);
        self.bytes.extend_from_slice(stored);
        self.members.push(Member { part, offset, length: stored.len() });
    }

    pub(in crate::store) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whose the chunks are that begin in the pack, with their offsets.
    pub(in crate::store) fn into_members(self) -> impl Iterator<Item = (M, u32)> {
        let member = |Member { part, offset, .. }| match part {
            // A pack is far below 4 GiB.
            Part::Beginning(whose) => Some((whose, u32::try_from(offset).unwrap_or(u32::MAX))),
            Part::End => None,
        };
        self.members.into_iter().filter_map(member)
    }

    /// The page that the pack takes.
    fn page_bytes(&self) -> usize {
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
        let fits = self.open.iter_mut().filter(|pack| pack.room(capacity) >= stored.len());
        if let Some(pack) = fits.max_by_key(|pack| pack.bytes.len()) {
            pack.push(Part::Beginning(whose), stored);
            return None;
        }
        let full = if self.open.len() < OPEN { None } else { self.take_fullest() };
        let mut pack = SharedPack::new(capacity);
        pack.push(Part::Beginning(whose), stored);
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

/// Chunks one after the other in the largest packs with consecutive numbers, each filled to the last
/// byte: what does not fit a pack goes on at the beginning of the next one.
#[derive(Debug)]
pub(in crate::store) struct PackStream<M> {
    /// The number of the pack that is open.
    number: u64,
    open: SharedPack<M>,
}

impl<M> PackStream<M> {
    /// A stream from the pack `first` on.
    pub(in crate::store) fn new(first: u64) -> Self {
        Self { number: first, open: SharedPack::new(0) }
    }

    /// The most packs that chunks take whose lengths, each made a multiple of [`CHUNK_ALIGN_BYTES`],
    /// are `bytes` in all.
    pub(in crate::store) fn most_packs(bytes: u64) -> u64 {
        bytes.div_ceil(u64::try_from(MAX_PACK_BYTES).unwrap_or(u64::MAX))
    }

    /// Adds a chunk of at most [`MAX_PACK_BYTES`]. Returns the pack that it filled, with its number.
    pub(in crate::store) fn push(
        &mut self,
        whose: M,
        stored: &[u8],
    ) -> Option<(u64, SharedPack<M>)> {
        // A full pack does not stay open, so there is always some room.
        let room = self.open.room(MAX_PACK_BYTES).min(stored.len());
        let (head, rest) = stored.split_at(room);
        self.open.push(Part::Beginning(whose), head);
        if self.open.room(MAX_PACK_BYTES) > 0 {
            return None;
        }
        let full = std::mem::replace(&mut self.open, SharedPack::new(MAX_PACK_BYTES));
        if !rest.is_empty() {
            self.open.push(Part::End, rest);
        }
        self.number += 1;
        Some((self.number - 1, full))
    }

    /// Takes what is left, packed again: the next pack with its number, and others, which may have any.
    #[expect(clippy::type_complexity)]
    pub(in crate::store) fn finish(
        &mut self,
    ) -> (Option<(u64, SharedPack<M>)>, Vec<SharedPack<M>>) {
        let open = std::mem::replace(&mut self.open, SharedPack::new(0));
        let packs = if open.members.is_empty() { Vec::new() } else { vec![open] };
        let mut packs = pack_again(packs, MAX_PACK_BYTES).into_iter();
        (packs.next().map(|pack| (self.number, pack)), packs.collect())
    }
}

/// Packs the chunks of `packs` into as few packs of `capacity` as first fit finds, the largest chunks
/// first, and those of a pack that leaves more than a quarter of its page unused into smaller ones.
/// The end of a chunk that began before stays at the beginning of the first one.
fn pack_again<M>(packs: Vec<SharedPack<M>>, capacity: usize) -> Vec<SharedPack<M>> {
    let mut chunks = Vec::new();
    for SharedPack { bytes, members } in &packs {
        let chunk = |member: &Member<M>| bytes.get(member.offset..member.offset + member.length);
        chunks.extend(members.iter().map(|member| chunk(member).unwrap_or_default().to_vec()));
    }
    let members = packs.into_iter().flat_map(|pack| pack.members).map(|member| member.part);
    let mut chunks: Vec<(Part<M>, Vec<u8>)> = members.zip(chunks).collect();
    let begins = |part: &Part<M>| matches!(part, Part::Beginning(_));
    chunks.sort_by_key(|(part, stored)| (begins(part), std::cmp::Reverse(stored.len())));
    let mut filled: Vec<SharedPack<M>> = Vec::new();
    for (part, stored) in chunks {
        if let Some(pack) = filled.iter_mut().find(|pack| pack.room(capacity) >= stored.len()) {
            pack.push(part, &stored);
        } else {
            let mut pack = SharedPack::new(capacity);
            pack.push(part, &stored);
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
    use crate::record::Extent;
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

        #[test]
        fn a_stream_has_every_chunk_and_fills_its_packs(
            lengths in prop::collection::vec(
                prop_oneof![1usize..70_000, Just(MAX_PACK_BYTES), 1usize..MAX_PACK_BYTES],
                1..60,
            ),
        ) {
            let chunk = |number: usize| vec![u8::try_from(number % 251).unwrap(); lengths[number]];
            let mut stream = PackStream::new(7);
            let mut packs: Vec<_> =
                (0..lengths.len()).filter_map(|number| stream.push(number, &chunk(number))).collect();
            let full = packs.len();
            let (next, rest) = stream.finish();
            prop_assert!(next.is_some() || rest.is_empty());
            let numbers = packs.len() + usize::from(next.is_some());
            packs.extend(next);
            prop_assert!(packs.iter().map(|(number, _)| *number).eq((7..).take(numbers)));
            packs.extend((1000..).zip(rest));
            let aligned: usize =
                lengths.iter().map(|length| length.next_multiple_of(CHUNK_ALIGN_BYTES)).sum();
            prop_assert_eq!(full, aligned / MAX_PACK_BYTES);
            let most = PackStream::<usize>::most_packs(u64::try_from(aligned).unwrap());
            prop_assert!(u64::try_from(numbers).unwrap() <= most, "{numbers} > {most}");
            let bytes: Vec<_> = packs.iter().map(|(_, pack)| pack.bytes().to_vec()).collect();
            let mut seen = vec![false; lengths.len()];
            for (at, (_, pack)) in packs.into_iter().enumerate() {
                for (number, offset) in pack.into_members() {
                    let extent = Extent {
                        pack: u64::try_from(at).unwrap(),
                        offset,
                        length: u32::try_from(lengths[number]).unwrap(),
                    };
                    let (first, rest) = extent.pieces();
                    let mut stored = bytes[at][first.start..first.end].to_vec();
                    if let Some(rest) = rest {
                        prop_assert_eq!(bytes[at].len(), MAX_PACK_BYTES);
                        stored.extend(&bytes[at + 1][..rest.end]);
                    }
                    prop_assert_eq!(stored, chunk(number));
                    prop_assert!(!std::mem::replace(&mut seen[number], true));
                }
            }
            prop_assert!(seen.into_iter().all(|seen| seen));
        }
    }
}
