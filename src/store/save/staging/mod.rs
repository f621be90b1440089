//! Saving in the background: the contents are detached from the caller, and written by another thread.
//!
//! What is shared by reference count goes as it is. What is borrowed is copied, chunk by chunk, into
//! blocks of an arena. The writer takes blocks in the order in which they were filled, and returns
//! them when they are written; so a state that is larger than the arena is copied and written part
//! by part.

mod arena;

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use super::chunk::{Batches, Chunk, Encoder, Raw, ToSave};
use super::contents::{part_of, read_run_into};
use super::leaves::{BATCH_BYTES, LeafChunks, SourceLeaves};
use super::planned_leaf::{Cut, PlannedLeaf};
use super::report::Accepted;
use super::reuse::{Memory, Reuse};
use super::{Plan, Retention, Save, SaveReport};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::CHUNK_ALIGN_BYTES;
use crate::store::{CheckpointStore, SaveOptions};
use crate::tree::{Contents, Data, Leaf, LeafSource};

pub(crate) use arena::Arena;
pub(super) use arena::Block;

/// A save that was checked, and whose contents come through a channel.
pub(crate) struct StagedSave {
    plan: Plan,
    options: SaveOptions,
    leaves: Arc<Vec<PlannedLeaf>>,
    parts: Receiver<Part>,
}

/// The caller's side of a [`StagedSave`]: sends the contents.
pub(crate) struct Stager<'s> {
    leaves: SourceLeaves<'s>,
    parts: Sender<Part>,
    accepted: Accepted,
}

/// A part of the contents. Those of one leaf come in their order.
enum Part {
    /// Whole leaves or parts of them, in memory that the caller gave or shares.
    Whole(Vec<InMemory>),
    Copied(Arc<Block>, Vec<CopiedChunk>),
    /// There is no more.
    End(Accepted),
}

/// A leaf by its number, or a part of it, where it was.
struct InMemory {
    leaf: usize,
    part: Option<usize>,
    data: Data<'static>,
}

/// A copied chunk.
struct CopiedChunk {
    leaf: usize,
    index: u32,
    /// Its bytes in the block.
    run: Range<usize>,
}

impl Arena {
    /// The same leaf in memory of its own, unless it has shared its memory already.
    pub(crate) fn detach(&self, leaf: &Leaf<'_>) -> Result<Leaf<'static>> {
        let detach = |data: Data<'_>| match data {
            Data::Borrowed(contents) if !contents.is_empty() => {
                Ok(Data::shared(self.copy(contents)?))
            }
            data => Ok(data.into_owned()),
        };
        leaf.clone().try_map_memory(detach)
    }
}

impl CheckpointStore {
    /// Checks `source`, without its contents, and makes both sides of a save in the background.
    pub(crate) fn stage<'s>(
        &self,
        step: u64,
        source: &'s dyn LeafSource,
        options: &SaveOptions,
    ) -> Result<(Stager<'s>, StagedSave)> {
        let accepted = Accepted::now();
        let stage = || {
            self.check_free(step, options)?;
            let structure = source.structure()?;
            let leaves = SourceLeaves::new(source, &structure, self.settings(options))?;
            let plan = Plan {
                step,
                custom_metadata: options.checked_metadata()?,
                structure,
                shardings: leaves.shardings.clone(),
            };
            let (sender, parts) = channel();
            let list = Arc::clone(&leaves.list);
            let staged = StagedSave { plan, options: options.clone(), leaves: list, parts };
            Ok((Stager { leaves, parts: sender, accepted }, staged))
        };
        stage().map_err(|error: Error| error.at_step(step).in_file(self.path()))
    }

    /// Saves what a stager sends, and removes the victims of `retention` in the same commit. `None` if
    /// the stager ended before its end: then nothing was saved.
    #[tracing::instrument(level = "debug", name = "save", skip_all, fields(step = staged.plan.step))]
    pub(crate) fn save_staged(
        &self,
        staged: StagedSave,
        retention: &Retention<'_>,
    ) -> Result<Option<SaveReport>> {
        let StagedSave { plan, options, leaves, parts } = staged;
        let mut abandoned = false;
        let save = || {
            let mut writer = self.lock_writer()?;
            let begun = self.begin(&mut writer, plan.step, &options, &leaves)?;
            let mut batches = StagedBatches::new(&leaves, &begun.reuse, parts);
            let encoder = Encoder { leaves: &leaves, reuse: &begun.reuse };
            let contents = ToSave { encoder, batches: &mut batches };
            let (checked, retention) = (begun.checked, Some(retention));
            let save = Save { checked, plan: &plan, options: &options, retention };
            let report = self.write(&mut writer, &save, contents);
            abandoned = batches.abandoned;
            report
        };
        let result = save();
        if abandoned {
            return Ok(None);
        }
        result.map(Some).map_err(|error| error.at_step(plan.step).in_file(self.path()))
    }
}

impl Stager<'_> {
    /// Adds to the time that the caller waited.
    pub(crate) fn waited(&mut self, waited: Duration) {
        self.accepted.waited += waited;
    }

    /// Sends all contents; when this returns, the source may change. Calls `stuck` before it waits
    /// for blocks that the writer has.
    pub(crate) fn run(mut self, arena: &Arena, stuck: &dyn Fn()) -> Result<()> {
        let began = Instant::now();
        let waited_before = self.accepted.waited;
        let list = Arc::clone(&self.leaves.list);
        let mut filler = Filler { arena, stuck, block: None, stager: &mut self, whole: Vec::new() };
        for (number, leaf) in list.iter().enumerate() {
            filler.leaf(number, leaf).map_err(|error| leaf.locate(error))?;
        }
        filler.flush();
        let waited = self.accepted.waited.saturating_sub(waited_before);
        self.accepted.copied = began.elapsed().saturating_sub(waited);
        // Nobody is there to receive it if the save has failed meanwhile; its handle knows.
        let _ = self.parts.send(Part::End(self.accepted));
        Ok(())
    }
}

/// Fills blocks and sends them.
struct Filler<'f, 's> {
    arena: &'f Arena,
    stuck: &'f dyn Fn(),
    block: Option<Filling>,
    stager: &'f mut Stager<'s>,
    whole: Vec<InMemory>,
}

/// A block that is being filled.
struct Filling {
    block: Block,
    filled: usize,
    chunks: Vec<CopiedChunk>,
}

impl Filler<'_, '_> {
    fn leaf(&mut self, number: usize, leaf: &PlannedLeaf) -> Result<()> {
        if leaf.is_stored_elsewhere() {
            return Ok(());
        }
        match self.stager.leaves.contents.get(number).and_then(Option::as_ref) {
            Some(Contents::Whole(data)) if !matches!(data, Data::Borrowed(_)) => {
                let data = data.clone().into_owned();
                self.whole.push(InMemory { leaf: number, part: None, data });
                return Ok(());
            }
            // The chunks of a leaf come in their order, so all its parts go the same way.
            Some(Contents::Shards(shards, _))
                if shards.iter().all(|(_, data)| !matches!(data, Data::Borrowed(_))) =>
            {
                let parts = leaf.stored().zip(shards);
                self.whole.extend(parts.map(|(part, (_, data))| InMemory {
                    leaf: number,
                    part: Some(part),
                    data: data.clone().into_owned(),
                }));
                return Ok(());
            }
            _ => {}
        }
        for Cut { part, index, run } in leaf.cuts() {
            self.make_room(run.len())?;
            let at = self.copy(number, leaf, part, run)?;
            self.add(number, index, at);
        }
        Ok(())
    }

    /// Copies a run of a part to the block, which has room for it; where it is there.
    fn copy(
        &mut self,
        number: usize,
        leaf: &PlannedLeaf,
        part: usize,
        run: Range<usize>,
    ) -> Result<Range<usize>> {
        let Some(filling) = &mut self.block else {
            return Err(Error::invalid("there is no block to copy to"));
        };
        let at = filling.filled..filling.filled + run.len();
        let Some(out) = filling.block.bytes_mut().get_mut(at.clone()) else {
            return Err(Error::invalid(format!("a chunk of {} bytes fits no block", run.len())));
        };
        let leaves = &self.stager.leaves;
        let contents = leaves.contents.get(number).and_then(Option::as_ref);
        match contents.and_then(|contents| part_of(leaf, contents, part)) {
            // A contents is as long as its leaf: that was checked.
            Some(bytes) => out.copy_from_slice(bytes.get(run).unwrap_or_default()),
            None => read_run_into(leaves.source, leaf, part, run, out)?,
        }
        Ok(at)
    }

    /// Makes room for the next chunk in the block.
    fn make_room(&mut self, length: usize) -> Result<()> {
        let full = |filling: &Filling| filling.filled + length > filling.block.bytes().len();
        if self.block.as_ref().is_some_and(full) {
            self.flush();
        }
        if self.block.is_none() {
            let block = self.take()?;
            self.block = Some(Filling { block, filled: 0, chunks: Vec::new() });
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Block> {
        if let Some(block) = self.arena.try_take()? {
            return Ok(block);
        }
        (self.stuck)();
        let began = Instant::now();
        let block = self.arena.take()?;
        self.stager.waited(began.elapsed());
        Ok(block)
    }

    fn add(&mut self, leaf: usize, index: u32, run: Range<usize>) {
        if let Some(filling) = &mut self.block {
            self.stager.accepted.copied_bytes += u64::try_from(run.len()).unwrap_or(u64::MAX);
            filling.filled = run.end.next_multiple_of(CHUNK_ALIGN_BYTES);
            filling.chunks.push(CopiedChunk { leaf, index, run });
        }
    }

    /// Sends what was collected. Nobody receives it if the save has failed; its handle knows.
    fn flush(&mut self) {
        if let Some(Filling { block, chunks, .. }) = self.block.take() {
            let _ = self.stager.parts.send(Part::Copied(Arc::new(block), chunks));
        }
        let whole = std::mem::take(&mut self.whole);
        if !whole.is_empty() {
            let _ = self.stager.parts.send(Part::Whole(whole));
        }
    }
}

/// The chunks that a stager sends.
pub(super) struct StagedBatches<'b> {
    leaves: &'b [PlannedLeaf],
    reuse: &'b Reuse,
    parts: Receiver<Part>,
    /// Whole leaves that are still to be cut.
    whole: std::vec::IntoIter<InMemory>,
    /// What is left of the one before.
    rest: LeafChunks<'b, 'static>,
    memories: Vec<Memory>,
    accepted: Option<Accepted>,
    /// The stager ended before its end.
    abandoned: bool,
}

impl<'b> StagedBatches<'b> {
    fn new(leaves: &'b [PlannedLeaf], reuse: &'b Reuse, parts: Receiver<Part>) -> Self {
        Self {
            leaves,
            reuse,
            parts,
            whole: Vec::new().into_iter(),
            rest: Box::new(std::iter::empty()),
            memories: std::iter::repeat_with(Memory::default).take(leaves.len()).collect(),
            accepted: None,
            abandoned: false,
        }
    }

    /// The chunks of a leaf, or of a part of it, that is in memory.
    fn chunks(
        &mut self,
        InMemory { leaf: number, part, data }: InMemory,
    ) -> LeafChunks<'b, 'static> {
        let Some(leaf) = self.leaves.get(number) else { return Box::new(std::iter::empty()) };
        if part.is_none() {
            if let Some(memory) = self.memories.get_mut(number) {
                *memory = Memory::of(&data, true);
            }
            if let Some(unchanged) = self.reuse.unchanged(number, &data) {
                return Box::new(unchanged.into_iter());
            }
        }
        let chunk = move |Cut { index, run, .. }| {
            let raw = Raw::Shared(data.clone(), run);
            Chunk { leaf: number, index, raw }
        };
        Box::new(leaf.cuts_of(part.unwrap_or(0)).map(chunk))
    }
}

impl Batches<'static> for StagedBatches<'_> {
    fn next(&mut self) -> Result<Vec<Chunk<'static>>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES {
            if let Some(chunk) = self.rest.next() {
                bytes += chunk.raw.len();
                batch.push(chunk);
            } else if let Some(in_memory) = self.whole.next() {
                self.rest = self.chunks(in_memory);
            } else if self.accepted.is_some() || !batch.is_empty() {
                break;
            } else {
                match self.parts.recv() {
                    Ok(Part::Whole(whole)) => self.whole = whole.into_iter(),
                    Ok(Part::Copied(block, chunks)) => {
                        let chunk = |CopiedChunk { leaf, index, run }| {
                            let raw = Raw::Staged(Arc::clone(&block), run);
                            Chunk { leaf, index, raw }
                        };
                        batch.extend(chunks.into_iter().map(chunk));
                    }
                    Ok(Part::End(accepted)) => self.accepted = Some(accepted),
                    Err(_) => {
                        self.abandoned = true;
                        let message = "the state could not be copied to its end";
                        return Err(Error::new(ErrorKind::InvalidInput, message));
                    }
                }
            }
        }
        Ok(batch)
    }

    fn accepted(&self) -> Accepted {
        self.accepted.unwrap_or_else(Accepted::now)
    }

    fn changed(&mut self, leaf: usize) {
        if let Some(memory) = self.memories.get_mut(leaf) {
            memory.let_go();
        }
    }

    fn memory(&mut self, leaf: usize) -> Memory {
        self.memories.get_mut(leaf).map(std::mem::take).unwrap_or_default()
    }
}
