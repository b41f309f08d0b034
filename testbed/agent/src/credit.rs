//! The credit of one direction of one stream: the sender spends it, and the receiver gives it back as it consumes. So a
//! slow reader stops only its own command, and the data that waits in memory is bounded. This module moves no data.

use std::sync::{Condvar, Mutex, PoisonError};

/// Bytes of one stream that may be in flight or unconsumed. 256 KiB keep a virtio-serial port busy (it carries some ten
/// MB/s under TCG) and bound the memory of a stalled command.
pub const WINDOW: u32 = 256 * 1024;

/// The receiver gives credit back in pieces of at least this many bytes, so that credit frames stay few.
pub const CREDIT_STEP: u32 = WINDOW / 8;

/// The sender's half of a stream's credit.
#[derive(Debug)]
pub struct Window {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    available: u32,
    closed: bool,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                available: WINDOW,
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }
}

impl Window {
    /// Waits for credit and takes at most `wanted` bytes of it. Returns `None` once the window was closed.
    pub fn take(&self, wanted: u32) -> Option<u32> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if state.closed {
                return None;
            }
            if state.available > 0 {
                let taken = state.available.min(wanted);
                state.available -= taken;
                return Some(taken);
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives back credit: bytes that the receiver consumed, or bytes taken and not used. The credit never exceeds
    /// [`WINDOW`], whatever the other end says.
    pub fn grant(&self, bytes: u32) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.available = state.available.saturating_add(bytes).min(WINDOW);
        self.changed.notify_all();
    }

    /// Ends the stream: every thread that waits for credit, now or later, gets `None`.
    pub fn close(&self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.changed.notify_all();
    }
}

/// The receiver's half of a stream's credit: collects consumed bytes until a credit frame is worth sending.
#[derive(Debug, Default)]
pub struct Consumed {
    bytes: u32,
}

impl Consumed {
    /// Notes `bytes` as consumed; returns the credit to send now, if any.
    #[must_use]
    pub fn add(&mut self, bytes: usize) -> Option<u32> {
        self.bytes = self.bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        (self.bytes >= CREDIT_STEP).then(|| std::mem::take(&mut self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credit_is_spent_given_back_and_never_exceeds_the_window() {
        let window = Window::default();
        assert_eq!(window.take(WINDOW * 2), Some(WINDOW));
        window.grant(10);
        assert_eq!(window.take(4), Some(4));
        window.grant(u32::MAX);
        assert_eq!(window.take(u32::MAX), Some(WINDOW));
        window.close();
        assert_eq!(window.take(1), None);
    }

    #[test]
    fn closing_wakes_a_sender_that_waits() {
        let window = Window::default();
        window.take(WINDOW);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| window.take(1));
            window.close();
            assert_eq!(waiting.join().unwrap(), None);
        });
    }

    #[test]
    fn consumed_bytes_are_reported_in_steps() {
        let mut consumed = Consumed::default();
        assert_eq!(consumed.add(CREDIT_STEP as usize - 1), None);
        assert_eq!(consumed.add(1), Some(CREDIT_STEP));
        assert_eq!(consumed.add(1), None);
    }
}
