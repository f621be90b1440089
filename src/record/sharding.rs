//! The shardings record: how the arrays of a step were spread over devices, each way once.

use rkyv::rancor;
use rkyv::string::ArchivedString;
use rkyv::{Archive, Deserialize, Serialize};

use super::RecordError;
use super::envelope::{Kind, open, seal_within_limit};
use crate::sharding::{Platform, Sharding};

#[derive(Archive, Serialize, Deserialize)]
struct ShardingsV1 {
    /// In the JSON form of Orbax.
    shardings: Vec<String>,
}

/// The record of the shardings of `step`, which leaf records name by their numbers.
pub(crate) fn encode_shardings(step: u64, shardings: &[Sharding]) -> Result<Vec<u8>, RecordError> {
    let archive = ShardingsV1 { shardings: archive_shardings(shardings) };
    let payload = rkyv::to_bytes::<rancor::Error>(&archive)
        .map_err(|error| Kind::Shardings.archive(&error))?;
    seal_within_limit(Kind::Shardings, 1, &step.to_le_bytes(), &payload)
}

pub(crate) fn decode_shardings(step: u64, record: &[u8]) -> Result<Vec<Sharding>, RecordError> {
    let payload = open(Kind::Shardings, &step.to_le_bytes(), record)?;
    let archive = rkyv::access::<ArchivedShardingsV1, rancor::Error>(payload)
        .map_err(|error| Kind::Shardings.archive(&error))?;
    from_archive(Kind::Shardings, &archive.shardings)
}

pub(super) fn archive_shardings(shardings: &[Sharding]) -> Vec<String> {
    shardings.iter().map(Sharding::to_json).collect()
}

/// The shardings of a record of `kind`.
pub(super) fn from_archive(
    kind: Kind,
    shardings: &[ArchivedString],
) -> Result<Vec<Sharding>, RecordError> {
    // The platform of a device is always written.
    let decode = |text: &ArchivedString| Sharding::from_json(text, &Platform::Cpu);
    let shardings = shardings.iter().map(decode);
    shardings.collect::<Result<_, _>>().map_err(|error| kind.content(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharding::{Device, Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding};

    #[test]
    fn shardings_come_back() {
        let devices = (0..4).map(|ordinal| Device::new(Platform::Cuda, ordinal));
        let mesh = Mesh::new(devices, [("x", 2), ("y", 2)]).unwrap();
        let spec = PartitionSpec::new([None, Some("y")]);
        let shardings = [
            NamedSharding::new(mesh, spec).unwrap().into(),
            SingleDeviceSharding::new(Device::new(Platform::Rocm, 3)).into(),
        ];
        let record = encode_shardings(7, &shardings).unwrap();
        assert_eq!(decode_shardings(7, &record).unwrap(), shardings);
        assert!(decode_shardings(8, &record).is_err());
    }
}
