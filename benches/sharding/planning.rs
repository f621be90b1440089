//! How long it takes to plan a restore of very many arrays onto very many devices.

use std::path::Path;
use std::time::Instant;

use milepost::sharding::{
    DeviceInfo, DeviceRegistry, NamedSharding, PartitionSpec, Platform, ShardingPolicy,
};
use milepost::{CheckpointStore, Leaf, SaveOptions, Tree};

use crate::common::report::{Row, Rows, median};
use crate::state::{STEP, device, mesh};

pub(crate) const METRIC: &str = "plan";

const LEAVES: usize = 100_000;
const DATA: usize = 128;
const MODEL: usize = 8;

/// Plans for all leaves or for one of `parts` parts of them.
pub(crate) fn run(folder: &Path, parts: usize, rounds: u64, rows: &mut Rows) {
    eprintln!("measuring {METRIC}");
    let store = CheckpointStore::create(folder.join("planning")).expect("a new store");
    let saved_on = mesh(&Platform::Cuda, 4, 2);
    let specs =
        [[Some("data"), Some("model")], [Some("model"), Some("data")], [None, Some("data")]];
    let shardings = specs.map(|spec| {
        NamedSharding::new(saved_on.clone(), PartitionSpec::new(spec)).expect("axes of the mesh")
    });
    let leaves = (0..LEAVES / parts).map(|number| {
        let (rows, columns) = (4, 8 + number % 16);
        let bytes = vec![number.to_le_bytes()[0]; rows * columns];
        let leaf = Leaf::from_vec(bytes, [rows, columns]).expect("an array");
        let sharding = shardings[number % shardings.len()].clone();
        (format!("{number}"), Tree::Leaf(leaf.with_sharding(sharding).expect("a sharding")))
    });
    store.save(STEP, &Tree::map(leaves), &SaveOptions::new()).expect("a save");

    let devices = (0..DATA * MODEL).map(|number| device(&Platform::Tpu, number));
    let registry = DeviceRegistry::new(devices.map(DeviceInfo::new)).expect("devices");
    let policy = ShardingPolicy::OntoMesh(mesh(&Platform::Tpu, DATA, MODEL));
    let reader = store.read(STEP).expect("the step");
    let times = (0..rounds).map(|_| {
        let began = Instant::now();
        let plan = reader.plan(None, &registry, policy.clone()).expect("a plan");
        let seconds = began.elapsed().as_secs_f64();
        assert_eq!(plan.devices().len(), DATA * MODEL);
        seconds
    });
    let name = "leaves_100000_devices_1024";
    rows.figure(Row::new(name, METRIC, median(times), "s").below(1.0 / parts as f64));
}
