//! What makes a type a checkpoint: two trees of the same structure, one to read from and one to
//! write to.

use ndarray::{ArcArray, Array, Dimension};

use super::{Leaf, LeafMut, Tree};
use crate::dtype::{Complex, Element, F8E4M3, F8E5M2, bf16, f16};

/// A state that can be saved and restored.
///
/// Both methods must give the same structure: the same containers, keys and kinds of leaves.
/// The fields of a struct are given by [`checkpoint_fields!`](crate::checkpoint_fields).
pub trait Checkpoint {
    /// The state as a tree of leaves; borrowed, so that nothing is copied.
    fn to_tree(&self) -> Tree<Leaf<'_>>;

    /// The same tree as places to restore into.
    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>>;
}

/// A tree is its own state: restored leaves replace those of the same path, kind, element type
/// and shape.
impl Checkpoint for Tree<Leaf<'_>> {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        self.clone()
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        match self {
            Self::Map(children) => Tree::map(
                children.iter_mut().map(|(key, child)| (key.clone(), child.to_tree_mut())),
            ),
            Self::List(items) => Tree::list(items.iter_mut().map(Self::to_tree_mut)),
            Self::Tuple(items) => Tree::tuple(items.iter_mut().map(Self::to_tree_mut)),
            Self::Struct { name, fields } => Tree::record(
                name.clone(),
                fields.iter_mut().map(|(name, child)| (name.clone(), child.to_tree_mut())),
            ),
            Self::None => Tree::None,
            Self::Leaf(leaf) => Tree::Leaf(LeafMut::leaf(leaf)),
        }
    }
}

macro_rules! scalar_checkpoints {
    ($($rust:ty),* $(,)?) => {$(
        impl Checkpoint for $rust {
            fn to_tree(&self) -> Tree<Leaf<'_>> {
                Tree::Leaf(Leaf::scalar(*self))
            }

            fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
                Tree::Leaf(LeafMut::scalar(self))
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

/// A one-dimensional array. Restoring takes whatever length was saved.
impl<T: Element> Checkpoint for Vec<T> {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        Tree::Leaf(Leaf::from(ndarray::ArrayView1::from(self.as_slice())))
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        Tree::Leaf(LeafMut::vec(self))
    }
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

/// `None` or the value. Restoring needs the same of both that was saved.
impl<C: Checkpoint> Checkpoint for Option<C> {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        self.as_ref().map_or(Tree::None, Checkpoint::to_tree)
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        self.as_mut().map_or(Tree::None, Checkpoint::to_tree_mut)
    }
}

/// A list of as many items as the array has.
impl<C: Checkpoint, const N: usize> Checkpoint for [C; N] {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        Tree::list(self.iter().map(Checkpoint::to_tree))
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        Tree::list(self.iter_mut().map(Checkpoint::to_tree_mut))
    }
}

/// Implements [`Checkpoint`] for a struct whose named fields are checkpoints: each becomes a
/// field of a struct node of the same name, in the order given here.
///
/// A field that is left out is neither saved nor restored.
///
/// ```
/// #[derive(Default)]
/// struct TrainState {
///     step: u64,
///     weights: ndarray::Array2<f32>,
///     scratch: Vec<f32>,
/// }
/// milepost::checkpoint_fields!(TrainState { step, weights });
///
/// let tree = milepost::Checkpoint::to_tree(&TrainState::default()).leaves().unwrap().len();
/// assert_eq!(tree, 2);
/// ```
#[macro_export]
macro_rules! checkpoint_fields {
    ($type:ident { $($field:ident),* $(,)? }) => {
        impl $crate::Checkpoint for $type {
            fn to_tree(&self) -> $crate::Tree<$crate::Leaf<'_>> {
                $crate::Tree::record(
                    stringify!($type),
                    [$((stringify!($field), $crate::Checkpoint::to_tree(&self.$field))),*],
                )
            }

            fn to_tree_mut(&mut self) -> $crate::Tree<$crate::LeafMut<'_>> {
                $crate::Tree::record(
                    stringify!($type),
                    [$((stringify!($field), $crate::Checkpoint::to_tree_mut(&mut self.$field))),*],
                )
            }
        }
    };
}
