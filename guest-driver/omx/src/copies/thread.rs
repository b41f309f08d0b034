//! A thread that copies, for hosts without a card that does: it takes copies from a ring in memory and makes them in order.

use std::{
    cell::UnsafeCell,
    mem::MaybeUninit,
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use rustix::process::{Pid, getpid};

use super::CopyEngine;

/// At most this many copies are submitted and not finished: more than the frames that a port lends.
const JOBS_MAX: usize = 256;
/// The thread looks for the next copy so long before it sleeps: longer than the packets of a message are apart, and than an answer to a
/// pull request takes.
const SPIN: Duration = Duration::from_micros(50);
/// The thread looks so often between two reads of the clock.
const SPIN_POLLS: u32 = 64;
/// A caller that waits looks so often before it sleeps.
const WAIT_POLLS: u32 = 256;
/// Nobody waits.
const NOBODY: u64 = u64::MAX;

#[derive(Clone, Copy)]
struct Job {
    from: *const u8,
    to: *mut u8,
    len: usize,
}

/// A number in cache lines of its own, which one side writes again and again.
#[repr(align(128))]
#[derive(Default)]
struct Number(AtomicU64);

/// What the caller and the thread share.
struct Lane {
    /// Job `n` (from 1 on) is in place `n % JOBS_MAX`, which belongs to the thread from when `submitted` reaches `n` until `finished` does, and
    /// to the caller otherwise.
    jobs: Box<[UnsafeCell<MaybeUninit<Job>>]>,
    submitted: Number,
    finished: Number,
    /// The thread sleeps, or is about to.
    asleep: AtomicBool,
    /// No more jobs come.
    over: AtomicBool,
    /// Somebody sleeps until so many are finished.
    wanted: AtomicU64,
    waiting: Mutex<()>,
    reached: Condvar,
}

// SAFETY: who accesses a place of `jobs` is ordered by `submitted` and `finished`; the pointers in jobs are the thread's to use until it counts
// the job as finished (`CopyEngine::submit`).
unsafe impl Send for Lane {}
// SAFETY: as above.
unsafe impl Sync for Lane {}

impl Lane {
    fn new() -> Self {
        Self {
            jobs: (0..JOBS_MAX).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect(),
            submitted: Number::default(),
            finished: Number::default(),
            asleep: AtomicBool::new(false),
            over: AtomicBool::new(false),
            wanted: AtomicU64::new(NOBODY),
            waiting: Mutex::new(()),
            reached: Condvar::new(),
        }
    }

    fn place(&self, number: u64) -> *mut MaybeUninit<Job> {
        self.jobs[(number % JOBS_MAX as u64) as usize].get()
    }

    /// The thread's loop.
    fn run(&self) {
        let mut finished = 0;
        while let Some(submitted) = self.next(finished) {
            while finished < submitted {
                finished += 1;
                // SAFETY: submitted and not finished, so the place holds a job and is the thread's; what `submit` was promised holds.
                unsafe {
                    let Job { from, to, len } = (*self.place(finished)).assume_init();
                    std::ptr::copy_nonoverlapping(from, to, len);
                }
                // Before `wanted` is read, as the caller writes that before it reads this: one of the two sees the other.
                self.finished.0.store(finished, Ordering::SeqCst);
                if self.wanted.load(Ordering::SeqCst) <= finished {
                    let _waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    self.reached.notify_all();
                }
            }
        }
    }

    /// Returns how many jobs there are once there are more than `finished`; `None` when there will be none.
    fn next(&self, finished: u64) -> Option<u64> {
        let mut begin = None;
        loop {
            for _ in 0..SPIN_POLLS {
                let submitted = self.submitted.0.load(Ordering::Acquire);
                if submitted != finished {
                    return Some(submitted);
                }
                std::hint::spin_loop();
            }
            if *begin.get_or_insert_with(Instant::now) + SPIN > Instant::now() {
                continue;
            }
            if self.over.load(Ordering::Acquire) {
                // What was submitted before that is seen.
                let submitted = self.submitted.0.load(Ordering::Acquire);
                return (submitted != finished).then_some(submitted);
            }
            // Before `submitted` is read, as the caller writes that before it reads this.
            self.asleep.store(true, Ordering::SeqCst);
            if self.submitted.0.load(Ordering::SeqCst) == finished && !self.over.load(Ordering::SeqCst) {
                thread::park();
                begin = None;
            }
            self.asleep.store(false, Ordering::SeqCst);
        }
    }
}

/// An engine whose copies a thread of the process makes, on another processor if there is one. The thread starts with the first copy,
/// and looks for more for 50 µs before it sleeps.
pub(crate) struct ThreadEngine {
    lane: Arc<Lane>,
    thread: Option<JoinHandle<()>>,
    /// There is no thread, and will be none.
    failed: bool,
    submitted: u64,
    /// The process in which the thread is: a child has the engine's memory, but no thread.
    process: Pid,
}

impl ThreadEngine {
    pub(crate) fn new() -> Self {
        Self {
            lane: Arc::new(Lane::new()),
            thread: None,
            failed: false,
            submitted: 0,
            process: getpid(),
        }
    }

    #[cold]
    fn start(&mut self) {
        let lane = Arc::clone(&self.lane);
        let builder = thread::Builder::new().name("omx-copies".to_owned());
        match weft_authority::without_signals(|| builder.spawn(move || lane.run())) {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => {
                self.failed = true;
                tracing::warn!("cannot start the thread that copies received data, so the processor copies: {error}");
            }
        }
    }

    #[inline]
    fn wake(&self) {
        if self.lane.asleep.load(Ordering::SeqCst)
            && self.lane.asleep.swap(false, Ordering::SeqCst)
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
    }
}

// SAFETY: the thread copies each job whole before it counts it, in order, and touches nothing that it has counted. Dropping the engine waits
// for the end of the thread.
unsafe impl CopyEngine for ThreadEngine {
    unsafe fn submit(&mut self, from: *const u8, to: *mut u8, len: usize) -> bool {
        if self.thread.is_none() && !self.failed {
            self.start();
        }
        if self.failed || self.submitted - self.finished() >= JOBS_MAX as u64 {
            return false;
        }
        let number = self.submitted + 1;
        // SAFETY: the job that was in this place is finished, so the place is the caller's.
        unsafe { (*self.lane.place(number)).write(Job { from, to, len }) };
        self.submitted = number;
        self.lane.submitted.0.store(number, Ordering::SeqCst);
        self.wake();
        true
    }

    fn finished(&mut self) -> u64 {
        self.lane.finished.0.load(Ordering::Acquire)
    }

    fn wait(&mut self, count: u64) {
        for _ in 0..WAIT_POLLS {
            if self.finished() >= count {
                return;
            }
            std::hint::spin_loop();
        }
        if getpid() != self.process {
            // A child's copy of the memory, to which nobody writes.
            return;
        }
        let lane = &*self.lane;
        let mut waiting = lane.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        lane.wanted.store(count, Ordering::SeqCst);
        while lane.finished.0.load(Ordering::SeqCst) < count {
            waiting = lane.reached.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        lane.wanted.store(NOBODY, Ordering::SeqCst);
    }

    fn expect(&mut self) {
        if self.thread.is_some() {
            self.wake();
        } else if !self.failed {
            self.start();
        }
    }
}

impl Drop for ThreadEngine {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if getpid() != self.process {
            std::mem::forget(thread);
            return;
        }
        self.lane.over.store(true, Ordering::SeqCst);
        thread.thread().unpark();
        // It cannot panic.
        let _ = thread.join();
    }
}
