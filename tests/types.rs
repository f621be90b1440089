//! The types that can be fields of a state, through a file and back.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

use milepost::{
    Checkpoint, CheckpointStore, ErrorKind, Leaf, SaveOptions, Tree, checkpoint_fields,
};
use ndarray::{Array2, ArrayD, arr2};

/// Saves `state` and restores it into `target`, which then must be the same.
fn round_trip<C: Checkpoint + PartialEq + Debug>(state: &C, mut target: C) {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    store.save(1, state, &SaveOptions::new()).unwrap();
    store.read(1).unwrap().restore_into(&mut target).unwrap();
    assert_eq!(target, *state);
}

/// Why `state` can't be restored into `target`.
fn refusal(state: &impl Checkpoint, mut target: impl Checkpoint) -> String {
    let folder = tempfile::tempdir().unwrap();
    let store = CheckpointStore::create(folder.path().join("store")).unwrap();
    store.save(1, state, &SaveOptions::new()).unwrap();
    let error = store.read(1).unwrap().restore_into(&mut target).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Mismatch, "{error}");
    error.to_string()
}

#[derive(Debug, Default, Clone, PartialEq)]
struct Layer {
    weights: Array2<f32>,
    bias: Vec<f32>,
    name: String,
}
checkpoint_fields!(Layer { weights, bias, name });

#[derive(Debug, Default, PartialEq)]
struct State {
    step: usize,
    offset: isize,
    layers: Vec<Layer>,
    moments: BTreeMap<String, Vec<f64>>,
    counts: HashMap<i32, u64>,
    pair: (f32, String),
    nothing: (),
    permutation: Vec<usize>,
    window: [usize; 3],
    lists: Vec<Vec<u8>>,
    names: Vec<String>,
    maybe: Vec<Option<f32>>,
    boxed: Box<Layer>,
    key: [u32; 4],
    cache: Vec<f32>,
}
checkpoint_fields!(State {
    step,
    offset,
    layers,
    moments,
    counts,
    pair,
    nothing,
    permutation,
    window,
    lists,
    names,
    maybe,
    boxed,
    key,
    ..
});

fn state() -> State {
    let layer = |scale| Layer {
        weights: arr2(&[[scale, 2.0], [3.0, scale]]),
        bias: vec![scale; 3],
        name: format!("layer {scale}"),
    };
    State {
        step: 7,
        offset: -3,
        layers: vec![layer(1.0), layer(2.0)],
        moments: BTreeMap::from([("mu".into(), vec![0.5]), ("nu".into(), vec![])]),
        counts: HashMap::from([(-1, 1), (1, 2)]),
        pair: (0.25, "x".into()),
        nothing: (),
        permutation: vec![2, 0, 1, usize::MAX],
        window: [1, 2, 3],
        lists: vec![vec![1], vec![]],
        names: vec!["a".into(), String::new()],
        maybe: vec![Some(1.0), None],
        boxed: Box::new(layer(3.0)),
        key: [1, 2, 3, 4],
        cache: Vec::new(),
    }
}

/// The same structure with nothing in it.
fn empty() -> State {
    let layer = || Layer { weights: Array2::zeros((2, 2)), ..Layer::default() };
    State {
        layers: vec![layer(), layer()],
        moments: BTreeMap::from([("mu".into(), vec![]), ("nu".into(), vec![1.0])]),
        counts: HashMap::from([(1, 0), (-1, 0)]),
        lists: vec![vec![], vec![9]],
        names: vec![String::new(), "b".into()],
        maybe: vec![Some(0.0), None],
        boxed: Box::new(layer()),
        ..State::default()
    }
}

#[test]
fn every_kind_of_field_comes_back() {
    round_trip(&state(), empty());
    let eight = (1u8, 2u16, 3u32, 4u64, 5i8, 6i16, 7i32, 8i64);
    round_trip(&eight, Default::default());
    round_trip(&vec![(1u8, true); 3], vec![(0, false); 3]);
}

#[test]
fn rows_of_elements_are_one_array() {
    let state = state();
    let tree = state.to_tree();
    let kind = |path: &str| match tree.get(&path.parse().unwrap()).unwrap() {
        Tree::Leaf(leaf) => leaf.meta().to_string(),
        node => format!("{} of {}", node.kind(), node.children().len()),
    };
    assert_eq!(kind("permutation"), "uint64[4]");
    assert_eq!(kind("window"), "uint64[3]");
    assert_eq!(kind("key"), "uint32[4]");
    assert_eq!(kind("step"), "uint64 scalar");
    assert_eq!(kind("offset"), "int64 scalar");
    assert_eq!(kind("lists"), "list of 2");
    assert_eq!(kind("layers[1]/bias"), "float32[3]");
    assert_eq!(kind("counts"), "map of 2");
    assert_eq!(kind("pair"), "tuple of 2");
    assert_eq!(kind("nothing"), "tuple of 0");
    assert!(tree.get(&"cache".parse().unwrap()).is_none());
}

#[test]
fn other_numbers_of_items_and_other_keys_are_refused_by_path() {
    let text = refusal(&state(), State { layers: vec![Layer::default()], ..empty() });
    assert!(text.contains("layers[1]"), "{text}");
    let text = refusal(&state(), State { counts: HashMap::from([(1, 0), (2, 0)]), ..empty() });
    assert!(text.contains("counts"), "{text}");
    let text = refusal(&vec![1usize, 2], [0usize; 3]);
    assert!(text.contains("uint64[2]") && text.contains("uint64[3]"), "{text}");
    let text = refusal(&1u64, 1isize);
    assert!(text.contains("uint64 scalar") && text.contains("int64 scalar"), "{text}");
}

#[test]
fn containers_of_array_leaves_work_in_trees_of_their_own() {
    let arrays: BTreeMap<String, ArrayD<f32>> =
        BTreeMap::from([("w".into(), ArrayD::from_elem(vec![2, 3], 1.5))]);
    let target = BTreeMap::from([("w".into(), ArrayD::zeros(vec![2, 3]))]);
    round_trip(&arrays, target);
    let trees = vec![Tree::Leaf(Leaf::scalar(1u8)), Tree::list([])];
    round_trip(&trees, vec![Tree::Leaf(Leaf::scalar(0u8)), Tree::list([])]);
}
