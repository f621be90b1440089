//! Packs → transactions: payload in waves.

use super::plan::page_bytes;
use crate::db::WriteTx;
use crate::error::Result;
use crate::limits::MAX_PACK_BYTES;

/// Writes packs, and commits them in waves that redb writes once. Packs of a wave belong to no step until
/// the last commit raises the mark over them.
pub(in crate::store) struct PackWriter<'d> {
    tx: WriteTx<'d>,
    /// Payload in `tx` so far, in bytes of pages.
    wave_bytes: usize,
    /// The number of the next pack that is in no stream.
    next: u64,
    last: Option<u64>,
}

impl<'d> PackWriter<'d> {
    /// Writes packs of which those from `next` on are free.
    pub(in crate::store) fn new(tx: WriteTx<'d>, next: u64) -> Self {
        Self { tx, wave_bytes: 0, next, last: None }
    }

    /// Writes a pack under the next number, which is returned.
    pub(in crate::store) fn write_next(&mut self, bytes: &[u8]) -> Result<u64> {
        let number = self.next;
        self.next += 1;
        self.write(number, bytes)?;
        Ok(number)
    }

    /// Writes a pack under a number of a stream, in a new wave if this one is full.
    pub(in crate::store) fn write(&mut self, number: u64, bytes: &[u8]) -> Result<()> {
        debug_assert!(bytes.len() <= MAX_PACK_BYTES);
        let page_bytes = page_bytes(bytes.len());
        if self.wave_bytes > 0 && self.wave_bytes + page_bytes > self.tx.wave_bytes() {
            self.tx.commit_wave()?;
            self.wave_bytes = 0;
        }
        self.tx.insert_pack(number, bytes)?;
        self.last = self.last.max(Some(number));
        self.wave_bytes += page_bytes;
        Ok(())
    }

    /// The open transaction, and the highest number that was written.
    pub(in crate::store) fn finish(self) -> (WriteTx<'d>, Option<u64>) {
        (self.tx, self.last)
    }
}
