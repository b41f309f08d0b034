//! Hosts that stand still while the process forks.

use std::sync::{Arc, MutexGuard};

use super::{Host, State};

/// A host whose engine nobody runs, for the time of a fork.
pub(crate) struct Held {
    // Unlocked before the host is given up.
    _guard: MutexGuard<'static, State>,
    _host: Arc<Host>,
}

impl Held {
    pub(crate) fn new(host: Arc<Host>) -> Self {
        let guard = host.lock();
        // SAFETY: the host lives as long as the guard, which this value drops first.
        let guard = unsafe { std::mem::transmute::<MutexGuard<'_, State>, MutexGuard<'static, State>>(guard) };
        Self {
            _guard: guard,
            _host: host,
        }
    }
}
