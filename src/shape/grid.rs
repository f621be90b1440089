//! An array cut into boxes that tile it.

use std::cmp::Reverse;
use std::ops::Range;

use super::{Region, Shape};

/// Cuts across an array, through all of it: the parts between them tile it. They are numbered in C order
/// (the part along the last axis varies fastest).
///
/// No part is empty, unless the array is: then there is one, which is the whole.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Grid {
    /// For each axis where its parts begin, and the length at the end.
    cuts: Vec<Vec<usize>>,
}

impl Grid {
    /// The array in one part.
    pub(crate) fn whole(shape: &Shape) -> Self {
        Self { cuts: shape.lengths().iter().map(|&length| vec![0, length]).collect() }
    }

    /// The array cut at these indices of each axis, in any order; those at its ends are no cuts.
    pub(crate) fn cut<A: IntoIterator<Item = usize>>(
        shape: &Shape,
        indices: impl IntoIterator<Item = A>,
    ) -> Self {
        if shape.elements() == 0 {
            return Self::whole(shape);
        }
        let axis = |(&length, indices): (&usize, A)| {
            let within = indices.into_iter().filter(|&index| index < length);
            let mut cuts: Vec<usize> = within.chain([0, length]).collect();
            cuts.sort_unstable();
            cuts.dedup();
            cuts
        };
        Self { cuts: shape.lengths().iter().zip(indices).map(axis).collect() }
    }

    /// The grid whose parts are exactly `regions`, in this order; `None` if there is none.
    pub(crate) fn of_regions(shape: &Shape, regions: &[Region]) -> Option<Self> {
        let starts = |axis: usize| {
            regions.iter().filter_map(move |region| Some(region.ranges().get(axis)?.start))
        };
        let grid = Self::cut(shape, (0..shape.lengths().len()).map(starts));
        let fits = grid.part_count() == regions.len() && grid.parts().eq(regions.iter().cloned());
        fits.then_some(grid)
    }

    /// The same cuts, and others along `axes` between them, so that no part has more than `most` elements if
    /// these axes allow it. Of these the one along which the parts are longest is halved first.
    pub(crate) fn refined(&self, axes: &[usize], most: usize) -> Self {
        let longest = |cuts: &Vec<usize>| {
            let parts = cuts.iter().zip(cuts.iter().skip(1));
            parts.map(|(start, end)| end - start).max().unwrap_or_default()
        };
        let mut lengths: Vec<usize> = self.cuts.iter().map(longest).collect();
        while lengths.iter().copied().fold(1, usize::saturating_mul) > most {
            let of_axes = lengths.iter_mut().enumerate().filter(|(axis, _)| axes.contains(axis));
            let Some((_, length)) = of_axes.max_by_key(|(axis, length)| (**length, Reverse(*axis)))
            else {
                break;
            };
            if *length <= 1 {
                break;
            }
            *length = length.div_ceil(2);
        }
        let refine = |(cuts, length): (&Vec<usize>, &usize)| {
            let parts = cuts.iter().zip(cuts.iter().skip(1));
            let starts = parts.flat_map(|(&start, &end)| (start..end).step_by((*length).max(1)));
            let mut refined: Vec<usize> = starts.collect();
            // An axis without indices is one part all the same.
            if refined.is_empty() {
                refined.extend(cuts.first());
            }
            refined.extend(cuts.last());
            refined
        };
        Self { cuts: self.cuts.iter().zip(&lengths).map(refine).collect() }
    }

    /// The number of parts.
    pub(crate) fn part_count(&self) -> usize {
        let counts = self.cuts.iter().map(|cuts| cuts.len() - 1);
        counts.fold(1, usize::saturating_mul)
    }

    /// The parts in their order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Region> {
        (0..self.part_count()).map(|number| self.part(number))
    }

    /// The part `number`.
    pub(crate) fn part(&self, number: usize) -> Region {
        let mut rest = number;
        let mut ranges: Vec<Range<usize>> = Vec::with_capacity(self.cuts.len());
        for cuts in self.cuts.iter().rev() {
            let at = rest % (cuts.len() - 1);
            rest /= cuts.len() - 1;
            let bound = |at: usize| cuts.get(at).copied().unwrap_or_default();
            ranges.push(bound(at)..bound(at + 1));
        }
        ranges.reverse();
        Region::new(ranges)
    }

    /// The numbers of the parts that have elements of `region`, ascending.
    pub(crate) fn parts_of(&self, region: &Region) -> Vec<usize> {
        if region.elements() == 0 {
            return Vec::new();
        }
        let mut numbers = vec![0];
        for (cuts, range) in self.cuts.iter().zip(region.ranges()) {
            let first = cuts.partition_point(|cut| *cut <= range.start) - 1;
            let end = cuts.partition_point(|cut| *cut < range.end);
            let along = |number: usize| (first..end).map(move |at| number * (cuts.len() - 1) + at);
            numbers = numbers.into_iter().flat_map(along).collect();
        }
        numbers
    }

    /// Whether the parts, one after the other, are the array in C order.
    pub(crate) fn is_in_order(&self) -> bool {
        // A part has one index of each axis before the last one that is cut.
        let last_cut = self.cuts.iter().rposition(|cuts| cuts.len() > 2).unwrap_or(0);
        self.cuts.iter().take(last_cut).all(|cuts| cuts.last() == Some(&(cuts.len() - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::tests::elements;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_parts_tile_the_array(
            lengths_and_cuts in
                prop::collection::vec((0usize..6, prop::collection::vec(0usize..8, 0..4)), 0..4),
            region in prop::collection::vec((0usize..6, 0usize..6), 4),
            axes in prop::collection::vec(0usize..4, 1..3),
            most in 1usize..40,
        ) {
            let (lengths, cuts): (Vec<_>, Vec<_>) = lengths_and_cuts.into_iter().unzip();
            let shape = Shape::new(lengths.clone()).unwrap();
            let grid = Grid::cut(&shape, cuts);
            let parts: Vec<Region> = grid.parts().collect();
            prop_assert_eq!(parts.len(), grid.part_count());
            let refined = grid.refined(&axes, most);
            for (axis, (cuts, of_grid)) in refined.cuts.iter().zip(&grid.cuts).enumerate() {
                prop_assert!(cuts.is_sorted() && of_grid.iter().all(|cut| cuts.contains(cut)));
                prop_assert!(axes.contains(&axis) || cuts == of_grid);
            }
            for part in refined.parts() {
                let in_axes = part.ranges().iter().enumerate().filter(|part| axes.contains(&part.0));
                let is_least = in_axes.map(|(_, range)| range.len()).all(|length| length <= 1);
                prop_assert!(part.elements() <= most || is_least, "{part:?}");
            }
            prop_assert_eq!(refined.refined(&axes, most), refined);
            let in_parts: Vec<usize> =
                parts.iter().flat_map(|part| elements(part, &shape)).collect();
            prop_assert_eq!(grid.is_in_order(), in_parts.is_sorted());
            let mut sorted = in_parts;
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..shape.elements()).collect::<Vec<_>>());
            prop_assert_eq!(Grid::of_regions(&shape, &parts), Some(grid.clone()));
            if parts.len() > 1 {
                prop_assert_eq!(Grid::of_regions(&shape, &parts[1..]), None);
                let mut turned = parts.clone();
                turned.rotate_left(1);
                prop_assert_eq!(Grid::of_regions(&shape, &turned), None);
            }
            let bounded = region.iter().zip(&lengths).map(|((a, b), length)| {
                let (a, b) = (*a.min(length), *b.min(length));
                a.min(b)..a.max(b)
            });
            let region = Region::new(bounded.collect::<Vec<_>>());
            let meets = |part: &Region| part.common(&region).is_some();
            let expected = (0..parts.len()).filter(|number| meets(&parts[*number]));
            prop_assert_eq!(grid.parts_of(&region), expected.collect::<Vec<_>>());
        }
    }
}
