//! What goes out.

use ether::Time;

use super::{Answer, Engine, Shared};
use crate::{
    Counter,
    connection::{Connection, Phase, send::Cut},
    wire::{Body, FRAME_LEN_MIN, Header, Kind, Moved, Path, Ranges, Syn, SynAck, emit, emit_payload},
};

impl Engine {
    /// Bytes of the longest frame.
    #[inline]
    pub fn frame_len_max(&self) -> usize {
        (ether::ETHERNET_HEADER_LEN + usize::from(self.shared.config.mtu)).max(FRAME_LEN_MIN.max(ANSWER_LEN_MAX))
    }

    /// Whether [`poll_transmit`](Self::poll_transmit) may have a frame.
    #[inline]
    pub fn has_output(&self) -> bool {
        !self.ready.is_empty() || !self.answers.is_empty()
    }

    /// Writes the next frame to be sent, Ethernet's header included, into `buffer`, and returns its length. Connections take turns. A
    /// `buffer` shorter than [`frame_len_max`](Self::frame_len_max) gets nothing.
    #[inline]
    pub fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<usize> {
        if !self.has_output() || buffer.len() < self.frame_len_max() {
            return None;
        }
        if let Some(answer) = self.answers.pop_front() {
            return self.emit_answer(&answer, buffer);
        }
        while let Some(slot) = self.ready.pop_front() {
            let Some(connection) = self.slots.get_mut(slot) else {
                continue;
            };
            connection.flags.is_queued = false;
            if !connection.has_output() {
                continue;
            }
            let len = connection.emit(&mut self.shared, now, buffer);
            self.settle(slot, now);
            if let Some(len) = len {
                self.shared.counters.count(Counter::FramesSent);
                return Some(len);
            }
        }
        None
    }

    fn emit_answer(&mut self, answer: &Answer, buffer: &mut [u8]) -> Option<usize> {
        let path = Path {
            destination: answer.to,
            source: self.shared.config.mac,
            ether_type: self.shared.config.ether_type,
        };
        self.shared.counters.count(Counter::FramesSent);
        emit(buffer, &path, &answer.header, &answer.body, answer.check).ok()
    }
}

/// No frame without payload is longer: an acknowledgement with all its ranges and a check sequence.
const ANSWER_LEN_MAX: usize = 128;

impl Connection {
    fn path(&self, shared: &Shared) -> Path {
        Path {
            destination: self.peer,
            source: shared.config.mac,
            ether_type: shared.config.ether_type,
        }
    }

    fn header(&self, number: u32) -> Header {
        Header {
            number,
            ..Header::new(self.local_port, self.peer_port)
        }
    }

    /// Writes the next frame of the connection.
    #[inline]
    fn emit(&mut self, shared: &mut Shared, now: Time, buffer: &mut [u8]) -> Option<usize> {
        self.tally.packets_sent += 1;
        if self.phase != Phase::Open && self.phase != Phase::TimeWait || self.moving_from.is_some() {
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
            header.push = self.agreed.mark;
            header.ack = Some(self.receive.next);
            return emit(buffer, &self.path(shared), &header, &Body::Probe, self.agreed.check).ok();
        }
        self.emit_ack(shared, buffer)
    }

    fn emit_ack(&mut self, shared: &mut Shared, buffer: &mut [u8]) -> Option<usize> {
        shared.counters.count(Counter::AcksSent);
        let mut header = self.header(self.send.next);
        header.push = self.agreed.mark;
        header.ack = Some(self.receive.next);
        header.window = Some(self.receive.advertise());
        let ranges = if self.agreed.selective {
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
            self.agreed.check,
        )
        .ok()
    }

    /// Writes a packet of data, a piece of one, or the end of the stream. It acknowledges what came.
    #[inline]
    fn emit_cut(&mut self, shared: &mut Shared, cut: &Cut, buffer: &mut [u8]) -> Option<usize> {
        let mut header = self.header(cut.number);
        header.push = cut.push || cut.fin && self.agreed.mark;
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
            return emit(buffer, &path, &header, &Body::Fin, self.agreed.check).ok();
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
            self.agreed.check,
            |room| {
                ring.copy_to(cut.offset, room);
            },
        )
        .ok()
    }

    #[inline]
    fn tally_cut(&mut self, shared: &mut Shared, cut: &Cut) {
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
    fn emit_control(&mut self, shared: &mut Shared, now: Time, buffer: &mut [u8]) -> Option<usize> {
        self.flags.control_now = false;
        self.flags.is_control_repeated = self.control_sent_at != Time::ZERO;
        if self.flags.is_control_repeated {
            self.tally.retransmitted += 1;
            shared.counters.count(Counter::Retransmitted);
        }
        self.control_sent_at = now;
        self.due.retransmit = now.plus_nanos(self.rtt.timeout_ns(&shared.config.timing));
        let mut header = self.header(self.send.next.wrapping_sub(1));
        header.push = self.agreed.mark;
        header.window = Some(self.receive.advertise());
        let path = self.path(shared);
        let payload_max = self.receive.payload_max;
        let blocks = shared.config.offers;
        let body = match (self.phase, self.moving_from) {
            (_, Some(old_port)) => {
                header.number = self.send.next;
                header.ack = Some(self.receive.next);
                Body::Moved(Moved {
                    old_port,
                    instance: self.instance,
                })
            }
            (Phase::SynSent, None) => Body::Syn(Syn {
                instance: self.instance,
                payload_max,
                blocks,
                names: self.names.as_deref().copied(),
            }),
            _ => {
                header.ack = Some(self.receive.next);
                Body::SynAck(SynAck {
                    instance: self.instance,
                    peer_instance: self.peer_instance,
                    listened_port: self.listened_port,
                    payload_max,
                    blocks,
                })
            }
        };
        emit(buffer, &path, &header, &body, self.agreed.check).ok()
    }
}
