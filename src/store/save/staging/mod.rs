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

use super::chunk::{Batches, Chunk, Contents, Encoder, Raw};
use super::leaves::{BATCH_BYTES, LeafChunks, PlannedLeaf, SourceLeaves, read_run_into};
use super::report::Accepted;
use super::reuse::{Memory, Reuse};
use super::{Plan, Retention, SaveReport};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::CHUNK_ALIGN_BYTES;
use crate::store::{CheckpointStore, SaveOptions};
use crate::tree::{Data, Leaf, LeafSource};

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
    /// Whole leaves by their numbers, in memory that the caller gave or shares.
    Whole(Vec<(usize, Data<'static>)>),
    Copied(Arc<Block>, Vec<Piece>),
    /// There is no more.
    End(Accepted),
}

/// A copied chunk.
struct Piece {
    leaf: usize,
    index: u32,
    /// Its bytes in the block.
    run: Range<usize>,
}

impl Arena {
    /// The same leaf in memory of its own, unless it has shared its memory already.
    pub(crate) fn detach(&self, leaf: &Leaf<'_>) -> Result<Leaf<'static>> {
        let meta = leaf.meta().clone();
        let data = match leaf.data() {
            Data::Borrowed(contents) if !contents.is_empty() => Data::shared(self.copy(contents)?),
            data => data.into_owned(),
        };
        Ok(Leaf::from_parts(meta, data))
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
            let leaves = SourceLeaves::new(source, &structure, &self.options.compression)?;
            let plan = Plan { step, custom_metadata: options.checked_metadata()?, structure };
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
            let writer = self.lock_writer()?;
            let checked = self.check_free(plan.step, &options)?;
            let reuse = self.reuse(&writer, checked, &leaves)?;
            let mut batches = StagedBatches::new(&leaves, &reuse, parts);
            let encoder = Encoder { leaves: &leaves, reuse: &reuse };
            let contents = Contents { encoder, batches: &mut batches };
            let report = self.write(&writer, checked, &plan, &options, contents, Some(retention));
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
    whole: Vec<(usize, Data<'static>)>,
}

/// A block that is being filled.
struct Filling {
    block: Block,
    filled: usize,
    pieces: Vec<Piece>,
}

impl Filler<'_, '_> {
    fn leaf(&mut self, number: usize, leaf: &PlannedLeaf) -> Result<()> {
        match self.stager.leaves.contents.get(number).and_then(Option::as_ref) {
            Some(Data::Borrowed(bytes)) => {
                let bytes: &[u8] = bytes;
                for (index, run) in leaf.cuts() {
                    let (at, out) = self.room(run.len())?;
                    // A contents is as long as its leaf: that was checked.
                    out.copy_from_slice(bytes.get(run.clone()).unwrap_or_default());
                    self.add(number, index, at);
                }
            }
            Some(data) => self.whole.push((number, data.clone().into_owned())),
            None => {
                let source = self.stager.leaves.source;
                for (index, run) in leaf.cuts() {
                    let (at, out) = self.room(run.len())?;
                    read_run_into(source, leaf, run, out)?;
                    self.add(number, index, at);
                }
            }
        }
        Ok(())
    }

    /// Room for the next chunk in the block.
    fn room(&mut self, length: usize) -> Result<(Range<usize>, &mut [u8])> {
        let full = |filling: &Filling| filling.filled + length > filling.block.bytes().len();
        if self.block.as_ref().is_some_and(full) {
            self.flush();
        }
        if self.block.is_none() {
            let block = self.take()?;
            self.block = Some(Filling { block, filled: 0, pieces: Vec::new() });
        }
        let room = self.block.as_mut().and_then(|filling| {
            let at = filling.filled..filling.filled + length;
            Some((at.clone(), filling.block.bytes_mut().get_mut(at)?))
        });
        room.ok_or_else(|| Error::invalid(format!("a chunk of {length} bytes fits no block")))
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
            filling.pieces.push(Piece { leaf, index, run });
        }
    }

    /// Sends what was collected. Nobody receives it if the save has failed; its handle knows.
    fn flush(&mut self) {
        if let Some(Filling { block, pieces, .. }) = self.block.take() {
            let _ = self.stager.parts.send(Part::Copied(Arc::new(block), pieces));
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
    whole: std::vec::IntoIter<(usize, Data<'static>)>,
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

    /// The chunks of a whole leaf.
    fn chunks(&mut self, number: usize, data: Data<'static>) -> LeafChunks<'b, 'static> {
        let Some(leaf) = self.leaves.get(number) else { return Box::new(std::iter::empty()) };
        if let Some(memory) = self.memories.get_mut(number) {
            *memory = Memory::of(&data, true);
        }
        if let Some(unchanged) = self.reuse.unchanged(number, &data) {
            return Box::new(unchanged.into_iter());
        }
        let chunk =
            move |(index, run)| Chunk { leaf: number, index, raw: Raw::Shared(data.clone(), run) };
        Box::new(leaf.cuts().map(chunk))
    }
}

impl Batches<'static> for StagedBatches<'_> {
    fn next(&mut self) -> Result<Vec<Chunk<'static>>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES {
            if let Some(chunk) = self.rest.next() {
                bytes += chunk.raw.len();
                batch.push(chunk);
            } else if let Some((number, data)) = self.whole.next() {
                self.rest = self.chunks(number, data);
            } else if self.accepted.is_some() || !batch.is_empty() {
                break;
            } else {
                match self.parts.recv() {
                    Ok(Part::Whole(whole)) => self.whole = whole.into_iter(),
                    Ok(Part::Copied(block, pieces)) => {
                        let chunk = |Piece { leaf, index, run }| {
                            let raw = Raw::Staged(Arc::clone(&block), run);
                            Chunk { leaf, index, raw }
                        };
                        batch.extend(pieces.into_iter().map(chunk));
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
