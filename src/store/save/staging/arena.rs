//! The memory that borrowed leaves are copied into.
//!
//! It is made of blocks that are kept and used again: memory that was touched before takes a copy
//! several times faster. All blocks together are never more than the budget.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::dtype::zeroed;
use crate::error::Result;
use crate::limits::{CHUNK_ALIGN_BYTES, MAX_CHUNK_BYTES, MIN_STAGING_BUDGET_BYTES};

/// The largest block: a small state takes one.
const MAX_BLOCK_BYTES: usize = 8 << 20;

/// Blocks of memory, at most as many as the budget allows.
#[derive(Clone)]
pub(crate) struct Arena(Arc<Pool>);

struct Pool {
    block_bytes: usize,
    max_blocks: usize,
    blocks: Mutex<Blocks>,
    /// A block came back.
    returned: Condvar,
}

#[derive(Default)]
struct Blocks {
    free: Vec<Vec<u8>>,
    made: usize,
}

/// A block; it goes back to the arena when it is dropped.
pub(crate) struct Block {
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
        Self(Arc::new(Pool {
            block_bytes,
            max_blocks: budget_bytes / block_bytes,
            blocks: Mutex::default(),
            returned: Condvar::new(),
        }))
    }

    /// A block, if there is one to be had now.
    pub(super) fn try_take(&self) -> Result<Option<Block>> {
        let mut blocks = self.0.blocks.lock();
        if let Some(memory) = blocks.free.pop() {
            return Ok(Some(self.block(memory)));
        }
        if blocks.made == self.0.max_blocks {
            return Ok(None);
        }
        blocks.made += 1;
        drop(blocks);
        match zeroed(self.0.block_bytes) {
            Ok(memory) => Ok(Some(self.block(memory))),
            Err(error) => {
                self.0.blocks.lock().made -= 1;
                Err(error)
            }
        }
    }

    /// A block, when there is one.
    pub(super) fn take(&self) -> Result<Block> {
        loop {
            if let Some(block) = self.try_take()? {
                return Ok(block);
            }
            let mut blocks = self.0.blocks.lock();
            if blocks.free.is_empty() {
                self.0.returned.wait(&mut blocks);
            }
        }
    }

    fn block(&self, memory: Vec<u8>) -> Block {
        Block { memory, pool: Arc::clone(&self.0) }
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
        self.pool.blocks.lock().free.push(std::mem::take(&mut self.memory));
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
            let Pool { block_bytes, max_blocks, .. } = *arena.0;
            assert!(block_bytes >= MAX_CHUNK_BYTES, "{block_bytes}");
            assert!(max_blocks >= 2, "{max_blocks}");
            assert!(block_bytes * max_blocks <= budget.max(MIN_STAGING_BUDGET_BYTES));
        }
        let arena = Arena::new(4 << 20);
        let mut taken: Vec<Block> = std::iter::from_fn(|| arena.try_take().unwrap()).collect();
        assert_eq!(taken.len(), arena.0.max_blocks);
        let address = taken.pop().unwrap().bytes().as_ptr();
        assert_eq!(arena.take().unwrap().bytes().as_ptr(), address);
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
