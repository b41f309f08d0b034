//! Threads that wait for the Ethernet port: the one that leads sleeps on the port itself, the others behind it.

use std::sync::{Arc, atomic::Ordering};

use esp::ConnectionId;
use libc::{pollfd, sigset_t};

use crate::{
    errno::Errno,
    host::{Host, now},
    system,
    waiter::Waiter,
};

/// The pause after which a full port is tried again.
const UNSENT_PAUSE_NS: u64 = 50_000;
/// The pause after which a port is tried again whose interface is switched off.
const DOWN_PAUSE_NS: u64 = 10_000_000;

/// A thread that is about to sleep; taken back when it woke.
struct Asleep<'a> {
    host: &'a Host,
    waiter: Arc<Waiter>,
    leads: bool,
}

impl Host {
    /// Serves the engine without a call. Returns the nanoseconds until it wants to be served again without a frame.
    pub(crate) fn serve_once(&self) -> Option<u64> {
        let mut state = self.lock();
        let now = now();
        state.receive(now);
        state.settle();
        state.transmit(now);
        state.settle();
        if state.port.is_full() {
            return Some(UNSENT_PAUSE_NS);
        }
        if state.port.arm() {
            state.engine.poll_timeout().map(|at| at.nanos_since(now))
        } else {
            Some(if state.port.is_down() { DOWN_PAUSE_NS } else { 0 })
        }
    }

    /// Sleeps until a frame comes, something happens to one of `ids`, one of `fds` is ready, or `limit_ns` are over; not at all if
    /// anything happened since [`changes`](Self::changes) was `seen`, which is read before the caller looks whether it has to wait.
    ///
    /// # Errors
    /// `EINTR` after a signal.
    pub(crate) fn sleep(
        &self,
        seen: u64,
        ids: &[ConnectionId],
        fds: &mut Vec<pollfd>,
        limit_ns: Option<u64>,
        mask: *const sigset_t,
    ) -> Result<(), Errno> {
        let waiter = Waiter::of_thread()?;
        let count = fds.len();
        let mut state = self.lock();
        state.settle();
        let now = now();
        let may_sleep = state.port.arm();
        let due = state.engine.poll_timeout().map(|at| at.nanos_since(now));
        if !may_sleep || due == Some(0) || self.changes() != seen {
            return Ok(());
        }
        for id in ids {
            state.connection(*id).waiters.push(waiter.clone());
        }
        let leads = state.leader.is_none();
        if leads {
            state.leader = Some(waiter.clone());
        } else {
            state.followers.push(waiter.clone());
        }
        let wants_room = state.port.is_full();
        drop(state);
        let limit_ns = if leads {
            [due, limit_ns].into_iter().flatten().min()
        } else {
            limit_ns
        };
        fds.push(pollfd {
            fd: waiter.fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        if leads {
            fds.push(pollfd {
                fd: self.packet_fd(),
                events: if wants_room {
                    libc::POLLIN | libc::POLLOUT
                } else {
                    libc::POLLIN
                },
                revents: 0,
            });
            self.serving.fetch_add(1, Ordering::SeqCst);
        }
        let woken = system::poll(fds, limit_ns, mask);
        fds.truncate(count);
        waiter.reset();
        let asleep = Asleep {
            host: self,
            waiter,
            leads,
        };
        asleep.get_up(ids);
        woken.map(drop)
    }
}

impl Asleep<'_> {
    fn get_up(self, ids: &[ConnectionId]) {
        let mut state = self.host.lock();
        for id in ids {
            if let Some(connection) = state.connections.get_mut(id)
                && let Some(at) = connection.waiters.iter().position(|one| Arc::ptr_eq(one, &self.waiter))
            {
                connection.waiters.swap_remove(at);
            }
        }
        if self.leads {
            self.host.serving.fetch_sub(1, Ordering::SeqCst);
            state.leader = None;
            if let Some(next) = state.followers.first() {
                next.wake();
            }
        } else {
            state.followers.retain(|one| !Arc::ptr_eq(one, &self.waiter));
        }
        drop(state);
        self.host.note_activity();
    }
}
