//! Do ranks mean the same step?

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::error::{Error, ErrorKind, Result};
use crate::limits::MAX_DIFFERENCES_SHOWN;
use crate::path::KeyPath;
use crate::record::{Contribution, LeafRecord, decode_structure};
use crate::sharding::Sharding;
use crate::store::records::sharding_of;
use crate::tree::Tree;

/// A contribution and whose it is.
pub(super) type OfRank<'c> = (u64, &'c Contribution);

/// What ranks must agree on of a leaf besides what it is.
fn sharding<'c>(contribution: &'c Contribution, leaf: &LeafRecord) -> Result<Option<&'c Sharding>> {
    sharding_of(leaf, &contribution.shardings)
}

/// Checks that two ranks give the same structure with the same leaves, cut in the same places.
pub(in crate::store) fn check_agreement(
    step: u64,
    one: OfRank<'_>,
    other: OfRank<'_>,
) -> Result<()> {
    let (mine, theirs) = (one.1, other.1);
    let mut agree = mine.structure == theirs.structure && mine.leaves.len() == theirs.leaves.len();
    for ((path, leaf), (other_path, other_leaf)) in mine.leaves.iter().zip(&theirs.leaves) {
        agree = agree
            && path == other_path
            && leaf.meta == other_leaf.meta
            && sharding(mine, leaf)? == sharding(theirs, other_leaf)?
            && leaf.grid() == other_leaf.grid();
    }
    if agree { Ok(()) } else { Err(disagreement(step, one, other)?) }
}

/// What each node of the tree is, in words.
fn nodes(step: u64, contribution: &Contribution) -> Result<BTreeMap<String, String>> {
    let mut leaves = BTreeMap::new();
    for (path, leaf) in &contribution.leaves {
        let mut words = leaf.meta.to_string();
        if let Some(sharding) = sharding(contribution, leaf)? {
            // Writing to a string can't fail.
            let _ = write!(words, " over {sharding}");
        }
        let parts = leaf.grid().part_count();
        if parts > 1 {
            let _ = write!(words, " in {parts} parts");
        }
        leaves.insert(path.clone(), words);
    }
    let mut nodes = BTreeMap::new();
    let tree = decode_structure(step, &contribution.structure, &mut |path: &KeyPath| {
        let missing = || Error::damaged("a contribution lacks the leaf").at_path(path);
        leaves.remove(&path.encode()).ok_or_else(missing)
    })?;
    tree.visit(&mut |path, node| {
        let words = match node {
            Tree::Leaf(words) => words.clone(),
            Tree::Struct { name, fields } => {
                let names: Vec<_> = fields.iter().map(|(name, _)| name.as_str()).collect();
                format!("a struct {name} {{ {} }}", names.join(", "))
            }
            node => format!("a {}", node.kind()),
        };
        nodes.insert(path.to_string(), words);
        Ok(())
    })?;
    Ok(nodes)
}

fn disagreement(step: u64, one: OfRank<'_>, other: OfRank<'_>) -> Result<Error> {
    let (mine, theirs) = (nodes(step, one.1)?, nodes(step, other.1)?);
    let (rank, other_rank) = (one.0, other.0);
    let paths: BTreeSet<&String> = mine.keys().chain(theirs.keys()).collect();
    let line = |path: &String| match (mine.get(path), theirs.get(path)) {
        (Some(mine), Some(theirs)) if mine == theirs => None,
        (Some(mine), Some(theirs)) => {
            Some(format!("{path}: {mine} on rank {rank}, {theirs} on rank {other_rank}"))
        }
        (Some(mine), None) => {
            Some(format!("{path}: {mine} on rank {rank}, not on rank {other_rank}"))
        }
        (None, theirs) => theirs
            .map(|theirs| format!("{path}: {theirs} on rank {other_rank}, not on rank {rank}")),
    };
    let lines: Vec<String> = paths.into_iter().filter_map(line).collect();
    if lines.is_empty() {
        let message =
            format!("rank {rank} and rank {other_rank} cut the same arrays in different places");
        return Ok(
            Error::new(ErrorKind::Mismatch, message).advise("give all ranks the same chunk hints")
        );
    }
    let what = format!("rank {rank} and rank {other_rank} differ in {} places:", lines.len());
    Ok(listed(what, &lines).advise("make them the same on all ranks, and save the step again"))
}

/// An error that lists what it is about.
pub(super) fn listed(mut message: String, lines: &[String]) -> Error {
    for line in lines.iter().take(MAX_DIFFERENCES_SHOWN) {
        // Writing to a string can't fail.
        let _ = write!(message, "\n  {line}");
    }
    if lines.len() > MAX_DIFFERENCES_SHOWN {
        let _ = write!(message, "\n  and {} more", lines.len() - MAX_DIFFERENCES_SHOWN);
    }
    Error::new(ErrorKind::Mismatch, message)
}
