//! Who is there: nodes that fall silent, that others report, that leave, and that were started again.

use super::{Due, Engine, key};
use crate::{
    Counter, Event, GroupId, Nodes, Policy, RemovalReason,
    link::{Standing, Suspicion},
    transmit::Outgoing,
    wire::{About, Kind},
};

/// How far this node is with leaving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Leaving {
    /// It stays.
    #[default]
    No,
    /// Own packets are in flight.
    Asked,
    /// It has said goodbye.
    Said,
}

impl Engine {
    /// Removes a node: nothing goes to it any more, and the trees of this node's packets do without it.
    pub(super) fn remove(&mut self, node: usize, reason: RemovalReason) {
        let link = &mut self.links[node];
        if link.standing == Standing::Gone {
            return;
        }
        link.standing = Standing::Gone;
        if reason != RemovalReason::Left {
            self.counters.count(Counter::Removed);
        }
        link.suspicion = None;
        let (buffers, counters) = (&mut self.buffers, &mut self.counters);
        link.outward.clear(|out| {
            if let Some(buffer) = out.buffer {
                counters.count(Counter::Abandoned);
                buffers.copy_done(buffer);
            }
        });
        link.inward.clear(|early| {
            if let Some(buffer) = early.buffer {
                buffers.refuse(buffer);
            }
        });
        self.blocked = self.blocked.without(node);
        for due in [Due::Ack, Due::Retransmit, Due::Probe] {
            self.deadlines.cancel(key(node, due));
        }
        self.events.push_back(Event::Removed { node, reason });
        if matches!(
            reason,
            RemovalReason::Silent | RemovalReason::Restarted | RemovalReason::Lost
        ) {
            let about = About {
                origin: node as u8,
                ..About::default()
            };
            self.send_to_all(Nodes::first(self.links.len()), Kind::Gone, about);
        }
        self.fail_groups_with(node);
        for position in 0..self.groups.count() {
            self.remove_from_group(position, node);
        }
        self.check_ready();
        self.say_bye();
    }

    /// A member is gone: the tree of this node's packets is made anew, and what some member may lack goes out on it again.
    pub(super) fn remove_from_group(&mut self, position: usize, gone: usize) {
        let me = self.config.me;
        let group = self.groups.at(position);
        group.alive = group.alive.without(gone);
        let is_in_card = group.id == GroupId::ALL && self.config.policy == Policy::Ni;
        if is_in_card || !group.streams[me].alive.has(gone) || gone == me {
            return;
        }
        let id = group.id;
        group.progress_at = self.now;
        let stream = &mut group.streams[me];
        let first = stream.first_unstable();
        let nodes = stream.alive.without(gone);
        stream.replant(nodes, me, me, first);
        let children = stream.branch.children;
        for nth in 0..self.groups.at(position).own.len() {
            let retained = self.groups.at(position).own[nth];
            let about = About {
                group: id.0,
                number: first.wrapping_add(nth as u32),
                origin: me as u8,
                nodes,
            };
            let out = Outgoing {
                kind: Kind::Multicast,
                buffer: Some(retained.buffer),
                length: retained.length,
                about,
            };
            for child in children.into_iter().flatten().map(usize::from) {
                if self.links[child].is_wanted() {
                    self.counters.count(Counter::Repaired);
                    self.buffers.copy_again(retained.buffer);
                    self.send(child, out);
                }
            }
        }
        self.note_progress(position, me);
    }

    /// Another node says that it has removed `gone`.
    pub(super) fn reported(&mut self, by: usize, gone: usize) {
        if gone == by || gone >= self.links.len() {
            self.counters.count(Counter::BadControl);
            return;
        }
        let link = &mut self.links[gone];
        if link.standing != Standing::Open {
            return;
        }
        if self.now.nanos_since(link.heard_at) >= self.config.timing.dead_ns / 2 {
            return self.remove(gone, RemovalReason::Reported { by });
        }
        // It is believed when it stays silent, or when packets of this node do not reach it.
        self.counters.count(Counter::FalseReports);
        if link.suspicion.is_none() {
            link.suspicion = Some(Suspicion { by, since: self.now });
        }
        link.probe_now = true;
        self.deadlines.set(
            key(gone, Due::Probe),
            self.now.plus_nanos(self.config.timing.dead_ns / 16),
        );
        self.wake(gone);
    }

    /// The card says that the host of a node took nothing for too long: all cards have left it out by now, or, if it is this node, it
    /// was left out.
    pub(super) fn card_lost(&mut self, node: usize) {
        if node != self.config.me {
            return self.remove(node, RemovalReason::Silent);
        }
        self.events.push_back(Event::Excluded { by: node });
        if let Some(card) = &mut self.card {
            card.removes();
            for buffer in card.for_all.drain(..).filter_map(|out| out.buffer) {
                self.counters.count(Counter::Abandoned);
                self.buffers.copy_done(buffer);
            }
        }
        for other in self.others() {
            if self.links[other].is_open() {
                self.remove(other, RemovalReason::Reported { by: node });
            }
        }
    }

    /// Another node leaves without waiting for the others, or has removed this one.
    pub(super) fn parted(&mut self, other: usize, leaves: bool) {
        if leaves {
            return self.remove(other, RemovalReason::Left);
        }
        self.events.push_back(Event::Excluded { by: other });
        self.remove(other, RemovalReason::Reported { by: other });
    }

    /// Says goodbye to all: this node launches nothing more. What it launched still arrives, and it still takes and passes on what
    /// others send, until [`has_finished`](Self::has_finished).
    pub fn leave(&mut self, now: ether::Time) {
        self.now = now;
        self.leaving = self.leaving.max(Leaving::Asked);
        self.say_bye();
    }

    /// Says goodbye once every own packet is where it is to be: then no node needs another for packets of this one.
    pub(super) fn say_bye(&mut self) {
        if self.leaving == Leaving::Asked && self.buffers.launched() == 0 {
            self.leaving = Leaving::Said;
            self.send_to_all(Nodes::first(self.links.len()), Kind::Bye, About::default());
            if self.config.policy == Policy::Ni
                && let Some(card) = self.card.as_mut().filter(|card| !card.has_removed)
            {
                // Packets for all and for one take paths of their own; this is behind the former.
                card.for_all.push_back(Outgoing::control(Kind::Bye, About::default()));
            }
        }
    }

    /// Whether every node that was not removed has said goodbye: then every packet is where it is to be.
    pub fn all_have_left(&self) -> bool {
        let mut others = self.others();
        self.leaving == Leaving::Said
            && others.all(|node| {
                let link = &self.links[node];
                let to_all = link.goodbye.to_all || self.config.policy != Policy::Ni;
                !link.is_open() || link.goodbye.to_node && to_all
            })
    }

    /// Whether [`all_have_left`](Self::all_have_left), and all know that this node has: it can go.
    pub fn has_finished(&self) -> bool {
        self.all_have_left() && self.is_idle() && self.card.as_ref().is_none_or(crate::card::CardLink::is_empty)
    }

    /// Tells all nodes that are there that this one goes without waiting for them: one frame for each, which may be lost.
    pub fn abandon(&mut self, now: ether::Time) {
        self.now = now;
        self.leaving = Leaving::Said;
        for node in self.others() {
            if self.links[node].is_open() {
                self.links[node].tell_gone = Some(self.config.me as u8);
                self.wake(node);
            }
        }
    }

    /// The program of a node was started again.
    pub(super) fn restarted(&mut self, node: usize) {
        self.remove(node, RemovalReason::Restarted);
    }

    /// A node that was removed is still there: it is told, now and then.
    pub(super) fn tell_gone(&mut self, node: usize) {
        let link = &mut self.links[node];
        if self.now.nanos_since(link.heard_at) >= self.config.timing.dead_ns / 16 {
            link.heard_at = self.now;
            link.tell_gone = Some(node as u8);
            self.wake(node);
        }
    }

    /// It is time to ask whether a node is there, or to remove it.
    pub(super) fn probe(&mut self, node: usize) {
        let dead_ns = self.config.timing.dead_ns;
        let link = &mut self.links[node];
        match link.standing {
            Standing::Unknown => {
                link.hello.now = true;
                // 5 ms at first, then up to half a second.
                let wait_ns = 5_000_000 << link.probes.min(7);
                link.probes += 1;
                self.deadlines
                    .set(key(node, Due::Probe), self.now.plus_nanos(wait_ns.min(500_000_000)));
            }
            Standing::Open => {
                let silent_ns = self.now.nanos_since(link.heard_at);
                if let Some(Suspicion { by, since }) = link.suspicion
                    && self.is_stuck_since(node, since)
                {
                    return self.remove(node, RemovalReason::Reported { by });
                }
                let link = &mut self.links[node];
                if silent_ns < dead_ns / 4 && link.suspicion.is_none() {
                    let ask_at = link.heard_at.plus_nanos(dead_ns / 4);
                    self.deadlines.set(key(node, Due::Probe), ask_at);
                    return;
                }
                if silent_ns >= dead_ns / 4 {
                    if link.probes == 0 {
                        link.probed_at = self.now;
                    }
                    // A program that polls seldom first has to read what came meanwhile.
                    let asked_ns = self.now.nanos_since(link.probed_at);
                    if silent_ns >= dead_ns && link.probes >= 4 && asked_ns >= dead_ns / 4 {
                        return self.remove(node, RemovalReason::Silent);
                    }
                    link.probes += 1;
                }
                self.counters.count(Counter::Probes);
                link.probe_now = true;
                self.deadlines
                    .set(key(node, Due::Probe), self.now.plus_nanos(dead_ns / 16));
            }
            Standing::Gone => return,
        }
        self.wake(node);
    }

    /// Whether packets of this node for a group with `node` have been on their path for too long, and since the report, too.
    fn is_stuck_since(&mut self, node: usize, since: ether::Time) -> bool {
        let dead_ns = self.config.timing.dead_ns;
        let now = self.now;
        let is_late = |at| now.nanos_since(at) >= dead_ns;
        is_late(since)
            && self
                .groups
                .iter()
                .any(|group| group.alive.has(node) && !group.own.is_empty() && is_late(group.progress_at))
    }
}
