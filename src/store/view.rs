//! A leaf where it lies in the file's pages, without a copy.

use std::marker::PhantomData;

use super::StepReader;
use super::fill::{chunk_error, locate};
use super::packs::{open_pack, piece_of};
use crate::codec::{self, ChunkId, Codec};
use crate::db::Pack;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::Piece;
use crate::tree::{Data, Leaf, LeafMeta};

/// A leaf that is read where it lies, for as long as its [`StepReader`] lives.
pub struct LeafView<'r> {
    meta: LeafMeta,
    pack: Pack,
    piece: Piece,
    reader: PhantomData<&'r StepReader>,
}

impl StepReader {
    /// The leaf at `path` where it lies; `None` if it does not lie in one piece as it is: if it is
    /// empty, larger than a chunk (512 KiB) or saved with a [`Compression`](crate::Compression) other
    /// than `None`. Then [`read_leaf`](Self::read_leaf) gives a copy. It is checked once, here.
    ///
    /// (A leaf that no compression shrank is stored as it is, and given if it lies in one pack.)
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("run.milepost");
    /// use milepost::{CheckpointStore, SaveOptions};
    ///
    /// let store = CheckpointStore::create(&path)?;
    /// store.save(1, &vec![1.0f32, 2.0, 3.0], &SaveOptions::new())?;
    /// let reader = store.read(1)?;
    /// if let Some(view) = reader.view(&"/".parse()?)? {
    ///     assert_eq!(view.leaf().as_array::<f32>().unwrap().sum(), 6.0);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`read_leaf`](Self::read_leaf).
    pub fn view(&self, path: &KeyPath) -> Result<Option<LeafView<'_>>> {
        let view = || {
            let encoded = path.encode();
            let record = self.leaf_record(path, &encoded)?;
            let [chunk] = record.chunks[..] else { return Ok(None) };
            let (piece, rest) = chunk.extent().pieces();
            if chunk.info.codec != Codec::Raw || rest.is_some() {
                return Ok(None);
            }
            let id = ChunkId::new(&encoded, 0, 0, record.meta.dtype);
            let pack = open_pack(&self.tx, piece.pack).map_err(|error| locate(error, id))?;
            let stored = piece_of(&pack, piece).map_err(|error| locate(error, id))?;
            codec::check(id, &chunk.info, stored).map_err(|error| chunk_error(error, id))?;
            Ok(Some(LeafView { meta: record.meta, pack, piece, reader: PhantomData }))
        };
        view().map_err(|error: Error| self.place(error.at_path(path)))
    }
}

impl LeafView<'_> {
    /// The leaf, borrowed.
    pub fn leaf(&self) -> Leaf<'_> {
        // It was found when the view was made, and the pack has not moved.
        let contents = piece_of(&self.pack, self.piece).unwrap_or_default();
        Leaf::from_parts(self.meta.clone(), Data::Borrowed(contents))
    }
}

impl std::fmt::Debug for LeafView<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeafView").field("meta", &self.meta).finish_non_exhaustive()
    }
}
