//! Devices in a box with named axes.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::device::Device;
use crate::error::{Error, Result};
use crate::limits::{MAX_DIMENSIONS, MAX_MESH_DEVICES};

/// What a program may do along an axis. It has no meaning for milepost, and is kept with the mesh for
/// JAX.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum AxisType {
    /// The compiler shards along the axis as it sees fit.
    #[default]
    Auto,
    /// Shardings along the axis are part of the types of arrays.
    Explicit,
    /// The program does everything itself.
    Manual,
}

impl AxisType {
    const NAMES: [(Self, &'static str); 3] =
        [(Self::Auto, "Auto"), (Self::Explicit, "Explicit"), (Self::Manual, "Manual")];

    /// The name that JAX gives it.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

/// A named axis of a mesh.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Axis {
    pub(super) name: String,
    pub(super) size: usize,
    pub(super) kind: AxisType,
}

/// Devices, in any order, in a box with named axes: JAX's `Mesh`.
///
/// ```
/// # fn main() -> milepost::Result<()> {
/// use milepost::sharding::{Device, Mesh, Platform};
///
/// let devices: Vec<Device> = (0..8).map(|ordinal| Device::new(Platform::Tpu, ordinal)).collect();
/// let mesh = Mesh::new(devices, [("data", 4), ("model", 2)])?;
/// assert_eq!(mesh.to_string(), "Mesh('data': 4, 'model': 2)");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mesh {
    axes: Vec<Axis>,
    /// In C order: the last axis varies fastest. Shared, since many arrays have the same mesh.
    devices: Arc<[Device]>,
}

impl Mesh {
    /// `devices` in C order (the last axis varies fastest) in a box with these axes and sizes.
    ///
    /// # Errors
    /// `InvalidInput` if an axis has no name, no devices, or the name of another one; if the number of
    /// devices is not the product of the sizes; if a device is there twice; with more than
    /// [`MAX_DIMENSIONS`] axes or [`MAX_MESH_DEVICES`] devices.
    pub fn new<N: Into<String>>(
        devices: impl IntoIterator<Item = Device>,
        axes: impl IntoIterator<Item = (N, usize)>,
    ) -> Result<Self> {
        let axes = axes.into_iter().map(|(name, size)| Axis {
            name: name.into(),
            size,
            kind: AxisType::Auto,
        });
        Self::from_axes(devices.into_iter().collect(), axes.collect())
    }

    pub(super) fn from_axes(devices: Vec<Device>, axes: Vec<Axis>) -> Result<Self> {
        let mesh = Self { axes, devices: devices.into() };
        mesh.check_axes()?;
        mesh.check_devices()?;
        Ok(mesh)
    }

    fn check_axes(&self) -> Result<()> {
        if self.axes.len() > MAX_DIMENSIONS {
            return Err(Error::invalid(format!(
                "the mesh has {} axes, at most {MAX_DIMENSIONS} can be stored",
                self.axes.len()
            )));
        }
        for (number, axis) in self.axes.iter().enumerate() {
            if axis.name.is_empty() {
                return Err(Error::invalid(format!("the axis {number} of the mesh has no name")));
            }
            if axis.size == 0 {
                return Err(Error::invalid(format!("there are no devices along {:?}", axis.name)));
            }
            if self.axes.iter().take(number).any(|other| other.name == axis.name) {
                return Err(Error::invalid(format!(
                    "two axes of the mesh are called {:?}",
                    axis.name
                )));
            }
        }
        Ok(())
    }

    fn check_devices(&self) -> Result<()> {
        let sizes = self.axes.iter().map(|axis| axis.size);
        let size = sizes.fold(1, usize::saturating_mul);
        if size != self.devices.len() {
            return Err(Error::invalid(format!(
                "{self} has {size} places, and there are {} devices",
                self.devices.len()
            )));
        }
        if size > MAX_MESH_DEVICES {
            return Err(Error::invalid(format!(
                "the mesh has {size} devices, at most {MAX_MESH_DEVICES} can be stored"
            )));
        }
        let mut sorted: Vec<_> = self.devices.iter().collect();
        sorted.sort_unstable();
        match sorted.iter().zip(sorted.iter().skip(1)).find(|(a, b)| a == b) {
            Some((device, _)) => {
                Err(Error::invalid(format!("the device {device} is in the mesh twice")))
            }
            None => Ok(()),
        }
    }

    /// Says what a program may do along each axis.
    ///
    /// # Errors
    /// `InvalidInput` if there are more or fewer than axes.
    pub fn with_axis_types(mut self, kinds: &[AxisType]) -> Result<Self> {
        if kinds.len() != self.axes.len() {
            return Err(Error::invalid(format!(
                "there are {} axis types for the {} axes of {self}",
                kinds.len(),
                self.axes.len()
            )));
        }
        for (axis, kind) in self.axes.iter_mut().zip(kinds) {
            axis.kind = *kind;
        }
        Ok(self)
    }

    /// The same axes over other devices, in C order.
    pub(super) fn with_devices(&self, devices: Vec<Device>) -> Result<Self> {
        Self::from_axes(devices, self.axes.clone())
    }

    /// The devices in C order.
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// The names of the axes with their sizes.
    pub fn axes(&self) -> impl ExactSizeIterator<Item = (&str, usize)> {
        self.axes.iter().map(|axis| (axis.name.as_str(), axis.size))
    }

    /// What a program may do along each axis.
    pub fn axis_types(&self) -> impl ExactSizeIterator<Item = AxisType> {
        self.axes.iter().map(|axis| axis.kind)
    }

    /// The number of devices along an axis, if there is one of that name.
    pub fn axis_size(&self, name: &str) -> Option<usize> {
        self.axes.iter().find(|axis| axis.name == name).map(|axis| axis.size)
    }

    /// How far apart in [`Mesh::devices`] two neighbours along an axis are, and how many there are
    /// along it.
    pub(super) fn stride_and_size(&self, name: &str) -> Option<(usize, usize)> {
        let number = self.axes.iter().position(|axis| axis.name == name)?;
        let size = self.axes.get(number)?.size;
        Some((self.axes.iter().skip(number + 1).map(|axis| axis.size).product(), size))
    }
}

impl Hash for Mesh {
    /// Leaves out most devices: whoever looks for a mesh among others has few with the same axes.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.axes.hash(state);
        self.devices.first().hash(state);
    }
}

impl fmt::Display for Mesh {
    /// The axes and their sizes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mesh(")?;
        for (number, (name, size)) in self.axes().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}'{}': {size}", name.escape_debug())?;
        }
        f.write_str(")")
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NamedSharding, PartitionSpec, Platform};
    use super::*;

    fn cpus(numbers: impl IntoIterator<Item = u32>) -> Vec<Device> {
        numbers.into_iter().map(|number| Device::new(Platform::Cpu, number)).collect()
    }

    #[test]
    fn a_mesh_that_is_none_is_refused_by_name() {
        let refused = |devices: Vec<Device>, axes: &[(&str, usize)]| {
            Mesh::new(devices, axes.iter().copied()).unwrap_err().to_string()
        };
        assert!(
            refused(cpus(0..4), &[("x", 2), ("x", 2)])
                .contains("two axes of the mesh are called \"x\"")
        );
        assert!(
            refused(cpus(0..4), &[("x", 2), ("", 2)]).contains("axis 1 of the mesh has no name")
        );
        assert!(refused(cpus([]), &[("x", 0)]).contains("no devices along \"x\""));
        assert!(
            refused(cpus(0..5), &[("x", 2), ("y", 2)]).contains("has 4 places, and there are 5")
        );
        assert!(refused(cpus([0, 1, 2, 1]), &[("x", 4)]).contains("cpu:1 is in the mesh twice"));
        assert!(refused(cpus(0..1), &[("x", usize::MAX), ("y", 2)]).contains("places"));
    }

    #[test]
    fn a_spec_that_does_not_fit_its_mesh_is_refused_by_name() {
        let mesh = Mesh::new(cpus(0..4), [("x", 2), ("y", 2)]).unwrap();
        let refused = |spec| NamedSharding::new(mesh.clone(), spec).unwrap_err().to_string();
        let unknown = refused(PartitionSpec::new([None, Some("z")]));
        assert!(unknown.contains("dimension 1 of PartitionSpec(None, 'z')"), "{unknown}");
        assert!(unknown.contains("Mesh('x': 2, 'y': 2)"), "{unknown}");
        let twice = refused(PartitionSpec::from_dimensions([vec!["x"], vec!["y", "x"]]));
        assert!(twice.contains("\"x\" twice, in the dimensions 0 and 1"), "{twice}");
    }
}
