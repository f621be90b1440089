//! Reading what a plan says, and handing it to a placer.

use std::fmt;
use std::mem;
use std::sync::Arc;

use parking_lot::Mutex;

use super::loads::Holding;
use super::{Placer, RestorePlan, RestoreReport, ShardToPlace};
use crate::error::{Error, ErrorKind, Result};
use crate::path::KeyPath;
use crate::record::LeafRecord;
use crate::shape::Region;
use crate::sharding::Device;
use crate::store::fill::{Destination, fill};
use crate::store::threads::on_threads;
use crate::tree::{FreshLeaf, Leaf, LeafMeta, LeafMut, Tree};

/// How much is read before it is handed to the placer: so much memory is needed beside what the placer
/// keeps, or as much as this process has of the largest array.
const BATCH_BYTES: usize = 256 << 20;

/// A step that was restored onto devices.
#[derive(Debug, Clone)]
pub struct Restored<A> {
    /// The leaves, in the structure of the target or, without one, of what was saved.
    pub tree: Tree<RestoredLeaf<A>>,
    /// What was decided and done.
    pub report: Arc<RestoreReport>,
}

/// A leaf that was restored onto devices.
#[derive(Debug, Clone)]
pub enum RestoredLeaf<A> {
    /// What this process has of an array.
    Array(PlacedArray<A>),
    /// A scalar, string, byte string or JSON value, which is no matter of devices.
    Value(Leaf<'static>),
}

/// What this process has of an array.
#[derive(Debug, Clone)]
pub struct PlacedArray<A> {
    /// What the whole array is, with its sharding.
    pub meta: LeafMeta,
    /// What each device of this process that is one of the sharding's has.
    pub shards: Vec<PlacedShard<A>>,
}

/// A region of an array on a device.
#[derive(Debug, Clone)]
pub struct PlacedShard<A> {
    /// The device.
    pub device: Device,
    /// The region. It may be empty.
    pub region: Region,
    /// What the placer made of it.
    pub array: A,
}

impl PlacedArray<Leaf<'static>> {
    /// The array as a leaf given as its shards, which can be saved again.
    ///
    /// # Errors
    /// `InvalidInput` if other processes have parts of it.
    pub fn into_leaf(self) -> Result<Leaf<'static>> {
        let Some(sharding) = self.meta.sharding else {
            return Err(Error::invalid("the array has no sharding"));
        };
        let shards = self.shards.into_iter().map(|shard| (shard.device, shard.array));
        Leaf::from_shards(self.meta.shape.lengths(), sharding, shards)
    }
}

/// An array of which this process has parts.
struct Work<'p> {
    /// Its number among the arrays of the plan.
    number: usize,
    path: &'p KeyPath,
    meta: LeafMeta,
    encoded: &'p [u8],
    record: &'p LeafRecord,
    holdings: Vec<&'p Holding>,
}

/// What the placer made of a holding of an array: their numbers and the result.
type Placed<A> = (usize, usize, Vec<A>);

impl RestorePlan<'_> {
    /// What each device gets, those that get nothing included, in the order of the registry.
    pub fn devices(&self) -> &[super::DeviceLoad] {
        &self.devices
    }

    /// What is to be restored where and why.
    pub fn report(&self) -> &RestoreReport {
        &self.report
    }

    /// Whether each device has memory for its regions.
    ///
    /// # Errors
    /// `OutOfMemory` that names the devices which have not, what they need and what they have.
    pub fn check_memory(&self) -> Result<()> {
        let short: Vec<_> = self
            .devices
            .iter()
            .filter(|load| load.exceeds_memory())
            .map(|load| {
                let limit = load.memory_limit_bytes().unwrap_or_default();
                format!("{} needs {} bytes and has {limit}", load.device(), load.bytes())
            })
            .collect();
        if short.is_empty() {
            return Ok(());
        }
        let message = format!("devices have too little memory: {}", short.join(", "));
        Err(Error::new(ErrorKind::OutOfMemory, message)
            .advise("nothing was restored; cut the arrays over more devices"))
    }

    /// Restores what this process has of the step: reads the chunks that its devices need, each once, and
    /// hands the regions to `placer`, on as many threads as the store has.
    ///
    /// # Errors
    /// `OutOfMemory` as [`check_memory`](Self::check_memory), before anything is read; `Damaged` with leaf
    /// and chunk; `Io`; what the placer returns, with the leaf.
    pub fn execute<P: Placer>(&self, placer: &P) -> Result<Restored<P::Array>> {
        self.execute_with(placer).map_err(|error| self.reader.place(error))
    }

    fn execute_with<P: Placer>(&self, placer: &P) -> Result<Restored<P::Array>> {
        self.check_memory()?;
        let mut values = self.read_values()?.into_iter();
        let mut arrays = self.read_arrays(placer)?.into_iter();
        let mut layouts = self.leaves.iter();
        let lost = || Error::invalid("a leaf of the plan was not restored");
        let tree = self.tree.clone().map_leaves(|_, _| match layouts.next() {
            Some(Some(_)) => arrays.next().map(RestoredLeaf::Array).ok_or_else(lost),
            _ => values.next().map(RestoredLeaf::Value).ok_or_else(lost),
        })?;
        Ok(Restored { tree, report: Arc::clone(&self.report) })
    }

    /// What is no array, in tree order.
    fn read_values(&self) -> Result<Vec<Leaf<'static>>> {
        let mut values = Vec::new();
        for ((path, _), layout) in self.tree.leaves()?.into_iter().zip(&self.leaves) {
            if layout.is_none() {
                let (_, record) = self.records.get(&path)?;
                values.push((path, FreshLeaf::new(record.meta.clone())?));
            }
        }
        let targets = values.iter_mut().map(|(path, value)| (path.clone(), LeafMut::fresh(value)));
        self.reader.fill_leaves(targets.collect(), &self.records)?;
        let leaf = |(path, value): (KeyPath, FreshLeaf)| {
            value.into_leaf().map_err(|error| error.at_path(&path))
        };
        values.into_iter().map(leaf).collect()
    }

    /// What this process has of each array, in tree order.
    fn read_arrays<P: Placer>(&self, placer: &P) -> Result<Vec<PlacedArray<P::Array>>> {
        let (mut arrays, mut batch, mut batch_bytes) = (Vec::new(), Vec::new(), 0);
        let layouts = self.leaves.iter().flatten();
        for (number, (placement, layout)) in self.report.arrays.iter().zip(layouts).enumerate() {
            let (encoded, record) = self.records.get(&placement.path)?;
            let meta =
                LeafMeta { sharding: Some(placement.sharding.clone()), ..record.meta.clone() };
            arrays.push(PlacedArray { meta: meta.clone(), shards: Vec::new() });
            let holdings = self.layouts.get(*layout).iter();
            let holdings: Vec<_> = holdings.filter(|holding| !holding.local.is_empty()).collect();
            let elements = holdings.iter().map(|holding| holding.region.elements()).sum::<usize>();
            batch_bytes += elements * meta.dtype.size_bytes();
            let path = &placement.path;
            batch.push(Work { number, path, meta, encoded, record, holdings });
            if batch_bytes >= BATCH_BYTES {
                self.read_batch(placer, &mem::take(&mut batch), &mut arrays)?;
                batch_bytes = 0;
            }
        }
        self.read_batch(placer, &batch, &mut arrays)?;
        Ok(arrays)
    }

    fn read_batch<P: Placer>(
        &self,
        placer: &P,
        batch: &[Work<'_>],
        arrays: &mut [PlacedArray<P::Array>],
    ) -> Result<()> {
        let mut buffers: Vec<Vec<P::Buffer>> = Vec::with_capacity(batch.len());
        for work in batch {
            let allocate = |holding| allocate(placer, &self.shard(work, holding));
            buffers.push(work.holdings.iter().copied().map(allocate).collect::<Result<_>>()?);
        }
        let destinations = batch.iter().zip(&mut buffers).map(|(work, buffers)| {
            let regions = work.holdings.iter().map(|holding| holding.region.clone());
            let memory = buffers.iter_mut().map(AsMut::as_mut);
            let (path, record) = (work.encoded, work.record);
            Destination { path, record, places: regions.zip(memory).collect() }
        });
        let (tx, step) = (&self.reader.tx, self.reader.info().step);
        fill(tx, step, destinations.collect(), self.reader.threads)?;
        let mut done = self.place_batch(placer, batch, buffers)?;
        done.sort_unstable_by_key(|(work, holding, _)| (*work, *holding));
        for (work, holding, made) in done {
            let Some(work) = batch.get(work) else { continue };
            let (Some(holding), Some(array)) =
                (work.holdings.get(holding), arrays.get_mut(work.number))
            else {
                continue;
            };
            for (device, made) in holding.local.iter().zip(made) {
                let Some(load) = self.devices.get(*device) else { continue };
                let (device, region) = (load.device().clone(), holding.region.clone());
                array.shards.push(PlacedShard { device, region, array: made });
            }
        }
        Ok(())
    }

    /// Hands what was read to the placer, on several threads.
    fn place_batch<P: Placer>(
        &self,
        placer: &P,
        batch: &[Work<'_>],
        buffers: Vec<Vec<P::Buffer>>,
    ) -> Result<Vec<Placed<P::Array>>> {
        let filled = buffers.into_iter().enumerate().flat_map(|(work, buffers)| {
            buffers.into_iter().enumerate().map(move |(holding, buffer)| (work, holding, buffer))
        });
        let (filled, done) = (Mutex::new(filled), Mutex::new(Vec::new()));
        on_threads(self.reader.threads.get().min(batch.len()), || {
            loop {
                // Apart, so that the lock is not held for longer.
                let next = filled.lock().next();
                let Some((number, holding, buffer)) = next else { return Ok(()) };
                let Some(work) = batch.get(number) else { continue };
                let Some(of) = work.holdings.get(holding) else { continue };
                let shard = self.shard(work, of);
                let made = placer.place(&shard, buffer).and_then(|made| {
                    let (expected, found) = (shard.devices().len(), made.len());
                    let wrong = || {
                        format!(
                            "the placer made {found} arrays for the {expected} devices of a region"
                        )
                    };
                    (found == expected).then_some(made).ok_or_else(|| Error::invalid(wrong()))
                });
                let made = made.map_err(|error| error.at_path(shard.path()))?;
                done.lock().push((number, holding, made));
            }
        })?;
        Ok(done.into_inner())
    }

    fn shard<'p>(&'p self, work: &'p Work<'_>, holding: &'p Holding) -> ShardToPlace<'p> {
        let devices = holding.local.iter().filter_map(|number| self.devices.get(*number));
        ShardToPlace {
            path: work.path,
            meta: &work.meta,
            region: &holding.region,
            devices: devices.map(super::DeviceLoad::device).collect(),
        }
    }
}

fn allocate<P: Placer>(placer: &P, shard: &ShardToPlace<'_>) -> Result<P::Buffer> {
    let mut buffer = placer.allocate(shard).map_err(|error| error.at_path(shard.path()))?;
    let (expected, found) = (shard.size_bytes(), buffer.as_mut().len());
    if expected != found {
        let what = format!("the placer gave {found} bytes of memory for a region of {expected}");
        return Err(Error::invalid(what).at_path(shard.path()));
    }
    Ok(buffer)
}

impl fmt::Debug for RestorePlan<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RestorePlan").field("report", &self.report).finish_non_exhaustive()
    }
}
