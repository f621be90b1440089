//! Trains in several processes, each with a device and its own rows of every array, that save to one file.
//!
//! ```text
//! cargo run --release --example ranks -- --world-size 4 --steps 300
//! ```
//!
//! Kill any of them at any time, or all, and start the command again: training goes on from the newest step
//! that all ranks have saved, as if nothing had happened. With another `--world-size` the arrays come to as
//! many devices as there are then.
//!
//! The devices are simulated. What a rank trains does not depend on the rows of others, so the ranks need
//! not talk to each other, and the store is all that they have in common.

use std::env;
use std::error::Error;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use clap::Parser;
use milepost::ndarray::{Array2, s};
use milepost::restore::{HostPlacer, RestoredLeaf};
use milepost::sharding::{
    Device, DeviceInfo, DeviceRegistry, Mesh, NamedSharding, PartitionSpec, Platform, Sharding,
    ShardingPolicy,
};
use milepost::{CheckpointManager, DType, Leaf, ManagerOptions, Rank, Region, Result, Shape, Tree};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const INPUTS: usize = 48;
const BATCH: usize = 32;
const LEARNING_RATE: f32 = 0.002;
const MOMENTUM: f32 = 0.9;

/// How long a rank waits at its end for the others.
const PATIENCE: Duration = Duration::from_mins(1);

/// Trains a linear map, each rank some rows of it, and goes on where it was stopped.
#[derive(Debug, Parser)]
#[command(name = "ranks")]
struct Options {
    /// The checkpoint store that the ranks share; it is created if it isn't there
    #[arg(long, value_name = "PATH", default_value = "ranks.milepost")]
    store: PathBuf,

    /// The processes that train
    #[arg(long, value_name = "N", default_value_t = 4)]
    world_size: u32,

    /// Be this one of them; without it all are started
    #[arg(long, value_name = "R")]
    rank: Option<u32>,

    /// Steps to train in all, those of earlier runs included
    #[arg(long, value_name = "N", default_value_t = 300)]
    steps: u64,

    /// Save each time so many steps are done
    #[arg(long, value_name = "K", default_value_t = 10)]
    save_every: u64,

    /// Rows of the map
    #[arg(long, value_name = "N", default_value_t = 32)]
    rows: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match options.rank {
        Some(rank) => train(&options, rank),
        None => start_all(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Starts a process for each rank, and waits for them.
fn start_all(options: &Options) -> std::result::Result<(), Box<dyn Error>> {
    let start = |rank: u32| {
        let mut command = Command::new(env::current_exe()?);
        command.args(env::args_os().skip(1)).args(["--rank", &rank.to_string()]).spawn()
    };
    let ranks = (0..options.world_size).map(start).collect::<io::Result<Vec<_>>>()?;
    for (rank, mut process) in ranks.into_iter().enumerate() {
        let status = process.wait()?;
        if !status.success() {
            return Err(format!("rank {rank} ended with {status}").into());
        }
    }
    Ok(())
}

/// One rank, from the newest step on to the last one.
fn train(options: &Options, rank: u32) -> std::result::Result<(), Box<dyn Error>> {
    let rank = Rank::new(rank, options.world_size)?;
    let manager_options =
        ManagerOptions::new().rank(rank).save_interval_steps(options.save_every)?;
    let manager = CheckpointManager::open(&options.store, manager_options)?;
    let devices: Vec<Device> =
        (0..rank.world_size()).map(|ordinal| Device::new(Platform::Cuda, ordinal)).collect();
    let mut trainer = Trainer::new(options.rows, rank, &devices)?;
    if let Some(step) = manager.latest_step()? {
        trainer.restore(&manager, step, &devices)?;
        writeln!(io::stdout(), "{rank} goes on from step {step}")?;
    }
    let mut loss = f32::NAN;
    while trainer.step < options.steps {
        loss = trainer.train_step();
        manager.save(trainer.step, &trainer.to_tree()?)?;
    }
    // The others may need the same step, so it is not left before all of them have it.
    manager.wait_until_finished()?;
    if trainer.step.is_multiple_of(options.save_every) && trainer.step > 0 {
        manager.wait_committed(trainer.step, PATIENCE)?;
    }
    writeln!(io::stdout(), "{rank} is at step {}, the loss of its rows {loss:.3e}", trainer.step)?;
    Ok(())
}

/// What one rank has of the state.
struct Trainer {
    step: u64,
    shape: Shape,
    /// The rows of the arrays over the devices of all ranks.
    sharding: Sharding,
    device: Device,
    /// The rows that are here.
    region: Region,
    weights: Array2<f32>,
    velocity: Array2<f32>,
}

impl Trainer {
    fn new(rows: usize, rank: Rank, devices: &[Device]) -> Result<Self> {
        let mesh = Mesh::new(devices.to_vec(), [("rows", devices.len())])?;
        let spec = PartitionSpec::new([Some("rows")]);
        let sharding = Sharding::from(NamedSharding::new(mesh, spec)?);
        let shape = Shape::new([rows, INPUTS])?;
        let device = Device::new(Platform::Cuda, rank.number());
        let region = sharding.layout(&shape)?.region_of(&device).expect("a device of the mesh");
        let own = (region.ranges()[0].len(), INPUTS);
        let (weights, velocity) = (Array2::zeros(own), Array2::zeros(own));
        Ok(Self { step: 0, shape, sharding, device, region, weights, velocity })
    }

    /// What this rank gives to a step.
    fn to_tree(&self) -> Result<Tree<Leaf<'_>>> {
        let own = |rows| -> Result<Tree<Leaf<'_>>> {
            let shard = (self.device.clone(), Leaf::from(rows));
            let (shape, sharding) = (self.shape.lengths(), self.sharding.clone());
            Leaf::from_local_shards(DType::F32, shape, sharding, [shard]).map(Tree::Leaf)
        };
        Ok(Tree::map([
            ("step", Tree::Leaf(Leaf::scalar(self.step))),
            ("velocity", own(&self.velocity)?),
            ("weights", own(&self.weights)?),
        ]))
    }

    /// Takes this rank's rows of a saved step, which may have been saved by another number of ranks. Nothing
    /// but them is read.
    fn restore(
        &mut self,
        manager: &CheckpointManager,
        step: u64,
        devices: &[Device],
    ) -> std::result::Result<(), Box<dyn Error>> {
        let process = |(process, device): (u32, &Device)| {
            DeviceInfo::new(device.clone()).with_process(process)
        };
        let devices = (0..).zip(devices).map(process);
        let registry = DeviceRegistry::of_process(self.device.ordinal(), devices)?;
        let policy = ShardingPolicy::Sharding(self.sharding.clone());
        let reader = manager.read(step)?;
        let restored = reader.plan(None, &registry, policy)?.execute(&HostPlacer)?;
        restored.tree.map_leaves(|path, leaf| {
            match leaf {
                RestoredLeaf::Value(step) => self.step = step.as_scalar().unwrap_or_default(),
                RestoredLeaf::Array(array) => {
                    let own = array.shards.into_iter().find(|shard| shard.device == self.device);
                    let rows = own.expect("this rank's shard").array.into_array()?;
                    let rows = rows.into_dimensionality().expect("two dimensions");
                    match path.to_string().as_str() {
                        "weights" => self.weights = rows,
                        _ => self.velocity = rows,
                    }
                }
            }
            Ok(())
        })?;
        Ok(())
    }

    /// One step of gradient descent, and the loss of the rows that are here.
    fn train_step(&mut self) -> f32 {
        // All ranks see the same batch, and each its own rows of what is to be learned.
        let inputs = uniform(self.step, [INPUTS, BATCH]);
        let target = uniform(u64::MAX, [self.shape.lengths()[0], INPUTS]);
        let target = target.slice(s![self.region.ranges()[0].clone(), ..]);
        let error = (&self.weights - &target).dot(&inputs);
        let gradient = error.dot(&inputs.t()) / 32.0;
        self.velocity = &self.velocity * MOMENTUM + gradient;
        self.weights.scaled_add(-LEARNING_RATE, &self.velocity);
        self.step += 1;
        error.mapv(|value| value * value).mean().unwrap_or_default()
    }
}

/// Random numbers between -1 and 1.
fn uniform(seed: u64, [rows, columns]: [usize; 2]) -> Array2<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    Array2::from_shape_simple_fn((rows, columns), || rng.random_range(-1.0..1.0))
}
