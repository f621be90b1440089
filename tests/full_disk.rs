//! No room for a save: the error says so, nothing is lost, and the same store goes on when there is
//! room again.

#![cfg(target_os = "linux")]

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use milepost::keep_policy::LatestN;
use milepost::{CheckpointManager, ErrorKind, Leaf, ManagerOptions, Tree};

fn state(step: u64, mebibytes: usize) -> Tree<Leaf<'static>> {
    let elements = vec![step; mebibytes << 17];
    Tree::map([("w", Tree::Leaf(Leaf::from_vec(elements, [mebibytes << 17]).unwrap()))])
}

/// Lets this process write files of any size again.
fn raise_the_limit() {
    let pid = std::process::id().to_string();
    let mut prlimit = Command::new("prlimit");
    prlimit.args(["--pid", &pid, "--fsize=unlimited"]);
    assert!(prlimit.status().unwrap().success());
}

/// Runs with a soft limit of 24 MiB on the size of files, as a full disk.
#[test]
#[ignore = "the part of another process"]
fn peer_meets_the_limit() {
    let path = PathBuf::from(env::var("MILEPOST_TEST_STORE").expect("run by another test"));
    let manager = CheckpointManager::open(path, ManagerOptions::new().keep(LatestN(2))).unwrap();
    // The file was opened by a relative path, and is found again after errors all the same.
    env::set_current_dir("/").unwrap();
    let reader = {
        assert!(manager.save(1, &state(1, 2)).unwrap().is_saved());
        manager.read(1).unwrap()
    };
    for _ in 0..3 {
        // Several waves, the first of which fit.
        let error = manager.save(2, &state(2, 64)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        assert_eq!(error.step(), Some(2));
        assert!(error.to_string().contains("free space and save again"), "{error}");
        assert_eq!(manager.all_steps().unwrap(), [1]);
        assert_eq!(manager.restore(1).unwrap(), state(1, 2));
    }
    // A smaller state fits.
    assert!(manager.save(3, &state(3, 2)).unwrap().is_saved());
    raise_the_limit();
    assert!(manager.save(4, &state(4, 64)).unwrap().is_saved());
    assert_eq!(manager.all_steps().unwrap(), [3, 4]);
    assert_eq!(manager.restore(4).unwrap(), state(4, 64));
    drop(reader);
    let report = manager.store().verify().unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert_eq!(report.unfinished_packs, 0);
    println!("peer: done");
}

#[test]
fn a_full_disk_costs_one_save_and_nothing_else() {
    if Command::new("prlimit").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no prlimit to limit the size of files with");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // A process that ignores SIGXFSZ gets an error instead.
    let script = "trap '' XFSZ; ulimit -S -f 24576; exec \"$0\" \"$@\"";
    let output = Command::new("bash")
        .args(["-c", script])
        .arg(env::current_exe().unwrap())
        .args(["--exact", "peer_meets_the_limit", "--ignored", "--nocapture"])
        .current_dir(folder.path())
        .env("MILEPOST_TEST_STORE", "store")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("peer: done"), "{text}{errors}");
}
