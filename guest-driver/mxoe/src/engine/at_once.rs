//! Short messages that leave at once: the frame first, and what is to be remembered of the message afterwards, while the frame
//! is under way. The frame and the memory are those of [`Engine::send_inline`].

use ether::Time;

use super::{Counter, Engine, HEAD_BUFFER_LEN, PartnerId, Peers, Posted, SendError, Token, send::WINDOW};
use crate::wire::{Eager, Packet, SMALL_DATA_MAX, TINY_DATA_MAX};

impl<P: Peers> Engine<P> {
    /// Writes the frame of a message of up to 128 bytes to `out` if it may go out before anything else does, and returns its
    /// length. `None`: something stands before it, or some limit does; post it with [`Engine::send_inline`].
    ///
    /// After `Some`, [`Engine::posted_at_once`] is the next call, with the same message.
    #[inline]
    pub fn write_at_once(
        &mut self,
        to: PartnerId,
        match_info: u64,
        data: &[u8],
        out: &mut [u8; HEAD_BUFFER_LEN],
    ) -> Option<usize> {
        let len = data.len() as u32;
        let p = self.partners.get(to.index())?;
        let limits = &self.config.limits;
        let may_go = self.is_quiet()
            && self.losses.is_empty()
            && data.len() <= SMALL_DATA_MAX
            && p.known
            && p.queue.is_empty()
            && p.send_next.since(p.unacked_first) < WINDOW
            && (p.eager_bytes == 0 || p.eager_bytes.saturating_add(len) <= limits.eager_bytes_per_partner)
            && self.messages.len() < limits.sends
            && self.has_room_for_early(len);
        if !may_go {
            return None;
        }
        let eager = Eager {
            dst_endpoint: p.endpoint,
            src_endpoint: self.config.endpoint,
            seqnum: p.send_next.0,
            piggyack: p.expected.0,
            match_info,
            session: p.forward,
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

    /// The rest of [`Engine::write_at_once`], at `now`. `went_out`: whether the port took the frame; otherwise it is written again
    /// by [`Engine::poll_transmit`].
    ///
    /// # Errors
    /// As [`Engine::send_inline`]; none after `Some` of [`Engine::write_at_once`] for the same message.
    #[inline]
    pub fn posted_at_once(
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
            self.acknowledge(to.0);
            self.sent(now, send.slot, true);
        }
        Ok(posted)
    }
}
