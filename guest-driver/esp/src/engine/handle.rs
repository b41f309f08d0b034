//! What frames do.

use ether::Time;

use super::{Answer, Engine};
use crate::{
    ConnectionId, Counter, Reason,
    connection::{Phase, receive::Reader},
    event,
    table::Key,
    wire::{Body, Frame, Header, Kind, ResetCode, WireError},
};

/// So often *moved* is sent again before a reset counts.
const MOVED_REPEATS_MIN: u8 = 6;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It was taken.
    Taken,
    /// It is one of EDP, which is the owner's to answer.
    Edp,
    /// Its EtherType is another one.
    NotOurs,
    /// It was dropped and counted.
    Dropped,
}

impl Engine {
    /// Takes a whole frame from the network. Whatever is in it, the worst that happens is that it is counted and dropped.
    #[inline]
    pub fn handle(&mut self, frame: &[u8], now: Time) -> Handled {
        self.handle_frame(frame, now, &mut None)
    }

    /// [`handle`](Self::handle) while a reader of the connection `id` waits with `room`: bytes that are next go there at once. Returns how
    /// many did; they were received as by [`receive`](Self::receive).
    pub fn handle_into(&mut self, frame: &[u8], now: Time, id: ConnectionId, room: &mut [u8]) -> (Handled, usize) {
        let Some(slot) = self.slots.find(id) else {
            return (self.handle(frame, now), 0);
        };
        let mut reader = Some((slot, Reader { room, filled: 0 }));
        let handled = self.handle_frame(frame, now, &mut reader);
        let filled = reader.map_or(0, |(_, reader)| reader.filled);
        if filled > 0
            && let Some(connection) = self.slots.get_mut(slot)
            && connection.receive.ring.is_empty()
        {
            connection.events &= !event::READABLE;
        }
        (handled, filled)
    }

    #[inline]
    fn handle_frame(&mut self, bytes: &[u8], now: Time, reader: &mut Option<(u32, Reader<'_>)>) -> Handled {
        let frame = match Frame::parse(bytes, self.shared.config.ether_type) {
            Ok(frame) => frame,
            Err(WireError::EtherType) => return Handled::NotOurs,
            Err(_) => return self.drop_frame(Counter::DropMalformed),
        };
        if frame.kind.is_edp() {
            self.shared.counters.count(Counter::Edp);
            return Handled::Edp;
        }
        if frame.destination != self.shared.config.mac {
            return self.drop_frame(Counter::DropOtherHost);
        }
        if frame.source.is_multicast() || frame.header.source_port == 0 || frame.header.destination_port == 0 {
            return self.drop_frame(Counter::DropMalformed);
        }
        let key = Key {
            mac: frame.source,
            peer_port: frame.header.source_port,
            local_port: frame.header.destination_port,
        };
        let result = match self.table.get(&key) {
            Some(slot) => {
                let result = self.handle_known(slot, &frame, now, reader);
                self.settle(slot, now);
                result
            }
            None => self.handle_unknown(&frame, now),
        };
        match result {
            Ok(()) => {
                self.shared.counters.count(Counter::FramesReceived);
                Handled::Taken
            }
            Err(counter) => self.drop_frame(counter),
        }
    }

    #[cold]
    fn drop_frame(&mut self, counter: Counter) -> Handled {
        self.shared.counters.count(counter);
        Handled::Dropped
    }

    /// Takes a frame for a connection that is in the table.
    #[inline]
    pub(super) fn handle_known(
        &mut self,
        slot: u32,
        frame: &Frame<'_>,
        now: Time,
        reader: &mut Option<(u32, Reader<'_>)>,
    ) -> Result<(), Counter> {
        let Some(connection) = self.slots.get_mut(slot) else {
            return Err(Counter::DropUnknown);
        };
        if connection.flags.is_frozen {
            return Err(Counter::DropFrozen);
        }
        if connection.phase != Phase::Open || matches!(frame.kind, Kind::Syn | Kind::SynAck | Kind::Reset) {
            return self.handle_special(slot, frame, now);
        }
        let body = frame.body(connection.terms.blocks.check).map_err(of_wire)?;
        let reader = match reader.take() {
            Some((of, own)) if of == slot => {
                let mut own = Some(own);
                let result = connection.handle(&mut self.shared, frame, &body, now, &mut own);
                *reader = own.map(|own| (slot, own));
                result
            }
            other => {
                *reader = other;
                connection.handle(&mut self.shared, frame, &body, now, &mut None)
            }
        };
        let readable = reader?;
        if readable > 0 {
            self.count_readable(slot, readable);
        }
        self.check_end(slot, now);
        Ok(())
    }

    /// Whether the connection is over, or may not take what came.
    #[inline]
    fn check_end(&mut self, slot: u32, now: Time) {
        let Some(connection) = self.slots.get(slot) else {
            return;
        };
        if connection.is_finished() {
            self.finished(slot, now);
        } else if connection.flags.is_orphan && !connection.receive.ring.is_empty() {
            // No program will read it.
            self.abort_slot(slot);
        }
    }

    /// Takes a frame of a handshake, a reset, or one for a connection that is not open.
    fn handle_special(&mut self, slot: u32, frame: &Frame<'_>, now: Time) -> Result<(), Counter> {
        let Some(phase) = self.slots.get(slot).map(|connection| connection.phase) else {
            return Err(Counter::DropUnknown);
        };
        match (phase, frame.kind) {
            (Phase::Away(_), _) => self.handle_away(slot, frame),
            (_, Kind::Reset) => self.handle_reset(slot, frame),
            (_, Kind::Syn) => self.handle_syn_again(slot, frame, now),
            (_, Kind::SynAck) => self.handle_syn_ack(slot, frame, now),
            (Phase::SynReceived, _) => {
                self.establish(slot, frame, now)?;
                self.handle_known(slot, frame, now, &mut None)
            }
            (Phase::TimeWait, _) => {
                // A late packet: the peer may not have heard the last acknowledgement.
                let time_wait_ns = self.shared.config.timing.time_wait_ns;
                if let Some(connection) = self.slots.get_mut(slot)
                    && frame.kind != Kind::Ack
                {
                    connection.receive.ack_now = true;
                    if frame.kind == Kind::Fin {
                        connection.due.linger = now.plus_nanos(time_wait_ns);
                    }
                }
                Ok(())
            }
            _ => {
                self.refuse(frame, ResetCode::Unknown);
                Err(Counter::DropBadState)
            }
        }
    }

    /// Takes a reset. Only one whose numbers are of this connection counts.
    fn handle_reset(&mut self, slot: u32, frame: &Frame<'_>) -> Result<(), Counter> {
        let Some(connection) = self.slots.get(slot) else {
            return Err(Counter::DropUnknown);
        };
        let Body::Reset(code) = frame.body(false).map_err(of_wire)? else {
            return Err(Counter::DropMalformed);
        };
        let send = &connection.send;
        let is_of_connection = frame
            .header
            .ack
            .is_some_and(|ack| ack.wrapping_sub(send.unacknowledged) <= send.next.wrapping_sub(send.unacknowledged));
        // Where the peer moves, too, it may not be attached yet at the port that it is asked at.
        let is_early = connection.ends.moving_from.is_some() && connection.rtt.backoff < MOVED_REPEATS_MIN;
        if !is_of_connection || is_early || connection.phase == Phase::TimeWait {
            return Err(Counter::DropBadReset);
        }
        if code == ResetCode::Unknown && connection.has_heard_all() {
            return self.take_leave_of_peer(slot);
        }
        let reason = match connection.phase {
            Phase::SynSent if code != ResetCode::Aborted => Reason::Refused,
            _ => Reason::Reset,
        };
        self.shared.counters.count(match reason {
            Reason::Refused => Counter::Refused,
            _ => Counter::ResetsReceived,
        });
        self.end(slot, reason);
        Ok(())
    }

    /// A peer whose stream has ended and who has all of this side's so far has forgotten the connection: nothing is lost, and the program
    /// reads on undisturbed, as TCP lets it while the peer's kernel remembers. If it sends anything, it learns that the peer takes no more.
    fn take_leave_of_peer(&mut self, slot: u32) -> Result<(), Counter> {
        if let Some(connection) = self.slots.get_mut(slot) {
            connection.keep_alive_ns = 0;
            connection.due.keep_alive = Time::MAX;
        }
        Err(Counter::DropLateReset)
    }

    /// Takes a frame that no connection has.
    fn handle_unknown(&mut self, frame: &Frame<'_>, now: Time) -> Result<(), Counter> {
        match frame.kind {
            Kind::Syn => self.handle_syn(frame, now),
            Kind::SynAck => self.handle_syn_ack_of_other_port(frame, now),
            Kind::Moved => self.handle_moved(frame, now),
            Kind::Reset => Err(Counter::DropUnknown),
            _ => {
                self.refuse(frame, ResetCode::Unknown);
                Err(Counter::DropUnknown)
            }
        }
    }

    /// Tells the sender of a frame that there is no such connection.
    pub(super) fn refuse(&mut self, frame: &Frame<'_>, code: ResetCode) {
        let takes_a_number = !matches!(frame.kind, Kind::Ack | Kind::Probe | Kind::Moved);
        let header = Header {
            number: frame.header.ack.unwrap_or(0),
            ack: Some(frame.header.number.wrapping_add(takes_a_number.into())),
            ..Header::new(frame.header.destination_port, frame.header.source_port)
        };
        self.shared.counters.count(Counter::ResetsSent);
        self.answer(Answer {
            to: frame.source,
            header,
            body: Body::Reset(code),
            check: false,
        });
    }
}

pub(super) fn of_wire(error: WireError) -> Counter {
    match error {
        WireError::Check => Counter::DropCheck,
        _ => Counter::DropMalformed,
    }
}
