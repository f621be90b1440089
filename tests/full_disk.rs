//! No room for a save: the error says so, nothing is lost, and the same store goes on when there is
//! room again.

#![cfg(target_os = "linux")]

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

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

/// Saves while two other threads look at the steps, to whom nothing of it may be seen.
fn beside_readers<T>(manager: &CheckpointManager, save: impl FnOnce() -> T) -> T {
    let (over, seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let read = || {
        while !over.load(Ordering::Relaxed) {
            assert_eq!(manager.all_steps().unwrap(), [1]);
            seen.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        let readers = [scope.spawn(read), scope.spawn(read)];
        let result = save();
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().unwrap();
        }
        assert!(seen.load(Ordering::Relaxed) > 0);
        result
    })
}

/// Runs with a soft limit of 160 MiB on the size of files, as a full disk.
#[test]
#[ignore = "the part of another process"]
fn peer_meets_the_limit() {
    let path = PathBuf::from(env::var("MILEPOST_TEST_STORE").expect("run by another test"));
    let manager = CheckpointManager::open(path, ManagerOptions::new().keep(LatestN(2))).unwrap();
    // The file was opened by a relative path, and is found again after errors all the same.
    env::set_current_dir("/").unwrap();
    assert!(manager.save_blocking(1, &state(1, 2)).unwrap().is_saved());
    // Read across the first failure; as long as it lives, nothing that is removed makes room.
    let mut reader = Some(manager.read(1).unwrap());
    let large = state(2, 256);
    for attempt in 0..3 {
        // Several waves, the first of which fit.
        let save = || manager.save_blocking(2, &large);
        let result = if attempt == 1 { beside_readers(&manager, save) } else { save() };
        let error = result.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfSpace, "{error}");
        assert_eq!(error.step(), Some(2));
        assert!(error.to_string().contains("free space and save again"), "{error}");
        assert_eq!(manager.all_steps().unwrap(), [1]);
        assert_eq!(manager.restore(1).unwrap(), state(1, 2));
        if let Some(reader) = reader.take() {
            assert_eq!(reader.restore().unwrap(), state(1, 2));
        }
    }
    let left = manager.store().verify().unwrap().unfinished_packs;
    assert!(left > 60, "{left} packs were left of several waves");
    // Smaller states fit, into the room of what was left behind.
    for step in [3, 4, 5] {
        assert!(manager.save_blocking(step, &state(step, 20)).unwrap().is_saved());
    }
    raise_the_limit();
    assert!(manager.save_blocking(6, &large).unwrap().is_saved());
    assert_eq!(manager.all_steps().unwrap(), [5, 6]);
    assert!(manager.restore(6).unwrap() == large);
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
    let script = "trap '' XFSZ; ulimit -S -f 163840; exec \"$0\" \"$@\"";
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
