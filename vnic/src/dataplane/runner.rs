//! Which thread runs the data plane, and when it sleeps.
//!
//! A kick's thread takes the data plane if it is free, runs it until it has been idle for the polling time, asks for kicks
//! again and leaves. Under lasting load it hands over to the runner's own thread, which also serves the timers. Changes
//! (rings, settings, counters) come in between two rounds. What a round does is in `rounds`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ether::Time;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::time::{ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::card::transmit_batch::TransmitBatch;
use super::polling_backoff::{Eagerness, PollingBackoff};
use super::{DataPlane, FabricSettings};

/// A kick's thread that has run the data plane for so long hands over: its connection's other events wait behind it.
const HANDOVER_NS: u64 = 500_000;
/// Idle polling goes on for so long without giving the processor away; after it, any process that wants the core gets it. Long
/// enough for a peer that polls too, short enough not to matter to a guest that shares the core.
const SPIN_NS: u64 = 5_000;

/// The host's monotonic clock, counted from when this was made.
#[derive(Debug)]
pub struct MonotonicClock {
    origin: Timespec,
}

impl MonotonicClock {
    /// A clock that starts at 0 now, and what that is in nanoseconds since 1970.
    pub fn start() -> (Self, u64) {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        (
            Self {
                origin: rustix::time::clock_gettime(ClockId::Monotonic),
            },
            unix.as_nanos() as u64,
        )
    }

    /// The time now.
    #[inline]
    pub fn now(&self) -> Time {
        let now = rustix::time::clock_gettime(ClockId::Monotonic);
        let ns = (now.tv_sec - self.origin.tv_sec) * 1_000_000_000 + (now.tv_nsec - self.origin.tv_nsec);
        Time::from_nanos(ns as u64)
    }

    fn absolute(&self, at: Time) -> Timespec {
        let ns = at.as_nanos().saturating_add(self.origin.tv_nsec as u64);
        let tv_sec = self.origin.tv_sec.saturating_add((ns / 1_000_000_000) as i64);
        Timespec {
            tv_sec,
            tv_nsec: (ns % 1_000_000_000) as _,
        }
    }
}

/// A thread that runs the data plane.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    /// It has other things to do as well.
    Visitor,
    /// It is the runner's own.
    Own,
}

/// What the thread that runs the data plane has at hand.
struct Running {
    plane: DataPlane,
    /// Memory for the frames that are taken from one ring.
    batch: TransmitBatch,
    /// How long to go on without work.
    backoff: PollingBackoff,
    /// How long to go on without copies.
    copies_backoff: PollingBackoff,
}

/// The data plane, shared by all threads that run or change it.
pub(crate) struct Runner {
    running: Mutex<Running>,
    clock: MonotonicClock,
    /// Threads that want the lock for a change; the runner lets them in between two rounds.
    visitors: AtomicU32,
    /// There may be work that the running thread has not seen.
    pending: AtomicBool,
    stop: AtomicBool,
    wake: OwnedFd,
    timer: OwnedFd,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Runner {
    /// An empty data plane, and the thread that runs it.
    ///
    /// # Errors
    /// The system's, if it gives no event descriptors or no thread.
    pub(crate) fn start(settings: FabricSettings) -> std::io::Result<Arc<Self>> {
        let (clock, origin_unix_ns) = MonotonicClock::start();
        let timer = rustix::time::timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let runner = Arc::new(Self {
            running: Mutex::new(Running {
                plane: DataPlane::new(origin_unix_ns, settings),
                batch: TransmitBatch::new(),
                backoff: PollingBackoff::new(settings.poll_ns, Eagerness::FRAMES),
                copies_backoff: PollingBackoff::new(settings.copies_poll_ns, Eagerness::COPIES),
            }),
            clock,
            visitors: AtomicU32::new(0),
            pending: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            timer,
            thread: Mutex::new(None),
        });
        let own = Arc::clone(&runner);
        let thread = thread::Builder::new()
            .name("dataplane".to_owned())
            .spawn(move || own.serve())?;
        *runner.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(runner)
    }

    /// Ends the runner's thread and waits for it.
    pub(crate) fn shutdown(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake_thread();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic in it was logged where it happened.
            let _ = thread.join();
        }
    }

    /// Changes or reads something between two rounds. What became possible by it is done afterwards.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut DataPlane, Time) -> T) -> T {
        self.visitors.fetch_add(1, Ordering::SeqCst);
        let mut running = self.lock();
        self.visitors.fetch_sub(1, Ordering::SeqCst);
        let now = self.clock.now();
        let result = change(&mut running.plane, now);
        running.plane.follow_carriers(now);
        drop(running);
        // Timers may have changed, and a kick's thread that found the lock taken left its work to this one.
        self.wake_thread();
        result
    }

    /// Runs the data plane in the caller's thread if no other thread does.
    pub(crate) fn run_now(&self) {
        self.run(Caller::Visitor);
    }

    /// Makes the runner's thread check for work.
    pub(crate) fn wake_thread(&self) {
        // The counter cannot overflow: its reader takes all of it.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// A panic while the lock is held is caught where it concerns a card; what is left is consistent enough to go on.
    fn lock(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut counter = [0; 8];
        while !self.stop.load(Ordering::SeqCst) {
            // A panic that no card could be blamed for: the thread, and with it every timer, must go on.
            if catch_unwind(AssertUnwindSafe(|| self.run(Caller::Own))).is_err() {
                tracing::error!("an internal error (a panic) in the data plane's thread; it goes on");
            }
            // Not with the control plane: a wait that a frame passes must cost it no look-up and no other's turn.
            let mut fds = [
                PollFd::new(&self.wake, PollFlags::IN),
                PollFd::new(&self.timer, PollFlags::IN),
            ];
            if let Err(error) = poll(&mut fds, None)
                && error != rustix::io::Errno::INTR
            {
                tracing::error!(%error, "the data plane's thread cannot wait for events and ends");
                return;
            }
            // Both are non-blocking counters: reading them only resets them.
            let _ = rustix::io::read(&self.wake, &mut counter);
            let _ = rustix::io::read(&self.timer, &mut counter);
        }
    }

    fn run(&self, caller: Caller) {
        loop {
            self.pending.store(true, Ordering::SeqCst);
            let mut running = match self.running.try_lock() {
                Ok(running) => running,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // The thread that has the lock checks `pending` after it let go, or is a visitor that wakes the runner's thread.
                Err(TryLockError::WouldBlock) => {
                    if caller == Caller::Own {
                        drop(self.lock());
                        continue;
                    }
                    return;
                }
            };
            self.pending.store(false, Ordering::SeqCst);
            let handed_over;
            (running, handed_over) = self.run_locked(running, caller);
            drop(running);
            if handed_over {
                self.wake_thread();
                return;
            }
            if !self.pending.load(Ordering::SeqCst) || self.stop.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Runs rounds until the data plane was idle for the polling time and every driver is asked to kick. True if it is not
    /// idle and the runner's thread must go on.
    fn run_locked<'a>(
        &'a self,
        mut running: MutexGuard<'a, Running>,
        caller: Caller,
    ) -> (MutexGuard<'a, Running>, bool) {
        let started = self.clock.now();
        let (mut idle_since, mut before) = (started, started);
        let mut slept = true;
        let mut slept_before_copies = true;
        loop {
            let now = self.clock.now();
            let Running {
                plane,
                batch,
                backoff,
                copies_backoff,
            } = &mut *running;
            if plane.pass(batch, now) {
                idle_since = now;
                backoff.worked(now, slept);
                slept = false;
                if plane.take_has_copied() {
                    copies_backoff.worked(now, slept_before_copies);
                    slept_before_copies = false;
                }
            } else {
                let took_ns = now.nanos_since(before);
                backoff.idled(took_ns);
                copies_backoff.idled(took_ns);
            }
            before = now;
            if self.visitors.load(Ordering::SeqCst) != 0 {
                drop(running);
                while self.visitors.load(Ordering::SeqCst) != 0 {
                    thread::yield_now();
                }
                running = self.lock();
                before = self.clock.now();
            }
            if self.stop.load(Ordering::Relaxed) {
                return (running, false);
            }
            let idle_ns = now.nanos_since(idle_since);
            if idle_ns == 0 || idle_ns < running.backoff.window_ns() || running.copies_backoff.goes_on(now) {
                if caller == Caller::Visitor && now.nanos_since(started) > HANDOVER_NS {
                    return (running, true);
                }
                if idle_ns > SPIN_NS {
                    thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
                continue;
            }
            if running.plane.ask_for_kicks(now) {
                idle_since = now;
                continue;
            }
            running.plane.trim_pool();
            self.arm_timer(running.plane.next_due(now));
            return (running, false);
        }
    }

    fn arm_timer(&self, at: Option<Time>) {
        const OFF: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = at.map_or(OFF, |at| self.clock.absolute(at));
        let setting = Itimerspec {
            it_interval: OFF,
            it_value,
        };
        if let Err(error) = rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::ABSTIME, &setting) {
            tracing::error!(%error, "the data plane's timer cannot be set");
        }
    }
}
