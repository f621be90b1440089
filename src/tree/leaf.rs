//! One array, scalar, string, byte string or JSON value, with what is known of it.
//!
//! The contents of a leaf are always as long as its element type and shape say: constructors
//! that could break this return an error.

use std::sync::Arc;

use ndarray::{ArcArray, Array, ArrayBase, ArrayD, ArrayViewD, Dimension, IxDyn};
use ndarray::{Data as ArrayData, ViewRepr};

use super::data::{Contents, Data, SharedArray};
use super::meta::{LeafKind, LeafMeta};
use crate::dtype::{DType, Element};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::MAX_JSON_DEPTH;
use crate::shape::Shape;

/// A leaf with its contents, borrowed for `'a`, owned, or shared by reference count.
///
/// Owned and shared arrays (`Array`, `ArcArray`, `Vec`, `Arc<[T]>`) are taken without a copy;
/// views and references are borrowed. An array that is not contiguous in C order is copied once.
#[derive(Debug, Clone)]
pub struct Leaf<'a> {
    pub(super) meta: LeafMeta,
    pub(super) contents: Contents<'a>,
}

impl<'a> Leaf<'a> {
    /// An array that borrows `elements` in C order.
    ///
    /// # Errors
    /// `InvalidInput` if the length of `elements` is not the product of `shape`, or the shape
    /// exceeds a limit.
    pub fn from_slice<T: Element>(elements: &'a [T], shape: impl Into<Vec<usize>>) -> Result<Self> {
        Self::from_raw(T::DTYPE, shape, T::as_bytes(elements))
    }

    /// An array that takes `elements` in C order.
    ///
    /// # Errors
    /// As [`Leaf::from_slice`].
    pub fn from_vec<T: Element>(elements: Vec<T>, shape: impl Into<Vec<usize>>) -> Result<Self> {
        let shape = Shape::new(shape)?;
        check_length(T::DTYPE, &shape, size_of_val(&elements[..]))?;
        Ok(Self::from_parts(LeafMeta::array(T::DTYPE, shape), Data::shared(elements)))
    }

    /// An array that shares `elements` in C order.
    ///
    /// # Errors
    /// As [`Leaf::from_slice`].
    pub fn from_arc<T: Element>(elements: Arc<[T]>, shape: impl Into<Vec<usize>>) -> Result<Self> {
        let shape = Shape::new(shape)?;
        check_length(T::DTYPE, &shape, size_of_val(&elements[..]))?;
        Ok(Self::from_parts(LeafMeta::array(T::DTYPE, shape), Data::shared(elements)))
    }

    /// An array of `dtype` that borrows its little-endian C-order `bytes`.
    ///
    /// # Errors
    /// `InvalidInput` if the length of `bytes` is not what `dtype` and `shape` need, the shape
    /// exceeds a limit, or a byte of a `bool` array is neither 0 nor 1.
    pub fn from_raw(dtype: DType, shape: impl Into<Vec<usize>>, bytes: &'a [u8]) -> Result<Self> {
        let shape = Shape::new(shape)?;
        check_length(dtype, &shape, bytes.len())?;
        if dtype == DType::Bool && bool::view(bytes).is_none() {
            return Err(Error::invalid("a byte of a bool array is neither 0 nor 1"));
        }
        Ok(Self::from_parts(LeafMeta::array(dtype, shape), Data::Borrowed(bytes)))
    }

    /// A scalar.
    pub fn scalar<T: Element>(value: T) -> Self {
        let meta = LeafMeta::new(LeafKind::Scalar, T::DTYPE, Shape::default());
        Self::from_parts(meta, Data::inline(T::as_bytes(&[value])))
    }

    /// A string that borrows `text`.
    pub fn str(text: &'a str) -> Self {
        let meta = LeafMeta::text(LeafKind::String, text.len());
        Self::from_parts(meta, Data::Borrowed(text.as_bytes()))
    }

    /// A string that takes `text`.
    pub fn string(text: String) -> Self {
        let meta = LeafMeta::text(LeafKind::String, text.len());
        Self::from_parts(meta, Data::shared(text))
    }

    /// A byte string that borrows `bytes`; for an array of `uint8` see [`Leaf::from_slice`].
    pub fn bytes(bytes: &'a [u8]) -> Self {
        let meta = LeafMeta::text(LeafKind::Bytes, bytes.len());
        Self::from_parts(meta, Data::Borrowed(bytes))
    }

    /// A JSON value. It is written as text at once.
    ///
    /// A value nested deeper than [`MAX_JSON_DEPTH`] could not be read back; saving it is refused.
    pub fn json(value: &serde_json::Value) -> Self {
        // A value too deep becomes text that is no JSON, which `check` refuses at the save. It
        // is not written out, since that would recurse as deep as the value.
        let text = if json_depth_within(value, MAX_JSON_DEPTH) {
            value.to_string()
        } else {
            String::new()
        };
        let meta = LeafMeta::text(LeafKind::Json, text.len());
        Self::from_parts(meta, Data::shared(text))
    }

    /// A leaf of which `data` is all there is. That the two fit together is checked by
    /// [`Leaf::check`], since a shape given by the caller may have no size at all.
    pub(crate) fn from_parts(meta: LeafMeta, data: Data<'a>) -> Self {
        Self { meta, contents: Contents::Whole(data) }
    }

    /// What the leaf is.
    pub fn meta(&self) -> &LeafMeta {
        &self.meta
    }

    /// The contents: elements in C order and little-endian, UTF-8, bytes, or JSON text. `None` for an
    /// array that was given as several shards, see [`Leaf::shards`].
    pub fn contents(&self) -> Option<&[u8]> {
        match &self.contents {
            Contents::Whole(data) => Some(data.bytes()),
            Contents::Shards(..) => None,
        }
    }

    /// The memory of the contents.
    pub(crate) fn memory(&self) -> Contents<'a> {
        self.contents.clone()
    }

    /// Checks what a constructor leaves to the save.
    pub(crate) fn check(&self) -> Result<()> {
        self.meta.size_bytes()?;
        if self.meta.kind == LeafKind::Json && self.contents() == Some(&[]) {
            return Err(Error::invalid(format!(
                "the JSON value is nested deeper than {MAX_JSON_DEPTH} levels, the most that can be read back"
            )));
        }
        Ok(())
    }

    /// The array as a view; `None` if the leaf is no array of `T`, or its memory is not aligned
    /// for `T` ([`Leaf::into_array`] copies such memory).
    pub fn as_array<T: Element>(&self) -> Option<ArrayViewD<'_, T>> {
        if self.meta.kind != LeafKind::Array || self.meta.dtype != T::DTYPE {
            return None;
        }
        ArrayViewD::from_shape(self.meta.shape.lengths(), T::view(self.contents()?)?).ok()
    }

    /// The array, without a copy if its memory is a `Vec<T>` that nobody else shares, as after
    /// a restore.
    ///
    /// # Errors
    /// `Mismatch` if the leaf is no array of `T`.
    pub fn into_array<T: Element>(self) -> Result<ArrayD<T>> {
        let mismatch = self.mismatch(LeafKind::Array, T::DTYPE);
        if self.meta.kind != LeafKind::Array || self.meta.dtype != T::DTYPE {
            return Err(mismatch);
        }
        let shape = self.meta.shape.lengths().to_vec();
        let elements = match self.contents {
            Contents::Whole(data) => data.into_elements::<T>(),
            Contents::Shards(..) => None,
        };
        elements.and_then(|elements| ArrayD::from_shape_vec(shape, elements).ok()).ok_or(mismatch)
    }

    /// The scalar; `None` if the leaf is no scalar of `T`.
    pub fn as_scalar<T: Element>(&self) -> Option<T> {
        let fits = self.meta.kind == LeafKind::Scalar && self.meta.dtype == T::DTYPE;
        if fits { T::from_bytes(self.contents()?) } else { None }
    }

    /// The text; `None` if the leaf is no string.
    pub fn as_str(&self) -> Option<&str> {
        let text = self.contents().filter(|_| self.meta.kind == LeafKind::String)?;
        std::str::from_utf8(text).ok()
    }

    /// The byte string; `None` if the leaf is none.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        self.contents().filter(|_| self.meta.kind == LeafKind::Bytes)
    }

    /// The JSON value.
    ///
    /// # Errors
    /// `Mismatch` if the leaf is no JSON value.
    pub fn to_json(&self) -> Result<serde_json::Value> {
        let mismatch = || self.mismatch(LeafKind::Json, DType::U8);
        let text = self.contents().filter(|_| self.meta.kind == LeafKind::Json);
        serde_json::from_slice(text.ok_or_else(mismatch)?)
            .map_err(|error| mismatch().with_source(error))
    }

    /// The same leaf for any lifetime: borrowed contents are copied.
    pub fn into_owned(self) -> Leaf<'static> {
        let contents = match self.contents {
            Contents::Whole(data) => Contents::Whole(data.into_owned()),
            Contents::Shards(shards, given) => {
                let owned = shards.into_iter().map(|(region, data)| (region, data.into_owned()));
                Contents::Shards(owned.collect(), given)
            }
        };
        Leaf { meta: self.meta, contents }
    }

    /// The same leaf in the memory that `map` gives for each part of it.
    pub(crate) fn try_map_memory<'b>(
        self,
        map: impl Fn(Data<'a>) -> Result<Data<'b>>,
    ) -> Result<Leaf<'b>> {
        let contents = match self.contents {
            Contents::Whole(data) => Contents::Whole(map(data)?),
            Contents::Shards(shards, given) => {
                let map = |(region, data)| Ok((region, map(data)?));
                Contents::Shards(shards.into_iter().map(map).collect::<Result<_>>()?, given)
            }
        };
        Ok(Leaf { meta: self.meta, contents })
    }

    fn mismatch(&self, kind: LeafKind, dtype: DType) -> Error {
        let expected = match kind {
            LeafKind::Array => format!("an array of {dtype}"),
            kind => format!("a {kind}"),
        };
        Error::new(ErrorKind::Mismatch, format!("expected {expected}, found {}", self.meta))
    }
}

impl PartialEq for Leaf<'_> {
    /// Equal in kind, element type, shape, sharding and every bit of the contents, given alike: in one
    /// piece, as shards or as local shards. A NaN equals itself.
    fn eq(&self, other: &Self) -> bool {
        self.meta == other.meta
            && self.contents() == other.contents()
            && self.is_local() == other.is_local()
            && self.shards().eq(other.shards())
    }
}

/// An array view or reference: borrowed if it is contiguous in C order, else copied once.
impl<'a, T: Element, D: Dimension> From<ArrayBase<ViewRepr<&'a T>, D>> for Leaf<'a> {
    fn from(view: ArrayBase<ViewRepr<&'a T>, D>) -> Self {
        let meta = LeafMeta::array(T::DTYPE, Shape::in_memory(view.shape()));
        let data = match view.to_slice() {
            Some(elements) => Data::Borrowed(T::as_bytes(elements)),
            None => Data::shared(view.iter().copied().collect::<Vec<T>>()),
        };
        Self::from_parts(meta, data)
    }
}

impl<'a, T: Element, S: ArrayData<Elem = T>, D: Dimension> From<&'a ArrayBase<S, D>> for Leaf<'a> {
    fn from(array: &'a ArrayBase<S, D>) -> Self {
        array.view().into()
    }
}

/// An array that is handed over: taken without a copy if it is contiguous in C order.
impl<T: Element, D: Dimension> From<Array<T, D>> for Leaf<'static> {
    fn from(array: Array<T, D>) -> Self {
        let meta = LeafMeta::array(T::DTYPE, Shape::in_memory(array.shape()));
        let elements = if array.is_standard_layout() {
            match array.into_raw_vec_and_offset() {
                (elements, None | Some(0)) if elements.len() == meta.shape.elements() => elements,
                (elements, offset) => {
                    let skipped = elements.into_iter().skip(offset.unwrap_or(0));
                    skipped.take(meta.shape.elements()).collect()
                }
            }
        } else {
            array.iter().copied().collect()
        };
        Self::from_parts(meta, Data::shared(elements))
    }
}

/// An array that is shared: whoever changes it first gets a copy of its own (copy on write).
impl<T: Element, D: Dimension> From<ArcArray<T, D>> for Leaf<'static> {
    fn from(array: ArcArray<T, D>) -> Self {
        let meta = LeafMeta::array(T::DTYPE, Shape::in_memory(array.shape()));
        let array: ArcArray<T, IxDyn> = array.into_dyn();
        let data = if array.is_standard_layout() {
            Data::shared(SharedArray(array))
        } else {
            Data::shared(array.iter().copied().collect::<Vec<T>>())
        };
        Self::from_parts(meta, data)
    }
}

fn check_length(dtype: DType, shape: &Shape, found_bytes: usize) -> Result<()> {
    let expected_bytes = shape.size_bytes(dtype)?;
    if found_bytes == expected_bytes {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "an array {dtype}{shape} has {expected_bytes} bytes, the data has {found_bytes}"
    )))
}

/// Whether arrays and objects nest at most `levels` deep.
fn json_depth_within(value: &serde_json::Value, levels: usize) -> bool {
    let below = levels.checked_sub(1);
    match value {
        serde_json::Value::Array(items) => {
            below.is_some_and(|below| items.iter().all(|item| json_depth_within(item, below)))
        }
        serde_json::Value::Object(fields) => {
            below.is_some_and(|below| fields.values().all(|item| json_depth_within(item, below)))
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Axis, arr2};

    #[test]
    fn arrays_that_are_not_contiguous_are_saved_in_c_order() {
        let array = arr2(&[[1i32, 2, 3], [4, 5, 6]]);
        let transposed = Leaf::from(array.t());
        assert_eq!(transposed.as_array::<i32>().unwrap(), array.t().into_dyn());
        let mut reversed = array.view();
        reversed.invert_axis(Axis(1));
        let reversed = Leaf::from(reversed);
        assert_eq!(i32::view(reversed.contents().unwrap()).unwrap(), [3, 2, 1, 6, 5, 4]);
        let mut column = array.clone();
        column.slice_axis_inplace(Axis(1), (1..2).into());
        assert_eq!(Leaf::from(column).into_array::<i32>().unwrap(), arr2(&[[2], [5]]).into_dyn());
        let mut tail = array;
        tail.slice_axis_inplace(Axis(0), (1..).into());
        assert_eq!(Leaf::from(tail).into_array::<i32>().unwrap(), arr2(&[[4, 5, 6]]).into_dyn());
    }

    #[test]
    fn handed_over_memory_is_not_copied_on_the_way_in_or_out() {
        let elements = vec![1.5f32; 1000];
        let address = elements.as_ptr();
        let leaf = Leaf::from_vec(elements, [10, 100]).unwrap();
        assert_eq!(leaf.contents().unwrap().as_ptr(), address.cast());
        let array = leaf.into_array::<f32>().unwrap();
        assert_eq!(array.as_ptr(), address);
        let shared = array.into_shared();
        let mut mine = shared.clone();
        let leaf = Leaf::from(shared);
        assert_eq!(leaf.contents().unwrap().as_ptr(), address.cast());
        mine[[0, 0]] = 2.0;
        assert_eq!(leaf.as_array::<f32>().unwrap()[[0, 0]].to_bits(), 1.5f32.to_bits());
    }

    #[test]
    fn wrong_lengths_and_kinds_say_expected_and_found() {
        let error = Leaf::from_slice(&[1f32, 2.0], [3]).unwrap_err();
        assert_eq!(error.to_string(), "an array float32[3] has 12 bytes, the data has 8");
        assert!(Leaf::from_raw(DType::Bool, [1], &[7]).is_err());
        let leaf = Leaf::scalar(3u8);
        assert_eq!(leaf.as_scalar::<u8>(), Some(3));
        assert_eq!(leaf.as_scalar::<i8>(), None);
        let error = leaf.into_array::<u8>().unwrap_err();
        assert_eq!(error.to_string(), "expected an array of uint8, found uint8 scalar");
    }

    #[test]
    fn json_that_could_not_be_read_back_is_refused() {
        let nest =
            |depth| (0..depth).fold(serde_json::json!(1), |value, _| serde_json::json!([value]));
        let deepest = Leaf::json(&nest(MAX_JSON_DEPTH));
        deepest.check().unwrap();
        assert_eq!(deepest.to_json().unwrap(), nest(MAX_JSON_DEPTH));
        assert!(Leaf::json(&nest(MAX_JSON_DEPTH + 1)).check().is_err());
        let number = serde_json::json!(0.1f64.powi(9));
        assert_eq!(Leaf::json(&number).to_json().unwrap(), number);
    }

    #[test]
    fn raw_bytes_need_no_alignment() {
        let bytes: Vec<u8> = (0..17).collect();
        let leaf = Leaf::from_raw(DType::U32, [4], &bytes[1..]).unwrap();
        let array = leaf.into_array::<u32>().unwrap();
        assert_eq!(array[0], u32::from_le_bytes([1, 2, 3, 4]));
    }
}
