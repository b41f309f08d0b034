//! The endpoints whose progress a queue or a counter makes when a program reads it.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

/// What can make progress.
pub(crate) trait Progress: Send + Sync {
    /// Makes progress, unless another thread makes it just now.
    fn progress(&self);

    /// Returns how often [`Self::wake`] was called.
    fn wakes(&self) -> u64;

    /// Blocks until there may be something to do, the time has passed, or [`Self::wake`] was called more than `wakes` times.
    fn wait(&self, wakes: u64, limit: Option<Duration>);

    /// Ends [`Self::wait`] of other threads.
    fn wake(&self);
}

/// The endpoints that are bound to an object.
#[derive(Default)]
pub(crate) struct BoundEndpoints {
    list: Mutex<Vec<Arc<dyn Progress>>>,
    /// The threads that wait for something to happen to the object.
    waiting: AtomicU32,
}

/// A thread that waits for something to happen to an object. Who makes it happen [sees](BoundEndpoints::has_waiters) the
/// thread, and wakes the endpoint.
pub(crate) struct Waiter<'a> {
    endpoints: &'a BoundEndpoints,
    /// The endpoint that the thread sleeps on, and how often it had been woken before the object was looked at.
    on: Option<(Arc<dyn Progress>, u64)>,
}

impl Waiter<'_> {
    /// Begins to wait, or goes on: the object is to be looked at next, and what happens to it later is not missed.
    pub(crate) fn prepare(&mut self) {
        self.on = match self.endpoints.list().as_slice() {
            [one] => Some((Arc::clone(one), one.wakes())),
            _ => None,
        };
    }

    /// Blocks until something may have happened, or the time has passed.
    pub(crate) fn sleep(&self, limit: Option<Duration>) {
        match &self.on {
            Some((endpoint, wakes)) => endpoint.wait(*wakes, limit),
            None => thread::yield_now(),
        }
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.endpoints.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl BoundEndpoints {
    fn list(&self) -> MutexGuard<'_, Vec<Arc<dyn Progress>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an endpoint, unless it is there.
    pub(crate) fn add(&self, endpoint: &Arc<dyn Progress>) {
        let mut endpoints = self.list();
        if !endpoints.iter().any(|other| Arc::ptr_eq(other, endpoint)) {
            endpoints.push(Arc::clone(endpoint));
        }
        drop(endpoints);
        // A thread that sleeps on one of them is to see to the others, too.
        self.wake();
    }

    /// Removes an endpoint that is closed.
    pub(crate) fn remove(&self, endpoint: &Arc<dyn Progress>) {
        self.list().retain(|other| !Arc::ptr_eq(other, endpoint));
    }

    /// Makes progress, unless another thread makes it just now.
    pub(crate) fn progress(&self) {
        if let Ok(endpoints) = self.list.try_lock() {
            for endpoint in &*endpoints {
                endpoint.progress();
            }
        }
    }

    /// Counts a thread that is going to wait.
    pub(crate) fn waiter(&self) -> Waiter<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Waiter {
            endpoints: self,
            on: None,
        }
    }

    /// Whether a thread waits, which is to be woken when something has happened to the object.
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Ends the waiting of other threads.
    pub(crate) fn wake(&self) {
        for endpoint in &*self.list() {
            endpoint.wake();
        }
    }
}
