//! The packets of a connection.

use ether::Time;

use super::{Connection, Phase, send::Cut, shared::Shared};
use crate::{
    Counter,
    wire::{Body, Header, Kind, Moved, Path, Ranges, Syn, SynAck, emit, emit_payload},
};

impl Connection {
    pub(crate) fn path(&self, shared: &Shared) -> Path {
        Path {
            destination: self.ends.peer,
            source: shared.config.mac,
            ether_type: shared.config.ether_type,
        }
    }

    pub(crate) fn header(&self, number: u32) -> Header {
        Header {
            number,
            ..Header::new(self.ends.local_port, self.ends.peer_port)
        }
    }

    /// Writes the next frame of the connection.
    #[inline]
    pub(crate) fn emit(&mut self, shared: &mut Shared, now: Time, buffer: &mut [u8]) -> Option<usize> {
        self.tally.packets_sent += 1;
        self.sent = now;
        if self.phase != Phase::Open && self.phase != Phase::TimeWait || self.ends.moving_from.is_some() {
            return self.emit_control(shared, now, buffer);
        }
        if self.phase == Phase::Open
            && let Some(cut) = self.send.cut(now, &mut shared.sent_lists)
        {
            return self.emit_cut(shared, &cut, buffer);
        }
        if core::mem::take(&mut self.flags.probe_now) {
            shared.counters.count(Counter::Probes);
            let mut header = self.header(self.send.next);
            header.push = self.terms.blocks.mark;
            header.ack = Some(self.receive.next);
            return emit(
                buffer,
                &self.path(shared),
                &header,
                &Body::Probe,
                self.terms.blocks.check,
            )
            .ok();
        }
        self.emit_ack(shared, buffer)
    }

    pub(crate) fn emit_ack(&mut self, shared: &mut Shared, buffer: &mut [u8]) -> Option<usize> {
        shared.counters.count(Counter::AcksSent);
        let mut header = self.header(self.send.next);
        header.push = self.terms.blocks.mark;
        header.ack = Some(self.receive.next);
        header.window = Some(self.receive.advertise());
        let ranges = if self.terms.blocks.selective {
            self.receive.ranges()
        } else {
            Ranges::NONE
        };
        self.receive.ack_now = false;
        self.receive.acknowledged();
        self.due.ack = Time::MAX;
        emit(
            buffer,
            &self.path(shared),
            &header,
            &Body::Ack(ranges),
            self.terms.blocks.check,
        )
        .ok()
    }

    /// Writes a packet of data, a piece of one, or the end of the stream. It acknowledges what came.
    #[inline]
    pub(crate) fn emit_cut(&mut self, shared: &mut Shared, cut: &Cut, buffer: &mut [u8]) -> Option<usize> {
        let mut header = self.header(cut.number);
        header.push = cut.push || cut.fin && self.terms.blocks.mark;
        header.bulk = cut.bulk;
        header.ack = Some(self.receive.next);
        if self.receive.is_window_news() {
            header.window = Some(self.receive.advertise());
        }
        if self.receive.owes_ack() {
            shared.counters.count(Counter::AcksPiggybacked);
            self.receive.acknowledged();
            self.due.ack = Time::MAX;
        }
        // What came out of order can only be said by an acknowledgement of its own.
        self.receive.ack_now &= !self.receive.parked.is_empty();
        self.tally_cut(shared, cut);
        let path = self.path(shared);
        if cut.fin {
            return emit(buffer, &path, &header, &Body::Fin, self.terms.blocks.check).ok();
        }
        let kind = if cut.place.is_some() { Kind::Piece } else { Kind::Data };
        let ring = &self.send.ring;
        emit_payload(
            buffer,
            &path,
            &header,
            kind,
            cut.place,
            cut.len,
            self.terms.blocks.check,
            |room| {
                ring.copy_to(cut.offset, room);
            },
        )
        .ok()
    }

    #[inline]
    pub(crate) fn tally_cut(&mut self, shared: &mut Shared, cut: &Cut) {
        if cut.is_repeated {
            self.tally.retransmitted += 1;
            shared.counters.count(Counter::Retransmitted);
            if cut.place.is_some() {
                shared.counters.count(Counter::Pieces);
            }
        } else if !cut.fin {
            self.tally.bytes_sent += cut.len as u64;
            shared.counters.count(Counter::DataSent);
            shared.counters.add(Counter::BytesSent, cut.len as u64);
        }
    }

    /// Writes a SYN, a SYN+ACK or *moved*.
    pub(crate) fn emit_control(&mut self, shared: &mut Shared, now: Time, buffer: &mut [u8]) -> Option<usize> {
        self.flags.control_now = false;
        self.flags.is_control_repeated = self.control_sent_at != Time::ZERO;
        if self.flags.is_control_repeated {
            self.tally.retransmitted += 1;
            shared.counters.count(Counter::Retransmitted);
        }
        self.control_sent_at = now;
        self.due.retransmit = now.plus_nanos(self.rtt.timeout_ns(&shared.config.timing));
        let mut header = self.header(self.send.next.wrapping_sub(1));
        header.push = self.terms.blocks.mark;
        header.window = Some(self.receive.advertise());
        let path = self.path(shared);
        let payload_max = self.receive.payload_max;
        let blocks = shared.config.blocks;
        let body = match (self.phase, self.ends.moving_from) {
            (_, Some(old_port)) => {
                header.number = self.send.next;
                header.ack = Some(self.receive.next);
                Body::Moved(Moved {
                    old_port,
                    instance: self.terms.instance,
                })
            }
            (Phase::SynSent, None) => Body::Syn(Syn {
                instance: self.terms.instance,
                payload_max,
                blocks,
                names: self.terms.names.as_deref().copied(),
            }),
            _ => {
                header.ack = Some(self.receive.next);
                Body::SynAck(SynAck {
                    instance: self.terms.instance,
                    peer_instance: self.terms.peer_instance,
                    listened_port: self.ends.listened_port,
                    payload_max,
                    blocks,
                })
            }
        };
        emit(buffer, &path, &header, &body, self.terms.blocks.check).ok()
    }
}
