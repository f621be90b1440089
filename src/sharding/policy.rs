//! Which sharding an array gets at restore.

use std::fmt;

use super::{
    Device, DeviceMap, DeviceRegistry, Mesh, NamedSharding, Sharding, SingleDeviceSharding,
};
use crate::error::{Error, ErrorKind, Result};
use crate::path::{KeyPath, PathRules};

/// How the sharding of an array is chosen at restore.
///
/// Whatever is chosen must be on devices that are here: in the [`DeviceRegistry`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum ShardingPolicy {
    /// The sharding that the target names; else the saved one, if all its devices are here; else the
    /// array is whole on the default device of the registry.
    #[default]
    Automatic,
    /// The saved sharding, and nothing else. An array that was saved without one goes to the host.
    AsSaved,
    /// This one.
    Sharding(Sharding),
    /// This mesh, cut along the axes along which the array was cut when it was saved. An array that was
    /// on one device, or saved without a sharding, is replicated.
    OntoMesh(Mesh),
    /// Whole on each device of the default device's platform.
    Replicate,
    /// Whole in the memory of this process: on its first `cpu` device, or `cpu:0` if it lists none.
    Host,
    /// As saved, with other devices in the place of the saved ones. An array whose devices are all
    /// mapped to one is whole there; one that was saved without a sharding goes to the default device.
    MapDevices(DeviceMap),
}

/// The [`ShardingPolicy`] of each array: one for all, and others for those with certain paths.
///
/// ```
/// # fn main() -> milepost::Result<()> {
/// use milepost::sharding::{ShardingPolicies, ShardingPolicy};
///
/// // The weights come back as they were, the optimizer's state waits on the host.
/// let policies = ShardingPolicies::new(ShardingPolicy::AsSaved)
///     .for_leaves("opt_state/**", ShardingPolicy::Host)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct ShardingPolicies(PathRules<ShardingPolicy>);

impl ShardingPolicies {
    /// The same policy for all arrays.
    pub fn new(policy: ShardingPolicy) -> Self {
        Self(PathRules::new(policy))
    }

    /// Another policy for the arrays whose paths match a pattern, which is written as for
    /// [`StoreOptions::compression_for`](crate::StoreOptions::compression_for); of several that match,
    /// the last one counts.
    ///
    /// # Errors
    /// `InvalidInput` if it is no pattern.
    pub fn for_leaves(mut self, pattern: &str, policy: ShardingPolicy) -> Result<Self> {
        self.0.add(pattern, policy)?;
        Ok(self)
    }

    pub(crate) fn of(&self, path: &KeyPath) -> &ShardingPolicy {
        self.0.of(path)
    }
}

impl From<ShardingPolicy> for ShardingPolicies {
    fn from(policy: ShardingPolicy) -> Self {
        Self::new(policy)
    }
}

/// Why an array has the sharding that it has after a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShardingReason {
    /// The target names it.
    Target,
    /// It is the saved one.
    Saved,
    /// Saved devices are not here, so it is on the default device.
    DevicesMissing,
    /// It was saved without a sharding, so it is on the default device or the host.
    SavedWithout,
    /// The policy names it.
    Policy,
    /// It is the saved partition spec on the mesh of the policy.
    SavedSpec,
    /// It was saved without a partition spec, so it is replicated over the mesh of the policy.
    SavedWithoutSpec,
    /// The policy replicates.
    Replicated,
    /// The policy is to restore to the host.
    Host,
    /// The policy maps the saved devices.
    Mapped,
}

impl fmt::Display for ShardingReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Target => "named by the target",
            Self::Saved => "as saved",
            Self::DevicesMissing => "saved devices are not here",
            Self::SavedWithout => "saved without a sharding",
            Self::Policy => "named by the policy",
            Self::SavedSpec => "the saved spec on another mesh",
            Self::SavedWithoutSpec => "saved without a spec, so replicated",
            Self::Replicated => "replicated",
            Self::Host => "to the host",
            Self::Mapped => "on other devices",
        })
    }
}

impl ShardingPolicy {
    /// The sharding of an array for which the target names `target` and that was saved with `saved`.
    ///
    /// # Errors
    /// `DevicesMissing` if it is on devices that are not here; `InvalidInput` if the policy can't be
    /// applied to it.
    pub(crate) fn resolve(
        &self,
        target: Option<&Sharding>,
        saved: Option<&Sharding>,
        registry: &DeviceRegistry,
    ) -> Result<(Sharding, ShardingReason)> {
        let default = || single(registry.default_device().clone());
        let (sharding, reason) = match (self, target, saved) {
            (Self::Automatic, Some(target), _) => (target.clone(), ShardingReason::Target),
            (Self::Automatic, None, Some(saved)) if registry.missing(saved).next().is_some() => {
                return Ok((default(), ShardingReason::DevicesMissing));
            }
            (Self::Automatic | Self::AsSaved, _, Some(saved)) => {
                (saved.clone(), ShardingReason::Saved)
            }
            (Self::Automatic | Self::MapDevices(_), _, None) => {
                return Ok((default(), ShardingReason::SavedWithout));
            }
            (Self::AsSaved, _, None) => {
                return Ok((single(registry.host_device()?), ShardingReason::SavedWithout));
            }
            (Self::Host, _, _) => {
                return Ok((single(registry.host_device()?), ShardingReason::Host));
            }
            (Self::Sharding(sharding), _, _) => (sharding.clone(), ShardingReason::Policy),
            (Self::OntoMesh(mesh), _, Some(Sharding::Named(saved))) => {
                let named = NamedSharding::new(mesh.clone(), saved.spec().clone())?;
                (named.into(), ShardingReason::SavedSpec)
            }
            (Self::OntoMesh(mesh), _, _) => {
                let named = NamedSharding::replicated(mesh.clone());
                (named.into(), ShardingReason::SavedWithoutSpec)
            }
            (Self::Replicate, _, _) => (registry.everywhere()?, ShardingReason::Replicated),
            (Self::MapDevices(map), _, Some(saved)) => {
                (mapped(saved, map)?, ShardingReason::Mapped)
            }
        };
        check_devices(&sharding, reason, registry)?;
        Ok((sharding, reason))
    }
}

fn single(device: Device) -> Sharding {
    SingleDeviceSharding::new(device).into()
}

fn mapped(saved: &Sharding, map: &DeviceMap) -> Result<Sharding> {
    let named = match saved {
        Sharding::Named(named) => named,
        Sharding::SingleDevice(saved) => return Ok(single(map.get(saved.device()))),
    };
    let devices: Vec<Device> = saved.devices().iter().map(|device| map.get(device)).collect();
    if let [one, others @ ..] = &devices[..]
        && !others.is_empty()
        && others.iter().all(|device| device == one)
    {
        return Ok(single(one.clone()));
    }
    let mesh = named.mesh().with_devices(devices).map_err(|error| {
        let message = format!("the saved devices can't be mapped by {map}: {error}");
        Error::invalid(message).advise("map all of them to one device, or each to its own")
    })?;
    Ok(NamedSharding::new(mesh, named.spec().clone())?.into())
}

fn check_devices(
    sharding: &Sharding,
    reason: ShardingReason,
    registry: &DeviceRegistry,
) -> Result<()> {
    let missing: Vec<_> = registry.missing(sharding).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let on = match reason {
        ShardingReason::Saved => "it was saved on",
        ShardingReason::Target => "the target has it on",
        ShardingReason::Mapped => "it is mapped to",
        _ => "the policy has it on",
    };
    let devices = device_names(sharding.devices());
    let what = if missing.len() == sharding.devices().len() {
        format!("{on} {devices}, which is not here")
    } else {
        format!("{on} {devices}, of which {} is not here", device_names(missing))
    };
    Err(Error::new(ErrorKind::DevicesMissing, what))
}

/// The first few devices, and how many more there are.
pub(crate) fn device_names<'d>(devices: impl IntoIterator<Item = &'d Device>) -> String {
    const SHOWN: usize = 8;
    let mut devices = devices.into_iter();
    let names: Vec<_> = devices.by_ref().take(SHOWN).map(ToString::to_string).collect();
    let more = devices.count();
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    names.join(", ") + &more
}

#[cfg(test)]
mod tests {
    use super::super::{DeviceInfo, PartitionSpec, Platform};
    use super::*;

    fn devices(platform: &Platform, count: u32) -> Vec<Device> {
        (0..count).map(|ordinal| Device::new(platform.clone(), ordinal)).collect()
    }

    fn registry(devices: Vec<Device>) -> DeviceRegistry {
        DeviceRegistry::new(devices.into_iter().map(DeviceInfo::new)).unwrap()
    }

    /// Cut along `model` over so many GPUs.
    fn over_gpus(count: u32) -> Sharding {
        let gpus = devices(&Platform::Cuda, count);
        let mesh = Mesh::new(gpus, [("model", usize::try_from(count).unwrap())]).unwrap();
        NamedSharding::new(mesh, PartitionSpec::new([Some("model")])).unwrap().into()
    }

    /// What `policy` makes of an array that was saved over two GPUs.
    fn resolved(policy: &ShardingPolicy, registry: &DeviceRegistry) -> (String, ShardingReason) {
        let (sharding, reason) = policy.resolve(None, Some(&over_gpus(2)), registry).unwrap();
        (sharding.to_string(), reason)
    }

    #[test]
    fn automatic_takes_the_target_then_the_saved_devices_then_the_default_one() {
        let (policy, saved) = (ShardingPolicy::Automatic, over_gpus(2));
        let gpus = registry(devices(&Platform::Cuda, 4));
        let resolve = |target, saved, registry| policy.resolve(target, saved, registry).unwrap();
        let target = over_gpus(4);
        let named = resolve(Some(&target), Some(&saved), &gpus);
        assert_eq!(named, (target.clone(), ShardingReason::Target));
        let same = resolve(None, Some(&saved), &gpus);
        assert_eq!(same, (saved.clone(), ShardingReason::Saved));
        let one_gpu = registry(devices(&Platform::Cuda, 1));
        let (moved, reason) = resolve(None, Some(&saved), &one_gpu);
        assert_eq!(moved.to_string(), "SingleDeviceSharding(cuda:0)");
        assert_eq!(reason, ShardingReason::DevicesMissing);
        let (placed, reason) = resolve(None, None, &DeviceRegistry::host());
        assert_eq!(placed.to_string(), "SingleDeviceSharding(cpu:0)");
        assert_eq!(reason, ShardingReason::SavedWithout);
    }

    #[test]
    fn devices_that_are_not_here_are_refused_by_name() {
        let cases = [
            (ShardingPolicy::AsSaved, None, "it was saved on cuda:0, cuda:1, of which cuda:1"),
            (ShardingPolicy::Automatic, Some(over_gpus(3)), "the target has it on cuda:0, cuda:1"),
            (ShardingPolicy::Sharding(over_gpus(2)), None, "the policy has it on cuda:0, cuda:1"),
            (
                ShardingPolicy::MapDevices(DeviceMap::new([("cuda:*", "tpu:*")]).unwrap()),
                None,
                "it is mapped to tpu:0, tpu:1, which is not here",
            ),
        ];
        let here = registry(devices(&Platform::Cuda, 1));
        for (policy, target, expected) in cases {
            let error = policy.resolve(target.as_ref(), Some(&over_gpus(2)), &here).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DevicesMissing);
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn the_saved_spec_goes_onto_another_mesh() {
        let mesh = |name| Mesh::new(devices(&Platform::Cuda, 4), [(name, 4)]).unwrap();
        let here = registry(devices(&Platform::Cuda, 4));
        let policy = ShardingPolicy::OntoMesh(mesh("model"));
        let (sharding, reason) = policy.resolve(None, Some(&over_gpus(2)), &here).unwrap();
        assert_eq!((sharding, reason), (over_gpus(4), ShardingReason::SavedSpec));
        let single = single(Device::new(Platform::Cuda, 0));
        for saved in [None, Some(&single)] {
            let (sharding, reason) = policy.resolve(None, saved, &here).unwrap();
            assert!(sharding.is_fully_replicated());
            assert_eq!((sharding.devices().len(), reason), (4, ShardingReason::SavedWithoutSpec));
        }
        let other = ShardingPolicy::OntoMesh(mesh("data"));
        let error = other.resolve(None, Some(&over_gpus(2)), &here).unwrap_err().to_string();
        assert!(error.contains("\"model\"") && error.contains("Mesh('data': 4)"), "{error}");
    }

    #[test]
    fn devices_are_mapped_to_one_or_each_to_its_own() {
        let map = |rules: &[(&str, &str)]| {
            ShardingPolicy::MapDevices(DeviceMap::new(rules.iter().copied()).unwrap())
        };
        let here = registry(devices(&Platform::Cpu, 2));
        let (one, reason) = resolved(&map(&[("cuda:*", "cpu:1")]), &here);
        assert_eq!((one.as_str(), reason), ("SingleDeviceSharding(cpu:1)", ShardingReason::Mapped));
        let policy = map(&[("cuda:0", "cpu:1"), ("cuda:1", "cpu:0")]);
        let (swapped, _) = policy.resolve(None, Some(&over_gpus(2)), &here).unwrap();
        assert_eq!(device_names(swapped.devices()), "cpu:1, cpu:0");
        let policy = map(&[("cuda:0", "cpu:0"), ("cuda:*", "cpu:1")]);
        let error = policy.resolve(None, Some(&over_gpus(3)), &here).unwrap_err().to_string();
        assert!(error.contains("the device cpu:1 is in the mesh twice"), "{error}");
    }

    #[test]
    fn replicas_and_the_host() {
        let mut all = devices(&Platform::Cuda, 3);
        all.push(Device::new(Platform::Cpu, 4));
        let here = registry(all);
        let (host, reason) = resolved(&ShardingPolicy::Host, &here);
        assert_eq!((host.as_str(), reason), ("SingleDeviceSharding(cpu:4)", ShardingReason::Host));
        let (everywhere, _) =
            ShardingPolicy::Replicate.resolve(None, Some(&over_gpus(2)), &here).unwrap();
        assert_eq!(device_names(everywhere.devices()), "cuda:0, cuda:1, cuda:2");
        assert!(everywhere.is_fully_replicated());
        let gpus = registry(devices(&Platform::Cuda, 1));
        assert_eq!(resolved(&ShardingPolicy::Host, &gpus).0, "SingleDeviceSharding(cpu:0)");
    }

    #[test]
    fn policies_go_by_path() {
        let policies = ShardingPolicies::new(ShardingPolicy::AsSaved)
            .for_leaves("opt_state/**", ShardingPolicy::Host)
            .unwrap();
        let of = |path: &str| policies.of(&path.parse().unwrap()).clone();
        assert!(matches!(of("params/w"), ShardingPolicy::AsSaved));
        assert!(matches!(of("opt_state/mu/w"), ShardingPolicy::Host));
    }
}
