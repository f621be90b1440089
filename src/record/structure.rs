//! The structure record: the nodes of a tree in preorder, each with the key that leads to it and
//! the number of its children. It is flat, so that an archive of it is checked without recursion;
//! making the tree recurses no deeper than [`MAX_TREE_DEPTH`].

use std::collections::BTreeSet;

use rkyv::rancor;
use rkyv::{Archive, Deserialize, Serialize};

use super::envelope::{Kind, open, seal_within_limit};
use crate::error::Result;
use crate::limits::{MAX_KEY_NAME_BYTES, MAX_LEAVES, MAX_TREE_DEPTH};
use crate::path::{Key, KeyPath};
use crate::tree::Tree;

const NONE: u8 = 0;
const LEAF: u8 = 1;
const LIST: u8 = 2;
const TUPLE: u8 = 3;
const MAP: u8 = 4;
const STRUCT: u8 = 5;

#[derive(Archive, Serialize, Deserialize)]
struct StructureV1 {
    nodes: Vec<NodeV1>,
}

#[derive(Archive, Serialize, Deserialize)]
struct NodeV1 {
    kind: u8,
    children: u32,
    /// The encoded key path of one key for the child of a map or struct, else empty.
    key: Vec<u8>,
    /// The name of a struct, else empty.
    name: String,
}

/// The record of the structure of `step`; what the leaves are is in their own records.
pub(crate) fn encode_structure<L>(step: u64, tree: &Tree<L>) -> Result<Vec<u8>> {
    let mut nodes = Vec::new();
    tree.visit(&mut |path, node| {
        let children = match node {
            Tree::Map(children) => children.len(),
            Tree::List(items) | Tree::Tuple(items) => items.len(),
            Tree::Struct { fields, .. } => fields.len(),
            Tree::None | Tree::Leaf(_) => 0,
        };
        let key = match path.keys().last() {
            Some(key @ (Key::Name(_) | Key::Int(_))) => KeyPath::from([key.clone()]).encode(),
            Some(Key::Index(_)) | None => Vec::new(),
        };
        let name = match node {
            Tree::Struct { name, .. } => name.clone(),
            _ => String::new(),
        };
        let children = u32::try_from(children).unwrap_or(u32::MAX);
        nodes.push(NodeV1 { kind: code(node), children, key, name });
        Ok(())
    })?;
    let payload = rkyv::to_bytes::<rancor::Error>(&StructureV1 { nodes })
        .map_err(|error| Kind::Structure.archive(&error))?;
    Ok(seal_within_limit(Kind::Structure, 1, &step.to_le_bytes(), &payload)?)
}

/// The structure of `step`, with `leaf(path)` for each leaf.
pub(crate) fn decode_structure<L>(
    step: u64,
    record: &[u8],
    leaf: &mut dyn FnMut(&KeyPath) -> Result<L>,
) -> Result<Tree<L>> {
    let payload = open(Kind::Structure, &step.to_le_bytes(), record)?;
    let archive = rkyv::access::<ArchivedStructureV1, rancor::Error>(payload)
        .map_err(|error| Kind::Structure.archive(&error))?;
    if archive.nodes.len() > MAX_LEAVES {
        return Err(fault(format!("it has {} nodes", archive.nodes.len())));
    }
    let mut decoder = Decoder { nodes: archive.nodes.iter(), path: KeyPath::root(), leaf };
    let tree = match decoder.nodes.next() {
        Some(root) => decoder.node(root)?,
        None => return Err(fault("it has no nodes")),
    };
    match decoder.nodes.len() {
        0 => Ok(tree),
        more => Err(fault(format!("{more} nodes have no parent"))),
    }
}

fn code<L>(node: &Tree<L>) -> u8 {
    match node {
        Tree::None => NONE,
        Tree::Leaf(_) => LEAF,
        Tree::List(_) => LIST,
        Tree::Tuple(_) => TUPLE,
        Tree::Map(_) => MAP,
        Tree::Struct { .. } => STRUCT,
    }
}

struct Decoder<'r, 'f, L> {
    nodes: std::slice::Iter<'r, ArchivedNodeV1>,
    path: KeyPath,
    leaf: &'f mut dyn FnMut(&KeyPath) -> Result<L>,
}

impl<L> Decoder<'_, '_, L> {
    fn node(&mut self, node: &ArchivedNodeV1) -> Result<Tree<L>> {
        let count = usize::try_from(node.children.to_native()).unwrap_or(usize::MAX);
        if count > self.nodes.len() {
            return Err(fault(format!("a node has {count} children, {} follow", self.nodes.len())));
        }
        if count > 0 && self.path.len() >= MAX_TREE_DEPTH {
            return Err(fault(format!("it is deeper than {MAX_TREE_DEPTH} levels")));
        }
        Ok(match node.kind {
            NONE if count == 0 => Tree::None,
            LEAF if count == 0 => Tree::Leaf((self.leaf)(&self.path)?),
            LIST => Tree::List(self.sequence(count)?),
            TUPLE => Tree::Tuple(self.sequence(count)?),
            MAP => {
                let children = self.keyed(count)?;
                let tree = Tree::map(children);
                match &tree {
                    Tree::Map(children) if children.len() == count => tree,
                    _ => return Err(fault("a map has a key twice")),
                }
            }
            STRUCT if node.name.len() > MAX_KEY_NAME_BYTES => {
                return Err(fault(format!(
                    "the name of a struct has {} bytes, at most {MAX_KEY_NAME_BYTES} are stored",
                    node.name.len()
                )));
            }
            STRUCT => {
                let (mut fields, mut names) = (Vec::new(), BTreeSet::new());
                for (key, child) in self.keyed(count)? {
                    match key {
                        Key::Name(name) if !names.insert(name.clone()) => {
                            return Err(fault("a struct has a field twice"));
                        }
                        Key::Name(name) => fields.push((name, child)),
                        key => return Err(fault(format!("a struct has the field {key:?}"))),
                    }
                }
                Tree::Struct { name: node.name.to_string(), fields }
            }
            kind => {
                return Err(fault(format!("a node has kind {kind} and {count} children")));
            }
        })
    }

    fn sequence(&mut self, count: usize) -> Result<Vec<Tree<L>>> {
        (0..count).map(|index| self.child(Key::Index(index), None)).collect()
    }

    fn keyed(&mut self, count: usize) -> Result<Vec<(Key, Tree<L>)>> {
        let mut children = Vec::new();
        for _ in 0..count {
            let Some(node) = self.nodes.next() else {
                return Err(fault("a child is missing"));
            };
            let key = match KeyPath::decode(&node.key)?.keys() {
                [key @ (Key::Name(_) | Key::Int(_))] => key.clone(),
                keys => return Err(fault(format!("a child has the key {keys:?}"))),
            };
            children.push((key.clone(), self.child(key, Some(node))?));
        }
        Ok(children)
    }

    fn child(&mut self, key: Key, node: Option<&ArchivedNodeV1>) -> Result<Tree<L>> {
        let Some(node) = node.or_else(|| self.nodes.next()) else {
            return Err(fault("a child is missing"));
        };
        self.path.push(key);
        self.path.check().map_err(|error| fault(error.to_string()))?;
        let child = self.node(node)?;
        self.path.pop();
        Ok(child)
    }
}

fn fault(message: impl Into<String>) -> crate::error::Error {
    Kind::Structure.content(message).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(tree: &Tree<()>) -> Result<Tree<()>> {
        decode_structure(5, &encode_structure(5, tree)?, &mut |_| Ok(()))
    }

    #[test]
    fn every_kind_of_node_comes_back_empty_or_not() {
        let empty = [
            Tree::None,
            Tree::Leaf(()),
            Tree::list([]),
            Tree::tuple([]),
            Tree::Map(std::collections::BTreeMap::new()),
            Tree::Struct { name: "Empty".into(), fields: vec![] },
        ];
        for tree in empty.clone() {
            assert_eq!(back(&tree).unwrap(), tree);
        }
        let tree = Tree::map([
            (Key::from("a/b"), Tree::list(empty.clone())),
            (Key::from(-1), Tree::record("P", [("z", Tree::tuple(empty)), ("", Tree::None)])),
        ]);
        assert_eq!(back(&tree).unwrap(), tree);
    }

    #[test]
    fn leaves_are_asked_for_by_their_paths() {
        let tree = Tree::map([("a", Tree::list([Tree::Leaf(()), Tree::None, Tree::Leaf(())]))]);
        let record = encode_structure(5, &tree).unwrap();
        let mut paths = Vec::new();
        decode_structure(5, &record, &mut |path| {
            paths.push(path.to_string());
            Ok(())
        })
        .unwrap();
        assert_eq!(paths, ["a[0]", "a[2]"]);
    }

    #[test]
    fn nodes_that_lie_about_their_children_are_refused() {
        let node = |kind, children| NodeV1 { kind, children, key: vec![], name: String::new() };
        let decode = |nodes| {
            let payload = rkyv::to_bytes::<rancor::Error>(&StructureV1 { nodes }).unwrap();
            let record =
                seal_within_limit(Kind::Structure, 1, &5u64.to_le_bytes(), &payload).unwrap();
            decode_structure(5, &record, &mut |_| Ok(()))
        };
        assert!(decode(vec![]).is_err());
        assert!(decode(vec![node(LIST, u32::MAX)]).is_err());
        assert!(decode(vec![node(LIST, 1)]).is_err());
        assert!(decode(vec![node(LEAF, 1), node(LEAF, 0)]).is_err());
        assert!(decode(vec![node(LEAF, 0), node(LEAF, 0)]).is_err());
        assert!(decode(vec![node(MAP, 1), node(LEAF, 0)]).is_err());
        assert!(decode(vec![node(9, 0)]).is_err());
        let deep: Vec<_> = (0..200).map(|_| node(LIST, 1)).chain([node(LEAF, 0)]).collect();
        assert!(decode(deep).unwrap_err().to_string().contains("deeper"));
    }
}
