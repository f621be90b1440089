//! What makes a type a checkpoint: two trees of the same structure, one to read from and one to
//! write to.

mod containers;
mod leaves;

use super::{Leaf, LeafMut, Tree};

/// A state that can be saved and restored.
///
/// Both methods must give the same structure: the same containers, keys and kinds of leaves.
/// [`checkpoint_fields!`](crate::checkpoint_fields) implements it for structs. These types have it:
///
/// | type | saved as | restoring |
/// |---|---|---|
/// | `bool`, integers of 8 to 64 bits, floats, complex numbers | a scalar | |
/// | `usize`, `isize` | a scalar of 64 bits | fails if the value does not fit |
/// | `Vec`, `[_; N]` of these | an array of one dimension | a `Vec` takes the saved length |
/// | `ndarray::Array`, `ArcArray` | an array | needs the saved shape |
/// | `String` | a string | takes the saved length |
/// | `serde_json::Value` | a JSON value | |
/// | `Vec`, `[_; N]` of anything else here | a list | needs the saved number of items |
/// | tuples of up to eight, `()` | a tuple | |
/// | `Option` | `None` or the value | needs the same of both |
/// | `BTreeMap`, `HashMap` with keys that a [`Key`](crate::Key) can be made of | a map, sorted | needs the saved keys |
/// | `Box` | what is in it | |
/// | [`Tree`] | itself | needs the saved structure |
///
/// ```
/// use std::collections::BTreeMap;
///
/// struct Layer { weights: ndarray::Array2<f32>, bias: Vec<f32> }
/// milepost::checkpoint_fields!(Layer { weights, bias });
///
/// struct State { step: usize, layers: Vec<Layer>, moments: BTreeMap<String, Vec<f32>> }
/// milepost::checkpoint_fields!(State { step, layers, moments });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` can't be saved: it is not a `Checkpoint`",
    label = "not a checkpoint",
    note = "for a struct of your own write `milepost::checkpoint_fields!(Name {{ field, ... }})`",
    note = "the documentation of `Checkpoint` lists the types that can be fields"
)]
pub trait Checkpoint {
    /// The state as a tree of leaves; borrowed, so that nothing is copied.
    fn to_tree(&self) -> Tree<Leaf<'_>>;

    /// The same tree as places to restore into.
    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>>;

    /// Many of these in a row: a list, or one array where they are elements of one.
    #[doc(hidden)]
    fn slice_to_tree(items: &[Self]) -> Tree<Leaf<'_>>
    where
        Self: Sized,
    {
        Tree::list(items.iter().map(Self::to_tree))
    }

    /// The same as places to restore into.
    #[doc(hidden)]
    fn slice_to_tree_mut(items: &mut [Self]) -> Tree<LeafMut<'_>>
    where
        Self: Sized,
    {
        Tree::list(items.iter_mut().map(Self::to_tree_mut))
    }

    /// The same for a row that can grow.
    #[doc(hidden)]
    fn vec_to_tree_mut(items: &mut Vec<Self>) -> Tree<LeafMut<'_>>
    where
        Self: Sized,
    {
        Self::slice_to_tree_mut(items)
    }
}

/// Implements [`Checkpoint`] for a struct whose named fields are checkpoints: each becomes a
/// field of a struct node of the same name, in the order given here.
///
/// All fields must be named, so that none is forgotten when one is added; fields that are not to
/// be saved are left out with `..` at the end:
///
/// ```
/// #[derive(Default)]
/// struct TrainState {
///     step: u64,
///     weights: ndarray::Array2<f32>,
///     scratch: Vec<f32>,
/// }
/// milepost::checkpoint_fields!(TrainState { step, weights, .. });
///
/// let leaves = milepost::Checkpoint::to_tree(&TrainState::default()).leaves().unwrap().len();
/// assert_eq!(leaves, 2);
/// ```
///
/// ```compile_fail,E0027
/// struct TrainState {
///     step: u64,
///     momentum: Vec<f32>,
/// }
/// milepost::checkpoint_fields!(TrainState { step });
/// ```
///
/// The name of the struct is recorded and not compared when it is restored. A struct with type
/// parameters, or with fields that must fit each other, implements [`Checkpoint`] itself.
#[macro_export]
macro_rules! checkpoint_fields {
    ($type:ident { $($field:ident),+ , .. }) => {
        $crate::checkpoint_fields!(@fields $type { $($field),+ } { .. });
    };
    ($type:ident { $($field:ident),* $(,)? }) => {
        $crate::checkpoint_fields!(@fields $type { $($field),* } {});
    };
    (@fields $type:ident { $($field:ident),* } { $($rest:tt)* }) => {
        impl $crate::Checkpoint for $type {
            fn to_tree(&self) -> $crate::Tree<$crate::Leaf<'_>> {
                let Self { $($field,)* $($rest)* } = self;
                $crate::Tree::record(
                    stringify!($type),
                    [$((stringify!($field), $crate::Checkpoint::to_tree($field))),*],
                )
            }

            fn to_tree_mut(&mut self) -> $crate::Tree<$crate::LeafMut<'_>> {
                let Self { $($field,)* $($rest)* } = self;
                $crate::Tree::record(
                    stringify!($type),
                    [$((stringify!($field), $crate::Checkpoint::to_tree_mut($field))),*],
                )
            }
        }
    };
}
