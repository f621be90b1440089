//! How long a state takes to come back on so many devices.

use std::time::Instant;

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
            let whole_s = timed(stores, || {
                let reader = stores.whole.read(STEP).expect("the step");
                reader.restore().expect("a restore")
            });
            let sharded_s = timed(stores, || {
                let devices = (0..data * model).map(|number| device(&Platform::Cuda, number));
                let registry = DeviceRegistry::new(devices.map(DeviceInfo::new)).expect("devices");
                let reader = stores.sharded.read(STEP).expect("the step");
                let policy = ShardingPolicy::OntoMesh(mesh(&Platform::Cuda, data, model));
                let plan = reader.plan(None, &registry, policy).expect("a plan");
                plan.execute(&HostPlacer).expect("a restore")
            });
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

/// The seconds that `restore` takes. What it gives is dropped after that.
fn timed<T>(stores: &Stores, restore: impl FnOnce() -> T) -> f64 {
    touch(2 * stores.size_bytes);
    let began = Instant::now();
    let restored = restore();
    let seconds = began.elapsed().as_secs_f64();
    drop(restored);
    seconds
}
