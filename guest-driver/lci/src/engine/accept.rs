//! What frames carry, each in its turn on its link: packets for the program and for children, and what nodes tell each other.

use super::{Delivered, Engine};
use crate::{
    BufferId, Counter, GroupId, Nodes,
    link::Link,
    receive::Incoming,
    transmit::Outgoing,
    wire::{About, Kind},
};

/// Where the key of reports stands among the deadlines: behind those of the links.
const fn report_key(nodes: usize) -> usize {
    super::LINK_KEYS * nodes
}

/// Packets of one sender that some member may lack, at most.
const KEPT_MAX: u32 = crate::SEND_BUFFERS as u32;

/// What becomes of a packet of a tree.
enum Verdict {
    /// It is taken: a new one, or one that only children lack.
    Take { is_new: bool },
    /// It is dropped.
    Drop(Counter),
    /// There is no room, or its group is not there yet: it stays where it is.
    Wait,
}

impl Engine {
    /// Takes the frame that comes next on a link; false if it has to wait.
    pub(super) fn accept(&mut self, from: usize, frame: &Incoming) -> bool {
        match (frame.kind, frame.buffer) {
            (Kind::Unicast, Some(buffer)) => return self.accept_unicast(from, buffer, frame.length),
            (Kind::Multicast, Some(buffer)) => return self.accept_multicast(from, buffer, frame),
            (Kind::Stable, _) => self.accept_stable(from, &frame.about),
            (Kind::Join, _) => self.join(from, &frame.about),
            (Kind::Group, _) => self.group_named(from, &frame.about),
            (Kind::Gone, _) => self.reported(from, frame.about.origin.into()),
            (Kind::Bye, _) => self.links[from].goodbye.to_node = true,
            _ => {}
        }
        true
    }

    fn accept_unicast(&mut self, from: usize, buffer: BufferId, length: u16) -> bool {
        if !self.buffers.has_room_for_unicast() {
            return false;
        }
        self.buffers.accept_unicast(buffer);
        self.deliveries.push_back(Delivered {
            source: from as u8,
            buffer,
            length,
            group: None,
        });
        true
    }

    fn accept_multicast(&mut self, from: usize, buffer: BufferId, frame: &Incoming) -> bool {
        let about = &frame.about;
        let Some(position) = self.groups.position(GroupId(about.group)) else {
            if self.awaits_group(from, about) {
                return false;
            }
            self.refuse(buffer, Counter::UnknownGroup);
            return true;
        };
        let is_new = match self.judge(from, position, about) {
            Verdict::Wait => return false,
            Verdict::Drop(why) => {
                self.refuse(buffer, why);
                return true;
            }
            Verdict::Take { is_new } => is_new,
        };
        let origin = usize::from(about.origin);
        let group = self.groups.at(position);
        let id = group.id;
        let stream = &mut group.streams[origin];
        let children = stream.branch.children;
        if is_new {
            stream.next = stream.next.wrapping_add(1);
        } else {
            self.counters.count(Counter::Duplicates);
        }
        let reached = |child: &u8| self.links[usize::from(*child)].is_wanted();
        let copies = children.iter().flatten().filter(|child| reached(child)).count();
        self.buffers.accept_multicast(buffer, origin, is_new, copies as u8);
        if is_new {
            self.deliveries.push_back(Delivered {
                source: about.origin,
                buffer,
                length: frame.length,
                group: Some((position as u16, id)),
            });
        }
        let out = Outgoing {
            kind: Kind::Multicast,
            buffer: Some(buffer),
            length: frame.length,
            about: *about,
        };
        for child in children.into_iter().flatten().map(usize::from) {
            if self.links[child].is_wanted() {
                self.counters.count(Counter::Forwarded);
                self.send(child, out);
            }
        }
        self.note_progress(position, origin);
        true
    }

    fn refuse(&mut self, buffer: BufferId, why: Counter) {
        self.counters.count(why);
        self.buffers.refuse(buffer);
    }

    /// Checks a packet of a tree, and follows its sender to a new tree.
    fn judge(&mut self, from: usize, position: usize, about: &About) -> Verdict {
        let me = self.config.me;
        let origin = usize::from(about.origin);
        let group = self.groups.at(position);
        let tree = about.nodes;
        if origin == me || !tree.has(me) || !tree.has(origin) || !tree.has(from) || !tree.is_within(group.members) {
            return Verdict::Drop(Counter::WrongPath);
        }
        if !self.buffers.has_room_for(origin) {
            return Verdict::Wait;
        }
        let stream = &mut group.streams[origin];
        let ahead = about.number.wrapping_sub(stream.next) as i32;
        let comes_from = Some(from as u8);
        if tree != stream.alive {
            if !tree.is_within(stream.alive) {
                let is_old = stream.alive.is_within(tree);
                return Verdict::Drop(if is_old { Counter::OldTree } else { Counter::WrongPath });
            }
            if tree.branch(origin, me).parent != comes_from {
                return Verdict::Drop(Counter::WrongPath);
            }
            if ahead > 0 {
                return Verdict::Drop(Counter::Gap);
            }
            stream.replant(tree, origin, me, about.number);
        } else if stream.branch.parent != comes_from {
            return Verdict::Drop(Counter::WrongPath);
        }
        match ahead {
            0 => Verdict::Take { is_new: true },
            1.. => Verdict::Drop(Counter::Gap),
            _ if ahead < -(KEPT_MAX as i32) => Verdict::Drop(Counter::Duplicates),
            _ => Verdict::Take { is_new: false },
        }
    }

    /// A child tells how far it and all below it are.
    fn accept_stable(&mut self, from: usize, about: &About) {
        let (origin, me) = (usize::from(about.origin), self.config.me);
        let Some(position) = self.groups.position(GroupId(about.group)) else {
            self.counters.count(Counter::BadControl);
            return;
        };
        let streams = &mut self.groups.at(position).streams;
        let Some(stream) = streams.get_mut(origin) else {
            self.counters.count(Counter::BadControl);
            return;
        };
        if stream.alive != about.nodes {
            // Of the tree before, or of one that this node has not seen.
            self.counters.count(Counter::OldTree);
        } else if stream.hear(from, about.number, if origin == me { 0 } else { KEPT_MAX }) {
            self.note_progress(position, origin);
        } else {
            self.counters.count(Counter::BadControl);
        }
    }

    /// A stream may have come farther: its parent is told, or at its sender packets are done.
    pub(super) fn note_progress(&mut self, position: usize, origin: usize) {
        let id = self.groups.at(position).id;
        if self.is_in_card(id) {
            // The card knows when a packet is everywhere.
            return;
        }
        let group = self.groups.at(position);
        let stream = &mut group.streams[origin];
        if origin == self.config.me {
            for _ in 0..stream.settle() {
                let Some(done) = group.own.pop_front() else { break };
                self.buffers.stable(done.buffer);
                group.progress_at = self.now;
            }
            return;
        }
        if stream.unreported() == 0 {
            return;
        }
        if stream.report_is_urgent() {
            self.report(position, origin);
        } else if !stream.report_waits {
            stream.report_waits = true;
            self.reports.push_back((position as u16, origin as u8));
            let key = report_key(self.links.len());
            if !self.deadlines.is_set(key) {
                let due = self.now.plus_nanos(self.config.timing.ack_delay_ns);
                self.deadlines.set(key, due);
            }
        }
    }

    /// Tells the parent in a tree how far this node and all below it are.
    fn report(&mut self, position: usize, origin: usize) {
        let group = self.groups.at(position);
        let id = group.id;
        let stream = &mut group.streams[origin];
        let nodes = stream.alive;
        let parent = stream.branch.parent;
        let number = stream.report();
        let about = About {
            group: id.0,
            number,
            origin: origin as u8,
            nodes,
        };
        if let Some(parent) = parent.map(usize::from)
            && self.links[parent].is_wanted()
        {
            self.send(parent, Outgoing::control(Kind::Stable, about));
        }
    }

    /// The time of the reports that waited has come.
    pub(super) fn report_all(&mut self) {
        while let Some((position, origin)) = self.reports.pop_front() {
            let (position, origin) = (usize::from(position), usize::from(origin));
            if self.groups.at(position).streams[origin].report_waits {
                self.report(position, origin);
            }
        }
    }

    /// Sends a numbered frame to a node.
    #[inline]
    pub(super) fn send(&mut self, to: usize, out: Outgoing) {
        self.links[to].outward.push(out);
        self.wake(to);
    }

    /// Sends a numbered frame without payload to all of `nodes` that are there.
    pub(super) fn send_to_all(&mut self, nodes: Nodes, kind: Kind, about: About) {
        for node in nodes.without(self.config.me).iter() {
            if self.links.get(node).is_some_and(Link::is_wanted) {
                self.send(node, Outgoing::control(kind, about));
            }
        }
    }
}
