//! Checkpoints that are one leaf.

use ndarray::{ArcArray, Array, ArrayView1, ArrayViewMut1, Dimension};

use super::{Checkpoint, Leaf, LeafMut, Tree};
use crate::dtype::{Complex, Element, F8E4M3, F8E5M2, bf16, f16};

macro_rules! scalar_checkpoints {
    ($($rust:ty),* $(,)?) => {$(
        impl Checkpoint for $rust {
            fn to_tree(&self) -> Tree<Leaf<'_>> {
                Tree::Leaf(Leaf::scalar(*self))
            }

            fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
                Tree::Leaf(LeafMut::scalar(self))
            }

            fn slice_to_tree(items: &[Self]) -> Tree<Leaf<'_>> {
                Tree::Leaf(Leaf::from(ArrayView1::from(items)))
            }

            fn slice_to_tree_mut(items: &mut [Self]) -> Tree<LeafMut<'_>> {
                Tree::Leaf(LeafMut::from(ArrayViewMut1::from(items)))
            }

            fn vec_to_tree_mut(items: &mut Vec<Self>) -> Tree<LeafMut<'_>> {
                Tree::Leaf(LeafMut::vec(items))
            }
        }
    )*};
}

scalar_checkpoints!(
    bool,
    u8,
    u16,
    u32,
    u64,
    i8,
    i16,
    i32,
    i64,
    f16,
    bf16,
    f32,
    f64,
    F8E4M3,
    F8E5M2,
    Complex<f32>,
    Complex<f64>,
);

/// Integers of the machine's own size are saved with 64 bits.
macro_rules! size_checkpoints {
    ($($rust:ty => $stored:ty),*) => {$(
        impl Checkpoint for $rust {
            fn to_tree(&self) -> Tree<Leaf<'_>> {
                Tree::Leaf(Leaf::scalar(stored::<$rust, $stored>(*self)))
            }

            fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
                Tree::Leaf(LeafMut::converted_scalar::<$rust, $stored>(self))
            }

            fn slice_to_tree(items: &[Self]) -> Tree<Leaf<'_>> {
                let items = items.iter().map(|item| stored::<$rust, $stored>(*item));
                Tree::Leaf(Leaf::from(items.collect::<ndarray::Array1<$stored>>()))
            }

            fn slice_to_tree_mut(items: &mut [Self]) -> Tree<LeafMut<'_>> {
                Tree::Leaf(LeafMut::converted_slice::<$rust, $stored>(items))
            }

            fn vec_to_tree_mut(items: &mut Vec<Self>) -> Tree<LeafMut<'_>> {
                Tree::Leaf(LeafMut::converted_vec::<$rust, $stored>(items))
            }
        }
    )*};
}

size_checkpoints!(usize => u64, isize => i64);

/// No machine has more than 64 bits, so the value always fits.
fn stored<T: TryInto<S>, S: Default>(value: T) -> S {
    value.try_into().unwrap_or_default()
}

/// An array of a shape that restoring does not change.
impl<T: Element, D: Dimension> Checkpoint for Array<T, D> {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        Tree::Leaf(Leaf::from(self))
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        Tree::Leaf(LeafMut::array(self))
    }
}

/// A shared array: saving shares it, restoring gives this owner a copy of its own.
impl<T: Element, D: Dimension> Checkpoint for ArcArray<T, D> {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        Tree::Leaf(Leaf::from(self.clone()))
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        Tree::Leaf(LeafMut::array(self))
    }
}

impl Checkpoint for String {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        Tree::Leaf(Leaf::str(self))
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        Tree::Leaf(LeafMut::string(self))
    }
}

impl Checkpoint for serde_json::Value {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        Tree::Leaf(Leaf::json(self))
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        Tree::Leaf(LeafMut::json(self))
    }
}
