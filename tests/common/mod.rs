//! Trees for tests: one with everything in it, and random ones.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use milepost::{Compression, DType, Key, Leaf, Tree};
use proptest::prelude::*;

/// Every compression, with a name for files.
pub(crate) const COMPRESSIONS: [(&str, Compression); 5] = [
    ("raw", Compression::None),
    ("lz4", Compression::Lz4),
    ("byte-planes", Compression::BytePlanes),
    ("bit-planes", Compression::BitPlanes),
    ("auto", Compression::Auto),
];

/// Bytes that are every kind of value of every type: NaN payloads, infinities, subnormals, −0.
pub(crate) fn odd_bytes(length: usize) -> Vec<u8> {
    const ODD: [u8; 24] = [
        0x01, 0x00, 0x80, 0xff, 0x7f, 0x80, 0x7f, 0xc0, 0x00, 0x00, 0x00, 0x80, 0x55, 0x01, 0xf8,
        0xff, 0x00, 0x00, 0xf0, 0x7f, 0x7e, 0xfe, 0x7c, 0xfc,
    ];
    (0..length).map(|index| ODD[(index * 5 + index / 24) % 24]).collect()
}

/// A leaf of each element type as array and scalar-like shapes, and each other kind of leaf.
pub(crate) fn zoo() -> Tree<Leaf<'static>> {
    let array = |dtype: DType, shape: &[usize]| {
        let length = shape.iter().product::<usize>() * dtype.size_bytes();
        let bytes = match dtype {
            DType::Bool => (0..length).map(|index| u8::from(index % 3 == 0)).collect(),
            _ => odd_bytes(length),
        };
        Tree::Leaf(Leaf::from_raw(dtype, shape, &bytes).unwrap().into_owned())
    };
    let arrays = DType::all().map(|dtype| {
        let shapes: [&[usize]; 4] = [&[2, 3, 4], &[], &[0, 5], &[1]];
        (dtype.name(), Tree::list(shapes.iter().map(|shape| array(dtype, shape))))
    });
    let scalars = [
        Leaf::scalar(true),
        Leaf::scalar(-128i8),
        Leaf::scalar(u64::MAX),
        Leaf::scalar(f32::from_bits(0x7fa0_0001)),
        Leaf::scalar(-0.0f64),
        Leaf::scalar(half::bf16::INFINITY),
        Leaf::scalar(num_complex::Complex::new(1.5f64, f64::NAN)),
        Leaf::scalar(float8::F8E4M3::from_bits(0x7f)),
    ];
    let texts = [
        Leaf::string(String::new()),
        Leaf::string("snowman ☃ \0 \"quoted\"".into()),
        Leaf::bytes(&[]),
        Leaf::bytes(&[0, 255, 128]),
        Leaf::json(&serde_json::json!(null)),
        Leaf::json(&serde_json::json!({"a": [1, -2.5e-300, 0.1], "b": {"c": "d"}})),
    ];
    let empty = [
        Tree::None,
        Tree::list([]),
        Tree::tuple([]),
        Tree::map::<Key>([]),
        Tree::record::<String>("Empty", []),
    ];
    let keys = ["", "a.b", "a/b", "[1]", "1", "\"", "ключ", "a\0b"].map(Key::from);
    let keys = keys.into_iter().chain([Key::from(1), Key::from(-1), Key::from(i64::MIN)]);
    Tree::record(
        "Zoo",
        [
            ("arrays", Tree::map(arrays)),
            ("scalars", Tree::tuple(scalars.map(Tree::Leaf))),
            ("texts", Tree::list(texts.map(|leaf| Tree::Leaf(leaf.into_owned())))),
            ("empty", Tree::list(empty)),
            ("keys", Tree::map(keys.zip((0u8..).map(|n| Tree::Leaf(Leaf::scalar(n)))))),
        ],
    )
}

fn any_key() -> impl Strategy<Value = Key> {
    prop_oneof![
        "[a-z]{1,3}".prop_map(Key::Name),
        any::<String>().prop_map(Key::Name),
        (-2i64..3).prop_map(Key::Int),
    ]
}

/// Numbers that nothing compresses.
pub(crate) fn noise(seed: u32, length: usize) -> Vec<u32> {
    let mut value = seed.wrapping_mul(0x9e37_79b9) | 1;
    let next = || {
        value ^= value << 13;
        value ^= value >> 17;
        value ^= value << 5;
        value
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Numbers that get a third shorter with every compression, so that their chunks fill no pack by
/// themselves.
pub(crate) fn gappy(seed: u32, length: usize) -> Vec<u32> {
    let mut numbers = noise(seed, length);
    for part in numbers.chunks_mut(900) {
        let gap = part.len().min(300);
        part[..gap].fill(0);
    }
    numbers
}

/// A leaf of any kind; arrays of up to `max_elements` elements.
pub(crate) fn any_leaf(max_elements: usize) -> impl Strategy<Value = Leaf<'static>> {
    let dtypes: Vec<DType> = DType::all().collect();
    let shape = prop_oneof![
        Just(vec![]),
        (0..=max_elements).prop_map(|length| vec![length]),
        prop::collection::vec(0usize..5, 2..4),
    ];
    let array =
        (prop::sample::select(dtypes), shape, any::<u64>()).prop_map(|(dtype, shape, seed)| {
            let length = shape.iter().product::<usize>() * dtype.size_bytes();
            let bytes: Vec<u8> = (0u64..)
                .map(|index| (index ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[1])
                .map(|byte| if dtype == DType::Bool { byte & 1 } else { byte })
                .take(length)
                .collect();
            Leaf::from_raw(dtype, shape, &bytes).unwrap().into_owned()
        });
    prop_oneof![
        6 => array,
        1 => any::<f64>().prop_map(Leaf::scalar),
        1 => any::<bool>().prop_map(Leaf::scalar),
        1 => any::<String>().prop_map(Leaf::string),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| Leaf::bytes(&bytes).into_owned()),
        1 => any::<Vec<i32>>().prop_map(|items| Leaf::json(&serde_json::json!(items))),
    ]
}

/// A tree of any shape with leaves of any kind.
pub(crate) fn any_tree(max_elements: usize) -> impl Strategy<Value = Tree<Leaf<'static>>> {
    let node = prop_oneof![4 => any_leaf(max_elements).prop_map(Tree::Leaf), 1 => Just(Tree::None)];
    node.prop_recursive(4, 24, 6, |inner| {
        let children = prop::collection::vec(inner.clone(), 0..5);
        prop_oneof![
            children.clone().prop_map(Tree::list),
            children.prop_map(Tree::tuple),
            prop::collection::btree_map(any_key(), inner.clone(), 0..5).prop_map(Tree::Map),
            ("[A-Z][a-z]{0,12}", prop::collection::btree_map("[a-z]{1,8}|.{0,3}", inner, 0..5))
                .prop_map(|(name, fields)| Tree::record(name, fields)),
        ]
    })
}
