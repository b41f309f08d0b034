//! Engines that copy received data in the processor's place (papers.md M-OM-A); by default the processor copies.
//!
//! The copies of a long message are submitted as its packets come, and the processor goes on. Copies are done in order, so
//! that one number says of each whether it is: the frames stay with the endpoint until their copies are done, and a receive is over
//! when its last copy is, too. Frames go back to the port when something is sent, such as the next pull request, when a time-out
//! fires, when the port lends no more, and before a thread sleeps that they would wake.

use std::{collections::VecDeque, fmt, ops::Range};

use mxoe::engine::{Counter, Counters};
use netif::LentMemory;

use crate::{Segment, StatusCode, memory::Segments, registrations::Registrations, slab::Key};

/// Shorter messages are copied by the processor (M-OM-A), in bytes.
const MESSAGE_LEN_MIN: u32 = 32 << 10;
/// Shorter packets, and shorter pieces of the program's memory, are copied by the processor, too, in bytes.
const PIECE_LEN_MIN: usize = 1 << 10;

/// An engine that copies memory while the processor goes on, in the order in which copies are submitted.
///
/// # Safety
/// A copy that [`CopyEngine::finished`] counts, or that [`CopyEngine::wait`] waited for, is made, and the engine does not touch its memory
/// any more. Nor does an engine that was dropped.
pub unsafe trait CopyEngine: Send {
    /// Begins to copy `len` bytes. `false`: the engine does not, and the processor will.
    ///
    /// # Safety
    /// Until the copy is finished, the bytes at `from` can be read and those at `to` written, they do not overlap, and no
    /// other code writes to either.
    unsafe fn submit(&mut self, from: *const u8, to: *mut u8, len: usize) -> bool;

    /// Returns how many of the copies that the engine took are finished. Does not block.
    fn finished(&mut self) -> u64;

    /// Blocks until the first `count` copies that the engine took are finished.
    fn wait(&mut self, count: u64);

    /// Says that the caller leaves the library, or that a receive waits for what was submitted: it is to be copied without the caller.
    fn start(&mut self) {}

    /// Whether the engine copies only to memory that is [registered](CopyEngine::register). By default it copies to any.
    fn needs_registrations(&self) -> bool {
        false
    }

    /// Makes memory known before the first copy to it; its name until [`CopyEngine::unregister`]. `None`: it cannot be, and the
    /// processor copies.
    ///
    /// # Safety
    /// The memory can be written until it is [unregistered](CopyEngine::unregister), which it is when the receive that it belongs
    /// to is over. From then on it may be other memory at the same place.
    unsafe fn register(&mut self, _memory: *mut u8, _len: usize) -> Option<u64> {
        Some(0)
    }

    /// The memory of this name may be gone from now on; no copy to it is running.
    fn unregister(&mut self, _name: u64) {}

    /// Makes memory known in which frames lie that are copied from, before the first of them. By default it need not be known.
    ///
    /// # Safety
    /// The memory, whole pages, can be read until the engine is dropped.
    unsafe fn register_frames(&mut self, _memory: *mut u8, _len: usize) {}
}

/// A receive that has all its packets, and copies that are not finished.
#[derive(Debug)]
pub(crate) struct Copied {
    pub(crate) request: Key,
    pub(crate) code: StatusCode,
    /// The bytes that were transferred.
    pub(crate) transferred: u32,
    /// The number of its last copy.
    last_copy: u64,
}

#[derive(Debug, Default)]
struct Counts {
    whole_frames: u32,
    partial_frames: u32,
    waits: u32,
}

/// Copies of received data that are running. They are numbered from 1 on, also across engines.
#[derive(Default)]
pub(crate) struct Copies {
    engine: Option<Box<dyn CopyEngine>>,
    /// The copies of earlier engines, all of which are finished.
    before: u64,
    /// The number of the last copy that was submitted, and of the last one known to be finished.
    submitted: u64,
    finished: u64,
    /// Something was submitted whose bytes lie in the frame that is handled now.
    from_this_frame: bool,
    /// Frames or receives wait for copies.
    awaited: bool,
    /// The number of the last copy from each frame that is kept, the oldest frame first.
    frames: VecDeque<u64>,
    /// So many frames the port keeps. 0: copies overlap with what the protocol does about one frame, no more.
    frames_max: usize,
    /// Receives that wait for their last copy, in the order in which their last packets came.
    receives: VecDeque<Copied>,
    registrations: Registrations,
    counts: Counts,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.engine.as_ref().map(|_| "a copy engine");
        let mut shown = f.debug_struct("Copies");
        shown.field("engine", &engine).field("submitted", &self.submitted);
        shown.field("finished", &self.finished).field("frames", &self.frames);
        shown.field("receives", &self.receives);
        shown.field("registrations", &self.registrations).finish()
    }
}

impl Copies {
    /// Replaces the engine. Nothing may wait for the copies of the one before ([`Copies::finish`]). `frames_max`: so many frames the
    /// port keeps.
    ///
    /// # Safety
    /// `memory` can be read until the engine is replaced or dropped.
    pub(crate) unsafe fn set(
        &mut self,
        mut engine: Option<Box<dyn CopyEngine>>,
        frames_max: usize,
        memory: &[LentMemory],
    ) {
        if let Some(engine) = &mut engine {
            for part in memory {
                // SAFETY: this function's contract.
                unsafe { engine.register_frames(part.base.as_ptr(), part.len) };
            }
        }
        self.clean(&(0..usize::MAX));
        self.finish();
        self.before = self.submitted;
        self.frames_max = frames_max;
        self.engine = engine;
    }

    /// The engine forgets whatever shares a byte with this memory.
    fn clean(&mut self, memory: &Range<usize>) {
        if let Some(last_copy) = self.registrations.last_copy(memory) {
            // It may be running, while those to other memory go on.
            self.finish_to(last_copy.min(self.submitted));
            if let Some(engine) = &mut self.engine {
                self.registrations.clean(engine.as_mut(), memory);
            }
        }
    }

    /// A receive is over: its memory is the program's again.
    #[inline]
    pub(crate) fn over(&mut self, memory: &Segments) {
        if !self.registrations.is_empty() {
            self.forget(memory);
        }
    }

    #[cold]
    fn forget(&mut self, memory: &Segments) {
        for (address, len) in memory.addresses() {
            let start = address as usize;
            self.clean(&(start..start + len as usize));
        }
    }

    /// Notes that the program goes on to do something else.
    #[inline]
    pub(crate) fn leave(&mut self) {
        if self.awaited
            && let Some(engine) = &mut self.engine
        {
            engine.start();
        }
    }

    /// Whether a packet of a message is worth submitting, and can be. Where the port lends no more frames, and no copy is
    /// finished, the processor copies instead of waiting.
    #[inline]
    pub(crate) fn takes(&mut self, message_len: u32, packet_len: usize) -> bool {
        self.engine.is_some() && message_len >= MESSAGE_LEN_MIN && packet_len >= PIECE_LEN_MIN && self.has_room()
    }

    fn has_room(&mut self) -> bool {
        if self.frames.len() < self.frames_max || self.frames_max == 0 {
            return true;
        }
        self.leave();
        self.look();
        self.frames.front().is_none_or(|last_copy| *last_copy <= self.finished)
    }

    /// Has the engine copy, or copies at once and returns false. `segment` is the piece of the program's memory that holds `to`.
    ///
    /// # Safety
    /// As [`CopyEngine::submit`] asks, and as [`CopyEngine::register`] does of the segment.
    pub(crate) unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize, segment: Segment) -> bool {
        if let Some(engine) = &mut self.engine
            && len >= PIECE_LEN_MIN
        {
            let engine = engine.as_mut();
            let known = !engine.needs_registrations() || {
                if self.registrations.is_full() {
                    // Copies to what is forgotten may be running.
                    engine.wait(self.submitted - self.before);
                }
                // SAFETY: the caller's promise is the one that is asked for.
                unsafe {
                    let (memory, len) = (segment.ptr, segment.len as usize);
                    self.registrations.add(engine, memory, len, self.submitted + 1)
                }
            };
            // SAFETY: as above.
            if known && unsafe { engine.submit(from, to, len) } {
                self.submitted += 1;
                self.from_this_frame = true;
                return true;
            }
        }
        // SAFETY: readable, writable and not overlapping, as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        false
    }

    /// Counts a packet some of whose bytes the engine copies, or all. Returns the number of the last of these copies.
    pub(crate) const fn count_packet(&mut self, is_whole: bool) -> u64 {
        if is_whole {
            self.counts.whole_frames = self.counts.whole_frames.wrapping_add(1);
        } else {
            self.counts.partial_frames = self.counts.partial_frames.wrapping_add(1);
        }
        self.submitted
    }

    /// Whether the frame that was handled last must stay until copies are finished; asked once.
    #[inline]
    pub(crate) const fn take_from_this_frame(&mut self) -> bool {
        std::mem::replace(&mut self.from_this_frame, false)
    }

    /// Whether another frame can be kept.
    pub(crate) fn may_keep_frame(&self) -> bool {
        self.frames.len() < self.frames_max
    }

    /// Notes that the port keeps the frame that was handled last.
    pub(crate) fn kept_frame(&mut self) {
        self.frames.push_back(self.submitted);
        self.awaited = true;
    }

    /// Keeps a receive that has all its packets until its last copy is finished. Gives it back if that is so already.
    pub(crate) fn keep_receive(
        &mut self,
        request: Key,
        code: StatusCode,
        transferred: u32,
        last_copy: u64,
    ) -> Option<Copied> {
        let copied = Copied {
            request,
            code,
            transferred,
            last_copy,
        };
        if last_copy > self.finished {
            self.look();
        }
        if last_copy <= self.finished {
            return Some(copied);
        }
        self.counts.waits = self.counts.waits.wrapping_add(1);
        self.receives.push_back(copied);
        self.awaited = true;
        self.leave();
        None
    }

    /// Whether a receive waits for its last copy.
    #[inline]
    pub(crate) fn has_receives(&self) -> bool {
        self.awaited && !self.receives.is_empty()
    }

    /// Whether a receive that waits has got its last copy, or frames can go back to the port.
    #[inline]
    pub(crate) fn has_copied(&mut self) -> bool {
        self.has_receives() && self.has_copied_first()
    }

    #[cold]
    fn has_copied_first(&mut self) -> bool {
        self.look();
        let finished = self.finished;
        self.receives.front().is_some_and(|copied| copied.last_copy <= finished)
            || self.frames.front().is_some_and(|last_copy| *last_copy <= finished)
    }

    /// Whether frames or receives wait for copies.
    #[inline]
    pub(crate) const fn is_awaited(&self) -> bool {
        self.awaited
    }

    /// Asks the engine how far it is.
    fn look(&mut self) {
        if self.finished != self.submitted
            && let Some(engine) = &mut self.engine
        {
            self.finished = self.before + engine.finished();
        }
    }

    /// Blocks until every copy is finished.
    pub(crate) fn finish(&mut self) {
        self.finish_to(self.submitted);
    }

    /// Blocks until the copies up to this number are finished.
    fn finish_to(&mut self, last_copy: u64) {
        if self.finished < last_copy {
            self.look();
        }
        if self.finished < last_copy
            && let Some(engine) = &mut self.engine
        {
            engine.wait(last_copy - self.before);
            self.finished = last_copy;
        }
    }

    /// Takes out the frames whose copies are finished, from the oldest on: so many the port is to release.
    pub(crate) fn take_frames(&mut self) -> usize {
        self.look();
        let over = self
            .frames
            .iter()
            .take_while(|last_copy| **last_copy <= self.finished)
            .count();
        self.frames.drain(..over);
        self.awaited = !self.frames.is_empty() || !self.receives.is_empty();
        over
    }

    /// Takes out the next receive whose copies are all finished.
    pub(crate) fn take_receive(&mut self) -> Option<Copied> {
        let copied = self.receives.pop_front_if(|copied| copied.last_copy <= self.finished)?;
        self.awaited = !self.frames.is_empty() || !self.receives.is_empty();
        Some(copied)
    }

    /// Adds what was counted.
    pub(crate) fn add_to(&mut self, counters: &mut Counters) {
        if self.submitted == 0 {
            return;
        }
        self.look();
        for (counter, count) in [
            (Counter::DmarecvPullReply, self.counts.whole_frames),
            (Counter::DmarecvPartialPullReply, self.counts.partial_frames),
            (Counter::DmarecvPullReplyWaitDeferred, self.counts.waits),
            (Counter::CopiesSubmitted, self.submitted as u32),
            (Counter::CopiesFinished, self.finished as u32),
        ] {
            counters.add_to(counter, count);
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        // What is running the engine ends when it is dropped.
        if !self.registrations.is_empty() {
            self.clean(&(0..usize::MAX));
        }
    }
}
