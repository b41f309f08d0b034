//! Frames that have arrived at a card whose guest has no buffer for them just now, oldest first.

use std::collections::VecDeque;

use crate::dataplane::frames::pool::Pooled;

/// Bytes of buffers that frames may take which wait for the receive buffers of one guest, beyond what is in its rings: an
/// emulated guest at 1 Gbit/s may be away from its processor for 30 ms.
const WAITING_BYTES_MAX: usize = 4 << 20;

/// The queue of these frames.
#[derive(Debug, Default)]
pub struct WaitingFrames {
    frames: VecDeque<Pooled>,
    bytes: usize,
}

impl WaitingFrames {
    /// True if no frame waits.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Number of waiting frames that guests and cards sent.
    pub fn under_way(&self) -> usize {
        self.frames
            .iter()
            .filter(|frame| !frame.transit.is_from_switch())
            .count()
    }

    /// Whether `frame` may wait, too.
    pub fn has_room_for(&self, frame: &Pooled) -> bool {
        self.bytes + frame.buffer_len() <= WAITING_BYTES_MAX
    }

    /// Lets `frame` wait behind all others.
    pub fn push_back(&mut self, frame: Pooled) {
        self.bytes += frame.buffer_len();
        self.frames.push_back(frame);
    }

    /// Lets `frame`, which was taken from the front, go on waiting.
    pub fn push_front(&mut self, frame: Pooled) {
        self.bytes += frame.buffer_len();
        self.frames.push_front(frame);
    }

    /// Takes the frame that has waited longest.
    pub fn pop_front(&mut self) -> Option<Pooled> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.buffer_len();
        Some(frame)
    }
}
