//! What the spanning tree is set to, and what it says of itself and its ports.

use ether::{MacAddr, Time};

use super::priority::BridgeId;
use crate::ports::PortId;

/// How a switch takes part in the spanning tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StpConfig {
    /// Address of the bridge.
    pub address: MacAddr,
    /// The lowest one in a network becomes its root: a multiple of 4096, up to 61440.
    pub priority: u16,
    /// Seconds after which what the root said is forgotten, 6 to 40.
    pub max_age_s: u8,
    /// Seconds between two BPDUs, 1 to 2.
    pub hello_s: u8,
    /// Seconds in which a port that no bridge agreed with becomes learning, and then forwarding, 4 to 30.
    pub forward_delay_s: u8,
}

impl StpConfig {
    /// The standard's recommended values.
    pub const fn new(address: MacAddr) -> Self {
        Self {
            address,
            priority: 32_768,
            max_age_s: 20,
            hello_s: 2,
            forward_delay_s: 15,
        }
    }
}

/// How a port takes part in the spanning tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StpPortConfig {
    /// What the path over the port costs, 1 to 200 000 000: see [`path_cost`].
    pub path_cost: u32,
    /// The lower one is taken where several ports lead to one bridge: a multiple of 16, up to 240.
    pub priority: u8,
    /// There is no bridge behind it, until a BPDU says otherwise: it forwards at once.
    pub edge: bool,
}

impl StpPortConfig {
    /// The standard's values for a link of this rate (0 = unlimited).
    pub const fn of_rate(rate_bps: u64) -> Self {
        Self {
            path_cost: path_cost(rate_bps),
            priority: 128,
            edge: false,
        }
    }

    /// A port towards stations.
    pub const EDGE: Self = Self {
        edge: true,
        ..Self::of_rate(0)
    };
}

/// The cost of a link of so many bits per second that IEEE 802.1D-2004 recommends in table 17-3; 0, a link that is not limited,
/// counts as 10 Gbit/s.
pub const fn path_cost(rate_bps: u64) -> u32 {
    const PRODUCT: u64 = 20_000_000_000_000;
    let rate_bps = if rate_bps == 0 { 10_000_000_000 } else { rate_bps };
    let cost = PRODUCT / rate_bps;
    if cost < 1 {
        1
    } else if cost > 200_000_000 {
        200_000_000
    } else {
        cost as u32
    }
}

weft_settings::named! {
    /// What a port is to the spanning tree.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum PortRole {
        /// It is down.
        Disabled = "disabled",
        /// It is the best path to the root.
        Root = "root",
        /// It is the path to the root for what is behind it.
        Designated = "designated",
        /// It is another path to the root, in reserve.
        Alternate = "alternate",
        /// It is another path to where a port of this switch leads already, in reserve.
        Backup = "backup",
    }
}

weft_settings::named! {
    /// What a port does with frames.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum PortState {
        /// It drops them.
        Discarding = "discarding",
        /// It learns from them, and drops them.
        Learning = "learning",
        /// It forwards them.
        Forwarding = "forwarding",
    }
}

/// What a port counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StpPortCounters {
    /// BPDUs received that were understood.
    pub bpdus_in: u64,
    /// Frames to the address of all bridges that were no BPDUs of this protocol.
    pub bpdus_unknown: u64,
    /// BPDUs sent.
    pub bpdus_out: u64,
    /// Times that the port became forwarding.
    pub forwarded: u64,
}

/// What a port of the spanning tree is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StpPortStatus {
    /// The role of the port.
    pub role: PortRole,
    /// The state of the port.
    pub state: PortState,
    /// What the path over the port costs.
    pub path_cost: u32,
    /// The identifier of the port: priority and number.
    pub id: u16,
    /// The port counts as one without a bridge behind it.
    pub edge: bool,
    /// The bridge behind it speaks the protocol before the rapid one.
    pub old_protocol: bool,
    /// The bridge over which what is behind the port reaches the root, and that bridge's port.
    pub designated: (BridgeId, u16),
    /// What the port counted.
    pub counters: StpPortCounters,
}

/// What the bridge knows of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StpStatus {
    /// This bridge.
    pub bridge: BridgeId,
    /// The root of the tree.
    pub root: BridgeId,
    /// What the path to the root costs.
    pub root_cost: u32,
    /// The port that leads to it; none on the root itself.
    pub root_port: Option<PortId>,
    /// Topology changes that this bridge found or was told of.
    pub topology_changes: u64,
    /// When the last one was.
    pub last_change: Option<Time>,
}
