//! Guards the house: layers, one home for each external crate, sizes of files and functions.

use std::fs;
use std::path::{Path, PathBuf};

/// The modules with their layers: a file uses only its own module and lower layers. The words of
/// layer 0 may use each other.
const LAYERS: &[(&str, u8)] = &[
    ("limits", 0),
    ("turn", 0),
    ("error", 0),
    ("path", 0),
    ("dtype", 0),
    ("shape", 0),
    ("sharding", 1),
    ("tree", 2),
    ("codec", 3),
    ("record", 4),
    ("db", 5),
    ("store", 6),
    ("manager", 7),
];

/// What is in no layer: the root, which names everything, the command line and the fuzz targets,
/// which use the public API and the decoders.
const OUTSIDE: &[&str] = &["lib", "bin", "fuzz_entry"];

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
    ("glob", &["path"]),
    ("parking_lot", &["turn", "db", "store", "manager"]),
    ("clap", &["bin"]),
    ("comfy_table", &["bin", "store"]),
    ("indicatif", &["bin"]),
    ("jiff", &["bin"]),
    ("tempfile", &["db"]),
];

/// Lines of the longest file, and of the longest function. They may only go down.
const LONGEST_FILE_LINES: usize = 400;
const LONGEST_FUNCTION_LINES: usize = 60;

struct Source {
    path: PathBuf,
    /// The folder or file below `src`.
    module: String,
    /// The names from there to the file: 1 for `db/mod.rs`, 2 for `db/read.rs`.
    depth: usize,
    /// The lines that are neither comments nor tests.
    code: Vec<String>,
}

fn sources() -> Vec<Source> {
    let root = root().join("src");
    let sources: Vec<_> = rust_files(&root).into_iter().map(|path| source(&root, path)).collect();
    assert!(sources.len() > 30, "the source files were found");
    sources
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust files below a folder.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files
}

fn source(root: &Path, path: PathBuf) -> Source {
    let text = fs::read_to_string(&path).unwrap();
    let below = path.strip_prefix(root).unwrap().with_extension("");
    let names: Vec<_> = below.iter().map(|name| name.to_str().unwrap()).collect();
    let module = names[0].to_owned();
    let depth = names.iter().filter(|name| **name != "mod").count();
    let is_test_file = path.ends_with("tests.rs");
    let code = if is_test_file { Vec::new() } else { code(&text) };
    Source { path, module, depth, code }
}

/// The lines of a formatted file that are neither comments nor items for tests alone.
fn code(text: &str) -> Vec<String> {
    let mut lines = text.lines();
    let mut code = Vec::new();
    while let Some(line) = lines.next() {
        if line.trim_start().starts_with("#[cfg(test)]") {
            // The item, up to the first line of its own depth that ends it.
            let ends = |item: &&str| {
                let same = indent(item) == indent(line);
                same && (item.ends_with(';') || item.ends_with('}'))
            };
            lines.find(ends).expect("the item that is for tests alone ends");
        } else if !line.trim_start().starts_with("//") {
            code.push(line.to_owned());
        }
    }
    code
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
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
fn every_module_has_a_layer_or_is_outside_of_them() {
    let sources = sources();
    for source in &sources {
        let module = source.module.as_str();
        assert!(
            layer(module).is_some() != OUTSIDE.contains(&module),
            "{}: give the module {module} a layer",
            source.path.display()
        );
    }
    for module in LAYERS.iter().map(|row| row.0).chain(OUTSIDE.iter().copied()) {
        let there = sources.iter().any(|source| source.module == module);
        assert!(there, "there is no module {module} any more: take it out of the table");
    }
}

#[test]
fn files_use_only_their_own_layer_and_lower_ones() {
    let mut checked = 0;
    for source in sources() {
        let Some(own) = layer(&source.module) else {
            continue;
        };
        for line in &source.code {
            // What a macro names by `$crate` is public.
            for used in words_after(&line.replace("$crate::", ""), "crate::") {
                let path = source.path.display();
                let Some(other) = layer(used) else {
                    panic!("{path}: names {used:?} at the root, not the module it is in: {line}")
                };
                checked += 1;
                assert!(
                    other < own || (other == own && (used == source.module || own == 0)),
                    "{path}: layer {own} uses {used} of layer {other}: {line}"
                );
            }
        }
    }
    assert!(checked > 100, "imports were found");
}

/// A path of `super`s that leaves the module would get around the layers.
#[test]
fn no_file_climbs_out_of_its_module() {
    for source in sources().iter().filter(|source| layer(&source.module).is_some()) {
        for line in &source.code {
            let climbs = "super::".repeat(source.depth);
            let path = source.path.display();
            assert!(!line.contains(&climbs), "{path} leaves {}: {line}", source.module);
        }
    }
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
fn files_and_functions_stay_short() {
    let mut checked = 0;
    for folder in ["src", "tests", "benches", "examples"] {
        for path in rust_files(&root().join(folder)) {
            let text = fs::read_to_string(&path).unwrap();
            let (path, lines) = (path.display(), text.lines().count());
            assert!(lines <= LONGEST_FILE_LINES, "{path} has {lines} lines: split it by meaning");
            for (name, lines) in functions(&text) {
                checked += 1;
                assert!(
                    lines <= LONGEST_FUNCTION_LINES,
                    "{path}: fn {name} has {lines} lines: split it by meaning"
                );
            }
        }
    }
    assert!(checked > 500, "functions were found");
}

/// The functions of a formatted file with their numbers of lines, signature and braces included.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<_> = text.lines().collect();
    let mut functions = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some((qualifiers, rest)) = line.split_once("fn ") else { continue };
        let mut qualifiers = qualifiers.split_whitespace();
        let is_item = qualifiers.all(|word| word.starts_with("pub") || word == "const");
        let ends = |end: &&str| {
            let same = !end.is_empty() && indent(end) == indent(line);
            same && (end.ends_with(';') || end.ends_with('}'))
        };
        if let (true, Some(last)) = (is_item, lines[at..].iter().position(ends)) {
            functions.push((rest.split(['(', '<']).next().unwrap_or(rest), last + 1));
        }
    }
    functions
}

#[test]
fn files_say_what_they_are() {
    for source in sources() {
        let text = fs::read_to_string(&source.path).unwrap();
        let says = text.starts_with("//!") || source.path.ends_with("tests.rs");
        assert!(says, "{} does not begin with what it is", source.path.display());
    }
}

/// The checks above see what they should.
#[test]
fn items_for_tests_are_left_out_and_functions_are_measured() {
    let text = "\
use crate::a;
#[cfg(test)]
mod tests;
#[cfg(test)]
impl A {
    fn b() {}
}
// use crate::c;
pub(super) const fn d(
    e: u8,
) -> u8 {
    let f = || {
        e
    };

    f()
}
trait G {
    fn h(&self);
    fn i(&self) {}
}";
    let left = code(text);
    assert_eq!((left.len(), left[0].as_str()), (14, "use crate::a;"));
    assert!(left[1].contains("fn d("), "{left:?}");
    assert_eq!(functions(text), [("b", 1), ("d", 9), ("h", 1), ("i", 1)]);
}

#[test]
fn the_library_forbids_unsafe_code_and_big_endian_targets() {
    let lib = fs::read_to_string(root().join("src/lib.rs")).unwrap();
    assert!(lib.contains("#![forbid(unsafe_code)]"));
    assert!(lib.contains("target_endian = \"big\""));
}
