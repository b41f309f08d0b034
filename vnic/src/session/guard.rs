//! The backend object that the published daemon gets: passes every call on to the card's own, keeps a panic inside the port it
//! happened in, and ends the daemon's worker threads when the connection is over.
//!
//! The workers end through an event of the session's own: what the published crate does with `exit_event` keeps one file
//! descriptor open for ever, per worker and connection.

use std::any::Any;
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use vhost::vhost_user::Backend as BackendChannel;
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost_user_backend::VhostUserBackend;
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;

use super::SessionDevice;

/// Token of the event that ends a worker thread; no card has so many rings or listeners.
pub const STOP_TOKEN: u16 = u16::MAX;

/// Ends a connection from any thread, once.
#[derive(Debug)]
pub struct Ender {
    stream: UnixStream,
    ended: AtomicBool,
    failure: OnceLock<String>,
}

impl Ender {
    /// For the connection that `stream` belongs to.
    pub fn new(stream: &UnixStream) -> io::Result<Arc<Ender>> {
        Ok(Arc::new(Ender {
            stream: stream.try_clone()?,
            ended: AtomicBool::new(false),
            failure: OnceLock::new(),
        }))
    }

    /// Ends the connection because the port's own code failed; the first sentence counts.
    pub fn fail(&self, sentence: String) {
        self.failure.get_or_init(|| sentence);
        self.end();
    }

    /// What [`Self::fail`] was told, if it was.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Wakes every thread that reads from or writes to the frontend's socket; they then find the connection over.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Release);
        // Fails only when the peer is gone already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// True once the connection was ended.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// True if the frontend closed its end, or the connection was ended here.
    pub fn peer_is_gone(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::new(&self.stream, PollFlags::RDHUP)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.has_ended() || matches!(poll(&mut fds, Some(&now)), Ok(1..))
    }
}

/// What a panic said.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
}

/// The guarded backend of one connection.
pub struct Guarded<D: SessionDevice> {
    inner: D::Backend,
    ender: Arc<Ender>,
}

impl<D: SessionDevice> Clone for Guarded<D> {
    fn clone(&self) -> Self {
        Guarded {
            inner: self.inner.clone(),
            ender: Arc::clone(&self.ender),
        }
    }
}

impl<D: SessionDevice> Guarded<D> {
    /// Guards `inner`, which belongs to the connection of `ender`.
    pub fn new(inner: D::Backend, ender: Arc<Ender>) -> Self {
        Guarded { inner, ender }
    }

    /// Runs `call`; a panic ends this connection, is noted as its failure and gives `otherwise`.
    fn guard<R>(&self, otherwise: R, call: impl FnOnce(&D::Backend) -> R) -> R {
        match catch_unwind(AssertUnwindSafe(|| call(&self.inner))) {
            Ok(result) => result,
            Err(panic) => {
                self.ender
                    .fail(format!("the port's code panicked: {}", panic_text(&*panic)));
                otherwise
            }
        }
    }
}

fn panicked() -> io::Error {
    io::Error::other("the port's code panicked")
}

impl<D: SessionDevice> VhostUserBackend for Guarded<D> {
    type Bitmap = ();
    type Vring = super::SessionVring;

    fn num_queues(&self) -> usize {
        self.guard(0, |inner| inner.num_queues())
    }

    fn max_queue_size(&self) -> usize {
        self.guard(0, |inner| inner.max_queue_size())
    }

    fn features(&self) -> u64 {
        self.guard(0, |inner| inner.features())
    }

    fn acked_features(&self, features: u64) {
        self.guard((), |inner| inner.acked_features(features));
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        self.guard(VhostUserProtocolFeatures::empty(), |inner| inner.protocol_features())
    }

    fn reset_device(&self) {
        self.guard((), |inner| inner.reset_device());
    }

    fn set_event_idx(&self, enabled: bool) {
        self.guard((), |inner| inner.set_event_idx(enabled));
    }

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        self.guard(Vec::new(), |inner| inner.get_config(offset, size))
    }

    fn set_config(&self, offset: u32, bytes: &[u8]) -> io::Result<()> {
        self.guard(Err(panicked()), |inner| inner.set_config(offset, bytes))
    }

    fn update_memory(&self, memory: GuestMemoryAtomic<GuestMemoryMmap>) -> io::Result<()> {
        self.guard(Err(panicked()), |inner| inner.update_memory(memory))
    }

    fn set_backend_req_fd(&self, channel: BackendChannel) {
        self.guard((), |inner| inner.set_backend_req_fd(channel));
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        self.guard(Vec::new(), |inner| inner.queues_per_thread())
    }

    fn stop_vring(&self, index: u32) -> io::Result<()> {
        self.guard(Err(panicked()), |inner| inner.stop_vring(index))
    }

    fn handle_event(&self, event: u16, set: EventSet, vrings: &[Self::Vring], thread: usize) -> io::Result<()> {
        if event == STOP_TOKEN {
            // An error is what ends the worker's loop.
            return Err(io::Error::other("the connection is over"));
        }
        if self.ender.has_ended() {
            // The kick was taken. The frontend is not to find it, and nothing is done for it.
            return Ok(());
        }
        self.guard(Err(panicked()), |inner| inner.handle_event(event, set, vrings, thread))
    }
}
