//! Which leaves are compressed how.

use glob::{MatchOptions, Pattern};

use crate::codec::Compression;
use crate::error::{Error, Result};
use crate::path::KeyPath;

/// A `/` separates; `*` does not cross it, `**` does.
const MATCHING: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: false,
};

/// A compression for all leaves, and others for those with certain paths.
#[derive(Debug, Clone, Default)]
pub(crate) struct CompressionRules {
    all: Compression,
    rules: Vec<(Pattern, Compression)>,
}

impl CompressionRules {
    pub(super) fn set_all(&mut self, compression: Compression) {
        self.all = compression;
    }

    pub(super) fn add(&mut self, pattern: &str, compression: Compression) -> Result<()> {
        let parsed = Pattern::new(pattern).map_err(|error| {
            Error::invalid(format!("{pattern:?} is no pattern of key paths: {error}"))
                .advise(
                    "`*` stands for anything up to the next `/`, `**` for any keys, `[[]` for `[`",
                )
                .with_source(error)
        })?;
        self.rules.push((parsed, compression));
        Ok(())
    }

    /// The compression of the leaf at `path`: that of the last rule that matches.
    pub(super) fn of(&self, path: &KeyPath) -> Compression {
        if self.rules.is_empty() {
            return self.all;
        }
        let path = path.to_string();
        let rule = self.rules.iter().rev().find(|rule| rule.0.matches_with(&path, MATCHING));
        rule.map_or(self.all, |rule| rule.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_rule_that_matches_decides() {
        let mut rules = CompressionRules::default();
        rules.set_all(Compression::Auto);
        rules.add("opt_state/**", Compression::None).unwrap();
        rules.add("opt_state/**/nu/*", Compression::BitPlanes).unwrap();
        rules.add("layers*/w", Compression::Lz4).unwrap();
        rules.add("layers[[]7]/w", Compression::BytePlanes).unwrap();
        for (path, expected) in [
            ("params/w", Compression::Auto),
            ("opt_state/mu/w", Compression::None),
            ("opt_state/adam/nu/w", Compression::BitPlanes),
            ("opt_state/adam/nu/deep/w", Compression::None),
            ("layers[3]/w", Compression::Lz4),
            ("layers[7]/w", Compression::BytePlanes),
            ("layers[7]/b/w", Compression::Auto),
        ] {
            assert_eq!(rules.of(&path.parse().unwrap()), expected, "{path}");
        }
        let error = rules.add("a[", Compression::Lz4).unwrap_err();
        assert!(error.to_string().contains("\"a[\""), "{error}");
    }
}
