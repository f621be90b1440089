//! One writer and readers beside it, in this and in other processes.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::{env, fs};

use milepost::{
    CheckpointStore, DType, ErrorKind, KeyPath, Leaf, LeafMeta, LeafSource, Region, Result,
    SaveOptions, Shape, Tree,
};

/// A state that says which step it is, in several packs.
fn state(step: u64) -> Tree<Leaf<'static>> {
    let leaf = |length: usize| Tree::Leaf(Leaf::from_vec(vec![step; length], [length]).unwrap());
    Tree::map([("w", leaf(200_000)), ("b", leaf(3)), ("v", leaf(70_000))])
}

/// Runs the test `role` of this file in another process, with `store` in the environment. It
/// reads lines from us and writes lines to us.
struct Peer {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Peer {
    fn start(role: &str, store: &Path) -> Self {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", role, "--ignored", "--nocapture", "--test-threads", "1"])
            .env("MILEPOST_TEST_STORE", store)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let to = child.stdin.take().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self { child, to, from }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    /// The next line that begins with `peer: `, the rest of it.
    fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.from.read_line(&mut line).unwrap() > 0 {
            if let Some((_, said)) = line.trim_end().split_once("peer: ") {
                return Some(said.to_owned());
            }
            line.clear();
        }
        None
    }
}

fn store_of_peer() -> String {
    env::var("MILEPOST_TEST_STORE").expect("run by another test of this file")
}

fn say(line: &str) {
    println!("peer: {line}");
}

#[test]
#[ignore = "the part of another process"]
fn peer_follows() {
    let store = CheckpointStore::open_read_only(store_of_peer()).unwrap();
    say("ready");
    for line in std::io::stdin().lines() {
        let expected: u64 = line.unwrap().parse().unwrap();
        let latest = store.latest_step().unwrap().unwrap();
        assert!(latest >= expected);
        assert_eq!(store.read(latest).unwrap().restore().unwrap(), state(latest));
        say(&latest.to_string());
    }
}

#[test]
#[ignore = "the part of another process"]
fn peer_saves_until_killed() {
    let store = CheckpointStore::open(store_of_peer()).unwrap();
    let first = store.latest_step().unwrap().map_or(1, |latest| latest + 1);
    for step in first.. {
        store.save(step, &state(step), &SaveOptions::new()).unwrap();
        if step > 3 {
            store.delete(step - 3).unwrap();
        }
        say(&step.to_string());
    }
}

/// An array of 128 MiB, several waves, that says when 96 MiB of it have been read, and then waits.
struct Stuck;

impl LeafSource for Stuck {
    fn structure(&self) -> Result<Tree<LeafMeta>> {
        Ok(Tree::Leaf(LeafMeta::array(DType::U8, Shape::new([128 << 20])?)))
    }

    fn read_region(&self, _: &KeyPath, region: &Region, out: &mut [u8]) -> Result<()> {
        if region.ranges()[0].start >= 96 << 20 {
            say("stuck");
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        out.fill(1);
        Ok(())
    }
}

#[test]
#[ignore = "the part of another process"]
fn peer_is_killed_between_waves() {
    let store = CheckpointStore::open(store_of_peer()).unwrap();
    store.save_source(2, &Stuck, &SaveOptions::new()).unwrap();
}

#[test]
#[ignore = "the part of another process"]
fn peer_opens_for_writing() {
    let error = CheckpointStore::open(store_of_peer()).unwrap_err();
    say(&format!("{:?} {error}", error.kind()));
}

#[test]
fn a_second_writer_is_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = CheckpointStore::create(&path).unwrap();
    let error = CheckpointStore::open(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Locked);
    assert!(error.to_string().contains("open for writing already"), "{error}");
    let said = Peer::start("peer_opens_for_writing", &path).hear().unwrap();
    assert!(said.starts_with("Locked ") && said.contains("for reading only"), "{said}");
    store.save(1, &state(1), &SaveOptions::new()).unwrap();
    drop(store);
    CheckpointStore::open(&path).unwrap();
}

#[test]
fn a_reader_in_another_process_sees_each_commit() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = CheckpointStore::create(&path).unwrap();
    store.save(0, &state(0), &SaveOptions::new()).unwrap();
    let mut reader = Peer::start("peer_follows", &path);
    assert_eq!(reader.hear().as_deref(), Some("ready"));
    // In step with us …
    for step in 1..20 {
        store.save(step, &state(step), &SaveOptions::new()).unwrap();
        reader.tell(&step.to_string());
        assert_eq!(reader.hear().unwrap(), step.to_string());
    }
    // … and while we write, whatever commit it meets.
    for step in 20..60 {
        reader.tell(&(step - 1).to_string());
        store.save(step, &state(step), &SaveOptions::new()).unwrap();
        store.delete(step - 2).unwrap();
        let seen: u64 = reader.hear().unwrap().parse().unwrap();
        assert!(seen == step - 1 || seen == step, "{seen} at {step}");
    }
    drop(reader.to);
    assert!(reader.child.wait().unwrap().success());
}

#[test]
fn a_step_stays_readable_for_who_reads_it_when_it_is_deleted() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = CheckpointStore::create(&path).unwrap();
    store.save(1, &state(1), &SaveOptions::new()).unwrap();
    let here = store.read(1).unwrap();
    let there = CheckpointStore::open_read_only(&path).unwrap().read(1).unwrap();
    store.delete(1).unwrap();
    for step in 2..8 {
        store.save(step, &state(step), &SaveOptions::new()).unwrap();
        store.delete(step).unwrap();
    }
    assert_eq!(here.restore().unwrap(), state(1));
    assert_eq!(there.restore().unwrap(), state(1));
}

#[test]
fn a_writer_killed_in_a_save_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    CheckpointStore::create(&path).unwrap();
    let mut latest = 0;
    for kill in 0..20u32 {
        let mut writer = Peer::start("peer_saves_until_killed", &path);
        for _ in 0..=kill % 3 {
            latest = writer.hear().unwrap().parse().unwrap();
        }
        for _ in 0..kill * 20_000 {
            std::hint::spin_loop();
        }
        writer.child.kill().unwrap();
        writer.child.wait().unwrap();

        let before = fs::read(&path).unwrap();
        let store = CheckpointStore::open_read_only(&path).unwrap();
        let steps = store.all_steps().unwrap();
        assert!(*steps.last().unwrap() >= latest, "{latest} was saved, {steps:?} are there");
        for step in steps {
            assert_eq!(store.read(step).unwrap().restore().unwrap(), state(step));
        }
        let report = store.verify().unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        drop(store);
        assert!(fs::read(&path).unwrap() == before, "reading changed the file");
    }
    let store = CheckpointStore::open(&path).unwrap();
    let step = store.latest_step().unwrap().unwrap() + 1;
    store.save(step, &state(step), &SaveOptions::new()).unwrap();
    let report = store.verify().unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert_eq!(report.unfinished_packs, 0);
}

/// What was written ahead of a step that never came is seen by nobody and swept by the next save.
#[test]
fn a_writer_killed_between_waves_leaves_nothing_that_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = CheckpointStore::create(&path).unwrap();
    store.save(1, &state(1), &SaveOptions::new()).unwrap();
    drop(store);
    let mut writer = Peer::start("peer_is_killed_between_waves", &path);
    assert_eq!(writer.hear().as_deref(), Some("stuck"));
    writer.child.kill().unwrap();
    writer.child.wait().unwrap();

    let store = CheckpointStore::open_read_only(&path).unwrap();
    assert_eq!(store.all_steps().unwrap(), [1]);
    let report = store.verify().unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert!(report.unfinished_packs > 60, "a wave was committed: {}", report.unfinished_packs);
    drop(store);
    let store = CheckpointStore::open(&path).unwrap();
    let length = fs::metadata(&path).unwrap().len();
    store.save(2, &state(2), &SaveOptions::new()).unwrap();
    let report = store.verify().unwrap();
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    assert_eq!(report.unfinished_packs, 0);
    assert!(fs::metadata(&path).unwrap().len() <= length, "the room is used again");
}

/// A reader that opened a file left by a crash goes on when the next writer repairs it.
#[test]
fn a_reader_of_a_crashed_file_goes_on_beside_the_next_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    CheckpointStore::create(&path).unwrap();
    let mut writer = Peer::start("peer_saves_until_killed", &path);
    let saved: u64 = writer.hear().unwrap().parse().unwrap();
    writer.child.kill().unwrap();
    writer.child.wait().unwrap();
    let reader = CheckpointStore::open_read_only(&path).unwrap();
    let old = reader.read(saved).unwrap();
    let store = CheckpointStore::open(&path).unwrap();
    for step in 1000..1005 {
        store.save(step, &state(step), &SaveOptions::new()).unwrap();
        assert_eq!(reader.latest_step().unwrap(), Some(step));
        assert_eq!(reader.read(step).unwrap().restore().unwrap(), state(step));
    }
    assert_eq!(old.restore().unwrap(), state(saved));
}

/// It came back as a writer, and kept the trainer out.
#[test]
fn a_reader_whose_file_was_away_comes_back_as_a_reader() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("store"), folder.path().join("copy"));
    let store = CheckpointStore::create(&path).unwrap();
    store.save(1, &state(1), &SaveOptions::new()).unwrap();
    drop(store);
    fs::copy(&path, &copy).unwrap();
    let reader = CheckpointStore::open_read_only(&path).unwrap();
    // Nothing of the contents is in memory yet, and then most of the file is gone.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let error = reader.read(1).and_then(|step| step.restore()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Damaged, "{error}");
    fs::remove_file(&path).unwrap();
    let error = reader.read(1).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    fs::rename(&copy, &path).unwrap();
    assert_eq!(reader.read(1).unwrap().restore().unwrap(), state(1));
    let writer = CheckpointStore::open(&path).unwrap();
    writer.save(2, &state(2), &SaveOptions::new()).unwrap();
    assert_eq!(reader.latest_step().unwrap(), Some(2));
}

/// Reading followed the path to the copy, and gave what an older save had written.
#[cfg(unix)]
#[test]
fn a_copy_that_is_put_in_the_place_of_the_file_is_not_taken_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let (path, copy) = (folder.path().join("store"), folder.path().join("copy"));
    let options = SaveOptions::new();
    let store = CheckpointStore::create(&path).unwrap();
    store.save(1, &state(10), &options).unwrap();
    drop(store);
    fs::copy(&path, &copy).unwrap();
    let store = CheckpointStore::open(&path).unwrap();
    store.save(2, &state(2), &options).unwrap();
    store.save(1, &state(11), &options.clone().replace()).unwrap();
    fs::rename(&copy, &path).unwrap();
    assert_eq!(store.read(1).unwrap().restore().unwrap(), state(11));
    assert_eq!(store.all_steps().unwrap(), [1, 2]);
    for _ in 0..2 {
        let error = store.save(3, &state(3), &options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(error.to_string().contains("another file is at the path"), "{error}");
    }
    assert_eq!(store.all_steps().unwrap(), [1, 2]);
}

/// The save said that the step was durable, and all was gone with the process.
#[cfg(unix)]
#[test]
fn a_file_that_is_gone_is_not_written_to() {
    let folder = tempfile::tempdir().unwrap();
    let (path, away) = (folder.path().join("store"), folder.path().join("away"));
    let store = CheckpointStore::create(&path).unwrap();
    store.save(1, &state(1), &SaveOptions::new()).unwrap();
    fs::rename(&path, &away).unwrap();
    let error = store.save(2, &state(2), &SaveOptions::new()).unwrap_err();
    assert!(error.to_string().contains("deleted or moved away"), "{error}");
    fs::rename(&away, &path).unwrap();
    store.save(2, &state(2), &SaveOptions::new()).unwrap();
    assert_eq!(store.all_steps().unwrap(), [1, 2]);
}
