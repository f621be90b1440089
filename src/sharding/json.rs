//! Shardings as JSON, in the form in which Orbax writes them next to its checkpoints
//! (`orbax.checkpoint`, `_src/metadata/sharding.py`):
//!
//! ```text
//! {"sharding_type": "NamedSharding", "shape": [2, 2], "axis_names": ["x", "y"],
//!  "axis_types": ["Auto", "Auto"], "partition_spec": ["x", null],
//!  "device_mesh": {"mesh": [[{"id": 0}, {"id": 1}], [{"id": 2}, {"id": 3}]]}}
//! {"sharding_type": "SingleDeviceSharding", "device_str": "cuda:0"}
//! ```
//!
//! Orbax writes of a device in a mesh its number alone. milepost adds `"platform": "cuda"`, which
//! Orbax passes over.

use serde_json::{Map, Value, json};

use super::device::{Device, Platform};
use super::mesh::{Axis, AxisType, Mesh};
use super::spec::PartitionSpec;
use super::{NamedSharding, Sharding, SingleDeviceSharding};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::MAX_MESH_DEVICES;

impl Sharding {
    /// The sharding in the JSON form that Orbax writes, with the platform of each device of a mesh
    /// besides, which Orbax does not write and passes over.
    pub fn to_json(&self) -> String {
        match self {
            Self::Named(named) => named_to_json(named),
            Self::SingleDevice(single) => json!({
                "sharding_type": "SingleDeviceSharding",
                "device_str": single.device.to_string(),
            }),
        }
        .to_string()
    }

    /// Reads the JSON form that Orbax writes. `platform` is that of the devices of a mesh whose
    /// platform is not written: Orbax writes none. Where the devices are not written either (before
    /// Orbax 0.6.2), they are numbered from 0 in C order, as Orbax does then.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// use milepost::sharding::{Platform, Sharding};
    ///
    /// let text = r#"{"sharding_type": "NamedSharding", "shape": [2], "axis_names": ["x"],
    ///     "axis_types": ["Auto"], "partition_spec": ["x", null],
    ///     "device_mesh": {"mesh": [{"id": 4}, {"id": 5}]}}"#;
    /// let sharding = Sharding::from_json(text, &Platform::Tpu)?;
    /// assert_eq!(sharding.devices()[1].to_string(), "tpu:5");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidInput` if it is not such JSON, or a sharding that can't be; `Unsupported` for other
    /// types of shardings.
    pub fn from_json(text: &str, platform: &Platform) -> Result<Self> {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| Error::invalid("the sharding is not JSON").with_source(error))?;
        let fields = value.as_object().ok_or_else(|| {
            Error::invalid(format!("the sharding should be an object, found {}", shown(&value)))
        })?;
        match string(field(fields, "sharding_type")?, "sharding_type")? {
            "NamedSharding" => Ok(named_from_json(fields, platform)?.into()),
            "SingleDeviceSharding" => {
                let device = string(field(fields, "device_str")?, "device_str")?;
                Ok(SingleDeviceSharding::new(device.parse()?).into())
            }
            other => Err(Error::new(
                ErrorKind::Unsupported,
                format!("the sharding is a {other:?}, milepost reads NamedSharding and SingleDeviceSharding"),
            )
            .advise("save it with one of those, or restore the array with a sharding of your own")),
        }
    }
}

fn named_to_json(named: &NamedSharding) -> Value {
    let mesh = &named.mesh;
    let dimension = |axes: &Vec<String>| match axes.as_slice() {
        [] => Value::Null,
        [axis] => json!(axis),
        several => json!(several),
    };
    let sizes: Vec<_> = mesh.axes().map(|axis| axis.1).collect();
    let mut devices = mesh.devices().iter();
    json!({
        "sharding_type": "NamedSharding",
        "shape": sizes,
        "axis_names": mesh.axes().map(|axis| axis.0).collect::<Vec<_>>(),
        "axis_types": mesh.axis_types().map(AxisType::name).collect::<Vec<_>>(),
        "partition_spec": named.spec.dimensions().iter().map(dimension).collect::<Vec<_>>(),
        "device_mesh": { "mesh": nested(&sizes, &mut devices) },
    })
}

/// The next devices as lists in lists of these lengths.
fn nested(sizes: &[usize], devices: &mut std::slice::Iter<'_, Device>) -> Value {
    match sizes.split_first() {
        Some((&size, inner)) => (0..size).map(|_| nested(inner, devices)).collect(),
        None => devices.next().map_or(
            Value::Null,
            |device| json!({ "id": device.ordinal(), "platform": device.platform().name() }),
        ),
    }
}

fn named_from_json(fields: &Map<String, Value>, platform: &Platform) -> Result<NamedSharding> {
    let sizes = list(field(fields, "shape")?, "shape")?;
    let names = list(field(fields, "axis_names")?, "axis_names")?;
    if sizes.len() != names.len() {
        return Err(Error::invalid(format!(
            "the sharding has {} axis_names, its shape has {}",
            names.len(),
            sizes.len()
        )));
    }
    let kinds = match fields.get("axis_types") {
        None | Some(Value::Null) => vec![AxisType::Auto; names.len()],
        Some(kinds) => list(kinds, "axis_types")?.iter().map(axis_type).collect::<Result<_>>()?,
    };
    let to_axis = |(name, size): (&Value, &Value)| {
        let name = string(name, "axis_names")?.to_owned();
        Ok(Axis { name, size: number(size, "shape")?, kind: AxisType::Auto })
    };
    let axes: Vec<Axis> = names.iter().zip(sizes).map(to_axis).collect::<Result<_>>()?;
    let sizes: Vec<_> = axes.iter().map(|axis| axis.size).collect();
    let mut devices = Vec::new();
    match fields.get("device_mesh") {
        None | Some(Value::Null) => {
            let size = sizes.iter().copied().fold(1, usize::saturating_mul);
            // More are refused by the mesh.
            let size = u32::try_from(size.min(MAX_MESH_DEVICES + 1)).unwrap_or(u32::MAX);
            devices.extend((0..size).map(|ordinal| Device::new(platform.clone(), ordinal)));
        }
        Some(mesh) => {
            let fields =
                mesh.as_object().ok_or_else(|| expected("an object", "device_mesh", mesh))?;
            collect_devices(field(fields, "mesh")?, &sizes, platform, &mut devices)?;
        }
    }
    let mesh = Mesh::from_axes(devices, axes)?.with_axis_types(&kinds)?;
    let spec = list(field(fields, "partition_spec")?, "partition_spec")?;
    let spec: Vec<_> = spec.iter().map(dimension_axes).collect::<Result<_>>()?;
    NamedSharding::new(mesh, PartitionSpec::from_dimensions(spec))
}

/// The devices in lists in lists of these lengths.
fn collect_devices(
    value: &Value,
    sizes: &[usize],
    platform: &Platform,
    devices: &mut Vec<Device>,
) -> Result<()> {
    let Some((&size, inner)) = sizes.split_first() else {
        devices.push(device(value, platform)?);
        return Ok(());
    };
    let items = list(value, "device_mesh")?;
    if items.len() != size {
        return Err(Error::invalid(format!(
            "a list in the device_mesh of the sharding has {} entries, its shape says {size}",
            items.len()
        )));
    }
    items.iter().try_for_each(|item| collect_devices(item, inner, platform, devices))
}

fn device(value: &Value, platform: &Platform) -> Result<Device> {
    let fields = value.as_object().ok_or_else(|| expected("an object", "device_mesh", value))?;
    let ordinal = field(fields, "id")?;
    let ordinal = ordinal.as_u64().and_then(|ordinal| u32::try_from(ordinal).ok());
    let ordinal = ordinal.ok_or_else(|| expected("the number of a device", "id", value))?;
    let platform = match fields.get("platform") {
        None => platform.clone(),
        Some(name) => Platform::new(string(name, "platform")?)?,
    };
    Ok(Device::new(platform, ordinal))
}

fn dimension_axes(value: &Value) -> Result<Vec<String>> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(axis) => Ok(vec![axis.clone()]),
        Value::Array(axes) => {
            axes.iter().map(|axis| string(axis, "partition_spec").map(str::to_owned)).collect()
        }
        other => Err(expected("null, an axis or a list of axes", "partition_spec", other)),
    }
}

/// Written as `Auto`, by some versions of JAX as `AxisType.Auto`.
fn axis_type(value: &Value) -> Result<AxisType> {
    let name = string(value, "axis_types")?;
    AxisType::from_name(name.strip_prefix("AxisType.").unwrap_or(name))
        .ok_or_else(|| expected("Auto, Explicit or Manual", "axis_types", value))
}

fn field<'v>(fields: &'v Map<String, Value>, name: &str) -> Result<&'v Value> {
    fields.get(name).ok_or_else(|| Error::invalid(format!("the sharding has no field {name:?}")))
}

fn list<'v>(value: &'v Value, name: &str) -> Result<&'v Vec<Value>> {
    value.as_array().ok_or_else(|| expected("a list", name, value))
}

fn string<'v>(value: &'v Value, name: &str) -> Result<&'v str> {
    value.as_str().ok_or_else(|| expected("a string", name, value))
}

fn number(value: &Value, name: &str) -> Result<usize> {
    let number = value.as_u64().and_then(|number| usize::try_from(number).ok());
    number.ok_or_else(|| expected("a size", name, value))
}

fn expected(what: &str, name: &str, found: &Value) -> Error {
    Error::invalid(format!("in the sharding, {name} should be {what}, found {}", shown(found)))
}

/// The beginning of a value.
fn shown(value: &Value) -> String {
    const SHOWN: usize = 80;
    let text = value.to_string();
    let shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() { shown + "…" } else { shown }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    /// What `NamedShardingMetadata.to_serialized_string` of Orbax gives for 2×2 devices.
    const NAMED: &str = r#"{"sharding_type": "NamedSharding", "shape": [2, 2],
        "axis_names": ["x", "y"], "axis_types": ["Auto", "Explicit"],
        "partition_spec": [["y", "x"], null, "z"],
        "device_mesh": {"mesh": [[{"id": 3}, {"id": 2}], [{"id": 1}, {"id": 0}]]}}"#;

    fn with(from: &str, to: &str) -> String {
        assert!(NAMED.contains(from), "{from}");
        NAMED.replace(from, to)
    }

    fn refused(text: &str) -> String {
        let error = Sharding::from_json(text, &Platform::Cpu).unwrap_err();
        match error.source() {
            Some(source) => format!("{error}: {source}"),
            None => error.to_string(),
        }
    }

    #[test]
    fn what_orbax_wrote_is_read_and_written_again() {
        let text = with(r#", "z"]"#, "]");
        let sharding = Sharding::from_json(&text, &Platform::Tpu).unwrap();
        let devices: Vec<_> = sharding.devices().iter().map(ToString::to_string).collect();
        assert_eq!(devices, ["tpu:3", "tpu:2", "tpu:1", "tpu:0"]);
        assert_eq!(
            sharding.to_string(),
            "NamedSharding(mesh=Mesh('x': 2, 'y': 2), spec=PartitionSpec(('y', 'x'), None))"
        );
        let written = sharding.to_json();
        assert_eq!(Sharding::from_json(&written, &Platform::Cpu).unwrap(), sharding);
        // But for the platforms it is what Orbax wrote.
        let mut written: Value = serde_json::from_str(&written).unwrap();
        for row in written["device_mesh"]["mesh"].as_array_mut().unwrap() {
            for device in row.as_array_mut().unwrap() {
                assert_eq!(device.as_object_mut().unwrap().remove("platform"), Some(json!("tpu")));
            }
        }
        assert_eq!(written, serde_json::from_str::<Value>(&text).unwrap());
    }

    #[test]
    fn a_single_device_keeps_its_name() {
        let text = r#"{"sharding_type":"SingleDeviceSharding","device_str":"TFRT_CPU_0"}"#;
        let sharding = Sharding::from_json(text, &Platform::Tpu).unwrap();
        assert_eq!(sharding.to_string(), "SingleDeviceSharding(cpu:0)");
        assert_eq!(
            serde_json::from_str::<Value>(&sharding.to_json()).unwrap(),
            json!({"sharding_type": "SingleDeviceSharding", "device_str": "cpu:0"})
        );
    }

    #[test]
    fn before_devices_were_written_they_count_from_zero() {
        let text = r#"{"sharding_type": "NamedSharding", "shape": [2, 1],
            "axis_names": ["x", "y"], "partition_spec": []}"#;
        let sharding = Sharding::from_json(text, &Platform::Cuda).unwrap();
        let devices: Vec<_> = sharding.devices().iter().map(ToString::to_string).collect();
        assert_eq!(devices, ["cuda:0", "cuda:1"]);
        assert!(sharding.is_fully_replicated());
    }

    #[test]
    fn what_is_wrong_is_named_with_what_was_found() {
        for (text, message) in [
            ("{".to_owned(), "EOF"),
            ("[]".to_owned(), "the sharding should be an object, found []"),
            ("{}".to_owned(), "no field \"sharding_type\""),
            (with("NamedSharding", "PositionalSharding"), "PositionalSharding"),
            (NAMED.to_owned(), "dimension 2 of"),
            (with("[2, 2]", "[2, -2]"), "shape should be a size, found -2"),
            (with("[2, 2]", "[2]"), "2 axis_names, its shape has 1"),
            (with("[2, 2]", "[2, 3]"), "has 2 entries, its shape says 3"),
            (with("Explicit", "Odd"), "Auto, Explicit or Manual, found \"Odd\""),
            (with(r#", "Explicit""#, ""), "1 axis types for the 2 axes"),
            (with(r#"{"id": 3}"#, r#"{"id": -3}"#), "the number of a device"),
            (with(r#"{"id": 3}"#, r#"{"id": 2}"#), "cpu:2 is in the mesh twice"),
            (with(r#"{"id": 3}"#, "[3]"), "an object, found [3]"),
            (with("null", "7"), "a list of axes, found 7"),
        ] {
            let found = refused(&text);
            assert!(found.contains(message), "{message:?} in {found:?}");
        }
        let huge = r#"{"sharding_type": "NamedSharding", "shape": [4294967296, 4294967296],
            "axis_names": ["x", "y"], "partition_spec": []}"#;
        assert!(refused(huge).contains("places"));
    }
}
