//! The background writer: saves that were accepted are written by one thread, in their order.
//!
//! * One call at a time accepts a save; it holds `turn` until the contents are copied. It waits for
//!   nothing but the writer, and the writer waits for nothing that a caller holds.
//! * The writer begins with a save when its contents are copied, or when copying has to wait for the
//!   writer: a copy beside a write would be slower, and the trainer waits for the copy.
//! * What a save does to the store it does in the writer's thread, so a failed save leaves nothing.

mod handle;
mod queue;
#[cfg(test)]
mod tests;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::keep_policy::victims;
use super::save_policy::LatestSave;
use super::{ManagerOptions, SaveOutcome, SkipReason, WhenFull};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{Admission, Arena, CheckpointStore, SaveOptions, StagedSave, StepInfo};
use crate::tree::LeafSource;
use crate::turn::{Turn, TurnMutex};
use handle::Slot;
use queue::{Job, Queue, Staging};

pub use handle::SaveHandle;

/// A store, and the thread that writes to it.
pub(super) struct Background {
    shared: Arc<Shared>,
    /// Held by the call that changes the store or accepts a save.
    turn: TurnMutex<()>,
    writer: Mutex<Option<JoinHandle<()>>>,
}

pub(super) struct Shared {
    pub(super) store: CheckpointStore,
    pub(super) options: ManagerOptions,
    pub(super) arena: Arena,
    queue: Mutex<Queue>,
    /// The queue changed.
    changed: Condvar,
}

impl Background {
    pub(super) fn new(store: CheckpointStore, options: ManagerOptions) -> Self {
        let arena = Arena::new(options.staging_budget_bytes);
        let (queue, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { store, options, arena, queue, changed });
        Self { shared, turn: TurnMutex::new(()), writer: Mutex::new(None) }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Waits until no other call accepts a save. A policy or a source of leaves that is called by
    /// a save would wait for itself, so it is refused.
    pub(super) fn take_turn(&self) -> Result<Turn<'_, ()>> {
        self.check_not_within()?;
        self.turn.lock().ok_or_else(|| self.shared.store.in_a_save())
    }

    fn check_not_within(&self) -> Result<()> {
        let current = thread::current().id();
        let is_writer = self.writer.lock().as_ref().map(|writer| writer.thread().id());
        let store = &self.shared.store;
        if self.turn.is_held_here() || store.is_in_a_write() || is_writer == Some(current) {
            return Err(store.in_a_save());
        }
        Ok(())
    }

    /// The error of an earlier save that no later one has returned, instead of saving `step`.
    pub(super) fn earlier_error(&self, step: u64) -> Result<()> {
        self.shared.queue.lock().tell_save(step)
    }

    /// The saves that are under way.
    pub(super) fn under_way(&self) -> Vec<LatestSave> {
        self.shared.queue.lock().under_way().collect()
    }

    /// Waits until the saves accepted so far are finished; their errors stay to be told. A policy or a
    /// source of leaves that is called by one of them does not wait for it.
    pub(super) fn drain(&self) {
        if self.check_not_within().is_ok() {
            self.finish_others();
        }
    }

    /// Waits until the saves accepted so far are finished, for a call that has its turn.
    pub(super) fn finish_others(&self) {
        drop(self.drained());
    }

    /// Waits until the saves accepted so far are finished, but not beyond `deadline`; `None` is no limit.
    pub(super) fn drain_until(&self, deadline: Option<Instant>) -> Result<()> {
        self.check_not_within()?;
        let mut queue = self.shared.queue.lock();
        let accepted = queue.accepted();
        while !queue.has_finished(accepted) {
            match deadline {
                Some(deadline) => {
                    if self.shared.changed.wait_until(&mut queue, deadline).timed_out() {
                        break;
                    }
                }
                None => self.shared.changed.wait(&mut queue),
            }
        }
        Ok(())
    }

    fn drained(&self) -> MutexGuard<'_, Queue> {
        let mut queue = self.shared.queue.lock();
        let accepted = queue.accepted();
        while !queue.has_finished(accepted) {
            self.shared.changed.wait(&mut queue);
        }
        queue
    }

    /// Waits until the saves accepted so far are finished, and tells the oldest error that was not
    /// told here.
    pub(super) fn wait_until_finished(&self) -> Result<()> {
        self.check_not_within()?;
        self.drained().tell_wait()
    }

    /// Accepts a save that was decided on: checks it, finds a place for it, and copies what is
    /// borrowed. The caller has taken its turn.
    pub(super) fn accept(
        &self,
        step: u64,
        source: &dyn LeafSource,
        options: &SaveOptions,
    ) -> Result<SaveHandle> {
        let shared = &*self.shared;
        let accepted_at = SystemTime::now();
        // The writer may wait for the source.
        let _mark = shared.store.count_as_writing();
        let (mut stager, save) = shared.store.stage(step, source, options)?;
        self.start_writer()?;
        let Some(waited) = shared.find_place(step, options.admission) else {
            return Ok(SaveHandle::skipped(step, SkipReason::QueueFull));
        };
        stager.waited(waited);
        let slot = Arc::<Slot>::default();
        let admission = options.admission;
        shared.queue.lock().push(|number| Job {
            number,
            step,
            accepted_at,
            admission,
            save,
            slot: Arc::clone(&slot),
        });
        let mut copying = Copying { shared, complete: false };
        // The writer may begin already, since nothing comes free otherwise.
        let stuck = || shared.set_staging_done();
        let copied = stager.run(&shared.arena, &stuck);
        copied.map_err(|error| error.at_step(step).in_file(shared.store.path()))?;
        copying.complete = true;
        drop(copying);
        Ok(SaveHandle::new(step, slot))
    }

    fn start_writer(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        if writer.is_none() {
            let shared = Arc::clone(&self.shared);
            let name = thread::Builder::new().name("milepost-writer".to_owned());
            let started = name.spawn(move || shared.write_all());
            *writer = Some(started.map_err(|error| {
                Error::from_io(error, "can't start the thread of the background writer")
                    .in_file(self.shared.store.path())
            })?);
        }
        Ok(())
    }
}

impl Drop for Background {
    /// Finishes what was accepted.
    fn drop(&mut self) {
        self.shared.queue.lock().closing = true;
        self.shared.changed.notify_all();
        let Some(writer) = self.writer.get_mut().take() else { return };
        // A policy that holds the manager may be the last one that does.
        if writer.thread().id() != thread::current().id() {
            // It catches its panics.
            let _ = writer.join();
        }
        while let Err(error) = self.shared.queue.lock().tell_wait() {
            tracing::error!(%error, "a save in the background failed");
        }
    }
}

/// A save whose contents are being copied. One that ends before they are is taken back.
struct Copying<'c> {
    shared: &'c Shared,
    complete: bool,
}

impl Drop for Copying<'_> {
    fn drop(&mut self) {
        let mut queue = self.shared.queue.lock();
        if !self.complete && queue.staging == Staging::Going {
            // The writer does not have it yet.
            drop(queue.withdraw());
        }
        queue.staging = Staging::Done;
        self.shared.changed.notify_all();
        // If the writer has it, it notices that nothing more comes.
        while !self.complete && !queue.has_finished(queue.accepted()) {
            self.shared.changed.wait(&mut queue);
        }
    }
}

impl Shared {
    fn set_staging_done(&self) {
        self.queue.lock().staging = Staging::Done;
        self.changed.notify_all();
    }

    /// Finds a place in the queue, and says how long that took; `None` if there is none and the save
    /// is to be skipped then.
    fn find_place(&self, step: u64, admission: Admission) -> Option<Duration> {
        let began = Instant::now();
        let mut queue = self.queue.lock();
        while queue.under_way().count() > self.options.queue_length {
            if self.options.when_full == WhenFull::Skip && admission == Admission::ByPolicy {
                return None;
            }
            if self.options.when_full == WhenFull::KeepNewest && queue.supersede(step) {
                self.changed.notify_all();
            } else {
                self.changed.wait(&mut queue);
            }
        }
        Some(began.elapsed())
    }

    /// Writes saves until the manager is gone and there are no more. The thread of the writer.
    fn write_all(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(Job { step, admission, save, slot, .. }) = queue.next() {
                drop(queue);
                let outcome = self.write(step, save, admission);
                let error = outcome.as_ref().err().cloned();
                if let Some(outcome) = outcome.transpose() {
                    slot.settle(outcome);
                }
                queue = self.queue.lock();
                queue.finish(error);
                self.changed.notify_all();
            } else if queue.closing {
                return;
            } else {
                self.changed.wait(&mut queue);
            }
        }
    }

    /// Writes a save; `None` if its contents could not be copied to their end: its caller knows why.
    fn write(
        &self,
        step: u64,
        save: StagedSave,
        admission: Admission,
    ) -> Result<Option<SaveOutcome>> {
        let keep = &*self.options.keep;
        let retention = |steps: &[StepInfo]| victims(keep, steps, SystemTime::now());
        let save = || self.store.save_staged(save, &retention);
        match catch_unwind(AssertUnwindSafe(save)) {
            Ok(Ok(Some(report))) => SaveOutcome::new(Ok(report), admission).map(Some),
            Ok(Ok(None)) => Ok(None),
            Ok(Err(error)) => SaveOutcome::new(Err(error), admission).map(Some),
            Err(panic) => {
                let message = format!("the background writer panicked: {}", panic_text(&*panic));
                Err(Error::new(ErrorKind::Panicked, message)
                    .advise("see whether a policy did; every saved step is still there")
                    .at_step(step)
                    .in_file(self.store.path()))
            }
        }
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown")
}
