//! What a rank gives to a step: written like a step, and made one with what the others gave when the last
//! rank comes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

use super::new_step::{Extras, NewStep, step_record};
use super::packer::{Packed, SavedLeaf};
use super::report::Accepted;
use super::{Save, Saved};
use crate::db::{ReadTx, WriteTx};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{Contribution, PackRange, PendingRecord, to_unix_ns};
use crate::store::ranks::{
    Member, Merged, check_agreement, drop_pending, drop_stale, merge, pending_rows,
};
use crate::store::{CheckpointStore, StepInfo};

/// What other ranks have given to a step, ascending by rank.
type Others = BTreeMap<u64, PendingRecord>;

/// A contribution that is written, and the packs of its chunks.
struct Written {
    contribution: Contribution,
    packs: BTreeSet<u64>,
}

impl CheckpointStore {
    /// Adds what this rank gives to a step, in place of what it had given before, and commits the step if it
    /// is the last one that was missing.
    pub(super) fn contribute(
        &self,
        member: Member,
        save: &Save<'_>,
        packed: Packed<'_>,
        structure: Vec<u8>,
        accepted: Accepted,
    ) -> Result<(Saved, Vec<SavedLeaf>)> {
        let Packed { tx, leaves, packs, .. } = packed;
        let contribution = Contribution {
            metrics: save.options.metrics.clone(),
            custom_metadata: save.plan.custom_metadata.clone(),
            pinned: save.options.pinned,
            started_unix_ns: to_unix_ns(accepted.at),
            structure,
            shardings: save.plan.shardings.clone(),
            leaves: leaves.iter().map(|(path, leaf, _)| (path.clone(), leaf.clone())).collect(),
        };
        match self.add(tx, member, save, Written { contribution, packs }) {
            Err(error) if error.kind() == ErrorKind::Mismatch => {
                self.refuse(member, save.plan.step, &error);
                Err(error)
            }
            result => Ok((result?, leaves)),
        }
    }

    fn add(&self, tx: WriteTx<'_>, member: Member, save: &Save<'_>, own: Written) -> Result<Saved> {
        member.check(&tx)?;
        // Nobody else writes meanwhile.
        let read = self.database.read()?;
        let (step, key) = (save.plan.step, member.key());
        tx.set_pack_mark(save.checked.mark_over(&own.packs))?;
        let others = arrived(&read, step, key)?;
        let is_last = others.len() + 1 == usize::try_from(member.rank.world_size()).unwrap_or(0);
        let mut contributions = Vec::new();
        // They agree with each other, so one is enough as long as there are not all.
        for number in others.keys().take(if is_last { usize::MAX } else { 1 }) {
            contributions.push((*number, contribution(&read, step, *number)?));
        }
        if let Some((number, other)) = contributions.first() {
            check_agreement(step, (key, &own.contribution), (*number, other))?;
        }
        let saved = if is_last {
            let Written { contribution, mut packs } = own;
            contributions.push((key, contribution));
            contributions.sort_by_key(|(number, _)| *number);
            let other_packs = others.values().flat_map(|other| &other.packs);
            packs.extend(other_packs.flat_map(|range| range.numbers()));
            self.complete(&tx, &read, save, contributions, packs)?
        } else {
            let has_come = |number: u64| number == key || others.contains_key(&number);
            let ranks = 0..member.rank.world_size();
            let missing_ranks = ranks.filter(|number| !has_come(u64::from(*number))).collect();
            arrive(&tx, &read, member, step, own, missing_ranks)?
        };
        drop_stale(&tx, &read, Some(step), self.options.pending_grace)?;
        tx.commit()?;
        Ok(saved)
    }

    /// Puts the step of all `contributions`, whose chunks are in `packs`, into `tx`.
    fn complete(
        &self,
        tx: &WriteTx<'_>,
        read: &ReadTx,
        save: &Save<'_>,
        contributions: Vec<(u64, Contribution)>,
        packs: BTreeSet<u64>,
    ) -> Result<Saved> {
        let step = save.plan.step;
        let Merged { extras, structure, shardings, leaves } = merge(contributions)?;
        let extras = Extras { pinned: extras.pinned || save.checked.was_pinned, ..extras };
        let leaves = leaves.iter().map(|(path, leaf)| (path, leaf));
        let new = NewStep::new(step, extras, leaves, PackRange::of(packs))?;
        let (info, removed) = self.put_step(tx, save, &new, &structure, &shardings)?;
        drop_pending(tx, read, |found, _, _| found == step)?;
        Ok(Saved { info, removed, missing_ranks: Vec::new() })
    }

    /// Notes for the other ranks that this one was refused.
    fn refuse(&self, member: Member, step: u64, reason: &Error) {
        let note = || -> Result<()> {
            let tx = self.database.write()?;
            member.check(&tx)?;
            let key = member.key();
            drop_pending(&tx, &self.database.read()?, |found, rank, _| {
                (found, rank) == (step, key)
            })?;
            let record = pending_record(member, Vec::new(), Some(reason.to_string()));
            tx.put_pending(step, key, &record.encode(step, key)?)?;
            tx.commit()
        };
        if let Err(error) = note() {
            tracing::warn!(step, %error, "other ranks can't be told of a refusal");
        }
    }
}

/// The ranks other than `own` that have given something to `step`.
fn arrived(read: &ReadTx, step: u64, own: u64) -> Result<Others> {
    let rows = pending_rows(read)?.into_iter();
    Ok(rows
        .filter(|(found, rank, _)| *found == step && *rank != own)
        .filter_map(|(_, rank, record)| Some((rank, record?)))
        .filter(|(_, record)| record.refusal.is_none())
        .collect())
}

fn contribution(read: &ReadTx, step: u64, rank: u64) -> Result<Contribution> {
    let missing = || Error::damaged(format!("the contribution of rank {rank} is missing"));
    let decode = || {
        let record = read.contribution(step, rank)?.ok_or_else(missing)?;
        Ok(Contribution::decode(step, rank, &record)?)
    };
    decode().map_err(|error: Error| error.advise(format!("let rank {rank} save the step again")))
}

/// Puts the contribution `own` into `tx`, to wait for others.
fn arrive(
    tx: &WriteTx<'_>,
    read: &ReadTx,
    member: Member,
    step: u64,
    own: Written,
    missing_ranks: Vec<u32>,
) -> Result<Saved> {
    let Written { contribution, packs } = own;
    let (key, packs) = (member.key(), PackRange::of(packs));
    // Counted before what this takes the place of is dropped, which may be in the same packs.
    tx.retain_packs(&packs)?;
    // With it those that were refused, which have to try again.
    drop_pending(tx, read, |found, rank, record| {
        found == step && (rank == key || record.is_some_and(|record| record.refusal.is_some()))
    })?;
    tx.put_contribution(step, key, &contribution.encode(step, key)?)?;
    let record = pending_record(member, packs.clone(), None);
    tx.put_pending(step, key, &record.encode(step, key)?)?;
    let extras = Extras {
        started_unix_ns: contribution.started_unix_ns,
        metrics: contribution.metrics,
        custom_metadata: contribution.custom_metadata,
        pinned: contribution.pinned,
    };
    let leaves = contribution.leaves.iter().map(|(path, leaf)| (path, leaf));
    let info = StepInfo::from_record(step, &step_record(extras, leaves, packs))?;
    Ok(Saved { info, removed: Vec::new(), missing_ranks })
}

fn pending_record(member: Member, packs: Vec<PackRange>, refusal: Option<String>) -> PendingRecord {
    let since_unix_ns = to_unix_ns(SystemTime::now());
    PendingRecord { world_size: member.rank.world_size(), refusal, since_unix_ns, packs }
}
