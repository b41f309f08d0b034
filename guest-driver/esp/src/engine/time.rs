//! What is due.

use ether::Time;

use super::Engine;
use crate::{
    Counter, Reason,
    connection::{Due, Phase},
};

impl Engine {
    /// When [`handle_timeout`](Self::handle_timeout) is to be called; none if nothing is due at any time.
    pub fn poll_timeout(&mut self) -> Option<Time> {
        loop {
            let (at, slot) = self.timers.first()?;
            let due = self
                .slots
                .get(slot)
                .map_or(Time::MAX, |connection| connection.due.first());
            if due <= at {
                return Some(at);
            }
            self.timers.move_first(due);
        }
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some(at) = self.poll_timeout()
            && at <= now
        {
            let Some((_, slot)) = self.timers.first() else {
                return;
            };
            self.expire(slot, now);
            self.settle(slot, now);
        }
    }

    fn expire(&mut self, slot: u32, now: Time) {
        let Some(connection) = self.slots.get_mut(slot) else {
            self.timers.remove(slot);
            return;
        };
        let Due {
            retransmit,
            ack,
            linger,
            keep_alive,
            hold,
        } = connection.due;
        if ack <= now {
            connection.receive.ack_is_due();
            connection.due.ack = Time::MAX;
        }
        if hold <= now {
            connection.send.push_all();
            connection.due.hold = Time::MAX;
        }
        if linger <= now {
            connection.due.linger = Time::MAX;
            self.linger_over(slot);
        } else if keep_alive <= now {
            self.ask(slot, now);
        } else if retransmit <= now {
            self.retransmit(slot, now);
        }
    }

    /// The end of TIME-WAIT, of the memory of a connection that has moved, or of the patience with a peer that does not end its stream.
    fn linger_over(&mut self, slot: u32) {
        match self.slots.get(slot).map(|connection| connection.phase) {
            Some(Phase::TimeWait | Phase::Away(_)) => self.leave_key(slot),
            _ => {
                self.shared.counters.count(Counter::GivenUp);
                self.abort_slot(slot);
            }
        }
    }

    /// Asks a silent peer whether it is there, or gives it up.
    fn ask(&mut self, slot: u32, now: Time) {
        let give_up_ns = self.shared.config.timing.give_up_ns;
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        let silence_ns = now.nanos_since(connection.heard);
        if silence_ns >= connection.keep_alive_ns.saturating_add(give_up_ns) {
            self.shared.counters.count(Counter::GivenUp);
            self.end(slot, Reason::TimedOut);
            return;
        }
        connection.flags.probe_now = true;
        connection.due.keep_alive = now.plus_nanos(self.shared.config.timing.rto_max_ns);
    }

    /// Nothing came back in time.
    fn retransmit(&mut self, slot: u32, now: Time) {
        let timing = &self.shared.config.timing;
        let Some(connection) = self.slots.get_mut(slot) else {
            return;
        };
        let is_handshake = matches!(connection.phase, Phase::SynSent | Phase::SynReceived);
        let limit_ns = if is_handshake {
            timing.connect_give_up_ns
        } else {
            timing.give_up_ns
        };
        if connection
            .waiting_since
            .is_some_and(|since| now.nanos_since(since) >= limit_ns)
        {
            self.shared.counters.count(Counter::GivenUp);
            self.end(slot, Reason::TimedOut);
            return;
        }
        connection.rtt.backoff = connection.rtt.backoff.saturating_add(1);
        connection.due.retransmit = Time::MAX;
        if is_handshake || connection.ends.moving_from.is_some() {
            connection.flags.control_now = true;
            connection.due.retransmit = now.plus_nanos(connection.rtt.timeout_ns(timing));
        } else if connection.send.sent.is_empty() {
            connection.flags.probe_now = true;
        } else {
            self.shared.counters.count(Counter::Timeouts);
            connection.send.timed_out(connection.rtt.backoff > 1);
        }
    }
}
