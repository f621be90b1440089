//! The operations, each timed apart from what it needs before.

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use milepost::{Leaf, Tree};
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::common::files::{self, Disk, disk_usage, sync_all, sync_below};
use crate::common::meter::{Cost, Meter};
use crate::common::state::{HandOver, State, key_path};
use crate::common::store::Store;
use crate::spec::{Mode, Spec};
use crate::workload::{Manifest, at_step};

type Outcome = Result<Value, Box<dyn Error>>;

/// Memory that is touched before one leaf is read.
const PARTIAL_TOUCHED: u64 = 256 << 20;

/// What one save cost, the files that it left included.
#[derive(Serialize)]
struct Run {
    #[serde(flatten)]
    cost: Cost,
    /// Until the state may change again.
    stall_s: f64,
    /// Until the store says that the step is saved.
    done_s: f64,
    /// The sync of every file afterwards.
    fsync_s: f64,
    durable_s: f64,
    #[serde(flatten)]
    disk: Disk,
}

/// `runs` has the costs of the saves; the last step stays.
pub(crate) fn save(spec: &Spec, hand_over: HandOver) -> Outcome {
    let manifest = Manifest::read(&spec.workload)?;
    let state = manifest.load(&spec.workload, hand_over)?;
    warm_up(spec)?;
    empty(&spec.store)?;
    let opening = Meter::start(0);
    let store = Store::open(&file(&spec.store), None)?;
    let open_s = opening.seconds();
    let mut runs = Vec::new();
    for rep in 0..spec.reps {
        if rep > 0 {
            store.delete(rep - 1)?;
        }
        sync_all();
        runs.push(save_one(spec, &store, rep, &state, manifest.logical_bytes)?);
    }
    Ok(json!({
        "runs": runs,
        "open_s": open_s,
        "logical": manifest.logical_bytes,
        "last_step": spec.reps.checked_sub(1),
        "leaves": manifest.leaves.len(),
    }))
}

fn save_one(
    spec: &Spec,
    store: &Store,
    step: u64,
    state: &State,
    bytes: u64,
) -> Result<Run, Box<dyn Error>> {
    let meter = Meter::start(touched(spec, bytes));
    let saved = store.save_in_background(step, state)?;
    let cost = meter.stop();
    let syncing = Meter::start(0);
    if !spec.no_fsync {
        sync_below(&spec.store)?;
    }
    let fsync_s = syncing.seconds();
    Ok(Run {
        cost,
        stall_s: saved.returned_s,
        done_s: saved.durable_s,
        fsync_s,
        durable_s: saved.durable_s + fsync_s,
        disk: disk_usage(&spec.store)?,
    })
}

/// `cold` and `warm` have the costs; `warm` also `verified` and the first `differences`.
pub(crate) fn restore(spec: &Spec) -> Outcome {
    let manifest = Manifest::read(&spec.workload)?;
    warm_up(spec)?;
    let mut result = Map::from_iter([("logical".to_owned(), json!(manifest.logical_bytes))]);
    for mode in &spec.modes {
        lay_out(spec, *mode)?;
        // Opened anew: it has no cache of its own from the mode before.
        let store = Store::open(&file(&spec.store), None)?;
        let meter = Meter::start(touched(spec, manifest.logical_bytes));
        let tree = store.restore_fresh(spec.step)?;
        let returned_s = meter.seconds();
        touch_pages(&tree)?;
        let mut part = serde_json::to_value(meter.stop())?;
        part["returned_s"] = json!(returned_s);
        if *mode == Mode::Warm {
            let mut differences = manifest.differences(&tree)?;
            part["verified"] = json!(differences.is_empty());
            differences.truncate(5);
            part["differences"] = json!(differences);
        }
        result.insert(mode.name().to_owned(), part);
    }
    Ok(result.into())
}

/// `cold` and `warm` have the costs and `verified`.
pub(crate) fn partial(spec: &Spec) -> Outcome {
    let manifest = Manifest::read(&spec.workload)?;
    let entry = manifest.leaf(&spec.leaf)?;
    warm_up(spec)?;
    let path = key_path(&spec.leaf);
    let mut result = Map::from_iter([("leaf_bytes".to_owned(), json!(entry.nbytes))]);
    for mode in [Mode::Cold, Mode::Warm] {
        lay_out(spec, mode)?;
        // Opened anew: it has no cache of its own from the mode before.
        let store = Store::open(&file(&spec.store), None)?;
        let meter = Meter::start(PARTIAL_TOUCHED);
        let leaf = store.read_leaf(spec.step, &path)?;
        let tree = Tree::Leaf(leaf);
        touch_pages(&tree)?;
        let mut part = serde_json::to_value(meter.stop())?;
        let Tree::Leaf(leaf) = &tree else { return Err("a leaf is a leaf".into()) };
        part["verified"] = json!(entry.difference(leaf)?.is_none());
        result.insert(mode.name().to_owned(), part);
    }
    Ok(result.into())
}

/// The sums of the costs, `stalls` and `durables` of each step, and the `steps_left`.
pub(crate) fn sequence(spec: &Spec, hand_over: HandOver) -> Outcome {
    let manifest = Manifest::read(&spec.workload)?;
    let first = manifest.load(&spec.workload, hand_over)?;
    warm_up(spec)?;
    empty(&spec.store)?;
    let store = Store::open(&file(&spec.store), spec.keep)?;
    sync_all();
    let mut runs = Vec::new();
    for step in 0..spec.steps {
        let state = at_step(&first, step);
        runs.push(save_one(spec, &store, step, &state, manifest.logical_bytes)?);
    }
    let costs: Vec<&Cost> = runs.iter().map(|run| &run.cost).collect();
    let each = |value: fn(&Run) -> f64| runs.iter().map(value).collect::<Vec<f64>>();
    let mut result = serde_json::to_value(Cost::sum(&costs).ok_or("there are no steps to save")?)?;
    result["stalls"] = json!(each(|run| run.stall_s));
    result["durables"] = json!(each(|run| run.durable_s));
    result["done_s"] = json!(each(|run| run.done_s).iter().sum::<f64>());
    result["durable_s"] = json!(each(|run| run.durable_s).iter().sum::<f64>());
    result["logical"] = json!(manifest.logical_bytes * spec.steps);
    drop(store);
    let disk = disk_usage(&spec.store)?;
    result["files"] = json!(disk.files);
    result["bytes"] = json!(disk.bytes);
    result["allocated"] = json!(disk.allocated);
    result["steps_left"] = json!(Store::open(&file(&spec.store), None)?.all_steps()?);
    Ok(result)
}

fn file(folder: &Path) -> PathBuf {
    folder.join("run.milepost")
}

/// Makes `folder` an empty one.
fn empty(folder: &Path) -> Result<(), Box<dyn Error>> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    Ok(fs::create_dir_all(folder)?)
}

/// Saves and restores next to the store, so that no timed part is the first of its kind.
fn warm_up(spec: &Spec) -> Result<(), Box<dyn Error>> {
    let mut folder = spec.store.clone().into_os_string();
    folder.push(".warmup");
    let folder = PathBuf::from(folder);
    empty(&folder)?;
    let store = Store::open(&file(&folder), None)?;
    store.save(0, &State::new())?;
    store.restore_fresh(0)?;
    drop(store);
    Ok(fs::remove_dir_all(folder)?)
}

/// Puts the files of the store where they are to be read from.
fn lay_out(spec: &Spec, mode: Mode) -> Result<(), Box<dyn Error>> {
    files::evict(&spec.store)?;
    if mode == Mode::Warm {
        files::warm(&spec.store)?;
    }
    Ok(())
}

fn touched(spec: &Spec, bytes: u64) -> u64 {
    (spec.prefault * bytes as f64) as u64
}

/// Reads one byte of every page, so that what is there only in name is paid for.
fn touch_pages(tree: &Tree<Leaf<'static>>) -> Result<(), Box<dyn Error>> {
    for (_, leaf) in tree.leaves()? {
        black_box(
            leaf.contents()
                .unwrap_or_default()
                .iter()
                .step_by(4096)
                .map(|byte| u64::from(*byte))
                .sum::<u64>(),
        );
    }
    Ok(())
}
