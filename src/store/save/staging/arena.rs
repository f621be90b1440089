//! The memory that borrowed leaves are copied into.
//!
//! It is made of blocks, and of memory for the whole leaves of snapshots. Both are kept and used
//! again: memory that was touched before takes a copy several times faster. All together is never
//! more than the budget.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::dtype::zeroed;
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_CHUNK_BYTES, MIN_STAGING_BUDGET_BYTES};
use crate::tree::Buffer;

/// The largest block: a small state takes one.
const MAX_BLOCK_BYTES: usize = 8 << 20;

/// Memory of at most a budget.
#[derive(Clone)]
pub(crate) struct Arena(Arc<Pool>);

struct Pool {
    block_bytes: usize,
    budget_bytes: usize,
    memory: Mutex<PoolMemory>,
    /// Memory came back.
    returned: Condvar,
}

#[derive(Default)]
struct PoolMemory {
    blocks: Vec<Vec<u8>>,
    wholes: Vec<Vec<u8>>,
    /// All that there is, taken or not.
    made_bytes: usize,
    /// What there is for whole leaves, taken or not.
    whole_bytes: usize,
}

/// A block; it goes back to the arena when it is dropped.
pub(crate) struct Block {
    memory: Vec<u8>,
    pool: Arc<Pool>,
}

/// Memory for a whole leaf; it goes back to the arena when it is dropped.
pub(super) struct Whole {
    memory: Vec<u8>,
    pool: Arc<Pool>,
}

impl Arena {
    /// An arena that never takes more than `budget_bytes`, at least [`MIN_STAGING_BUDGET_BYTES`].
    pub(crate) fn new(budget_bytes: usize) -> Self {
        let budget_bytes = budget_bytes.max(MIN_STAGING_BUDGET_BYTES);
        // A few blocks at least: while one is written, the next one is filled.
        let block_bytes = (budget_bytes / 4).clamp(MAX_CHUNK_BYTES, MAX_BLOCK_BYTES);
        let block_bytes = block_bytes.next_multiple_of(CHUNK_ALIGN_BYTES);
        let (memory, returned) = (Mutex::default(), Condvar::new());
        Self(Arc::new(Pool { block_bytes, budget_bytes, memory, returned }))
    }

    /// A block, if there is one to be had now.
    pub(super) fn try_take(&self) -> Result<Option<Block>> {
        let pool = &self.0;
        let mut memory = pool.memory.lock();
        if let Some(block) = memory.blocks.pop() {
            return Ok(Some(Block { memory: block, pool: Arc::clone(pool) }));
        }
        memory.make_room(pool.block_bytes, pool.budget_bytes);
        if memory.made_bytes + pool.block_bytes > pool.budget_bytes {
            return Ok(None);
        }
        let block = zeroed(pool.block_bytes)?;
        memory.made_bytes += pool.block_bytes;
        Ok(Some(Block { memory: block, pool: Arc::clone(pool) }))
    }

    /// A block, when there is one. Whole leaves leave room for two, so the writer always returns one.
    pub(super) fn take(&self) -> Result<Block> {
        loop {
            if let Some(block) = self.try_take()? {
                return Ok(block);
            }
            let mut memory = self.0.memory.lock();
            if memory.blocks.is_empty() && memory.wholes.is_empty() {
                self.0.returned.wait(&mut memory);
            }
        }
    }

    /// Memory with the contents of a whole leaf.
    pub(super) fn copy(&self, contents: &[u8]) -> Result<Whole> {
        let pool = &self.0;
        let mut memory = pool.memory.lock();
        let same = memory.wholes.iter().position(|whole| whole.len() == contents.len());
        let mut whole = if let Some(same) = same {
            memory.wholes.swap_remove(same)
        } else {
            let for_wholes = pool.budget_bytes - 2 * pool.block_bytes;
            memory.make_room(contents.len(), for_wholes);
            if memory.whole_bytes + contents.len() > for_wholes
                || memory.made_bytes + contents.len() > pool.budget_bytes
            {
                return Err(Error::new(
                    ErrorKind::OutOfMemory,
                    format!(
                        "the staging budget of {} bytes has no room for a copy of {} bytes: \
                         snapshots and saves that are on their way have {}",
                        pool.budget_bytes,
                        contents.len(),
                        memory.made_bytes
                    ),
                )
                .advise("wait until saves are finished, drop snapshots, or set a larger budget"));
            }
            let whole = zeroed(contents.len())?;
            memory.made_bytes += contents.len();
            memory.whole_bytes += contents.len();
            whole
        };
        drop(memory);
        whole.copy_from_slice(contents);
        Ok(Whole { memory: whole, pool: Arc::clone(pool) })
    }
}

impl PoolMemory {
    /// Gives memory that nobody has taken back to the system, until so many bytes more would stay
    /// within `budget_bytes`.
    fn make_room(&mut self, more_bytes: usize, budget_bytes: usize) {
        while self.made_bytes + more_bytes > budget_bytes {
            if let Some(whole) = self.wholes.pop() {
                self.made_bytes -= whole.len();
                self.whole_bytes -= whole.len();
            } else if let Some(block) = self.blocks.pop() {
                self.made_bytes -= block.len();
            } else {
                return;
            }
        }
    }
}

impl Block {
    pub(in crate::store::save) fn bytes(&self) -> &[u8] {
        &self.memory
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.pool.memory.lock().blocks.push(std::mem::take(&mut self.memory));
        self.pool.returned.notify_one();
    }
}

impl Buffer for Whole {
    fn bytes(&self) -> &[u8] {
        &self.memory
    }

    /// It would be missing in the budget.
    fn may_be_held(&self) -> bool {
        false
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        self.pool.memory.lock().wholes.push(std::mem::take(&mut self.memory));
        self.pool.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_come_back_and_are_never_more_than_the_budget() {
        for budget in [0, 1 << 20, 3 << 20, 1 << 30] {
            let arena = Arena::new(budget);
            let block_bytes = arena.0.block_bytes;
            assert!(block_bytes >= MAX_CHUNK_BYTES, "{block_bytes}");
            let taken = std::iter::from_fn(|| arena.try_take().unwrap()).take(300).count();
            assert!(taken >= 2, "{taken}");
            assert!(arena.0.memory.lock().made_bytes <= budget.max(MIN_STAGING_BUDGET_BYTES));
        }
        let arena = Arena::new(4 << 20);
        let mut taken: Vec<Block> = std::iter::from_fn(|| arena.try_take().unwrap()).collect();
        assert_eq!(taken.len(), 4);
        let address = taken.pop().unwrap().bytes().as_ptr();
        assert_eq!(arena.take().unwrap().bytes().as_ptr(), address);
    }

    #[test]
    fn whole_leaves_leave_room_for_blocks_and_unused_memory_makes_room() {
        let arena = Arena::new(4 << 20);
        let whole = arena.copy(&vec![7; 1 << 20]).unwrap();
        let address = whole.bytes().as_ptr();
        let error = arena.copy(&vec![7; (1 << 20) + 1]).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("1048577 bytes"), "{error}");
        let blocks = [arena.take().unwrap(), arena.take().unwrap()];
        drop(whole);
        let again = arena.copy(&vec![8; 1 << 20]).unwrap();
        assert_eq!(again.bytes().as_ptr(), address);
        assert!(again.bytes().iter().all(|byte| *byte == 8));
        drop((blocks, again));
        // Other sizes take the place of what nobody has.
        let others: Vec<Whole> = (0..4).map(|_| arena.copy(&vec![9; 500_000]).unwrap()).collect();
        assert!(arena.0.memory.lock().made_bytes <= 4 << 20);
        drop(others);
        let blocks: Vec<Block> = std::iter::from_fn(|| arena.try_take().unwrap()).collect();
        assert_eq!(blocks.len(), 4);
    }

    #[test]
    fn who_waits_gets_the_block_that_comes_back() {
        let arena = Arena::new(4 << 20);
        let taken: Vec<Block> = std::iter::from_fn(|| arena.try_take().unwrap()).collect();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| arena.take().unwrap().bytes().len());
            drop(taken);
            assert_eq!(waiting.join().unwrap(), arena.0.block_bytes);
        });
    }
}
