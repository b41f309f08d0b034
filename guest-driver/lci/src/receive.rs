//! Numbered frames of one link, inward: which comes next, which came early, and which acknowledgement is due.

use alloc::boxed::Box;

use crate::{
    BufferId,
    config::WINDOW,
    wire::{About, Kind},
};

/// Frames without an acknowledgement after which one is sent without delay: a quarter of the window.
pub(crate) const ACK_EVERY: u32 = WINDOW / 4;

/// A numbered frame that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Incoming {
    pub(crate) kind: Kind,
    pub(crate) buffer: Option<BufferId>,
    pub(crate) length: u16,
    pub(crate) about: About,
}

/// Where a number stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// It came before.
    Duplicate,
    /// It is not the sender's turn.
    Beyond,
    /// So many frames before it are missing or wait.
    Ahead(u32),
}

/// The frames of a link, inward.
#[derive(Debug)]
pub(crate) struct Receiver {
    next: u32,
    slots: Box<[Option<Incoming>]>,
    /// Bit *n*: the frame `next + n` is there.
    present: u64,
    unacknowledged: u32,
    /// The peer wants to hear an acknowledgement.
    pub(crate) ack_now: bool,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            next: 0,
            slots: (0..WINDOW).map(|_| None).collect(),
            present: 0,
            unacknowledged: 0,
            ack_now: false,
        }
    }

    /// Where a number stands. One that came before, or leaves a hole, is answered without delay.
    #[inline]
    pub(crate) fn place(&mut self, sequence: u32) -> Place {
        let ahead = sequence.wrapping_sub(self.next);
        if (ahead as i32) < 0 || ahead < WINDOW && self.present & 1 << ahead != 0 {
            self.ack_now = true;
            Place::Duplicate
        } else if ahead >= WINDOW {
            Place::Beyond
        } else {
            Place::Ahead(ahead)
        }
    }

    /// Keeps a frame that stands so far ahead.
    #[inline]
    pub(crate) fn insert(&mut self, ahead: u32, incoming: Incoming) {
        let sequence = self.next.wrapping_add(ahead);
        self.slots[(sequence % WINDOW) as usize] = Some(incoming);
        self.present |= 1 << ahead;
        self.ack_now |= ahead > 0;
    }

    /// Whether no frame more has room behind one that waits.
    pub(crate) fn is_full(&self) -> bool {
        self.present & 1 << (WINDOW - 1) != 0
    }

    /// The frame that comes next, if it is there.
    #[inline]
    pub(crate) fn head(&self) -> Option<&Incoming> {
        self.slots[(self.next % WINDOW) as usize].as_ref()
    }

    /// Takes the frame that comes next.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.slots[(self.next % WINDOW) as usize] = None;
        self.next = self.next.wrapping_add(1);
        self.present >>= 1;
        self.unacknowledged += 1;
        self.ack_now |= self.unacknowledged >= ACK_EVERY;
    }

    /// Frames that are missing before this number, where none comes out of order.
    pub(crate) fn missing_before(&self, sequence: u32) -> u32 {
        sequence.wrapping_sub(self.next.wrapping_add(self.present.count_ones()))
    }

    /// Whether frames are not acknowledged.
    #[inline]
    pub(crate) fn owes_ack(&self) -> bool {
        self.unacknowledged > 0 || self.ack_now
    }

    /// What a frame to the peer acknowledges.
    #[inline]
    pub(crate) fn acknowledgement(&self) -> (u32, u64) {
        (self.next, self.present >> 1)
    }

    /// The acknowledgement is in flight.
    #[inline]
    pub(crate) fn acknowledged(&mut self) {
        self.unacknowledged = 0;
        self.ack_now = false;
    }

    /// The peer is gone: `lose` gets what waited for its turn.
    pub(crate) fn clear(&mut self, lose: impl FnMut(Incoming)) {
        self.slots.iter_mut().filter_map(Option::take).for_each(lose);
        self.present = 0;
        self.acknowledged();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(number: u32) -> Incoming {
        Incoming {
            kind: Kind::Unicast,
            buffer: None,
            length: 0,
            about: About {
                number,
                ..About::default()
            },
        }
    }

    #[test]
    fn frames_come_out_in_order_and_acknowledgements_say_which_are_there() {
        let mut receiver = Receiver::new();
        receiver.next = u32::MAX - 1;
        let number = |n: u32| n.wrapping_sub(2);
        for n in [2, 0, 3] {
            let Place::Ahead(ahead) = receiver.place(number(n)) else {
                panic!("{n} is new")
            };
            receiver.insert(ahead, frame(n));
            if n == 0 {
                receiver.advance();
            }
        }
        assert_eq!(receiver.acknowledgement(), (number(1), 0b11));
        assert_eq!(
            [0, 2, 65].map(|n| receiver.place(number(n))),
            [Place::Duplicate, Place::Duplicate, Place::Beyond]
        );
        assert!(receiver.head().is_none());
        assert_eq!(receiver.missing_before(number(5)), 2);
        receiver.insert(0, frame(1));
        for n in 1..4 {
            assert_eq!(receiver.head().map(|head| head.about.number), Some(n));
            receiver.advance();
        }
        assert_eq!(receiver.acknowledgement(), (number(4), 0));
        assert!(receiver.owes_ack());
        receiver.acknowledged();
        assert!(!receiver.owes_ack());
    }
}
