//! Work on several threads.

use std::thread;

use crate::error::Result;

/// Runs `work` on this thread and on up to `threads - 1` others, and waits for all of them. What there
/// is to do they share among themselves, so that one of them alone does all of it.
///
/// # Errors
/// That of one of them.
pub(super) fn on_threads(threads: usize, work: impl Fn() -> Result<()> + Sync) -> Result<()> {
    if threads <= 1 {
        return work();
    }
    thread::scope(|scope| {
        // Where there are no threads to be had, this one does the work.
        let spawn = |_| thread::Builder::new().spawn_scoped(scope, &work).ok();
        let helpers: Vec<_> = (1..threads).map_while(spawn).collect();
        let mut result = work();
        for helper in helpers {
            // A panic in a helper is our own bug, or the caller's: it goes on here.
            let other = helper.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            result = result.and(other);
        }
        result
    })
}
