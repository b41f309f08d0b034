//! The hook for an engine that copies received data in the processor's place (papers.md M-OM-A); by default the processor copies.
//! A port lends one frame at a time: copies of a frame overlap with what the protocol does about that frame, no more.

use std::fmt;

/// Shorter messages are copied by the processor (M-OM-A), in bytes.
const MESSAGE_LEN_MIN: u32 = 32 << 10;
/// So is what comes in shorter pieces, in bytes.
const PIECE_LEN_MIN: usize = 1 << 10;

/// An engine that copies memory while the processor goes on.
///
/// # Safety
/// When [`CopyEngine::finish`] has returned, or the engine is dropped, all that was submitted is copied, and the engine does not
/// touch that memory any more.
pub unsafe trait CopyEngine: Send {
    /// Begins to copy `len` bytes. `false`: it does not, and the processor will.
    ///
    /// # Safety
    /// Until [`CopyEngine::finish`] has returned the bytes at `from` can be read and those at `to` written, they do not overlap,
    /// and nobody else writes to either.
    unsafe fn submit(&mut self, from: *const u8, to: *mut u8, len: usize) -> bool;

    /// Blocks until every copy is done.
    fn finish(&mut self);
}

/// Copies of received data on their way.
#[derive(Default)]
pub(crate) struct Copies {
    engine: Option<Box<dyn CopyEngine>>,
    pending: bool,
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let engine = self.engine.as_ref().map(|_| "a copy engine");
        let mut shown = f.debug_struct("Copies");
        shown.field("engine", &engine).field("pending", &self.pending).finish()
    }
}

impl Copies {
    pub(crate) fn set(&mut self, engine: Option<Box<dyn CopyEngine>>) {
        self.finish();
        self.engine = engine;
    }

    /// Whether a piece of a message is worth submitting.
    #[inline]
    pub(crate) fn takes(&self, message_len: u32, piece_len: usize) -> bool {
        self.engine.is_some() && message_len >= MESSAGE_LEN_MIN && piece_len >= PIECE_LEN_MIN
    }

    /// Copies, at once or until [`Copies::finish`].
    ///
    /// # Safety
    /// As [`CopyEngine::submit`] asks, until [`Copies::finish`] has returned.
    pub(crate) unsafe fn copy(&mut self, from: *const u8, to: *mut u8, len: usize) {
        if let Some(engine) = &mut self.engine {
            // SAFETY: the caller's promise is the one that is asked for.
            if unsafe { engine.submit(from, to, len) } {
                self.pending = true;
                return;
            }
        }
        // SAFETY: readable, writable and apart, as the caller promises.
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
