//! Announced large messages on the receiving side, from the announcement to the start of the pull or its refusal (6, 6.5).

use ether::Time;

use super::{
    Engine, Event, LargeId, Peers, SendError, Status, Token,
    message::{Kind, Message},
};
use crate::wire::Rndv;

/// A large message that was announced and is not being pulled yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Large {
    pub partner: u32,
    /// The conversation it belongs to.
    pub epoch: u32,
    pub msg_length: u32,
    pub rdma_id: u8,
    pub rdma_seqnum: u8,
    pub rdma_offset: u16,
    /// Name and bytes of a pull that waits for a slot.
    pub waiting: Option<(Token, u32)>,
    /// How long that pull may take, if not as long as others.
    pub give_up_ns: Option<u64>,
}

impl Large {
    pub(super) const fn announced(partner: u32, epoch: u32, p: &Rndv) -> Self {
        Self {
            partner,
            epoch,
            msg_length: p.msg_length,
            rdma_id: p.rdma_id,
            rdma_seqnum: p.rdma_seqnum,
            rdma_offset: p.rdma_offset,
            waiting: None,
            give_up_ns: None,
        }
    }
}

impl<P: Peers> Engine<P> {
    /// Remembers an announcement; `None` at the limit.
    pub(super) fn announce(&mut self, large: Large) -> Option<LargeId> {
        let slot = self.larges.insert(large)?;
        Some(LargeId {
            slot,
            generation: self.larges.generation(slot),
        })
    }

    /// Transfers the first `length` bytes of an announced message and delivers them under `receive`; ends in
    /// [`Event::Received`]. With fewer bytes than announced the sender completes as truncated.
    ///
    /// # Errors
    /// [`SendError::Gone`] if it was pulled, declined, or its partner was lost.
    pub fn pull(&mut self, now: Time, large: LargeId, receive: Token, length: u32) -> Result<(), SendError> {
        if !self.larges.is_current(large.slot, large.generation) {
            return Err(SendError::Gone);
        }
        let announced = self.larges.get_mut(large.slot).ok_or(SendError::Gone)?;
        if announced.waiting.is_some() {
            return Err(SendError::Gone);
        }
        let length = length.min(announced.msg_length);
        if length == 0 {
            self.decline(large)?;
            self.events.push_back(Event::Received {
                receive,
                status: Status::Success,
                transferred: 0,
            });
            return Ok(());
        }
        announced.waiting = Some((receive, length));
        self.pulls.waiting.push_back(large);
        self.start_pulls(now);
        Ok(())
    }

    /// Refuses an announced message: its sender completes with no byte transferred.
    ///
    /// # Errors
    /// [`SendError::Gone`] as for [`Engine::pull`].
    pub fn decline(&mut self, large: LargeId) -> Result<(), SendError> {
        if !self.larges.is_current(large.slot, large.generation) {
            return Err(SendError::Gone);
        }
        let announced = self.larges.remove(large.slot).ok_or(SendError::Gone)?;
        self.notify(&announced, 0);
        Ok(())
    }

    /// Tells the sender of a large message that it is over, if the conversation still is the same.
    pub(super) fn notify(&mut self, large: &Large, transferred: u32) {
        let p = &self.partners[large.partner as usize];
        if p.epoch != large.epoch || !p.known {
            return;
        }
        let kind = Kind::Notify {
            rdma_id: large.rdma_id,
            rdma_seqnum: large.rdma_seqnum,
        };
        let message = Message::new(large.partner, kind, 0, 0, transferred, self.give_up_ns);
        if let Some(slot) = self.messages.insert(message) {
            // Not behind large messages that wait for a region: the partner's may be given back by this very NOTIFY, and with it ours.
            self.prepend(large.partner, slot);
            self.pump(large.partner);
        }
    }

    /// The partner is lost: nothing it announced can be had any more.
    pub(super) fn forget_announced_by(&mut self, partner: u32) {
        let mut from = 0;
        while let Some(slot) = self.larges.next_used(from) {
            from = slot + 1;
            if self.larges.get(slot).is_none_or(|large| large.partner != partner) {
                continue;
            }
            if let Some((receive, _)) = self.larges.remove(slot).and_then(|large| large.waiting) {
                self.events.push_back(Event::Received {
                    receive,
                    status: Status::Unreachable,
                    transferred: 0,
                });
            }
        }
    }
}
