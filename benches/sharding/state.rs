//! A state of 1 GiB on a mesh of eight devices, saved as its shards, and the same state unsharded.

use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::Arc;

use milepost::sharding::{Device, Mesh, NamedSharding, PartitionSpec, Platform, Sharding};
use milepost::{
    CheckpointStore, ChunkHint, Compression, DType, Leaf, SaveOptions, Shape, StoreOptions, Tree,
};

use crate::common::store::THREADS;

pub(crate) const STEP: u64 = 1;

/// The devices that a state is restored onto, as a mesh of `data` times `model`.
pub(crate) const MESHES: [(&str, usize, usize); 5] = [
    ("1_device", 1, 1),
    ("2_devices", 2, 1),
    ("4_devices", 2, 2),
    ("6_devices", 3, 2),
    ("8_devices", 4, 2),
];

/// Arrays of one shape.
struct Arrays {
    count: usize,
    shape: [usize; 2],
    spec: [Option<&'static str>; 2],
}

/// Arrays of a transformer, with the axes along which they are cut.
const ARRAYS: [Arrays; 4] = [
    Arrays { count: 6, shape: [4096, 4096], spec: [Some("data"), Some("model")] },
    Arrays { count: 6, shape: [4096, 4096], spec: [Some("model"), Some("data")] },
    Arrays { count: 16, shape: [4096, 1024], spec: [Some("data"), None] },
    Arrays { count: 96, shape: [1, 4096], spec: [None, Some("model")] },
];

/// The state in two files.
pub(crate) struct Stores {
    pub(crate) sharded: CheckpointStore,
    pub(crate) whole: CheckpointStore,
    pub(crate) size_bytes: u64,
}

pub(crate) fn mesh(platform: &Platform, data: usize, model: usize) -> Mesh {
    let devices = (0..data * model).map(|ordinal| device(platform, ordinal));
    Mesh::new(devices, [("data", data), ("model", model)]).expect("a mesh")
}

pub(crate) fn device(platform: &Platform, ordinal: usize) -> Device {
    Device::new(platform.clone(), u32::try_from(ordinal).expect("few devices"))
}

impl Stores {
    /// Saves both: with `parts` parts of the rows of each array, so that it is smaller.
    pub(crate) fn create(folder: &Path, parts: usize) -> Self {
        let saved_on = mesh(&Platform::Cuda, 4, 2);
        let options = StoreOptions::new().compression(Compression::None).threads(THREADS);
        // A mesh of other sizes needs parts of shards: of their columns in the arrays that are cut so.
        let hints = [("kind[02]_*", 0, 128), ("kind1_*", 1, 512)];
        let hinted = hints.into_iter().fold(options.clone(), |options, (pattern, axis, kib)| {
            let bytes = NonZeroUsize::new(kib << 10).expect("not zero");
            let hint = ChunkHint::new([axis], bytes).expect("a hint");
            options.chunk_hint_for(pattern, hint).expect("a pattern")
        });
        let create = |name, options| {
            CheckpointStore::create_with(folder.join(name), options).expect("a new store")
        };
        let (sharded, whole) = (create("sharded", hinted), create("whole", options));
        let (mut shards, mut arrays, mut size_bytes) = (Vec::new(), Vec::new(), 0);
        for (kind, Arrays { count, shape: [rows, columns], spec }) in ARRAYS.into_iter().enumerate()
        {
            let shape = Shape::new([rows.div_ceil(parts), columns]).expect("a shape");
            let spec = PartitionSpec::new(spec);
            let sharding = NamedSharding::new(saved_on.clone(), spec).expect("axes of the mesh");
            for number in 0..count {
                let name = format!("kind{kind}_{number}");
                let values = values(kind * 100 + number, shape.elements());
                size_bytes += 4 * values.len() as u64;
                shards.push((name.clone(), Tree::Leaf(cut(&values, &shape, &sharding))));
                let leaf = Leaf::from_arc(values, shape.lengths()).expect("an array");
                arrays.push((name, Tree::Leaf(leaf)));
            }
        }
        for (store, leaves) in [(&sharded, shards), (&whole, arrays)] {
            store.save(STEP, &Tree::map(leaves), &SaveOptions::new()).expect("a save");
        }
        Self { sharded, whole, size_bytes }
    }
}

/// What one of several ranks has of the state, which each have some of its rows, and the size of it. One rank
/// alone has whole arrays.
pub(crate) fn shards_of(parts: usize, rank: u32, world_size: u32) -> (Tree<Leaf<'static>>, u64) {
    let size = usize::try_from(world_size).expect("few ranks");
    let mesh = mesh(&Platform::Cuda, size, 1);
    let own = Device::new(Platform::Cuda, rank);
    let (mut leaves, mut size_bytes) = (Vec::new(), 0);
    for (kind, Arrays { count, shape: [rows, columns], .. }) in ARRAYS.into_iter().enumerate() {
        let shape = Shape::new([rows.div_ceil(parts), columns]).expect("a shape");
        let axes = if rows == 1 { [None, Some("data")] } else { [Some("data"), None] };
        let sharding = NamedSharding::new(mesh.clone(), PartitionSpec::new(axes)).expect("axes");
        let sharding = Sharding::from(sharding);
        let region = sharding.layout(&shape).expect("a layout").region_of(&own).expect("a shard");
        for number in 0..count {
            let lengths: Vec<usize> = region.ranges().iter().map(ExactSizeIterator::len).collect();
            let values = values(kind * 100 + number, region.elements());
            size_bytes += 4 * values.len() as u64;
            let shard = Leaf::from_arc(values, lengths).expect("a shard");
            let leaf = if world_size == 1 {
                shard
            } else {
                let (shape, shards) = (shape.lengths(), [(own.clone(), shard)]);
                Leaf::from_local_shards(DType::F32, shape, sharding.clone(), shards)
                    .expect("a shard")
            };
            leaves.push((format!("kind{kind}_{number}"), Tree::Leaf(leaf)));
        }
    }
    (Tree::map(leaves), size_bytes)
}

/// Numbers that are different for each `seed`.
fn values(seed: usize, count: usize) -> Arc<[f32]> {
    (0..count).map(|number| (seed * 7919 + number) as f32).collect()
}

/// The array as its shards.
fn cut(values: &[f32], shape: &Shape, sharding: &NamedSharding) -> Leaf<'static> {
    let mut buffers = Vec::new();
    let row_length = shape.lengths()[1];
    let sharding_of = Sharding::from(sharding.clone());
    for shard in sharding_of.layout(shape).expect("a layout").shards() {
        let [rows, columns] = shard.region.ranges() else { panic!("two dimensions") };
        let row = |row: usize| &values[row * row_length..][columns.clone()];
        let region: Vec<f32> = rows.clone().flat_map(row).copied().collect();
        let leaf = Leaf::from_arc(region.into(), [rows.len(), columns.len()]).expect("a shard");
        buffers.extend(shard.devices.into_iter().map(|device| (device.clone(), leaf.clone())));
    }
    Leaf::from_shards(shape.lengths(), sharding.clone(), buffers).expect("all shards")
}
