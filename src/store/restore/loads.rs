//! What a restore costs each device.
//!
//! Arrays that are alike (of one shape, under one sharding, cut into chunks in the same way) are worked out once
//! and then counted: a state has many arrays and few kinds of them.

use std::collections::HashMap;

use crate::error::Result;
use crate::record::LeafRecord;
use crate::shape::{Grid, Region, Shape};
use crate::sharding::{Device, DeviceInfo, DeviceRegistry, Sharding};
use crate::store::chunk_map::ChunkMap;

/// What a restore puts on one device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceLoad {
    pub(super) info: DeviceInfo,
    pub(super) is_local: bool,
    pub(super) arrays: u64,
    pub(super) regions: u64,
    pub(super) bytes: u64,
    pub(super) chunks: u64,
    pub(super) chunk_bytes: u64,
}

impl DeviceLoad {
    fn nothing(info: DeviceInfo, process: u32) -> Self {
        let is_local = info.process() == process;
        Self { info, is_local, arrays: 0, regions: 0, bytes: 0, chunks: 0, chunk_bytes: 0 }
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.info.device()
    }

    /// Whether it belongs to this process, which then reads what it needs.
    pub fn is_local(&self) -> bool {
        self.is_local
    }

    /// The number of arrays of which it has a region, empty ones included.
    pub fn arrays(&self) -> u64 {
        self.arrays
    }

    /// The number of regions that are not empty.
    pub fn regions(&self) -> u64 {
        self.regions
    }

    /// The size of its regions, in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The number of chunks that its regions meet.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// The size of these chunks, in bytes of what is in them (compressed, they are shorter).
    pub fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes
    }

    /// How many times as much has to be read as the regions have, if nothing else were read by this
    /// process: 1 if they are whole chunks; `None` if they are empty.
    pub fn read_amplification(&self) -> Option<f64> {
        (self.bytes > 0).then(|| as_f64(self.chunk_bytes) / as_f64(self.bytes))
    }

    /// The memory that the registry says it has, in bytes.
    pub fn memory_limit_bytes(&self) -> Option<u64> {
        self.info.memory_limit_bytes()
    }

    /// Whether the regions are larger than its memory.
    pub fn exceeds_memory(&self) -> bool {
        self.memory_limit_bytes().is_some_and(|limit| self.bytes > limit)
    }
}

/// A part of an array and who has it, as numbers of devices.
pub(super) struct Holding {
    pub(super) region: Region,
    pub(super) devices: Vec<usize>,
    /// Those of this process.
    pub(super) local: Vec<usize>,
}

/// Collects what the arrays cost.
pub(super) struct Loads {
    process: u32,
    numbers: HashMap<Device, usize>,
    devices: Vec<DeviceLoad>,
    layouts: Layouts,
    kinds: HashMap<Kind, usize>,
    costs: Vec<Cost>,
}

/// For each layout, which is known by its sharding and shape, who has which part.
#[derive(Default)]
pub(super) struct Layouts {
    numbers: HashMap<(Sharding, Shape), usize>,
    holdings: Vec<Vec<Holding>>,
}

/// What the costs of an array follow from.
#[derive(PartialEq, Eq, Hash)]
struct Kind {
    layout: usize,
    element_bytes: usize,
    parts: Option<(Grid, Vec<usize>)>,
    raw_lens: Vec<u32>,
}

struct Cost {
    layout: usize,
    /// How many arrays have it.
    arrays: u64,
    /// Of each holding: bytes, chunks, and bytes of the chunks.
    holdings: Vec<[u64; 3]>,
    /// The numbers of the chunks that this process reads.
    local: Vec<usize>,
}

impl Layouts {
    pub(super) fn get(&self, number: usize) -> &[Holding] {
        self.holdings.get(number).map_or(&[], Vec::as_slice)
    }
}

impl Loads {
    pub(super) fn new(registry: &DeviceRegistry) -> Self {
        let mut loads = Self {
            process: registry.process(),
            numbers: HashMap::new(),
            devices: Vec::new(),
            layouts: Layouts::default(),
            kinds: HashMap::new(),
            costs: Vec::new(),
        };
        for info in registry.devices() {
            loads.insert(info.clone());
        }
        loads
    }

    fn insert(&mut self, info: DeviceInfo) -> usize {
        let number = self.devices.len();
        self.numbers.insert(info.device().clone(), number);
        self.devices.push(DeviceLoad::nothing(info, self.process));
        number
    }

    fn device_number(&mut self, device: &Device) -> usize {
        if let Some(number) = self.numbers.get(device) {
            return *number;
        }
        // Only the memory of this process may be no device of the registry.
        self.insert(DeviceInfo::new(device.clone()).with_process(self.process))
    }

    /// The number of the layout of arrays of `shape` under `sharding`.
    ///
    /// # Errors
    /// `InvalidInput` if the partition spec has more dimensions than the array.
    pub(super) fn layout(&mut self, sharding: &Sharding, shape: &Shape) -> Result<usize> {
        let key = (sharding.clone(), shape.clone());
        if let Some(number) = self.layouts.numbers.get(&key) {
            return Ok(*number);
        }
        let mut holdings = Vec::new();
        for shard in sharding.layout(shape)?.shards() {
            let devices: Vec<_> =
                shard.devices.iter().map(|device| self.device_number(device)).collect();
            let is_local = |number: &usize| self.devices.get(*number).is_some_and(|d| d.is_local);
            let local = devices.iter().copied().filter(is_local).collect();
            holdings.push(Holding { region: shard.region, devices, local });
        }
        let number = self.layouts.holdings.len();
        self.layouts.holdings.push(holdings);
        self.layouts.numbers.insert(key, number);
        Ok(number)
    }

    /// Counts the array of `record`, and gives the numbers of its chunks that this process reads.
    pub(super) fn add(&mut self, layout: usize, record: &LeafRecord) -> &[usize] {
        let parts = record.parts.as_ref();
        let kind = Kind {
            layout,
            element_bytes: record.meta.dtype.size_bytes(),
            parts: parts.map(|parts| (parts.grid.clone(), parts.chunk_ends.clone())),
            raw_lens: record.chunks.iter().map(|chunk| chunk.info.raw_len).collect(),
        };
        let number = *self.kinds.entry(kind).or_insert_with(|| {
            self.costs.push(Cost::of(layout, self.layouts.get(layout), record));
            self.costs.len() - 1
        });
        let Some(cost) = self.costs.get_mut(number) else { return &[] };
        cost.arrays += 1;
        &cost.local
    }

    /// What each device has, in the order of the registry, and the layouts.
    pub(super) fn finish(self) -> (Vec<DeviceLoad>, Layouts) {
        let mut devices = self.devices;
        for cost in &self.costs {
            for (holding, [bytes, chunks, chunk_bytes]) in
                self.layouts.get(cost.layout).iter().zip(&cost.holdings)
            {
                for number in &holding.devices {
                    let Some(load) = devices.get_mut(*number) else { continue };
                    load.arrays += cost.arrays;
                    load.regions += cost.arrays * u64::from(*bytes > 0);
                    load.bytes += cost.arrays * bytes;
                    load.chunks += cost.arrays * chunks;
                    load.chunk_bytes += cost.arrays * chunk_bytes;
                }
            }
        }
        (devices, self.layouts)
    }
}

impl Cost {
    fn of(layout: usize, holdings: &[Holding], record: &LeafRecord) -> Self {
        let map = ChunkMap::new(record);
        let element_bytes = record.meta.dtype.size_bytes();
        let mut needed = vec![false; record.chunks.len()];
        let mut one = |holding: &Holding| {
            let bytes = wide(holding.region.elements().saturating_mul(element_bytes));
            let (mut chunks, mut chunk_bytes) = (0, 0);
            for placed in map.of_region(&holding.region) {
                let raw_len =
                    record.chunks.get(placed.number).map_or(0, |chunk| chunk.info.raw_len);
                chunks += 1;
                chunk_bytes += u64::from(raw_len);
                if let Some(needed) = needed.get_mut(placed.number)
                    && !holding.local.is_empty()
                {
                    *needed = true;
                }
            }
            [bytes, chunks, chunk_bytes]
        };
        let holdings = holdings.iter().map(&mut one).collect();
        let numbers = needed.iter().enumerate().filter(|(_, needed)| **needed);
        let local = numbers.map(|(number, _)| number).collect();
        Self { layout, arrays: 0, holdings, local }
    }
}

pub(super) fn wide(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[expect(clippy::cast_precision_loss, clippy::as_conversions, reason = "to be read by people")]
pub(super) fn as_f64(bytes: u64) -> f64 {
    bytes as f64
}
