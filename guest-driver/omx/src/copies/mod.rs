//! The hook for an engine that copies received data in the processor's place (papers.md M-OM-A); by default the processor copies.
//! A port lends one frame at a time: copies of a frame overlap with what the protocol does about that frame, no more.

use std::{fmt, ops::Range};

use crate::{Segment, memory::Segments, registrations::Registrations};

/// Shorter messages are copied by the processor (M-OM-A), in bytes.
const MESSAGE_LEN_MIN: u32 = 32 << 10;
/// Shorter pieces are copied by the processor, too, in bytes.
const PIECE_LEN_MIN: usize = 1 << 10;

/// An engine that copies memory while the processor goes on.
///
/// # Safety
/// When [`CopyEngine::finish`] has returned, or the engine is dropped, all that was submitted is copied, and the engine does not
/// touch that memory any more.
pub unsafe trait CopyEngine: Send {
    /// Begins to copy `len` bytes. `false`: the engine does not, and the processor will.
    ///
    /// # Safety
    /// Until [`CopyEngine::finish`] has returned, the bytes at `from` can be read and those at `to` written, they do
    /// not overlap, and no other code writes to either.
    unsafe fn submit(&mut self, from: *const u8, to: *mut u8, len: usize) -> bool;

    /// Blocks until every copy is done.
    fn finish(&mut self);

    /// Makes memory known before the first copy to it; its name until [`CopyEngine::unregister`]. `None`: it cannot be, and the
    /// processor copies. By default the engine needs to know nothing.
    ///
    /// # Safety
    /// The memory can be written until the receive that it belongs to is over; where registrations are kept
    /// ([`crate::EndpointOptions::registrations_kept`]), until [`crate::Endpoint::clean_registrations`] is called for it.
    unsafe fn register(&mut self, _memory: *mut u8, _len: usize) -> Option<u64> {
        Some(0)
    }

    /// The memory of this name may be gone from now on; no copy to it is running.
    fn unregister(&mut self, _name: u64) {}
}

/// Copies of received data that are running.
#[derive(Default)]
pub(crate) struct Copies {
    engine: Option<Box<dyn CopyEngine>>,
    pending: bool,
    registrations: Registrations,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.engine.as_ref().map(|_| "a copy engine");
        let mut shown = f.debug_struct("Copies");
        shown.field("engine", &engine).field("pending", &self.pending);
        shown.field("registrations", &self.registrations).finish()
    }
}

impl Copies {
    pub(crate) fn set(&mut self, engine: Option<Box<dyn CopyEngine>>) {
        self.clean(&(0..usize::MAX));
        self.finish();
        self.engine = engine;
    }

    /// What the engine knows stays registered when a receive is over, or does not.
    pub(crate) const fn keep_registrations(&mut self, kept: bool) {
        self.registrations.kept = kept;
    }

    /// The engine forgets whatever shares a byte with this memory.
    pub(crate) fn clean(&mut self, memory: &Range<usize>) {
        if let Some(engine) = &mut self.engine {
            self.registrations.clean(engine.as_mut(), memory);
        }
    }

    /// A receive is over: its memory is the program's again.
    #[inline]
    pub(crate) fn over(&mut self, memory: &Segments) {
        if !self.registrations.is_empty() && !self.registrations.kept {
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

    /// Whether a piece of a message is worth submitting.
    #[inline]
    pub(crate) fn takes(&self, message_len: u32, piece_len: usize) -> bool {
        self.engine.is_some() && message_len >= MESSAGE_LEN_MIN && piece_len >= PIECE_LEN_MIN
    }

    /// Copies, at once or until [`Copies::finish`]. `segment` is the piece of the program's memory that holds `to`.
    ///
    /// # Safety
    /// As [`CopyEngine::submit`] asks, until [`Copies::finish`] has returned, and as [`CopyEngine::register`] does of the segment.
    pub(crate) unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize, segment: Segment) {
        if let Some(engine) = &mut self.engine {
            let engine = engine.as_mut();
            // SAFETY: the caller's promise is the one that is asked for.
            let known = unsafe { self.registrations.add(engine, segment.ptr, segment.len as usize) };
            // SAFETY: as above.
            if known && unsafe { engine.submit(from, to, len) } {
                self.pending = true;
                return;
            }
        }
        // SAFETY: readable, writable and not overlapping, as the caller promises.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }

    /// Every copy is done, or will be when this returns.
    #[inline]
    pub(crate) fn finish(&mut self) {
        if self.pending
            && let Some(engine) = &mut self.engine
        {
            engine.finish();
            self.pending = false;
        }
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.set(None);
    }
}
