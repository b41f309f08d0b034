//! Posting messages and giving them sequence numbers: which packet a message becomes, when it completes early, and what
//! makes it wait (3.1, 7.1, mx-api 6.3).

use ether::Time;

use super::{
    Counter, Engine, PartnerId, Peers, Posted, SendError, SendId, SendOptions, Token,
    message::{Kind, Message},
    region::Claim,
    slab::NIL,
};
use crate::wire::{SMALL_DATA_MAX, TINY_DATA_MAX};

/// Unacknowledged messages per partner, at most (7.1).
pub(super) const WINDOW: u16 = 8191;

impl<P: Peers> Engine<P> {
    /// Sends up to 128 bytes, copied now. Normally complete at once ([`Posted::Early`]); then [`super::Event::Sent`] comes
    /// only if it fails.
    ///
    /// # Errors
    /// [`SendError::TooLong`], [`SendError::NotConnected`], [`SendError::TooMany`].
    #[inline]
    pub fn send_inline(
        &mut self,
        _now: Time,
        to: PartnerId,
        match_info: u64,
        token: Token,
        data: &[u8],
    ) -> Result<Posted, SendError> {
        let kind = match data.len() {
            len if len <= TINY_DATA_MAX => Kind::Tiny,
            len if len <= SMALL_DATA_MAX => Kind::Small,
            _ => return Err(SendError::TooLong),
        };
        let slot = self.post(to, kind, match_info, token, data.len() as u32)?;
        let early = self.may_complete_early(data.len() as u32);
        if let Some(message) = self.messages.get_mut(slot) {
            message.data[..data.len()].copy_from_slice(data);
        }
        let sequenced = self.pump_for(to, slot);
        Ok(self.posted(slot, early && sequenced))
    }

    /// Sends `length` bytes that the caller names `token`: eagerly in fragments up to the rendezvous threshold, otherwise
    /// as a large message. [`super::Event::Sent`] always follows.
    ///
    /// # Errors
    /// [`SendError::NotConnected`], [`SendError::TooMany`].
    pub fn send(
        &mut self,
        _now: Time,
        to: PartnerId,
        match_info: u64,
        token: Token,
        length: u32,
        options: SendOptions,
    ) -> Result<Posted, SendError> {
        let sizes = self.dialect.sizes();
        let threshold = self
            .config
            .rndv_threshold
            .clamp(SMALL_DATA_MAX as u32, sizes.medium_len_max());
        let large = options.synchronous || length > threshold;
        let early = !large && options.copyable && self.may_complete_early(length);
        let kind = if large {
            Kind::Rndv { region: 0 }
        } else {
            Kind::Medium { copied: early }
        };
        let slot = self.post(to, kind, match_info, token, length)?;
        let sequenced = self.pump_for(to, slot);
        Ok(self.posted(slot, early && sequenced))
    }

    pub(super) const fn has_room_for_early(&self, length: u32) -> bool {
        let limits = &self.config.limits;
        self.zombies < limits.zombies
            && self.early_completed_bytes.saturating_add(length) <= limits.early_completed_bytes
    }

    fn may_complete_early(&mut self, length: u32) -> bool {
        let mut room = self.has_room_for_early(length);
        if !room && !self.is_settled() {
            self.settle();
            room = self.has_room_for_early(length);
        }
        if !room {
            self.counters.count(Counter::EarlyCompletionStopped);
        }
        room
    }

    fn post(
        &mut self,
        to: PartnerId,
        kind: Kind,
        match_info: u64,
        token: Token,
        length: u32,
    ) -> Result<u32, SendError> {
        let partner = self.partners.get(to.index()).ok_or(SendError::NotConnected)?;
        if !partner.known {
            return Err(SendError::NotConnected);
        }
        if self.messages.len() >= self.config.limits.sends {
            self.settle();
            if self.messages.len() >= self.config.limits.sends {
                return Err(SendError::TooMany);
            }
        }
        let message = Message::new(to.0, kind, token, match_info, length, self.give_up_ns);
        let slot = self.messages.insert(message).ok_or(SendError::TooMany)?;
        self.append(to.0, slot);
        Ok(slot)
    }

    fn pump_for(&mut self, to: PartnerId, slot: u32) -> bool {
        self.pump(to.0);
        let sequenced = self.partners[to.index()].queue.tail != slot;
        if !sequenced {
            self.counters.count(Counter::SendsThrottled);
        }
        sequenced
    }

    fn posted(&mut self, slot: u32, early: bool) -> Posted {
        let send = SendId {
            slot,
            generation: self.messages.generation(slot),
        };
        if !early {
            return Posted::Pending(send);
        }
        if let Some(message) = self.messages.get_mut(slot) {
            message.early = true;
            self.zombies += 1;
            self.early_completed_bytes += message.length;
        }
        Posted::Early(send)
    }

    /// Puts a message at the end of its partner's queue.
    pub(super) fn append(&mut self, partner: u32, slot: u32) {
        let queue = &mut self.partners[partner as usize].queue;
        let tail = core::mem::replace(&mut queue.tail, slot);
        if tail == NIL {
            queue.head = slot;
        } else if let Some(before) = self.messages.get_mut(tail) {
            before.next = slot;
        }
    }

    /// Puts a message in front of its partner's queue.
    pub(super) fn prepend(&mut self, partner: u32, slot: u32) {
        let queue = &mut self.partners[partner as usize].queue;
        let next = core::mem::replace(&mut queue.head, slot);
        if next == NIL {
            queue.tail = slot;
        }
        if let Some(message) = self.messages.get_mut(slot) {
            message.next = next;
        }
    }

    /// Gives sequence numbers to queued messages as long as the window, the eager bytes and the regions allow.
    #[inline]
    pub(super) fn pump(&mut self, slot: u32) {
        let p = &self.partners[slot as usize];
        if p.known && p.queue.head != NIL {
            self.pump_queue(slot);
        }
    }

    fn pump_queue(&mut self, slot: u32) {
        loop {
            let p = &mut self.partners[slot as usize];
            let at = p.queue.head;
            let Some(message) = self.messages.get_mut(at) else {
                return;
            };
            let bytes = message.eager_bytes();
            let is_full = p.send_next.since(p.unacked_first) >= WINDOW
                || p.eager_bytes != 0
                    && p.eager_bytes.saturating_add(bytes) > self.config.limits.eager_bytes_per_partner;
            if is_full && p.ack_in_listed {
                self.settle_partner(slot);
                continue;
            }
            if is_full {
                return;
            }
            if let Kind::Rndv { region } = &mut message.kind {
                let claim = Claim {
                    message: at,
                    partner: slot,
                    token: message.token,
                    length: message.length,
                    give_up_ns: message.give_up_ns,
                };
                match self.regions.claim(claim) {
                    Some(claimed) => *region = claimed,
                    None => {
                        if !p.waits_for_region {
                            p.waits_for_region = true;
                            self.regions.wait(slot);
                        }
                        return;
                    }
                }
            }
            message.seq = p.send_next;
            message.queued = true;
            p.send_next = p.send_next.plus(1);
            p.eager_bytes += bytes;
            p.queue.head = message.next;
            message.next = NIL;
            if p.queue.head == NIL {
                p.queue.tail = NIL;
            }
            let tail = core::mem::replace(&mut p.unacked.tail, at);
            if tail == NIL {
                p.unacked.head = at;
            } else if let Some(before) = self.messages.get_mut(tail) {
                before.next = at;
            }
            self.send_queue.push_back((at, self.messages.generation(at)));
        }
    }
}
