//! Words and numbers for people, and nothing that a terminal would obey.
//!
//! Names, paths and messages may come from a file that somebody else has made. They are shown with
//! control characters, and those that hide or turn what stands beside them, escaped.

use std::fmt::Write;

use serde_json::Value;

/// The digits of a metric in a table; JSON has all of them.
const SIGNIFICANT_DIGITS: usize = 6;

/// `text` as one line that is what it looks like.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        if is_invisible(c) {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}

/// `value` as JSON text that shows the same everywhere.
pub(crate) fn json(value: &Value) -> String {
    let mut shown = String::new();
    for c in format!("{value:#}\n").chars() {
        // In JSON text a line ends only between values.
        if c == '\n' || !is_invisible(c) {
            shown.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            // Writing to a string can't fail.
            let _ = write!(shown, "\\u{unit:04x}");
        }
    }
    shown
}

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

/// `1 step`, `2 steps`.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

/// A metric, rounded: `0.333333`, `1.5`, `1.23457e6`, `NaN`.
pub(crate) fn metric(value: f64) -> String {
    let scientific = format!("{value:.*e}", SIGNIFICANT_DIGITS - 1);
    let exponent = scientific.split_once('e').and_then(|(_, exponent)| exponent.parse().ok());
    // The shortest text of the rounded number has no more digits than it was rounded to.
    match (scientific.parse::<f64>(), exponent) {
        (Ok(rounded), Some(-4..6)) => rounded.to_string(),
        (Ok(rounded), Some::<i32>(_)) => format!("{rounded:e}"),
        _ => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_six_significant_digits() {
        for (value, text) in [
            (0.5, "0.5"),
            (1.0 / 3.0, "0.333333"),
            (-2.0 / 3.0, "-0.666667"),
            (0.0, "0"),
            (-0.0, "-0"),
            (100_000.0, "100000"),
            (123_456.4, "123456"),
            (999_999.6, "1e6"),
            (1_234_567.0, "1.23457e6"),
            (0.000_123_456_78, "0.000123457"),
            (0.000_012_345_678, "1.23457e-5"),
            (1e-300, "1e-300"),
            (f64::MAX, "1.79769e308"),
            (5e-324, "5e-324"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-inf"),
        ] {
            assert_eq!(metric(value), text);
        }
    }

    #[test]
    fn nothing_is_left_that_a_terminal_obeys() {
        let hostile = "a\u{1b}[2J\u{9b}2J\r\n\t\u{7f}\u{202e}b\u{200b}ö\\";
        let shown = r"a\u{1b}[2J\u{9b}2J\r\n\t\u{7f}\u{202e}b\u{200b}ö\";
        assert_eq!(visible(hostile), shown);
        let text = json(&serde_json::json!({ hostile: [hostile, "\u{e0041}"] }));
        assert!(!text.replace('\n', "").chars().any(is_invisible), "{text:?}");
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, serde_json::json!({ hostile: [hostile, "\u{e0041}"] }));
    }

    #[test]
    fn one_is_not_many() {
        let leaves = |number| count(number, "leaf", "leaves");
        assert_eq!([leaves(0), leaves(1), leaves(2)], ["0 leaves", "1 leaf", "2 leaves"]);
    }
}
