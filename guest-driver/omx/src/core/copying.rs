//! Copies of received data that an engine makes ([`crate::CopyEngine`]): frames stay until their copies are finished, and receives
//! are over when theirs are.

use super::Core;
use crate::{CopyEngine, StatusCode, copies::Copied, slab::Key};

impl Core {
    /// Replaces the engine; what the one before was given is finished first.
    pub(crate) fn set_copy_engine(&mut self, engine: Option<Box<dyn CopyEngine>>) {
        self.finish_copies();
        let (frames_max, memory) = self.egress.lent();
        // SAFETY: the port keeps its memory until it is dropped, which is after the store and the engine in it (the order of the fields).
        unsafe { self.store.copies.set(engine, frames_max, &memory) };
    }

    /// Keeps the frame that was handled last until its copies are finished. `is_port_s`: it is the port's, and not one of this
    /// interface.
    pub(super) fn keep_frame(&mut self, is_port_s: bool) {
        if is_port_s {
            if !self.store.copies.may_keep_frame() {
                self.release_frames();
            }
            if self.store.copies.may_keep_frame() && self.egress.keep() {
                self.store.copies.kept_frame();
                return;
            }
        }
        self.store.copies.finish();
    }

    /// Ends a receive that has all its packets, now or when its copies are finished.
    pub(super) fn copied(&mut self, request: Key, code: StatusCode, transferred: u32, last_copy: u64) {
        if let Some(copied) = self.store.copies.keep_receive(request, code, transferred, last_copy) {
            self.end(&copied);
        }
    }

    fn end(&mut self, copied: &Copied) {
        let Copied {
            request,
            code,
            transferred,
            ..
        } = *copied;
        self.store.received(request, code, transferred);
    }

    /// Gives frames back whose copies are finished.
    fn release_frames(&mut self) {
        let over = self.store.copies.take_frames();
        if over > 0 {
            self.egress.release(over);
        }
    }

    /// Gives frames back, and ends receives, whose copies are finished.
    #[cold]
    pub(super) fn reclaim(&mut self) {
        self.release_frames();
        while let Some(copied) = self.store.copies.take_receive() {
            self.end(&copied);
        }
    }

    /// Before sleeping: waits for the copies that would have to wake the sleeper, or whose frames would. Returns whether a request
    /// was completed by that.
    #[cold]
    pub(super) fn wait_for_copies(&mut self) -> bool {
        if self.store.copies.has_receives() || !self.egress.may_wait() {
            return self.finish_copies();
        }
        self.store.copies.leave();
        self.reclaim();
        false
    }

    /// Blocks until all copies are finished, and returns whether a request was completed by that.
    #[cold]
    pub(super) fn finish_copies(&mut self) -> bool {
        let before = self.completions();
        self.store.copies.finish();
        self.reclaim();
        self.wake_if(before);
        self.completions() != before
    }
}
