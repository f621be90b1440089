//! The `milepost` command line: what it prints and how it exits.

#![cfg(feature = "cli")]

use std::fs;
use std::path::Path;
use std::process::Command;

use milepost::{CheckpointStore, Leaf, SaveOptions, Tree};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text:?}"))
}

/// Changes one byte of each place in the file where `pattern` is.
fn damage(path: &Path, pattern: &[u8]) {
    let mut bytes = fs::read(path).unwrap();
    let there = |at: &usize| bytes[*at..].starts_with(pattern);
    let places: Vec<_> = (0..bytes.len()).filter(there).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 1] ^= 1;
    }
    fs::write(path, bytes).unwrap();
}

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
        text.contains("1 step, 2 leaves, 2 chunks, 32 B read: all as it was written"),
        "{text}"
    );

    let json = |arguments: &[&str]| -> Value {
        let (status, text, _) = milepost(arguments);
        assert_eq!(status, 0);
        json(&text)
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
    assert!(error.contains("step 11") && error.contains("one step is saved: 10"), "{error}");
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

#[test]
fn the_latest_step_is_shown_unless_another_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let file = path.to_str().unwrap();
    let store = make(&path);
    let other = Tree::map([("other", Tree::Leaf(Leaf::scalar(1u8)))]);
    store.save(9, &other, &SaveOptions::new()).unwrap();
    let (status, text, _) = milepost(&["tree", file]);
    assert_eq!(status, 0);
    assert!(text.starts_with("step 10, ") && text.contains("params/w"), "{text}");
    let (_, text, _) = milepost(&["tree", file, "9"]);
    assert!(text.starts_with("step 9, ") && text.contains("other"), "{text}");
    let (_, text, _) = milepost(&["tree", "--json", file]);
    assert_eq!(json(&text)["step"]["step"], 10);
}

#[test]
fn an_empty_store_has_no_steps_and_no_latest_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let file = path.to_str().unwrap();
    let _writer = CheckpointStore::create(&path).unwrap();
    assert_eq!(milepost(&["ls", file]), (0, "no step is saved\n".to_owned(), String::new()));
    let (status, text, _) = milepost(&["ls", file, "--json"]);
    assert_eq!((status, json(&text)), (0, serde_json::json!({"steps": [], "faults": []})));
    let (status, text, _) = milepost(&["verify", file]);
    assert_eq!(status, 0);
    assert_eq!(text, "0 steps, 0 leaves, 0 chunks, 0 B read: all as it was written\n");
    let (status, text, error) = milepost(&["tree", file]);
    assert_eq!((status, text.as_str()), (2, ""));
    assert!(error.contains("run.milepost: no step is saved"), "{error}");
    let (status, text, _) = milepost(&["tree", file, "--json"]);
    assert_eq!(status, 2);
    assert_eq!(json(&text)["error"]["kind"], "NotFound");
}

/// A program that reads the output was left with nothing but the exit status.
#[test]
fn failures_are_json_too() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let file = path.to_str().unwrap();
    drop(make(&path));
    let failure = |arguments: &[&str]| {
        let (status, text, error) = milepost(arguments);
        let mut failure = json(&text)["error"].take();
        let message = failure["message"].take();
        assert!(error.contains(message.as_str().unwrap()), "{error}");
        (status, failure)
    };
    let expected = |kind: &str, step: Option<u64>| {
        let nothing = Value::Null;
        serde_json::json!({
            "kind": kind, "message": nothing, "step": step, "path": nothing, "chunk": nothing
        })
    };
    assert_eq!(failure(&["tree", file, "11", "--json"]), (2, expected("NotFound", Some(11))));
    let none = folder.path().join("none");
    let none = none.to_str().unwrap();
    for command in ["ls", "tree", "verify"] {
        assert_eq!(failure(&[command, none, "--json"]), (2, expected("NotFound", None)));
    }
    fs::write(none, "some text").unwrap();
    assert_eq!(failure(&["ls", none, "--json"]), (2, expected("NotAStore", None)));
    // Damage that leaves nothing to show is damage.
    damage(&path, &0.5f64.to_le_bytes()[4..]);
    assert_eq!(failure(&["tree", file, "10", "--json"]), (1, expected("Damaged", Some(10))));
    // How the command is to be called is for people.
    let (status, text, error) = milepost(&["tree", file, "ten", "--json"]);
    assert_eq!((status, text.as_str()), (2, ""));
    assert!(error.contains("ten") && error.contains("--help"), "{error}");
}

#[test]
fn a_step_with_a_damaged_record_is_listed_as_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let file = path.to_str().unwrap();
    let store = make(&path);
    let odd = SaveOptions::new().metric("loss", 0.123_456_789);
    store.save(11, &Tree::Leaf(Leaf::scalar(1u8)), &odd).unwrap();
    drop(store);
    damage(&path, &0.123_456_789f64.to_le_bytes());
    let (status, text, _) = milepost(&["ls", file]);
    assert_eq!(status, 1);
    assert!(text.contains("bad NaN, loss 0.5\n"), "{text}");
    assert!(text.contains("damaged: ") && text.contains("step 11: the step record"), "{text}");
    let (status, text, _) = milepost(&["ls", file, "--json"]);
    let list = json(&text);
    assert_eq!((status, &list["steps"][0]["step"]), (1, &Value::from(10)));
    assert_eq!(
        (&list["faults"][0]["kind"], &list["faults"][0]["step"]),
        (&"Damaged".into(), &11.into())
    );
    assert_eq!(
        (list["steps"].as_array().unwrap().len(), list["faults"].as_array().unwrap().len()),
        (1, 1)
    );
    let (status, text, _) = milepost(&["verify", file]);
    assert_eq!(status, 1);
    assert!(text.ends_with("2 steps, 3 leaves, 3 chunks, 33 B read: 1 fault\n"), "{text}");
    let (_, text, _) = milepost(&["verify", file, "--json"]);
    let report = json(&text);
    assert_eq!(
        (&report["faults"][0]["kind"], &report["complete"]),
        (&"Damaged".into(), &true.into())
    );
}

#[test]
fn metrics_are_rounded_for_people_and_exact_for_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.milepost");
    let file = path.to_str().unwrap();
    let store = CheckpointStore::create(&path).unwrap();
    let metrics = [("a", 1.0 / 3.0), ("b", 1_234_567.0), ("c", f64::INFINITY), ("d", 98.765_432_1)];
    let options = SaveOptions::new().metrics(metrics);
    store.save(1, &Tree::Leaf(Leaf::scalar(1u8)), &options).unwrap();
    let (_, text, _) = milepost(&["ls", file]);
    assert!(text.contains(" a 0.333333, b 1.23457e6, c inf, d 98.7654\n"), "{text}");
    let (_, text, _) = milepost(&["ls", file, "--json"]);
    let exact = &json(&text)["steps"][0]["metrics"];
    assert_eq!(exact["a"].as_f64(), Some(1.0 / 3.0));
    assert_eq!(exact["d"].as_f64(), Some(98.765_432_1));
}

/// The name of a struct, a metric, a key or a file may be one that a terminal obeys.
#[test]
fn nothing_that_is_printed_moves_the_terminal() {
    const HOSTILE: &str = "\u{1b}[2J\u{9b}31m\r\n\u{202e}x";
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(format!("{HOSTILE}.milepost"));
    let file = path.to_str().unwrap();
    let store = CheckpointStore::create(&path).unwrap();
    let state = Tree::record(HOSTILE, [(HOSTILE, Tree::Leaf(Leaf::scalar(0.5f32)))]);
    let options = SaveOptions::new().metric(HOSTILE, 0.25).custom_metadata(HOSTILE.into());
    store.save(1, &state, &options).unwrap();
    drop(store);
    let mut shown = Vec::new();
    let mut show = |arguments: &[&str]| {
        let (status, text, error) = milepost(arguments);
        shown.extend([text, error]);
        status
    };
    for json in [&[][..], &["--json"]] {
        assert_eq!(show(&[&["ls", file], json].concat()), 0);
        assert_eq!(show(&[&["tree", file], json].concat()), 0);
        assert_eq!(show(&[&["tree", file, "2"], json].concat()), 2);
    }
    damage(&path, &0.25f64.to_le_bytes());
    for json in [&[][..], &["--json"]] {
        assert_eq!(show(&[&["ls", file], json].concat()), 1);
        assert_eq!(show(&[&["verify", file], json].concat()), 1);
    }
    for text in &shown {
        let moves = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(moves), "{text:?}");
        assert!(text.is_empty() || text.to_lowercase().contains("u{1b}") || text.contains("u001b"));
    }
    assert!(shown[0].contains(r"\u{1b}[2J\u{9b}31m\r\n\u{202e}x 0.25"), "{}", shown[0]);
}

#[test]
fn help_says_what_there_is_and_how_it_ends() {
    for arguments in
        [&["--help"][..], &["ls", "--help"], &["tree", "--help"], &["verify", "--help"]]
    {
        let (status, text, _) = milepost(arguments);
        assert_eq!(status, 0);
        assert!(text.contains("Usage: milepost") && text.lines().count() > 5, "{text}");
    }
    let (_, text, _) = milepost(&["--help"]);
    assert!(text.contains("Exit status: 0 fine, 1 damage found, 2 could not run"), "{text}");
    let (_, text, _) = milepost(&["tree", "--help"]);
    assert!(text.contains("[default: the latest]"), "{text}");
}
