//! A driver for comparing checkpoint systems: one process per operation, one JSON spec per
//! operation.
//!
//! ```text
//! cargo bench --bench peer_driver -- [--shared] SPEC.json
//! ```
//!
//! The spec names an operation `op`, a `workload` to read, a folder `store` to write to or to read,
//! and a file `json` for the result. The store is one file in that folder.
//!
//! | `op` | what is done | more of the spec |
//! |---|---|---|
//! | `save` | step 0, 1, …, each after the one before is deleted | `reps`, `no_fsync` |
//! | `restore` | a whole step into new memory, out of a cold and out of a warm page cache | `step`, `modes` |
//! | `partial` | one leaf, the same way | `step`, `leaf` |
//! | `sequence` | step after step, the changing leaves changed in between | `steps`, `keep` |
//!
//! Just before each timed part `prefault` times the size of the workload is touched and given
//! back. All that is restored is compared with the checksums of the workload. A result has `ok`,
//! and what is said of an operation in [`operations`]; where `ok` is false it has an `error`.
//!
//! A workload is a folder with `manifest.json` and a data file. The manifest has the leaves in their
//! order: name (`a/b/c`), dtype, shape, offset in the data file, length, CRC-32, and whether a step
//! changes it. Step `s` of a float32 leaf that changes is that of step 0 times `1 + s/1024`, in
//! single precision; of the leaf `step` it is that of step 0 plus `s`.
//!
//! It needs Linux.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are sizes and times far below 2^52"
)]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "each bench uses a part of it")]
mod common;
mod operations;
mod spec;
mod workload;

use std::error::Error;
use std::fs::{self, File};
use std::path::PathBuf;

use clap::Parser;
use serde_json::{Value, json};

use common::state::HandOver;
use spec::Spec;

/// One operation of a comparison of checkpoint systems.
#[derive(Parser)]
struct Options {
    /// The operation
    spec: Option<PathBuf>,
    /// Hand arrays over shared, as a trainer with immutable arrays can; otherwise borrowed
    #[arg(long)]
    shared: bool,
    /// Given by `cargo bench`
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    let Some(path) = options.spec else {
        println!("peer_driver has nothing to do: it takes the path of a spec");
        return Ok(());
    };
    let spec: Spec = serde_json::from_reader(File::open(path)?)?;
    let hand_over = if options.shared { HandOver::Shared } else { HandOver::Borrowed };
    let result = match spec.op.as_str() {
        "save" => operations::save(&spec, hand_over),
        "restore" => operations::restore(&spec),
        "partial" => operations::partial(&spec),
        "sequence" => operations::sequence(&spec, hand_over),
        other => Err(format!("the operation {other:?} is not implemented").into()),
    };
    let mut result = match result {
        Ok(Value::Object(result)) => Value::Object(result),
        Ok(other) => json!({ "result": other }),
        Err(error) => json!({ "error": error.to_string() }),
    };
    result["ok"] = json!(result.get("error").is_none());
    result["op"] = json!(spec.op);
    result["system"] = json!(spec.system);
    result["workload"] = json!(spec.workload.file_name().map(|name| name.to_string_lossy()));
    fs::write(&spec.json, serde_json::to_string(&result)?)?;
    Ok(())
}
