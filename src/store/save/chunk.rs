//! One chunk on its way: from raw bytes, wherever they are, to what is stored.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use super::contents::read_run;
use super::planned_leaf::PlannedLeaf;
use super::report::Accepted;
use super::reuse::{Match, Memory, Reuse, StoredReader};
use super::staging::Block;
use crate::codec::{self, ChunkInfo, Compression};
use crate::error::{Error, Result};
use crate::record::StoredChunk;
use crate::tree::{Data, LeafSource};

/// A chunk that is to be saved.
pub(super) struct Chunk<'s> {
    /// The number of its leaf.
    pub(super) leaf: usize,
    /// Its number in the leaf.
    pub(super) index: u32,
    pub(super) raw: Raw<'s>,
}

/// Where the raw bytes of a chunk are.
pub(super) enum Raw<'s> {
    /// In the contents of the leaf, which are borrowed or shared.
    Slice(&'s [u8], Range<usize>),
    Shared(Data<'static>, Range<usize>),
    Staged(Arc<Block>, Range<usize>),
    /// In a part of the leaf in the source, which is asked for them where they are encoded.
    Unread(&'s dyn LeafSource, usize, Range<usize>),
    /// In the file: the leaf is in the memory in which the newest step was saved from, which
    /// nobody can have changed since.
    Stored(StoredChunk),
}

impl Raw<'_> {
    /// How many bytes have to be looked at.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Slice(_, run)
            | Self::Shared(_, run)
            | Self::Staged(_, run)
            | Self::Unread(_, _, run) => run.len(),
            Self::Stored(_) => 0,
        }
    }
}

/// The chunks of a save, in batches. Those of one leaf come in their order.
pub(super) trait Batches<'s> {
    /// The next chunks; none at the end.
    fn next(&mut self) -> Result<Vec<Chunk<'s>>>;

    /// When the save was accepted and what it cost until then; asked at the end.
    fn accepted(&self) -> Accepted;

    /// Told of a leaf that differs from the newest step: its memory need not be held for longer.
    fn changed(&mut self, leaf: usize);

    /// The shared memory that the leaf is in; asked once, at the end.
    fn memory(&mut self, leaf: usize) -> Memory;
}

/// All that is to be saved.
pub(super) struct ToSave<'c, 's> {
    pub(super) encoder: Encoder<'c>,
    pub(super) batches: &'c mut dyn Batches<'s>,
}

/// A chunk that is ready to be written.
pub(super) struct EncodedChunk<'s> {
    pub(super) leaf: usize,
    pub(super) sharing: Sharing,
    pub(super) stored: Stored<'s>,
}

/// Which chunks a chunk that fills no pack shares one with: those of the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sharing {
    /// Of a leaf that is compressed.
    pub(super) compressed: bool,
    /// It did not change since the step before, and moves here from a pack that is mostly dead. Such
    /// chunks stay together, so that their new pack does not die around them again.
    pub(super) settled: bool,
}

pub(super) enum Stored<'s> {
    /// As it is in the file already.
    Unchanged(StoredChunk),
    New(ChunkInfo, Bytes<'s>),
}

/// The stored bytes of a new chunk.
pub(super) enum Bytes<'s> {
    Slice(&'s [u8], Range<usize>),
    Shared(Data<'static>, Range<usize>),
    Staged(Arc<Block>, Range<usize>),
    Owned(Vec<u8>),
}

impl Bytes<'_> {
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            // The ranges were made for this very memory.
            Self::Slice(bytes, run) => bytes.get(run.clone()).unwrap_or_default(),
            Self::Shared(data, run) => data.bytes().get(run.clone()).unwrap_or_default(),
            Self::Staged(block, run) => block.bytes().get(run.clone()).unwrap_or_default(),
            Self::Owned(bytes) => bytes,
        }
    }

    /// All that is in memory of the leaf, or of the part of it.
    fn known(&self) -> &[u8] {
        match self {
            Self::Slice(bytes, _) => bytes,
            Self::Shared(data, _) => data.bytes(),
            Self::Staged(..) | Self::Owned(_) => self.as_slice(),
        }
    }
}

/// Encodes chunks, on any thread.
#[derive(Clone, Copy)]
pub(super) struct Encoder<'e> {
    pub(super) leaves: &'e [PlannedLeaf],
    pub(super) reuse: &'e Reuse,
}

impl Encoder<'_> {
    /// Encodes what is not in the file as it is.
    pub(super) fn encode<'s>(
        &self,
        chunk: Chunk<'s>,
        reader: &mut StoredReader,
    ) -> Result<EncodedChunk<'s>> {
        let Chunk { leaf: number, index, raw } = chunk;
        let Some(leaf) = self.leaves.get(number) else {
            return Err(Error::invalid("a chunk is of a leaf that is not there"));
        };
        let compressed = leaf.compression != Compression::None;
        let mut sharing = Sharing { compressed, settled: false };
        let bytes = match raw {
            Raw::Stored(chunk) => {
                return Ok(EncodedChunk {
                    leaf: number,
                    sharing,
                    stored: Stored::Unchanged(chunk),
                });
            }
            Raw::Slice(bytes, run) => Bytes::Slice(bytes, run),
            Raw::Shared(data, run) => Bytes::Shared(data, run),
            Raw::Staged(block, run) => Bytes::Staged(block, run),
            Raw::Unread(source, part, run) => Bytes::Owned(read_run(source, leaf, part, run)?),
        };
        let raw = bytes.as_slice();
        leaf.check_values(raw)?;
        let id = leaf.chunk_id(index);
        let hash = codec::content_hash(raw);
        match self.reuse.find(number, id, raw, hash, reader) {
            Match::Stored(chunk) => {
                return Ok(EncodedChunk {
                    leaf: number,
                    sharing,
                    stored: Stored::Unchanged(chunk),
                });
            }
            Match::MostlyDead => sharing.settled = true,
            Match::No => {}
        }
        let (info, stored) = codec::encode(id, raw, hash, leaf.compression(bytes.known()));
        let stored = match stored {
            Cow::Owned(stored) => Bytes::Owned(stored),
            Cow::Borrowed(_) => bytes,
        };
        Ok(EncodedChunk { leaf: number, sharing, stored: Stored::New(info, stored) })
    }
}
