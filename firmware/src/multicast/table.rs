//! The tables of a card: its groups, a row for each of their senders, and where each row's packets and credits stand.
//!
//! Plain state and its arithmetic; what happens when is in `machine`.

use alloc::{boxed::Box, vec::Vec};
use core::fmt;

use ether::{MacAddr, Time};

use super::{BUFFERS_MAX, BufferId, CHILDREN_MAX, GroupCounters, MEMBERS_MAX, Row};

/// What a card is told of a group: who builds the trees (`vnicd`'s group service, say) writes it to every member.
#[derive(Clone, Copy, Debug)]
pub struct GroupTable<'a> {
    /// Number of the group, not 0.
    pub group: u16,
    /// Differs from that of the writing before; frames of another one are refused.
    pub generation: u16,
    /// Rank of this card.
    pub own: u8,
    /// Addresses by rank: in ascending order, and all different.
    pub members: &'a [MacAddr],
    /// What to do with each sender's packets, by rank; see [`rows`](super::rows).
    pub rows: &'a [Row],
}

/// Why a table is refused; the card's tables are as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableError {
    /// Group 0, members out of order, too many, or rows that do not fit them.
    Nonsense,
    /// The card is in [`GROUPS_MAX`](super::GROUPS_MAX) groups already.
    TooManyGroups,
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nonsense => "the group's table contradicts itself",
            Self::TooManyGroups => "the card is in as many groups as it can be",
        })
    }
}

impl core::error::Error for TableError {}

impl GroupTable<'_> {
    pub(super) fn check(&self) -> Result<(), TableError> {
        let members = self.members.len();
        let known = |rank: u8| usize::from(rank) < members;
        let rows = self.rows.iter().zip(0u8..).all(|(row, sender)| {
            row.parent.is_none() == (sender == self.own)
                && row.parent.is_none_or(|parent| known(parent) && parent != self.own)
                && row
                    .children()
                    .iter()
                    .all(|child| known(child.rank) && child.rank != self.own && child.rank != sender)
        });
        let sound = self.group != 0
            && (1..=MEMBERS_MAX).contains(&members)
            && known(self.own)
            && self.members.is_sorted_by(|a, b| a < b)
            && self.rows.len() == members
            && rows;
        if sound { Ok(()) } else { Err(TableError::Nonsense) }
    }
}

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
    /// Buffers with packets that wait, oldest first.
    pub(super) oldest: Option<BufferId>,
    pub(super) newest: Option<BufferId>,
}

impl Entry {
    fn new(row: &Row) -> Self {
        let mut edges = [Edge::NONE; CHILDREN_MAX];
        for (edge, child) in edges.iter_mut().zip(row.children()) {
            edge.to = child.rank;
            edge.forwards = child.forwards;
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

    /// The card forwards others' packets here, so it gives credits for them.
    #[inline]
    pub(super) fn gives_credits(&self) -> bool {
        self.parent.is_some() && self.len > 0
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
}

/// A group that the card is a member of.
#[derive(Clone, Debug, Hash)]
pub(super) struct Group {
    pub(super) number: u16,
    pub(super) generation: u16,
    pub(super) own: u8,
    pub(super) members: Box<[MacAddr]>,
    pub(super) entries: Box<[Entry]>,
    pub(super) counters: GroupCounters,
}

impl Group {
    pub(super) fn new(table: &GroupTable<'_>) -> Self {
        Self {
            number: table.group,
            generation: table.generation,
            own: table.own,
            members: table.members.into(),
            entries: table.rows.iter().map(Entry::new).collect::<Vec<_>>().into(),
            counters: GroupCounters::default(),
        }
    }
}

/// A buffer of the card: a packet of one tree, and the children that do not have it yet.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Slot {
    pub(super) sequence: u32,
    /// Bit *n*: child *n* of its row has to get it.
    pub(super) pending: u8,
    /// The next younger packet of this tree.
    pub(super) next: Option<BufferId>,
}

/// Forwarding buffers as counts: who may have how many.
///
/// One buffer is reserved for trees that have not wrapped and one for those that have; the rest is common.
#[derive(Clone, Copy, Debug, Hash)]
pub(super) struct Budget {
    buffers: u16,
    pub(super) common_used: u16,
    pub(super) reserve_used: [bool; 2],
    /// The most of the common buffers that one tree may have.
    pub(super) window: u16,
}

impl Budget {
    pub(super) fn new(buffers: u16) -> Self {
        Self {
            buffers: buffers.min(BUFFERS_MAX),
            common_used: 0,
            reserve_used: [false; 2],
            window: 0,
        }
    }

    pub(super) const fn buffers(&self) -> u16 {
        self.buffers
    }

    /// Buffers that are in no reserve.
    pub(super) const fn common(&self) -> u16 {
        self.buffers.saturating_sub(2)
    }

    /// The reserve of a class; a card with a single buffer has one for both.
    pub(super) fn reserve(&mut self, wrapped: bool) -> Option<&mut bool> {
        match self.buffers {
            0 => None,
            1 => Some(&mut self.reserve_used[0]),
            _ => Some(&mut self.reserve_used[usize::from(wrapped)]),
        }
    }

    /// Common buffers that `entry` may have besides those it has.
    #[inline]
    pub(super) fn room(&self, entry: &Entry) -> u16 {
        let own = self.window.saturating_sub(entry.common());
        own.min(self.common() - self.common_used)
    }
}
