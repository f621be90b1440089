//! How long a state takes to come back on so many devices.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use milepost::CheckpointStore;
use milepost::restore::HostPlacer;
use milepost::sharding::{DeviceInfo, DeviceRegistry, Platform, ShardingPolicy};

use crate::common::meter::touch;
use crate::common::report::{Row, Rows, median};
use crate::state::{MESHES, STEP, Stores, device, mesh};

pub(crate) const METRIC: &str = "restore_sharded";

pub(crate) fn run(stores: &Stores, rounds: u64, rows: &mut Rows) {
    if !rows.wants(METRIC) {
        return;
    }
    eprintln!("measuring {METRIC}");
    let mut rates = vec![Vec::new(); MESHES.len()];
    // One more round, which warms up.
    for round in 0..=rounds {
        for ((_, data, model), rates) in MESHES.into_iter().zip(&mut rates) {
            let whole_s = in_a_process(&stores.whole, &[]);
            let sharded_s = in_a_process(&stores.sharded, &[data, model]);
            if round > 0 {
                rates.push([sharded_s, whole_s].map(|s| stores.size_bytes as f64 / s / 1e9));
            }
        }
    }
    for ((name, ..), rates) in MESHES.into_iter().zip(rates) {
        let [sharded, whole] = [0, 1].map(|side| median(rates.iter().map(|rates| rates[side])));
        let ratio = median(rates.iter().map(|[sharded, whole]| sharded / whole));
        rows.figure(Row::new(name, METRIC, sharded, "GB/s").beside(whole, ratio).at_least(0.8));
    }
}

/// The seconds that [`restore`] takes in a new process.
fn in_a_process(store: &CheckpointStore, onto: &[usize]) -> f64 {
    let mut bench = Command::new(std::env::current_exe().expect("this program"));
    bench.arg("--restore").arg(store.path());
    if !onto.is_empty() {
        bench.arg("--onto").args(onto.iter().map(usize::to_string));
    }
    let output = bench.output().expect("the process starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let seconds = String::from_utf8(output.stdout).expect("a number");
    seconds.trim().parse().expect("a number")
}

/// Restores the store at `path`, whole or onto a mesh, and prints the seconds that it took.
pub(crate) fn restore(path: &Path, onto: &[usize]) {
    let store = CheckpointStore::open_read_only(path).expect("a store");
    let size_bytes = store.step_info(STEP).expect("the step").logical_bytes;
    touch(2 * size_bytes);
    let began = Instant::now();
    let reader = store.read(STEP).expect("the step");
    let seconds = if let [data, model] = *onto {
        let devices = (0..data * model).map(|number| device(&Platform::Cuda, number));
        let registry = DeviceRegistry::new(devices.map(DeviceInfo::new)).expect("devices");
        let policy = ShardingPolicy::OntoMesh(mesh(&Platform::Cuda, data, model));
        let plan = reader.plan(None, &registry, policy).expect("a plan");
        let _restored = plan.execute(&HostPlacer).expect("a restore");
        began.elapsed()
    } else {
        let _restored = reader.restore().expect("a restore");
        began.elapsed()
    };
    println!("{}", seconds.as_secs_f64());
}
