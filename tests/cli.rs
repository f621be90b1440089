//! The `milepost` command line: what it prints and how it exits.

#![cfg(feature = "cli")]

use std::fs;
use std::path::Path;
use std::process::Command;

use milepost::{CheckpointStore, Leaf, SaveOptions, Tree};
use serde_json::Value;

/// The exit status, what is printed, and what is said on standard error.
fn milepost(arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_milepost")).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn make(path: &Path) -> CheckpointStore {
    let store = CheckpointStore::create(path).unwrap();
    let state = Tree::record(
        "TrainState",
        [
            ("step", Tree::Leaf(Leaf::scalar(10u64))),
            (
                "params",
                Tree::map([("w", Tree::Leaf(Leaf::from(ndarray::arr2(&[[0.5f32; 3]; 2]))))]),
            ),
            ("ema", Tree::None),
        ],
    );
    let options = SaveOptions::new().metric("loss", 0.5).metric("bad", f64::NAN).pin();
    store.save(10, &state, &options).unwrap();
    store
}

#[test]
fn a_store_is_looked_at_beside_its_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let _writer = make(&path);
    let file = path.to_str().unwrap();

    let (status, text, _) = milepost(&["ls", file]);
    assert_eq!(status, 0);
    for part in ["step", "10", "32 B", "yes", "bad NaN, loss 0.5"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let (status, text, _) = milepost(&["tree", file, "10"]);
    assert_eq!(status, 0);
    for part in ["struct TrainState", "params/w", "float32[2, 3]", "24 B", "uint64 scalar", "None"]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let (status, text, _) = milepost(&["verify", file]);
    assert_eq!(status, 0);
    assert!(
        text.contains("1 steps, 2 leaves, 2 chunks, 32 B read: all as it was written"),
        "{text}"
    );

    let json = |arguments: &[&str]| -> Value {
        let (status, text, _) = milepost(arguments);
        assert_eq!(status, 0);
        serde_json::from_str(&text).unwrap()
    };
    let list = json(&["ls", file, "--json"]);
    assert_eq!(list["steps"][0]["step"], 10);
    assert_eq!(list["steps"][0]["metrics"]["loss"], 0.5);
    assert_eq!(list["steps"][0]["metrics"]["bad"], "NaN");
    let tree = json(&["tree", file, "10", "--json"]);
    assert_eq!(tree["nodes"][3]["path"], "params/w");
    assert_eq!(tree["nodes"][3]["shape"], serde_json::json!([2, 3]));
    let report = json(&["verify", file, "--json"]);
    assert_eq!((&report["chunks"], &report["faults"]), (&Value::from(2), &serde_json::json!([])));
}

#[test]
fn the_exit_status_tells_damage_from_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    drop(make(&path));
    let file = path.to_str().unwrap();
    assert_eq!(milepost(&["ls"]).0, 2);
    assert_eq!(milepost(&["tree", file, "ten"]).0, 2);
    let (status, _, error) = milepost(&["tree", file, "11"]);
    assert_eq!(status, 2);
    assert!(error.contains("step 11") && error.contains("1 steps are saved"), "{error}");
    let (status, _, error) = milepost(&["ls", folder.path().join("none").to_str().unwrap()]);
    assert_eq!(status, 2);
    assert!(error.contains("no such file"), "{error}");

    let mut bytes = fs::read(&path).unwrap();
    let pattern: Vec<u8> = 0.5f32.to_le_bytes().repeat(6);
    let at = bytes.windows(24).position(|window| window == pattern).unwrap();
    bytes[at + 3] ^= 1;
    fs::write(&path, bytes).unwrap();
    let (status, text, _) = milepost(&["verify", file]);
    assert_eq!(status, 1);
    assert!(text.contains("step 10, params/w, chunk 0: the chunk checksum is"), "{text}");
    let (status, text, _) = milepost(&["verify", file, "--json"]);
    assert_eq!(status, 1);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["faults"][0]["path"], "params/w");
    assert_eq!(milepost(&["ls", file]).0, 0);
}
