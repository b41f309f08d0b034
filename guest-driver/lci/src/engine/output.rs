//! Frames that go out.

use ether::Time;

use super::{Due, Engine, key, membership::Leaving};
use crate::{
    BufferId, Counter, Nodes,
    card::{BEHIND_CARD, CardLink, To},
    transmit::Outgoing,
    wire::{About, FLAG_ANSWER, FRAME_LEN_MIN, GROUP_HEADER_LEN, Header, Kind},
};

/// The length of the buffer that [`Engine::poll_transmit`] writes to.
pub const HEAD_LEN_MAX: usize = GROUP_HEADER_LEN + BEHIND_CARD;

/// One frame to be sent: the bytes written to the head, then the first bytes of a buffer, then zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes written to the head.
    pub head_len: usize,
    /// A buffer, and how many of its bytes follow. They are to be sent or copied before any other call.
    pub payload: Option<(BufferId, usize)>,
    /// Zeros at the end, so that the frame has 60 bytes.
    pub pad_len: usize,
}

impl Engine {
    /// Takes the next frame to be sent and writes its header to `head`; links take turns.
    pub fn poll_transmit(&mut self, now: Time, head: &mut [u8; HEAD_LEN_MAX]) -> Option<Transmit> {
        self.now = now;
        if let Some(frame) = self.next_for_all(head) {
            self.counters.count(Counter::FramesSent);
            return Some(frame);
        }
        while let Some(node) = self.ready.pop_front() {
            let node = usize::from(node);
            self.links[node].queued = false;
            let frame = self.next_frame(node, head);
            self.wake(node);
            if frame.is_some() {
                self.counters.count(Counter::FramesSent);
                return frame;
            }
        }
        None
    }

    fn next_frame(&mut self, node: usize, head: &mut [u8; HEAD_LEN_MAX]) -> Option<Transmit> {
        let link = &mut self.links[node];
        if core::mem::take(&mut link.hello.now) {
            return Some(self.write_hello(node, head));
        }
        if let Some(gone) = link.tell_gone.take() {
            let about = About {
                origin: gone,
                ..About::default()
            };
            return Some(self.write(node, &Outgoing::control(Kind::Gone, about), 0, head));
        }
        if !link.is_open() {
            return None;
        }
        let may_send = self.card.as_ref().is_none_or(CardLink::has_room);
        if may_send && let Some((sequence, out, again)) = link.outward.next(self.now) {
            if again {
                self.counters.count(Counter::Retransmitted);
            }
            let frame = self.write(node, &out, sequence, head);
            self.sent(node);
            return Some(frame);
        }
        if link.inward.ack_now || link.probe_now {
            self.counters.count(Counter::AcksSent);
            let ack = Outgoing::control(Kind::Ack, About::default());
            return Some(self.write(node, &ack, 0, head));
        }
        None
    }

    /// A numbered frame was taken: it is watched, or, where nothing is lost, done.
    fn sent(&mut self, node: usize) {
        let link = &mut self.links[node];
        if !self.config.policy.retransmits() {
            if let Some(buffer) = link.outward.arrived_for_certain().and_then(|out| out.buffer) {
                self.buffers.copy_done(buffer);
            }
            return;
        }
        let retransmit = key(node, Due::Retransmit);
        if !self.deadlines.is_set(retransmit)
            && let Some(due) = link.outward.due(&self.config.timing)
        {
            self.deadlines.set(retransmit, due);
        }
    }

    /// Writes a frame to a node that this node has heard of. It carries every acknowledgement that is due (M-BV11).
    fn write(&mut self, node: usize, out: &Outgoing, sequence: u32, head: &mut [u8; HEAD_LEN_MAX]) -> Transmit {
        let link = &mut self.links[node];
        let (ack, selective) = link.inward.acknowledgement();
        let flags = if core::mem::take(&mut link.probe_now) {
            FLAG_ANSWER
        } else {
            0
        };
        if link.inward.owes_ack() {
            if out.kind != Kind::Ack {
                self.counters.count(Counter::AcksPiggybacked);
            }
            link.inward.acknowledged();
            self.deadlines.cancel(key(node, Due::Ack));
        }
        let header = Header {
            flags,
            sequence,
            ack,
            selective,
            length: out.length,
            about: out.about,
            ..self.header(node, out.kind, self.links[node].session)
        };
        let head_len = self.write_header(To::Node(node), &header, head);
        let payload = out.buffer.map(|buffer| (buffer, usize::from(out.length)));
        let frame_len = head_len + usize::from(out.length);
        Transmit {
            head_len,
            payload,
            pad_len: FRAME_LEN_MIN.saturating_sub(frame_len),
        }
    }

    /// The next packet for all, if the card has room for it.
    fn next_for_all(&mut self, head: &mut [u8; HEAD_LEN_MAX]) -> Option<Transmit> {
        let card = self.card.as_mut().filter(|card| card.has_room())?;
        let out = card.for_all.pop_front()?;
        let me = self.config.me;
        let header = Header {
            length: out.length,
            about: out.about,
            // Each receiver has another session: the sender's is enough, because all have started before any packet goes to all.
            ..self.header(me, out.kind, self.config.session)
        };
        let head_len = self.write_header(To::All, &header, head);
        if let Some(buffer) = out.buffer {
            self.buffers.copy_done(buffer);
        }
        let frame_len = head_len + usize::from(out.length);
        Some(Transmit {
            head_len,
            payload: out.buffer.map(|buffer| (buffer, usize::from(out.length))),
            pad_len: FRAME_LEN_MIN.saturating_sub(frame_len),
        })
    }

    /// Writes a header, behind the card's tag where the frame is one that must not be lost; returns the length of both.
    fn write_header(&mut self, to: To, header: &Header, head: &mut [u8; HEAD_LEN_MAX]) -> usize {
        // A node that leaves waits until all has left its card, and so has to hear of it.
        let report = self.leaving != Leaving::No;
        match &mut self.card {
            Some(card) if header.kind.is_numbered() && !is_unnumbered_gone(header) => {
                let len = header.write(self.config.ether_type, &mut head[BEHIND_CARD..]);
                let behind = len - ether::ETHERNET_HEADER_LEN + usize::from(header.length);
                card.write(to, behind, report, head);
                len + BEHIND_CARD
            }
            _ => header.write(self.config.ether_type, head),
        }
    }

    fn write_hello(&mut self, node: usize, head: &mut [u8; HEAD_LEN_MAX]) -> Transmit {
        let link = &mut self.links[node];
        let challenge = core::mem::take(&mut link.hello.challenge);
        let peer_session = if challenge != 0 { challenge } else { link.session };
        let asks = challenge != 0 || link.session == 0;
        let header = Header {
            flags: if asks { FLAG_ANSWER } else { 0 },
            about: About {
                group: self.config.digest(),
                number: 0,
                origin: 0,
                nodes: Nodes::first(self.links.len()),
            },
            ..self.header(node, Kind::Hello, peer_session)
        };
        Transmit {
            head_len: header.write(self.config.ether_type, head),
            payload: None,
            pad_len: 0,
        }
    }

    fn header(&self, node: usize, kind: Kind, peer_session: u32) -> Header {
        Header {
            destination: self.links[node].mac,
            source: self.links[self.config.me].mac,
            kind,
            flags: 0,
            from: self.config.me as u8,
            to: node as u8,
            job: self.config.job,
            length: 0,
            session: self.config.session,
            peer_session,
            sequence: 0,
            ack: 0,
            selective: 0,
            about: About::default(),
        }
    }
}

/// A GONE about the sender or the receiver has no number, and need not arrive.
fn is_unnumbered_gone(header: &Header) -> bool {
    header.kind == Kind::Gone && [header.from, header.to].contains(&header.about.origin)
}
