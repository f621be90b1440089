//! Key paths from text: the exact inverse of how they are displayed.
//!
//! Every path has one text, and only that is parsed: what is accepted is displayed as it was
//! written, so a text can stand for its path in a script, a log or a table.

use std::str::FromStr;

use super::display::{is_bare, is_bare_byte};
use super::{Key, KeyPath};
use crate::error::{Error, Result};

impl FromStr for KeyPath {
    type Err = Error;

    /// Parses a path as it is displayed.
    ///
    /// # Errors
    /// `InvalidInput` for any other text: with the byte position, what was expected there and
    /// what was found, or with the right way to write the path.
    fn from_str(text: &str) -> Result<Self> {
        let path = parse(text)?;
        let canonical = path.to_string();
        if canonical != text {
            return Err(Error::invalid(format!("{text:?} is not how a key path is written"))
                .advise(format!("write {canonical}")));
        }
        Ok(path)
    }
}

/// Parses a path, also some that are written in another way than they are displayed.
fn parse(text: &str) -> Result<KeyPath> {
    let mut path = KeyPath::root();
    if text == "/" {
        return Ok(path);
    }
    let mut parser = Parser { text, at: 0 };
    loop {
        path.push(parser.key()?);
        match parser.peek() {
            None => return Ok(path),
            Some(b'/') => parser.at += 1,
            Some(b'[') => {}
            Some(_) => return Err(parser.fault("/, [ or the end")),
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    /// Where the next key or separator begins, in bytes.
    at: usize,
}

impl<'t> Parser<'t> {
    fn key(&mut self) -> Result<Key> {
        match self.peek() {
            Some(b'[') => self.index(),
            Some(b'"') => self.quoted(),
            _ => self.word(),
        }
    }

    fn index(&mut self) -> Result<Key> {
        self.at += 1;
        let digits = self.run(|byte| byte.is_ascii_digit());
        let index = digits
            .parse()
            .map_err(|_| self.fault_at(digits, &format!("an index from 0 to {}", usize::MAX)))?;
        self.at += digits.len();
        if self.peek() != Some(b']') {
            return Err(self.fault("]"));
        }
        self.at += 1;
        Ok(Key::Index(index))
    }

    fn quoted(&mut self) -> Result<Key> {
        let mut strings = serde_json::Deserializer::from_str(self.rest()).into_iter::<String>();
        match strings.next() {
            Some(Ok(name)) => {
                self.at += strings.byte_offset();
                Ok(Key::Name(name))
            }
            Some(Err(error)) if !error.is_eof() => Err(self.fault_at(self.rest(), "a JSON string")),
            _ => {
                self.at = self.text.len();
                Err(self.fault("a closing \""))
            }
        }
    }

    fn word(&mut self) -> Result<Key> {
        let word = self.run(is_bare_byte);
        let key = match word.parse() {
            Ok(integer) => Key::Int(integer),
            Err(_) if is_bare(word) => Key::from(word),
            Err(_) => {
                return Err(self.fault_at(word, "a name, an integer of 64 bits or an index"));
            }
        };
        self.at += word.len();
        Ok(key)
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<u8> {
        self.rest().bytes().next()
    }

    /// The longest part from here on whose bytes are all `wanted`, which are ASCII.
    fn run(&self, wanted: impl Fn(u8) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.bytes().position(|byte| !wanted(byte));
        rest.get(..end.unwrap_or(rest.len())).unwrap_or_default()
    }

    fn fault(&self, expected: &str) -> Error {
        self.fault_at("", expected)
    }

    /// The error that `found`, or if that is empty the next character, is not what was expected.
    fn fault_at(&self, found: &str, expected: &str) -> Error {
        let next = self.rest().chars().next();
        let found = match next {
            _ if !found.is_empty() => format!("{found:?}"),
            Some(c) => format!("{c:?}"),
            None => "the end".to_owned(),
        };
        let (text, at) = (self.text, self.at);
        Error::invalid(format!(
            "{text:?} is no key path: expected {expected} at byte {at}, found {found}"
        ))
        .advise(
            "write a path as in params/layers[0]/w, and a name with other characters than \
             letters, digits, _, - and . as a JSON string",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::any_path;
    use super::*;
    use crate::error::ErrorKind;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The text of a path with one character taken out, put in or replaced.
    fn almost_text() -> impl Strategy<Value = String> {
        let typo = prop_oneof![
            Just(String::new()),
            "[a1\\[\\]/\"\\\\.0u +-]",
            any::<char>().prop_map(String::from),
        ];
        (any_path(), any::<prop::sample::Index>(), 0usize..2, typo).prop_map(
            |(path, at, cut, typo)| {
                let mut text: Vec<char> = path.to_string().chars().collect();
                let at = at.index(text.len());
                text.splice(at..at + cut, typo.chars());
                text.into_iter().collect()
            },
        )
    }

    proptest! {
        #[test]
        fn the_text_comes_back(path in any_path()) {
            prop_assert_eq!(path.to_string().parse::<KeyPath>().unwrap(), path);
        }

        #[test]
        fn accepted_text_is_the_only_one_of_its_path(
            text in prop_oneof![
                "[a1\\[\\]/\"\\\\.0u-]{0,10}",
                prop::collection::vec(any::<char>(), 0..8).prop_map(String::from_iter),
                almost_text(),
            ],
        ) {
            match text.parse::<KeyPath>() {
                Ok(path) => prop_assert_eq!(path.to_string(), text),
                Err(error) => prop_assert_eq!(error.kind(), ErrorKind::InvalidInput),
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
            "\"/\"",
            "\"[1]\"",
            "\"x[0]\"",
            "x[0]",
        ];
        let paths: BTreeSet<KeyPath> = texts.iter().map(|text| text.parse().unwrap()).collect();
        assert_eq!(paths.len(), texts.len());
        assert_eq!("a.b".parse::<KeyPath>().unwrap().len(), 1);
    }

    #[test]
    fn other_spellings_are_refused_with_the_right_one() {
        for (text, right) in [
            ("01", "1"),
            ("-0", "0"),
            ("x/-01", "x/-1"),
            ("[01]", "[1]"),
            ("a/[0]", "a[0]"),
            ("\"a\"", "a"),
            ("\"\\u0031\"", "\"1\""),
            ("\"\\/\"", "\"/\""),
            ("\"\\u000A\"", "\"\\n\""),
            ("\"\\u001F\"", "\"\\u001f\""),
            ("\"\u{7f}\"", "\"\\u007f\""),
            ("\"\\u00f6\"", "\"ö\""),
        ] {
            let error = text.parse::<KeyPath>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().ends_with(&format!("; write {right}")), "{text}: {error}");
            right.parse::<KeyPath>().unwrap();
        }
    }

    #[test]
    fn a_fault_says_where_and_what_was_expected_and_found() {
        for (text, says) in [
            ("", "expected a name, an integer of 64 bits or an index at byte 0, found the end"),
            ("/a", "or an index at byte 0, found '/'"),
            ("//", "or an index at byte 0, found '/'"),
            ("a/", "or an index at byte 2, found the end"),
            ("a//b", "or an index at byte 2, found '/'"),
            ("+1", "or an index at byte 0, found '+'"),
            ("1x", "at byte 0, found \"1x\""),
            ("a/9223372036854775808", "at byte 2, found \"9223372036854775808\""),
            ("ö", "at byte 0, found 'ö'"),
            ("a b", "expected /, [ or the end at byte 1, found ' '"),
            ("[0]a", "expected /, [ or the end at byte 3, found 'a'"),
            ("\"ö\"x", "expected /, [ or the end at byte 4, found 'x'"),
            ("a]", "expected /, [ or the end at byte 1, found ']'"),
            ("[0", "expected ] at byte 2, found the end"),
            ("[0x]", "expected ] at byte 2, found 'x'"),
            ("[x]", "expected an index from 0 to 18446744073709551615 at byte 1, found 'x'"),
            ("[]", "at byte 1, found ']'"),
            ("[-1]", "at byte 1, found '-'"),
            ("[18446744073709551616]", "at byte 1, found \"18446744073709551616\""),
            ("a/\"b", "expected a closing \" at byte 4, found the end"),
            ("a/\"\\x\"", "expected a JSON string at byte 2, found \"\\\"\\\\x\\\"\""),
            ("\"\\ud800\"", "expected a JSON string at byte 0"),
            ("\"\n\"", "expected a JSON string at byte 0"),
        ] {
            let error = text.parse::<KeyPath>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(says), "{text}: {error}");
        }
    }
}
