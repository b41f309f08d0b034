//! What a card keeps for each sender of a group: the sender's row, and where its packets and credits stand.
//!
//! This is plain state and its arithmetic; what happens when is in `machine`.

use alloc::{boxed::Box, collections::VecDeque, vec::Vec};

use ether::{MacAddr, Time};

use super::{
    BufferId, CHILDREN_MAX, Child, Class, GroupCounters, GroupTable, Kind, RETRY_NS, Row, SEND_BUFFERS, Tag,
    signal::{EntryId, Signal, push},
    wire::{FLAG_UNICAST, FLAG_WAITING},
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
    fn new(row: &Row, class: Class) -> Self {
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

/// A group that the card is a member of.
#[derive(Clone, Debug, Hash)]
pub(super) struct Group {
    pub(super) number: u16,
    pub(super) generation: u16,
    pub(super) own: u8,
    pub(super) members: Box<[MacAddr]>,
    /// The trees of all senders by rank. In a reliable group follow the packets from each member to this one, and from this one to
    /// each member.
    pub(super) entries: Box<[Entry]>,
    pub(super) counters: GroupCounters,
    pub(super) class: Class,
    /// Members that are gone, as a set of ranks, and those of them that the guest was not told of.
    pub(super) gone: u128,
    pub(super) untold: u128,
    pub(super) own_packets: OwnPackets,
}

/// The packets of the own guest to a reliable group, counted.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct OwnPackets {
    /// Buffers for those that wait for credits.
    pub(super) free: Vec<BufferId>,
    taken: u32,
    left: u32,
    told: u32,
    report_asked: bool,
}

/// Packets that have left their card after which the guest is told without having asked.
const REPORT_EVERY: u32 = SEND_BUFFERS as u32 / 4;

impl OwnPackets {
    pub(super) fn take(&mut self, report: bool) {
        self.taken = self.taken.wrapping_add(1);
        self.report_asked |= report;
    }

    pub(super) fn leave(&mut self) {
        self.left = self.left.wrapping_add(1);
    }

    /// How many have left, if the guest is to be told now.
    pub(super) fn report(&self) -> Option<u32> {
        let news = self.left.wrapping_sub(self.told);
        let all_left = self.report_asked && self.left == self.taken;
        (news >= REPORT_EVERY || all_left).then_some(self.left)
    }

    pub(super) fn reported(&mut self) {
        self.told = self.left;
        self.report_asked &= self.left != self.taken;
    }
}

impl Group {
    pub(super) fn new(table: &GroupTable<'_>, own_buffers: Vec<BufferId>) -> Self {
        let trees = table.rows.iter().map(|row| Entry::new(row, table.class));
        let unicasts = match table.class {
            Class::Plain => Vec::new(),
            Class::Reliable => unicast_rows(table.members.len(), table.own),
        };
        let entries = trees.chain(unicasts.iter().map(|row| Entry::new(row, table.class)));
        Self {
            number: table.group,
            generation: table.generation,
            own: table.own,
            members: table.members.into(),
            entries: entries.collect::<Vec<_>>().into(),
            counters: GroupCounters::default(),
            class: table.class,
            gone: 0,
            untold: 0,
            own_packets: OwnPackets {
                free: own_buffers,
                ..OwnPackets::default()
            },
        }
    }

    pub(super) fn is_reliable(&self) -> bool {
        self.class == Class::Reliable
    }

    /// The row that a frame from the network is about; none if there is no such.
    #[inline]
    pub(super) fn row_of(&self, tag: &Tag) -> Option<usize> {
        let members = self.members.len();
        if tag.flags & FLAG_UNICAST == 0 {
            return Some(tag.rank.into());
        }
        if !self.is_reliable() {
            return None;
        }
        if tag.kind != Kind::Credit {
            return Some(members + usize::from(tag.rank));
        }
        let receiver = self.members.binary_search(&tag.from).ok()?;
        (tag.rank == self.own).then_some(2 * members + receiver)
    }

    /// The sender of a row's packets, and the flag that says whether they are for one member.
    pub(super) fn sender_of(&self, row: usize) -> (u8, u8) {
        let members = self.members.len();
        match row / members {
            0 => (row as u8, 0),
            1 => ((row - members) as u8, FLAG_UNICAST),
            _ => (self.own, FLAG_UNICAST),
        }
    }

    pub(super) fn is_gone(&self, rank: u8) -> bool {
        self.gone & 1 << rank != 0
    }

    /// The guest is to be told that a member is gone; false if that is known.
    pub(super) fn lose(&mut self, rank: u8) -> bool {
        let is_new = !self.is_gone(rank);
        self.gone |= 1 << rank;
        if is_new {
            self.untold |= 1 << rank;
        }
        is_new
    }
}

/// Rows for packets from each member to this one, and from this one to each: trees with a single edge. They pass for wrapped ones:
/// such a packet waits for nothing but the host.
fn unicast_rows(members: usize, own: u8) -> Vec<Row> {
    let to_own = |rank: u8| Row::new((rank != own).then_some(rank), true);
    let from_own = |rank: u8| {
        let mut row = Row::new(None, true);
        let forwards = true;
        let fits = rank == own || row.push(Child { rank, forwards });
        debug_assert!(fits, "a row has room for a child");
        row
    };
    let ranks = 0..members as u8;
    ranks.clone().map(to_own).chain(ranks.map(from_own)).collect()
}

/// A buffer of the card: a packet of one tree, and the children that do not have it yet.
#[derive(Clone, Copy, Debug, Default, Hash)]
pub(super) struct Slot {
    pub(super) sequence: u32,
    /// Bit *n*: child *n* of its row has to get it; bit [`HOST`]: so has the own host.
    pub(super) pending: u8,
    /// The next younger packet of this tree.
    pub(super) next: Option<BufferId>,
    /// Row of the packet.
    pub(super) of: EntryId,
}

/// Stands for the own host where children are counted: behind them.
pub(super) const HOST: usize = CHILDREN_MAX;
