//! How much is read from the file for a device, if each device has a process of its own.

use milepost::restore::HostPlacer;
use milepost::sharding::{DeviceInfo, DeviceRegistry, Platform, ShardingPolicy};

use crate::common::meter::Meter;
use crate::common::report::{Row, Rows};
use crate::state::{MESHES, STEP, Stores, device, mesh};

pub(crate) const METRIC: &str = "read_per_device";

/// May be read beside 1.05 times the regions of a device.
const BESIDE_BYTES: f64 = 262_144.0;

pub(crate) fn run(stores: &Stores, rows: &mut Rows) {
    if !rows.wants(METRIC) {
        return;
    }
    eprintln!("measuring {METRIC}");
    for (name, data, model) in MESHES {
        let of_each = (0..data * model).map(|process| one_process(stores, process, data, model));
        let most = of_each.max_by(|one, other| (one.0 / one.1).total_cmp(&(other.0 / other.1)));
        let (read, limit) = most.expect("a device");
        let row = Row::new(name, METRIC, read / 1e6, "MB").beside(limit / 1e6, read / limit);
        rows.figure(row.at_most(1.0));
    }
}

/// The bytes that are read for the device of a process, and how many it may be.
fn one_process(stores: &Stores, process: usize, data: usize, model: usize) -> (f64, f64) {
    let number = |process: usize| u32::try_from(process).expect("few processes");
    let devices = (0..data * model).map(|ordinal| {
        DeviceInfo::new(device(&Platform::Cuda, ordinal)).with_process(number(ordinal))
    });
    let registry = DeviceRegistry::of_process(number(process), devices).expect("a registry");
    let reader = stores.sharded.read(STEP).expect("the step");
    let policy = ShardingPolicy::OntoMesh(mesh(&Platform::Cuda, data, model));
    let meter = Meter::start(0);
    let plan = reader.plan(None, &registry, policy).expect("a plan");
    plan.execute(&HostPlacer).expect("a restore");
    let read = meter.stop().io.rchar as f64;
    let of_device = plan.devices()[process].bytes() as f64;
    (read, 1.05 * of_device + BESIDE_BYTES)
}
