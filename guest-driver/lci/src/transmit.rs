//! Numbered frames of one link, outward: those that wait, those in flight, and which of them are sent again.

use alloc::{boxed::Box, collections::VecDeque};

use ether::Time;

use crate::{
    BufferId, Timing,
    config::WINDOW,
    wire::{About, Kind},
};

/// Frames that were sent later and have arrived, after which one that has not is taken for lost.
const REORDER: u32 = 3;

/// A numbered frame before it has a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing {
    pub(crate) kind: Kind,
    pub(crate) buffer: Option<BufferId>,
    pub(crate) length: u16,
    pub(crate) about: About,
}

impl Outgoing {
    /// A frame without payload.
    pub(crate) const fn control(kind: Kind, about: About) -> Self {
        Self {
            kind,
            buffer: None,
            length: 0,
            about,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Flight {
    out: Outgoing,
    sent_at: Time,
    /// How many frames were sent on this link before.
    order: u32,
    again: bool,
    arrived: bool,
    lost: bool,
}

/// An acknowledgement of what was never sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadAck;

/// The frames of a link, outward.
#[derive(Debug)]
pub(crate) struct Transmitter {
    waiting: VecDeque<Outgoing>,
    flight: Box<[Option<Flight>]>,
    base: u32,
    next: u32,
    order: u32,
    lost: u32,
    srtt_ns: u64,
    rttvar_ns: u64,
    backoff: u32,
}

impl Transmitter {
    pub(crate) fn new() -> Self {
        Self {
            waiting: VecDeque::with_capacity(2 * WINDOW as usize),
            flight: (0..WINDOW).map(|_| None).collect(),
            base: 0,
            next: 0,
            order: 0,
            lost: 0,
            srtt_ns: 0,
            rttvar_ns: 0,
            backoff: 0,
        }
    }

    pub(crate) fn push(&mut self, out: Outgoing) {
        self.waiting.push_back(out);
    }

    /// Whether [`next`](Self::next) has something.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        self.lost > 0 || !self.waiting.is_empty() && self.next.wrapping_sub(self.base) < WINDOW
    }

    /// Whether frames are in flight.
    #[inline]
    pub(crate) fn is_waiting_for_ack(&self) -> bool {
        self.next != self.base
    }

    /// Whether every frame has arrived.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.is_waiting_for_ack()
    }

    #[inline]
    fn slot(&mut self, sequence: u32) -> &mut Option<Flight> {
        &mut self.flight[(sequence % WINDOW) as usize]
    }

    /// Takes the next frame to be sent, its number, and whether it was sent before.
    #[inline]
    pub(crate) fn next(&mut self, now: Time) -> Option<(u32, Outgoing, bool)> {
        self.order = self.order.wrapping_add(1);
        let order = self.order;
        if self.lost > 0 {
            let mut sequence = self.base;
            while sequence != self.next {
                if let Some(flight) = self.slot(sequence)
                    && flight.lost
                {
                    (flight.lost, flight.again) = (false, true);
                    (flight.sent_at, flight.order) = (now, order);
                    let out = flight.out;
                    self.lost -= 1;
                    return Some((sequence, out, true));
                }
                sequence = sequence.wrapping_add(1);
            }
            self.lost = 0;
        }
        if self.next.wrapping_sub(self.base) >= WINDOW {
            return None;
        }
        let out = self.waiting.pop_front()?;
        let sequence = self.next;
        self.next = sequence.wrapping_add(1);
        *self.slot(sequence) = Some(Flight {
            out,
            sent_at: now,
            order,
            again: false,
            arrived: false,
            lost: false,
        });
        Some((sequence, out, false))
    }

    /// A network that loses nothing: the frame that was taken last is there.
    #[inline]
    pub(crate) fn arrived_for_certain(&mut self) -> Option<Outgoing> {
        let sequence = self.base;
        let out = self.slot(sequence).take()?.out;
        self.base = sequence.wrapping_add(1);
        Some(out)
    }

    /// Takes an acknowledgement: `done` gets each frame that has arrived. True if there was any.
    ///
    /// # Errors
    /// [`BadAck`]; nothing was changed.
    #[inline]
    pub(crate) fn acknowledge(
        &mut self,
        now: Time,
        ack: u32,
        selective: u64,
        mut done: impl FnMut(Outgoing),
    ) -> Result<bool, BadAck> {
        let in_flight = self.next.wrapping_sub(self.base);
        let count = ack.wrapping_sub(self.base);
        if count > in_flight {
            // Of before, or of what was never sent.
            let is_old = (count as i32) < 0 && self.base.wrapping_sub(ack) <= WINDOW;
            return if is_old { Ok(false) } else { Err(BadAck) };
        }
        // Bit n is `ack + 1 + n`.
        let beyond = in_flight - count;
        if selective != 0 && 64 - selective.leading_zeros() >= beyond {
            return Err(BadAck);
        }
        for nth in 0..count {
            let sequence = self.base.wrapping_add(nth);
            let Some(flight) = self.slot(sequence).take() else {
                continue;
            };
            self.lost -= u32::from(flight.lost);
            if nth + 1 == count && !flight.again {
                self.sample(now.nanos_since(flight.sent_at));
            }
            done(flight.out);
        }
        self.base = ack;
        if count > 0 {
            self.backoff = 0;
        }
        if selective != 0 {
            self.select(ack, selective);
        }
        Ok(count > 0)
    }

    /// Notes which frames have arrived before an earlier one, and which of the others are lost.
    fn select(&mut self, ack: u32, selective: u64) {
        let mut newest = None::<u32>;
        for nth in 0..64 - selective.leading_zeros() {
            if selective & 1 << nth != 0
                && let Some(flight) = self.slot(ack.wrapping_add(1 + nth))
            {
                if flight.lost {
                    flight.lost = false;
                    self.lost -= 1;
                    continue;
                }
                flight.arrived = true;
                let order = flight.order;
                newest = Some(newest.map_or(order, |newest| {
                    if (order.wrapping_sub(newest) as i32) > 0 {
                        order
                    } else {
                        newest
                    }
                }));
            }
        }
        let Some(newest) = newest else { return };
        for nth in 0..64 - selective.leading_zeros() {
            if let Some(flight) = self.slot(ack.wrapping_add(nth))
                && !flight.arrived
                && !flight.lost
                && newest.wrapping_sub(flight.order) as i32 >= REORDER as i32
            {
                flight.lost = true;
                self.lost += 1;
            }
        }
    }

    fn sample(&mut self, rtt_ns: u64) {
        if self.srtt_ns == 0 {
            (self.srtt_ns, self.rttvar_ns) = (rtt_ns.max(1), rtt_ns / 2);
            return;
        }
        let deviation = self.srtt_ns.abs_diff(rtt_ns);
        self.rttvar_ns = (3 * self.rttvar_ns + deviation) / 4;
        self.srtt_ns = (7 * self.srtt_ns + rtt_ns) / 8;
    }

    /// How long a frame waits for its acknowledgement before it is sent again.
    fn patience_ns(&self, timing: &Timing) -> u64 {
        let usual = (self.srtt_ns + 4 * self.rttvar_ns + timing.ack_delay_ns).max(timing.retransmit_min_ns);
        (usual << self.backoff.min(16)).min(timing.retransmit_max_ns.max(timing.retransmit_min_ns))
    }

    /// When the oldest frame in flight is to be sent again.
    pub(crate) fn due(&mut self, timing: &Timing) -> Option<Time> {
        if !self.is_waiting_for_ack() {
            return None;
        }
        let patience_ns = self.patience_ns(timing);
        let base = self.base;
        self.slot(base).map(|flight| flight.sent_at.plus_nanos(patience_ns))
    }

    /// The oldest frame's time is over: it is sent again, arrived or not, and so are all that are as late.
    pub(crate) fn expire(&mut self, now: Time, timing: &Timing) {
        let patience_ns = self.patience_ns(timing);
        let mut sequence = self.base;
        while sequence != self.next {
            let is_first = sequence == self.base;
            if let Some(flight) = self.slot(sequence)
                && !flight.lost
                && (is_first || !flight.arrived)
                && now.nanos_since(flight.sent_at) >= patience_ns
            {
                flight.lost = true;
                self.lost += 1;
            }
            sequence = sequence.wrapping_add(1);
        }
        self.backoff = (self.backoff + 1).min(16);
    }

    /// The peer is gone: `lose` gets everything that has not arrived.
    pub(crate) fn clear(&mut self, mut lose: impl FnMut(Outgoing)) {
        while self.base != self.next {
            let base = self.base;
            if let Some(flight) = self.slot(base).take() {
                lose(flight.out);
            }
            self.base = base.wrapping_add(1);
        }
        self.waiting.drain(..).for_each(lose);
        self.lost = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMING: Timing = Timing {
        ack_delay_ns: 500_000,
        retransmit_min_ns: 4_000_000,
        retransmit_max_ns: 200_000_000,
        dead_ns: 10_000_000_000,
    };

    fn filled(count: u32) -> Transmitter {
        let mut transmitter = Transmitter::new();
        for number in 0..count {
            let about = About {
                number,
                ..About::default()
            };
            transmitter.push(Outgoing::control(Kind::Gone, about));
        }
        transmitter
    }

    #[test]
    fn m_bv2_the_window_holds_back_and_what_is_lost_is_sent_again() {
        let at = |us: u64| Time::from_nanos(us * 1_000);
        let mut sender = filled(80);
        for number in 0..64 {
            assert_eq!(
                sender.next(at(number.into())).map(|(sequence, ..)| sequence),
                Some(number)
            );
        }
        assert!(!sender.is_ready() && sender.next(at(64)).is_none());
        let mut done = 0;
        // All but number 2 up to 6 are there.
        assert_eq!(sender.acknowledge(at(100), 2, 0b1111, |_| done += 1), Ok(true));
        assert_eq!(done, 2);
        assert_eq!(
            sender.next(at(101)).map(|(sequence, _, again)| (sequence, again)),
            Some((2, true))
        );
        assert_eq!(
            sender.next(at(102)).map(|(sequence, _, again)| (sequence, again)),
            Some((64, false))
        );
        assert_eq!(sender.acknowledge(at(103), 66, 0, |_| ()), Err(BadAck), "never sent");
        assert_eq!(sender.acknowledge(at(103), 64, 1, |_| ()), Err(BadAck), "never sent");
        assert_eq!(sender.acknowledge(at(103), 1, 0, |_| ()), Ok(false), "an old one");
        assert_eq!(sender.acknowledge(at(103), 65, 0, |_| done += 1), Ok(true));
        assert_eq!(
            (done, sender.is_waiting_for_ack(), sender.due(&TIMING)),
            (65, false, None)
        );
        let sent = sender.next(at(200)).map(|(sequence, ..)| sequence);
        assert_eq!(sent, Some(65));
        let due = sender.due(&TIMING).unwrap();
        assert_eq!(due, at(200).plus_nanos(TIMING.retransmit_min_ns));
        sender.expire(due, &TIMING);
        assert_eq!(
            sender.next(due).map(|(sequence, _, again)| (sequence, again)),
            Some((65, true))
        );
        assert!(
            sender.due(&TIMING).unwrap() >= due.plus_nanos(2 * TIMING.retransmit_min_ns),
            "with more patience"
        );
        sender.clear(|_| done += 1);
        assert_eq!((done, sender.is_idle()), (80, true));
    }
}
