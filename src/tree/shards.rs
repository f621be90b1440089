//! Arrays that are given as the parts that devices hold.

use std::collections::BTreeMap;

use super::data::{Contents, Data, Given};
use super::leaf::Leaf;
use super::meta::{LeafKind, LeafMeta};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::{Region, Shape, copy_common};
use crate::sharding::{Device, Shard, Sharding};

/// What devices hold of an array, and which of them was named first, second and so on.
#[derive(Default)]
struct Held<'a> {
    leaves: BTreeMap<Device, (usize, Leaf<'a>)>,
    /// The element type of the first one.
    dtype: Option<DType>,
}

impl<'a> Held<'a> {
    fn of(shards: impl IntoIterator<Item = (Device, Leaf<'a>)>) -> Result<Self> {
        let mut held = Self::default();
        for (device, leaf) in shards {
            held.dtype.get_or_insert(leaf.meta.dtype);
            if held.leaves.contains_key(&device) {
                return Err(Error::invalid(format!("the shard of {device} is given twice")));
            }
            held.leaves.insert(device, (held.leaves.len(), leaf));
        }
        Ok(held)
    }

    /// Refuses what is left, which no shard of `sharding` is on.
    fn refuse_rest(&self, sharding: &Sharding) -> Result<()> {
        let Some(device) = self.leaves.keys().next() else { return Ok(()) };
        Err(Error::invalid(format!("{device} is no device of {sharding}"))
            .advise("give the shards of its devices alone"))
    }

    /// Takes out what the devices of `shard` hold, and gives the first of it.
    fn take(&mut self, shard: &Shard<'_>, dtype: DType, shape: &Shape) -> Result<Option<Leaf<'a>>> {
        let expected = LeafMeta::array(dtype, shard.region.shape());
        let mut holders = Vec::new();
        for device in &shard.devices {
            let Some((number, leaf)) = self.leaves.remove(*device) else { continue };
            let found = &leaf.meta;
            if (found.kind, found.dtype, &found.shape)
                != (expected.kind, expected.dtype, &expected.shape)
            {
                return Err(Error::invalid(format!(
                    "the shard of {device} is {found}, expected {expected} for the region {} of the array {shape}",
                    shard.region
                )));
            }
            holders.push((number, leaf));
        }
        Ok(holders.into_iter().min_by_key(|(number, _)| *number).map(|(_, leaf)| leaf))
    }
}

impl<'a> Leaf<'a> {
    /// An array of `shape` that is spread over devices, given as what each device holds: JAX's
    /// `make_array_from_single_device_arrays`. Of devices that hold the same region, replicas of each
    /// other, one is enough; of several the first one given counts. A device whose region is empty may
    /// be left out. The contents stay where they are.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// use milepost::Leaf;
    /// use milepost::sharding::{Device, Mesh, NamedSharding, PartitionSpec, Platform};
    ///
    /// let gpus = [0, 1].map(|ordinal| Device::new(Platform::Cuda, ordinal));
    /// let mesh = Mesh::new(gpus.clone(), [("model", 2)])?;
    /// let sharding = NamedSharding::new(mesh, PartitionSpec::new([None, Some("model")]))?;
    /// // Three rows; each device has half of the columns.
    /// let [left, right] = [[1.0f32, 2.0, 5.0, 6.0, 9.0, 10.0], [3.0, 4.0, 7.0, 8.0, 11.0, 12.0]];
    /// let shards = [Leaf::from_slice(&left, [3, 2])?, Leaf::from_slice(&right, [3, 2])?];
    /// let weights = Leaf::from_shards([3, 4], sharding, gpus.into_iter().zip(shards))?;
    /// assert_eq!(weights.meta().to_string(), "float32[3, 4]");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if the shape exceeds a limit or is too short for the sharding; if a device is
    /// none of the sharding's or is there twice, with its name; if what it holds is no array, of
    /// another element type than the others, or not as its region; if a region is missing, with the
    /// region and the devices that should hold it.
    pub fn from_shards(
        shape: impl Into<Vec<usize>>,
        sharding: impl Into<Sharding>,
        shards: impl IntoIterator<Item = (Device, Leaf<'a>)>,
    ) -> Result<Self> {
        let (shape, sharding) = (Shape::new(shape)?, sharding.into());
        let mut held = Held::of(shards)?;
        let Some(dtype) = held.dtype else {
            return Err(Error::invalid(format!(
                "no shard of the array {shape} over {sharding} is given"
            ))
            .advise("give what at least one device holds of each region"));
        };
        let layout = sharding.layout(&shape)?;
        let mut contents = Vec::new();
        for shard in layout.shards() {
            match held.take(&shard, dtype, &shape)? {
                _ if shard.region.elements() == 0 && shape.elements() > 0 => {}
                Some(leaf) => contents.push((shard.region, leaf.into_data()?)),
                None => {
                    let names: Vec<_> = shard.devices.iter().map(ToString::to_string).collect();
                    return Err(Error::invalid(format!(
                        "the region {} of the array {shape} is missing: no shard of {} is given",
                        shard.region,
                        names.join(" or ")
                    )));
                }
            }
        }
        held.refuse_rest(&sharding)?;
        let meta = LeafMeta { sharding: Some(sharding.clone()), ..LeafMeta::array(dtype, shape) };
        // All devices have the whole of it, or it is empty.
        let one = contents.len() == 1 || meta.shape.elements() == 0;
        let contents = match contents.pop() {
            Some((_, data)) if one => Contents::Whole(data),
            last => Contents::Shards(contents.into_iter().chain(last).collect(), Given::All),
        };
        Ok(Self { meta, contents })
    }

    /// An array of `dtype` and `shape` that is spread over devices of several processes, of which this one
    /// gives what its own devices hold: none, some or all of it. It is for
    /// [ranks that share a file](crate::CheckpointStore::open_as_rank); each gives the same element type, shape and
    /// sharding. Of devices that hold the same region, replicas of each other, the first one in the order of
    /// the sharding counts, as in JAX (`replica_id` 0): the rank with that device saves the region, and the
    /// others need not give it.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// use milepost::sharding::{Device, Mesh, NamedSharding, PartitionSpec, Platform};
    /// use milepost::{DType, Leaf};
    ///
    /// let gpus = [0, 1].map(|ordinal| Device::new(Platform::Cuda, ordinal));
    /// let mesh = Mesh::new(gpus.clone(), [("model", 2)])?;
    /// let sharding = NamedSharding::new(mesh, PartitionSpec::new([Some("model")]))?;
    /// // This process has the second GPU.
    /// let bottom = Leaf::from_slice(&[5.0f32, 6.0, 7.0, 8.0], [2, 2])?;
    /// let shards = [(gpus[1].clone(), bottom)];
    /// let weights = Leaf::from_local_shards(DType::F32, [4, 2], sharding, shards)?;
    /// assert_eq!(weights.shards().next().unwrap().0.to_string(), "[2..4, 0..2]");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` as [`from_shards`](Self::from_shards), but for what is missing: that is seen when
    /// all ranks have saved.
    pub fn from_local_shards(
        dtype: DType,
        shape: impl Into<Vec<usize>>,
        sharding: impl Into<Sharding>,
        shards: impl IntoIterator<Item = (Device, Leaf<'a>)>,
    ) -> Result<Self> {
        let (shape, sharding) = (Shape::new(shape)?, sharding.into());
        let mut held = Held::of(shards)?;
        let mut contents = Vec::new();
        for shard in sharding.layout(&shape)?.shards() {
            let first = shard.devices.first();
            let is_ours = first.is_some_and(|first| held.leaves.contains_key(*first));
            let leaf = held.take(&shard, dtype, &shape)?;
            if let Some(leaf) = leaf.filter(|_| is_ours && shard.region.elements() > 0) {
                contents.push((shard.region, leaf.into_data()?));
            }
        }
        held.refuse_rest(&sharding)?;
        let meta = LeafMeta { sharding: Some(sharding), ..LeafMeta::array(dtype, shape) };
        Ok(Self { meta, contents: Contents::Shards(contents, Given::Local) })
    }

    /// Whether the array was given as what this process saves of it.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self.contents, Contents::Shards(_, Given::Local))
    }

    /// Checks that `region`, which lies within the array, was given.
    pub(super) fn check_given(&self, region: &Region) -> Result<()> {
        let Contents::Shards(shards, Given::Local) = &self.contents else { return Ok(()) };
        let common = shards.iter().filter_map(|(shard, _)| shard.common(region));
        if common.map(|common| common.elements()).sum::<usize>() == region.elements() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "the region {region} of {} is not all in this process",
            self.meta
        ))
        .advise("save it in a store that was opened as a rank"))
    }

    /// The same array with a note of how it is spread over devices, which is saved with it. Its
    /// contents are in one piece; a save cuts it as the sharding says.
    ///
    /// # Errors
    /// `InvalidInput` if the leaf is no array, or the sharding has more dimensions than it.
    pub fn with_sharding(mut self, sharding: impl Into<Sharding>) -> Result<Self> {
        let sharding = sharding.into();
        if self.meta.kind != LeafKind::Array {
            return Err(Error::invalid(format!("a {} can't be sharded", self.meta.kind)));
        }
        sharding.layout(&self.meta.shape)?;
        self.meta.sharding = Some(sharding);
        Ok(self)
    }

    /// What the array was given as, if that were several shards, or those of this process: their regions, in
    /// C order and without replicas, and their elements.
    pub fn shards(&self) -> impl Iterator<Item = (&Region, &[u8])> {
        let shards = match &self.contents {
            Contents::Whole(_) => &[][..],
            Contents::Shards(shards, _) => shards,
        };
        shards.iter().map(|(region, data)| (region, data.bytes()))
    }

    fn into_data(self) -> Result<Data<'a>> {
        match self.contents {
            Contents::Whole(data) => Ok(data),
            Contents::Shards(..) => Err(Error::invalid("a shard is given as shards itself")),
        }
    }

    /// Copies a region, which lies within the array, to `out`, which is as long.
    pub(super) fn copy_region(&self, region: &Region, out: &mut [u8]) {
        let element_bytes = self.meta.dtype.size_bytes();
        match &self.contents {
            Contents::Whole(data) => {
                let whole = Region::whole(&self.meta.shape);
                copy_common(element_bytes, (&whole, data.bytes()), (region, out));
            }
            Contents::Shards(shards, _) => {
                for (shard, data) in shards {
                    copy_common(element_bytes, (shard, data.bytes()), (region, out));
                }
            }
        }
    }
}
