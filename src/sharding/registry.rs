//! The devices that are here.

use std::collections::HashMap;

use super::device::{Device, Platform};
use super::policy::device_names;
use super::{Mesh, NamedSharding, Sharding};
use crate::error::{Error, Result};

/// A device that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceInfo {
    device: Device,
    process: u32,
    memory_limit_bytes: Option<u64>,
}

impl DeviceInfo {
    /// `device`, of process 0, with as much memory as is needed.
    pub fn new(device: Device) -> Self {
        Self { device, process: 0, memory_limit_bytes: None }
    }

    /// The process that can put bytes on the device.
    #[must_use]
    pub fn with_process(self, process: u32) -> Self {
        Self { process, ..self }
    }

    /// The most bytes that the device can hold.
    #[must_use]
    pub fn with_memory_limit_bytes(self, bytes: u64) -> Self {
        Self { memory_limit_bytes: Some(bytes), ..self }
    }

    /// Its name.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The process that can put bytes on the device.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// The most bytes that the device can hold, if there is a limit.
    pub fn memory_limit_bytes(&self) -> Option<u64> {
        self.memory_limit_bytes
    }
}

/// The devices that are here: those of all processes of this run. The caller says which; nothing is
/// probed.
///
/// ```
/// # fn main() -> milepost::Result<()> {
/// use milepost::sharding::{Device, DeviceInfo, DeviceRegistry, Platform};
///
/// let gpus = (0..2).map(|ordinal| Device::new(Platform::Cuda, ordinal));
/// let registry = DeviceRegistry::new(
///     gpus.map(|gpu| DeviceInfo::new(gpu).with_memory_limit_bytes(80 << 30)),
/// )?;
/// assert!(registry.contains(&"cuda:1".parse()?));
/// assert_eq!(registry.default_device().to_string(), "cuda:0");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRegistry {
    /// Not empty, and no device twice.
    devices: Vec<DeviceInfo>,
    /// Where each device is among them.
    places: HashMap<Device, usize>,
    default: Device,
    process: u32,
}

impl DeviceRegistry {
    /// These devices, seen from process 0. The first one of the process is the default device.
    ///
    /// # Errors
    /// `InvalidInput` if there is none of the process, or one twice.
    pub fn new(devices: impl IntoIterator<Item = DeviceInfo>) -> Result<Self> {
        Self::of_process(0, devices)
    }

    /// These devices, seen from `process`: JAX's `jax.process_index()`.
    ///
    /// # Errors
    /// As [`DeviceRegistry::new`].
    pub fn of_process(process: u32, devices: impl IntoIterator<Item = DeviceInfo>) -> Result<Self> {
        let devices: Vec<_> = devices.into_iter().collect();
        let mut places = HashMap::with_capacity(devices.len());
        for (place, info) in devices.iter().enumerate() {
            if places.insert(info.device.clone(), place).is_some() {
                return Err(Error::invalid(format!(
                    "the device {} is in the registry twice",
                    info.device
                ))
                .advise("number the devices of all processes through, as JAX does"));
            }
        }
        let Some(default) = devices.iter().find(|info| info.process == process) else {
            return Err(Error::invalid(format!(
                "none of the {} devices of the registry belongs to process {process}",
                devices.len()
            ))
            .advise("give at least one, such as cpu:0"));
        };
        let default = default.device.clone();
        Ok(Self { devices, places, default, process })
    }

    /// One host without an accelerator: `cpu:0`.
    pub fn host() -> Self {
        let cpu = Device::new(Platform::Cpu, 0);
        let places = HashMap::from([(cpu.clone(), 0)]);
        Self { devices: vec![DeviceInfo::new(cpu.clone())], places, default: cpu, process: 0 }
    }

    /// Makes another device the default one.
    ///
    /// # Errors
    /// `InvalidInput` if it is not here, or of another process.
    pub fn with_default(self, device: Device) -> Result<Self> {
        match self.get(&device) {
            Some(info) if info.process == self.process => Ok(Self { default: device, ..self }),
            Some(info) => Err(Error::invalid(format!(
                "the default device {device} belongs to process {}, this is process {}",
                info.process, self.process
            ))),
            None => Err(Error::invalid(format!(
                "the default device {device} is not here; there are {}",
                device_names(self.devices.iter().map(DeviceInfo::device))
            ))),
        }
    }

    /// All devices, in the order in which they were given.
    pub fn devices(&self) -> &[DeviceInfo] {
        &self.devices
    }

    /// The devices of this process.
    pub fn local_devices(&self) -> impl Iterator<Item = &DeviceInfo> {
        self.devices.iter().filter(|info| info.process == self.process)
    }

    /// The process that the registry is seen from.
    pub fn process(&self) -> u32 {
        self.process
    }

    /// Where goes what nothing else is said of.
    pub fn default_device(&self) -> &Device {
        &self.default
    }

    /// What is known of `device`, if it is here.
    pub fn get(&self, device: &Device) -> Option<&DeviceInfo> {
        self.devices.get(*self.places.get(device)?)
    }

    /// Whether `device` is here.
    pub fn contains(&self, device: &Device) -> bool {
        self.get(device).is_some()
    }

    /// The devices of `sharding` that are not here.
    pub(super) fn missing<'s>(&self, sharding: &'s Sharding) -> impl Iterator<Item = &'s Device> {
        sharding.devices().iter().filter(|device| !self.contains(device))
    }

    /// The memory of this process as a device: its first `cpu`, or `cpu:0` if it lists none.
    ///
    /// # Errors
    /// `InvalidInput` if it lists none and `cpu:0` is another process's.
    pub(super) fn host_device(&self) -> Result<Device> {
        let is_cpu = |info: &&DeviceInfo| *info.device.platform() == Platform::Cpu;
        if let Some(info) = self.local_devices().find(is_cpu) {
            return Ok(info.device.clone());
        }
        let cpu = Device::new(Platform::Cpu, 0);
        match self.get(&cpu) {
            None => Ok(cpu),
            Some(info) => Err(Error::invalid(format!(
                "process {} has no cpu in the registry, and {cpu} is that of process {}",
                self.process, info.process
            ))
            .advise("list a cpu of its own for each process")),
        }
    }

    /// Whole on each device of the default device's platform.
    pub(super) fn everywhere(&self) -> Result<Sharding> {
        let same = |info: &&DeviceInfo| info.device.platform() == self.default.platform();
        let devices = self.devices.iter().filter(same).map(|info| info.device.clone());
        let devices: Vec<_> = devices.collect();
        let mesh = Mesh::new(devices.clone(), [("replica", devices.len())])?;
        Ok(NamedSharding::replicated(mesh).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpus(numbers: impl IntoIterator<Item = u32>) -> impl Iterator<Item = DeviceInfo> {
        numbers.into_iter().map(|number| DeviceInfo::new(Device::new(Platform::Cuda, number)))
    }

    #[test]
    fn a_registry_knows_whose_devices_are_whose() {
        let devices = gpus(0..4).map(|info| {
            let process = info.device().ordinal() / 2;
            info.with_process(process)
        });
        let registry = DeviceRegistry::of_process(1, devices).unwrap();
        assert_eq!(registry.default_device().to_string(), "cuda:2");
        let local: Vec<_> = registry.local_devices().map(|info| info.device().ordinal()).collect();
        assert_eq!(local, [2, 3]);
        let moved = registry.clone().with_default("cuda:3".parse().unwrap()).unwrap();
        assert_eq!(moved.default_device().to_string(), "cuda:3");
        let error = registry.with_default("cuda:0".parse().unwrap()).unwrap_err().to_string();
        assert!(error.contains("belongs to process 0, this is process 1"), "{error}");
    }

    #[test]
    fn a_registry_without_a_device_or_with_one_twice_is_refused() {
        let error = DeviceRegistry::new(gpus([0, 1, 0])).unwrap_err().to_string();
        assert!(error.contains("cuda:0 is in the registry twice"), "{error}");
        assert!(DeviceRegistry::new([]).unwrap_err().to_string().contains("process 0"));
        assert!(DeviceRegistry::of_process(3, gpus(0..2)).is_err());
        let cpu = "cpu:0".parse().unwrap();
        let error = DeviceRegistry::new(gpus(0..10)).unwrap().with_default(cpu).unwrap_err();
        assert!(error.to_string().contains("cuda:7 and 2 more"), "{error}");
    }
}
