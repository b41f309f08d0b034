//! The one thread of the control plane. It waits for listeners, clients, timers and wake-ups on one `EventManager`, and calls the
//! subscriber that asked for them. What it calls returns at once: whatever has to wait asks for a timer. Only the connection of a card has threads of
//! its own, as the published daemon that serves it blocks.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};
use std::time::Duration;

use event_manager::{EventManager, EventOps, EventSet, Events, MutEventSubscriber};
use event_manager::{RemoteEndpoint, SubscriberId};
use rustix::net::{SocketFlags, accept_with};
use vmm_sys_util::timerfd::TimerFd;

/// What is called when its events come.
pub trait Subscriber: MutEventSubscriber + Send {
    /// It is about to be dropped, together with others: what takes a while may begin.
    fn ask_to_end(&mut self) {}
}

/// The thread. It ends with the last clone and the last [`Subscription`].
#[derive(Clone)]
pub struct EventThread(Arc<Running>);

struct Running(RemoteEndpoint<Box<dyn Subscriber>>);

impl Drop for Running {
    fn drop(&mut self) {
        // Fails only when the counter is full, and then the thread is awake.
        let _ = self.0.kick();
    }
}

impl EventThread {
    /// Starts it.
    ///
    /// # Errors
    /// The system's, if it gives no thread or nothing to wait with.
    pub fn start() -> io::Result<Self> {
        let mut manager = EventManager::<Box<dyn Subscriber>>::new().map_err(io::Error::other)?;
        let running = Arc::new(Running(manager.remote_endpoint()));
        let wanted = Arc::downgrade(&running);
        let serve = move || {
            while Weak::strong_count(&wanted) != 0 {
                match catch_unwind(AssertUnwindSafe(|| manager.run())) {
                    Ok(Ok(_)) => {}
                    Ok(Err(error)) => return tracing::error!("the control plane cannot wait and ends: {error}"),
                    Err(_) => tracing::error!("an internal error (a panic) in the control plane's thread; it goes on"),
                }
            }
        };
        std::thread::Builder::new().name("control".to_owned()).spawn(serve)?;
        Ok(Self(running))
    }

    /// Calls `subscriber` from now on, until what this returns is dropped.
    ///
    /// # Errors
    /// The thread has ended.
    pub fn add(&self, subscriber: impl Subscriber + 'static) -> io::Result<Subscription> {
        let endpoint = &self.0.0;
        let id = endpoint.call_blocking(|ops| event_manager::Result::Ok(ops.add_subscriber(Box::new(subscriber))));
        Ok(Subscription {
            id: id.map_err(io::Error::other)?,
            thread: self.clone(),
            ending: None,
        })
    }
}

/// A subscriber's place in the thread. Dropping it drops the subscriber.
#[must_use = "dropping it ends what was begun"]
pub struct Subscription {
    id: SubscriberId,
    thread: EventThread,
    ending: Option<Box<dyn Subscriber>>,
}

impl Subscription {
    /// Takes the subscriber out of the thread and asks it to end, without waiting: so that many can end together.
    pub fn ask_to_end(&mut self) {
        let id = self.id;
        if let Ok(mut subscriber) = self.thread.0.0.call_blocking(move |ops| ops.remove_subscriber(id)) {
            subscriber.ask_to_end();
            self.ending = Some(subscriber);
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.ask_to_end();
    }
}

/// Time to wait when no connection can be accepted (out of file descriptors, say), so that the attempt does not spin.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Says that an event is a listener's.
pub const LISTENER: u32 = 1;
/// Says that an event is a timer's.
pub const TIMER: u32 = 2;

/// Waits for what `source` has to say, whose events say `kind`.
pub fn wait_for(ops: &mut EventOps<'_>, source: &impl AsRawFd, kind: u32) {
    if let Err(error) = ops.add(Events::with_data(source, kind, EventSet::IN)) {
        tracing::error!("the control plane cannot wait for an event: {error}");
    }
}

/// Leaves those who connect waiting, or not any more.
pub fn set_deaf(ops: &EventOps<'_>, listener: &impl AsRawFd, is_deaf: bool) {
    let events = if is_deaf { EventSet::empty() } else { EventSet::IN };
    // It does not fail for what is waited for.
    let _ = ops.modify(Events::with_data(listener, LISTENER, events));
}

/// Sets a timer, or switches it off. Its event is over then.
pub fn set_timer(timer: &mut TimerFd, after: Option<Duration>) {
    // It does not fail for times that a clock can show.
    let _ = timer.reset(
        after.map_or(Duration::ZERO, |after| after.max(Duration::from_nanos(1))),
        None,
    );
}

/// Takes a connection, on which nothing waits.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    Ok(accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
}
