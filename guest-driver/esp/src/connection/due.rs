//! When something is due for a connection.

use ether::Time;

use super::{Connection, Due, Phase};
use crate::{Counter, Counters, Timing};

impl Connection {
    /// Brings the deadlines up to date.
    #[inline]
    pub(crate) fn set_due(&mut self, now: Time, timing: &Timing, counters: &mut Counters) {
        if self.flags.is_frozen {
            self.due = Due::NEVER;
            return;
        }
        if self.phase != Phase::Open || self.ends.moving_from.is_some() {
            return;
        }
        let due = &mut self.due;
        if !self.send.sent.is_empty() || self.send.is_stuck() {
            if due.retransmit == Time::MAX {
                due.retransmit = now.plus_nanos(self.rtt.timeout_ns(timing));
                if self.waiting_since.replace(self.waiting_since.unwrap_or(now)).is_none() && self.send.sent.is_empty()
                {
                    counters.count(Counter::WindowClosed);
                }
            }
        } else {
            due.retransmit = Time::MAX;
            self.waiting_since = None;
        }
        if !self.receive.owes_ack() || self.receive.ack_now {
            due.ack = Time::MAX;
        } else if due.ack == Time::MAX {
            due.ack = now.plus_nanos(timing.ack_delay_ns);
        }
        if !self.send.is_waiting_for_more() {
            due.hold = Time::MAX;
        } else if due.hold == Time::MAX {
            due.hold = now.plus_nanos(timing.hold_ns);
        }
        if self.keep_alive_ns == 0 {
            due.keep_alive = Time::MAX;
        } else {
            let first = self.heard.plus_nanos(self.keep_alive_ns);
            if due.keep_alive == Time::MAX || first > now {
                due.keep_alive = first;
            }
        }
    }
}
