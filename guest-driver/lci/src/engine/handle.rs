//! Frames that come: which are taken, and what their headers say.

use ether::Time;

use super::{Delivered, Due, Engine, key};
use crate::{
    BufferId, Counter, Event, GroupId, RemovalReason,
    card::{BEHIND_CARD, FromCard, is_from_card},
    link::Standing,
    receive::{Incoming, Place},
    wire::{FLAG_ANSWER, Header, Kind},
};

/// What the owner does with a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handled {
    /// Copy bytes of the frame, from the first to before the second place, to this buffer, before any other call.
    pub store: Option<(BufferId, usize, usize)>,
}

impl Engine {
    /// Takes a frame from the network. Whatever is in it, the worst that happens is that it is counted and dropped.
    pub fn handle(&mut self, now: Time, frame: &[u8]) -> Handled {
        self.now = now;
        if self.card.is_some() && is_from_card(frame) {
            return self.handle_from_card(frame);
        }
        let Some(header) = Header::parse(frame, self.config.ether_type) else {
            return self.drop_frame(Counter::Malformed);
        };
        if header.job != self.config.job {
            return self.drop_frame(Counter::OtherJob);
        }
        let from = usize::from(header.from);
        let is_ours = header.destination == self.links[self.config.me].mac && usize::from(header.to) == self.config.me;
        if !is_ours || from == self.config.me || self.links.get(from).is_none_or(|link| link.mac != header.source) {
            return self.drop_frame(Counter::WrongSender);
        }
        if header.kind == Kind::Hello {
            self.hello(from, &header);
            self.wake(from);
            return Handled::default();
        }
        let is_of_itself = [header.from, header.to].contains(&header.about.origin);
        if self.card.is_some() && header.kind.is_numbered() && !(header.kind == Kind::Gone && is_of_itself) {
            // Packets come from the card alone.
            return self.drop_frame(Counter::WrongPath);
        }
        self.of_conversation(from, &header, 0)
    }

    /// Takes a frame of a conversation, which begins `at` bytes behind the begin of what came.
    fn of_conversation(&mut self, from: usize, header: &Header, at: usize) -> Handled {
        let now = self.now;
        let own_session = self.config.session;
        let link = &mut self.links[from];
        if header.session != link.session || header.peer_session != own_session || !link.is_open() {
            self.stale(from, header);
            return self.drop_frame(Counter::Stale);
        }
        if header.kind == Kind::Gone && [from, self.config.me].contains(&usize::from(header.about.origin)) {
            // It leaves, or it has removed this node: it numbers nothing for it any more.
            self.parted(from, usize::from(header.about.origin) == from);
            return Handled::default();
        }
        if self.config.policy.retransmits() && self.acknowledged(from, header).is_err() {
            return self.drop_frame(Counter::BadAck);
        }
        self.links[from].heard(now);
        if header.flags & FLAG_ANSWER != 0 {
            self.links[from].inward.ack_now = true;
        }
        let handled = if header.kind.is_numbered() {
            self.numbered(from, header, at)
        } else {
            self.counters.count(Counter::FramesReceived);
            Handled::default()
        };
        if !self.blocked.is_empty() {
            self.unblock();
        }
        self.say_bye();
        self.wake(from);
        handled
    }

    /// Takes a frame of the card's multicast: a packet, or a note of the card.
    fn handle_from_card(&mut self, frame: &[u8]) -> Handled {
        let Some(card) = &mut self.card else {
            return Handled::default();
        };
        let Some(what) = card.read(frame) else {
            return self.drop_frame(Counter::Malformed);
        };
        self.counters.count(Counter::CardFrames);
        let (from, is_multicast) = match what {
            FromCard::Packet { from, is_multicast } => (from, is_multicast),
            FromCard::Left(left) => {
                if !card.note_left(left) {
                    return self.drop_frame(Counter::BadAck);
                }
                self.others().for_each(|node| self.wake(node));
                return Handled::default();
            }
            FromCard::Gone(node) => {
                self.card_lost(node);
                return Handled::default();
            }
        };
        let Some(header) = Header::parse_behind_card(frame) else {
            return self.drop_frame(Counter::Malformed);
        };
        if header.job != self.config.job {
            return self.drop_frame(Counter::OtherJob);
        }
        // The card says whose packet it is, and what a program writes is compared with that.
        let is_whose = usize::from(header.from) == from && from != self.config.me;
        if !is_whose || !header.kind.is_numbered() || is_multicast != (usize::from(header.to) == from) {
            return self.drop_frame(Counter::WrongSender);
        }
        if is_multicast {
            return self.multicast_from_card(from, &header);
        }
        if usize::from(header.to) != self.config.me {
            return self.drop_frame(Counter::WrongSender);
        }
        self.of_conversation(from, &header, BEHIND_CARD)
    }

    /// Takes a packet for all that the card has multicast (M-BV5).
    fn multicast_from_card(&mut self, from: usize, header: &Header) -> Handled {
        let now = self.now;
        let link = &mut self.links[from];
        if header.session != link.session || !link.is_open() {
            return self.drop_frame(Counter::Stale);
        }
        link.heard(now);
        if header.kind == Kind::Bye {
            link.goodbye.to_all = true;
            return Handled::default();
        }
        let is_for_all = header.kind == Kind::Multicast && GroupId(header.about.group) == GroupId::ALL;
        let position = self.groups.position(GroupId::ALL);
        let (true, true, Some(position)) = (is_for_all, self.is_in_card(GroupId::ALL), position) else {
            return self.drop_frame(Counter::WrongPath);
        };
        if usize::from(header.about.origin) != from {
            return self.drop_frame(Counter::WrongPath);
        }
        let stream = &mut self.groups.at(position).streams[from];
        let ahead = header.about.number.wrapping_sub(stream.next);
        if (ahead as i32) < 0 {
            return self.drop_frame(Counter::Duplicates);
        }
        if ahead > 0 {
            return self.lost(from, ahead);
        }
        let room = self.buffers.has_room_for(from);
        let Some(buffer) = room.then(|| self.buffers.arrive()).flatten() else {
            self.counters.count(Counter::NoBuffer);
            return self.lost(from, 1);
        };
        stream.next = header.about.number.wrapping_add(1);
        self.counters.count(Counter::FramesReceived);
        self.buffers.accept_multicast(buffer, from, true, 0);
        self.deliveries.push_back(Delivered {
            source: from as u8,
            buffer,
            length: header.length,
            group: Some((position as u16, GroupId::ALL)),
        });
        let start = BEHIND_CARD + header.kind.header_len();
        Handled {
            store: Some((buffer, start, start + usize::from(header.length))),
        }
    }

    /// A network that is to lose nothing has lost this many frames of a node. What comes behind them would be out of order, and the node cannot
    /// send them again: each of the two removes the other, and their programs are told.
    fn lost(&mut self, from: usize, frames: u32) -> Handled {
        self.counters.add(Counter::Missed, frames.into());
        self.remove(from, RemovalReason::Lost);
        self.links[from].tell_gone = Some(from as u8);
        self.wake(from);
        Handled::default()
    }

    fn drop_frame(&mut self, why: Counter) -> Handled {
        self.counters.count(why);
        Handled::default()
    }

    /// A frame of another session than that of the conversation, or of a node that was removed.
    fn stale(&mut self, from: usize, header: &Header) {
        let own_session = self.config.session;
        let link = &mut self.links[from];
        match link.standing {
            // It knows this node, and this node does not know it.
            Standing::Unknown => link.hello.now = true,
            Standing::Gone if header.session == link.session => self.tell_gone(from),
            Standing::Open if header.peer_session == own_session && header.session != link.session => {
                self.restarted(from);
            }
            _ => {}
        }
        self.wake(from);
    }

    /// A node shows its session.
    fn hello(&mut self, from: usize, header: &Header) {
        let own_session = self.config.session;
        if header.peer_session != 0 && header.peer_session != own_session {
            self.counters.count(Counter::Stale);
            return;
        }
        let is_same = header.about.group == self.config.digest() && header.about.nodes.len() == self.links.len();
        if !is_same {
            self.counters.count(Counter::BadControl);
            let link = &mut self.links[from];
            if !link.hello.is_other {
                // It is to see that, too, but an answer to each answer would never end.
                link.hello.is_other = true;
                link.hello.now = link.standing == Standing::Unknown;
                self.events.push_back(Event::Mismatch { node: from });
            }
            return;
        }
        self.counters.count(Counter::FramesReceived);
        let link = &mut self.links[from];
        match link.standing {
            Standing::Unknown => {
                link.session = header.session;
                link.standing = Standing::Open;
                link.heard(self.now);
                link.hello.challenge = 0;
                let ask_at = self.now.plus_nanos(self.config.timing.dead_ns / 4);
                self.deadlines.set(key(from, Due::Probe), ask_at);
                self.check_ready();
            }
            Standing::Gone if link.session == header.session => return self.tell_gone(from),
            Standing::Gone => return,
            Standing::Open if link.session == header.session => link.heard(self.now),
            Standing::Open if header.peer_session == own_session => return self.restarted(from),
            Standing::Open => {
                // An old frame, or the program was started again: only that knows this node's session.
                link.hello.challenge = header.session;
                link.hello.now = true;
                return;
            }
        }
        let link = &mut self.links[from];
        link.hello.now |= header.flags & FLAG_ANSWER != 0;
    }

    /// Takes what a frame acknowledges.
    fn acknowledged(&mut self, from: usize, header: &Header) -> Result<(), ()> {
        let (link, buffers) = (&mut self.links[from], &mut self.buffers);
        let done = |out: crate::transmit::Outgoing| {
            if let Some(buffer) = out.buffer {
                buffers.copy_done(buffer);
            }
        };
        let progress = link
            .outward
            .acknowledge(self.now, header.ack, header.selective, done)
            .map_err(|crate::transmit::BadAck| ())?;
        if progress && !link.outward.is_waiting_for_ack() {
            self.deadlines.cancel(key(from, Due::Retransmit));
        }
        Ok(())
    }

    /// Takes a frame that has a number.
    fn numbered(&mut self, from: usize, header: &Header, at: usize) -> Handled {
        let retransmits = self.config.policy.retransmits();
        let link = &mut self.links[from];
        let place = link.inward.place(header.sequence);
        if place == Place::Duplicate {
            return self.drop_frame(Counter::Duplicates);
        }
        let missing = link.inward.missing_before(header.sequence);
        if !retransmits && missing > 0 {
            return self.lost(from, missing);
        }
        let Place::Ahead(ahead) = place else {
            return self.drop_frame(Counter::BeyondWindow);
        };
        let carries = matches!(header.kind, Kind::Unicast | Kind::Multicast);
        let buffer = if carries {
            let Some(buffer) = self.buffers.arrive() else {
                self.counters.count(Counter::NoBuffer);
                return if retransmits {
                    Handled::default()
                } else {
                    self.lost(from, 1)
                };
            };
            Some(buffer)
        } else {
            None
        };
        self.counters.count(Counter::FramesReceived);
        let incoming = Incoming {
            kind: header.kind,
            buffer,
            length: header.length,
            about: header.about,
        };
        self.links[from].inward.insert(ahead, incoming);
        if ahead > 0 && retransmits {
            self.counters.count(Counter::OutOfOrder);
        }
        if !self.blocked.has(from) {
            self.drain(from);
        }
        let start = at + header.kind.header_len();
        Handled {
            store: buffer.map(|buffer| (buffer, start, start + usize::from(header.length))),
        }
    }

    /// Accepts the frames of a link that come next.
    pub(super) fn drain(&mut self, from: usize) {
        self.blocked = self.blocked.without(from);
        while let Some(head) = self.links[from].inward.head() {
            let head = *head;
            if !self.accept(from, &head) {
                self.counters.count(Counter::Blocked);
                self.blocked.0 |= 1 << from;
                break;
            }
            let link = &mut self.links[from];
            if !link.is_open() {
                // It was removed by what it said.
                return;
            }
            link.inward.advance();
        }
        let link = &mut self.links[from];
        if !self.config.policy.retransmits() {
            link.inward.acknowledged();
            return;
        }
        let ack = key(from, Due::Ack);
        if link.inward.owes_ack() && !link.inward.ack_now && !self.deadlines.is_set(ack) {
            let due = self.now.plus_nanos(self.config.timing.ack_delay_ns);
            self.deadlines.set(ack, due);
        }
        self.wake(from);
    }

    /// Tries again what found no room.
    pub(super) fn unblock(&mut self) {
        for from in self.blocked.iter() {
            if self.links[from].is_open() {
                self.drain(from);
            }
        }
    }
}
