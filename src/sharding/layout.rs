//! Device → the region of an array that it holds.

use std::ops::Range;

use super::device::Device;
use super::mesh::Mesh;
use super::spec::PartitionSpec;
use crate::error::{Error, Result};
use crate::shape::{Grid, Region, Shape};

/// A part of an array, and the devices that hold it: one, or several that are replicas of each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shard<'s> {
    /// The part. It may be empty: an array of 5 rows over 4 devices is cut into 2, 2, 1 and 0.
    pub region: Region,
    /// The devices, in the order of the mesh.
    pub devices: Vec<&'s Device>,
}

/// Which region of an array each device holds.
///
/// A dimension of length `n` that is cut into `p` parts has `ceil(n / p)` indices in each part but
/// the last ones, which have what is left or nothing. The shards tile the array: each element is in
/// exactly one.
#[derive(Debug, Clone)]
pub struct Layout<'s> {
    devices: &'s [Device],
    dimensions: Vec<Dimension>,
}

/// How one dimension is cut.
#[derive(Debug, Clone)]
struct Dimension {
    length: usize,
    /// The number of parts.
    parts: usize,
    /// For each axis along which it is cut, the one that varies slowest first, its stride in the
    /// devices of the mesh, and its size.
    axes: Vec<(usize, usize)>,
}

impl Dimension {
    fn whole(length: usize) -> Self {
        Self { length, parts: 1, axes: Vec::new() }
    }

    /// Which part the device at `position` in the mesh has.
    fn part_of(&self, position: usize) -> usize {
        self.axes.iter().fold(0, |part, (stride, size)| part * size + position / stride % size)
    }

    fn indices(&self, part: usize) -> Range<usize> {
        let longest = self.length.div_ceil(self.parts);
        let start = longest.saturating_mul(part).min(self.length);
        start..start.saturating_add(longest).min(self.length)
    }
}

impl<'s> Layout<'s> {
    pub(super) fn of(mesh: &'s Mesh, spec: &PartitionSpec, shape: &Shape) -> Result<Self> {
        let cut = spec.dimensions();
        if cut.len() > shape.lengths().len() {
            return Err(Error::invalid(format!(
                "{spec} has {} dimensions, the array {shape} has {}",
                cut.len(),
                shape.lengths().len()
            ))
            .advise("give at most one entry for each dimension of the array"));
        }
        let dimension = |(number, &length): (usize, &usize)| {
            let names = cut.get(number).map_or(&[][..], Vec::as_slice);
            // The spec was checked against the mesh: each of them is there.
            let axes: Vec<_> = names.iter().filter_map(|name| mesh.stride_and_size(name)).collect();
            let parts = axes.iter().map(|axis| axis.1).product();
            Dimension { length, parts, axes }
        };
        let dimensions = shape.lengths().iter().enumerate().map(dimension).collect();
        Ok(Self { devices: mesh.devices(), dimensions })
    }

    pub(super) fn whole(device: &'s Device, shape: &Shape) -> Self {
        let dimensions = shape.lengths().iter().map(|&length| Dimension::whole(length)).collect();
        Self { devices: std::slice::from_ref(device), dimensions }
    }

    /// The number of shards, empty ones included.
    pub fn shard_count(&self) -> usize {
        // At most as many as devices: no axis is named twice.
        self.dimensions.iter().map(|dimension| dimension.parts).product()
    }

    /// The shards, in C order of their places in the array.
    pub fn shards(&self) -> impl ExactSizeIterator<Item = Shard<'s>> {
        let mut holders: Vec<Vec<&'s Device>> = vec![Vec::new(); self.shard_count()];
        for (position, device) in self.devices.iter().enumerate() {
            if let Some(holders) = holders.get_mut(self.shard_at(position)) {
                holders.push(device);
            }
        }
        let regions: Vec<_> = (0..holders.len()).map(|number| self.region(number)).collect();
        regions.into_iter().zip(holders).map(|(region, devices)| Shard { region, devices })
    }

    /// The cuts between the shards, without the empty ones.
    pub(crate) fn grid(&self, shape: &Shape) -> Grid {
        let starts = |dimension: &'_ Dimension| {
            let parts = (0..dimension.parts).map(|part| dimension.indices(part).start);
            parts.collect::<Vec<_>>()
        };
        Grid::cut(shape, self.dimensions.iter().map(starts))
    }

    /// What `device` holds; `None` if it is none of the sharding's.
    pub fn region_of(&self, device: &Device) -> Option<Region> {
        let position = self.devices.iter().position(|other| other == device)?;
        Some(self.region(self.shard_at(position)))
    }

    /// The number of the shard that the device at `position` has.
    fn shard_at(&self, position: usize) -> usize {
        let number =
            |number, dimension: &Dimension| number * dimension.parts + dimension.part_of(position);
        self.dimensions.iter().fold(0, number)
    }

    /// The region of the shard `number`.
    fn region(&self, number: usize) -> Region {
        let mut rest = number;
        let mut ranges: Vec<_> = self
            .dimensions
            .iter()
            .rev()
            .map(|dimension| {
                let part = rest % dimension.parts;
                rest /= dimension.parts;
                dimension.indices(part)
            })
            .collect();
        ranges.reverse();
        Region::new(ranges)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NamedSharding, Platform, Sharding, SingleDeviceSharding};
    use super::*;
    use crate::shape::tests::elements;
    use proptest::prelude::*;

    fn mesh(axes: &[(&str, usize)]) -> Mesh {
        let size = axes.iter().map(|axis| axis.1).product::<usize>();
        let devices = (0..u32::try_from(size).unwrap()).map(|n| Device::new(Platform::Cuda, n));
        Mesh::new(devices, axes.iter().copied()).unwrap()
    }

    /// What each device has of an array of one dimension.
    fn ranges(sharding: &NamedSharding, length: usize) -> Vec<Range<usize>> {
        let shape = Shape::vector(length);
        let layout = sharding.layout(&shape).unwrap();
        let of = |device| layout.region_of(device).unwrap().ranges()[0].clone();
        sharding.mesh().devices().iter().map(of).collect()
    }

    #[test]
    fn the_first_of_two_axes_varies_slowest() {
        let spec = PartitionSpec::from_dimensions([vec!["x", "y"]]);
        let sharding = NamedSharding::new(mesh(&[("x", 2), ("y", 2)]), spec).unwrap();
        assert_eq!(ranges(&sharding, 8), [0..2, 2..4, 4..6, 6..8]);
        let spec = PartitionSpec::from_dimensions([vec!["y", "x"]]);
        let sharding = NamedSharding::new(mesh(&[("x", 2), ("y", 2)]), spec).unwrap();
        assert_eq!(ranges(&sharding, 8), [0..2, 4..6, 2..4, 6..8]);
    }

    #[test]
    fn uneven_lengths_are_cut_by_ceiling_division() {
        let sharding =
            NamedSharding::new(mesh(&[("x", 4)]), PartitionSpec::new([Some("x")])).unwrap();
        assert_eq!(ranges(&sharding, 5), [0..2, 2..4, 4..5, 5..5]);
        assert_eq!(ranges(&sharding, 0), [0..0, 0..0, 0..0, 0..0]);
    }

    #[test]
    fn replicas_are_one_shard() {
        let sharding = Sharding::from(NamedSharding::replicated(mesh(&[("x", 2), ("y", 3)])));
        assert!(sharding.is_fully_replicated());
        let shape = Shape::new([4]).unwrap();
        let shards: Vec<_> = sharding.layout(&shape).unwrap().shards().collect();
        assert_eq!(shards.len(), 1);
        assert_eq!(shards[0].devices.len(), 6);
        let single = Sharding::from(SingleDeviceSharding::new("cpu:0".parse().unwrap()));
        let scalar = Shape::default();
        let shards: Vec<_> = single.layout(&scalar).unwrap().shards().collect();
        assert_eq!(shards[0].region, Region::whole(&scalar));
    }

    #[test]
    fn a_spec_longer_than_the_array_is_refused() {
        let spec = PartitionSpec::new([None, Some("x")]);
        let sharding = NamedSharding::new(mesh(&[("x", 2)]), spec).unwrap();
        let error = sharding.layout(&Shape::new([4]).unwrap()).unwrap_err().to_string();
        assert!(
            error.contains("PartitionSpec(None, 'x') has 2 dimensions, the array [4] has 1"),
            "{error}"
        );
    }

    /// Axes of a mesh, and for each of them the dimension that it cuts, if it cuts one.
    fn shardings() -> impl Strategy<Value = (Vec<usize>, Vec<(usize, Option<usize>)>)> {
        let lengths = prop::collection::vec(0usize..8, 0..=5);
        let axes = prop::collection::vec((1usize..4, prop::option::of(0usize..5)), 0..4);
        (lengths, axes)
    }

    proptest! {
        #[test]
        fn every_layout_tiles((lengths, axes) in shardings(), turn in 0usize..20) {
            const NAMES: [&str; 3] = ["a", "b", "c"];
            let size = axes.iter().map(|axis| axis.0).product::<usize>();
            let mut devices: Vec<_> =
                (0..u32::try_from(size).unwrap()).map(|n| Device::new(Platform::Tpu, n)).collect();
            devices.rotate_left(turn % size);
            let named = NAMES.iter().zip(&axes);
            let mesh = Mesh::new(devices, named.clone().map(|(name, axis)| (*name, axis.0))).unwrap();
            let mut cut = vec![Vec::new(); lengths.len()];
            for (name, (_, dimension)) in named {
                if let Some(dimension) = dimension && *dimension < lengths.len() {
                    cut[*dimension].push(*name);
                }
            }
            let sharding = NamedSharding::new(mesh, PartitionSpec::from_dimensions(cut)).unwrap();
            let shape = Shape::new(lengths).unwrap();
            let layout = sharding.layout(&shape).unwrap();
            let (mut times, mut holders) = (vec![0; shape.elements()], 0);
            for shard in layout.shards() {
                shard.region.check(&shape).unwrap();
                holders += shard.devices.len();
                for device in shard.devices {
                    prop_assert_eq!(layout.region_of(device), Some(shard.region.clone()));
                }
                for element in elements(&shard.region, &shape) {
                    times[element] += 1;
                }
            }
            prop_assert_eq!(holders, size);
            prop_assert!(times.iter().all(|times| *times == 1));
        }
    }
}
