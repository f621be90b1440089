//! Memory that encoding and decoding use again and again, some of it for each thread.

use std::cell::Cell;

use super::exponents::Exponents;
use super::lz4::Lz4;
use super::planes::{self, Planes};
use super::transpose::Unit;
use super::{Codec, is_worth_it};
use crate::dtype::DType;

thread_local! {
    static SCRATCH: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
}

/// Each part grows to what the largest chunk needs, and is first touched once.
#[derive(Default)]
pub(super) struct Scratch {
    lz4: Lz4,
    /// The planes of a chunk.
    pub(super) planes: Vec<u8>,
    /// The elements of a chunk with raised exponents.
    raised: Vec<u8>,
    stored: Vec<u8>,
}

impl Scratch {
    /// Calls `work` with the scratch memory of this thread.
    pub(super) fn with<R>(work: impl FnOnce(&mut Self) -> R) -> R {
        let mut scratch = SCRATCH.take().unwrap_or_default();
        let result = work(&mut scratch);
        SCRATCH.set(Some(scratch));
        result
    }

    /// The stored bytes of a chunk with this codec, if they are worth it; never for `Raw`.
    pub(super) fn compress(&mut self, codec: Codec, dtype: DType, raw: &[u8]) -> Option<&[u8]> {
        let unit = match codec {
            Codec::Raw => return None,
            Codec::Lz4 => return self.lz4.compress(raw),
            Codec::BytePlanes => Unit::Byte,
            Codec::BitPlanes | Codec::RaisedBitPlanes => Unit::Bit,
        };
        let layout = Planes::new(unit, dtype, raw.len()).ok()?;
        let Self { lz4, planes, raised, stored } = self;
        stored.clear();
        let exponents = Exponents::of(dtype).filter(|_| codec == Codec::RaisedBitPlanes);
        let elements = exponents.map_or(raw, |exponents| {
            let raise_by = exponents.headroom(raw);
            stored.extend(raise_by.to_le_bytes());
            raised.clear();
            raised.extend_from_slice(raw);
            exponents.raise(raise_by, raised);
            raised
        });
        planes::encode(layout, elements, lz4, planes, stored);
        is_worth_it(self.stored.len(), raw.len()).then_some(&*self.stored)
    }
}
