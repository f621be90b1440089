//! Devices that take the place of others.

use std::fmt;

use super::device::{Device, Platform};
use crate::error::{Error, Result};

/// Which device takes the place of which. Of several rules that match a device the first one counts;
/// a device that none matches stays what it is.
///
/// ```
/// # fn main() -> milepost::Result<()> {
/// use milepost::sharding::DeviceMap;
///
/// // The first GPU stays, the others are now TPUs with the same numbers.
/// let map = DeviceMap::new([("cuda:0", "cuda:0"), ("cuda:*", "tpu:*")])?;
/// assert_eq!(map.get(&"cuda:0".parse()?).to_string(), "cuda:0");
/// assert_eq!(map.get(&"cuda:3".parse()?).to_string(), "tpu:3");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceMap(Vec<(Devices, Devices)>);

/// One device, those of a platform, or all.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Devices {
    One(Device),
    OfPlatform(Platform),
    All,
}

impl DeviceMap {
    /// Rules from → to. On both sides stands a device, `cuda:0`, or the devices of a platform, `cuda:*`;
    /// on the left `*` stands for all devices. `*` on the right keeps the number.
    ///
    /// # Errors
    /// `InvalidInput` if a rule is not of this form.
    pub fn new<F: AsRef<str>, T: AsRef<str>>(
        rules: impl IntoIterator<Item = (F, T)>,
    ) -> Result<Self> {
        let rule = |(from, to): (F, T)| {
            let (from, to) = (devices(from.as_ref())?, devices(to.as_ref())?);
            if to == Devices::All {
                return Err(Error::invalid("a rule for devices maps to `*`")
                    .advise("map to a device, cuda:0, or to the devices of a platform, cuda:*"));
            }
            Ok((from, to))
        };
        Ok(Self(rules.into_iter().map(rule).collect::<Result<_>>()?))
    }

    /// The device that takes the place of `device`.
    pub fn get(&self, device: &Device) -> Device {
        let matches = |from: &Devices| match from {
            Devices::One(one) => one == device,
            Devices::OfPlatform(platform) => platform == device.platform(),
            Devices::All => true,
        };
        match self.0.iter().find(|(from, _)| matches(from)) {
            Some((_, Devices::One(one))) => one.clone(),
            Some((_, Devices::OfPlatform(platform))) => {
                Device::new(platform.clone(), device.ordinal())
            }
            Some((_, Devices::All)) | None => device.clone(),
        }
    }
}

fn devices(text: &str) -> Result<Devices> {
    if text == "*" {
        return Ok(Devices::All);
    }
    match text.strip_suffix(":*") {
        Some(platform) => Ok(Devices::OfPlatform(Platform::new(platform)?)),
        None => Ok(Devices::One(text.parse()?)),
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(device) => device.fmt(f),
            Self::OfPlatform(platform) => write!(f, "{platform}:*"),
            Self::All => f.write_str("*"),
        }
    }
}

impl fmt::Display for DeviceMap {
    /// `cuda:0 → cuda:0, cuda:* → cpu:0`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, (from, to)) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{from} → {to}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_that_matches_counts() {
        let rules = [("gpu:1", "tpu:7"), ("cuda:*", "cpu:*"), ("*", "cpu:0")];
        let map = DeviceMap::new(rules).unwrap();
        for (from, to) in
            [("cuda:1", "tpu:7"), ("cuda:5", "cpu:5"), ("tpu:3", "cpu:0"), ("cpu:2", "cpu:0")]
        {
            assert_eq!(map.get(&from.parse().unwrap()).to_string(), to);
        }
        assert_eq!(map.to_string(), "cuda:1 → tpu:7, cuda:* → cpu:*, * → cpu:0");
        let none = DeviceMap::new::<&str, &str>([]).unwrap();
        assert_eq!(none.get(&"cuda:1".parse().unwrap()).to_string(), "cuda:1");
    }

    #[test]
    fn rules_of_another_form_are_refused() {
        for rule in [
            ("cuda", "cpu:0"),
            ("cuda*", "cpu:0"),
            (":*", "cpu:0"),
            ("cuda::*", "cpu:0"),
            ("cuda:0", "*"),
        ] {
            let error = DeviceMap::new([rule]).unwrap_err();
            assert_eq!(error.kind(), crate::ErrorKind::InvalidInput, "{rule:?}: {error}");
        }
    }
}
