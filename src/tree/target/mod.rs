//! Places to restore into. A target says what it accepts before anything is read, makes room,
//! and is filled either in place or, where its memory is not plain bytes in C order, from a
//! buffer afterwards.

mod convert;
mod fresh;
mod place;

use std::fmt;
use std::marker::PhantomData;
use std::slice;

use ndarray::{ArrayBase, ArrayViewMut, DataMut, Dimension};

use super::leaf::Leaf;
use super::meta::{LeafKind, LeafMeta};
use crate::dtype::{DType, Element};
use crate::error::{Error, Result};
use crate::shape::Shape;
use convert::{ConvertedSlice, ConvertedVec};
use fresh::{FreshTarget, LeafTarget};
use place::{
    BytesTarget, JsonTarget, ScalarTarget, SliceTarget, StringTarget, VecTarget, ViewTarget,
};

pub(crate) use fresh::FreshLeaf;

/// A place for one leaf in the caller's memory.
pub struct LeafMut<'a>(Box<dyn Target + 'a>);

impl<'a> LeafMut<'a> {
    /// An array in C order in `elements`. The saved array must have the same element type and
    /// `shape`.
    ///
    /// # Errors
    /// `InvalidInput` if the length of `elements` is not the product of `shape`.
    pub fn from_slice<T: Element>(
        elements: &'a mut [T],
        shape: impl Into<Vec<usize>>,
    ) -> Result<Self> {
        let shape = Shape::new(shape)?;
        // The check of the length is the same as for a leaf to save.
        Leaf::from_slice(elements, shape.lengths())?;
        Ok(Self(Box::new(SliceTarget { elements, shape })))
    }

    /// An array in `array`. The saved array must have the same element type and shape.
    pub fn array<T, S, D>(array: &'a mut ArrayBase<S, D>) -> Self
    where
        T: Element,
        S: DataMut<Elem = T>,
        D: Dimension,
    {
        Self::from(array.view_mut())
    }

    /// A one-dimensional array in `elements`, which takes whatever length was saved.
    pub fn vec<T: Element>(elements: &'a mut Vec<T>) -> Self {
        Self(Box::new(VecTarget(elements)))
    }

    /// A scalar.
    pub fn scalar<T: Element>(value: &'a mut T) -> Self {
        Self(Box::new(ScalarTarget(value)))
    }

    /// A string.
    pub fn string(text: &'a mut String) -> Self {
        Self(Box::new(StringTarget(text)))
    }

    /// A byte string.
    pub fn bytes(bytes: &'a mut Vec<u8>) -> Self {
        Self(Box::new(BytesTarget(bytes)))
    }

    /// A JSON value.
    pub fn json(value: &'a mut serde_json::Value) -> Self {
        Self(Box::new(JsonTarget(value)))
    }

    /// A scalar that is saved as an `S`.
    pub(crate) fn converted_scalar<T, S>(value: &'a mut T) -> Self
    where
        T: TryFrom<S> + Send,
        S: Element + fmt::Display,
    {
        let meta = LeafMeta::new(LeafKind::Scalar, S::DTYPE, Shape::in_memory(&[]));
        let slots = slice::from_mut(value);
        Self(Box::new(ConvertedSlice { slots, meta, stored: PhantomData::<fn() -> S> }))
    }

    /// A one-dimensional array of elements that are saved as an `S`.
    pub(crate) fn converted_slice<T, S>(slots: &'a mut [T]) -> Self
    where
        T: TryFrom<S> + Send,
        S: Element + fmt::Display,
    {
        let meta = LeafMeta::array(S::DTYPE, Shape::in_memory(&[slots.len()]));
        Self(Box::new(ConvertedSlice { slots, meta, stored: PhantomData::<fn() -> S> }))
    }

    /// The same with whatever length was saved.
    pub(crate) fn converted_vec<T, S>(slots: &'a mut Vec<T>) -> Self
    where
        T: TryFrom<S> + Clone + Default + Send,
        S: Element + fmt::Display,
    {
        Self(Box::new(ConvertedVec { slots, stored: PhantomData::<fn() -> S> }))
    }

    /// A leaf that is replaced by one of the same kind, element type and shape.
    pub fn leaf(leaf: &'a mut Leaf<'_>) -> Self {
        // The target holds what it will become; the leaf's lifetime ends up in the box alone.
        Self(Box::new(LeafTarget { fresh: None, leaf }))
    }

    pub(crate) fn fresh(fresh: &'a mut FreshLeaf) -> Self {
        Self(Box::new(FreshTarget(fresh)))
    }

    /// Whether a leaf like `saved` can be restored here.
    pub fn accepts(&self, saved: &LeafMeta) -> bool {
        self.0.expected().accepts(saved)
    }

    /// What can be restored here, for messages.
    pub(crate) fn expected(&self) -> Expected {
        self.0.expected()
    }

    /// Makes room for a leaf like `saved`, which must be accepted.
    pub(crate) fn prepare(&mut self, saved: &LeafMeta) -> Result<()> {
        self.0.prepare(saved)
    }

    /// The memory to fill; `None` where the contents go through [`LeafMut::finish`].
    pub(crate) fn memory(&mut self) -> Option<&mut [u8]> {
        self.0.memory()
    }

    /// Takes the contents, where there was no memory to fill.
    pub(crate) fn finish(&mut self, contents: &[u8]) -> Result<()> {
        self.0.finish(contents)
    }

    /// Takes over what was filled.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.0.settle()
    }
}

impl fmt::Debug for LeafMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeafMut({})", self.expected())
    }
}

impl<'a, T: Element, D: Dimension> From<ArrayViewMut<'a, T, D>> for LeafMut<'a> {
    fn from(view: ArrayViewMut<'a, T, D>) -> Self {
        let shape = Shape::in_memory(view.shape());
        if view.is_standard_layout() {
            if let Some(elements) = view.into_slice() {
                return Self(Box::new(SliceTarget { elements, shape }));
            }
            // A view in standard layout always is a slice.
            return Self(Box::new(SliceTarget::<T> { elements: &mut [], shape }));
        }
        Self(Box::new(ViewTarget(view.into_dyn())))
    }
}

/// What a target takes. A length of `None` stands for any.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Expected {
    kind: LeafKind,
    dtype: DType,
    shape: Option<Shape>,
}

impl Expected {
    fn any_length(kind: LeafKind, dtype: DType) -> Self {
        Self { kind, dtype, shape: None }
    }

    fn exactly(meta: LeafMeta) -> Self {
        Self { kind: meta.kind, dtype: meta.dtype, shape: Some(meta.shape) }
    }

    /// Leaves like `meta`; text, bytes and JSON of any length.
    pub(crate) fn like(meta: &LeafMeta) -> Self {
        match meta.kind {
            LeafKind::Array | LeafKind::Scalar => Self::exactly(meta.clone()),
            kind => Self::any_length(kind, meta.dtype),
        }
    }

    pub(crate) fn accepts(&self, saved: &LeafMeta) -> bool {
        let shape_fits = match &self.shape {
            Some(shape) => *shape == saved.shape,
            None => saved.shape.lengths().len() == 1,
        };
        self.kind == saved.kind && self.dtype == saved.dtype && shape_fits
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.shape, self.kind) {
            (Some(shape), kind) => LeafMeta::new(kind, self.dtype, shape.clone()).fmt(f),
            (None, LeafKind::Array) => write!(f, "{}[any length]", self.dtype),
            (None, kind) => kind.fmt(f),
        }
    }
}

/// The contract of a place for a leaf: `prepare` is called once, with a leaf that `expected`
/// accepts; then `memory` is filled; where it is `None`, `finish` is called once instead. At the
/// end, when all leaves were read without an error, `settle` is called once.
trait Target: Send {
    fn expected(&self) -> Expected;

    fn prepare(&mut self, _saved: &LeafMeta) -> Result<()> {
        Ok(())
    }

    fn memory(&mut self) -> Option<&mut [u8]> {
        None
    }

    fn finish(&mut self, _contents: &[u8]) -> Result<()> {
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Copies contents element by element, for types whose memory can't be filled with any bytes
/// and for arrays that are not contiguous.
fn assign<'t, T: Element>(
    elements: impl IntoIterator<Item = &'t mut T>,
    contents: &[u8],
) -> Result<()> {
    for (slot, bytes) in elements.into_iter().zip(contents.chunks_exact(size_of::<T>())) {
        *slot = T::from_bytes(bytes).ok_or_else(|| no_value(T::DTYPE))?;
    }
    Ok(())
}

fn no_value(dtype: DType) -> Error {
    Error::damaged(format!("the stored bytes are no {dtype}"))
}

fn utf8(contents: &[u8]) -> Result<&str> {
    std::str::from_utf8(contents)
        .map_err(|error| Error::damaged("the stored text is not UTF-8").with_source(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::arr2;

    fn fill(mut target: LeafMut<'_>, leaf: &Leaf<'_>) {
        assert!(target.accepts(leaf.meta()), "{target:?} refuses {}", leaf.meta());
        target.prepare(leaf.meta()).unwrap();
        match target.memory() {
            Some(memory) => memory.copy_from_slice(leaf.contents().unwrap()),
            None => target.finish(leaf.contents().unwrap()).unwrap(),
        }
        target.settle().unwrap();
    }

    #[test]
    fn every_target_takes_the_leaf_of_its_kind() {
        let saved = arr2(&[[1u16, 2, 3], [4, 5, 6]]);
        let leaf = Leaf::from(&saved);
        let mut straight = saved.map(|_| 0u16);
        fill(LeafMut::array(&mut straight), &leaf);
        assert_eq!(straight, saved);
        let mut columns = ndarray::Array2::<u16>::zeros((3, 2)).reversed_axes();
        fill(LeafMut::array(&mut columns), &leaf);
        assert_eq!(columns, saved);
        let mut flat = [0u16; 6];
        fill(LeafMut::from_slice(&mut flat, [2, 3]).unwrap(), &leaf);
        assert_eq!(flat, [1, 2, 3, 4, 5, 6]);
        let mut replaced = Leaf::from_slice(&[0u16; 6], [2, 3]).unwrap().into_owned();
        fill(LeafMut::leaf(&mut replaced), &leaf);
        assert_eq!(replaced, leaf);

        let mut flags = vec![false; 9];
        fill(LeafMut::vec(&mut flags), &Leaf::from_slice(&[true, false], [2]).unwrap());
        assert_eq!(flags, [true, false]);
        let (mut value, mut text) = (0i64, "old".to_owned());
        fill(LeafMut::scalar(&mut value), &Leaf::scalar(-5i64));
        fill(LeafMut::string(&mut text), &Leaf::str("new text"));
        assert_eq!((value, text.as_str()), (-5, "new text"));
        let (mut bytes, mut json) = (vec![1], serde_json::Value::Null);
        fill(LeafMut::bytes(&mut bytes), &Leaf::bytes(&[]));
        fill(LeafMut::json(&mut json), &Leaf::json(&serde_json::json!({"a": [1.5]})));
        assert_eq!((bytes, json), (vec![], serde_json::json!({"a": [1.5]})));
    }

    #[test]
    fn a_target_refuses_other_kinds_types_and_shapes() {
        let mut array = arr2(&[[1f32, 2.0]]);
        let target = LeafMut::array(&mut array);
        for leaf in [
            Leaf::from_slice(&[1f32, 2.0], [2]).unwrap(),
            Leaf::from_slice(&[1f64, 2.0], [1, 2]).unwrap(),
            Leaf::scalar(1f32),
        ] {
            assert!(!target.accepts(leaf.meta()));
        }
        assert_eq!(target.expected().to_string(), "float32[1, 2]");
        assert_eq!(LeafMut::vec(&mut vec![1u8]).expected().to_string(), "uint8[any length]");
        assert!(!LeafMut::vec(&mut vec![1u8]).accepts(Leaf::bytes(&[1]).meta()));
    }
}
