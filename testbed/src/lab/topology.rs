//! A lab as a picture of nodes, switches and cables, made from a lab file or from a running lab. It is serialisable, so
//! that a supervisor can send it to a verb.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::{Boot, Lab};
use vnicd_protocol::{PortLinks, TrunkLinks, VlanSettings};

/// Nodes, switches, and the cables between them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Name of the lab.
    pub lab: String,
    /// Names of the switches.
    pub switches: Vec<String>,
    /// Guests in the order of the lab file.
    pub nodes: Vec<NodeView>,
    /// Cables between switches.
    pub trunks: Vec<TrunkView>,
}

/// A guest of the topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeView {
    /// Name of the node.
    pub name: String,
    /// Whether it boots the recipe, which has Weft's agent.
    pub recipe: bool,
    /// Whether QEMU's user-mode network connects it to the outside.
    pub uplink: bool,
    /// Cards, `eth0` first.
    pub nics: Vec<NicView>,
}

/// A card with its cable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicView {
    /// Name of the card: `node.ethN`.
    pub name: String,
    /// Switch at the other end of the cable; `None` for a card that is connected to itself, or to another card.
    pub switch: Option<String>,
    /// Card at the other end of the cable.
    #[serde(default)]
    pub far_end: Option<String>,
    /// MAC address.
    pub mac: String,
    /// Addresses with the length of the prefix that the lab assigns.
    pub addresses: Vec<String>,
    /// Settings of the cable.
    pub link: PortLinks,
    /// VLANs at the switch as the lab file has them, if it names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlans_of_file: Option<VlanSettings>,
}

/// A cable between two switches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrunkView {
    /// Name of one switch.
    pub a: String,
    /// Name of the other switch.
    pub b: String,
    /// Settings of the cable.
    pub link: TrunkLinks,
}

impl Topology {
    /// Makes the topology of a lab file.
    #[must_use]
    pub fn of(lab: &Lab) -> Self {
        let nodes = lab.nodes.iter().map(|node| NodeView {
            name: node.name.clone(),
            recipe: matches!(node.boot, Boot::Recipe { .. }),
            uplink: node.uplink,
            nics: (node.nics.iter().enumerate())
                .map(|(index, nic)| (node.port(index), nic))
                .map(|(name, nic)| NicView {
                    far_end: lab.far_end(&name).map(ToOwned::to_owned),
                    switch: (!nic.card.loopback && lab.far_end(&name).is_none()).then(|| nic.switch.clone()),
                    name,
                    mac: nic.mac.to_string(),
                    addresses: (nic.address.iter().map(ToString::to_string))
                        .chain(nic.address6.iter().filter(|_| node.ipv6).map(ToString::to_string))
                        .collect(),
                    link: nic.link.clone(),
                    vlans_of_file: nic.vlans.clone(),
                })
                .collect(),
        });
        let trunks = lab.trunks.iter().map(|trunk| TrunkView {
            a: trunk.a.clone(),
            b: trunk.b.clone(),
            link: trunk.link.clone(),
        });
        Self {
            lab: lab.name.clone(),
            switches: lab.switches.clone(),
            nodes: nodes.collect(),
            trunks: trunks.collect(),
        }
    }

    /// Returns every card.
    pub fn nics(&self) -> impl Iterator<Item = &NicView> {
        self.nodes.iter().flat_map(|node| &node.nics)
    }

    /// Returns the trunk between two switches, which may be named in either order.
    #[must_use]
    pub fn trunk(&self, one: &str, other: &str) -> Option<&TrunkView> {
        let joins = |trunk: &&TrunkView| {
            let ends = (trunk.a.as_str(), trunk.b.as_str());
            ends == (one, other) || ends == (other, one)
        };
        self.trunks.iter().find(joins)
    }
}

impl NodeView {
    /// Returns the first address of that family, without the prefix.
    #[must_use]
    pub fn address(&self, v6: bool) -> Option<IpAddr> {
        let addresses = self.nics.iter().flat_map(NicView::hosts);
        addresses.into_iter().find(|address| address.is_ipv6() == v6)
    }
}

impl NicView {
    /// Returns the addresses without their prefixes.
    pub fn hosts(&self) -> impl Iterator<Item = IpAddr> {
        self.addresses.iter().filter_map(|address| {
            let host = address.split('/').next()?;
            host.parse().ok()
        })
    }

    /// Returns what is at the other end of the cable: a switch, or a card.
    #[must_use]
    pub fn other_end(&self) -> Option<&str> {
        self.switch.as_deref().or(self.far_end.as_deref())
    }

    /// Returns whether frames can pass in both directions.
    #[must_use]
    pub fn is_up(&self) -> bool {
        self.link.to_guest.up && self.link.from_guest.up
    }
}
