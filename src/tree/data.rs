//! The memory of a leaf: borrowed from the caller, shared by reference count, or a few bytes in
//! place. Always C order and little-endian.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use ndarray::ArcArray;

use crate::dtype::Element;
use crate::shape::Region;

/// Memory that is shared by reference count.
pub(crate) trait Buffer: Any + Send + Sync {
    fn bytes(&self) -> &[u8];

    /// Whether a store may hold it after a save, to know it again.
    fn may_be_held(&self) -> bool {
        true
    }
}

impl<T: Element> Buffer for Vec<T> {
    fn bytes(&self) -> &[u8] {
        T::as_bytes(self)
    }
}

impl Buffer for String {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

impl<T: Element> Buffer for Arc<[T]> {
    fn bytes(&self) -> &[u8] {
        T::as_bytes(self)
    }
}

/// An `ArcArray` in standard layout: it shares the caller's memory until either side changes it.
pub(crate) struct SharedArray<T: Element>(pub(crate) ArcArray<T, ndarray::IxDyn>);

impl<T: Element> Buffer for SharedArray<T> {
    fn bytes(&self) -> &[u8] {
        // Only arrays in standard layout are wrapped; see `Leaf::from`.
        self.0.as_slice().map_or(&[], T::as_bytes)
    }
}

#[derive(Clone)]
pub(crate) enum Data<'a> {
    Borrowed(&'a [u8]),
    Shared(Arc<dyn Buffer>),
    Inline { bytes: [u8; 16], len: u8 },
}

/// The contents of a leaf: in one piece, or as distinct regions that devices hold, in C order.
#[derive(Debug, Clone)]
pub(crate) enum Contents<'a> {
    Whole(Data<'a>),
    Shards(Vec<(Region, Data<'a>)>, Given),
}

/// Which regions of an array are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Given {
    All,
    /// Those that this process saves. Other processes have the others.
    Local,
}

impl Data<'_> {
    pub(crate) fn shared(buffer: impl Buffer) -> Self {
        Self::Shared(Arc::new(buffer))
    }

    /// The few bytes of a scalar.
    pub(crate) fn inline(scalar: &[u8]) -> Self {
        let mut bytes = [0; 16];
        for (slot, byte) in bytes.iter_mut().zip(scalar) {
            *slot = *byte;
        }
        debug_assert!(scalar.len() <= 16);
        Self::Inline { bytes, len: u8::try_from(scalar.len()).unwrap_or(16) }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Shared(buffer) => buffer.bytes(),
            Self::Inline { bytes, len } => bytes.get(..usize::from(*len)).unwrap_or(bytes),
        }
    }

    /// The elements, without a copy if they are in a `Vec<T>` that nobody else shares.
    pub(crate) fn into_elements<T: Element>(self) -> Option<Vec<T>> {
        let copy = |bytes: &[u8]| {
            if let Some(elements) = T::view(bytes) {
                return Some(elements.to_vec());
            }
            bytes.chunks_exact(size_of::<T>()).map(T::from_bytes).collect()
        };
        match self {
            Self::Shared(buffer) => {
                let any: Arc<dyn Any + Send + Sync> = buffer.clone();
                match any.downcast::<Vec<T>>() {
                    Ok(elements) => {
                        // This was the second of two counts, or the vector could not be unwrapped.
                        drop(buffer);
                        Some(Arc::unwrap_or_clone(elements))
                    }
                    Err(_) => copy(buffer.bytes()),
                }
            }
            data => copy(data.bytes()),
        }
    }

    /// The same data for any lifetime: borrowed memory is copied.
    pub(crate) fn into_owned(self) -> Data<'static> {
        match self {
            Self::Borrowed(bytes) => Data::shared(bytes.to_vec()),
            Self::Shared(buffer) => Data::Shared(buffer),
            Self::Inline { bytes, len } => Data::Inline { bytes, len },
        }
    }
}

impl fmt::Debug for Data<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes().len())
    }
}
