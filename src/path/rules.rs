//! What goes for which leaves.

use glob::{MatchOptions, Pattern};

use super::KeyPath;
use crate::error::{Error, Result};

/// A `/` separates; `*` does not cross it, `**` does.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// Something for all leaves, and something else for those whose paths match a pattern.
#[derive(Debug, Clone, Default)]
pub(crate) struct PathRules<T> {
    all: T,
    rules: Vec<(Pattern, T)>,
}

impl<T> PathRules<T> {
    pub(crate) fn new(all: T) -> Self {
        Self { all, rules: Vec::new() }
    }

    pub(crate) fn set_all(&mut self, all: T) {
        self.all = all;
    }

    pub(crate) fn add(&mut self, pattern: &str, rule: T) -> Result<()> {
        let parsed = Pattern::new(pattern).map_err(|error| {
            Error::invalid(format!("{pattern:?} is no pattern of key paths: {error}"))
                .advise(
                    "`*` stands for anything up to the next `/`, `**` for any keys, `[[]` for `[`",
                )
                .with_source(error)
        })?;
        self.rules.push((parsed, rule));
        Ok(())
    }

    /// What goes for the leaf at `path`: the last rule that matches.
    pub(crate) fn of(&self, path: &KeyPath) -> &T {
        if self.rules.is_empty() {
            return &self.all;
        }
        let path = path.to_string();
        let rule = self.rules.iter().rev().find(|rule| rule.0.matches_with(&path, MATCHING));
        rule.map_or(&self.all, |rule| &rule.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_matches_decides() {
        let mut rules = PathRules::new("all");
        rules.add("opt_state/**", "opt").unwrap();
        rules.add("opt_state/**/nu/*", "nu").unwrap();
        rules.add("layers*/w", "layers").unwrap();
        rules.add("layers[[]7]/w", "layer 7").unwrap();
        for (path, expected) in [
            ("params/w", "all"),
            ("opt_state/mu/w", "opt"),
            ("opt_state/adam/nu/w", "nu"),
            ("opt_state/adam/nu/deep/w", "opt"),
            ("layers[3]/w", "layers"),
            ("layers[7]/w", "layer 7"),
            ("layers[7]/b/w", "all"),
        ] {
            assert_eq!(*rules.of(&path.parse().unwrap()), expected, "{path}");
        }
        let error = rules.add("a[", "bad").unwrap_err();
        assert!(error.to_string().contains("\"a[\""), "{error}");
    }
}
