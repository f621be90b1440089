//! The joint of milepost: whatever has leaves can be saved, and whatever was saved has leaves.

use super::{Leaf, LeafMeta, Tree};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::MAX_TREE_DEPTH;
use crate::path::KeyPath;
use crate::shape::Region;

/// Something with leaves: a tree in memory, a saved step, a foreign file, a view over another
/// source.
///
/// A source does not change while it is borrowed: the structure and the contents that it gives
/// are the same on every call. It may be read from several threads at once.
pub trait LeafSource: Sync {
    /// The structure with the kind, element type and shape of each leaf. Reads no contents.
    ///
    /// # Errors
    /// `InvalidInput` if a leaf can't be stored; else what the source says.
    fn structure(&self) -> Result<Tree<LeafMeta>>;

    /// Writes one region of a leaf to `out`, in C order and little-endian.
    ///
    /// # Errors
    /// `NotFound` if there is no such leaf; `InvalidInput` if the region does not lie within it
    /// or `out` is not exactly as long as the region; else what the source says.
    fn read_region(&self, path: &KeyPath, region: &Region, out: &mut [u8]) -> Result<()>;

    /// The whole contents of a leaf, if they lie in memory already.
    fn borrow(&self, _path: &KeyPath) -> Option<&[u8]> {
        None
    }

    /// All leaves in the order of the structure, if all of them lie in memory already, in one piece or as
    /// shards: it spares the
    /// search for each, and shared ones need not be copied. Asked after
    /// [`structure`](Self::structure).
    fn borrow_all(&self) -> Option<Vec<&Leaf<'_>>> {
        None
    }
}

impl LeafSource for Tree<Leaf<'_>> {
    fn structure(&self) -> Result<Tree<LeafMeta>> {
        self.visit(&mut |path, node| match node {
            Self::Leaf(leaf) => leaf.check().map_err(|error| error.at_path(path)),
            _ => Ok(()),
        })?;
        Ok(self.top(MAX_TREE_DEPTH, &|leaf| leaf.meta().clone()))
    }

    fn read_region(&self, path: &KeyPath, region: &Region, out: &mut [u8]) -> Result<()> {
        let Some(Self::Leaf(leaf)) = self.get(path) else {
            return Err(Error::new(ErrorKind::NotFound, "there is no such leaf").at_path(path));
        };
        let meta = leaf.meta();
        let check = || check_region(meta, region, out).and_then(|()| leaf.check_given(region));
        check().map_err(|error| error.at_path(path))?;
        leaf.copy_region(region, out);
        Ok(())
    }

    fn borrow(&self, path: &KeyPath) -> Option<&[u8]> {
        match self.get(path) {
            Some(Self::Leaf(leaf)) => leaf.contents(),
            _ => None,
        }
    }

    fn borrow_all(&self) -> Option<Vec<&Leaf<'_>>> {
        let mut all = Vec::new();
        self.push_leaves(&mut all);
        Some(all)
    }
}

impl<'a> Tree<Leaf<'a>> {
    fn push_leaves<'t>(&'t self, all: &mut Vec<&'t Leaf<'a>>) {
        match self {
            Self::Leaf(leaf) => all.push(leaf),
            Self::Map(children) => children.values().for_each(|child| child.push_leaves(all)),
            Self::List(items) | Self::Tuple(items) => {
                for item in items {
                    item.push_leaves(all);
                }
            }
            Self::Struct { fields, .. } => {
                for (_, child) in fields {
                    child.push_leaves(all);
                }
            }
            Self::None => {}
        }
    }
}

/// Checks a request to read `region` of a leaf like `meta` into `out`.
pub(crate) fn check_region(meta: &LeafMeta, region: &Region, out: &[u8]) -> Result<()> {
    region.check(&meta.shape)?;
    let expected = region.elements().saturating_mul(meta.dtype.size_bytes());
    if out.len() != expected {
        return Err(Error::invalid(format!(
            "the region of {meta} has {expected} bytes, the buffer has {}",
            out.len()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::arr2;

    #[test]
    fn a_tree_gives_regions_of_its_leaves() {
        let array = arr2(&[[1u8, 2, 3], [4, 5, 6], [7, 8, 9]]);
        let tree = Tree::map([("w", Tree::Leaf(Leaf::from(&array)))]);
        let path: KeyPath = "w".parse().unwrap();
        let mut out = [0; 4];
        tree.read_region(&path, &Region::new([1..3, 0..2]), &mut out).unwrap();
        assert_eq!(out, [4, 5, 7, 8]);
        let short = tree.read_region(&path, &Region::new([1..3, 0..3]), &mut out).unwrap_err();
        assert!(short.to_string().contains("6 bytes, the buffer has 4"), "{short}");
        assert_eq!(tree.borrow_all().unwrap()[0].contents(), tree.borrow(&path));
        let absent = tree.read_region(&"v".parse().unwrap(), &Region::new([]), &mut []);
        assert_eq!(absent.unwrap_err().kind(), ErrorKind::NotFound);
    }
}
