//! Files and states that can't be used: each works or says what is wrong and what to do, and
//! nothing is changed.

use std::fs;
use std::path::Path;
use std::thread;

use milepost::limits::{MAX_JSON_DEPTH, MAX_KEY_NAME_BYTES, MAX_TREE_DEPTH};
use milepost::{
    CheckpointManager, CheckpointStore, DType, Error, ErrorKind, Key, Leaf, LeafSource,
    ManagerOptions, SaveOptions, StoreOptions, Tree,
};
use ndarray::ArrayD;
use redb::TableDefinition;

fn small() -> Tree<Leaf<'static>> {
    Tree::map([("step", Tree::Leaf(Leaf::scalar(1u64)))])
}

/// Every way to open `path` gives an error of this kind whose text has `says`.
fn refused(path: &Path, kind: ErrorKind, says: &str) {
    let before = fs::read(path).ok();
    let errors: [Error; 4] = [
        CheckpointStore::open(path).unwrap_err(),
        CheckpointStore::open_read_only(path).unwrap_err(),
        CheckpointStore::open_or_create(path, StoreOptions::new()).unwrap_err(),
        CheckpointManager::open(path, ManagerOptions::new()).unwrap_err(),
    ];
    for error in errors {
        let text = error.to_string();
        assert_eq!(error.kind(), kind, "{text}");
        assert!(text.contains(says), "{text}");
        assert!(text.contains(&path.display().to_string()), "{text}");
        assert!(text.contains("; "), "it says what to do: {text}");
    }
    assert_eq!(fs::read(path).ok(), before, "the file was changed");
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    refused(folder.path(), ErrorKind::NotAStore, "directory");
    fs::write(path("empty"), "").unwrap();
    refused(&path("empty"), ErrorKind::NotAStore, "empty");
    fs::write(path("text"), "step,loss\n1,0.5\n".repeat(1000)).unwrap();
    refused(&path("text"), ErrorKind::NotAStore, "not a milepost store");
    fs::write(path("zeros"), vec![0; 100_000]).unwrap();
    refused(&path("zeros"), ErrorKind::NotAStore, "not a milepost store");

    let table: TableDefinition<'_, &str, u64> = TableDefinition::new("counters");
    let other = redb::Database::create(path("other")).unwrap();
    let tx = other.begin_write().unwrap();
    tx.open_table(table).unwrap().insert("visits", 1).unwrap();
    tx.commit().unwrap();
    drop(other);
    refused(&path("other"), ErrorKind::NotAStore, "another application");

    refused(&path("no/such/folder"), ErrorKind::NotFound, "no such f");
    let missing = CheckpointStore::open(path("missing")).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert!(!path("missing").exists());
    let read_only = CheckpointStore::open_read_only(path("missing")).unwrap_err();
    assert_eq!(read_only.kind(), ErrorKind::NotFound);
}

/// Opening a named pipe would wait for somebody who writes to it: this test would not end.
#[cfg(unix)]
#[test]
fn a_named_pipe_is_refused_and_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for error in [
        CheckpointStore::open(&pipe).unwrap_err(),
        CheckpointStore::open_read_only(&pipe).unwrap_err(),
        CheckpointStore::open_or_create(&pipe, StoreOptions::new()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::NotAStore);
        assert!(error.to_string().contains("a pipe"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn a_link_that_leads_nowhere_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("run.milepost");
    std::os::unix::fs::symlink(folder.path().join("none"), &link).unwrap();
    let error = CheckpointStore::open_or_create(&link, StoreOptions::new()).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
    assert!(!folder.path().join("none").exists());
}

#[test]
fn creating_never_replaces_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    fs::write(&path, "dear diary").unwrap();
    let error = CheckpointStore::create(&path).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read(&path).unwrap(), b"dear diary");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left behind");
    let error = CheckpointStore::create(folder.path().join("no/such/folder")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn odd_but_proper_paths_work() {
    let folder = tempfile::tempdir_in(".").unwrap();
    let relative = Path::new(folder.path().file_name().unwrap());
    let mut names = vec![relative.join("a name with spaces"), relative.join("ключ.milepost")];
    names.push(relative.join("n".repeat(255)));
    #[cfg(unix)]
    {
        use std::os::unix::ffi::OsStrExt;
        names.push(relative.join(std::ffi::OsStr::from_bytes(b"not \xff UTF-8")));
    }
    for path in names {
        assert!(path.is_relative());
        let store = CheckpointStore::create(&path).unwrap();
        store.save(1, &small(), &SaveOptions::new()).unwrap();
        drop(store);
        let store = CheckpointStore::open_read_only(&path).unwrap();
        assert_eq!(store.read(1).unwrap().restore().unwrap(), small());
    }
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_a_store() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    CheckpointStore::create(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

/// Root may write anything, so this shows something only for other users.
#[cfg(unix)]
#[test]
fn a_read_only_file_is_read_and_not_written() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    CheckpointStore::create(&path).unwrap().save(1, &small(), &SaveOptions::new()).unwrap();
    let set_mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode));
    set_mode(&path, 0o400).unwrap();
    set_mode(folder.path(), 0o500).unwrap();
    let store = CheckpointStore::open_read_only(&path).unwrap();
    assert_eq!(store.read(1).unwrap().restore().unwrap(), small());
    let error = store.save(2, &small(), &SaveOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ReadOnly);
    if fs::OpenOptions::new().write(true).open(&path).is_err() {
        let error = CheckpointStore::open(&path).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly);
        assert!(error.to_string().contains("permissions"), "{error}");
        let error = CheckpointStore::create(folder.path().join("new")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ReadOnly);
    }
    set_mode(folder.path(), 0o700).unwrap();
}

#[test]
fn states_that_cannot_be_stored_are_refused_before_anything_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = CheckpointStore::create(&path).unwrap();
    store.save(1, &small(), &SaveOptions::new()).unwrap();
    let before = fs::read(&path).unwrap();

    let leaf = || Tree::Leaf(Leaf::scalar(1u8));
    let deep = (0..=MAX_TREE_DEPTH).fold(leaf(), |child, _| Tree::list([child]));
    let long = Tree::map([("params", Tree::map([("x".repeat(MAX_KEY_NAME_BYTES + 1), leaf())]))]);
    let dimensions = Tree::map([("w", Tree::Leaf(Leaf::from(ArrayD::<f32>::zeros(vec![1; 65]))))]);
    let index = Tree::map([(Key::Index(3), leaf())]);
    let name = Tree::record("S".repeat(MAX_KEY_NAME_BYTES + 1), [("a", leaf())]);
    let twice = Tree::list([Tree::record("S", [("a", leaf()), ("a", leaf())])]);
    let nest =
        (0..=MAX_JSON_DEPTH).fold(serde_json::json!(1), |value, _| serde_json::json!([value]));
    let json = Tree::map([("config", Tree::Leaf(Leaf::json(&nest)))]);
    for (tree, says) in [
        (deep, "deeper than 128 levels"),
        (long, "4097 bytes, at most 4096"),
        (name, "the name of a struct has 4097 bytes"),
        (dimensions, "w: the array has 65 dimensions, at most 64"),
        (index, "sequence index [3]"),
        (twice, "[0]: a struct has the field \"a\" twice"),
        (json, "config: the JSON value is nested deeper than 127 levels"),
    ] {
        let error = store.save(2, &tree, &SaveOptions::new()).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
        assert!(text.contains(says) && text.contains("step 2"), "{text}");
    }
    let metrics = (0..5000).map(|n| (n.to_string(), 0.0));
    let error = store.save(2, &small(), &SaveOptions::new().metrics(metrics)).unwrap_err();
    assert!(error.to_string().contains("5000 step metrics, at most 4096"), "{error}");
    let huge = serde_json::json!("x".repeat(17 << 20));
    let error = store.save(2, &small(), &SaveOptions::new().custom_metadata(huge)).unwrap_err();
    assert!(error.to_string().contains("save it as a JSON leaf"), "{error}");

    assert!(fs::read(&path).unwrap() == before, "something was written");
    store.save(2, &small(), &SaveOptions::new()).unwrap();
}

#[test]
fn lengths_and_shapes_that_disagree_are_refused_where_they_are_given() {
    for (error, says) in [
        (
            Leaf::from_slice(&[1u8; 5], [2, 3]).unwrap_err(),
            "uint8[2, 3] has 6 bytes, the data has 5",
        ),
        (
            Leaf::from_raw(DType::F64, [2], &[0; 8]).unwrap_err(),
            "float64[2] has 16 bytes, the data has 8",
        ),
        (Leaf::from_raw(DType::U8, [1 << 40, 1 << 40], &[]).unwrap_err(), "more elements"),
        (Leaf::from_raw(DType::U8, [0, 1 << 40, 1 << 40], &[]).unwrap_err(), "more elements"),
        (Leaf::from_raw(DType::U8, vec![1; 65], &[0]).unwrap_err(), "65 dimensions"),
        (Leaf::from_raw(DType::Bool, [2], &[1, 2]).unwrap_err(), "neither 0 nor 1"),
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn steps_and_leaves_that_are_not_there_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let error = store.read(1).unwrap_err();
    assert!(error.to_string().contains("no step is saved"), "{error}");
    for step in [10, 20] {
        store.save(step, &small(), &SaveOptions::new()).unwrap();
    }
    for error in [
        store.read(15).unwrap_err(),
        store.step_info(15).unwrap_err(),
        store.delete(15).unwrap_err(),
        store.pin(15).unwrap_err(),
        store.rollback_to(15).unwrap_err(),
    ] {
        assert_eq!((error.kind(), error.step()), (ErrorKind::NotFound, Some(15)));
        assert!(error.to_string().contains("2 steps are saved, from 10 to 20"), "{error}");
    }
    let error = store.read(10).unwrap().read_leaf(&"w".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert_eq!(error.path().unwrap().to_string(), "w");
    let error = store.save(10, &small(), &SaveOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
}

/// The stack ran over before the depth was looked at. Dropping such a tree still takes stack for each of its
/// levels.
#[test]
fn a_tree_of_very_many_levels_is_refused_and_nothing_more() {
    const LEVELS: usize = 200_000;
    let deep = || {
        let chain = |child, level: usize| match level % 4 {
            0 => Tree::list([child]),
            1 => Tree::tuple([child]),
            2 => Tree::map([("a", child)]),
            _ => Tree::record("S", [("a", child)]),
        };
        (0..LEVELS).fold(Tree::Leaf(Leaf::scalar(1u8)), chain)
    };
    let refuse = |tree: &mut Tree<Leaf<'static>>| {
        let folder = tempfile::tempdir().unwrap();
        let manager =
            CheckpointManager::open(folder.path().join("s"), ManagerOptions::new()).unwrap();
        manager.save_blocking(1, &small()).unwrap();
        let step = manager.read(1).unwrap();
        let store = manager.store();
        let errors: [Error; 8] = [
            tree.check().unwrap_err(),
            tree.leaves().unwrap_err(),
            tree.structure().unwrap_err(),
            store.save(2, tree, &SaveOptions::new()).unwrap_err(),
            store.save_source(2, tree, &SaveOptions::new()).unwrap_err(),
            manager.save(2, tree).unwrap_err(),
            manager.snapshot(tree).unwrap_err(),
            step.restore_into(tree).unwrap_err(),
        ];
        for error in errors {
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{text}");
            assert!(text.contains(&format!("deeper than {MAX_TREE_DEPTH} levels")), "{text}");
        }
        assert_eq!(manager.all_steps().unwrap(), [1]);
    };
    let with_much_stack = move || {
        let mut tree = deep();
        thread::scope(|scope| {
            scope.spawn(|| refuse(&mut tree)).join().unwrap();
        });
    };
    let much_stack = thread::Builder::new().stack_size(1 << 30);
    much_stack.spawn(with_much_stack).unwrap().join().unwrap();
}
