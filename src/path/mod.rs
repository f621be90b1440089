//! Typed key paths: where a node is in a tree.
//!
//! A path has three faces that are exact inverses of each other: its keys, the text that people
//! read and type ([`display`](self), [`parse`](self)), and the bytes that order database rows
//! ([`encode`](self)). `1`, `"1"` and `[1]` are three keys; `"a.b"`, `"a/b"` and `a/b` three
//! paths.

mod display;
mod encode;
mod parse;
mod rules;

pub(crate) use rules::PathRules;

use crate::error::{Error, Result};
use crate::limits::{MAX_KEY_NAME_BYTES, MAX_PATH_BYTES, MAX_TREE_DEPTH};

/// One step down a tree.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// An integer key of a map.
    Int(i64),
    /// An index of a list or tuple.
    Index(usize),
    /// A name: a string key of a map, or a field of a struct.
    Name(String),
}

impl From<&str> for Key {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<String> for Key {
    fn from(name: String) -> Self {
        Self::Name(name)
    }
}

macro_rules! integer_keys {
    ($($integer:ty),*) => {$(
        impl From<$integer> for Key {
            fn from(key: $integer) -> Self {
                Self::Int(i64::from(key))
            }
        }
    )*};
}

integer_keys!(i8, i16, i32, i64, u8, u16, u32);

/// The keys that lead from the root of a tree to a node.
///
/// ```
/// use milepost::{Key, KeyPath};
///
/// let path = KeyPath::from([Key::from("layers"), Key::Index(0), Key::from("w")]);
/// assert_eq!(path.to_string(), "layers[0]/w");
/// assert_eq!("layers[0]/w".parse::<KeyPath>().unwrap(), path);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct KeyPath(Vec<Key>);

impl KeyPath {
    /// The path of the root: no keys.
    pub fn root() -> Self {
        Self::default()
    }

    /// The keys from the root down.
    pub fn keys(&self) -> &[Key] {
        &self.0
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no keys: the same as [`KeyPath::is_root`].
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this is the path of the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// The path of the child `key` of this node.
    #[must_use]
    pub fn child(&self, key: impl Into<Key>) -> Self {
        let mut child = self.clone();
        child.push(key);
        child
    }

    /// Goes down to the child `key`.
    pub fn push(&mut self, key: impl Into<Key>) {
        self.0.push(key.into());
    }

    /// Goes up to the parent and returns the key that led here; `None` at the root.
    pub fn pop(&mut self) -> Option<Key> {
        self.0.pop()
    }

    /// The path of the parent of this node; `None` at the root.
    pub fn parent(&self) -> Option<Self> {
        let (_, parent) = self.0.split_last()?;
        Some(Self(parent.to_vec()))
    }

    /// Whether this node is `ancestor` or lies below it.
    pub fn starts_with(&self, ancestor: &Self) -> bool {
        self.0.starts_with(&ancestor.0)
    }

    /// Checks that the path can be stored.
    ///
    /// # Errors
    /// `InvalidInput` with the limit, the size found and their unit.
    pub(crate) fn check(&self) -> Result<()> {
        if self.len() > MAX_TREE_DEPTH {
            return Err(Error::invalid(format!(
                "the path has {} keys, at most {MAX_TREE_DEPTH} can be stored",
                self.len()
            )));
        }
        for key in &self.0 {
            if let Key::Name(name) = key
                && name.len() > MAX_KEY_NAME_BYTES
            {
                return Err(Error::invalid(format!(
                    "a name has {} bytes, at most {MAX_KEY_NAME_BYTES} can be stored",
                    name.len()
                )));
            }
        }
        let encoded_bytes = self.encoded_len();
        if encoded_bytes > MAX_PATH_BYTES {
            return Err(Error::invalid(format!(
                "the path has {encoded_bytes} encoded bytes, at most {MAX_PATH_BYTES} can be stored"
            )));
        }
        Ok(())
    }
}

impl<const N: usize> From<[Key; N]> for KeyPath {
    fn from(keys: [Key; N]) -> Self {
        Self(keys.into())
    }
}

impl FromIterator<Key> for KeyPath {
    fn from_iter<I: IntoIterator<Item = Key>>(keys: I) -> Self {
        Self(keys.into_iter().collect())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;

    pub(crate) fn any_key() -> impl Strategy<Value = Key> {
        let name = prop_oneof![
            "[a-c./\\[\\]\"\0\u{1}]{0,4}",
            any::<String>(),
            // `any::<String>()` has no control characters.
            prop::collection::vec(any::<char>(), 0..4).prop_map(String::from_iter),
            "[\\x00-\\x1f\\x7f-\\xa0\u{200b}-\u{206f}]{1,3}",
            "[a-z_][a-z0-9_.-]{0,8}",
        ];
        prop_oneof![
            name.prop_map(Key::Name),
            any::<i64>().prop_map(Key::Int),
            (-3i64..3).prop_map(Key::Int),
            any::<usize>().prop_map(Key::Index),
            (0usize..3).prop_map(Key::Index),
        ]
    }

    pub(crate) fn any_path() -> impl Strategy<Value = KeyPath> {
        prop::collection::vec(any_key(), 0..5).prop_map(KeyPath)
    }

    #[test]
    fn keys_order_by_kind_and_paths_by_key() {
        let key = |key: Key| KeyPath::from([key]);
        let ascending = [
            KeyPath::root(),
            key(Key::Int(i64::MIN)),
            key(Key::Int(-1)),
            key(Key::Int(2)),
            key(Key::Int(2)).child("z"),
            key(Key::Int(10)),
            key(Key::Index(0)),
            key(Key::Index(usize::MAX)),
            key(Key::from("")),
            key(Key::from("a")),
            key(Key::from("a")).child(Key::Int(0)),
            key(Key::from("a\0")),
            key(Key::from("a\u{1}")),
            key(Key::from("aa")),
            key(Key::from("\u{ffff}")),
            key(Key::from("\u{10000}")),
        ];
        assert!(ascending.is_sorted_by(|a, b| a < b));
        assert!(ascending.is_sorted_by(|a, b| a.encode() < b.encode()));
    }

    #[test]
    fn parents_and_children_are_each_other_s() {
        let layer = KeyPath::root().child("layers").child(Key::Index(0));
        let weights = layer.child("w");
        assert_eq!(weights.parent().as_ref(), Some(&layer));
        assert!(weights.starts_with(&layer) && !layer.starts_with(&weights));
        assert!(!KeyPath::root().child("layers2").starts_with(&KeyPath::root().child("layers")));
        assert_eq!(KeyPath::root().parent(), None);
        let mut path = weights.clone();
        assert_eq!(path.pop(), Some(Key::from("w")));
        assert_eq!(path, layer);
        assert!(KeyPath::root().is_root() && !layer.is_root());
        assert_eq!(KeyPath::root().pop(), None);
    }

    #[test]
    fn limits_hold_at_their_edges() {
        let name = |length| KeyPath::from([Key::Name("x".repeat(length))]);
        name(MAX_KEY_NAME_BYTES).check().unwrap();
        let error = name(MAX_KEY_NAME_BYTES + 1).check().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("4097 bytes, at most 4096"), "{error}");
        let deep = |depth| (0..depth).map(Key::Index).collect::<KeyPath>();
        deep(MAX_TREE_DEPTH).check().unwrap();
        deep(MAX_TREE_DEPTH + 1).check().unwrap_err();
        let long: KeyPath = (0..9).map(|_| Key::Name("\0".repeat(4000))).collect();
        assert!(long.check().unwrap_err().to_string().contains("encoded bytes"));
    }
}
