//! What is due: acknowledgements, retransmissions, questions to silent nodes, reports, and timers of the program.

use ether::Time;

use super::{Due, Engine, LINK_KEYS, key};
use crate::Event;

impl Engine {
    /// When [`handle_timeout`](Self::handle_timeout) has something to do at the earliest; [`Time::MAX`] for never. It may be
    /// earlier than anything that is due: timers are cancelled much more often than they expire.
    #[inline]
    pub fn poll_timeout(&self) -> Time {
        self.deadlines.next()
    }

    /// Does what is due at `now`.
    pub fn handle_timeout(&mut self, now: Time) {
        self.now = now;
        while let Some(due) = self.deadlines.pop_due(now) {
            let node = due / LINK_KEYS;
            let reports = LINK_KEYS * self.links.len();
            if due == reports {
                self.report_all();
            } else if due > reports {
                self.events.push_back(Event::Timer {
                    timer: due - reports - 1,
                });
            } else if due == key(node, Due::Ack) {
                self.links[node].inward.ack_now = true;
                self.wake(node);
            } else if due == key(node, Due::Retransmit) {
                self.retransmit(node);
            } else {
                self.probe(node);
            }
        }
    }

    fn retransmit(&mut self, node: usize) {
        let timing = &self.config.timing;
        let link = &mut self.links[node];
        let Some(due) = link.outward.due(timing) else {
            return;
        };
        if due <= self.now {
            link.outward.expire(self.now, timing);
        }
        let due = if due <= self.now {
            // What is sent again gets its time when it is sent; until then nothing more is due.
            link.outward
                .due(timing)
                .map(|due| due.max(self.now.plus_nanos(timing.retransmit_min_ns)))
        } else {
            Some(due)
        };
        if let Some(due) = due {
            self.deadlines.set(key(node, Due::Retransmit), due);
        }
        self.wake(node);
    }

    /// Starts timer number `timer` of the program, or starts it anew: [`Event::Timer`] follows in `after_ns` nanoseconds. False if
    /// there is no such timer ([`crate::Limits::timers`]).
    pub fn start_timer(&mut self, now: Time, timer: usize, after_ns: u64) -> bool {
        if timer >= self.config.limits.timers {
            return false;
        }
        self.now = now;
        let key = LINK_KEYS * self.links.len() + 1 + timer;
        self.deadlines.set(key, now.plus_nanos(after_ns));
        true
    }

    /// Stops a timer of the program; false if it does not run.
    pub fn stop_timer(&mut self, timer: usize) -> bool {
        let key = LINK_KEYS * self.links.len() + 1 + timer;
        let runs = timer < self.config.limits.timers && self.deadlines.is_set(key);
        if runs {
            self.deadlines.cancel(key);
        }
        runs
    }

    /// Running timers of the program and of the protocol, questions to silent nodes not counted: while there are any, the
    /// library's clock is to be looked at (M-BV10).
    #[inline]
    pub fn timers_running(&self) -> u32 {
        self.deadlines.running()
    }
}
