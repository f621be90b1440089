//! What the commands print: tables for people, JSON for programs.

use std::collections::BTreeMap;
use std::time::SystemTime;

use comfy_table::{CellAlignment, Table, presets};
use indicatif::HumanBytes;
use milepost::{
    Error, ErrorKind, KeyPath, LeafMeta, LeafSource, Result, StepInfo, StepReader, Tree,
    VerifyReport,
};
use serde_json::{Value, json};

use crate::failure::fault_json;
use crate::text::{self, count, visible};

/// The steps of a store, and the faults of those whose records can't be read.
pub(crate) fn steps(infos: &[StepInfo], unreadable: &[Error], as_json: bool) -> String {
    if as_json {
        return text::json(&json!({
            "steps": infos.iter().map(step_json).collect::<Vec<_>>(),
            "faults": unreadable.iter().map(fault_json).collect::<Vec<_>>(),
        }));
    }
    if infos.is_empty() && unreadable.is_empty() {
        return "no step is saved\n".to_owned();
    }
    let mut table = table(["step", "saved at", "leaves", "size", "stored", "pinned", "metrics"]);
    for info in infos {
        table.add_row([
            info.step.to_string(),
            time(info.committed_at),
            info.leaf_count.to_string(),
            HumanBytes(info.logical_bytes).to_string(),
            HumanBytes(info.stored_bytes).to_string(),
            (if info.pinned { "yes" } else { "" }).to_owned(),
            metrics(&info.metrics),
        ]);
    }
    align_right(&mut table, [0, 2, 3, 4]);
    let list = if infos.is_empty() { String::new() } else { lines(&table) };
    list + &faults(unreadable)
}

/// The structure of a step, a line for each node.
pub(crate) fn structure(reader: &StepReader, as_json: bool) -> Result<String> {
    let structure = reader.structure()?;
    let mut nodes = Vec::new();
    collect(&mut KeyPath::root(), &structure, &mut nodes);
    if as_json {
        let rows: Vec<Value> = nodes.iter().map(node_json).collect::<Result<_>>()?;
        return Ok(text::json(&json!({ "step": step_json(reader.info()), "nodes": rows })));
    }
    let mut table = table(["path", "what", "size"]);
    for (path, node) in &nodes {
        let (what, size) = match node {
            Tree::Leaf(meta) => (meta.to_string(), HumanBytes(bytes(meta)?).to_string()),
            Tree::Struct { name, .. } => (format!("struct {}", visible(name)), String::new()),
            node => (node.kind().to_owned(), String::new()),
        };
        table.add_row([visible(&path.to_string()), what, size]);
    }
    align_right(&mut table, [2]);
    let info = reader.info();
    Ok(format!("step {}, saved at {}\n{}", info.step, time(info.committed_at), lines(&table)))
}

/// What a verification found.
pub(crate) fn report(report: &VerifyReport, as_json: bool) -> String {
    if as_json {
        return text::json(&json!({
            "steps": report.steps,
            "leaves": report.leaves,
            "chunks": report.chunks,
            "stored_bytes": report.stored_bytes,
            "unfinished_packs": report.unfinished_packs,
            "complete": report.is_complete(),
            "faults": report.faults.iter().map(fault_json).collect::<Vec<_>>(),
        }));
    }
    let found = u64::try_from(report.faults.len()).unwrap_or(u64::MAX);
    let mut outcome = match found {
        0 => "all as it was written".to_owned(),
        found => count(found, "fault", "faults"),
    };
    if !report.is_complete() {
        outcome += "; the file could not be read any further";
    }
    let (steps, leaves) =
        (count(report.steps, "step", "steps"), count(report.leaves, "leaf", "leaves"));
    let (chunks, read) = (count(report.chunks, "chunk", "chunks"), HumanBytes(report.stored_bytes));
    faults(&report.faults) + &format!("{steps}, {leaves}, {chunks}, {read} read: {outcome}\n")
}

/// A line for each fault.
fn faults(faults: &[Error]) -> String {
    let line = |fault: &Error| {
        let what = match fault.kind() {
            ErrorKind::Damaged => "damaged",
            ErrorKind::UnsupportedVersion => "unsupported",
            _ => "failed",
        };
        format!("{what}: {}\n", visible(&fault.to_string()))
    };
    faults.iter().map(line).collect()
}

fn collect<'t>(
    path: &mut KeyPath,
    node: &'t Tree<LeafMeta>,
    nodes: &mut Vec<(KeyPath, &'t Tree<LeafMeta>)>,
) {
    nodes.push((path.clone(), node));
    for (key, child) in node.children() {
        path.push(key);
        collect(path, child, nodes);
        path.pop();
    }
}

fn step_json(info: &StepInfo) -> Value {
    // JSON has no NaN and no infinities: those metrics are written as text.
    let number = |value: f64| {
        serde_json::Number::from_f64(value).map_or_else(|| json!(value.to_string()), Value::from)
    };
    let metrics: BTreeMap<_, _> =
        info.metrics.iter().map(|(name, value)| (name, number(*value))).collect();
    json!({
        "step": info.step,
        "committed_at": time(info.committed_at),
        "leaf_count": info.leaf_count,
        "logical_bytes": info.logical_bytes,
        "stored_bytes": info.stored_bytes,
        "pinned": info.pinned,
        "digest": info.digest_hex(),
        "metrics": metrics,
        "custom_metadata": info.custom_metadata,
    })
}

fn node_json((path, node): &(KeyPath, &Tree<LeafMeta>)) -> Result<Value> {
    let (path, kind) = (path.to_string(), node.kind());
    Ok(match node {
        Tree::Leaf(meta) => json!({
            "path": path,
            "node": kind,
            "kind": meta.kind.name(),
            "dtype": meta.dtype.name(),
            "shape": meta.shape.lengths(),
            "bytes": bytes(meta)?,
        }),
        Tree::Struct { name, .. } => json!({ "path": path, "node": kind, "name": name }),
        _ => json!({ "path": path, "node": kind }),
    })
}

fn bytes(meta: &LeafMeta) -> Result<u64> {
    Ok(u64::try_from(meta.size_bytes()?).unwrap_or(u64::MAX))
}

fn metrics(metrics: &BTreeMap<String, f64>) -> String {
    let pair =
        |(name, value): (&String, &f64)| format!("{} {}", visible(name), text::metric(*value));
    let pairs: Vec<_> = metrics.iter().map(pair).collect();
    pairs.join(", ")
}

fn time(time: SystemTime) -> String {
    jiff::Timestamp::try_from(time)
        .map_or_else(|_| "unknown".to_owned(), |time| format!("{time:.3}"))
}

fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(header);
    table
}

fn align_right<const N: usize>(table: &mut Table, columns: [usize; N]) {
    for column in columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

/// The lines of a table without the padding at their ends.
fn lines(table: &Table) -> String {
    let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}
