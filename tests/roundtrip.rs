//! What is saved comes back, bit for bit, by every way of reading.

mod common;

use milepost::{
    Checkpoint, CheckpointStore, Leaf, LeafKind, LeafSource, Region, SaveOptions, StoreOptions,
    Tree,
};
use proptest::test_runner::{Config, TestRunner};

/// Saves `tree` and reads it back whole, into another tree, leaf by leaf and through its regions.
fn check(store: &CheckpointStore, step: u64, tree: &Tree<Leaf<'static>>) {
    store.save(step, tree, &SaveOptions::new()).unwrap();
    let reader = store.read(step).unwrap();
    assert_eq!(reader.restore().unwrap(), *tree);

    let mut other = blank(tree);
    reader.restore_into(&mut other).unwrap();
    assert_eq!(other, *tree);

    assert_eq!(reader.structure().unwrap(), tree.structure().unwrap());
    for (path, leaf) in tree.leaves().unwrap() {
        assert_eq!(reader.read_leaf(&path).unwrap(), *leaf);
        assert_eq!(reader.leaf_meta(&path).unwrap(), *leaf.meta());
        let shape = &leaf.meta().shape;
        for (from, to) in [(0, 1), (1, 2), (1, 3), (0, 3)] {
            let third = |length: usize| length * from / 3..length * to / 3;
            let region = Region::new(shape.lengths().iter().map(|l| third(*l)).collect::<Vec<_>>());
            let bytes = region.elements() * leaf.meta().dtype.size_bytes();
            let (mut saved, mut given) = (vec![1; bytes], vec![2; bytes]);
            reader.read_region(&path, &region, &mut saved).unwrap();
            tree.read_region(&path, &region, &mut given).unwrap();
            assert_eq!(saved, given, "{path} {region:?}");
        }
    }
}

/// A tree of the same structure with other contents.
fn blank(tree: &Tree<Leaf<'static>>) -> Tree<Leaf<'static>> {
    let blank = |leaf: Leaf<'static>| {
        let zeros = vec![0; leaf.contents().unwrap().len()];
        match leaf.meta().kind {
            LeafKind::Array => {
                let shape = leaf.meta().shape.lengths();
                Leaf::from_raw(leaf.meta().dtype, shape, &zeros).unwrap().into_owned()
            }
            LeafKind::String => Leaf::string("other".into()),
            LeafKind::Bytes => Leaf::bytes(&[7; 3]).into_owned(),
            LeafKind::Json => Leaf::json(&serde_json::json!("other")),
            // A scalar is replaced by itself.
            _ => leaf,
        }
    };
    tree.clone().map_leaves(|_, leaf| Ok(blank(leaf))).unwrap()
}

#[test]
fn the_zoo_and_random_trees_come_back() {
    let folder = tempfile::tempdir().unwrap();
    for (name, compression) in common::COMPRESSIONS {
        let options = StoreOptions::new().compression(compression);
        let store = CheckpointStore::create_with(folder.path().join(name), options).unwrap();
        check(&store, 0, &common::zoo());
        let mut runner = TestRunner::new(Config::with_cases(150));
        let step = std::cell::Cell::new(0);
        runner
            .run(&common::any_tree(30), |tree| {
                step.set(step.get() + 1);
                check(&store, step.get(), &tree);
                Ok(())
            })
            .unwrap();
    }
}

#[test]
fn leaves_around_the_page_classes_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let sizes = [
        1, 15, 16, 17, 4079, 4080, 4096, 131_055, 131_056, 131_057, 131_072, 262_128, 262_144,
        400_000, 524_271, 524_272, 524_273, 1_048_560, 3_000_001,
    ];
    let leaves =
        sizes.map(|size| Tree::Leaf(Leaf::from_vec(common::odd_bytes(size), [size]).unwrap()));
    for (name, compression) in common::COMPRESSIONS {
        let options = StoreOptions::new().compression(compression);
        let store = CheckpointStore::create_with(folder.path().join(name), options).unwrap();
        check(&store, 1, &Tree::list(leaves.clone()));
        for (step, leaf) in (2..).zip(leaves.clone()) {
            check(&store, step, &leaf);
        }
        let report = store.verify().unwrap();
        assert!(report.faults.is_empty(), "{:?}", report.faults);
    }
}

/// A step of several waves: more than one transaction writes before the step is there.
#[test]
fn a_state_larger_than_a_wave_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let elements: Vec<u32> = (0..20 << 20).collect();
    let tree = Tree::map([("w", Tree::Leaf(Leaf::from_vec(elements, [20, 1 << 20]).unwrap()))]);
    store.save(1, &tree, &SaveOptions::new()).unwrap();
    assert_eq!(store.read(1).unwrap().restore().unwrap(), tree);
    // A source that gives regions only, read in the same pieces.
    let reader = store.read(1).unwrap();
    let report = store.save_source(2, &reader, &SaveOptions::new()).unwrap();
    assert_eq!(report.info.digest, reader.info().digest);
    assert_eq!(store.read(2).unwrap().restore().unwrap(), tree);
    let mut column = vec![0; 20 * 4];
    let region = Region::new([0..20, 5..6]);
    reader.read_region(&"w".parse().unwrap(), &region, &mut column).unwrap();
    let expected: Vec<u8> = (0..20u32).flat_map(|row| ((row << 20) + 5).to_le_bytes()).collect();
    assert_eq!(column, expected);
}

#[derive(Debug, Clone, PartialEq)]
struct TrainState {
    step: u64,
    weights: ndarray::Array2<f32>,
    shared: ndarray::ArcArray<half::bf16, ndarray::Ix1>,
    history: Vec<f64>,
    frozen: [bool; 2],
    name: String,
    ema: Option<ndarray::ArrayD<f32>>,
    config: serde_json::Value,
}
milepost::checkpoint_fields!(TrainState {
    step,
    weights,
    shared,
    history,
    frozen,
    name,
    ema,
    config
});

#[test]
fn a_type_of_the_user_comes_back_also_into_an_array_of_another_layout() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let state = TrainState {
        step: 5,
        weights: ndarray::array![[1.0, f32::MIN_POSITIVE / 2.0], [-0.0, 4.0], [5.0, 6.0]],
        shared: ndarray::arr1(&[half::bf16::ONE; 3]).into_shared(),
        history: vec![0.5, 0.25],
        frozen: [true, false],
        name: "run".into(),
        ema: Some(ndarray::arr0(1.0).into_dyn()),
        config: serde_json::json!({"lr": 0.1}),
    };
    store.save(5, &state, &SaveOptions::new()).unwrap();
    let mut restored = TrainState {
        step: 0,
        weights: ndarray::Array2::zeros((2, 3)).reversed_axes(),
        shared: ndarray::arr1(&[half::bf16::ZERO; 3]).into_shared(),
        history: vec![],
        frozen: [false, true],
        name: "another".into(),
        ema: Some(ndarray::arr0(9.0).into_dyn()),
        config: serde_json::Value::Null,
    };
    let sharer = restored.shared.clone();
    store.read(5).unwrap().restore_into(&mut restored).unwrap();
    assert_eq!(restored, state);
    assert_eq!(sharer[0], half::bf16::ZERO, "a restore changes one owner of a shared array");
}

#[test]
fn all_differences_are_told_at_once_and_nothing_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let leaf = |n: f32| Tree::Leaf(Leaf::from(ndarray::arr1(&[n, n])));
    let saved = Tree::map([
        ("same", leaf(1.0)),
        ("gone", leaf(1.0)),
        ("dtype", Tree::Leaf(Leaf::from(ndarray::arr1(&[1i8])))),
        ("kind", Tree::list([])),
    ]);
    store.save(1, &saved, &SaveOptions::new()).unwrap();
    let mut target = Tree::map([
        ("same", leaf(0.0)),
        ("new", leaf(0.0)),
        ("dtype", leaf(0.0)),
        ("kind", Tree::tuple([])),
    ]);
    let before = target.clone();
    let error = store.read(1).unwrap().restore_into(&mut target).unwrap_err();
    assert_eq!(error.kind(), milepost::ErrorKind::Mismatch);
    let text = error.to_string();
    for part in [
        "step 1",
        "differ in 4 places",
        "1 not in the saved step:\n    new",
        "1 not in the target:\n    gone",
        "dtype: expected float32[2], saved is int8[1]",
        "kind: expected a tuple, saved is a list",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert_eq!(target, before);

    let many = Tree::list((0..1000u32).map(|n| Tree::Leaf(Leaf::scalar(n))));
    store.save(2, &many, &SaveOptions::new()).unwrap();
    let error = store.read(2).unwrap().restore_into(&mut Tree::list([])).unwrap_err().to_string();
    assert!(error.contains("1000 places") && error.contains("and 980 more"), "{error}");
    assert!(error.lines().count() < 30);
}

#[test]
fn equal_states_have_equal_digests_and_others_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let digest = |step, tree: Tree<Leaf<'static>>| {
        store.save(step, &tree, &SaveOptions::new()).unwrap().info.digest
    };
    let zoo = digest(1, common::zoo());
    assert_eq!(digest(2, common::zoo()), zoo);
    let one = |name: &str, value: f32| Tree::map([(name, Tree::Leaf(Leaf::scalar(value)))]);
    let digests = [
        digest(3, one("a", 0.0)),
        digest(4, one("a", -0.0)),
        digest(5, one("b", 0.0)),
        digest(6, Tree::map([("a", Tree::Leaf(Leaf::from(ndarray::arr0(0f32))))])),
    ];
    for (index, digest) in digests.iter().enumerate() {
        assert!(!digests[..index].contains(digest), "digest {index}");
    }
}

#[test]
fn a_tree_is_its_own_checkpoint() {
    let zoo = common::zoo();
    assert_eq!(zoo.to_tree(), zoo);
}

#[test]
fn a_leaf_is_viewed_where_it_lies() {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    let zoo = common::zoo();
    store.save(1, &zoo, &SaveOptions::new()).unwrap();
    let reader = store.read(1).unwrap();
    let mut viewed = 0;
    for (path, leaf) in zoo.leaves().unwrap() {
        match reader.view(&path).unwrap() {
            Some(view) => {
                assert_eq!(&view.leaf(), leaf, "{path}");
                viewed += 1;
            }
            None => assert!(leaf.contents() == Some(&[]), "{path}"),
        }
    }
    assert!(viewed > 50, "{viewed} leaves were viewed");
    // Aligned for every type, also in a pack that is shared.
    let array = Leaf::from_vec(vec![1.5f64; 1000], [10, 100]).unwrap();
    let large = Leaf::from_vec(vec![7u8; 1 << 20], [1 << 20]).unwrap();
    let tree = Tree::tuple([Tree::Leaf(Leaf::scalar(3u8)), Tree::Leaf(array), Tree::Leaf(large)]);
    store.save(2, &tree, &SaveOptions::new()).unwrap();
    let reader = store.read(2).unwrap();
    let view = reader.view(&"[1]".parse().unwrap()).unwrap().unwrap();
    let leaf = view.leaf();
    assert_eq!(leaf.as_array::<f64>().unwrap().sum().to_bits(), 1500f64.to_bits());
    assert!(reader.view(&"[2]".parse().unwrap()).unwrap().is_none());
    let error = reader.view(&"[3]".parse().unwrap()).unwrap_err();
    assert_eq!(error.kind(), milepost::ErrorKind::NotFound);
}
