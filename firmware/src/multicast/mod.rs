//! Multicast in the card (`papers.md` M-BV5): a packet that a guest tags goes from card to card along the tree of its
//! sender, without any guest on its path; credits keep cards from running out of forwarding buffers.
//!
//! It is a machine without I/O: it is handed the first bytes of frames and says where they go, and from which buffer.
//! `docs/spec/card-multicast.md` defines the frames, the credits and the least number of buffers. Who is in which group is decided elsewhere.

mod budget;
mod counters;
mod entry;
mod group;
mod machine;
mod own_packets;
mod signal;
mod table;
mod tree;
mod wire;

pub use counters::{GroupCounters, TagRefusal, TagRefusals};
pub use machine::{Accepted, Action, ForHost, Multicast, Received};
pub use table::{Class, GroupTable, RELIABLE_GROUP_MIN, TableError, UnknownClass};
pub use tree::{
    CHILDREN_MAX, Child, MEMBERS_MAX, Row, TreeShape, UnknownShape, buffers_min, buffers_min_of, children, height,
    parent, rows,
};
pub use wire::{CARD_FRAME_MIN, FLAG_REPORT, FLAG_UNICAST, Kind, TAG_END, TAG_VERSION, Tag, is_card_frame};

/// The most groups that a card is in at once: 16 × [`MEMBERS_MAX`] rows are half a megabyte, what the paper's card had for
/// everything.
pub const GROUPS_MAX: usize = 16;

/// The most forwarding buffers of a card.
pub const BUFFERS_MAX: u16 = 1024;

/// Forwarding buffers of a card unless said otherwise: four for each tree in which a member of the largest binary group
/// forwards, and two reserved ones.
pub const BUFFERS_DEFAULT: u16 = 254;

/// Packets of the own guest that may wait for credits; what it sends beyond them is refused.
pub const SEND_BUFFERS: u16 = 64;

/// How long a card waits for an answer to a STATE before it says it again: far more than a card takes, and the only wait
/// when a link loses a CREDIT.
pub const RETRY_NS: u64 = 20_000_000;

/// How long a packet waits for a child that gives no credit (its link is down, say) before the child's part of the tree goes
/// without: cards forward without any guest, so a card that is alive answers within its links' delay.
pub const GIVE_UP_NS: u64 = 2_000_000_000;

/// How often a member shows its address to the switches: a third of the time after which they forget it.
pub const ANNOUNCE_NS: u64 = 100_000_000_000;

/// The longest frame of a reliable group: its packets stay in the card's memory for as long as a host computes, however much others use.
pub const RELIABLE_FRAME_MAX: u32 = 1_514;

/// A host that takes nothing of a reliable group for this time while packets wait for it is gone, and so is a card that answers
/// nothing. The paper leaves the time open.
pub const DEAD_NS: u64 = 10_000_000_000;

/// Names a buffer of the card, from 0: forwarding buffers first, then those for the own guest's packets, both once for plain groups
/// and once for reliable ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BufferId(pub(crate) u16);

impl BufferId {
    /// Its number, below [`Multicast::buffers_total`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
