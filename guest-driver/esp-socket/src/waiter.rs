//! Threads that sleep until something happens to a connection.

use std::{
    cell::RefCell,
    os::fd::{AsRawFd, RawFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{errno::Errno, own_fds::OwnFd, system};

/// What a thread sleeps on.
#[derive(Debug)]
pub(crate) struct Waiter {
    event: OwnFd,
    signalled: AtomicBool,
}

thread_local! {
    /// The thread's own one, with the process that made it: a forked child has another process's.
    static OWN: RefCell<Option<(u32, Arc<Waiter>)>> = const { RefCell::new(None) };
}

impl Waiter {
    pub(crate) fn new() -> Result<Arc<Self>, Errno> {
        Ok(Arc::new(Self {
            event: system::event()?,
            signalled: AtomicBool::new(false),
        }))
    }

    /// Returns the calling thread's.
    pub(crate) fn of_thread() -> Result<Arc<Self>, Errno> {
        let process = crate::processes::generation();
        let known = OWN.try_with(|own| {
            let own = own.borrow();
            own.as_ref()
                .filter(|(of, _)| *of == process)
                .map(|(_, waiter)| waiter.clone())
        });
        if let Ok(Some(waiter)) = known {
            return Ok(waiter);
        }
        let waiter = Self::new()?;
        // A thread that ends has no place for it any more; it is made anew then.
        let _ = OWN.try_with(|own| *own.borrow_mut() = Some((process, waiter.clone())));
        Ok(waiter)
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        if !self.signalled.swap(true, Ordering::AcqRel) {
            system::signal(&self.event);
        }
    }

    /// Forgets that the thread was to be woken, after it woke.
    pub(crate) fn reset(&self) {
        if self.signalled.load(Ordering::Acquire) {
            system::clear(&self.event);
            self.signalled.store(false, Ordering::Release);
        }
    }

    /// Returns the descriptor that becomes readable.
    pub(crate) fn fd(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}
