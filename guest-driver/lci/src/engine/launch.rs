//! What the program sends.

use ether::Time;

use super::{Delivered, Engine, membership::Leaving};
use crate::{
    BufferId, Counter, GroupId, PACKET_LEN_MAX, Policy,
    group::Retained,
    transmit::Outgoing,
    wire::{About, Kind},
};

/// Why a packet was not launched. The program still has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// It is no packet that the program allocated and did not launch.
    #[error("only a packet that was allocated and not launched yet can be launched")]
    NotAllocated,
    /// It has too many bytes.
    #[error("a packet has at most {PACKET_LEN_MAX} bytes")]
    TooLong,
    /// There is no such node.
    #[error("there is no such node")]
    NoSuchNode,
    /// The node was removed.
    #[error("the node is gone")]
    NodeGone,
    /// The node was not heard of yet.
    #[error("not all nodes were heard of yet")]
    NotReady,
    /// There is no such group, or this node is not in it.
    #[error("this node is in no such group")]
    NoSuchGroup,
    /// This node leaves.
    #[error("this node has ended its conversations")]
    Leaving,
}

impl Engine {
    /// Allocates a packet; `None` while all [`crate::SEND_BUFFERS`] are in flight.
    #[inline]
    pub fn allocate(&mut self) -> Option<BufferId> {
        self.buffers.allocate()
    }

    /// Buffers that [`allocate`](Self::allocate) can give now.
    pub fn free_send_buffers(&self) -> usize {
        self.buffers.free_send()
    }

    /// Whether the program has this packet: it allocated it, or got it, and did not give it away.
    pub fn is_programs(&self, buffer: BufferId) -> bool {
        self.buffers.is_allocated(buffer) || self.buffers.is_kept(buffer)
    }

    /// Whether the card multicasts to this group: that of all nodes, in LCI-ni. Other groups are forwarded by their members.
    pub(super) fn is_in_card(&self, group: GroupId) -> bool {
        self.config.policy == Policy::Ni && group == GroupId::ALL
    }

    /// Gives a packet for all to the card.
    fn launch_in_card(&mut self, position: usize, buffer: BufferId, length: u16) {
        let me = self.config.me;
        let group = self.groups.at(position);
        let stream = &mut group.streams[me];
        let number = stream.next;
        stream.next = number.wrapping_add(1);
        stream.taken = stream.next;
        let about = About {
            group: group.id.0,
            number,
            origin: me as u8,
            nodes: group.members,
        };
        let Some(card) = self.card.as_mut().filter(|card| !card.has_removed) else {
            // There is no one that would get it.
            return self.buffers.launch(buffer, 0, false);
        };
        self.buffers.launch(buffer, 1, false);
        card.for_all.push_back(Outgoing {
            kind: Kind::Multicast,
            buffer: Some(buffer),
            length,
            about,
        });
    }

    fn check(&self, buffer: BufferId, length: usize) -> Result<u16, LaunchError> {
        if !self.buffers.is_allocated(buffer) {
            return Err(LaunchError::NotAllocated);
        }
        if self.leaving != Leaving::No {
            return Err(LaunchError::Leaving);
        }
        match u16::try_from(length) {
            Ok(short) if length <= PACKET_LEN_MAX => Ok(short),
            _ => Err(LaunchError::TooLong),
        }
    }

    /// Sends the first `length` bytes of a packet to one node, itself included. The packet is the engine's from now on.
    ///
    /// # Errors
    /// [`LaunchError`]; the program still has the packet.
    pub fn launch_unicast(&mut self, now: Time, to: usize, buffer: BufferId, length: usize) -> Result<(), LaunchError> {
        self.now = now;
        let length = self.check(buffer, length)?;
        let link = self.links.get(to).ok_or(LaunchError::NoSuchNode)?;
        if to == self.config.me {
            self.counters.count(Counter::UnicastsSent);
            self.buffers.accept_unicast(buffer);
            self.deliveries.push_back(Delivered {
                source: to as u8,
                buffer,
                length,
                group: None,
            });
            return Ok(());
        }
        match link.standing {
            crate::link::Standing::Open => {}
            crate::link::Standing::Unknown => return Err(LaunchError::NotReady),
            _ => return Err(LaunchError::NodeGone),
        }
        self.counters.count(Counter::UnicastsSent);
        self.buffers.launch(buffer, 1, false);
        let out = Outgoing {
            kind: Kind::Unicast,
            buffer: Some(buffer),
            length,
            about: About::default(),
        };
        self.send(to, out);
        Ok(())
    }

    /// Sends the first `length` bytes of a packet to every member of a group but this node; [`GroupId::ALL`] is a broadcast.
    ///
    /// # Errors
    /// [`LaunchError`]; the program still has the packet.
    pub fn launch_multicast(
        &mut self,
        now: Time,
        group: GroupId,
        buffer: BufferId,
        length: usize,
    ) -> Result<(), LaunchError> {
        self.now = now;
        let length = self.check(buffer, length)?;
        if !self.is_ready {
            return Err(LaunchError::NotReady);
        }
        let me = self.config.me;
        let position = self.groups.position(group).ok_or(LaunchError::NoSuchGroup)?;
        self.counters.count(Counter::MulticastsSent);
        if self.is_in_card(group) {
            self.launch_in_card(position, buffer, length);
            return Ok(());
        }
        let group = self.groups.at(position);
        if group.own.is_empty() {
            group.progress_at = now;
        }
        group.own.push_back(Retained { buffer, length });
        let stream = &mut group.streams[me];
        let number = stream.next;
        stream.next = number.wrapping_add(1);
        stream.taken = stream.next;
        let about = About {
            group: group.id.0,
            number,
            origin: me as u8,
            nodes: stream.alive,
        };
        let children = stream.branch.children;
        self.buffers
            .launch(buffer, children.iter().flatten().count() as u8, true);
        let out = Outgoing {
            kind: Kind::Multicast,
            buffer: Some(buffer),
            length,
            about,
        };
        for child in children.into_iter().flatten() {
            self.send(child.into(), out);
        }
        self.note_progress(position, me);
        Ok(())
    }
}
