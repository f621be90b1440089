//! Shapes and regions of arrays, all in C order (the last axis varies fastest).
//!
//! The size of a [`Shape`] never overflows, and fits the limits where it comes from or goes to a
//! file; a [`Region`] is checked against its shape where it is used.

mod copy;
mod grid;

use std::fmt;
use std::ops::Range;

use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{MAX_DIMENSIONS, MAX_LEAF_BYTES};

pub(crate) use copy::{CommonRuns, copy_common};
pub(crate) use grid::Grid;

/// The shape of an array: its lengths along each axis. No axes make a zero-dimensional array of
/// one element; an axis of length 0 makes an array without elements.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Shape(Vec<usize>);

impl Shape {
    /// The shape with these axis lengths.
    ///
    /// # Errors
    /// `InvalidInput` with more than [`MAX_DIMENSIONS`] axes, or if the product of the lengths
    /// other than 0 exceeds [`MAX_LEAF_BYTES`].
    pub fn new(lengths: impl Into<Vec<usize>>) -> Result<Self> {
        let shape = Self(lengths.into());
        shape.check()?;
        Ok(shape)
    }

    /// The shape of an array in memory, whose size can't overflow. It may still have more axes
    /// than can be stored, which a save refuses.
    pub(crate) fn in_memory(lengths: &[usize]) -> Self {
        Self(lengths.to_vec())
    }

    /// Checks the limits, as [`Shape::new`] does.
    pub(crate) fn check(&self) -> Result<()> {
        let lengths = &self.0;
        if lengths.len() > MAX_DIMENSIONS {
            return Err(Error::invalid(format!(
                "the array has {} dimensions, at most {MAX_DIMENSIONS} can be stored",
                lengths.len()
            )));
        }
        // As in ndarray, an empty axis does not excuse the others: their strides must fit.
        let product = lengths
            .iter()
            .filter(|&&length| length != 0)
            .try_fold(1u64, |product, &length| product.checked_mul(u64::try_from(length).ok()?));
        match product {
            Some(product) if product <= MAX_LEAF_BYTES => Ok(()),
            _ => Err(Error::invalid(format!(
                "the shape {lengths:?} has more elements than an array can have ({MAX_LEAF_BYTES})"
            ))),
        }
    }

    /// The shape of a one-dimensional array of `length` elements.
    pub(crate) fn vector(length: usize) -> Self {
        Self(vec![length])
    }

    /// The axis lengths.
    pub fn lengths(&self) -> &[usize] {
        &self.0
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.0.iter().product()
    }

    /// The size in bytes of an array of this shape and `dtype`.
    ///
    /// # Errors
    /// `InvalidInput` if it exceeds [`MAX_LEAF_BYTES`].
    pub fn size_bytes(&self, dtype: DType) -> Result<usize> {
        self.elements()
            .checked_mul(dtype.size_bytes())
            .filter(|&size| u64::try_from(size).is_ok_and(|size| size <= MAX_LEAF_BYTES))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::InvalidInput,
                    format!("an array {dtype}{self} exceeds {MAX_LEAF_BYTES} bytes"),
                )
            })
    }

    /// How many elements one step along each axis skips.
    pub(crate) fn strides(&self) -> Vec<usize> {
        let mut strides = vec![1; self.0.len()];
        let mut stride = 1usize;
        for (slot, &length) in strides.iter_mut().zip(&self.0).rev() {
            *slot = stride;
            stride = stride.saturating_mul(length);
        }
        strides
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A box of an array: a range of indices along each axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region(Vec<Range<usize>>);

impl Region {
    /// The region with these index ranges, one for each axis.
    pub fn new(ranges: impl Into<Vec<Range<usize>>>) -> Self {
        Self(ranges.into())
    }

    /// The whole of an array.
    pub fn whole(shape: &Shape) -> Self {
        Self(shape.lengths().iter().map(|&length| 0..length).collect())
    }

    /// The index ranges, one for each axis.
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.0
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.0.iter().map(ExactSizeIterator::len).fold(1, usize::saturating_mul)
    }

    /// Checks that the region lies within `shape`.
    ///
    /// # Errors
    /// `InvalidInput` with the axis, the range and the length of that axis.
    pub fn check(&self, shape: &Shape) -> Result<()> {
        if self.0.len() != shape.lengths().len() {
            return Err(Error::invalid(format!(
                "the region has {} axes, the array {shape} has {}",
                self.0.len(),
                shape.lengths().len()
            )));
        }
        for (axis, (range, &length)) in self.0.iter().zip(shape.lengths()).enumerate() {
            if range.start > range.end || range.end > length {
                return Err(Error::invalid(format!(
                    "the region takes {range:?} of axis {axis}, which has the indices 0..{length}"
                )));
            }
        }
        Ok(())
    }

    /// Of these indices along the first axis, counted from where the region begins, what else the region
    /// has. A region without axes is its only row.
    pub(crate) fn rows(&self, rows: Range<usize>) -> Self {
        let mut ranges = self.0.clone();
        if let Some(first) = ranges.first_mut() {
            *first = first.start + rows.start..first.start + rows.end.min(first.len());
        }
        Self(ranges)
    }

    /// The shape of an array of these elements alone.
    pub(crate) fn shape(&self) -> Shape {
        Shape(self.0.iter().map(ExactSizeIterator::len).collect())
    }

    /// The elements that both regions of an array have; `None` if there are none.
    pub(crate) fn common(&self, other: &Self) -> Option<Self> {
        let both = |(a, b): (&Range<usize>, &Range<usize>)| {
            let common = a.start.max(b.start)..a.end.min(b.end);
            (!common.is_empty()).then_some(common)
        };
        Some(Self(self.0.iter().zip(&other.0).map(both).collect::<Option<_>>()?))
    }

    /// Whether there are elements that both regions of an array have.
    pub(crate) fn meets(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a.start.max(b.start) < a.end.min(b.end))
    }

    /// `inner`, which is a region of this region's elements alone, as a region of the array.
    pub(crate) fn outer(&self, inner: &Self) -> Self {
        let shift = |(range, inner): (&Range<usize>, &Range<usize>)| {
            range.start + inner.start..range.start + inner.end
        };
        Self(self.0.iter().zip(&inner.0).map(shift).collect())
    }

    /// From the first to the last element of `inner`, a region of the same array within this one and not
    /// empty, as numbers of elements of this region alone.
    pub(crate) fn span_of(&self, inner: &Self) -> Range<usize> {
        let strides = self.shape().strides();
        let axes = self.0.iter().zip(&inner.0).zip(&strides);
        let (first, last) = axes.fold((0, 0), |(first, last), ((outer, inner), stride)| {
            let (start, end) = (inner.start - outer.start, inner.end - outer.start);
            (first + start * stride, last + (end - 1) * stride)
        });
        first..last + 1
    }
}

impl fmt::Display for Region {
    /// `[0..2, 4..8]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// Splits the run `elements` of element numbers of an array of `shape` into the fewest boxes
/// whose contents, one after the other, are the run: at most two per axis and one more.
pub(crate) fn boxes(shape: &Shape, elements: Range<usize>) -> Vec<Region> {
    fn split(lengths: &[usize], run: Range<usize>, prefix: &[usize], out: &mut Vec<Region>) {
        let fixed = || prefix.iter().map(|&index| index..index + 1);
        let Some((&length, inner)) = lengths.split_first() else {
            out.push(Region(fixed().collect()));
            return;
        };
        let stride: usize = inner.iter().product();
        let deeper = |index: usize, run: Range<usize>, out: &mut Vec<Region>| {
            let prefix: Vec<_> = prefix.iter().copied().chain([index]).collect();
            split(inner, run, &prefix, out);
        };
        debug_assert!(run.end <= length * stride);
        let (mut first, head) = (run.start / stride, run.start % stride);
        let (last, tail) = (run.end / stride, run.end % stride);
        if head != 0 {
            deeper(first, head..if first == last { tail } else { stride }, out);
            first += 1;
        }
        if first < last {
            let whole = inner.iter().map(|&length| 0..length);
            let rows = std::iter::once(first..last);
            out.push(Region(fixed().chain(rows).chain(whole).collect()));
        }
        if tail != 0 && first <= last {
            deeper(last, 0..tail, out);
        }
    }
    let mut out = Vec::new();
    if !elements.is_empty() {
        split(shape.lengths(), elements, &[], &mut out);
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The numbers of the elements of a region, in its order.
    pub(crate) fn elements(region: &Region, shape: &Shape) -> Vec<usize> {
        let numbers = (0..shape.elements()).collect();
        let all = ndarray::ArrayD::from_shape_vec(shape.lengths(), numbers).unwrap();
        let range = |axis: usize| region.ranges()[axis].clone().into();
        all.slice_each_axis(|axis| range(axis.axis.index())).iter().copied().collect()
    }

    proptest! {
        #[test]
        fn boxes_are_the_run(lengths in prop::collection::vec(1usize..5, 0..4), a in 0usize..200, b in 0usize..200) {
            let shape = Shape::new(lengths.clone()).unwrap();
            let (a, b) = (a % (shape.elements() + 1), b % (shape.elements() + 1));
            let run = a.min(b)..a.max(b);
            let boxes = boxes(&shape, run.clone());
            prop_assert!(boxes.len() <= 2 * lengths.len() + 1);
            let found: Vec<usize> =
                boxes.iter().flat_map(|region| elements(region, &shape)).collect();
            prop_assert_eq!(found, run.collect::<Vec<_>>());
        }
    }

    #[test]
    fn shapes_beyond_the_limits_are_refused_also_with_an_empty_axis() {
        assert!(Shape::new([1usize; 65]).unwrap_err().to_string().contains("65 dimensions"));
        assert_eq!(Shape::new([1 << 40, 1 << 40]).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert!(Shape::new([0, 1 << 40, 1 << 40]).is_err());
        let shape = Shape::new([1 << 58]).unwrap();
        assert!(shape.size_bytes(DType::F64).is_err());
        assert_eq!(Shape::new([]).unwrap().elements(), 1);
        assert_eq!(Shape::new([0, 3]).unwrap().size_bytes(DType::F64).unwrap(), 0);
    }

    #[test]
    fn a_region_outside_says_which_axis() {
        let shape = Shape::new([2, 3]).unwrap();
        let error = Region::new([0..2, 1..4]).check(&shape).unwrap_err();
        assert!(error.to_string().contains("1..4 of axis 1"), "{error}");
        assert!(Region::whole(&Shape::vector(1)).check(&shape).is_err());
    }
}
