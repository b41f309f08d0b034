//! A lock for objects of a domain. It costs nothing where the program has promised that it makes one call of the domain's
//! objects at a time (`FI_THREAD_DOMAIN`): the atomic operations of four mutexes are a tenth of the latency inside a host.

use std::{
    cell::UnsafeCell,
    ops::{Deref, DerefMut},
    sync::{
        Mutex, MutexGuard, PoisonError, TryLockError,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

/// Who makes sure that one thread at a time uses an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Threads {
    /// The program calls from any thread.
    Any,
    /// The program makes one call of the domain's objects at a time.
    OneAtATime,
}

enum Holder {
    Mutex(Mutex<()>),
    /// The object is in use. Only the program's promise makes this enough.
    Flag(AtomicBool),
}

/// A value that one thread at a time uses.
pub(crate) struct Lock<T> {
    holder: Holder,
    value: UnsafeCell<T>,
}

// SAFETY: a guard is the only access to the value, and there is one at a time: the mutex sees to it, or the program does.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to use the value of a lock.
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
    _mutex: Option<MutexGuard<'a, ()>>,
}

impl<T> Lock<T> {
    pub(crate) const fn new(threads: Threads, value: T) -> Self {
        let holder = match threads {
            Threads::Any => Holder::Mutex(Mutex::new(())),
            Threads::OneAtATime => Holder::Flag(AtomicBool::new(false)),
        };
        Self {
            holder,
            value: UnsafeCell::new(value),
        }
    }

    /// Returns the value, once no other thread has it.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let mutex = match &self.holder {
            Holder::Mutex(mutex) => Some(mutex.lock().unwrap_or_else(PoisonError::into_inner)),
            Holder::Flag(flag) => {
                while !take(flag) {
                    thread::yield_now();
                }
                None
            }
        };
        Guard {
            lock: self,
            _mutex: mutex,
        }
    }

    /// Returns the value, unless it is in use.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let mutex = match &self.holder {
            Holder::Mutex(mutex) => match mutex.try_lock() {
                Ok(guard) => Some(guard),
                Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => return None,
            },
            Holder::Flag(flag) if take(flag) => None,
            Holder::Flag(_) => return None,
        };
        Some(Guard {
            lock: self,
            _mutex: mutex,
        })
    }
}

/// Sets a flag that only one thread at a time touches. False: it was set.
#[inline]
fn take(flag: &AtomicBool) -> bool {
    let is_free = !flag.load(Ordering::Acquire);
    flag.store(true, Ordering::Relaxed);
    is_free
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Holder::Flag(flag) = &self.lock.holder {
            flag.store(false, Ordering::Release);
        }
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this is the only guard of the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_guard_exists_at_a_time_whoever_sees_to_it() {
        for threads in [Threads::Any, Threads::OneAtATime] {
            let lock = Lock::new(threads, 1);
            let mut guard = lock.lock();
            *guard += 1;
            assert!(lock.try_lock().is_none(), "{threads:?}");
            drop(guard);
            assert_eq!(*lock.try_lock().expect("it is free"), 2);
        }
    }

    #[test]
    fn threads_that_promise_nothing_wait_for_each_other() {
        let lock = Lock::new(Threads::Any, 0_u64);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        let mut guard = lock.lock();
                        let before = *guard;
                        *guard = before + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock(), 40_000);
    }
}
