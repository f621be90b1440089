//! Key paths as database keys: bytes in the order of the paths.
//!
//! Each key is a tag and its contents: `01` and an `i64` in big-endian with the sign bit flipped;
//! `02` and a `u64` in big-endian; `03` and the UTF-8 of a name, in which a zero byte is written
//! as `00 FF`, ended by `00`. So:
//!
//! * the encoding of a path is a prefix of the encodings of its descendants;
//! * order is kept: tags and integers compare as they should, and where one name ends, its `00`
//!   is followed by nothing or a tag (at most `03`), which is below both any other byte of a
//!   longer name and its `00 FF`.

use super::{Key, KeyPath};
use crate::error::{Error, Result};

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
    /// `Damaged` if no path does.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
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
    let (value, after) = bytes
        .split_first_chunk()
        .ok_or_else(|| damaged("an integer key is cut short"))?;
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
    Error::damaged(format!(
        "a stored key path makes no sense: {}",
        message.into()
    ))
}

#[cfg(test)]
mod tests {
    use super::super::tests::any_path;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_path_comes_back(path in any_path()) {
            let bytes = path.encode();
            prop_assert_eq!(bytes.len(), path.encoded_len());
            prop_assert_eq!(KeyPath::decode(&bytes).unwrap(), path);
        }

        #[test]
        fn bytes_order_as_paths_do(a in any_path(), b in any_path()) {
            prop_assert_eq!(a.encode().cmp(&b.encode()), a.cmp(&b));
            prop_assert_eq!(b.encode().starts_with(&a.encode()), b.starts_with(&a));
        }

        #[test]
        fn accepted_bytes_are_the_only_ones_of_their_path(
            bytes in prop::collection::vec(prop_oneof![0u8..5, Just(0xff), any::<u8>()], 0..24),
        ) {
            if let Ok(path) = KeyPath::decode(&bytes) {
                prop_assert_eq!(path.encode(), bytes);
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
}
