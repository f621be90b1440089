//! Walks over all of a tree. Each goes no deeper than a tree that can be stored, or than it is told.

use super::Tree;
use crate::error::{Error, Result};
use crate::limits::{MAX_LEAVES, MAX_TREE_DEPTH};
use crate::path::{Key, KeyPath};

impl<L> Tree<L> {
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

    /// The same tree with `convert(leaf)` for each leaf. None stands for what has more than `levels`
    /// others above it.
    pub(crate) fn top<'t, M>(&'t self, levels: usize, convert: &dyn Fn(&'t L) -> M) -> Tree<M> {
        let below = |child: &'t Self| match levels.checked_sub(1) {
            Some(levels) => child.top(levels, convert),
            None => Tree::None,
        };
        match self {
            Self::Map(children) => {
                Tree::map(children.iter().map(|(key, child)| (key.clone(), below(child))))
            }
            Self::List(items) => Tree::list(items.iter().map(below)),
            Self::Tuple(items) => Tree::tuple(items.iter().map(below)),
            Self::Struct { name, fields } => {
                let fields = fields.iter().map(|(name, child)| (name.clone(), below(child)));
                Tree::record(name.clone(), fields)
            }
            Self::None => Tree::None,
            Self::Leaf(leaf) => Tree::Leaf(convert(leaf)),
        }
    }

    /// Whether any node has more than `levels` others above it. Goes no deeper than that.
    pub(crate) fn is_deeper_than(&self, levels: usize) -> bool {
        let deeper = |child: &Self| match levels.checked_sub(1) {
            Some(below) => child.is_deeper_than(below),
            None => true,
        };
        match self {
            Self::Map(children) => children.values().any(deeper),
            Self::List(items) | Self::Tuple(items) => items.iter().any(deeper),
            Self::Struct { fields, .. } => fields.iter().any(|(_, child)| deeper(child)),
            Self::None | Self::Leaf(_) => false,
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
