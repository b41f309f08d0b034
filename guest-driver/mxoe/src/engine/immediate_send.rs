//! Immediate send: the frame of a short message is written first, and the message is recorded while the frame is in
//! flight. Frame and record are those that [`Engine::send_inline`] makes.

use ether::Time;

use super::{Counter, Engine, HEAD_BUFFER_LEN, PartnerId, Peers, Posted, SendError, Token};
use crate::wire::{Eager, Packet, SMALL_DATA_MAX, TINY_DATA_MAX};

impl<P: Peers> Engine<P> {
    /// Writes the frame of a message of up to 128 bytes to `out` if it may go out before anything else does, and returns its
    /// length. `None`: something stands before it, or some limit does; post it with [`Engine::send_inline`].
    ///
    /// After `Some`, [`Engine::finish_immediate_send`] is the next call, with the same message.
    #[inline]
    pub fn begin_immediate_send(
        &mut self,
        to: PartnerId,
        match_info: u64,
        data: &[u8],
        out: &mut [u8; HEAD_BUFFER_LEN],
    ) -> Option<usize> {
        let len = data.len() as u32;
        let p = self.partners.get(to.0)?;
        let limits = &self.config.limits;
        let may_go = self.is_quiet()
            && self.faults.is_empty()
            && data.len() <= SMALL_DATA_MAX
            && p.conversation.is_known()
            && !p.send.has_queue()
            && p.send.has_room_for(len, limits)
            && self.transmitter.len() < limits.sends
            && self.has_room_for_early(len);
        if !may_go {
            return None;
        }
        let eager = Eager {
            dst_endpoint: p.address.endpoint,
            src_endpoint: self.config.endpoint,
            seqnum: p.send.next().0,
            piggyack: p.receive.expected().0,
            match_info,
            session: p.conversation.forward(),
            data,
        };
        let head = self.partner_head(to.0, true);
        let written = if data.len() <= TINY_DATA_MAX {
            self.dialect.emit(&head, &Packet::Tiny(eager), out)
        } else {
            self.dialect.emit(&head, &Packet::Small(eager), out)
        };
        written.ok()
    }

    /// Records the message of [`Engine::begin_immediate_send`], at `now`. `went_out`: whether the port took the frame;
    /// otherwise [`Engine::poll_transmit`] writes it again.
    ///
    /// # Errors
    /// As [`Engine::send_inline`]; none after `Some` of [`Engine::begin_immediate_send`] for the same message.
    #[inline]
    pub fn finish_immediate_send(
        &mut self,
        now: Time,
        to: PartnerId,
        match_info: u64,
        token: Token,
        data: &[u8],
        went_out: bool,
    ) -> Result<Posted, SendError> {
        let posted = self.send_inline(now, to, match_info, token, data)?;
        if went_out && let Posted::Early(send) = posted {
            self.counters.count(if data.len() <= TINY_DATA_MAX {
                Counter::SendTiny
            } else {
                Counter::SendSmall
            });
            self.acknowledge(now, to.0);
            self.sent(now, send.slot, true);
        }
        Ok(posted)
    }
}
