//! Who runs the shard, and when it sleeps.
//!
//! A kick's thread takes the shard if it is free, runs it until it has been idle for the polling time, asks for kicks
//! again and leaves. Under lasting load it hands over to the shard's own thread, which also serves the timers. Changes
//! (rings, settings, counters) come in between two rounds. What a round does is in the parent module.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ether::Time;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fd::OwnedFd;
use rustix::time::{ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};

use super::{FabricSettings, Inner};

/// A kick's thread that has run the shard for so long hands over: its connection's other events wait behind it.
const HANDOVER_NS: u64 = 500_000;
/// Idle polling goes on for so long without giving the processor away; after it, whoever wants the core gets it. Long
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

/// Who runs the shard.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runner {
    /// A thread that has other things to do as well.
    Visitor,
    /// The shard's own thread.
    Own,
}

/// A shard, shared by everybody who may run or change it.
pub(crate) struct Shard {
    inner: Mutex<Inner>,
    clock: MonotonicClock,
    /// Threads that want the lock for a change; the runner lets them in between two rounds.
    visitors: AtomicU32,
    /// Somebody may have work that the runner has not seen.
    pending: AtomicBool,
    stop: AtomicBool,
    wake: OwnedFd,
    timer: OwnedFd,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Shard {
    /// A shard with nothing in it, and its thread.
    ///
    /// # Errors
    /// The system's, if it gives no event descriptors or no thread.
    pub(crate) fn start(settings: FabricSettings) -> std::io::Result<Arc<Self>> {
        let (clock, origin_unix_ns) = MonotonicClock::start();
        let timer = rustix::time::timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK,
        )?;
        let shard = Arc::new(Self {
            inner: Mutex::new(Inner::new(origin_unix_ns, settings)),
            clock,
            visitors: AtomicU32::new(0),
            pending: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            timer,
            thread: Mutex::new(None),
        });
        let own = Arc::clone(&shard);
        let thread = thread::Builder::new()
            .name("shard".to_owned())
            .spawn(move || own.serve())?;
        *shard.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        Ok(shard)
    }

    /// Ends the shard's thread and waits for it.
    pub(crate) fn shutdown(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake_thread();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic in it was logged where it happened.
            let _ = thread.join();
        }
    }

    /// Changes or reads something between two rounds. Whatever became possible by it is done afterwards.
    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut Inner, Time) -> T) -> T {
        self.visitors.fetch_add(1, Ordering::SeqCst);
        let mut inner = self.lock();
        self.visitors.fetch_sub(1, Ordering::SeqCst);
        let result = change(&mut inner, self.clock.now());
        drop(inner);
        // Timers may have changed, and a kick's thread that found the lock taken left its work to us.
        self.wake_thread();
        result
    }

    /// Runs the shard in the caller's thread if nobody does.
    pub(crate) fn run_now(&self) {
        self.run(Runner::Visitor);
    }

    /// Makes the shard's thread look for work.
    pub(crate) fn wake_thread(&self) {
        // The counter cannot overflow: its reader takes all of it.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// A panic while the lock is held is caught where it concerns a port; what is left is consistent enough to go on.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve(&self) {
        let mut counter = [0; 8];
        while !self.stop.load(Ordering::SeqCst) {
            // A panic that no port could be blamed for: the thread, and with it every timer, must go on.
            if catch_unwind(AssertUnwindSafe(|| self.run(Runner::Own))).is_err() {
                tracing::error!("an internal error (a panic) in the shard's thread; it goes on");
            }
            let mut fds = [
                PollFd::new(&self.wake, PollFlags::IN),
                PollFd::new(&self.timer, PollFlags::IN),
            ];
            if let Err(error) = poll(&mut fds, None)
                && error != rustix::io::Errno::INTR
            {
                tracing::error!(%error, "the shard's thread cannot wait for events and ends");
                return;
            }
            // Both are non-blocking counters: reading them only resets them.
            let _ = rustix::io::read(&self.wake, &mut counter);
            let _ = rustix::io::read(&self.timer, &mut counter);
        }
    }

    fn run(&self, runner: Runner) {
        loop {
            self.pending.store(true, Ordering::SeqCst);
            let mut inner = match self.inner.try_lock() {
                Ok(inner) => inner,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                // Who has the lock looks at `pending` after it let go, or is a visitor who wakes the thread.
                Err(TryLockError::WouldBlock) => {
                    if runner == Runner::Own {
                        drop(self.lock());
                        continue;
                    }
                    return;
                }
            };
            self.pending.store(false, Ordering::SeqCst);
            let handed_over;
            (inner, handed_over) = self.run_locked(inner, runner);
            drop(inner);
            if handed_over {
                self.wake_thread();
                return;
            }
            if !self.pending.load(Ordering::SeqCst) || self.stop.load(Ordering::SeqCst) {
                return;
            }
        }
    }

    /// Runs rounds until the shard was idle for the polling time and every driver is asked to kick. True if it is not
    /// idle and somebody else must go on.
    fn run_locked<'a>(&'a self, mut inner: MutexGuard<'a, Inner>, runner: Runner) -> (MutexGuard<'a, Inner>, bool) {
        let started = self.clock.now();
        let (mut idle_since, mut before) = (started, started);
        let mut slept = true;
        loop {
            let now = self.clock.now();
            if inner.pass(now) {
                idle_since = now;
                inner.polling.worked(now, std::mem::take(&mut slept));
            } else {
                inner.polling.idled(now.nanos_since(before));
            }
            before = now;
            if self.visitors.load(Ordering::SeqCst) != 0 {
                drop(inner);
                while self.visitors.load(Ordering::SeqCst) != 0 {
                    thread::yield_now();
                }
                inner = self.lock();
                before = self.clock.now();
            }
            if self.stop.load(Ordering::Relaxed) {
                return (inner, false);
            }
            let idle_ns = now.nanos_since(idle_since);
            if idle_ns == 0 || idle_ns < inner.polling.window_ns() {
                if runner == Runner::Visitor && now.nanos_since(started) > HANDOVER_NS {
                    return (inner, true);
                }
                if idle_ns > SPIN_NS {
                    thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
                continue;
            }
            if inner.kicks_on(now) {
                idle_since = now;
                continue;
            }
            inner.pool.trim();
            self.arm_timer(inner.next_due(now));
            return (inner, false);
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
            tracing::error!(%error, "the shard's timer cannot be set");
        }
    }
}
