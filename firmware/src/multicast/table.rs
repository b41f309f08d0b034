//! The table of a group, as a card is told it: the members, and a row for each of them as a sender.

use ether::MacAddr;

use super::{MEMBERS_MAX, Row};

weft_settings::named! {
    /// What becomes of a packet whose receiver is late.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Class, or UnknownClass: "a group is plain or reliable" {
        /// It waits for a moment and is dropped then.
        #[default]
        Plain = "plain",
        /// It keeps its buffer and its credit until the host took it, and its sender waits. Members send to single others, too.
        Reliable = "reliable",
    }
}

/// Groups from this number on are reliable, those below are plain: all members have the same class, since the number says it.
pub const RELIABLE_GROUP_MIN: u16 = 0x8000;

impl Class {
    /// The class of the group with this number.
    pub const fn of_group(number: u16) -> Self {
        if number < RELIABLE_GROUP_MIN {
            Self::Plain
        } else {
            Self::Reliable
        }
    }
}

/// What a card is told of a group: who builds the trees (`vnicd`'s group service, say) writes it to every member.
#[derive(Clone, Copy, Debug)]
pub struct GroupTable<'a> {
    /// Number of the group, not 0.
    pub group: u16,
    /// Differs from that of the writing before; frames of another one are refused.
    pub generation: u16,
    /// What becomes of packets whose receivers are late; the same at all members.
    pub class: Class,
    /// Rank of this card.
    pub own: u8,
    /// Addresses by rank: in ascending order, and all different.
    pub members: &'a [MacAddr],
    /// What to do with each sender's packets, by rank; see [`rows`](super::rows).
    pub rows: &'a [Row],
}

weft_settings::errors! {
    /// Why a table is refused; the card's tables are as before.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TableError {
        /// Group 0, members out of order, too many, or rows that do not fit them.
        Nonsense = "the group's table contradicts itself",
        /// The card is in [`GROUPS_MAX`](super::GROUPS_MAX) groups already.
        TooManyGroups = "the card is in as many groups as it can be",
    }
}

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
