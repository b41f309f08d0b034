//! What a card keeps for each group that it is a member of: the members, a row's state for each sender, and, in a reliable group, who is
//! gone and how many of the own guest's packets are where.

use alloc::{boxed::Box, vec::Vec};

use ether::MacAddr;

use super::{
    BufferId, Child, Class, GroupCounters, GroupTable, Kind, Row, Tag, entry::Entry, own_packets::OwnPackets,
    wire::FLAG_UNICAST,
};

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
            own_packets: OwnPackets::new(own_buffers),
        }
    }

    pub(super) fn is_reliable(&self) -> bool {
        self.class == Class::Reliable
    }

    /// The row that a frame from the network is about; none if there is no such.
    #[inline]
    pub(super) fn place_of(&self, tag: &Tag) -> Option<usize> {
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
