//! Groups of nodes: those that exist, and those that their members are creating.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};

use ether::Time;

use crate::{BufferId, GroupId, Nodes, stream::Stream};

/// An own packet that some member may not have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retained {
    pub(crate) buffer: BufferId,
    pub(crate) length: u16,
}

/// A group that exists.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) id: GroupId,
    pub(crate) members: Nodes,
    /// Members that were not removed.
    pub(crate) alive: Nodes,
    /// By node.
    pub(crate) streams: Box<[Stream]>,
    /// Own packets, oldest first: numbers from the stream's first unstable one on.
    pub(crate) own: VecDeque<Retained>,
    /// When the oldest of them became the oldest.
    pub(crate) progress_at: Time,
}

/// A group that not all members have created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Creating {
    pub(crate) members: Nodes,
    /// How many groups of these members there were before.
    pub(crate) nth: u32,
    /// At the first member: those that are ready.
    pub(crate) joined: Nodes,
    /// The program of this node has asked for it.
    pub(crate) wanted: bool,
}

/// The groups of a node.
#[derive(Debug)]
pub(crate) struct Groups {
    list: Vec<Group>,
    pub(crate) creating: Vec<Creating>,
    /// How often this node has created a group of these members.
    counts: Vec<(Nodes, u32)>,
    made: u32,
}

impl Groups {
    /// The group of all nodes, and no other.
    pub(crate) fn new(nodes: usize, me: usize) -> Self {
        let mut groups = Self {
            list: Vec::new(),
            creating: Vec::new(),
            counts: Vec::new(),
            made: 0,
        };
        groups.add(GroupId::ALL, Nodes::first(nodes), Nodes::first(nodes), nodes, me);
        groups
    }

    /// Groups besides that of all nodes, those included that are being created.
    pub(crate) fn len(&self) -> usize {
        self.list.len() - 1 + self.creating.len()
    }

    pub(crate) fn add(&mut self, id: GroupId, members: Nodes, alive: Nodes, nodes: usize, me: usize) {
        let stream = |origin| {
            if members.has(origin) {
                Stream::new(members, origin, me)
            } else {
                Stream::new(Nodes(1 << me), me, me)
            }
        };
        self.list.push(Group {
            id,
            members,
            alive,
            streams: (0..nodes).map(stream).collect(),
            own: VecDeque::with_capacity(crate::SEND_BUFFERS),
            progress_at: Time::ZERO,
        });
    }

    #[inline]
    pub(crate) fn position(&self, id: GroupId) -> Option<usize> {
        self.list.iter().position(|group| group.id == id)
    }

    #[inline]
    pub(crate) fn at(&mut self, position: usize) -> &mut Group {
        &mut self.list[position]
    }

    #[inline]
    pub(crate) fn by_id(&self, id: GroupId) -> Option<&Group> {
        self.list.iter().find(|group| group.id == id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.list.iter()
    }

    pub(crate) fn count(&self) -> usize {
        self.list.len()
    }

    /// How many groups of these members the program has asked for before, this one counted now.
    pub(crate) fn nth_of(&mut self, members: Nodes) -> u32 {
        match self.counts.iter_mut().find(|(known, _)| *known == members) {
            Some((_, count)) => {
                *count += 1;
                *count - 1
            }
            None => {
                self.counts.push((members, 1));
                0
            }
        }
    }

    /// A name that no other first member gives.
    pub(crate) fn next_id(&mut self, me: usize) -> GroupId {
        self.made += 1;
        GroupId(((me as u32 + 1) << 16) | (self.made & 0xffff))
    }
}
