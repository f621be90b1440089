//! Key paths as database keys: bytes in the order of the paths.
//!
//! Each key is a tag and its contents: `01` and an `i64` in big-endian with the sign bit flipped;
//! `02` and a `u64` in big-endian; `03` and the UTF-8 of a name, in which a zero byte is written
//! as `00 FF`, ended by `00`. So:
//!
//! * order is kept. Tags order as the kinds of keys do, and the integers behind them as numbers.
//!   Two names that differ within their length differ first in a byte of their UTF-8, whose order
//!   is that of strings; a zero byte in one of them begins `00 FF` and so is still the lowest
//!   byte there is. Where one name ends and the other goes on, the `00` that ends the shorter
//!   meets either a byte of the longer, which is at least `01`, or its `00 FF`; behind the ending
//!   `00` is nothing or a tag, at most `03`, which is below `FF`;
//! * the encoding of a path is a proper prefix of those of its descendants, where a tag follows
//!   it. It may also be a prefix of that of a path which is no descendant: `a` is `03 61 00`,
//!   and the name `a` with a zero byte behind it `03 61 00 FF 00`. So a subtree is the range from
//!   its path, included, to its path and a byte `04`, excluded; comparing prefixes is not enough.

use super::{Key, KeyPath};
use crate::error::{Error, Result};
use crate::limits::MAX_PATH_BYTES;

const INT: u8 = 1;
const INDEX: u8 = 2;
const NAME: u8 = 3;
const SIGN: u64 = 1 << 63;

impl KeyPath {
    /// The path as bytes that order as the paths do.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.encoded_len());
        for key in &self.0 {
            match key {
                Key::Int(key) => {
                    out.push(INT);
                    out.extend_from_slice(&(key.cast_unsigned() ^ SIGN).to_be_bytes());
                }
                Key::Index(index) => {
                    out.push(INDEX);
                    let index = u64::try_from(*index).unwrap_or(u64::MAX);
                    out.extend_from_slice(&index.to_be_bytes());
                }
                Key::Name(name) => {
                    out.push(NAME);
                    for byte in name.bytes() {
                        out.push(byte);
                        if byte == 0 {
                            out.push(0xff);
                        }
                    }
                    out.push(0);
                }
            }
        }
        out
    }

    /// The length of [`KeyPath::encode`] in bytes.
    pub(super) fn encoded_len(&self) -> usize {
        let key_len = |key: &Key| match key {
            Key::Int(_) | Key::Index(_) => 9,
            Key::Name(name) => 2 + name.len() + name.bytes().filter(|byte| *byte == 0).count(),
        };
        self.0.iter().map(key_len).sum()
    }

    /// The path that encodes to `bytes`.
    ///
    /// # Errors
    /// `Damaged` if no path within the limits does.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        // First of all, so that a false length costs no memory.
        if bytes.len() > MAX_PATH_BYTES {
            return Err(damaged(format!(
                "it has {} bytes, at most {MAX_PATH_BYTES} can be stored",
                bytes.len()
            )));
        }
        let mut path = Self::root();
        let mut rest = bytes;
        while let Some((tag, after)) = rest.split_first() {
            let (key, after) = match *tag {
                INT => {
                    let (value, after) = integer(after)?;
                    (Key::Int((value ^ SIGN).cast_signed()), after)
                }
                INDEX => {
                    let (value, after) = integer(after)?;
                    let index = usize::try_from(value)
                        .map_err(|_| damaged(format!("the index {value} is too large")))?;
                    (Key::Index(index), after)
                }
                NAME => name(after)?,
                tag => return Err(damaged(format!("{tag:#04x} is no kind of key"))),
            };
            path.push(key);
            rest = after;
        }
        path.check().map_err(|error| damaged(error.to_string()))?;
        Ok(path)
    }
}

fn integer(bytes: &[u8]) -> Result<(u64, &[u8])> {
    let (value, after) =
        bytes.split_first_chunk().ok_or_else(|| damaged("an integer key is cut short"))?;
    Ok((u64::from_be_bytes(*value), after))
}

fn name(bytes: &[u8]) -> Result<(Key, &[u8])> {
    let mut name = Vec::new();
    let mut rest = bytes;
    loop {
        rest = match rest {
            [0, 0xff, after @ ..] => {
                name.push(0);
                after
            }
            [0, after @ ..] => {
                let name = String::from_utf8(name).map_err(|_| damaged("a name is not UTF-8"))?;
                return Ok((Key::Name(name), after));
            }
            [byte, after @ ..] => {
                name.push(*byte);
                after
            }
            [] => return Err(damaged("a name is cut short")),
        }
    }
}

fn damaged(message: impl Into<String>) -> Error {
    Error::damaged(format!("a stored key path makes no sense: {}", message.into()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::any_path;
    use super::*;
    use crate::error::ErrorKind;
    use crate::limits::{MAX_KEY_NAME_BYTES, MAX_TREE_DEPTH};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_path_comes_back(path in any_path()) {
            let bytes = path.encode();
            prop_assert_eq!(bytes.len(), path.encoded_len());
            prop_assert_eq!(KeyPath::decode(&bytes).unwrap(), path);
        }

        #[test]
        fn bytes_order_as_paths_do(
            parent in any_path(), a in any_path(), b in any_path(),
            start in "[a\0]{0,2}", end in "[\0\u{1}a\u{ff}]{0,2}",
        ) {
            let below = |top: &KeyPath, path: &KeyPath| -> KeyPath {
                top.keys().iter().chain(path.keys()).cloned().collect()
            };
            // Strangers, relatives, and names of which one begins with the other.
            let (short, long) = (parent.child(start.clone()), parent.child(start + &end));
            for (a, b) in [
                (a.clone(), b.clone()),
                (below(&parent, &a), below(&parent, &b)),
                (below(&short, &a), below(&long, &b)),
            ] {
                let (left, right) = (a.encode(), b.encode());
                prop_assert_eq!(left.cmp(&right), a.cmp(&b));
                let subtree = left.clone()..[&left[..], &[NAME + 1]].concat();
                prop_assert_eq!(subtree.contains(&right), b.starts_with(&a));
                if b.starts_with(&a) {
                    prop_assert!(right.starts_with(&left));
                }
            }
            let child = below(&parent, &a).encode();
            prop_assert!(child.starts_with(&parent.encode()));
            prop_assert_eq!(child.len() > parent.encode().len(), !a.is_empty());
        }

        #[test]
        fn accepted_bytes_are_the_only_ones_of_their_path(
            bytes in prop::collection::vec(prop_oneof![0u8..5, Just(0xff), any::<u8>()], 0..24),
        ) {
            match KeyPath::decode(&bytes) {
                Ok(path) => prop_assert_eq!(path.encode(), bytes),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Damaged),
            }
        }
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let path = KeyPath::from([Key::from("a\0"), Key::from(-1), Key::Index(258)]);
        let expected = [
            &[3, b'a', 0, 0xff, 0][..],
            &[1, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[2, 0, 0, 0, 0, 0, 0, 1, 2],
        ];
        assert_eq!(path.encode(), expected.concat());
    }
    /// The bytes of `a` begin those of the name `a\0` too, which is its sibling: only the range
    /// tells it from a child.
    #[test]
    fn a_subtree_is_a_range_and_not_a_prefix() {
        let top = KeyPath::from([Key::from("a")]);
        let sibling = KeyPath::from([Key::from("a\0")]).encode();
        assert!(sibling.starts_with(&top.encode()));
        let subtree = top.encode()..[&top.encode()[..], &[NAME + 1]].concat();
        assert!(!subtree.contains(&sibling));
        assert!(subtree.contains(&top.child("\u{10ffff}").encode()));
    }

    #[test]
    fn damage_is_told_by_what_is_wrong() {
        let long_name = [&[NAME][..], &vec![b'x'; MAX_KEY_NAME_BYTES + 1], &[0]].concat();
        let deep = [INT, 0, 0, 0, 0, 0, 0, 0, 0].repeat(MAX_TREE_DEPTH + 1);
        for (bytes, says) in [
            (vec![0], "0x00 is no kind of key"),
            (vec![4], "0x04 is no kind of key"),
            (vec![INT, 0x80, 0, 0, 0, 0, 0, 0], "an integer key is cut short"),
            (vec![INDEX], "an integer key is cut short"),
            (vec![NAME, b'a'], "a name is cut short"),
            (vec![NAME, 0, 0xff], "a name is cut short"),
            (vec![NAME, 0xc3, 0], "a name is not UTF-8"),
            (long_name, "4097 bytes, at most 4096"),
            (deep, "129 keys, at most 128"),
            (vec![NAME; MAX_PATH_BYTES + 1], "32769 bytes, at most 32768"),
        ] {
            let error = KeyPath::decode(&bytes).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Damaged);
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
