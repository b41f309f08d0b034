//! How long requests wait for an answer (7.5), where a program changes it: for what is posted later, or for one request that waits
//! already. What happens when that time is over stands where the request does.

use super::{Engine, LargeId, Peers, SendId, Token, message};

impl<P: Peers> Engine<P> {
    /// After this long without an answer a request posted from now on is given up, in nanoseconds (7.5).
    pub const fn set_give_up(&mut self, give_up_ns: u64) {
        self.give_up_ns = give_up_ns;
    }

    /// The same for one send that is already posted; nothing happens if it is over.
    pub fn set_send_give_up(&mut self, send: SendId, give_up_ns: u64) {
        if !self.messages.is_current(send.slot, send.generation) {
            return;
        }
        let Some(message) = self.messages.get_mut(send.slot) else {
            return;
        };
        message.give_up_ns = give_up_ns;
        if message.sends == 0 {
            return;
        }
        let due = message.first_sent.plus_nanos(give_up_ns);
        self.partner_timers.at_latest(message.partner, due);
        if let message::Kind::Rndv { region } = message.kind
            && let Some(claimed) = self.regions.get_mut(region.into())
            && claimed.message == send.slot
        {
            claimed.give_up_ns = give_up_ns;
            let due = claimed.active_at.plus_nanos(give_up_ns);
            if claimed.acknowledged {
                self.regions.timers.at_latest(region.into(), due);
            }
        }
    }

    /// The same for a connect without an answer, since it was posted. False if there is none of this name.
    pub fn set_connect_give_up(&mut self, token: Token, give_up_ns: u64) -> bool {
        let found = self.connects.pending.iter().find(|(_, pending)| pending.token == token);
        let Some(slot) = found.map(|(slot, _)| slot) else {
            return false;
        };
        if let Some(pending) = self.connects.pending.get_mut(slot) {
            pending.give_up_ns = give_up_ns;
            let due = pending.posted.plus_nanos(give_up_ns);
            self.connects.timers.at_latest(slot, due);
        }
        true
    }

    /// The same for a large message that is being transferred under this name, since its transfer began. False if there is none.
    pub fn set_pull_give_up(&mut self, receive: Token, give_up_ns: u64) -> bool {
        for (at, slot) in (0..).zip(&mut self.pulls.slots) {
            if let Some(pull) = slot.pull.as_mut().filter(|pull| pull.token == receive) {
                pull.give_up_ns = give_up_ns;
                let due = pull.started.plus_nanos(give_up_ns);
                self.pulls.timers.at_latest(at, due);
                return true;
            }
        }
        let larges = &mut self.larges;
        let current = |id: &&LargeId| larges.is_current(id.slot, id.generation);
        let ids = self.pulls.waiting.iter().filter(current).map(|id| id.slot);
        let found = ids.clone().find(|slot| {
            let waiting = larges.get(*slot).and_then(|large| large.waiting);
            waiting.is_some_and(|(token, _)| token == receive)
        });
        let Some(large) = found.and_then(|slot| self.larges.get_mut(slot)) else {
            return false;
        };
        large.give_up_ns = Some(give_up_ns);
        true
    }
}
