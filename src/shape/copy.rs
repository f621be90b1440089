//! Copies between parts of arrays.

use super::Region;

/// Copies what the regions `from` and `to` of an array have in common. `source` and `out` are their
/// elements in C order, of `element_bytes` each.
pub(crate) fn copy_common(
    element_bytes: usize,
    (from, source): (&Region, &[u8]),
    (to, out): (&Region, &mut [u8]),
) {
    let Some(runs) = CommonRuns::new(element_bytes, from, to) else { return };
    let length = runs.run_bytes();
    for (at, to_at) in runs {
        let run = source.get(at..at + length);
        if let (Some(run), Some(place)) = (run, out.get_mut(to_at..to_at + length)) {
            place.copy_from_slice(run);
        }
    }
}

/// What two regions of an array have in common, as runs of bytes that are contiguous in both: where each
/// begins in the one and in the other.
pub(crate) struct CommonRuns {
    run_bytes: usize,
    left: usize,
    at: (usize, usize),
    /// For each axis outside of the runs its length, and the strides in bytes.
    axes: Vec<(usize, (usize, usize))>,
    indices: Vec<usize>,
}

impl CommonRuns {
    /// `None` if they have nothing in common.
    pub(crate) fn new(element_bytes: usize, from: &Region, to: &Region) -> Option<Self> {
        let common = from.common(to)?;
        let lengths = |region: &Region| region.shape().lengths().to_vec();
        let (common_lengths, from_lengths, to_lengths) =
            (lengths(&common), lengths(from), lengths(to));
        // Axes that are whole in all three are contiguous together with the axis before.
        let all = common_lengths.iter().zip(from_lengths.iter().zip(&to_lengths)).rev();
        let whole = all.take_while(|(common, (from, to))| common == from && common == to).count();
        let outer = common_lengths.len().saturating_sub(whole + 1);
        let (outer_lengths, run_lengths) = common_lengths.split_at(outer);
        let place = |region: &Region| {
            let strides = region.shape().strides();
            let skipped = common.ranges().iter().zip(region.ranges());
            let skipped = skipped.map(|(common, range)| common.start - range.start);
            let start: usize =
                skipped.zip(&strides).map(|(skipped, stride)| skipped * stride).sum();
            let strides = strides.into_iter().map(move |stride| stride * element_bytes);
            (start * element_bytes, strides)
        };
        let ((from_at, from_strides), (to_at, to_strides)) = (place(from), place(to));
        Some(Self {
            run_bytes: run_lengths.iter().product::<usize>() * element_bytes,
            left: outer_lengths.iter().product(),
            at: (from_at, to_at),
            axes: outer_lengths.iter().copied().zip(from_strides.zip(to_strides)).collect(),
            indices: vec![0; outer],
        })
    }

    /// The length of each run.
    pub(crate) fn run_bytes(&self) -> usize {
        self.run_bytes
    }
}

impl Iterator for CommonRuns {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        self.left = self.left.checked_sub(1)?;
        let run = self.at;
        // The last axis that has another index goes on, those after it begin again.
        for (index, (length, strides)) in self.indices.iter_mut().zip(&self.axes).rev() {
            *index += 1;
            self.at = (self.at.0 + strides.0, self.at.1 + strides.1);
            if *index < *length {
                break;
            }
            self.at = (self.at.0 - *length * strides.0, self.at.1 - *length * strides.1);
            *index = 0;
        }
        Some(run)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for CommonRuns {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;
    use ndarray::{ArrayD, Slice};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_both_have_is_copied_and_nothing_else(
            axes in prop::collection::vec((1usize..5, [0usize..5, 0..5, 0..5, 0..5]), 0..5),
        ) {
            let lengths: Vec<usize> = axes.iter().map(|axis| axis.0).collect();
            let count = Shape::new(lengths.clone()).unwrap().elements();
            let numbers = (1..=u16::try_from(count).unwrap()).collect();
            let all = ArrayD::from_shape_vec(lengths, numbers).unwrap();
            let region = |first: usize| {
                let range = |(length, ends): &(usize, [usize; 4])| {
                    let (a, b) = (ends[first].min(*length), ends[first + 1].min(*length));
                    a.min(b)..a.max(b)
                };
                Region::new(axes.iter().map(range).collect::<Vec<_>>())
            };
            let of = |array: &ArrayD<u16>, region: &Region| {
                let slice = |axis: usize| Slice::from(region.ranges()[axis].clone());
                array.slice_each_axis(|axis| slice(axis.axis.index())).to_owned()
            };
            let (from, to) = (region(0), region(2));
            let bytes = |array: &ArrayD<u16>| {
                array.iter().flat_map(|element| element.to_le_bytes()).collect::<Vec<_>>()
            };
            let mut expected = ArrayD::<u16>::zeros(all.raw_dim());
            let slice = |axis: usize| Slice::from(from.ranges()[axis].clone());
            let mut part = expected.slice_each_axis_mut(|axis| slice(axis.axis.index()));
            part.assign(&of(&all, &from));
            let mut out = vec![0; to.elements() * 2];
            copy_common(2, (&from, &bytes(&of(&all, &from))), (&to, &mut out));
            prop_assert_eq!(out, bytes(&of(&expected, &to)));
        }
    }
}
