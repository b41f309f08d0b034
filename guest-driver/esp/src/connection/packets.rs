//! What packets do to an open connection.

use ether::Time;

use super::{Connection, receive::Reader, receive::Taken, send::Fin, shared::Shared};
use crate::{
    Counter, event,
    wire::{Body, Frame, Header, Moved},
};

impl Connection {
    /// Takes a packet of an open connection, and returns how many bytes became readable.
    #[inline]
    pub(crate) fn handle(
        &mut self,
        shared: &mut Shared,
        frame: &Frame<'_>,
        body: &Body<'_>,
        now: Time,
        reader: &mut Option<Reader<'_>>,
    ) -> Result<usize, Counter> {
        if let Body::Moved(Moved { instance, .. }) = body
            && *instance != self.terms.peer_instance
        {
            return Err(Counter::DropBadInstance);
        }
        let was_finished = self.receive.is_finished();
        if let Some(ack) = frame.header.ack {
            self.acknowledged(shared, ack, &frame.header, body, now)?;
        }
        self.heard = now;
        self.tally.packets_received += 1;
        let number = frame.header.number;
        let Shared { memory, counters, .. } = shared;
        let lists = &mut shared.parked_lists;
        let filled_before = reader.as_ref().map_or(0, |reader| reader.filled);
        let taken = match body {
            Body::Data(payload) => {
                let taken = self.receive.data(number, payload, reader, memory, counters, lists);
                if frame.header.push {
                    self.receive.pushed();
                }
                taken
            }
            Body::Piece(piece) => self.receive.piece(number, piece, memory, counters, lists),
            Body::Fin => self.receive.fin(number, counters),
            Body::Probe | Body::Moved(_) => {
                self.receive.ack_now = true;
                Taken::Nothing
            }
            _ => Taken::Nothing,
        };
        if self.receive.is_finished() && !was_finished {
            self.events |= event::PEER_FINISHED;
        }
        match taken {
            Taken::Dropped(counter) => Err(counter),
            Taken::Nothing => Ok(0),
            Taken::Readable(len) => {
                let direct = reader.as_ref().map_or(0, |reader| reader.filled) - filled_before;
                if len > direct {
                    self.events |= event::READABLE;
                }
                Ok(len)
            }
        }
    }

    /// Takes what a packet acknowledges.
    #[inline]
    pub(crate) fn acknowledged(
        &mut self,
        shared: &mut Shared,
        ack: u32,
        header: &Header,
        body: &Body<'_>,
        now: Time,
    ) -> Result<(), Counter> {
        let old = self.send.unacknowledged;
        let done = self
            .send
            .acknowledge(ack, now, &mut shared.memory, &mut shared.sent_lists);
        let mut done = done.ok_or(Counter::DropBadAck)?;
        if let Some(window) = header.window {
            self.send.open(ack, window);
        }
        if let Body::Ack(ranges) = body {
            if !ranges.is_empty() && self.terms.blocks.selective {
                self.send.select(ranges, now, &mut done);
            } else if ack == old && self.send.in_flight() > 0 && ranges.is_empty() {
                self.send.repeated_ack();
            }
            self.send.find_lost(&self.rtt, &mut shared.counters);
        }
        if let Some(sample_ns) = done.sample_ns {
            self.rtt.measured(sample_ns);
        }
        if done.packets > 0 || self.send.sent.is_empty() {
            // The peer is there, and what waits now waits anew.
            self.waiting_since = None;
            self.due.retransmit = Time::MAX;
            if done.packets > 0 {
                self.rtt.backoff = 0;
            }
        }
        if done.is_fin {
            self.send.fin = Fin::Acknowledged;
        }
        if self.ends.moving_from.take().is_some() {
            self.settled();
        }
        if self.flags.wants_room && self.send.space() >= self.send.limit as usize / 3 {
            self.flags.wants_room = false;
            self.events |= event::WRITABLE;
        }
        Ok(())
    }
}
