//! Copies between parts of arrays.

use super::Region;

/// Copies what the regions `from` and `to` of an array have in common. `source` and `out` are their
/// elements in C order, of `element_bytes` each.
pub(crate) fn copy_common(
    element_bytes: usize,
    (from, source): (&Region, &[u8]),
    (to, out): (&Region, &mut [u8]),
) {
    let Some(common) = from.common(to) else { return };
    let lengths = |region: &Region| region.shape().lengths().to_vec();
    let (common_lengths, from_lengths, to_lengths) = (lengths(&common), lengths(from), lengths(to));
    // Axes that are whole in all three are contiguous together with the axis before.
    let all = common_lengths.iter().zip(from_lengths.iter().zip(&to_lengths)).rev();
    let whole = all.take_while(|(common, (from, to))| common == from && common == to).count();
    let outer = common_lengths.len().saturating_sub(whole + 1);
    let (outer_lengths, row_lengths) = common_lengths.split_at(outer);
    let row_bytes = row_lengths.iter().product::<usize>() * element_bytes;
    let place = |region: &Region| {
        let strides = region.shape().strides();
        let skipped = common.ranges().iter().zip(region.ranges());
        let skipped = skipped.map(|(common, range)| common.start - range.start);
        let start: usize = skipped.zip(&strides).map(|(skipped, stride)| skipped * stride).sum();
        let strides = strides.iter().take(outer).map(|stride| stride * element_bytes);
        (start * element_bytes, strides.collect::<Vec<_>>())
    };
    let ((mut at, source_strides), (mut to_at, out_strides)) = (place(from), place(to));
    let mut indices = vec![0; outer];
    loop {
        let row = source.get(at..at + row_bytes);
        if let (Some(row), Some(place)) = (row, out.get_mut(to_at..to_at + row_bytes)) {
            place.copy_from_slice(row);
        }
        // The next row: the last axis that has one goes on, those after it begin again.
        let axes = indices.iter_mut().zip(outer_lengths);
        let strides = source_strides.iter().zip(&out_strides);
        let mut goes_on = false;
        for ((index, length), (source_stride, out_stride)) in axes.zip(strides).rev() {
            *index += 1;
            (at, to_at) = (at + source_stride, to_at + out_stride);
            if *index < *length {
                goes_on = true;
                break;
            }
            (at, to_at) = (at - *length * source_stride, to_at - *length * out_stride);
            *index = 0;
        }
        if !goes_on {
            return;
        }
    }
}

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
