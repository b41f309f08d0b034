//! The requests of a program: connecting, sending, pulling, declining, and ending a conversation (3.1, 4, 6, mx-api
//! 6.3).

use ether::{MacAddr, Time};

use super::{
    Counter, Engine, Event, LargeId, PartnerId, Peers, Posted, SendError, SendOptions, Status, Token,
    connection::{
        handshake::{ConnectId, Wanted},
        message::{Kind, Message},
    },
    outbox::Control,
    partner::PartnerAddress,
};
use crate::wire::{SMALL_DATA_MAX, TINY_DATA_MAX};

impl<P: Peers> Engine<P> {
    /// Asks for a connection to an endpoint of another interface or host; ends in [`Event::Connected`]. Costs nothing if
    /// one is there already, but is asked for again.
    ///
    /// # Errors
    /// [`SendError::UnknownPeer`], [`SendError::TooMany`].
    pub fn connect(
        &mut self,
        now: Time,
        mac: MacAddr,
        endpoint: u8,
        key: u32,
        token: Token,
    ) -> Result<PartnerId, SendError> {
        let peer = self.add_peer(mac).ok_or(SendError::UnknownPeer)?;
        if self.handshake.is_full() {
            return Err(SendError::TooMany);
        }
        let address = PartnerAddress { mac, endpoint, peer };
        let partner = self.make_partner(address).ok_or(SendError::TooMany)?;
        let wanted = Wanted {
            partner,
            key,
            token,
            connect_seqnum: self.partners[partner].conversation.next_connect_seqnum(),
            give_up_ns: self.give_up_ns,
        };
        let id = self.handshake.connect(now, wanted).ok_or(SendError::TooMany)?;
        self.queue_connect(now, id);
        Ok(PartnerId(partner))
    }

    /// Forgets a connect that has no answer yet. False if there is none of this name.
    pub fn cancel_connect(&mut self, token: Token) -> bool {
        self.handshake.cancel(token)
    }

    pub(super) fn queue_connect(&mut self, now: Time, id: ConnectId) {
        self.outbox.send(Control::ConnectRequest(id), &mut self.counters);
        self.handshake.asked(now, id, self.config.timing.connect_resend_ns);
    }

    /// Finds or makes a remote endpoint; `None` at the limit.
    pub(super) fn make_partner(&mut self, address: PartnerAddress) -> Option<u32> {
        let slot = self.partners.find_or_add(address);
        if slot.is_none() {
            self.counters.count(Counter::DropPartnersFull);
        }
        slot
    }

    pub(super) fn add_peer(&mut self, mac: MacAddr) -> Option<u16> {
        if let Some(index) = self.peers.index(mac) {
            return Some(index);
        }
        let index = self.peers.index_or_add(mac)?;
        self.counters.count(Counter::PeersAdded);
        Some(index)
    }

    /// Ends the conversation: everything pending with this partner ends as unreachable.
    pub fn disconnect(&mut self, partner: PartnerId) {
        if partner.0 < self.partners.len() {
            self.give_up(partner.0);
        }
    }

    /// Sends up to 128 bytes, which are copied in this call. The send is normally complete then ([`Posted::Early`]);
    /// [`super::Event::Sent`] comes only if it fails.
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
        self.transmitter.set_data(slot, data);
        let numbered = self.pump_for(to, slot);
        Ok(self.posted(slot, early && numbered))
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
            Kind::Rndv { region: None }
        } else {
            Kind::Medium { copied: early }
        };
        let slot = self.post(to, kind, match_info, token, length)?;
        let numbered = self.pump_for(to, slot);
        Ok(self.posted(slot, early && numbered))
    }

    pub(super) const fn has_room_for_early(&self, length: u32) -> bool {
        self.transmitter.has_room_for_early(length, &self.config.limits)
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
        let partner = self.partners.get(to.0).ok_or(SendError::NotConnected)?;
        if !partner.conversation.is_known() {
            return Err(SendError::NotConnected);
        }
        if self.transmitter.len() >= self.config.limits.sends {
            self.settle();
            if self.transmitter.len() >= self.config.limits.sends {
                return Err(SendError::TooMany);
            }
        }
        let message = Message::new(to.0, kind, token, match_info, length, self.give_up_ns);
        let state = &mut self.partners[to.0].send;
        self.transmitter.append(state, message).ok_or(SendError::TooMany)
    }

    /// Gives numbers to the messages of a partner. Whether the message in this slot, the one posted last, has a number.
    fn pump_for(&mut self, to: PartnerId, slot: u32) -> bool {
        self.pump(to.0);
        let numbered = self.partners[to.0].send.has_numbered_last(slot);
        if !numbered {
            self.counters.count(Counter::SendsThrottled);
        }
        numbered
    }

    fn posted(&mut self, slot: u32, early: bool) -> Posted {
        let send = self.transmitter.id(slot);
        if !early {
            return Posted::Pending(send);
        }
        self.transmitter.complete_early(slot);
        Posted::Early(send)
    }

    /// Transfers the first `length` bytes of an announced message and delivers them under `receive`; ends in
    /// [`Event::Received`]. With fewer bytes than announced the sender completes as truncated.
    ///
    /// # Errors
    /// [`SendError::Gone`] if it was pulled, declined, or its partner was lost.
    pub fn pull(&mut self, now: Time, large: LargeId, receive: Token, length: u32) -> Result<(), SendError> {
        if self.transfers_in.pull(large, receive, length)? {
            self.begin_pulls(now);
            return Ok(());
        }
        self.decline(large)?;
        self.outbox.tell(Event::Received {
            receive,
            status: Status::Success,
            transferred: 0,
        });
        Ok(())
    }

    /// Refuses an announced message: its sender completes with no byte transferred.
    ///
    /// # Errors
    /// [`SendError::Gone`] as for [`Engine::pull`].
    pub fn decline(&mut self, large: LargeId) -> Result<(), SendError> {
        let announced = self.transfers_in.decline(large)?;
        self.notify(&announced, 0);
        Ok(())
    }

    /// Makes every delayed acknowledgement due: before the endpoint closes (7.2).
    pub fn flush_acks(&mut self) {
        for slot in 0..self.partners.len() {
            if self.partners[slot].ack_pending() > 0 {
                self.acknowledge_now(slot);
            }
        }
    }
}
