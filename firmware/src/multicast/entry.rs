//! What a card keeps for each sender of a group: the sender's row, and where its packets and credits stand.
//!
//! This is plain state and its arithmetic; what happens when is in `machine`.

use alloc::collections::VecDeque;

use ether::Time;

use super::{
    BufferId, CHILDREN_MAX, Class, Kind, RETRY_NS, Row,
    signal::{EntryId, Signal, push},
    wire::FLAG_WAITING,
};

/// A child in a row, and what it has said about its buffers.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Edge {
    pub(super) to: u8,
    /// It forwards in its turn: packets need a credit.
    pub(super) forwards: bool,
    /// Packets below this number have a buffer there.
    pub(super) limit: u32,
    /// Packets that wait for a credit.
    pub(super) waiting: u16,
    /// A STATE says that we wait; the answer is not there yet.
    pub(super) asked: bool,
    /// In the list of children that got credits.
    pub(super) queued: bool,
    /// It gave no credit for too long: what is for it is given up until it does.
    pub(super) dead: bool,
    /// Since when we wait, and when we last said so.
    pub(super) since: Time,
    pub(super) said_at: Time,
}

impl Edge {
    const NONE: Self = Self {
        to: 0,
        forwards: false,
        limit: 0,
        waiting: 0,
        asked: false,
        queued: false,
        dead: false,
        since: Time::ZERO,
        said_at: Time::ZERO,
    };

    /// Tells the child that packets wait for a credit.
    pub(super) fn ask(
        &mut self,
        now: Time,
        of: EntryId,
        child: usize,
        signals: &mut VecDeque<Signal>,
        retry_at: &mut Option<Time>,
    ) {
        if !self.asked {
            self.since = now;
        }
        self.asked = true;
        self.said_at = now;
        *retry_at = retry_at.or(Some(now.plus_nanos(RETRY_NS)));
        push(
            signals,
            Signal {
                kind: Kind::State,
                of,
                child: child as u8,
                flags: FLAG_WAITING,
            },
        );
    }

    /// The packet may be sent at once: no earlier one waits, and there is a buffer, or none is needed.
    #[inline]
    pub(super) fn takes(&self, sequence: u32) -> bool {
        !self.forwards || self.waiting == 0 && self.has_credit(sequence)
    }

    #[inline]
    pub(super) fn has_credit(&self, sequence: u32) -> bool {
        self.limit.wrapping_sub(sequence) as i32 > 0
    }
}

/// A row and the state of its tree at this card.
#[derive(Clone, Debug, Hash)]
pub(super) struct Entry {
    pub(super) parent: Option<u8>,
    pub(super) wrapped: bool,
    edges: [Edge; CHILDREN_MAX],
    len: u8,
    /// The number that comes next; all below were forwarded, wait in buffers, or are lost.
    pub(super) next: u32,
    /// The parent may send below this number.
    pub(super) limit: u32,
    /// Buffers that hold packets of this tree.
    pub(super) occupied: u16,
    /// One of the credits or occupied buffers is the class's reserved one.
    pub(super) reserve: bool,
    /// The parent waits for a credit that could not be given.
    pub(super) asked: bool,
    /// Each packet keeps its buffer until the own host took it.
    pub(super) holds: bool,
    /// Buffers with packets that wait, oldest first.
    pub(super) oldest: Option<BufferId>,
    pub(super) newest: Option<BufferId>,
}

impl Entry {
    pub(super) fn new(row: &Row, class: Class) -> Self {
        let is_reliable = class == Class::Reliable;
        let mut edges = [Edge::NONE; CHILDREN_MAX];
        for (edge, child) in edges.iter_mut().zip(row.children()) {
            edge.to = child.rank;
            edge.forwards = child.forwards || is_reliable;
        }
        Self {
            parent: row.parent,
            wrapped: row.wrapped,
            edges,
            len: row.children().len() as u8,
            next: 0,
            limit: 0,
            occupied: 0,
            reserve: false,
            asked: false,
            holds: is_reliable && row.parent.is_some(),
            oldest: None,
            newest: None,
        }
    }

    #[inline]
    pub(super) fn edges(&self) -> &[Edge] {
        &self.edges[..usize::from(self.len)]
    }

    #[inline]
    pub(super) fn edges_mut(&mut self) -> &mut [Edge] {
        &mut self.edges[..usize::from(self.len)]
    }

    /// The card keeps others' packets here, for children or for its host, so it gives credits for them.
    #[inline]
    pub(super) fn gives_credits(&self) -> bool {
        self.parent.is_some() && (self.len > 0 || self.holds)
    }

    /// Credits that were given and not used.
    #[inline]
    pub(super) fn outstanding(&self) -> u32 {
        self.limit.wrapping_sub(self.next)
    }

    /// Buffers that this tree has or was promised, without the reserved one.
    #[inline]
    pub(super) fn common(&self) -> u16 {
        self.outstanding() as u16 + self.occupied - u16::from(self.reserve)
    }

    /// Takes `buffer`, which stands behind `before`, out of the row's list.
    pub(super) fn unlink(&mut self, slots: &mut [Slot], before: Option<BufferId>, buffer: BufferId) {
        let next = slots[buffer.index()].next;
        match before {
            Some(before) => slots[before.index()].next = next,
            None => self.oldest = next,
        }
        if next.is_none() {
            self.newest = before;
        }
    }

    /// The oldest buffer that waits for child `child`, and the one before it in the row's list.
    pub(super) fn oldest_for(&self, slots: &[Slot], child: usize) -> Option<(Option<BufferId>, BufferId)> {
        let (mut before, mut at) = (None, self.oldest);
        while let Some(buffer) = at {
            let slot = &slots[buffer.index()];
            if slot.pending & 1 << child != 0 {
                return Some((before, buffer));
            }
            (before, at) = (at, slot.next);
        }
        None
    }
}

/// A buffer of the card: a packet of one tree, and the children that do not have it yet.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Slot {
    pub(super) sequence: u32,
    /// Bit *n*: child *n* of its row has to get it; bit [`HOST`]: so has the own host.
    pub(super) pending: u8,
    /// The next younger packet of this tree.
    pub(super) next: Option<BufferId>,
    /// The packet's row.
    pub(super) of: EntryId,
}

/// Stands for the own host where children are counted: behind them.
pub(super) const HOST: usize = CHILDREN_MAX;
