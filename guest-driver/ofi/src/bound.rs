//! The endpoints whose progress a queue or a counter makes when a program reads it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::Duration,
};

/// What can make progress.
pub(crate) trait Progress: Send + Sync {
    /// Makes progress, unless another thread makes it just now.
    fn progress(&self);

    /// Blocks until there may be something to do, or the time has passed.
    fn wait(&self, limit: Option<Duration>);

    /// Ends [`Self::wait`] of other threads.
    fn wake(&self);
}

/// The endpoints that are bound to an object.
#[derive(Default)]
pub(crate) struct BoundEndpoints(Mutex<Vec<Arc<dyn Progress>>>);

impl BoundEndpoints {
    /// Adds an endpoint, unless it is there.
    pub(crate) fn add(&self, endpoint: &Arc<dyn Progress>) {
        let mut endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !endpoints.iter().any(|other| Arc::ptr_eq(other, endpoint)) {
            endpoints.push(Arc::clone(endpoint));
        }
    }

    /// Removes an endpoint that is closed.
    pub(crate) fn remove(&self, endpoint: &Arc<dyn Progress>) {
        let mut endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        endpoints.retain(|other| !Arc::ptr_eq(other, endpoint));
    }

    /// Makes progress, unless another thread makes it just now.
    pub(crate) fn progress(&self) {
        if let Ok(endpoints) = self.0.try_lock() {
            for endpoint in &*endpoints {
                endpoint.progress();
            }
        }
    }

    /// Blocks until an endpoint may have something, or the time has passed.
    pub(crate) fn wait(&self, limit: Option<Duration>) {
        let endpoints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let one = match &**endpoints {
            [one] => Some(Arc::clone(one)),
            _ => None,
        };
        drop(endpoints);
        match one {
            Some(endpoint) => endpoint.wait(limit),
            None => thread::yield_now(),
        }
    }

    /// Ends [`Self::wait`] of other threads.
    pub(crate) fn wake(&self) {
        for endpoint in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            endpoint.wake();
        }
    }
}
