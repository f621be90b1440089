//! Where the parts of an array are: devices, meshes of them, and the region of the array that each
//! device holds. Terms and rules are those of JAX (`jax.sharding`), the JSON form is that of Orbax.
//!
//! Nothing here touches a device. A device is a name, and which ones there are is what the caller
//! says in a [`DeviceRegistry`].

mod device;
mod device_map;
mod json;
mod layout;
mod mesh;
mod policy;
mod registry;
mod spec;

use std::fmt;

use crate::error::{Error, Result};
use crate::shape::Shape;

pub use device::{Device, Platform};
pub use device_map::DeviceMap;
pub use layout::{Layout, Shard};
pub use mesh::{AxisType, Mesh};
pub(crate) use policy::device_names;
pub use policy::{ShardingPolicies, ShardingPolicy, ShardingReason};
pub use registry::{DeviceInfo, DeviceRegistry};
pub use spec::PartitionSpec;

/// How an array is spread over devices.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Sharding {
    /// Cut along the axes of a mesh.
    Named(NamedSharding),
    /// Whole on one device.
    SingleDevice(SingleDeviceSharding),
}

impl Sharding {
    /// All devices, in the order of the mesh.
    pub fn devices(&self) -> &[Device] {
        match self {
            Self::Named(named) => named.mesh.devices(),
            Self::SingleDevice(single) => std::slice::from_ref(&single.device),
        }
    }

    /// Which region of an array of `shape` each device holds.
    ///
    /// # Errors
    /// `InvalidInput` if the partition spec has more dimensions than the array.
    pub fn layout(&self, shape: &Shape) -> Result<Layout<'_>> {
        match self {
            Self::Named(named) => named.layout(shape),
            Self::SingleDevice(single) => Ok(single.layout(shape)),
        }
    }

    /// Whether every device holds the whole array, of any shape.
    pub fn is_fully_replicated(&self) -> bool {
        match self {
            Self::Named(named) => named.is_fully_replicated(),
            Self::SingleDevice(_) => true,
        }
    }
}

impl From<NamedSharding> for Sharding {
    fn from(named: NamedSharding) -> Self {
        Self::Named(named)
    }
}

impl From<SingleDeviceSharding> for Sharding {
    fn from(single: SingleDeviceSharding) -> Self {
        Self::SingleDevice(single)
    }
}

impl fmt::Display for Sharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(named) => named.fmt(f),
            Self::SingleDevice(single) => single.fmt(f),
        }
    }
}

/// An array cut along the axes of a mesh, as a [`PartitionSpec`] says.
///
/// ```
/// # fn main() -> milepost::Result<()> {
/// use milepost::Shape;
/// use milepost::sharding::{Device, Mesh, NamedSharding, PartitionSpec, Platform};
///
/// let devices: Vec<Device> = (0..8).map(|ordinal| Device::new(Platform::Cuda, ordinal)).collect();
/// let mesh = Mesh::new(devices, [("data", 4), ("model", 2)])?;
/// // The first dimension along `data`, the second whole: each region is on two devices.
/// let sharding = NamedSharding::new(mesh, PartitionSpec::new([Some("data"), None]))?;
/// let shape = Shape::new([100, 10])?;
/// let layout = sharding.layout(&shape)?;
/// let shard = layout.shards().nth(1).unwrap();
/// assert_eq!(shard.region.ranges(), [25..50, 0..10]);
/// assert_eq!(shard.devices[0].to_string(), "cuda:2");
/// assert_eq!(shard.devices[1].to_string(), "cuda:3");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedSharding {
    mesh: Mesh,
    spec: PartitionSpec,
}

impl NamedSharding {
    /// The sharding of arrays over `mesh` as `spec` says.
    ///
    /// # Errors
    /// `InvalidInput` if the spec names an axis that the mesh does not have, or one twice.
    pub fn new(mesh: Mesh, spec: PartitionSpec) -> Result<Self> {
        let mut seen = Vec::new();
        for (dimension, axis) in spec.axes() {
            if mesh.axis_size(axis).is_none() {
                return Err(Error::invalid(format!(
                    "dimension {dimension} of {spec} is cut along the axis {axis:?}, the mesh has {mesh}"
                ))
                .advise("name an axis of the mesh, or None"));
            }
            if let Some((other, _)) = seen.iter().find(|(_, other)| *other == axis) {
                return Err(Error::invalid(format!(
                    "{spec} cuts along the axis {axis:?} twice, in the dimensions {other} and {dimension}"
                ))
                .advise("name each axis of the mesh at most once"));
            }
            seen.push((dimension, axis));
        }
        Ok(Self { mesh, spec })
    }

    /// Every device of `mesh` has the whole array.
    pub fn replicated(mesh: Mesh) -> Self {
        Self { mesh, spec: PartitionSpec::default() }
    }

    /// The devices and the names of their axes.
    pub fn mesh(&self) -> &Mesh {
        &self.mesh
    }

    /// Along which axes each dimension is cut.
    pub fn spec(&self) -> &PartitionSpec {
        &self.spec
    }

    /// Whether every device holds the whole array, of any shape: each axis that is named has one
    /// device.
    pub fn is_fully_replicated(&self) -> bool {
        self.spec.axes().all(|(_, axis)| self.mesh.axis_size(axis) == Some(1))
    }

    /// Which region of an array of `shape` each device holds.
    ///
    /// # Errors
    /// `InvalidInput` if the partition spec has more dimensions than the array.
    pub fn layout(&self, shape: &Shape) -> Result<Layout<'_>> {
        Layout::of(&self.mesh, &self.spec, shape)
    }
}

impl fmt::Display for NamedSharding {
    /// As JAX: `NamedSharding(mesh=Mesh('data': 4, 'model': 2), spec=PartitionSpec('data', None))`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedSharding(mesh={}, spec={})", self.mesh, self.spec)
    }
}

/// An array that is whole on one device.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SingleDeviceSharding {
    device: Device,
}

impl SingleDeviceSharding {
    /// Whole on `device`.
    pub fn new(device: Device) -> Self {
        Self { device }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The whole array, on the device.
    pub fn layout(&self, shape: &Shape) -> Layout<'_> {
        Layout::whole(&self.device, shape)
    }
}

impl fmt::Display for SingleDeviceSharding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SingleDeviceSharding({})", self.device)
    }
}
