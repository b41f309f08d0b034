//! What `vnicd --config` reads: switches, ports with their settings, trunks. Plain data in the daemon's own JSON names;
//! nothing here checks a value, `lab` has done that.

use serde::{Deserialize, Serialize};

use super::report::{
    ArmedTimer, CoalescingSettings, DmaSettings, MisorderSettings, PortLinks, SteeringSettings, TrunkLinks,
};

/// The whole configuration of one `vnicd`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VnicdConfig {
    /// Switches by name.
    pub switches: Vec<SwitchConfig>,
    /// One port per NIC.
    pub ports: Vec<PortConfig>,
    /// Links between switches.
    pub trunks: Vec<TrunkConfig>,
    /// Trees of multicast groups.
    pub groups: Vec<GroupConfig>,
}

/// A switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchConfig {
    /// Name.
    pub name: String,
}

/// A port with its card, cable and vhost-user socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortConfig {
    /// `node.ethN`.
    pub name: String,
    /// Switch it belongs to.
    pub switch: String,
    /// Socket that the card's QEMU listens on, so that a new `vnicd` is with it at once.
    pub connect: String,
    /// Whether the guest behind it may have used a `vnicd` before this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub returns: bool,
    /// MAC address of the card.
    pub mac: String,
    /// Queue pairs offered.
    pub queue_pairs: u16,
    /// MTU offered, bytes of payload.
    pub mtu: u32,
    /// Checksum and segmentation offloads offered.
    pub offloads: bool,
    /// Connected to itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loopback: bool,
    /// Interrupt coalescing.
    pub coalescing: CoalescingSettings,
    /// Modelled DMA engine.
    pub dma: DmaSettings,
    /// Choice of receive queues.
    pub steering: SteeringSettings,
    /// Misordering injector.
    pub misorder: MisorderSettings,
    /// The cable, both directions.
    pub link: PortLinks,
    /// Multicast groups that the card is in.
    pub groups: Vec<u16>,
    /// Timers that the guest armed in the `vnicd` before this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<ArmedTimer>,
}

/// The tree of a multicast group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupConfig {
    /// Its number.
    pub group: u16,
    /// Shape of the tree.
    pub tree: String,
}

/// A link between two switches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrunkConfig {
    /// First switch.
    pub a: String,
    /// Second switch.
    pub b: String,
    /// The cable.
    pub link: TrunkLinks,
}
