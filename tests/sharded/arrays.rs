//! Arrays and how they are spread over devices.

use milepost::sharding::{Device, Mesh, NamedSharding, PartitionSpec, Platform, Sharding};
use milepost::{Leaf, Region, Shape, Tree};
use proptest::prelude::*;

use crate::common;

/// An array in one piece, with how it is spread.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) shape: Vec<usize>,
    pub(crate) elements: Vec<u32>,
    pub(crate) sharding: Sharding,
}

impl Array {
    pub(crate) fn region(&self, region: &Region) -> Vec<u32> {
        let all = ndarray::ArrayViewD::from_shape(&self.shape[..], &self.elements).unwrap();
        let range = |axis: usize| region.ranges()[axis].clone().into();
        all.slice_each_axis(|axis| range(axis.axis.index())).iter().copied().collect()
    }

    /// What each device holds.
    pub(crate) fn shards(&self) -> Vec<(Device, Vec<u32>, Vec<usize>)> {
        let shape = Shape::new(self.shape.clone()).unwrap();
        let layout = self.sharding.layout(&shape).unwrap();
        let shard = |device: &Device| {
            let region = layout.region_of(device).unwrap();
            let lengths = region.ranges().iter().map(ExactSizeIterator::len).collect();
            (device.clone(), self.region(&region), lengths)
        };
        self.sharding.devices().iter().map(shard).collect()
    }

    pub(crate) fn leaf(&self) -> Leaf<'static> {
        let shards = self.shards().into_iter().map(|(device, elements, lengths)| {
            (device, Leaf::from_vec(elements, lengths).unwrap())
        });
        Leaf::from_shards(self.shape.clone(), self.sharding.clone(), shards).unwrap()
    }

    pub(crate) fn whole(&self) -> Leaf<'static> {
        Leaf::from_vec(self.elements.clone(), self.shape.clone()).unwrap()
    }
}

pub(crate) fn gpus(count: u32) -> Vec<Device> {
    (0..count).map(|ordinal| Device::new(Platform::Cuda, ordinal)).collect()
}

pub(crate) fn named(axes: &[(&str, usize)], spec: &[Option<&str>]) -> Sharding {
    let count: usize = axes.iter().map(|axis| axis.1).product();
    let mesh = Mesh::new(gpus(u32::try_from(count).unwrap()), axes.iter().copied()).unwrap();
    NamedSharding::new(mesh, PartitionSpec::new(spec.iter().copied())).unwrap().into()
}

/// Arrays of up to three dimensions on up to 3 × 2 devices, with each dimension along any axes.
pub(crate) fn arrays() -> impl Strategy<Value = Array> {
    let mesh = (1usize..4, 1usize..3);
    let shape = prop::collection::vec(prop_oneof![0usize..8, Just(61), Just(120)], 0..4);
    // Rows that are long enough to be given to a thread each.
    let wide = prop::option::of(Just(1100));
    (mesh, shape, wide, any::<[prop::sample::Index; 2]>(), any::<u32>()).prop_map(
        |((x, y), mut shape, wide, places, seed)| {
            shape.truncate(if wide.is_some() { 1 } else { 3 });
            shape.extend(wide);
            let mut spec = vec![Vec::new(); shape.len()];
            for (axis, place) in ["x", "y"].iter().zip(places) {
                // A place beyond the last dimension: not cut along this axis.
                if let Some(dimension) = spec.get_mut(place.index(shape.len() + 1)) {
                    dimension.push(*axis);
                }
            }
            let devices = gpus(u32::try_from(x * y).unwrap()).into_iter().rev();
            let mesh = Mesh::new(devices, [("x", x), ("y", y)]).unwrap();
            let spec = PartitionSpec::from_dimensions(spec);
            let sharding = NamedSharding::new(mesh, spec).unwrap().into();
            let elements = common::gappy(seed, shape.iter().product());
            Array { shape, elements, sharding }
        },
    )
}

pub(crate) fn state(
    arrays: &[Array],
    leaf: impl Fn(&Array) -> Leaf<'static>,
) -> Tree<Leaf<'static>> {
    Tree::list(arrays.iter().map(|array| Tree::Leaf(leaf(array))))
}
