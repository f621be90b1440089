//! Trains on eight GPUs, goes on with two of them, and then on a host that has none: the loss falls as if
//! nothing had happened.
//!
//! ```text
//! cargo run --release --example reshard
//! ```
//!
//! The GPUs are simulated: each is a thread, with memory of its own for its shards of the arrays. They
//! form a mesh of 4×2, later of 2×1. A batch has eight parts, which the devices share among them, and
//! whose gradients are added in the order of the parts, so the sum is the same on any number of devices.

use std::collections::BTreeMap;
use std::error::Error;
use std::io::{self, Write};
use std::ops::Range;
use std::thread;

use milepost::ndarray::{Array2, s};
use milepost::restore::{HostPlacer, PlacedArray, RestoredLeaf};
use milepost::sharding::{
    Device, DeviceInfo, DeviceRegistry, Mesh, NamedSharding, PartitionSpec, Platform, Sharding,
    ShardingPolicy,
};
use milepost::{CheckpointStore, Leaf, Region, Result, SaveOptions, Shape, StepReader, Tree};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// The arrays of the model, and the axes of the mesh along which each is cut.
const ARRAYS: [(&str, [usize; 2], [&str; 2]); 2] =
    [("hidden", [16, 64], ["data", "model"]), ("output", [64, 4], ["model", "data"])];

const BATCH_PARTS: u8 = 8;
const PART_ROWS: u8 = 16;
const LEARNING_RATE: f32 = 0.002;
const MOMENTUM: f32 = 0.9;

/// After how many steps a job ends.
const JOB_STEPS: u64 = 100;

/// What each job saves, and the next one starts from.
struct Trainer {
    step: u64,
    /// By their paths in the tree: `params/hidden`, `velocity/hidden`, ...
    arrays: BTreeMap<String, Sharded>,
}

/// An array of which each device has a shard.
struct Sharded {
    shape: Shape,
    sharding: Sharding,
    shards: Vec<(Device, Region, Array2<f32>)>,
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("milepost-reshard-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let losses = train_on_less_and_less(&folder.join("run.milepost"), &mut io::stdout());
    std::fs::remove_dir_all(&folder)?;
    let same = losses? == train_on_the_host()?;
    writeln!(io::stdout(), "the loss of each step is that of a run on the host alone: {same}")?;
    Ok(())
}

/// Three jobs, and the loss of each of their steps.
fn train_on_less_and_less(
    path: &std::path::Path,
    out: &mut dyn Write,
) -> std::result::Result<Vec<f32>, Box<dyn Error>> {
    let store = CheckpointStore::create(path)?;
    let mut losses = Vec::new();
    let mut run = |name: &str, mut trainer: Trainer, out: &mut dyn Write| {
        let (from, first) = (trainer.step, losses.len());
        losses.extend((0..JOB_STEPS).map(|_| trainer.train_step()));
        let [before, after] = [first, losses.len() - 1].map(|place| losses[place]);
        writeln!(out, "{name}: step {from} to {}, loss {before:.4} to {after:.4}\n", trainer.step)?;
        store.save(trainer.step, &trainer.to_tree()?, &SaveOptions::new())?;
        Ok::<_, Box<dyn Error>>(trainer.step)
    };

    let saved = run("eight GPUs", Trainer::new(&mesh(4, 2)?)?, out)?;

    // The arrays are cut along the same axes, of which there are other numbers of devices now.
    let two = DeviceRegistry::new(gpus(2).map(DeviceInfo::new))?;
    let onto_two = ShardingPolicy::OntoMesh(mesh(2, 1)?);
    let trainer = Trainer::restore(&store.read(saved)?, &two, onto_two, out)?;
    let saved = run("two GPUs", trainer, out)?;

    // Nothing is said of the devices here: those that the arrays were saved on are missing, so the arrays
    // come to the default device of the registry.
    let host = DeviceRegistry::host();
    let trainer = Trainer::restore(&store.read(saved)?, &host, ShardingPolicy::Automatic, out)?;
    run("the host", trainer, out)?;
    Ok(losses)
}

/// What the loss would be without any of this.
fn train_on_the_host() -> Result<Vec<f32>> {
    let host = Mesh::new([Device::new(Platform::Cpu, 0)], [("data", 1), ("model", 1)])?;
    let mut trainer = Trainer::new(&host)?;
    Ok((0..3 * JOB_STEPS).map(|_| trainer.train_step()).collect())
}

fn gpus(count: u32) -> impl Iterator<Item = Device> {
    (0..count).map(|ordinal| Device::new(Platform::Cuda, ordinal))
}

fn mesh(data: u32, model: u32) -> Result<Mesh> {
    let size = |length: u32| usize::try_from(length).unwrap_or(usize::MAX);
    Mesh::new(gpus(data * model), [("data", size(data)), ("model", size(model))])
}

impl Trainer {
    fn new(mesh: &Mesh) -> Result<Self> {
        let mut arrays = BTreeMap::new();
        for (name, [rows, columns], axes) in ARRAYS {
            let spec = PartitionSpec::new(axes.map(Some));
            let sharding = Sharding::from(NamedSharding::new(mesh.clone(), spec)?);
            let weights = uniform(u64::MAX, [rows, columns]) * 0.5;
            let velocity = Array2::zeros((rows, columns));
            arrays.insert(format!("params/{name}"), Sharded::cut(&weights, sharding.clone())?);
            arrays.insert(format!("velocity/{name}"), Sharded::cut(&velocity, sharding)?);
        }
        Ok(Self { step: 0, arrays })
    }

    fn to_tree(&self) -> Result<Tree<Leaf<'_>>> {
        let group = |group: &str| -> Result<Tree<Leaf<'_>>> {
            let array = |(name, ..): (&'static str, _, _)| {
                Ok((name, Tree::Leaf(self.arrays[&format!("{group}/{name}")].to_leaf()?)))
            };
            Ok(Tree::map(ARRAYS.into_iter().map(array).collect::<Result<Vec<_>>>()?))
        };
        Ok(Tree::map([
            ("params", group("params")?),
            ("step", Tree::Leaf(Leaf::scalar(self.step))),
            ("velocity", group("velocity")?),
        ]))
    }

    /// What was saved, on the devices of `registry`.
    fn restore(
        reader: &StepReader,
        registry: &DeviceRegistry,
        policy: ShardingPolicy,
        out: &mut dyn Write,
    ) -> std::result::Result<Self, Box<dyn Error>> {
        let plan = reader.plan(None, registry, policy)?;
        writeln!(out, "{plan}")?;
        let mut trainer = Self { step: 0, arrays: BTreeMap::new() };
        plan.execute(&HostPlacer)?.tree.map_leaves(|path, leaf| {
            match leaf {
                RestoredLeaf::Array(array) => {
                    trainer.arrays.insert(path.to_string(), Sharded::restored(array)?);
                }
                RestoredLeaf::Value(step) => trainer.step = step.as_scalar().unwrap_or_default(),
            }
            Ok(())
        })?;
        Ok(trainer)
    }

    /// One step of training, and its loss.
    fn train_step(&mut self) -> f32 {
        let [hidden, output] = ARRAYS.map(|(name, ..)| &self.arrays[&format!("params/{name}")]);
        let devices = hidden.shards.len();
        let (hidden, output) = (hidden.gather(), output.gather());
        let (step, parts) = (self.step, &(hidden, output));
        let by_device = thread::scope(|scope| {
            let work = |device: usize| {
                let own = (0..BATCH_PARTS).skip(device).step_by(devices);
                own.map(move |part| (part, gradients(step, part, &parts.0, &parts.1)))
            };
            let threads: Vec<_> = (0..devices)
                .map(|device| scope.spawn(move || work(device).collect::<Vec<_>>()))
                .collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("no panic");
            threads.into_iter().flat_map(join).collect::<BTreeMap<u8, _>>()
        });
        let (mut loss, mut sums) =
            (0.0, [Array2::zeros(parts.0.dim()), Array2::zeros(parts.1.dim())]);
        for (part_loss, part_gradients) in by_device.into_values() {
            loss += part_loss / f32::from(BATCH_PARTS);
            sums.iter_mut().zip(&part_gradients).for_each(|(sum, gradient)| *sum += gradient);
        }
        for ((name, ..), gradient) in ARRAYS.into_iter().zip(&sums) {
            self.update(name, gradient);
        }
        self.step += 1;
        loss
    }

    /// Each device changes its own shards.
    fn update(&mut self, name: &str, gradient: &Array2<f32>) {
        let velocity = self.arrays.get_mut(&format!("velocity/{name}")).expect("an array");
        for (_, region, shard) in &mut velocity.shards {
            *shard *= MOMENTUM;
            let [rows, columns] = ranges(region);
            *shard += &gradient.slice(s![rows, columns]);
        }
        let changes: Vec<_> =
            velocity.shards.iter().map(|shard| &shard.2 * LEARNING_RATE).collect();
        let weights = self.arrays.get_mut(&format!("params/{name}")).expect("an array");
        for ((.., shard), change) in weights.shards.iter_mut().zip(&changes) {
            *shard -= change;
        }
    }
}

impl Sharded {
    fn cut(array: &Array2<f32>, sharding: Sharding) -> Result<Self> {
        let shape = Shape::new(array.shape())?;
        let mut shards = Vec::new();
        for shard in sharding.layout(&shape)?.shards() {
            let [rows, columns] = ranges(&shard.region);
            let part = array.slice(s![rows, columns]).to_owned();
            let devices = shard.devices.into_iter().cloned();
            shards.extend(devices.map(|device| (device, shard.region.clone(), part.clone())));
        }
        Ok(Self { shape, sharding, shards })
    }

    fn to_leaf(&self) -> Result<Leaf<'_>> {
        let shards = self.shards.iter().map(|(device, _, part)| (device.clone(), Leaf::from(part)));
        Leaf::from_shards(self.shape.lengths(), self.sharding.clone(), shards)
    }

    fn restored(array: PlacedArray<Leaf<'static>>) -> Result<Self> {
        let PlacedArray { meta, shards } = array;
        let sharding = meta.sharding.expect("a restored array has one");
        let shards = shards.into_iter().map(|shard| {
            let part = shard.array.into_array()?.into_dimensionality().expect("two dimensions");
            Ok((shard.device, shard.region, part))
        });
        Ok(Self { shape: meta.shape, sharding, shards: shards.collect::<Result<_>>()? })
    }

    /// The whole array.
    fn gather(&self) -> Array2<f32> {
        let [rows, columns] = ranges(&Region::whole(&self.shape));
        let mut array = Array2::zeros((rows.len(), columns.len()));
        for (_, region, shard) in &self.shards {
            let [rows, columns] = ranges(region);
            array.slice_mut(s![rows, columns]).assign(shard);
        }
        array
    }
}

fn ranges(region: &Region) -> [Range<usize>; 2] {
    let [rows, columns] = region.ranges() else { panic!("two dimensions") };
    [rows.clone(), columns.clone()]
}

/// The loss of a part of the batch of `step` for each of its rows, and the gradients of both arrays.
fn gradients(
    step: u64,
    part: u8,
    hidden: &Array2<f32>,
    output: &Array2<f32>,
) -> (f32, [Array2<f32>; 2]) {
    let (inputs, outputs) = (hidden.nrows(), output.ncols());
    let rows = usize::from(PART_ROWS);
    let x = uniform(step * u64::from(BATCH_PARTS) + u64::from(part), [rows, inputs]);
    let y = Array2::from_shape_fn((rows, outputs), |(row, column)| {
        (x[[row, column]] + x[[row, column + 1]] - x[[row, column + 2]]).sin()
    });
    let active = x.dot(hidden).mapv(f32::tanh);
    let error = active.dot(output) - y;
    let scale = 1.0 / f32::from(PART_ROWS);
    let slope = error.dot(&output.t()) * active.mapv(|value| 1.0 - value * value);
    let loss = error.mapv(|value| value * value).sum() * scale;
    (loss, [x.t().dot(&slope) * scale, active.t().dot(&error) * scale])
}

/// Random numbers between -1 and 1.
fn uniform(seed: u64, [rows, columns]: [usize; 2]) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((rows, columns), || rng.random_range(-1.0..1.0))
}

#[test]
fn the_loss_is_the_same_on_any_number_of_devices() {
    let folder = tempfile::tempdir().unwrap();
    let mut shown = Vec::new();
    let losses = train_on_less_and_less(&folder.path().join("store"), &mut shown).unwrap();
    assert_eq!(losses, train_on_the_host().unwrap());
    assert!(losses[losses.len() - 1] < 0.1 * losses[0], "it learns: {losses:?}");
    let shown = String::from_utf8(shown).unwrap();
    assert!(shown.contains("cuda:0") && shown.contains("cpu:0"), "the plans are shown: {shown}");
}
