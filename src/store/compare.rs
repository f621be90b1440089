//! What differs between a saved step and the target of a restore.

use std::fmt::Write;

use crate::error::{Error, ErrorKind};
use crate::limits::MAX_DIFFERENCES_SHOWN;
use crate::path::{Key, KeyPath};
use crate::tree::{Expected, LeafMeta, LeafMut, Tree};

/// A leaf of a target.
pub(super) trait Wanted {
    fn expected(&self) -> Expected;
}

impl Wanted for LeafMut<'_> {
    fn expected(&self) -> Expected {
        self.expected()
    }
}

/// Its sharding makes no difference.
impl Wanted for LeafMeta {
    fn expected(&self) -> Expected {
        Expected::like(self)
    }
}

/// All differences, sorted by what they are.
#[derive(Default)]
pub(super) struct Differences {
    /// In the target but not in the step.
    missing: Vec<String>,
    /// In the step but not in the target.
    unexpected: Vec<String>,
    /// In both, of different kinds, element types or shapes.
    different: Vec<String>,
}

/// Compares a saved structure with what it is to be restored as.
pub(super) fn differences(saved: &Tree<LeafMeta>, target: &Tree<impl Wanted>) -> Differences {
    let mut differences = Differences::default();
    differences.compare(&mut KeyPath::root(), saved, target);
    differences
}

impl Differences {
    pub(super) fn is_empty(&self) -> bool {
        self.missing.is_empty() && self.unexpected.is_empty() && self.different.is_empty()
    }

    /// One error that says them all, or how many and the first ones.
    pub(super) fn into_error(self) -> Error {
        let groups = [
            ("not in the saved step", self.missing),
            ("not in the target", self.unexpected),
            ("of another kind, element type or shape", self.different),
        ];
        let count: usize = groups.iter().map(|(_, group)| group.len()).sum();
        let mut message = format!("the saved step and the target differ in {count} places:");
        let mut room = MAX_DIFFERENCES_SHOWN;
        for (what, group) in groups.iter().filter(|(_, group)| !group.is_empty()) {
            // Writing to a string can't fail.
            let _ = write!(message, "\n  {} {what}:", group.len());
            for line in group.iter().take(room) {
                let _ = write!(message, "\n    {line}");
            }
            if group.len() > room {
                let _ = write!(message, "\n    and {} more", group.len() - room);
            }
            room -= room.min(group.len());
        }
        Error::new(ErrorKind::Mismatch, message)
            .advise("nothing was restored; restore without a target to get what was saved")
    }

    fn compare(&mut self, path: &mut KeyPath, saved: &Tree<LeafMeta>, target: &Tree<impl Wanted>) {
        match (saved, target) {
            (Tree::Leaf(meta), Tree::Leaf(place)) => {
                let expected = place.expected();
                if !expected.accepts(meta) {
                    self.different.push(format!("{path}: expected {expected}, saved is {meta}"));
                }
            }
            _ if saved.kind() != target.kind() => {
                let (expected, found) = (target.kind(), saved.kind());
                self.different.push(format!("{path}: expected a {expected}, saved is a {found}"));
            }
            _ => self.compare_children(path, &saved.children(), &target.children()),
        }
    }

    /// Compares children of the same kind of node. The order of fields makes no difference.
    fn compare_children(
        &mut self,
        path: &mut KeyPath,
        saved: &[(Key, &Tree<LeafMeta>)],
        target: &[(Key, &Tree<impl Wanted>)],
    ) {
        let saved_by_key: std::collections::BTreeMap<_, _> =
            saved.iter().map(|(key, child)| (key, *child)).collect();
        let target_keys: std::collections::BTreeSet<_> =
            target.iter().map(|(key, _)| key).collect();
        for (key, place) in target {
            path.push(key.clone());
            match saved_by_key.get(key) {
                Some(child) => self.compare(path, child, place),
                None => self.missing.push(path.to_string()),
            }
            path.pop();
        }
        for (key, _) in saved.iter().filter(|(key, _)| !target_keys.contains(key)) {
            self.unexpected.push(path.child(key.clone()).to_string());
        }
    }
}
