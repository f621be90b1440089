//! The states that are saved: nested maps of ndarray arrays.

use std::collections::BTreeMap;
use std::io::{self, Read};

use milepost::half::bf16;
use milepost::ndarray::{ArcArray, IxDyn};
use milepost::{Checkpoint, DType, Key, KeyPath, Leaf, LeafMut, Tree};

/// A state: arrays in maps in maps.
#[derive(Clone, PartialEq)]
pub(crate) enum State {
    Branch(BTreeMap<String, State>),
    Array(Array),
}

/// One array of a state.
#[derive(Clone, PartialEq)]
pub(crate) struct Array {
    pub(crate) values: Values,
    /// Whether a training step changes it.
    pub(crate) changes: bool,
    pub(crate) hand_over: HandOver,
}

/// How a save gets an array.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandOver {
    /// The save may read it until it returns.
    Borrowed,
    /// The save shares it, as long as it likes.
    Shared,
}

/// The elements of an array, in C order.
#[derive(Clone, PartialEq)]
pub(crate) enum Values {
    F32(ArcArray<f32, IxDyn>),
    Bf16(ArcArray<bf16, IxDyn>),
    I32(ArcArray<i32, IxDyn>),
    U32(ArcArray<u32, IxDyn>),
}

/// The same expression for the array of whatever type.
macro_rules! for_each_type {
    ($values:expr, $array:ident => $result:expr) => {
        match $values {
            Values::F32($array) => $result,
            Values::Bf16($array) => $result,
            Values::I32($array) => $result,
            Values::U32($array) => $result,
        }
    };
}

/// The path of the array that is called `name` in a workload: its parts are divided by `/`.
pub(crate) fn key_path(name: &str) -> KeyPath {
    name.split('/').map(Key::from).collect()
}

impl State {
    pub(crate) fn new() -> Self {
        Self::Branch(BTreeMap::new())
    }

    /// Puts `array` where `name` says.
    pub(crate) fn insert(&mut self, name: &str, array: Array) {
        let Self::Branch(children) = self else { panic!("{name} lies below an array") };
        match name.split_once('/') {
            None => {
                children.insert(name.to_owned(), Self::Array(array));
            }
            Some((first, rest)) => {
                children.entry(first.to_owned()).or_insert_with(Self::new).insert(rest, array);
            }
        }
    }

    /// The arrays in their order.
    pub(crate) fn arrays(&self) -> Vec<&Array> {
        match self {
            Self::Branch(children) => children.values().flat_map(Self::arrays).collect(),
            Self::Array(array) => vec![array],
        }
    }

    pub(crate) fn arrays_mut(&mut self) -> Vec<&mut Array> {
        match self {
            Self::Branch(children) => children.values_mut().flat_map(Self::arrays_mut).collect(),
            Self::Array(array) => vec![array],
        }
    }

    /// The elements of all float32 arrays below `params`.
    pub(crate) fn params(&self) -> Vec<f32> {
        let Self::Branch(children) = self else { return Vec::new() };
        let arrays = children.get("params").map(Self::arrays).unwrap_or_default();
        let elements = |array: &Array| match &array.values {
            Values::F32(values) => values.iter().copied().collect(),
            _ => Vec::new(),
        };
        arrays.into_iter().flat_map(elements).collect()
    }

    /// The size of the arrays.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.arrays().iter().map(|array| array.values.bytes().len() as u64).sum()
    }
}

impl Values {
    /// Reads an array of that type and shape.
    pub(crate) fn read(dtype: DType, shape: &[usize], source: &mut impl Read) -> io::Result<Self> {
        match dtype {
            DType::F32 => read_elements(shape, source).map(Self::F32),
            DType::BF16 => read_elements(shape, source).map(Self::Bf16),
            DType::I32 => read_elements(shape, source).map(Self::I32),
            DType::U32 => read_elements(shape, source).map(Self::U32),
            other => Err(io::Error::other(format!("the workloads have no arrays of {other}"))),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        for_each_type!(self, array => {
            bytemuck::cast_slice(array.as_slice().expect("arrays in C order"))
        })
    }

    /// Memory of this array's own: what was shared is copied first.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        for_each_type!(self, array => {
            bytemuck::cast_slice_mut(array.as_slice_mut().expect("arrays in C order"))
        })
    }
}

fn read_elements<T: bytemuck::Pod>(
    shape: &[usize],
    source: &mut impl Read,
) -> io::Result<ArcArray<T, IxDyn>> {
    let mut elements = vec![T::zeroed(); shape.iter().product()];
    source.read_exact(bytemuck::cast_slice_mut(&mut elements))?;
    ArcArray::from_shape_vec(shape, elements).map_err(io::Error::other)
}

impl Checkpoint for State {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        match self {
            Self::Branch(children) => children.to_tree(),
            Self::Array(Array { values, hand_over: HandOver::Shared, .. }) => {
                for_each_type!(values, array => array.to_tree())
            }
            Self::Array(Array { values, hand_over: HandOver::Borrowed, .. }) => {
                Tree::Leaf(for_each_type!(values, array => Leaf::from(array)))
            }
        }
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        match self {
            Self::Branch(children) => children.to_tree_mut(),
            Self::Array(Array { values, .. }) => {
                for_each_type!(values, array => array.to_tree_mut())
            }
        }
    }
}
