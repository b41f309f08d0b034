//! Time-outs: delayed acknowledgements, retransmissions, and giving up (7.2, 7.4, 7.5). Each part of the engine knows
//! what it gives up when; this module changes the limits.

use ether::Time;

use super::{
    Counter, Engine, Peers, SendId, Status, Token,
    connection::{handshake::Due, transmit::Resent},
    transfers::sender::Silent,
};

impl<P: Peers> Engine<P> {
    /// Returns when [`Engine::handle_timeout`] is to be called at the latest; `None`: no timer runs.
    #[inline]
    pub fn poll_timeout(&self) -> Option<Time> {
        let next = self
            .timers
            .next()
            .min(self.handshake.poll_timeout())
            .min(self.transfers_in.poll_timeout())
            .min(self.transfers_out.poll_timeout());
        (next != Time::MAX).then_some(next)
    }

    /// Does what is due at `now`. Call it when [`Engine::poll_timeout`] has passed; earlier calls do no harm.
    pub fn handle_timeout(&mut self, now: Time) {
        self.settle();
        while let Some(slot) = self.timers.pop_due(now) {
            self.partner_timeout(now, slot);
        }
        while let Some(due) = self.handshake.handle_timeout(now) {
            match due {
                Due::Again(id) => {
                    self.counters.count(Counter::ResentConnects);
                    self.queue_connect(now, id);
                }
                Due::GivenUp { partner } => self.give_up(partner),
            }
        }
        while let Some((at, partner)) = self.transfers_in.poll_due(now) {
            let (receiver, transfer) = self.transfer(now, partner);
            if receiver.handle_timeout(at, transfer) {
                self.end_pull(now, at, Status::Timeout, 0);
            }
        }
        while let Some(silent) = self.transfers_out.handle_timeout(now) {
            match silent {
                Silent::Ask { message } => self.transmitter.send_again(message),
                Silent::Over(ended) => self.end_large(Some(ended)),
            }
        }
    }

    fn partner_timeout(&mut self, now: Time, slot: u32) {
        if self.partners[slot].acks.is_due(now) {
            self.acknowledge_now(slot);
        }
        let p = &mut self.partners[slot];
        let short_acks = p.conversation.abilities().short_acks;
        let timing = &self.config.timing;
        match self.transmitter.handle_timeout(now, &mut p.send, timing, short_acks) {
            Resent::GivenUp => self.give_up(slot),
            Resent::Messages(count) => self.counters.add_to(Counter::ResentMessages, count),
        }
        let p = &self.partners[slot];
        let mut next = p.send.retransmission.due.min(p.acks.due());
        if let Some(due) = p.receive.partials_due(self.give_up_ns) {
            // The reference would wait for the missing fragments of a message for ever.
            if due <= now {
                self.give_up(slot);
                return;
            }
            next = next.min(due);
        }
        self.timers.at_latest(slot, next);
    }

    /// Sets the time without an answer after which a request posted from now on is given up, in nanoseconds (7.5).
    pub const fn set_give_up(&mut self, give_up_ns: u64) {
        self.give_up_ns = give_up_ns;
    }

    /// Sets the time without an answer after which a posted send is given up, in nanoseconds; a send that is over stays
    /// so.
    pub fn set_send_give_up(&mut self, send: SendId, give_up_ns: u64) {
        let Some(changed) = self.transmitter.set_give_up(send, give_up_ns) else {
            return;
        };
        self.timers.at_latest(changed.partner, changed.due);
        if let Some(region) = changed.region {
            self.transfers_out.set_give_up(region, send.slot, give_up_ns);
        }
    }

    /// Sets the time from its posting after which a connect without an answer is given up, in nanoseconds. False if
    /// there is none of this name.
    pub fn set_connect_give_up(&mut self, token: Token, give_up_ns: u64) -> bool {
        self.handshake.set_give_up(token, give_up_ns)
    }

    /// Sets the time from its beginning after which the transfer of a large message under this name is given up, in
    /// nanoseconds. False if there is none.
    pub fn set_pull_give_up(&mut self, receive: Token, give_up_ns: u64) -> bool {
        self.transfers_in.set_give_up(receive, give_up_ns)
    }
}
