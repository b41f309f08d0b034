//! What goes out.

use ether::Time;

use super::{Answer, Engine};
use crate::{
    Counter,
    wire::{FRAME_LEN_MIN, Path, emit},
};

impl Engine {
    /// Bytes of the longest frame.
    #[inline]
    pub fn frame_len_max(&self) -> usize {
        (ether::ETHERNET_HEADER_LEN + usize::from(self.shared.config.mtu)).max(FRAME_LEN_MIN.max(ANSWER_LEN_MAX))
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may have a frame.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.ready.is_empty() || !self.answers.is_empty()
    }

    /// Writes the next frame to be sent, Ethernet's header included, into `buffer`, and returns its length. Connections take turns. A
    /// `buffer` shorter than [`frame_len_max`](Self::frame_len_max) gets nothing.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<usize> {
        if !self.has_output() || buffer.len() < self.frame_len_max() {
            return None;
        }
        if let Some(answer) = self.answers.pop_front() {
            return self.emit_answer(&answer, buffer);
        }
        while let Some(slot) = self.ready.pop_front() {
            let Some(connection) = self.slots.get_mut(slot) else {
                continue;
            };
            connection.flags.is_queued = false;
            if !connection.has_output() {
                continue;
            }
            let len = connection.emit(&mut self.shared, now, buffer);
            self.settle(slot, now);
            if let Some(len) = len {
                self.shared.counters.count(Counter::FramesSent);
                return Some(len);
            }
        }
        None
    }

    fn emit_answer(&mut self, answer: &Answer, buffer: &mut [u8]) -> Option<usize> {
        let path = Path {
            destination: answer.to,
            source: self.shared.config.mac,
            ether_type: self.shared.config.ether_type,
        };
        self.shared.counters.count(Counter::FramesSent);
        emit(buffer, &path, &answer.header, &answer.body, answer.check).ok()
    }
}

/// No frame without payload is longer: an acknowledgement with all its ranges and a check sequence.
const ANSWER_LEN_MAX: usize = 128;
