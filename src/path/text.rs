//! Key paths as text: `params/layers[0]/w`.
//!
//! Keys are separated by `/`; an index stands in brackets right after what it belongs to. A name
//! that begins with a letter or `_` and goes on with letters, digits, `_`, `-` and `.` (all
//! ASCII) stands as it is, every other one as a JSON string; an integer key stands as digits. The
//! root is `/`. Every path has one text, and only that is parsed.

use std::fmt::{self, Write};
use std::str::FromStr;

use super::{Key, KeyPath};
use crate::error::{Error, Result};

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        for key in &self.0 {
            if !text.is_empty() && !matches!(key, Key::Index(_)) {
                text.push('/');
            }
            match key {
                Key::Int(key) => write!(text, "{key}")?,
                Key::Index(index) => write!(text, "[{index}]")?,
                Key::Name(name) if is_bare(name) => text.push_str(name),
                Key::Name(name) => text.push_str(&quote(name)),
            }
        }
        f.pad(if self.0.is_empty() { "/" } else { &text })
    }
}

impl FromStr for KeyPath {
    type Err = Error;

    /// Parses a path as it is displayed.
    ///
    /// # Errors
    /// `InvalidInput` for any other text, with what was expected and where.
    fn from_str(text: &str) -> Result<Self> {
        let path = parse(text)?;
        let canonical = path.to_string();
        if canonical != text {
            return Err(
                Error::invalid(format!("{text:?} is not how a key path is written"))
                    .advise(format!("write {canonical}")),
            );
        }
        Ok(path)
    }
}

fn is_bare(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
}

fn quote(name: &str) -> String {
    serde_json::Value::from(name).to_string()
}

fn parse(text: &str) -> Result<KeyPath> {
    let mut path = KeyPath::root();
    if text == "/" {
        return Ok(path);
    }
    let mut rest = text;
    loop {
        let position = text.len() - rest.len();
        let fault = |expected: &str| {
            Error::invalid(format!(
                "{text:?} is no key path: expected {expected} at byte {position}"
            ))
        };
        let (key, after) = match rest.as_bytes().first() {
            Some(b'[') => {
                let (digits, after) = rest
                    .get(1..)
                    .and_then(|rest| rest.split_once(']'))
                    .ok_or_else(|| fault("]"))?;
                (
                    Key::Index(digits.parse().map_err(|_| fault("an index in brackets"))?),
                    after,
                )
            }
            Some(b'"') => {
                let mut names = serde_json::Deserializer::from_str(rest).into_iter::<String>();
                let name = names
                    .next()
                    .and_then(Result::ok)
                    .ok_or_else(|| fault("a JSON string"))?;
                (
                    Key::Name(name),
                    rest.get(names.byte_offset()..).unwrap_or_default(),
                )
            }
            Some(_) => {
                let end = rest.find(['/', '[']).unwrap_or(rest.len());
                let (word, after) = rest.split_at(end);
                let key = match word.parse() {
                    Ok(integer) => Key::Int(integer),
                    Err(_) if is_bare(word) => Key::from(word),
                    Err(_) => return Err(fault("a name, an integer, an index or a quoted name")),
                };
                (key, after)
            }
            None => return Err(fault("a key")),
        };
        path.push(key);
        rest = match after.as_bytes().first() {
            None => return Ok(path),
            Some(b'/') => after.get(1..).unwrap_or_default(),
            Some(b'[') => after,
            Some(_) => return Err(fault("/ or [ after this key")),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::any_path;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_text_comes_back(path in any_path()) {
            prop_assert_eq!(path.to_string().parse::<KeyPath>().unwrap(), path);
        }

        #[test]
        fn accepted_text_is_the_only_one_of_its_path(text in "[a1\\[\\]/\"\\\\.0u-]{0,10}|.{0,8}") {
            if let Ok(path) = text.parse::<KeyPath>() {
                prop_assert_eq!(path.to_string(), text);
            }
        }
    }

    #[test]
    fn look_alikes_are_different_paths() {
        let texts = [
            "1",
            "\"1\"",
            "[1]",
            "a.b",
            "\"a/b\"",
            "a/b",
            "\"\"",
            "/",
            "-1",
            "\"-1\"",
            "x[0][1]/y",
        ];
        let paths: std::collections::BTreeSet<KeyPath> =
            texts.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(paths.len(), texts.len());
        assert_eq!("a.b".parse::<KeyPath>().unwrap().len(), 1);
    }

    #[test]
    fn other_spellings_are_refused_with_the_right_one() {
        for (text, says) in [
            ("01", "write 1"),
            ("+1", "write 1"),
            ("-0", "write 0"),
            ("[01]", "write [1]"),
            ("a/[0]", "write a[0]"),
            ("\"a\"", "write a"),
            ("\"\\u0031\"", "write \"1\""),
            ("", "expected a key at byte 0"),
            ("/a", "at byte 0"),
            ("a/", "expected a key at byte 2"),
            ("a//b", "at byte 2"),
            ("a b", "at byte 0"),
            ("[0", "expected ] at byte 0"),
            ("[x]", "index in brackets at byte 0"),
            ("\"a", "JSON string at byte 0"),
            ("[0]a", "/ or [ after"),
        ] {
            let error = text.parse::<KeyPath>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
