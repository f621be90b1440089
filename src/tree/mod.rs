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

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::limits::{MAX_KEY_NAME_BYTES, MAX_LEAVES, MAX_TREE_DEPTH};
use crate::path::{Key, KeyPath};

pub use checkpoint::Checkpoint;
pub use leaf::Leaf;
pub use meta::{LeafKind, LeafMeta};
pub use source::LeafSource;
pub use target::LeafMut;

pub(crate) use data::{Buffer, Contents, Data};
pub(crate) use source::check_region;
pub(crate) use target::{Expected, FreshLeaf};

/// A nested state with leaves of type `L`.
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

    /// Calls `visitor` with every node, parents first, children in their order.
    pub(crate) fn visit<'t>(
        &'t self,
        visitor: &mut dyn FnMut(&KeyPath, &'t Self) -> Result<()>,
    ) -> Result<()> {
        let mut nodes = 0;
        self.visit_below(&mut KeyPath::root(), &mut nodes, visitor)
    }

    fn visit_below<'t>(
        &'t self,
        path: &mut KeyPath,
        nodes: &mut usize,
        visitor: &mut dyn FnMut(&KeyPath, &'t Self) -> Result<()>,
    ) -> Result<()> {
        *nodes += 1;
        if *nodes > MAX_LEAVES {
            return Err(Error::invalid(format!("the tree has more than {MAX_LEAVES} nodes")));
        }
        path.check().map_err(|error| error.at_path(path))?;
        self.check_keys().map_err(|error| error.at_path(path))?;
        visitor(path, self)?;
        let mut descend = |key: Key, child: &'t Self| {
            if path.len() >= MAX_TREE_DEPTH {
                return Err(Error::invalid(format!(
                    "the tree is deeper than {MAX_TREE_DEPTH} levels, the most that can be stored"
                ))
                .at_path(path));
            }
            path.push(key);
            child.visit_below(path, nodes, visitor)?;
            path.pop();
            Ok(())
        };
        match self {
            Self::Map(children) => {
                children.iter().try_for_each(|(key, child)| descend(key.clone(), child))
            }
            Self::List(items) | Self::Tuple(items) => {
                let mut items = items.iter().enumerate();
                items.try_for_each(|(index, child)| descend(Key::Index(index), child))
            }
            Self::Struct { fields, .. } => {
                let mut fields = fields.iter();
                fields.try_for_each(|(name, child)| descend(Key::Name(name.clone()), child))
            }
            Self::None | Self::Leaf(_) => Ok(()),
        }
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

    /// The same tree with `convert(path, leaf)` for each leaf.
    ///
    /// # Errors
    /// What `convert` returns, and `InvalidInput` if the tree is too deep.
    pub fn map_leaves<M>(
        self,
        mut convert: impl FnMut(&KeyPath, L) -> Result<M>,
    ) -> Result<Tree<M>> {
        self.map_below(&mut KeyPath::root(), &mut convert)
    }

    fn map_below<M>(
        self,
        path: &mut KeyPath,
        convert: &mut dyn FnMut(&KeyPath, L) -> Result<M>,
    ) -> Result<Tree<M>> {
        if path.len() > MAX_TREE_DEPTH {
            return Err(Error::invalid(format!("the tree is deeper than {MAX_TREE_DEPTH} levels")));
        }
        let mut descend = |key: Key, child: Self| -> Result<Tree<M>> {
            path.push(key);
            let child = child.map_below(path, convert)?;
            path.pop();
            Ok(child)
        };
        let sequence = |items: Vec<Self>, descend: &mut dyn FnMut(Key, Self) -> Result<Tree<M>>| {
            let keyed = items.into_iter().enumerate();
            keyed.map(|(index, child)| descend(Key::Index(index), child)).collect::<Result<_>>()
        };
        Ok(match self {
            Self::Map(children) => Tree::Map(
                children
                    .into_iter()
                    .map(|(key, child)| Ok((key.clone(), descend(key, child)?)))
                    .collect::<Result<_>>()?,
            ),
            Self::List(items) => Tree::List(sequence(items, &mut descend)?),
            Self::Tuple(items) => Tree::Tuple(sequence(items, &mut descend)?),
            Self::Struct { name, fields } => Tree::Struct {
                name,
                fields: fields
                    .into_iter()
                    .map(|(name, child)| Ok((name.clone(), descend(Key::Name(name), child)?)))
                    .collect::<Result<_>>()?,
            },
            Self::None => Tree::None,
            Self::Leaf(leaf) => Tree::Leaf(convert(path, leaf)?),
        })
    }
}

impl<L> Tree<L> {
    /// Calls `visitor` with the path and each leaf, in tree order. The tree must be one that
    /// passed [`Tree::check`].
    pub(crate) fn visit_leaves_mut<'t>(&'t mut self, visitor: &mut dyn FnMut(&KeyPath, &'t mut L)) {
        self.visit_leaves_below(&mut KeyPath::root(), visitor);
    }

    fn visit_leaves_below<'t>(
        &'t mut self,
        path: &mut KeyPath,
        visitor: &mut dyn FnMut(&KeyPath, &'t mut L),
    ) {
        let mut descend = |key: Key, child: &'t mut Self| {
            path.push(key);
            child.visit_leaves_below(path, visitor);
            path.pop();
        };
        match self {
            Self::Map(children) => {
                for (key, child) in children {
                    descend(key.clone(), child);
                }
            }
            Self::List(items) | Self::Tuple(items) => {
                for (index, child) in items.iter_mut().enumerate() {
                    descend(Key::Index(index), child);
                }
            }
            Self::Struct { fields, .. } => {
                for (name, child) in fields {
                    descend(Key::Name(name.clone()), child);
                }
            }
            Self::None => {}
            Self::Leaf(leaf) => visitor(path, leaf),
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
