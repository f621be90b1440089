//! Contributions of all ranks → one step.

use super::differences::listed;
use crate::error::{Error, Result};
use crate::path::KeyPath;
use crate::record::{Contribution, LeafRecord, Parts};
use crate::sharding::Sharding;
use crate::store::records::sharding_of;
use crate::store::save::Extras;

pub(in crate::store) use super::differences::check_agreement;

/// The step that contributions make together.
pub(in crate::store) struct Merged {
    pub(in crate::store) extras: Extras,
    pub(in crate::store) structure: Vec<u8>,
    pub(in crate::store) shardings: Vec<Sharding>,
    /// In the order of the structure.
    pub(in crate::store) leaves: Vec<(Vec<u8>, LeafRecord)>,
}

/// Puts together what all ranks give, which agree: ascending by rank, at least one.
pub(in crate::store) fn merge(contributions: Vec<(u64, Contribution)>) -> Result<Merged> {
    let (mut missing, mut double) = (Vec::new(), Vec::new());
    let Some((_, first)) = contributions.first() else {
        return Err(Error::invalid("there are no contributions"));
    };
    let mut leaves = Vec::with_capacity(first.leaves.len());
    for (number, (path, leaf)) in first.leaves.iter().enumerate() {
        let given: Vec<(u64, &LeafRecord)> = contributions
            .iter()
            .filter_map(|(rank, contribution)| Some((*rank, &contribution.leaves.get(number)?.1)))
            .collect();
        let (mut chunks, mut chunk_ends) = (Vec::new(), Vec::new());
        for part in 0..leaf.part_count() {
            let mut holders = given.iter().filter(|(_, leaf)| !leaf.chunks_of(part).is_empty());
            match (holders.next(), holders.next()) {
                (Some((_, leaf)), None) => chunks.extend_from_slice(leaf.chunks_of(part)),
                (Some((one, _)), Some((other, _))) => {
                    double.push(format!(
                        "{} by rank {one} and rank {other}",
                        words(path, leaf, part)
                    ));
                }
                (None, _) if leaf.part_bytes(part) > 0 => {
                    let sharding = sharding_of(leaf, &first.shardings)?;
                    missing.push(words(path, leaf, part) + &holder(sharding, leaf, part)?);
                }
                (None, _) => {}
            }
            chunk_ends.push(chunks.len());
        }
        let grid = leaf.parts.as_ref().map(|parts| parts.grid.clone());
        let parts = grid.map(|grid| Box::new(Parts { grid, chunk_ends }));
        leaves.push((
            path.clone(),
            LeafRecord { meta: leaf.meta.clone(), sharding: leaf.sharding, parts, chunks },
        ));
    }
    for (lines, what) in [(missing, "given by no rank"), (double, "given twice")] {
        if !lines.is_empty() {
            let advice = "each region is given by the rank with the first device that holds it";
            return Err(
                listed(format!("{} regions are {what}:", lines.len()), &lines).advise(advice)
            );
        }
    }
    Ok(with_extras(contributions, leaves))
}

/// What else goes with the step: of several ranks that give it the lowest one counts.
fn with_extras(
    contributions: Vec<(u64, Contribution)>,
    leaves: Vec<(Vec<u8>, LeafRecord)>,
) -> Merged {
    let mut extras = Extras { started_unix_ns: u64::MAX, ..Extras::default() };
    let (mut structure, mut shardings) = (Vec::new(), Vec::new());
    // The lowest rank comes last, and its own takes the place of the others'.
    for (_, contribution) in contributions.into_iter().rev() {
        extras.metrics.extend(contribution.metrics);
        extras.custom_metadata = contribution.custom_metadata.or(extras.custom_metadata);
        extras.pinned |= contribution.pinned;
        extras.started_unix_ns = extras.started_unix_ns.min(contribution.started_unix_ns);
        (structure, shardings) = (contribution.structure, contribution.shardings);
    }
    Merged { extras, structure, shardings, leaves }
}

fn words(path: &[u8], leaf: &LeafRecord, part: usize) -> String {
    let path = KeyPath::decode(path).map(|path| path.to_string()).unwrap_or_default();
    format!("{path}: {} of {}", leaf.grid().part(part), leaf.meta)
}

/// Which device should have had a part.
fn holder(sharding: Option<&Sharding>, leaf: &LeafRecord, part: usize) -> Result<String> {
    let Some(sharding) = sharding else { return Ok(String::new()) };
    let region = leaf.grid().part(part);
    let layout = sharding.layout(&leaf.meta.shape)?;
    let shard = layout.shards().find(|shard| shard.region.meets(&region));
    let device = shard.and_then(|shard| shard.devices.first().map(ToString::to_string));
    Ok(device.map(|device| format!(", which is on {device}")).unwrap_or_default())
}
