//! What the multicast of a card counts.

/// Counts of a group at one card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GroupCounters {
    /// Packets that the own guest sent to the group.
    pub sent: u64,
    /// Copies sent to children, of own packets and of others'.
    pub forwarded: u64,
    /// Packets that reached the own guest.
    pub delivered: u64,
    /// Packets that came a second time, or behind a later one; they went no further.
    pub duplicates: u64,
    /// Numbers that never came: the link lost their packets.
    pub missed: u64,
    /// Packets that the own guest had no receive buffer for in the time it was waited for, one whose driver or machine is stopped
    /// included. They were forwarded.
    pub no_buffer: u64,
    /// Frames of the group that were refused, from the own guest or from the network.
    pub refused: u64,
    /// Packets that had to wait for credits of a child.
    pub waited: u64,
    /// Copies that were given up because a child gave no credit, or the own guest of a reliable group took nothing, for too long.
    pub given_up: u64,
}

impl GroupCounters {
    /// Every count with its name.
    pub const fn named(&self) -> [(&'static str, u64); 9] {
        [
            ("sent", self.sent),
            ("forwarded", self.forwarded),
            ("delivered", self.delivered),
            ("duplicates", self.duplicates),
            ("missed", self.missed),
            ("no_buffer", self.no_buffer),
            ("refused", self.refused),
            ("waited", self.waited),
            ("given_up", self.given_up),
        ]
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.forwarded += other.forwarded;
        self.delivered += other.delivered;
        self.duplicates += other.duplicates;
        self.missed += other.missed;
        self.no_buffer += other.no_buffer;
        self.refused += other.refused;
        self.waited += other.waited;
        self.given_up += other.given_up;
    }
}

weft_settings::named! {
    /// Why a card refuses a frame between cards; it is counted and goes no further.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum TagRefusal {
        /// Not a frame of this layout and version, or with a field that no such frame has.
        Malformed = "malformed",
        /// The guest sent what only cards send.
        Forged = "forged",
        /// The card is no member of the group.
        NotMember = "not_member",
        /// Of an earlier or later writing of the group's tables.
        Stale = "stale",
        /// The sender is no member, or not the one that the frame names; or a guest names an address that is not its own.
        WrongSender = "wrong_sender",
        /// It did not come from the card that the tree says, or is for another one.
        WrongWay = "wrong_way",
        /// Beyond the credits that were given.
        NoCredit = "no_credit",
        /// As many packets of the own guest wait for credits as may.
        Busy = "busy",
        /// The own guest was removed from a reliable group, because it took nothing for too long.
        Gone = "gone",
    }
}

/// Refused frames of a card by reason; those of a known group are in its `refused` too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TagRefusals([u64; TagRefusal::ALL.len()]);

impl TagRefusals {
    /// Frames refused for this reason.
    pub const fn of(&self, reason: TagRefusal) -> u64 {
        self.0[reason as usize]
    }

    /// All refused frames.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub(super) fn count(&mut self, reason: TagRefusal) {
        self.0[reason as usize] += 1;
    }
}
