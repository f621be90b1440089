//! Saving: a step, and what it replaces and removes, is one commit.

mod chunk;
mod contents;
mod contribute;
mod encoding;
mod leaves;
mod new_step;
mod pack_writer;
mod packer;
mod plan;
mod planned_leaf;
mod report;
mod reuse;
mod shared_pack;
mod staging;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::ranks::drop_stale;
use super::{
    CheckpointStore, Existing, SaveOptions, StepInfo, Sweep, Writer, readable_infos, step_record,
};
use crate::db::{FileTurn, ReadTx, WriteTx};
use crate::error::{Error, ErrorKind, Result};
use crate::record::{
    LeafRecord, PackRange, StepRecord, encode_shardings, encode_structure, to_unix_ns,
};
use crate::sharding::Sharding;
use crate::tree::{LeafMeta, LeafSource, Tree};
use chunk::{Encoder, ToSave};
use leaves::{Settings, SourceLeaves};
use new_step::NewStep;
use packer::{Packed, SavedLeaf, Target, pack};
use planned_leaf::PlannedLeaf;
use report::Accepted;
use reuse::Reuse;

pub(super) use new_step::Extras;
pub(super) use pack_writer::PackWriter;
pub use report::{SaveCost, SaveReport};
pub(super) use reuse::LastStep;
pub(super) use shared_pack::{PackStream, SharedPack, SharedPacks};
pub(crate) use staging::{Arena, StagedSave};

/// From what is known of all steps, the new one included, ascending: which are to go.
pub(super) type Retention<'r> = dyn Fn(&[StepInfo]) -> Vec<u64> + 'r;

/// What is known of a step before its contents are written.
struct Plan {
    step: u64,
    custom_metadata: Option<String>,
    structure: Tree<LeafMeta>,
    shardings: Vec<Sharding>,
}

/// A save that was checked.
struct Save<'s> {
    checked: Checked,
    plan: &'s Plan,
    options: &'s SaveOptions,
    retention: Option<&'s Retention<'s>>,
}

/// What a save came to.
struct Saved {
    info: StepInfo,
    removed: Vec<u64>,
    missing_ranks: Vec<u32>,
}

/// What was found when a step was checked.
#[derive(Debug, Clone, Copy)]
struct Checked {
    /// The pack mark.
    mark: u64,
    /// Whether the step is there, and pinned.
    was_pinned: bool,
}

impl Checked {
    /// The pack mark when `packs` are used too.
    fn mark_over(self, packs: &BTreeSet<u64>) -> u64 {
        packs.last().map_or(self.mark, |last| self.mark.max(*last))
    }
}

/// A save that has begun.
struct Begun {
    checked: Checked,
    reuse: Reuse,
    /// Held until the save is over.
    _turn: Option<FileTurn>,
}

impl CheckpointStore {
    /// Saves a step and removes the victims of `retention` in the same commit.
    pub(crate) fn save_and_retain(
        &self,
        step: u64,
        source: &dyn LeafSource,
        options: &SaveOptions,
        retention: Option<&Retention<'_>>,
    ) -> Result<SaveReport> {
        self.save_source_and_retain(step, source, options, retention)
            .map_err(|error| error.at_step(step).in_file(self.path()))
    }

    #[tracing::instrument(level = "debug", name = "save", skip_all, fields(step))]
    fn save_source_and_retain(
        &self,
        step: u64,
        source: &dyn LeafSource,
        options: &SaveOptions,
        retention: Option<&Retention<'_>>,
    ) -> Result<SaveReport> {
        let accepted = Accepted::now();
        let mut writer = self.lock_writer()?;
        self.check_free(step, options)?;
        let structure = source.structure()?;
        let leaves = SourceLeaves::new(source, &structure, self.settings(options))?;
        let plan = Plan {
            step,
            custom_metadata: options.checked_metadata()?,
            structure,
            shardings: leaves.shardings.clone(),
        };
        let begun = self.begin(&mut writer, step, options, &leaves.list)?;
        let encoder = Encoder { leaves: &leaves.list, reuse: &begun.reuse };
        let mut batches = leaves.batches(&begun.reuse, accepted);
        let contents = ToSave { encoder, batches: &mut batches };
        let save = Save { checked: begun.checked, plan: &plan, options, retention };
        self.write(&mut writer, &save, contents)
    }

    /// What decides how leaves are stored.
    fn settings(&self, options: &SaveOptions) -> Settings<'_> {
        let record_sharding = options.record_sharding;
        Settings { options: &self.options, record_sharding, rank: self.rank() }
    }

    /// Begins a save, when its turn has come: sweeps what a save before left behind, and looks for what can be
    /// reused. What is remembered of the newest step is taken away: only a save that succeeds knows it again.
    fn begin(
        &self,
        writer: &mut Writer,
        step: u64,
        options: &SaveOptions,
        leaves: &[PlannedLeaf],
    ) -> Result<Begun> {
        let turn = self.wait_for_turn()?;
        if let Some(member) = self.member {
            // What a rank had just committed when it was killed is seen after a write transaction has begun.
            let tx = self.database.write()?;
            member.check(&tx)?;
            let read = self.database.read()?;
            if read.last_pack()? > Some(read.pack_mark()?) {
                writer.sweep = Sweep::Due;
            }
        }
        let checked = self.check_free(step, options)?;
        if writer.sweep == Sweep::Due {
            self.sweep(checked.mark, Some(step))?;
        }
        let last = writer.last.take();
        let reuse = Reuse::new(self.database.read_payload()?, last, leaves);
        Ok(Begun { checked, reuse, _turn: turn })
    }

    /// Waits for the turn of a rank; `None` in a store that has the file to itself.
    pub(super) fn wait_for_turn(&self) -> Result<Option<FileTurn>> {
        self.member.map(|_| self.database.wait_for_turn()).transpose()
    }

    /// Writes a step with what `contents` give, and removes the victims of the retention; or what a rank
    /// gives to it.
    fn write(
        &self,
        writer: &mut Writer,
        save: &Save<'_>,
        contents: ToSave<'_, '_>,
    ) -> Result<SaveReport> {
        let (began, step) = (Instant::now(), save.plan.step);
        let structure = encode_structure(step, &save.plan.structure)?;
        let tx = self.database.write()?;
        // Until the last commit succeeds, packs of this save may be left in the file.
        writer.sweep = Sweep::Due;
        let target = Target { tx, first_pack: save.checked.mark + 1 };
        let ToSave { encoder, batches } = contents;
        let packed = pack(encoder, batches, target, self.options.threads)?;
        let (accepted, counts) = (batches.accepted(), packed.counts);
        let (saved, leaves) = match self.member {
            Some(member) => self.contribute(member, save, packed, structure, accepted)?,
            None => self.commit_whole(save, packed, &structure, accepted)?,
        };
        let last = encoder.reuse.last_step(step, leaves);
        *writer = Writer { sweep: Sweep::Done, last: Some(Arc::new(last)) };
        let Saved { info, removed, missing_ranks } = saved;
        tracing::debug!(bytes = counts.new_bytes, ?removed, ?missing_ranks, "saved");
        let cost = SaveCost::new(&counts, &accepted, began);
        Ok(SaveReport { info, removed, missing_ranks, cost })
    }

    /// Commits a step that is all in this process.
    fn commit_whole(
        &self,
        save: &Save<'_>,
        packed: Packed<'_>,
        structure: &[u8],
        accepted: Accepted,
    ) -> Result<(Saved, Vec<SavedLeaf>)> {
        let Packed { tx, leaves, packs, .. } = packed;
        let mark = save.checked.mark_over(&packs);
        let extras = Extras {
            started_unix_ns: to_unix_ns(accepted.at),
            metrics: save.options.metrics.clone(),
            custom_metadata: save.plan.custom_metadata.clone(),
            // Replacing a pinned step does not unpin it.
            pinned: save.options.pinned || save.checked.was_pinned,
        };
        let records = leaves.iter().map(|(path, record, _)| (path, record));
        let shardings = &save.plan.shardings;
        let new = NewStep::new(save.plan.step, extras, records, PackRange::of(packs))?;
        let (info, removed) = self.put_step(&tx, save, &new, structure, shardings)?;
        tx.set_pack_mark(mark)?;
        tx.commit()?;
        Ok((Saved { info, removed, missing_ranks: Vec::new() }, leaves))
    }

    /// Puts all rows of a step into `tx`, in place of the one that may be there, and removes the victims of
    /// the retention.
    fn put_step(
        &self,
        tx: &WriteTx<'_>,
        save: &Save<'_>,
        new: &NewStep,
        structure: &[u8],
        shardings: &[Sharding],
    ) -> Result<(StepInfo, Vec<u64>)> {
        let step = new.step;
        let info = StepInfo::from_record(step, &new.record)?;
        let removed = match save.retention {
            Some(retention) => self.victims(&info, retention)?,
            None => Vec::new(),
        };
        // Counted before those that use them too are removed.
        tx.retain_packs(&new.record.packs)?;
        if save.options.existing == Existing::Replace {
            self.remove_if_saved(tx, step)?;
        }
        tx.put_structure(step, structure)?;
        tx.put_leaf_records(step, &new.rows)?;
        if !shardings.is_empty() {
            tx.put_shardings(step, &encode_shardings(step, shardings)?)?;
        }
        tx.put_step(step, &new.record.encode(step)?)?;
        for victim in &removed {
            self.remove_if_saved(tx, *victim)?;
        }
        Ok((info, removed))
    }

    /// Removes what a save that did not end left above the mark, and makes its room free; and what has waited
    /// too long for ranks, but not for the step `saving`.
    pub(super) fn sweep(&self, mark: u64, saving: Option<u64>) -> Result<()> {
        let tx = self.database.write()?;
        let swept = tx.sweep_packs_above(mark)?;
        drop_stale(&tx, &self.database.read()?, saving, self.options.pending_grace)?;
        // In commits of its own, since what comes now may need the room: pages that one commit
        // frees can be used again after the next one, and so can those that were freed before a
        // save that failed.
        tx.commit()?;
        self.database.write()?.commit()?;
        if swept > 0 {
            tracing::info!(packs = swept, "removed the packs of a save that did not end");
        }
        Ok(())
    }

    /// Checks that `step` may be saved.
    fn check_free(&self, step: u64, options: &SaveOptions) -> Result<Checked> {
        let tx = self.database.read()?;
        let saved = tx.step(step)?;
        if options.existing == Existing::Refuse && saved.is_some() {
            return Err(Error::new(ErrorKind::AlreadyExists, "this step is saved already")
                .advise("replace it (`SaveOptions::replace`), or delete it first"));
        }
        let record = saved.and_then(|record| StepRecord::decode(step, &record).ok());
        let mark = tx.pack_mark()?;
        Ok(Checked { mark, was_pinned: record.is_some_and(|record| record.pinned) })
    }

    /// The steps that `retention` removes once `new` is there. A save never removes what it saves,
    /// also if it is an old step that the next save will remove. A step whose record is damaged
    /// stays, and does not keep others from being saved.
    fn victims(&self, new: &StepInfo, retention: &Retention<'_>) -> Result<Vec<u64>> {
        let mut infos = readable_infos(&self.database.read()?)?;
        infos.retain(|info| info.step != new.step);
        infos.push(new.clone());
        infos.sort_by_key(|info| info.step);
        let mut victims = retention(&infos);
        victims.retain(|victim| *victim != new.step);
        Ok(victims)
    }

    /// Removes a step and what only it uses, if it was saved in an earlier transaction.
    pub(super) fn remove_if_saved(&self, tx: &WriteTx<'_>, step: u64) -> Result<()> {
        let read = self.database.read()?;
        if read.step(step)?.is_none() {
            return Ok(());
        }
        let packs = packs_of(&read, step)?;
        tx.remove_step(step)?;
        tx.release_packs(&packs)
    }
}

/// The packs of a saved step; of one with a damaged record those that its leaf records name.
fn packs_of(read: &ReadTx, step: u64) -> Result<Vec<PackRange>> {
    match step_record(read, step) {
        Ok(record) => Ok(record.packs),
        Err(error) if error.kind() == ErrorKind::Damaged => {
            let mut packs = BTreeSet::new();
            for (path, record) in read.leaves(step)? {
                let record = LeafRecord::decode(step, &path, &record);
                let chunks = record.into_iter().flat_map(|record| record.chunks);
                packs.extend(chunks.flat_map(|chunk| chunk.extent().packs()));
            }
            Ok(packs.into_iter().map(|first| PackRange { first, count: 1 }).collect())
        }
        Err(error) => Err(error),
    }
}
