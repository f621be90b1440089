//! Checkpoints that hold others.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};

use super::{Checkpoint, Leaf, LeafMut, Tree};
use crate::limits::MAX_TREE_DEPTH;
use crate::path::Key;

/// A tree is its own state: restored leaves replace those of the same path, kind, element type
/// and shape.
impl Checkpoint for Tree<Leaf<'_>> {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        if self.is_deeper_than(MAX_TREE_DEPTH) {
            // It will be refused, so enough of it for that.
            return self.top(MAX_TREE_DEPTH, &Leaf::clone);
        }
        self.clone()
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        self.targets(MAX_TREE_DEPTH)
    }
}

impl Tree<Leaf<'_>> {
    /// The leaves as places. None stands for what has more than `levels` others above it.
    fn targets(&mut self, levels: usize) -> Tree<LeafMut<'_>> {
        let below = |child| match levels.checked_sub(1) {
            Some(levels) => Self::targets(child, levels),
            None => Tree::None,
        };
        match self {
            Self::Map(children) => {
                Tree::map(children.iter_mut().map(|(key, child)| (key.clone(), below(child))))
            }
            Self::List(items) => Tree::list(items.iter_mut().map(below)),
            Self::Tuple(items) => Tree::tuple(items.iter_mut().map(below)),
            Self::Struct { name, fields } => {
                let fields = fields.iter_mut().map(|(name, child)| (name.clone(), below(child)));
                Tree::record(name.clone(), fields)
            }
            Self::None => Tree::None,
            Self::Leaf(leaf) => Tree::Leaf(LeafMut::leaf(leaf)),
        }
    }
}

/// An array of one dimension where the items are its elements, else a list.
impl<C: Checkpoint> Checkpoint for Vec<C> {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        C::slice_to_tree(self)
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        C::vec_to_tree_mut(self)
    }
}

/// An array of one dimension where the items are its elements, else a list.
impl<C: Checkpoint, const N: usize> Checkpoint for [C; N] {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        C::slice_to_tree(self)
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        C::slice_to_tree_mut(self)
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

impl<C: Checkpoint + ?Sized> Checkpoint for Box<C> {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        (**self).to_tree()
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        (**self).to_tree_mut()
    }
}

/// A map. Restoring needs the keys that were saved.
impl<K, C> Checkpoint for BTreeMap<K, C>
where
    K: Clone + Ord,
    Key: From<K>,
    C: Checkpoint,
{
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        Tree::map(self.iter().map(|(key, value)| (key.clone(), value.to_tree())))
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        Tree::map(self.iter_mut().map(|(key, value)| (key.clone(), value.to_tree_mut())))
    }
}

/// A map, saved in the order of its keys. Restoring needs the keys that were saved.
impl<K, C, S> Checkpoint for HashMap<K, C, S>
where
    K: Clone + Eq + Hash,
    Key: From<K>,
    C: Checkpoint,
    S: BuildHasher,
{
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        Tree::map(self.iter().map(|(key, value)| (key.clone(), value.to_tree())))
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        Tree::map(self.iter_mut().map(|(key, value)| (key.clone(), value.to_tree_mut())))
    }
}

macro_rules! tuple_checkpoints {
    ($($($name:ident)*;)*) => {$(
        impl<$($name: Checkpoint),*> Checkpoint for ($($name,)*) {
            fn to_tree(&self) -> Tree<Leaf<'_>> {
                #[expect(non_snake_case, reason = "the names of the types serve for the values")]
                let ($($name,)*) = self;
                Tree::tuple([$($name.to_tree()),*])
            }

            fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
                #[expect(non_snake_case, reason = "the names of the types serve for the values")]
                let ($($name,)*) = self;
                Tree::tuple([$($name.to_tree_mut()),*])
            }
        }
    )*};
}

tuple_checkpoints! {
    A;
    A B;
    A B C;
    A B C D;
    A B C D E;
    A B C D E F;
    A B C D E F G;
    A B C D E F G H;
}

impl Checkpoint for () {
    fn to_tree(&self) -> Tree<Leaf<'_>> {
        Tree::tuple([])
    }

    fn to_tree_mut(&mut self) -> Tree<LeafMut<'_>> {
        Tree::tuple([])
    }
}
