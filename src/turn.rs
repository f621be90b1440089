//! A mutex that knows who works for its holder. A save calls code of its user: sources of leaves,
//! policies. Where such code would wait for the save that called it, it is told instead.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard};

thread_local! {
    /// The mutexes that this thread holds or works for, by their addresses: a mutex stays where it is
    /// for as long.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// A mutex that is not waited for by who holds it.
pub(crate) struct TurnMutex<T>(Mutex<T>);

impl<T> TurnMutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits until it is free; `None` if this thread holds it, or works for the one that does.
    pub(crate) fn lock(&self) -> Option<Turn<'_, T>> {
        if self.is_held_here() {
            return None;
        }
        let guard = self.0.lock();
        Some(Turn { guard, _mark: Mark::new(self) })
    }

    /// Makes this thread count as the holder, for one that the holder waits for.
    pub(crate) fn count_as_held(&self) -> Mark<'_> {
        Mark::new(self)
    }

    /// Whether this thread holds it, or works for the one that does.
    pub(crate) fn is_held_here(&self) -> bool {
        with_held(|held| held.contains(&self.address())).unwrap_or(false)
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(&self.0).addr()
    }
}

/// A [`TurnMutex`] that is held.
pub(crate) struct Turn<'m, T> {
    guard: MutexGuard<'m, T>,
    _mark: Mark<'m>,
}

impl<T> Deref for Turn<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Turn<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// What makes a thread count as the holder. It stays in that thread.
pub(crate) struct Mark<'m> {
    address: usize,
    thread: PhantomData<(&'m (), *const ())>,
}

impl<'m> Mark<'m> {
    fn new<T>(mutex: &'m TurnMutex<T>) -> Self {
        let address = mutex.address();
        with_held(|held| held.push(address));
        Self { address, thread: PhantomData }
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        with_held(|held| {
            if let Some(place) = held.iter().rposition(|address| *address == self.address) {
                held.remove(place);
            }
        });
    }
}

/// What a thread holds, for others that it waits for.
#[derive(Clone)]
pub(crate) struct Turns(Vec<usize>);

impl Turns {
    pub(crate) fn of_this_thread() -> Self {
        Self(with_held(|held| held.clone()).unwrap_or_default())
    }

    /// Makes this thread, which does nothing else and then ends, work for the other one.
    pub(crate) fn work_for(self) {
        with_held(|held| *held = self.0);
    }
}

/// `None` in a thread that is being torn down, where nothing of ours is held.
fn with_held<R>(operation: impl FnOnce(&mut Vec<usize>) -> R) -> Option<R> {
    HELD.try_with(|held| operation(&mut held.borrow_mut())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn who_holds_it_or_works_for_the_holder_does_not_wait() {
        let (one, other) = (TurnMutex::new(1), TurnMutex::new(2));
        let mut first = one.lock().unwrap();
        let second = other.lock().unwrap();
        *first += 4;
        assert!(one.lock().is_none() && other.lock().is_none());
        let turns = Turns::of_this_thread();
        thread::scope(|scope| {
            let held = |turns: Option<Turns>| {
                if let Some(turns) = turns {
                    turns.work_for();
                }
                (one.is_held_here(), one.lock().is_none())
            };
            let helper = scope.spawn(move || held(Some(turns)));
            assert_eq!(helper.join().unwrap(), (true, true));
        });
        // In another order than they were taken.
        drop(first);
        assert!(!one.is_held_here() && other.is_held_here());
        drop(second);
        assert!(!other.is_held_here());
        assert_eq!(*one.lock().unwrap(), 5);
        let stranger = thread::scope(|scope| {
            let _held = one.lock().unwrap();
            scope.spawn(|| one.is_held_here()).join().unwrap()
        });
        assert!(!stranger);
    }
}
