//! Guards the house: layers, one home for each external crate, sizes of files.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules with their layers: a file uses only its own module and lower layers. The words of
/// layer 0 may use each other.
const LAYERS: &[(&str, u8)] = &[
    ("limits", 0),
    ("error", 0),
    ("path", 0),
    ("dtype", 0),
    ("shape", 0),
    ("tree", 1),
    ("codec", 2),
    ("record", 3),
    ("db", 4),
    ("store", 5),
    ("manager", 6),
];

/// External crates and the only places that may name them.
const HOMES: &[(&str, &[&str])] = &[
    ("redb", &["db"]),
    ("rkyv", &["record"]),
    ("lz4_flex", &["codec"]),
    ("crc32fast", &["codec"]),
    ("twox_hash", &["codec"]),
    ("half", &["dtype"]),
    ("float8", &["dtype"]),
    ("num_complex", &["dtype"]),
    ("bytemuck", &["dtype"]),
    ("ndarray", &["tree"]),
    ("parking_lot", &["store", "manager"]),
    ("clap", &["bin"]),
    ("comfy_table", &["bin"]),
    ("indicatif", &["bin"]),
    ("jiff", &["bin"]),
    ("tempfile", &["db"]),
];

/// Lines of the longest source file. It may only go down.
const LONGEST_FILE_LINES: usize = 380;

struct Source {
    path: PathBuf,
    module: String,
    /// The lines that are neither comments nor tests.
    code: Vec<String>,
    lines: usize,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(source(&root, path));
            }
        }
    }
    assert!(sources.len() > 30, "the source files were found");
    sources
}

fn source(root: &Path, path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).unwrap();
    let first = path.strip_prefix(root).unwrap().components().next().unwrap();
    let module = Path::new(first.as_os_str()).with_extension("").display().to_string();
    let is_test_file = path.ends_with("tests.rs");
    let code = text
        .lines()
        .take_while(|line| !line.starts_with("#[cfg(test)]") && !is_test_file)
        .filter(|line| !line.trim_start().starts_with("//"))
        .map(ToOwned::to_owned)
        .collect();
    let lines = text.lines().count();
    Source { path, module, code, lines }
}

fn layer(module: &str) -> Option<u8> {
    LAYERS.iter().find(|row| row.0 == module).map(|row| row.1)
}

/// The words that follow `before` in a line and end before another character than a letter, a
/// digit or `_`.
fn words_after<'l>(line: &'l str, before: &'l str) -> impl Iterator<Item = &'l str> {
    line.split(before).skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

#[test]
fn files_use_only_their_own_layer_and_lower_ones() {
    let mut checked = 0;
    for source in sources() {
        let Some(own) = layer(&source.module) else {
            continue;
        };
        for line in &source.code {
            for used in words_after(line, "crate::") {
                let Some(other) = layer(used) else { continue };
                checked += 1;
                assert!(
                    other < own || (other == own && (used == source.module || own == 0)),
                    "{}: layer {own} uses {used} of layer {other}: {line}",
                    source.path.display()
                );
            }
        }
    }
    assert!(checked > 100, "imports were found");
}

#[test]
fn the_command_line_uses_the_public_api_alone() {
    let files: Vec<_> = sources().into_iter().filter(|source| source.module == "bin").collect();
    assert!(!files.is_empty());
    for source in files {
        let inside = source.code.iter().find(|line| {
            words_after(line, "milepost::").any(|word| layer(word).is_some_and(|layer| layer > 0))
        });
        assert_eq!(inside, None, "{}", source.path.display());
    }
}

#[test]
fn every_external_crate_has_one_home() {
    let mut seen = vec![false; HOMES.len()];
    for source in sources() {
        for (index, (name, homes)) in HOMES.iter().enumerate() {
            let inside = |line: &&String| {
                let path = format!("{name}::");
                line.match_indices(&path).any(|(at, _)| {
                    let before = line[..at].chars().next_back();
                    !before.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
                })
            };
            if let Some(line) = source.code.iter().find(inside) {
                seen[index] = true;
                assert!(
                    homes.contains(&source.module.as_str()),
                    "{} uses {name}, which only {homes:?} may: {line}",
                    source.path.display()
                );
            }
        }
    }
    for (seen, (name, _)) in seen.iter().zip(HOMES) {
        assert!(seen, "{name} is not used any more: take it out of the table");
    }
}

#[test]
fn files_stay_short_and_say_what_they_are() {
    for source in sources() {
        let (path, lines) = (source.path.display(), source.lines);
        assert!(lines <= LONGEST_FILE_LINES, "{path} has {lines} lines: split it by meaning");
        let text = fs::read_to_string(&source.path).unwrap();
        let says = text.starts_with("//!") || source.path.ends_with("tests.rs");
        assert!(says, "{path} does not begin with what it is");
    }
}

#[test]
fn the_library_forbids_unsafe_code_and_big_endian_targets() {
    let lib = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs")).unwrap();
    assert!(lib.contains("#![forbid(unsafe_code)]"));
    assert!(lib.contains("target_endian = \"big\""));
}
