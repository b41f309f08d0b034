//! What happens when time passes: delayed acknowledgements, retransmissions, and giving up (7.2, 7.4, 7.5).

use ether::Time;

use super::{Counter, Engine, Peers};

impl<P: Peers> Engine<P> {
    /// Does what is due at `now`. Call it when [`Engine::poll_timeout`] has passed; earlier calls do no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.settle();
        while let Some(slot) = self.partner_timers.pop_due(now) {
            self.partner_timeout(now, slot);
        }
        while let Some(slot) = self.connects.timers.pop_due(now) {
            self.connect_timeout(now, slot);
        }
        while let Some(at) = self.pulls.timers.pop_due(now) {
            self.pull_timeout(now, at);
        }
        while let Some(number) = self.regions.timers.pop_due(now) {
            self.region_timeout(now, number);
        }
    }

    fn partner_timeout(&mut self, now: Time, slot: u32) {
        let p = &self.partners[slot as usize];
        if p.ack_at <= now {
            self.ack_at_once(slot);
        }
        self.retransmit(now, slot);
        let p = &self.partners[slot as usize];
        let mut next = if p.ack_now { p.rto_at } else { p.rto_at.min(p.ack_at) };
        if !p.partials.is_empty() {
            // The reference would wait for the rest of a message for ever.
            let due = p.fragment_at.plus_nanos(self.give_up_ns);
            if due <= now {
                self.give_up(slot);
                return;
            }
            next = next.min(due);
        }
        self.partner_timers.at_latest(slot, next);
    }

    /// Queues every message again that was sent long enough ago (7.4), and finds when the next one will be due.
    fn retransmit(&mut self, now: Time, slot: u32) {
        let p = &mut self.partners[slot as usize];
        let rto = p.rtt.rto_ns(&self.config.timing, p.short_acks);
        p.rto_at = Time::MAX;
        let mut next = Time::MAX;
        let mut resent = 0u32;
        let mut at = p.unacked.head;
        while let Some(message) = self.messages.get_mut(at) {
            let this = at;
            at = message.next;
            if message.sends == 0 || message.queued || message.done {
                continue;
            }
            let deadline = message.first_sent.plus_nanos(message.give_up_ns);
            if deadline <= now {
                self.give_up(slot);
                return;
            }
            let due = message.last_sent.plus_nanos(rto);
            if due <= now {
                message.queued = true;
                resent += 1;
                self.send_queue.push_back((this, self.messages.generation(this)));
                next = next.min(deadline);
            } else {
                next = next.min(due).min(deadline);
            }
        }
        if resent > 0 {
            self.counters.add_to(Counter::ResentMessages, resent);
            self.partners[slot as usize].rtt.unanswered();
        }
        self.partners[slot as usize].rto_at = next;
    }
}
