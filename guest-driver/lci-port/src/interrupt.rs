//! The handler of a node's interrupts: a thread that the card interrupts, where it looks after the node. Over any other port the thread
//! stands in for the card: the port wakes it, it waits as a watchdog does, and looks at the clock while timers run.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::Ordering},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use netif::{Interest, Wake};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd};

use crate::{Lci, LciError, clock, own_card::Watched, statistics::Interrupts};

/// The thread, which ends when this is dropped.
pub(crate) struct Handler {
    stop: OwnedFd,
    thread: Option<JoinHandle<()>>,
}

/// What woke the handler.
#[derive(PartialEq, Eq)]
enum Woken {
    Stop,
    Frames,
    Time,
    /// Packets wait in the engine, and may be delivered now.
    Packets,
}

/// No frame comes any more, as the node's failure says.
struct PortFailed;

/// What the thread needs.
struct Watch {
    node: Lci,
    stop: OwnedFd,
    port: OwnedFd,
    watchdog: Duration,
    clock_period: Duration,
    /// Where the card interrupts.
    card: Option<Arc<Watched>>,
}

impl Handler {
    /// Starts the handler of `node`.
    pub(crate) fn start(
        node: Lci,
        (watchdog, clock_period): (Duration, Duration),
        card: Option<Arc<Watched>>,
    ) -> Result<Self, LciError> {
        let system = |what| move |source: io::Error| LciError::System { what, source };
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| system("make an event descriptor")(error.into()))?;
        let port = match &card {
            Some(card) => card.interrupts.as_fd().try_clone_to_owned(),
            None => node.shared().lock().port.as_fd().try_clone_to_owned(),
        };
        let watch = Watch {
            node,
            stop: stop.try_clone().map_err(system("copy a descriptor"))?,
            port: port.map_err(system("copy a descriptor"))?,
            watchdog,
            clock_period,
            card,
        };
        let thread = thread::Builder::new()
            .name("lci-interrupt".to_owned())
            .spawn(move || watch.run())
            .map_err(system("start a thread"))?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Handler {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != thread::current().id()
        {
            // It ends at once, and a panic of an upcall was told when it happened.
            let _ = thread.join();
        }
    }
}

impl Watch {
    fn run(&self) {
        let Some(card) = &self.card else {
            while !self.once() {}
            return;
        };
        card.interrupts.want(true);
        // What arrived before.
        self.process();
        while !self.interrupted(card) {}
        card.interrupts.want(false);
    }

    /// Waits for an interrupt of the card and handles it; true when it is time to stop.
    fn interrupted(&self, card: &Watched) -> bool {
        match self.wait(None, true) {
            Woken::Stop => return true,
            Woken::Time => return false,
            Woken::Packets => {
                self.deliver_waiting();
                return false;
            }
            Woken::Frames => {}
        }
        let shared = self.node.shared();
        if let Err(error) = card.interrupts.take() {
            shared.lock().fail(error);
            return true;
        }
        Interrupts::count(&shared.interrupts.arrived);
        if shared.flags.disabled.load(Ordering::SeqCst) {
            Interrupts::count(&shared.interrupts.suppressed);
            // Nothing else may tell of what has arrived: a restarted card has no watchdog that would ask again.
            if self.park() {
                return true;
            }
        }
        if shared.lock().engine.poll_timeout() <= clock::now() {
            Interrupts::count(&shared.interrupts.clock);
        }
        self.process();
        false
    }

    /// Waits for an interrupt and handles it; true when it is time to stop.
    fn once(&self) -> bool {
        let shared = self.node.shared();
        let Ok(mut has_frames) = self.has_frames() else {
            return true;
        };
        if !has_frames {
            let due = shared.lock().engine.poll_timeout();
            let wait_ns = due.nanos_since(clock::now()).max(self.clock_period.as_nanos() as u64);
            match self.wait(Some(Duration::from_nanos(wait_ns)), true) {
                Woken::Stop => return true,
                Woken::Packets => {
                    self.deliver_waiting();
                    return false;
                }
                Woken::Time | Woken::Frames => {}
            }
            has_frames = self.has_frames().unwrap_or(false);
        }
        if !has_frames {
            self.look_at_clock();
            return false;
        }
        Interrupts::count(&shared.interrupts.arrived);
        let before = shared.flags.processed.load(Ordering::Acquire);
        if !self.watchdog.is_zero() {
            // The watchdog runs; what the program polls until then needs no interrupt.
            if self.wait(Some(self.watchdog), false) == Woken::Stop {
                return true;
            }
            let has_progress = shared.flags.processed.load(Ordering::Acquire) != before;
            if has_progress || !self.has_frames().unwrap_or(false) {
                Interrupts::count(&shared.interrupts.cancelled);
                return false;
            }
        }
        if shared.flags.disabled.load(Ordering::SeqCst) {
            Interrupts::count(&shared.interrupts.suppressed);
            return self.park();
        }
        self.process();
        false
    }

    /// Whether frames wait at the port. If none does, its descriptor becomes readable when one comes, or when a port that has no
    /// interrupts is to be asked again.
    fn has_frames(&self) -> Result<bool, PortFailed> {
        let mut core = self.node.shared().lock();
        match core.port.wait(Interest::Receive, Instant::now(), None) {
            Ok(wake) => Ok(matches!(wake, Wake::Ready)),
            Err(error) => {
                core.fail(error);
                Err(PortFailed)
            }
        }
    }

    /// The program has interrupts disabled: nothing is done before it enables them. True when it is time to stop.
    fn park(&self) -> bool {
        let flags = &self.node.shared().flags;
        if !flags.park() {
            return false;
        }
        let mut fds = [&self.stop, &flags.unpark].map(|fd| PollFd::new(fd, PollFlags::IN));
        let polled = rustix::event::poll(&mut fds, None);
        let stop = polled.is_ok() && !fds[0].revents().is_empty();
        flags.woken();
        stop
    }

    /// Handles an interrupt.
    fn process(&self) {
        let shared = self.node.shared();
        Interrupts::count(&shared.interrupts.taken);
        loop {
            let (_, frames) = shared.pump();
            let delivered = self.node.deliver(true);
            // Who is told of each frame but once looks until there are none, or the program looks itself.
            if frames == 0 && delivered == 0 || self.card.is_none() || self.is_parked() {
                return;
            }
        }
    }

    /// Delivers packets that wait in the engine; an interrupt only if there are some, since who asked for it did not look. A card has told of
    /// its frames already, while a port will tell of them.
    fn deliver_waiting(&self) {
        if self.is_parked() {
            return;
        }
        let shared = self.node.shared();
        let mut count = self.node.deliver(true);
        while self.card.is_some() && !self.is_parked() {
            let (_, frames) = shared.pump();
            let delivered = self.node.deliver(true);
            count += delivered;
            if frames == 0 && delivered == 0 {
                break;
            }
        }
        if count > 0 {
            Interrupts::count(&shared.interrupts.taken);
        }
    }

    /// The program has interrupts disabled; the handler is woken when it enables them.
    fn is_parked(&self) -> bool {
        let flags = &self.node.shared().flags;
        flags.disabled.load(Ordering::SeqCst) && flags.park()
    }

    /// M-BV10: the program has not looked at the clock for a while, and a timer is due.
    fn look_at_clock(&self) {
        let shared = self.node.shared();
        let now = clock::now();
        let polled_ns = now
            .as_nanos()
            .saturating_sub(shared.flags.polled_at.load(Ordering::Relaxed));
        let is_due = shared.lock().engine.poll_timeout() <= now;
        if is_due
            && u128::from(polled_ns) >= self.clock_period.as_nanos()
            && !shared.flags.disabled.load(Ordering::SeqCst)
        {
            Interrupts::count(&shared.interrupts.clock);
            shared.pump();
            self.node.deliver(true);
        }
    }

    /// Waits for a while; while not for `frames`, only for the end.
    fn wait(&self, timeout: Option<Duration>, frames: bool) -> Woken {
        let flags = &self.node.shared().flags;
        let wanted = if frames { PollFlags::IN } else { PollFlags::empty() };
        let mut fds = [
            PollFd::new(&self.stop, PollFlags::IN),
            PollFd::new(&self.port, wanted),
            PollFd::new(&flags.unpark, wanted),
        ];
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(0) | Err(_) => Woken::Time,
            Ok(_) if !fds[0].revents().is_empty() => Woken::Stop,
            Ok(_) if !fds[2].revents().is_empty() => {
                flags.woken();
                Woken::Packets
            }
            Ok(_) => Woken::Frames,
        }
    }
}
