//! The nested state: maps, lists, tuples, structs, None and leaves.
//!
//! One [`Tree`] type serves the values to save (`Tree<Leaf>`), the places to restore into
//! (`Tree<LeafMut>`) and the description of either (`Tree<LeafMeta>`). What a save and a
//! restore walk over is refused where it is deeper than the limit, before they recurse further.

mod checkpoint;
mod data;
mod leaf;
mod meta;
mod shards;
mod source;
mod target;
mod walk;

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::limits::MAX_KEY_NAME_BYTES;
use crate::path::{Key, KeyPath};

pub use checkpoint::Checkpoint;
pub use leaf::Leaf;
pub use meta::{LeafKind, LeafMeta};
pub use source::LeafSource;
pub use target::LeafMut;

pub(crate) use data::{Buffer, Contents, Data, Given};
pub(crate) use source::check_region;
pub(crate) use target::{Expected, FreshLeaf};

/// A nested state with leaves of type `L`.
///
/// It can be stored if it has at most [`limits::MAX_TREE_DEPTH`](crate::limits::MAX_TREE_DEPTH) levels. What
/// saves or restores one that has more says so. Cloning, comparing, printing and dropping a tree take stack
/// for each of its levels, however many there are.
#[derive(Debug, Clone, PartialEq)]
pub enum Tree<L = Leaf<'static>> {
    /// A map from names or integers, in key order: a Python `dict`, a Rust map.
    Map(BTreeMap<Key, Tree<L>>),
    /// A sequence of any length: a Python `list`, a Rust `Vec`.
    List(Vec<Tree<L>>),
    /// A sequence whose length belongs to its type.
    Tuple(Vec<Tree<L>>),
    /// Named fields in their order: a dataclass, a Rust struct.
    Struct {
        /// The name of the type.
        name: String,
        /// The fields in their order.
        fields: Vec<(String, Tree<L>)>,
    },
    /// Nothing: Python's and JAX's `None`, Rust's `Option::None`.
    None,
    /// A leaf.
    Leaf(L),
}

impl<L> Tree<L> {
    /// A map from `entries`; of equal keys the last one wins, as in a `dict` literal.
    pub fn map<K: Into<Key>>(entries: impl IntoIterator<Item = (K, Self)>) -> Self {
        Self::Map(entries.into_iter().map(|(key, child)| (key.into(), child)).collect())
    }

    /// A list of `items`.
    pub fn list(items: impl IntoIterator<Item = Self>) -> Self {
        Self::List(items.into_iter().collect())
    }

    /// A tuple of `items`.
    pub fn tuple(items: impl IntoIterator<Item = Self>) -> Self {
        Self::Tuple(items.into_iter().collect())
    }

    /// A struct called `name` with `fields` in this order.
    pub fn record<K: Into<String>>(
        name: impl Into<String>,
        fields: impl IntoIterator<Item = (K, Self)>,
    ) -> Self {
        Self::Struct {
            name: name.into(),
            fields: fields.into_iter().map(|(key, child)| (key.into(), child)).collect(),
        }
    }

    /// The kind of this node, for messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Map(_) => "map",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Struct { .. } => "struct",
            Self::None => "None",
            Self::Leaf(_) => "leaf",
        }
    }

    /// The node at `path`, if there is one.
    pub fn get(&self, path: &KeyPath) -> Option<&Self> {
        path.keys().iter().try_fold(self, |node, key| match (node, key) {
            (Self::Map(children), key) => children.get(key),
            (Self::List(items) | Self::Tuple(items), Key::Index(index)) => items.get(*index),
            (Self::Struct { fields, .. }, Key::Name(name)) => {
                fields.iter().find(|field| field.0 == *name).map(|field| &field.1)
            }
            _ => None,
        })
    }

    /// The children of this node with their keys, in their order.
    pub fn children(&self) -> Vec<(Key, &Self)> {
        match self {
            Self::Map(children) => {
                children.iter().map(|(key, child)| (key.clone(), child)).collect()
            }
            Self::List(items) | Self::Tuple(items) => {
                items.iter().enumerate().map(|(index, child)| (Key::Index(index), child)).collect()
            }
            Self::Struct { fields, .. } => {
                fields.iter().map(|(name, child)| (Key::Name(name.clone()), child)).collect()
            }
            Self::None | Self::Leaf(_) => Vec::new(),
        }
    }

    /// The leaves with their paths, in tree order.
    ///
    /// # Errors
    /// `InvalidInput` if the tree can't be stored, see [`Tree::check`].
    pub fn leaves(&self) -> Result<Vec<(KeyPath, &L)>> {
        let mut leaves = Vec::new();
        self.visit(&mut |path, node| {
            if let Self::Leaf(leaf) = node {
                leaves.push((path.clone(), leaf));
            }
            Ok(())
        })?;
        Ok(leaves)
    }

    /// Checks that the tree can be stored: its depth, the number of its nodes, the length of its
    /// names, no sequence index as a map key, no field name twice in a struct.
    ///
    /// # Errors
    /// `InvalidInput` with the path of the first node that can't be.
    pub fn check(&self) -> Result<()> {
        self.visit(&mut |_, _| Ok(()))
    }

    fn check_keys(&self) -> Result<()> {
        match self {
            Self::Map(children) => match children.keys().find(|key| matches!(key, Key::Index(_))) {
                Some(Key::Index(index)) => {
                    Err(Error::invalid(format!("a map has the sequence index [{index}] as a key"))
                        .advise("use a name or an integer key, or a list"))
                }
                _ => Ok(()),
            },
            Self::Struct { name, .. } if name.len() > MAX_KEY_NAME_BYTES => {
                Err(Error::invalid(format!(
                    "the name of a struct has {} bytes, at most {MAX_KEY_NAME_BYTES} can be stored",
                    name.len()
                )))
            }
            Self::Struct { fields, .. } => {
                let mut names: Vec<_> = fields.iter().map(|field| &field.0).collect();
                names.sort_unstable();
                let twice = names.iter().zip(names.iter().skip(1)).find(|(a, b)| a == b);
                match twice {
                    Some((name, _)) => {
                        Err(Error::invalid(format!("a struct has the field {name:?} twice")))
                    }
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

impl<'a> From<Leaf<'a>> for Tree<Leaf<'a>> {
    fn from(leaf: Leaf<'a>) -> Self {
        Self::Leaf(leaf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_TREE_DEPTH;

    fn chain(depth: usize) -> Tree<u8> {
        (0..depth).fold(Tree::Leaf(1), |child, _| Tree::list([child]))
    }

    #[test]
    fn the_depth_limit_holds_at_its_edge() {
        chain(MAX_TREE_DEPTH).check().unwrap();
        let error = chain(MAX_TREE_DEPTH + 1).check().unwrap_err();
        assert!(error.to_string().contains("deeper than 128 levels"), "{error}");
        assert!(chain(MAX_TREE_DEPTH + 1).map_leaves(|_, leaf| Ok(leaf)).is_err());
    }

    #[test]
    fn nodes_are_found_by_typed_keys() {
        let tree = Tree::map([
            (Key::from("a"), Tree::list([Tree::Leaf(1), Tree::None])),
            (Key::from(1), Tree::record("Point", [("x", Tree::Leaf(2))])),
        ]);
        let at = |path: &str| tree.get(&path.parse().unwrap()).map(Tree::kind);
        assert_eq!(at("a[0]"), Some("leaf"));
        assert_eq!(at("a[1]"), Some("None"));
        assert_eq!(at("1/x"), Some("leaf"));
        assert_eq!(at("\"1\""), None);
        assert_eq!(at("a/x"), None);
        let paths: Vec<_> = tree.leaves().unwrap().iter().map(|leaf| leaf.0.to_string()).collect();
        assert_eq!(paths, ["1/x", "a[0]"]);
    }

    #[test]
    fn a_field_twice_and_an_index_as_map_key_are_refused() {
        let twice = Tree::record("P", [("x", Tree::Leaf(1)), ("y", Tree::None), ("x", Tree::None)]);
        assert!(
            Tree::list([twice])
                .check()
                .unwrap_err()
                .to_string()
                .contains("[0]: a struct has the field \"x\" twice")
        );
        let index = Tree::<u8>::map([(Key::Index(3), Tree::None)]);
        assert!(index.check().unwrap_err().to_string().contains("[3]"));
    }
}
