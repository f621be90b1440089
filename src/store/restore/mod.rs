//! Restoring arrays onto devices: what goes where is planned first, without reading data, and then done.
//!
//! [`StepReader::plan`] begins, [`RestorePlan::execute`] ends. Terms are those of [`sharding`](crate::sharding).
//! [`StepReader::restore`] and [`restore_into`](StepReader::restore_into) need none of this: they give whole
//! arrays in ordinary memory, wherever they were when they were saved.

mod decide;
mod execute;
mod loads;
mod placer;
mod table;

use std::sync::Arc;

use super::StepReader;
use super::compare::differences;
use super::records::Records;
use crate::error::Result;
use crate::path::KeyPath;
use crate::sharding::{DeviceRegistry, Sharding, ShardingPolicies, ShardingReason};
use crate::tree::{LeafKind, LeafMeta, Tree};
use decide::Decider;
use loads::{Layouts, Loads, wide};

pub use execute::{PlacedArray, PlacedShard, Restored, RestoredLeaf};
pub use loads::DeviceLoad;
pub use placer::{HostBuffer, HostPlacer, Placer, ShardToPlace};

/// What a restore of one step puts where, made by [`StepReader::plan`]. It prints as a table of the
/// devices.
pub struct RestorePlan<'r> {
    reader: &'r StepReader,
    records: Records,
    /// What comes back, with the shardings that the arrays get.
    tree: Tree<LeafMeta>,
    /// For each leaf in tree order its layout; `None` for what is no array.
    leaves: Vec<Option<usize>>,
    layouts: Layouts,
    devices: Vec<DeviceLoad>,
    report: Arc<RestoreReport>,
}

/// What a restore does, or has done.
#[derive(Debug, Clone, PartialEq)]
pub struct RestoreReport {
    arrays: Vec<ArrayPlacement>,
    chunks_read: u64,
    bytes_read: u64,
}

impl RestoreReport {
    /// Where each array goes and why, in tree order.
    pub fn arrays(&self) -> &[ArrayPlacement] {
        &self.arrays
    }

    /// The number of chunks that this process reads, each once.
    pub fn chunks_read(&self) -> u64 {
        self.chunks_read
    }

    /// The size of these chunks as they are stored, in bytes.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }
}

/// Where an array goes, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct ArrayPlacement {
    path: KeyPath,
    saved: Option<Sharding>,
    sharding: Sharding,
    reason: ShardingReason,
}

impl ArrayPlacement {
    /// The array.
    pub fn path(&self) -> &KeyPath {
        &self.path
    }

    /// The sharding that was saved with it.
    pub fn saved(&self) -> Option<&Sharding> {
        self.saved.as_ref()
    }

    /// The sharding that it gets.
    pub fn sharding(&self) -> &Sharding {
        &self.sharding
    }

    /// Why it gets this one.
    pub fn reason(&self) -> ShardingReason {
        self.reason
    }
}

impl StepReader {
    /// Plans to restore the step onto the devices of `registry`, with the shardings that `policies` choose.
    /// No data is read.
    ///
    /// `target` says what is wanted: its structure, kinds, element types and shapes must be those of the
    /// step, and its arrays may name shardings, which [`ShardingPolicy::Automatic`] follows. Without a
    /// target all that was saved is wanted.
    ///
    /// ```
    /// # fn main() -> milepost::Result<()> {
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("run.milepost");
    /// use milepost::sharding::{Device, DeviceRegistry, Mesh, NamedSharding, PartitionSpec, Platform};
    /// use milepost::sharding::ShardingPolicy;
    /// use milepost::restore::HostPlacer;
    /// use milepost::{CheckpointStore, Leaf, SaveOptions, Tree};
    ///
    /// // Saved on two GPUs ...
    /// let gpus = [0, 1].map(|ordinal| Device::new(Platform::Cuda, ordinal));
    /// let mesh = Mesh::new(gpus, [("model", 2)])?;
    /// let sharding = NamedSharding::new(mesh, PartitionSpec::new([Some("model")]))?;
    /// let weights = Leaf::from_slice(&[1.0f32, 2.0, 3.0, 4.0], [4])?.with_sharding(sharding)?;
    /// let store = CheckpointStore::create(&path)?;
    /// store.save(1, &Tree::map([("w", Tree::Leaf(weights))]), &SaveOptions::new())?;
    ///
    /// // ... restored where there are none.
    /// let reader = store.read(1)?;
    /// let plan = reader.plan(None, &DeviceRegistry::host(), ShardingPolicy::Automatic)?;
    /// println!("{plan}");
    /// let restored = plan.execute(&HostPlacer)?;
    /// let placement = &restored.report.arrays()[0];
    /// assert_eq!(placement.sharding().to_string(), "SingleDeviceSharding(cpu:0)");
    /// assert_eq!(placement.reason().to_string(), "saved devices are not here");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Mismatch` with all differences if the target is of another structure; `DevicesMissing` or
    /// `InvalidInput` if arrays can't be placed as asked, which names all of them, the devices that are
    /// missing, those that are here, and what else can be asked for; `Damaged`; `Io`.
    ///
    /// [`ShardingPolicy::Automatic`]: crate::sharding::ShardingPolicy::Automatic
    pub fn plan(
        &self,
        target: Option<&Tree<LeafMeta>>,
        registry: &DeviceRegistry,
        policies: impl Into<ShardingPolicies>,
    ) -> Result<RestorePlan<'_>> {
        self.plan_with(target, registry, &policies.into()).map_err(|error| self.place(error))
    }

    fn plan_with(
        &self,
        target: Option<&Tree<LeafMeta>>,
        registry: &DeviceRegistry,
        policies: &ShardingPolicies,
    ) -> Result<RestorePlan<'_>> {
        let records = self.records()?;
        let saved = self.structure_of(&records)?;
        if let Some(target) = target {
            target.check()?;
            let differences = differences(&saved, target);
            if !differences.is_empty() {
                return Err(differences.into_error());
            }
        }
        let (mut decider, mut loads) = (Decider::new(registry, policies), Loads::new(registry));
        let (mut leaves, mut arrays) = (Vec::new(), Vec::new());
        let (mut chunks_read, mut bytes_read) = (0, 0);
        let tree = target.unwrap_or(&saved);
        for (path, wanted) in tree.leaves()? {
            let (_, record) = records.get(&path)?;
            if record.meta.kind != LeafKind::Array {
                leaves.push(None);
                chunks_read += wide(record.chunks.len());
                bytes_read +=
                    record.chunks.iter().map(|chunk| u64::from(chunk.info.stored_len)).sum::<u64>();
                continue;
            }
            let saved = records.sharding(record)?;
            let named = target.and(wanted.sharding.as_ref());
            let Some((sharding, reason)) = decider.decide(&path, named, saved) else { continue };
            let layout = match loads.layout(&sharding, &record.meta.shape) {
                Ok(layout) => layout,
                Err(error) => {
                    decider.refuse(&path, &error);
                    continue;
                }
            };
            for number in loads.add(layout, record) {
                let Some(chunk) = record.chunks.get(*number) else { continue };
                chunks_read += 1;
                bytes_read += u64::from(chunk.info.stored_len);
            }
            leaves.push(Some(layout));
            arrays.push(ArrayPlacement { path, saved: saved.cloned(), sharding, reason });
        }
        decider.finish()?;
        let (devices, layouts) = loads.finish();
        let tree = tree.clone();
        let report = Arc::new(RestoreReport { arrays, chunks_read, bytes_read });
        Ok(RestorePlan { reader: self, records, tree, leaves, layouts, devices, report })
    }
}
