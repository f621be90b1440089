//! Key paths as text that people read: `params/layers[0]/w`.
//!
//! Keys are separated by `/`; an index stands in brackets right after what it belongs to. A name
//! that begins with a letter or `_` and goes on with letters, digits, `_`, `-` and `.` (all
//! ASCII) stands as it is, every other one as a JSON string; an integer key stands as digits. The
//! root is `/`. Different paths have different texts, and a text never holds a character that
//! moves the cursor of a terminal, hides, or changes the direction of what follows it.

use std::fmt::{self, Write};

use super::{Key, KeyPath};

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
                Key::Name(name) => quote(name, &mut text)?,
            }
        }
        f.pad(if self.0.is_empty() { "/" } else { &text })
    }
}

/// Whether `name` stands without quotes.
pub(super) fn is_bare(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && name.bytes().all(is_bare_byte)
}

/// Whether `byte` may stand in a name without quotes, after the first.
pub(super) fn is_bare_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-.".contains(&byte)
}

/// Appends `name` as a JSON string, in which invisible characters are escaped too.
fn quote(name: &str, text: &mut String) -> fmt::Result {
    for c in serde_json::Value::from(name).to_string().chars() {
        if is_invisible(c) {
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(text, "\\u{unit:04x}")?;
            }
        } else {
            text.push(c);
        }
    }
    Ok(())
}

/// Control characters, and the format characters that hide, break lines or turn the direction of
/// text. A fixed list: the text of a path must not change with the version of Unicode.
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

#[cfg(test)]
mod tests {
    use super::super::tests::any_path;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn paths_read_as_documented() {
        let name = |name: &str| KeyPath::from([Key::from(name)]);
        for (path, text) in [
            (KeyPath::root(), "/"),
            (name("params").child(Key::Index(0)).child("w"), "params[0]/w"),
            (KeyPath::from([Key::Index(0), Key::from("w")]), "[0]/w"),
            (KeyPath::from([Key::Int(1), Key::from("x")]), "1/x"),
            (KeyPath::from([Key::Int(-3)]), "-3"),
            (name("a.b-C_9"), "a.b-C_9"),
            (name("_"), "_"),
            (name(""), r#""""#),
            (name("1"), r#""1""#),
            (name(".a"), r#"".a""#),
            (name("a/b"), r#""a/b""#),
            (name("a\"\\\n\0"), r#""a\"\\\n\u0000""#),
            (name("größe"), r#""größe""#),
        ] {
            assert_eq!(path.to_string(), text);
        }
    }

    #[test]
    fn names_cannot_play_tricks_on_a_terminal() {
        for (name, text) in [
            ("\u{1b}[2J", r#""\u001b[2J""#),
            ("\u{9b}2J", r#""\u009b2J""#),
            ("a\u{7f}", r#""a\u007f""#),
            ("\u{202e}stpecca", r#""\u202estpecca""#),
            ("w\u{200b}", r#""w\u200b""#),
            ("a\u{2028}b", r#""a\u2028b""#),
            ("\u{e0041}", r#""\udb40\udc41""#),
        ] {
            let path = KeyPath::from([Key::from(name)]);
            assert_eq!(path.to_string(), text);
            assert_eq!(text.parse::<KeyPath>().unwrap(), path);
        }
    }

    proptest! {
        #[test]
        fn a_text_is_one_visible_line(path in any_path()) {
            let text = path.to_string();
            prop_assert!(!text.is_empty());
            prop_assert!(!text.chars().any(char::is_control), "{:?}", text);
        }
    }
}
