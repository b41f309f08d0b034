//! What an engine tells its program besides packets.

use crate::Nodes;

/// The name of a group, the same at all its members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

impl GroupId {
    /// The group of all nodes.
    pub const ALL: Self = Self(1);
}

/// Something that happened, taken with [`crate::Engine::poll_event`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Every node was heard of: packets can go to all.
    Ready,
    /// All members have created the group.
    GroupCreated {
        /// Its name.
        group: GroupId,
        /// Its members.
        members: Nodes,
    },
    /// The group that this node waited for will not come about: a member is gone.
    GroupFailed {
        /// Its members.
        members: Nodes,
    },
    /// A node is no longer there. It is in no group and gets nothing more.
    Removed {
        /// The node.
        node: usize,
        /// Why.
        reason: RemovalReason,
    },
    /// Another node has removed this one: it was too long silent, or the network between them is broken. Or the own card has: it
    /// took nothing for too long, or packets in the cards are lost.
    Excluded {
        /// The other node; this one if it was the own card.
        by: usize,
    },
    /// A node of this list answered with another list of nodes or another implementation, and is not taken.
    Mismatch {
        /// The node.
        node: usize,
    },
    /// A timer of the program ended.
    Timer {
        /// Its number.
        timer: usize,
    },
}

/// Why a node was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// It was silent for [`crate::Timing::dead_ns`].
    Silent,
    /// Another node reported it, and it was silent here, too, or kept the packets of this node from being delivered.
    Reported {
        /// The node that reported it.
        by: usize,
    },
    /// It said that it leaves.
    Left,
    /// Its program was started again.
    Restarted,
    /// Packets of it were lost by a network that is to lose nothing ([`crate::Policy::retransmits`]): what follows them is not delivered.
    Lost,
}

impl RemovalReason {
    /// The name that users see.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Silent => "silent",
            Self::Reported { .. } => "reported",
            Self::Left => "left",
            Self::Restarted => "restarted",
            Self::Lost => "lost",
        }
    }
}

/// Why a group is not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The list of members is not one.
    #[error("a group has at least two members, each of them a node, and this node is one of them")]
    Members,
    /// A member is gone.
    #[error("a member of the group is gone")]
    MemberGone,
    /// There are too many groups.
    #[error("there are as many groups as may be")]
    TooMany,
    /// The nodes have not heard of each other yet.
    #[error("not all nodes were heard of yet")]
    NotReady,
}
