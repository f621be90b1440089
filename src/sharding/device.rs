//! Names of devices.

use std::fmt;
use std::str::FromStr;

use crate::error::{Error, Result};

/// The kind of a device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Platform {
    /// `cpu`: the memory of a host.
    Cpu,
    /// `cuda`.
    Cuda,
    /// `rocm`.
    Rocm,
    /// `metal`.
    Metal,
    /// `tpu`.
    Tpu,
    /// One of the user's own, see [`Platform::new`].
    Other(OtherPlatform),
}

/// The name of a platform of the user's own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OtherPlatform(String);

impl Platform {
    const NAMED: [(&'static str, Self); 8] = [
        ("cpu", Self::Cpu),
        ("cuda", Self::Cuda),
        ("rocm", Self::Rocm),
        ("metal", Self::Metal),
        ("tpu", Self::Tpu),
        // Further names of these: JAX before it told the makers of GPUs apart, PyTorch.
        ("gpu", Self::Cuda),
        ("hip", Self::Rocm),
        ("mps", Self::Metal),
    ];

    /// The platform called `name`, in upper or lower case. `gpu` is `cuda`, `hip` is `rocm`, `mps` is
    /// `metal`. Any other name is a platform of the user's own.
    ///
    /// # Errors
    /// `InvalidInput` if the name is not a letter followed by letters, digits, `_` and `-`, all ASCII.
    pub fn new(name: &str) -> Result<Self> {
        let name = name.to_ascii_lowercase();
        if let Some((_, known)) = Self::NAMED.iter().find(|row| row.0 == name) {
            return Ok(known.clone());
        }
        let letter_first = name.starts_with(|first: char| first.is_ascii_alphabetic());
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if letter_first && name.chars().all(is_word) {
            return Ok(Self::Other(OtherPlatform(name)));
        }
        Err(Error::invalid(format!("{name:?} is not the name of a platform"))
            .advise("use a letter followed by letters, digits, _ and -, such as cpu, cuda or tpu"))
    }

    /// The name, in lower case.
    pub fn name(&self) -> &str {
        match self {
            Self::Other(OtherPlatform(name)) => name,
            known => Self::NAMED.iter().find(|row| row.1 == *known).map_or("", |row| row.0),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A device: `cuda:0`. Two devices of one run differ in their platform or in their ordinal, also if
/// they belong to different processes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Device {
    platform: Platform,
    ordinal: u32,
}

impl Device {
    /// The device `ordinal` of `platform`, counted from 0.
    pub fn new(platform: Platform, ordinal: u32) -> Self {
        Self { platform, ordinal }
    }

    /// The kind of the device.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Its number, JAX's `Device.id`.
    pub fn ordinal(&self) -> u32 {
        self.ordinal
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.platform, self.ordinal)
    }
}

/// The devices as JAX has printed them over the years, up to the number that follows.
const PRINTED: [(&str, Platform); 8] = [
    ("TFRT_CPU_", Platform::Cpu),
    ("TPU_", Platform::Tpu),
    ("CpuDevice(id=", Platform::Cpu),
    ("CudaDevice(id=", Platform::Cuda),
    ("RocmDevice(id=", Platform::Rocm),
    ("TpuDevice(id=", Platform::Tpu),
    ("GpuDevice(id=", Platform::Cuda),
    ("StreamExecutorGpuDevice(id=", Platform::Cuda),
];

impl FromStr for Device {
    type Err = Error;

    /// Reads `platform:ordinal`, and what JAX prints: `TFRT_CPU_0`, `TPU_3(process=0,(0,1,0,1))`,
    /// `CudaDevice(id=1)`. What follows the number there is of no meaning here.
    fn from_str(text: &str) -> Result<Self> {
        let not_one = || {
            Error::invalid(format!("{text:?} is not the name of a device"))
                .advise("write platform:ordinal, such as cuda:0")
        };
        if let Some((platform, number)) = text.split_once(':')
            && let (Ok(platform), Some(number)) = (Platform::new(platform), ordinal(number))
        {
            return Ok(Self::new(platform, number));
        }
        for (prefix, platform) in PRINTED {
            if let Some(rest) = text.strip_prefix(prefix) {
                let digits = rest.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
                let tail = rest.get(digits.len()..).unwrap_or_default();
                let ends = tail.is_empty() || tail.starts_with(['(', ')', ',']);
                let ordinal = ordinal(digits).filter(|_| ends).ok_or_else(not_one)?;
                return Ok(Self::new(platform, ordinal));
            }
        }
        Err(not_one())
    }
}

/// Digits alone: `u32::from_str` would take a sign too.
fn ordinal(digits: &str) -> Option<u32> {
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    all_digits.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn devices_print_as_they_are_read_and_old_names_are_understood() {
        for (text, printed) in [
            ("cuda:0", "cuda:0"),
            ("CPU:12", "cpu:12"),
            ("gpu:3", "cuda:3"),
            ("mps:0", "metal:0"),
            ("my-npu_2:7", "my-npu_2:7"),
            // Of the user's own, also where they begin like what JAX prints.
            ("TPU_X:1", "tpu_x:1"),
            ("TFRT_CPU_2:3", "tfrt_cpu_2:3"),
            ("TFRT_CPU_0", "cpu:0"),
            ("TPU_3(process=0,(0,1,0,1))", "tpu:3"),
            ("CudaDevice(id=1)", "cuda:1"),
            ("StreamExecutorGpuDevice(id=2, process_index=0, slice_index=0)", "cuda:2"),
        ] {
            let device: Device = text.parse().unwrap();
            assert_eq!(device.to_string(), printed, "{text}");
            assert_eq!(device, printed.parse().unwrap());
        }
    }

    proptest! {
        #[test]
        fn every_device_is_read_as_it_prints(
            name in "(TFRT_CPU_|TPU_|CpuDevice|gpu|hip|[a-zA-Z])?[a-zA-Z0-9_-]{0,6}",
            ordinal: u32,
        ) {
            let Ok(platform) = Platform::new(&name) else { return Ok(()) };
            let device = Device::new(platform, ordinal);
            prop_assert_eq!(device.to_string().parse::<Device>().unwrap(), device.clone());
            prop_assert_eq!(format!("{name}:{ordinal}").parse::<Device>().unwrap(), device);
        }
    }

    #[test]
    fn what_is_not_a_device_is_refused_with_the_form_that_is() {
        let bad = ["", "cuda", "cuda:", ":0", "cuda:-1", "cuda:+1", "cuda:0x1", "cuda:4294967296"];
        let odd = ["1cuda:0", "cu da:0", "ü:0", "TFRT_CPU_", "TFRT_CPU_1x", "TPU_+1", "cuda:0:1"];
        for text in bad.into_iter().chain(odd) {
            let message = text.parse::<Device>().unwrap_err().to_string();
            assert!(message.contains(&format!("{text:?}")), "{message}");
            assert!(message.contains("such as cuda:0"), "{message}");
        }
    }
}
