//! The card as a copy engine (`papers.md` M-CI1 … M-CI3): its output is wired to its input, so a transmit descriptor and a
//! receive descriptor together make a copy from one place in memory to another, beside the processor. It says when which
//! bytes arrive; it moves none, knows no memory, and how a driver translates addresses is not here.

mod config;
mod counters;
mod descriptor;
mod wire;

use alloc::collections::VecDeque;

use ether::Time;

pub use config::{
    COPY_MTU_MAX, COPY_MTU_MIN, COPY_QUEUE_MAX, COPY_SUBMIT_NS_MAX, CopyEngineConfig, CopyEngineConfigError,
};
pub use counters::CopyCounters;
pub use descriptor::{CopyError, CopyRequest, NOTIFICATION_LEN, Notification, Place, Space};
pub use wire::{COPY_FRAME_LEN_MAX, COPY_HEADER_LEN, COPY_HEADER_START, CopyHeader};

use crate::dma::DmaEngines;

/// Number of an accepted copy: the first of an engine is 0, the next 1, and they complete in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CopyId(pub u64);

/// A copy was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Submitted {
    /// The number of the copy.
    pub id: CopyId,
    /// When the host's processor has written the last descriptor and may do other work.
    pub host_free_at: Time,
}

/// What the driver has to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyAction {
    /// A frame arrived at the card's input: copy these bytes.
    Move {
        /// The copy it belongs to.
        id: CopyId,
        /// When the frame's bytes are in memory.
        at: Time,
        /// First byte to read.
        source: Place,
        /// First byte to write.
        destination: Place,
        /// Number of bytes, at least 1 and at most the MTU.
        len: u32,
    },
    /// The notification value arrived behind all of the data: store it, in one piece, after the data.
    Notify {
        /// The copy it belongs to.
        id: CopyId,
        /// When it is in memory.
        at: Time,
        /// Where it goes, and what.
        notification: Notification,
    },
    /// All of the copy is done; its place in the queue is free.
    Completed {
        /// The copy that is done.
        id: CopyId,
        /// When its last frame was in memory.
        at: Time,
    },
}

/// A copy in the queue.
#[derive(Clone, Copy, Debug)]
struct Job {
    id: CopyId,
    copy: CopyRequest,
    /// When the host began to write its descriptors; frame *n* (from 1) was submitted *n* submissions later.
    begun: Time,
}

/// How far the oldest copy is.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Bytes handed to the driver.
    moved: u32,
    notified: bool,
    /// Frames that went over the wire, the one in flight included.
    frames: u64,
    /// When the frame in flight is in memory, until all that is in it was handed to the driver.
    arrives: Option<Time>,
    /// When the last frame was in memory.
    arrived: Time,
}

/// A self-connected card.
///
/// One wire: copies are done one after the other in the order of their submission, and a copy may read what an earlier one
/// writes. Nothing is allocated after [`CopyEngine::new`].
#[derive(Clone, Debug)]
pub struct CopyEngine {
    config: CopyEngineConfig,
    wire: DmaEngines,
    queue: VecDeque<Job>,
    progress: Progress,
    next_id: u64,
    /// When the host's processor has written all descriptors so far: it writes one after the other.
    host_free_at: Time,
    counters: CopyCounters,
}

impl CopyEngine {
    /// An idle engine; values beyond their limits are brought to the limit.
    pub fn new(config: CopyEngineConfig) -> Self {
        let config = config.clamped();
        Self {
            config,
            wire: DmaEngines::new(config.wire),
            queue: VecDeque::with_capacity(usize::from(config.queue_max)),
            progress: Progress::default(),
            next_id: 0,
            host_free_at: Time::ZERO,
            counters: CopyCounters::default(),
        }
    }

    /// What the engine was made with.
    pub fn config(&self) -> CopyEngineConfig {
        self.config
    }

    /// Submits a copy. The host's processor is busy with it until [`Submitted::host_free_at`]: each frame costs it one
    /// submission (R-OM1: 350 ns for each contiguous piece), and nothing more.
    ///
    /// # Errors
    /// [`CopyError`]; nothing was submitted then, but for the count of what was refused.
    pub fn submit(&mut self, now: Time, copy: CopyRequest) -> Result<Submitted, CopyError> {
        let checked = copy.checked().and_then(|()| {
            if self.queue.len() < usize::from(self.config.queue_max) {
                Ok(())
            } else {
                Err(CopyError::QueueFull)
            }
        });
        if let Err(error) = checked {
            self.counters.refused[error.index()] += 1;
            return Err(error);
        }
        let id = CopyId(self.next_id);
        let begun = now.max(self.host_free_at);
        let submit_ns = self.frames_of(&copy).saturating_mul(self.config.submit_ns);
        self.next_id += 1;
        self.host_free_at = begun.plus_nanos(submit_ns);
        self.queue.push_back(Job { id, copy, begun });
        self.counters.submitted += 1;
        self.counters.submitted_bytes += u64::from(copy.len);
        self.counters.host_ns = self.counters.host_ns.saturating_add(submit_ns);
        self.counters.queue_peak = self.counters.queue_peak.max(self.queue.len() as u64);
        Ok(Submitted {
            id,
            host_free_at: self.host_free_at,
        })
    }

    /// Copies between two buffers of a program, without a notification (M-CI3 `icopy`).
    ///
    /// # Errors
    /// Those of [`CopyEngine::submit`].
    pub fn icopy(&mut self, now: Time, destination: u64, source: u64, len: u32) -> Result<Submitted, CopyError> {
        self.submit(
            now,
            CopyRequest::new(Place::user(destination), Place::user(source), len),
        )
    }

    /// Copies as [`CopyEngine::icopy`] does, and then stores `notification` (M-CI3 `icopy_notif`).
    ///
    /// # Errors
    /// Those of [`CopyEngine::submit`].
    pub fn icopy_notif(
        &mut self,
        now: Time,
        destination: u64,
        source: u64,
        len: u32,
        notification: Notification,
    ) -> Result<Submitted, CopyError> {
        let copy = CopyRequest::new(Place::user(destination), Place::user(source), len);
        self.submit(now, copy.notifying(notification))
    }

    /// Copies from a receive buffer of the kernel to a buffer of a program (M-CI3 `icopy_k2u`).
    ///
    /// # Errors
    /// Those of [`CopyEngine::submit`].
    pub fn icopy_k2u(&mut self, now: Time, destination: u64, source: u64, len: u32) -> Result<Submitted, CopyError> {
        self.submit(
            now,
            CopyRequest::new(Place::user(destination), Place::kernel(source), len),
        )
    }

    /// Copies as [`CopyEngine::icopy_k2u`] does, and then stores `notification` (M-CI3 `icopy_k2u_notif`).
    ///
    /// # Errors
    /// Those of [`CopyEngine::submit`].
    pub fn icopy_k2u_notif(
        &mut self,
        now: Time,
        destination: u64,
        source: u64,
        len: u32,
        notification: Notification,
    ) -> Result<Submitted, CopyError> {
        let copy = CopyRequest::new(Place::user(destination), Place::kernel(source), len);
        self.submit(now, copy.notifying(notification))
    }

    /// What is to be done by `now`; to be called until it says `None`. What one call hands out must be done before the next.
    pub fn poll(&mut self, now: Time) -> Option<CopyAction> {
        let job = *self.queue.front()?;
        let Job { id, copy, .. } = job;
        if self.progress.arrives.is_none() && self.is_through(&copy) {
            let at = self.progress.arrived;
            self.leave();
            self.counters.completed += 1;
            return Some(CopyAction::Completed { id, at });
        }
        let at = self.arrival(&job);
        if at > now {
            return None;
        }
        let data_left = copy.len - self.progress.moved;
        if data_left > 0 {
            let len = data_left.min(self.config.mtu);
            let action = CopyAction::Move {
                id,
                at,
                source: copy.source.plus(self.progress.moved),
                destination: copy.destination.plus(self.progress.moved),
                len,
            };
            self.progress.moved += len;
            self.counters.moved_bytes += u64::from(len);
            if !self.value_follows(&copy, len) {
                self.frame_done(at);
            }
            return Some(action);
        }
        // `is_through` was asked above: the value is all that is left.
        let notification = copy.notification?;
        self.progress.notified = true;
        self.counters.notifications += 1;
        self.frame_done(at);
        Some(CopyAction::Notify { id, at, notification })
    }

    /// When [`CopyEngine::poll`] next has something to say; `None` = not before another copy is submitted.
    pub fn next_event(&self) -> Option<Time> {
        let job = self.queue.front()?;
        if self.progress.arrives.is_none() && self.is_through(&job.copy) {
            return Some(self.progress.arrived);
        }
        // The wire is asked on a copy of it, so that looking changes nothing.
        Some(self.progress.arrives.unwrap_or_else(|| {
            self.wire
                .clone()
                .submit(self.submitted_at(job), self.next_frame_len(&job.copy))
        }))
    }

    /// The driver could not do what the last action said (its memory is gone, say): the rest of the oldest copy is given
    /// up, and its notification never comes. Says which copy that was.
    pub fn fail(&mut self) -> Option<CopyId> {
        let id = self.queue.front()?.id;
        self.counters.moved_bytes -= u64::from(self.progress.moved);
        self.leave();
        self.counters.failed += 1;
        Some(id)
    }

    /// Forgets every copy that has not completed: its memory is no longer there. None of them will be notified.
    pub fn reset(&mut self) {
        self.counters.cancelled += self.queue.len() as u64;
        self.queue.clear();
        self.progress = Progress::default();
    }

    /// Copies that have not completed.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// True once `id` is done, given up or forgotten: comparing numbers is enough, since copies complete in order.
    pub fn is_over(&self, id: CopyId) -> bool {
        id < self.queue.front().map_or(CopyId(self.next_id), |job| job.id)
    }

    /// What was counted since the engine was made.
    pub fn counters(&self) -> &CopyCounters {
        &self.counters
    }

    /// Frames that a copy is cut into: the notification value is never cut, and rides in the last frame if there is room.
    fn frames_of(&self, copy: &CopyRequest) -> u64 {
        let mtu = self.config.mtu;
        let rest = copy.len % mtu;
        let alone = copy.notification.is_some() && (rest == 0 || rest + NOTIFICATION_LEN > mtu);
        u64::from(copy.len.div_ceil(mtu)) + u64::from(alone)
    }

    fn is_through(&self, copy: &CopyRequest) -> bool {
        self.progress.moved == copy.len && (copy.notification.is_none() || self.progress.notified)
    }

    /// True if the value rides in the frame whose `len` bytes of data were just handed out.
    fn value_follows(&self, copy: &CopyRequest, len: u32) -> bool {
        copy.notification.is_some() && self.progress.moved == copy.len && len + NOTIFICATION_LEN <= self.config.mtu
    }

    fn next_frame_len(&self, copy: &CopyRequest) -> u32 {
        let data = (copy.len - self.progress.moved).min(self.config.mtu);
        let is_last = self.progress.moved + data == copy.len;
        match copy.notification {
            Some(_) if is_last && data + NOTIFICATION_LEN <= self.config.mtu => data + NOTIFICATION_LEN,
            _ => data,
        }
    }

    fn submitted_at(&self, job: &Job) -> Time {
        let submissions = self.progress.frames + 1;
        job.begun.plus_nanos(submissions.saturating_mul(self.config.submit_ns))
    }

    /// When the frame in flight is in memory; puts the next one on the wire if there is none.
    fn arrival(&mut self, job: &Job) -> Time {
        if let Some(at) = self.progress.arrives {
            return at;
        }
        let (submitted, len) = (self.submitted_at(job), self.next_frame_len(&job.copy));
        let at = self.wire.submit(submitted, len);
        self.progress.arrives = Some(at);
        self.progress.frames += 1;
        self.counters.frames += 1;
        at
    }

    fn frame_done(&mut self, at: Time) {
        self.progress.arrives = None;
        self.progress.arrived = at;
    }

    fn leave(&mut self) {
        self.queue.pop_front();
        self.progress = Progress::default();
    }
}
