//! What an engine is told when it is made: who the nodes are, how it does its work, and its limits.

use alloc::vec::Vec;

use ether::{EtherType, MacAddr};
use firmware::multicast::RELIABLE_GROUP_MIN;

/// Most nodes of a program: the paper's cluster.
pub const NODES_MAX: usize = 128;
/// Most bytes of a packet.
pub const PACKET_LEN_MAX: usize = 1_024;
/// Packets that a program may have allocated or in flight: the window of the paper.
pub const SEND_BUFFERS: usize = 64;
/// Frames of one link that may be in flight. The selective acknowledgement covers as many.
pub(crate) const WINDOW: u32 = 64;

/// What the host does itself, and what it leaves to the card (M-BV2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// LCI-host: retransmission and multicast on the host, over any Ethernet.
    #[default]
    Host,
    /// LCI-mixed: no retransmission, because the network is lossless; multicast on the host.
    Mixed,
    /// LCI-ni: no retransmission, multicast in the card.
    Ni,
}

impl Policy {
    /// The name that users know.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Mixed => "mixed",
            Self::Ni => "ni",
        }
    }

    /// Whether lost frames are sent again by the host.
    pub const fn retransmits(self) -> bool {
        matches!(self, Self::Host)
    }

    /// Every policy.
    pub const ALL: [Self; 3] = [Self::Host, Self::Mixed, Self::Ni];
}

/// Times of the protocol in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// An acknowledgement waits so long for a packet to travel with (M-BV11). The paper found less than 1 ms good.
    pub ack_delay_ns: u64,
    /// A packet is sent again after this time at the earliest.
    pub retransmit_min_ns: u64,
    /// The longest time between two retransmissions of a packet.
    pub retransmit_max_ns: u64,
    /// A node that is silent for this time is removed.
    pub dead_ns: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ack_delay_ns: 500_000,
            retransmit_min_ns: 4_000_000,
            retransmit_max_ns: 200_000_000,
            dead_ns: 10_000_000_000,
        }
    }
}

/// How much an engine keeps at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Packets from single nodes that wait for the program.
    pub unicasts_waiting: usize,
    /// Packets that the program kept. While there are more, nothing is delivered.
    pub kept: usize,
    /// Groups, that of all nodes not counted.
    pub groups: usize,
    /// Timers of the program that run at once.
    pub timers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            unicasts_waiting: 1_024,
            kept: 256,
            groups: 64,
            timers: 64,
        }
    }
}

/// What a node is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// This node: its place in `nodes`.
    pub me: usize,
    /// The addresses of all nodes; the same list everywhere.
    pub nodes: Vec<MacAddr>,
    /// Which of several programs on the same network; the same number everywhere.
    pub job: u16,
    /// Another number for each start of this node, not 0: what is left of an earlier start is told by it.
    pub session: u32,
    /// The EtherType of the frames.
    pub ether_type: EtherType,
    /// What the host does itself.
    pub policy: Policy,
    /// Times.
    pub timing: Timing,
    /// Limits.
    pub limits: Limits,
}

impl Config {
    /// The configuration of node `me` of `nodes` with everything else as usual. `session` differs from start to start.
    pub fn new(me: usize, nodes: Vec<MacAddr>, session: u32) -> Self {
        Self {
            me,
            nodes,
            job: 0,
            session: session.max(1),
            ether_type: EtherType::CARD_TO_CARD,
            policy: Policy::default(),
            timing: Timing::default(),
            limits: Limits::default(),
        }
    }

    /// Checks what an engine relies on.
    ///
    /// # Errors
    /// [`ConfigError`] with the first rule that is broken.
    pub fn check(&self) -> Result<(), ConfigError> {
        let count = self.nodes.len();
        if count == 0 || count > NODES_MAX {
            return Err(ConfigError::NodeCount { count });
        }
        if self.me >= count {
            return Err(ConfigError::NotListed { me: self.me, count });
        }
        for (at, node) in self.nodes.iter().enumerate() {
            if node.is_multicast() || self.nodes[..at].contains(node) {
                return Err(ConfigError::Address { node: *node });
            }
        }
        let timing = &self.timing;
        let ordered = timing.ack_delay_ns <= timing.retransmit_min_ns
            && timing.retransmit_min_ns <= timing.retransmit_max_ns
            && timing.retransmit_max_ns <= timing.dead_ns / 8;
        if !ordered || timing.retransmit_min_ns == 0 {
            return Err(ConfigError::Timing);
        }
        let limits = &self.limits;
        if limits.unicasts_waiting == 0 || limits.kept == 0 || limits.groups > usize::from(u16::MAX) {
            return Err(ConfigError::Limits);
        }
        Ok(())
    }

    /// The reliable group of cards that all nodes are to be members of, and no one else, before the engine starts; none where the card
    /// is not used. Programs of other nodes or with another number have, but for chance, another one.
    pub fn card_group(&self) -> Option<u16> {
        let digest = self.digest() ^ u32::from(self.job).wrapping_mul(0x0100_0193);
        let number = (digest ^ digest >> 16) as u16;
        (!self.policy.retransmits()).then_some(number | RELIABLE_GROUP_MIN)
    }

    /// A check sum of the list of nodes and of the policy, so that nodes with different lists refuse each other.
    pub(crate) fn digest(&self) -> u32 {
        let bytes = self.nodes.iter().flat_map(|node| node.0);
        let all = bytes.chain([self.policy as u8]);
        // FNV-1a: told apart are mistakes, not attacks.
        all.fold(0x811c_9dc5, |sum, byte| {
            (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        })
    }
}

/// What is wrong with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Too few or too many nodes.
    #[error("a program has 1 to {NODES_MAX} nodes, not {count}")]
    NodeCount {
        /// Nodes in the list.
        count: usize,
    },
    /// The node is not in the list.
    #[error("node {me} is not one of {count} nodes")]
    NotListed {
        /// The node.
        me: usize,
        /// Nodes in the list.
        count: usize,
    },
    /// An address that no node can have.
    #[error("{node} is in the list of nodes twice, or is no address of a single card")]
    Address {
        /// The address.
        node: MacAddr,
    },
    /// Times that make no sense together.
    #[error(
        "times must grow from the delay of acknowledgements over the retransmissions to an eighth of the time after which a node is dead"
    )]
    Timing,
    /// Limits that leave nothing.
    #[error("each limit must leave room for one")]
    Limits,
}
