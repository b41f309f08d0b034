//! What `vnicd --config` reads: switches, ports with their settings, trunks. Plain data in the daemon's own JSON names;
//! nothing here checks a value, `lab` has done that.

use serde::{Deserialize, Serialize};

use super::report::{
    ArmedTimer, CoalescingSettings, DmaSettings, MisorderSettings, PortLinks, Reserved, SteeringSettings, StpSettings,
    TrunkLinks, VlanSettings,
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
    /// What becomes of frames to 01:80:C2:00:00:0x.
    #[serde(default)]
    pub reserved: Reserved,
    /// Its part in the spanning tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stp: Option<StpSettings>,
    /// Whether it listens to IGMP and MLD.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub snooping: bool,
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
    /// VLANs of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlans: Option<VlanSettings>,
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
    /// VLANs that it carries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlans: Option<VlanSettings>,
    /// Name of its aggregate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<String>,
    /// What it costs in the spanning tree.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stp_cost: Option<u32>,
}
