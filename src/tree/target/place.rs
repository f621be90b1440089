//! The places in the caller's memory.

use std::slice;

use ndarray::ArrayViewMutD;

use super::{Expected, Target, assign, utf8};
use crate::dtype::{DType, Element, resize};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tree::meta::{LeafKind, LeafMeta};

pub(super) struct SliceTarget<'a, T> {
    pub(super) elements: &'a mut [T],
    pub(super) shape: Shape,
}

impl<T: Element> Target for SliceTarget<'_, T> {
    fn expected(&self) -> Expected {
        Expected::exactly(LeafMeta::array(T::DTYPE, self.shape.clone()))
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        T::as_bytes_mut(self.elements)
    }

    fn finish(&mut self, contents: &[u8]) -> Result<()> {
        assign(self.elements.iter_mut(), contents)
    }
}

pub(super) struct ViewTarget<'a, T>(pub(super) ArrayViewMutD<'a, T>);

impl<T: Element> Target for ViewTarget<'_, T> {
    fn expected(&self) -> Expected {
        Expected::exactly(LeafMeta::array(T::DTYPE, Shape::in_memory(self.0.shape())))
    }

    fn finish(&mut self, contents: &[u8]) -> Result<()> {
        assign(self.0.iter_mut(), contents)
    }
}

pub(super) struct VecTarget<'a, T>(pub(super) &'a mut Vec<T>);

impl<T: Element> Target for VecTarget<'_, T> {
    fn expected(&self) -> Expected {
        Expected::any_length(LeafKind::Array, T::DTYPE)
    }

    fn prepare(&mut self, saved: &LeafMeta) -> Result<()> {
        resize(self.0, saved.shape.elements())
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        T::as_bytes_mut(self.0)
    }

    fn finish(&mut self, contents: &[u8]) -> Result<()> {
        assign(self.0.iter_mut(), contents)
    }
}

pub(super) struct ScalarTarget<'a, T>(pub(super) &'a mut T);

impl<T: Element> Target for ScalarTarget<'_, T> {
    fn expected(&self) -> Expected {
        Expected::exactly(LeafMeta::new(LeafKind::Scalar, T::DTYPE, Shape::default()))
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        T::as_bytes_mut(slice::from_mut(self.0))
    }

    fn finish(&mut self, contents: &[u8]) -> Result<()> {
        assign([&mut *self.0], contents)
    }
}

pub(super) struct StringTarget<'a>(pub(super) &'a mut String);

impl Target for StringTarget<'_> {
    fn expected(&self) -> Expected {
        Expected::any_length(LeafKind::String, DType::U8)
    }

    fn finish(&mut self, contents: &[u8]) -> Result<()> {
        utf8(contents)?.clone_into(self.0);
        Ok(())
    }
}

pub(super) struct BytesTarget<'a>(pub(super) &'a mut Vec<u8>);

impl Target for BytesTarget<'_> {
    fn expected(&self) -> Expected {
        Expected::any_length(LeafKind::Bytes, DType::U8)
    }

    fn prepare(&mut self, saved: &LeafMeta) -> Result<()> {
        resize(self.0, saved.shape.elements())
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        Some(self.0)
    }
}

pub(super) struct JsonTarget<'a>(pub(super) &'a mut serde_json::Value);

impl Target for JsonTarget<'_> {
    fn expected(&self) -> Expected {
        Expected::any_length(LeafKind::Json, DType::U8)
    }

    fn finish(&mut self, contents: &[u8]) -> Result<()> {
        *self.0 = serde_json::from_slice(contents)
            .map_err(|error| Error::damaged("the stored text is no JSON").with_source(error))?;
        Ok(())
    }
}
