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

use crate::CopyEngine;

/// At most this many copies are submitted and not finished: more than the frames that a port lends.
const JOBS_MAX: usize = 256;
/// So many copies must wait before a caller that goes on receiving wakes the thread, which takes as long as making them.
const WAKE_JOBS: u64 = 4;
/// The thread looks for the next copy so long before it sleeps: longer than from one packet of a message to the next, and than an answer to a
/// pull request takes.
const SPIN: Duration = Duration::from_micros(50);
/// The thread looks so often between two reads of the clock.
const SPIN_POLLS: u32 = 64;
/// A caller looks so often for the end of the thread's copy before it sleeps.
const WAIT_POLLS: u32 = 256;

#[derive(Clone, Copy)]
struct Job {
    from: *const u8,
    to: *mut u8,
    len: usize,
}

/// A place for a job. It is the caller's until the job is submitted, then that of the side that takes the job until that side has
/// stored the job's number in `done`.
struct Place {
    job: UnsafeCell<MaybeUninit<Job>>,
    done: AtomicU64,
}

/// A number in cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Number(AtomicU64);

/// What the caller and the thread share.
struct Lane {
    /// Job `n` (from 1 on) is in place `n % JOBS_MAX`.
    places: Box<[Place]>,
    /// The last job that the caller submitted, and the last one that either side took.
    submitted: Number,
    taken: Number,
    /// The thread sleeps, or is about to.
    asleep: AtomicBool,
    /// No more jobs come.
    over: AtomicBool,
    /// The caller sleeps until the thread has made a copy, or is about to.
    awaited: AtomicBool,
    waiting: Mutex<()>,
    made: Condvar,
}

// SAFETY: who accesses a place is ordered by `submitted`, `taken` and `done`; the pointers in a job may be used until it is done
// (`CopyEngine::submit`).
unsafe impl Send for Lane {}
// SAFETY: as above.
unsafe impl Sync for Lane {}

impl Lane {
    fn new() -> Self {
        let place = |_| Place {
            job: UnsafeCell::new(MaybeUninit::uninit()),
            done: AtomicU64::new(0),
        };
        Self {
            places: (0..JOBS_MAX).map(place).collect(),
            submitted: Number::default(),
            taken: Number::default(),
            asleep: AtomicBool::new(false),
            over: AtomicBool::new(false),
            awaited: AtomicBool::new(false),
            waiting: Mutex::new(()),
            made: Condvar::new(),
        }
    }

    fn place(&self, number: u64) -> &Place {
        &self.places[(number % JOBS_MAX as u64) as usize]
    }

    /// Returns how many jobs neither side has taken.
    fn waiting(&self) -> u64 {
        // `taken` first: it is never more than a later `submitted`.
        let taken = self.taken.0.load(Ordering::SeqCst);
        self.submitted.0.load(Ordering::SeqCst) - taken
    }

    /// Takes the next job and makes its copy; false if there is none.
    fn copy_next(&self) -> bool {
        let mut taken = self.taken.0.load(Ordering::Relaxed);
        loop {
            if taken >= self.submitted.0.load(Ordering::Acquire) {
                return false;
            }
            let order = (Ordering::AcqRel, Ordering::Relaxed);
            match self.taken.0.compare_exchange_weak(taken, taken + 1, order.0, order.1) {
                Ok(_) => break,
                Err(now) => taken = now,
            }
        }
        let place = self.place(taken + 1);
        // SAFETY: the job was submitted, and this side alone has taken it; what `submit` was promised holds until it is done.
        unsafe {
            let Job { from, to, len } = (*place.job.get()).assume_init();
            std::ptr::copy_nonoverlapping(from, to, len);
        }
        // Before `awaited` is read, as the caller writes that before it reads this: one of the two sees the other.
        place.done.store(taken + 1, Ordering::SeqCst);
        true
    }

    /// The thread's loop.
    fn run(&self) {
        let mut idle_since = None;
        loop {
            for _ in 0..SPIN_POLLS {
                if self.copy_next() {
                    idle_since = None;
                    if self.awaited.load(Ordering::SeqCst) {
                        let _waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
                        self.made.notify_all();
                    }
                } else {
                    std::hint::spin_loop();
                }
            }
            if self.over.load(Ordering::Acquire) && self.waiting() == 0 {
                return;
            }
            if *idle_since.get_or_insert_with(Instant::now) + SPIN > Instant::now() {
                continue;
            }
            // Before jobs are looked for, as the caller writes those before it reads this.
            self.asleep.store(true, Ordering::SeqCst);
            if self.waiting() == 0 && !self.over.load(Ordering::SeqCst) {
                thread::park();
            }
            self.asleep.store(false, Ordering::SeqCst);
            idle_since = None;
        }
    }
}

/// An engine whose copies a thread of the process makes, on another processor if there is one. Who waits for copies makes those that
/// the thread has not begun, so that a caller waits for a thread that gets no processor only while that makes a copy.
pub(crate) struct ThreadEngine {
    lane: Arc<Lane>,
    thread: Option<JoinHandle<()>>,
    /// There is no thread, and will be none.
    failed: bool,
    submitted: u64,
    /// All jobs up to this one are done.
    finished: u64,
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
            finished: 0,
            process: getpid(),
        }
    }

    #[cold]
    fn start_thread(&mut self) {
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

    /// Wakes the thread if so many jobs wait, at least.
    #[inline]
    fn wake_for(&self, jobs: u64) {
        if self.lane.asleep.load(Ordering::SeqCst)
            && self.lane.waiting() >= jobs
            && self.lane.asleep.swap(false, Ordering::SeqCst)
            && let Some(thread) = &self.thread
        {
            thread.thread().unpark();
        }
    }
}

// SAFETY: a job is done when its copy is made, by the thread or by `wait`; `finished` counts jobs all of whose predecessors are done, too, and
// nobody touches the memory of a job that is done. Dropping the engine waits for the end of the thread, which is after the last job.
unsafe impl CopyEngine for ThreadEngine {
    unsafe fn submit(&mut self, from: *const u8, to: *mut u8, len: usize) -> bool {
        if self.thread.is_none() && !self.failed {
            self.start_thread();
        }
        if self.failed || self.submitted - self.finished() >= JOBS_MAX as u64 {
            return false;
        }
        let number = self.submitted + 1;
        // SAFETY: the job that was in this place is done, so the place is the caller's.
        unsafe { (*self.lane.place(number).job.get()).write(Job { from, to, len }) };
        self.submitted = number;
        self.lane.submitted.0.store(number, Ordering::SeqCst);
        self.wake_for(WAKE_JOBS);
        true
    }

    fn finished(&mut self) -> u64 {
        while self.finished < self.submitted
            && self.lane.place(self.finished + 1).done.load(Ordering::SeqCst) == self.finished + 1
        {
            self.finished += 1;
        }
        self.finished
    }

    fn wait(&mut self, count: u64) {
        if self.finished() >= count || getpid() != self.process {
            // To a child's copy of the memory nobody writes.
            return;
        }
        let lane = Arc::clone(&self.lane);
        while self.finished() < count && lane.copy_next() {}
        for _ in 0..WAIT_POLLS {
            if self.finished() >= count {
                return;
            }
            std::hint::spin_loop();
        }
        let mut waiting = lane.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        lane.awaited.store(true, Ordering::SeqCst);
        while self.finished() < count {
            waiting = lane.made.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        lane.awaited.store(false, Ordering::SeqCst);
    }

    fn start(&mut self) {
        self.wake_for(1);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m_om_a_every_copy_is_made_once_and_counted_in_order_whoever_makes_it() {
        const LEN: usize = 3000;
        let mut engine = ThreadEngine::new();
        let from: Vec<u8> = (0..LEN * 2).map(|at| (at * 7 % 251) as u8).collect();
        let mut places = vec![0u8; LEN * JOBS_MAX];
        for round in 0..200 {
            places.fill(0);
            let base = places.as_mut_ptr();
            let jobs = 1 + round * 5 % JOBS_MAX;
            let before = engine.submitted;
            for job in 0..jobs {
                // SAFETY: each place is written by one job, and read after that is finished.
                let takes = unsafe { engine.submit(from[job..].as_ptr(), base.wrapping_add(job * LEN), LEN) };
                assert!(takes);
                if round % 3 == 0 {
                    engine.start();
                }
            }
            if round % 2 == 0 {
                engine.wait(before + jobs as u64 / 2);
                assert!(engine.finished() >= before + jobs as u64 / 2);
            }
            engine.wait(before + jobs as u64);
            assert_eq!(engine.finished(), before + jobs as u64);
            for (job, place) in places.chunks(LEN).take(jobs).enumerate() {
                assert!(place == &from[job..job + LEN], "job {job} of round {round}");
            }
        }
    }

    #[test]
    fn m_ci4_an_engine_that_its_caller_leaves_copies_without_it_however_little_there_is() {
        let from = vec![7u8; 1024];
        let mut to = vec![0u8; 1024];
        let mut engine = ThreadEngine::new();
        // SAFETY: the place is written by this job alone, and read after it is finished.
        assert!(unsafe { engine.submit(from.as_ptr(), to.as_mut_ptr(), 1024) });
        engine.start();
        let begin = Instant::now();
        while engine.finished() == 0 {
            assert!(begin.elapsed() < Duration::from_secs(20), "the thread copies");
            thread::yield_now();
        }
        assert!(to == from);
    }

    #[test]
    fn m_om_a_a_full_engine_and_one_without_a_thread_take_nothing() {
        let from = vec![7u8; 1024];
        let mut to = vec![0u8; 1024 * (JOBS_MAX + 1)];
        let base = to.as_mut_ptr();
        // Without its thread, nothing that is submitted is ever done.
        let mut engine = ThreadEngine::new();
        let lane = Arc::clone(&engine.lane);
        engine.thread = thread::Builder::new()
            .spawn(move || {
                while !lane.over.load(Ordering::Acquire) {
                    thread::park();
                }
            })
            .ok();
        for job in 0..=JOBS_MAX {
            // SAFETY: each place is written by one job, and read after it is finished.
            let takes = unsafe { engine.submit(from.as_ptr(), base.wrapping_add(job * 1024), 1024) };
            assert_eq!(takes, job < JOBS_MAX);
        }
        // Who waits makes the copies.
        assert_eq!(engine.finished(), 0);
        engine.wait(JOBS_MAX as u64);
        assert_eq!(engine.finished(), JOBS_MAX as u64);
        assert!(to[..1024 * JOBS_MAX].iter().all(|byte| *byte == 7));
        drop(engine);
        let mut engine = ThreadEngine::new();
        engine.failed = true;
        // SAFETY: it takes nothing.
        assert!(!unsafe { engine.submit(from.as_ptr(), to.as_mut_ptr(), 1024) });
    }

    #[test]
    fn m_om_a_an_engine_that_is_dropped_has_made_all_of_its_copies() {
        for jobs in [1, 3, JOBS_MAX] {
            let from = vec![7u8; 1024];
            let mut to = vec![0u8; 1024 * jobs];
            let mut engine = ThreadEngine::new();
            let base = to.as_mut_ptr();
            for job in 0..jobs {
                // SAFETY: each place is written by one job, and read after the engine is gone.
                assert!(unsafe { engine.submit(from.as_ptr(), base.wrapping_add(job * 1024), 1024) });
            }
            drop(engine);
            assert!(to.iter().all(|byte| *byte == 7), "{jobs} jobs");
        }
    }
}
