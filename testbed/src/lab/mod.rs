//! A lab: nodes, switches and cables, read from a TOML file and checked into values that cannot be wrong. This is a
//! model without I/O: [`crate::lab_file`] reads the file and reports what is at the paths that it names.

mod address;
mod address6;
mod boot;
mod bypass;
pub mod cable;
mod cables;
mod check;
mod cloud_init;
mod count;
mod domains;
mod error;
mod file;
mod lab_folder;
mod memory;
mod names;
mod network;
mod nic_address;
mod nics;
mod nodes;
mod places;
pub mod plan;
mod problems;
mod schema;
pub mod settings;
pub mod setup;
pub mod speed;
mod switch;
pub mod topology;
mod trunks;
pub mod units;

use std::{collections::BTreeMap, fmt, path::Path, str::FromStr};

use ether::MacAddr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use address::Ipv4Net;
pub use address6::Ipv6Net;
pub use boot::Boot;
pub use cables::{CABLES_MAX, Cable};
pub use cloud_init::CloudInit;
pub use lab_folder::{AtPath, LabFolder};

pub use bypass::Bypass;
pub(crate) use error::nearest;
pub use error::{LabError, PROBLEMS_SHOWN_MAX, Problem};
pub use file::{ImageName, LabFile, SteeringMode};
pub use firmware::StrategyKind as Strategy;
pub use names::host_name;
pub(crate) use names::{is_lab_name, is_name};
pub(crate) use setup::is_package_name;
pub use setup::{ImageSpec, OwnKernel, Setup};

use vnicd_protocol::{
    CoalescingSettings, DmaSettings, MisorderSettings, PortLinks, SteeringSettings, SwitchSettings, TrunkLinks,
    VlanSettings,
};

/// Number of nodes of one lab: more than a machine that runs TCG guests can handle, and far within the range of derived
/// MAC addresses.
pub const NODES_MAX: usize = 64;
/// Number of NICs of one node: QEMU's q35 board has about thirty PCI slots, and each NIC is a vhost-user session.
pub const NICS_MAX: usize = 8;
/// Number of switches of one lab, each a thread of `vnicd` under load.
pub const SWITCHES_MAX: usize = 16;
/// Number of queue pairs of one NIC: the most that `vnicd` supports.
pub const QUEUE_PAIRS_MAX: u16 = vnicd_protocol::QUEUE_PAIRS_MAX;
/// Number of processors of one node.
pub const CPUS_MAX: u32 = 16;
/// Length of a lab, node or switch name in characters: sockets named after them must fit into 107 bytes.
pub const NAME_LEN_MAX: usize = 24;

/// A checked lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lab {
    /// Name of the lab, also of the folder for its sockets.
    pub name: String,
    /// Names of the switches.
    pub switches: Vec<String>,
    /// Settings of those switches that differ from the default.
    pub switch_settings: BTreeMap<String, SwitchSettings>,
    /// Guests in the order of the file.
    pub nodes: Vec<Node>,
    /// Links between switches.
    pub trunks: Vec<Trunk>,
    /// Cables between two cards; what is set on one is with its cards.
    #[serde(default)]
    pub cables: Vec<Cable>,
}

/// A guest of the lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Name of the node, from which the guest's host name is made by [`host_name`].
    pub name: String,
    /// Place in the lab, from which addresses and seeds are derived that the file does not state. It is the position in
    /// the file, but a node keeps its place when others are removed from a running lab.
    pub place: usize,
    /// Number of processors, 1 to [`CPUS_MAX`].
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// NICs, the first of which is numbered [`Node::first_interface`].
    pub nics: Vec<Nic>,
    /// The number in the name `ethN` of the first NIC.
    #[serde(default)]
    pub first_interface: usize,
    /// Whether there is a QEMU user-mode NIC behind the others.
    pub uplink: bool,
    /// Whether IPv6 runs in the guest.
    pub ipv6: bool,
    /// What the guest boots.
    pub boot: Boot,
    /// What is set up in the guest, if it boots a recipe.
    pub setup: Setup,
    /// Labels of the user.
    pub labels: BTreeMap<String, String>,
    /// How cloud-init sets the guest up, if its image has that.
    pub cloud_init: Option<CloudInit>,
}

impl Node {
    /// Returns whether Weft's agent runs in the guest for certain, so that it is waited for.
    #[must_use]
    pub fn has_agent(&self) -> bool {
        matches!(self.boot, Boot::Recipe { .. }) || self.cloud_init.as_ref().is_some_and(|cloud_init| cloud_init.agent)
    }
}

/// A NIC with its cable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Switch that it is plugged into, or the cable ([`Cable::name`]).
    pub switch: String,
    /// MAC address.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    pub mac: MacAddr,
    /// IPv4 address, if there is one.
    #[serde(serialize_with = "as_text_if_any", deserialize_with = "from_text_if_any")]
    pub address: Option<Ipv4Net>,
    /// IPv6 address in addition to the link-local one, if there is one.
    #[serde(serialize_with = "as_text_if_any", deserialize_with = "from_text_if_any")]
    pub address6: Option<Ipv6Net>,
    /// Number of queue pairs.
    pub queue_pairs: u16,
    /// MTU in bytes.
    pub mtu: u32,
    /// Whether checksum and segmentation offloads are on.
    pub offloads: bool,
    /// Settings of what the card does by itself.
    #[serde(flatten)]
    pub card: CardSettings,
    /// How programs of the guest reach the card, if they drive it themselves.
    #[serde(default)]
    pub bypass: Option<Bypass>,
    /// Settings of interrupt coalescing.
    pub coalescing: CoalescingSettings,
    /// Settings of the modelled DMA engine.
    pub dma: DmaSettings,
    /// Settings of the choice of receive queues.
    pub steering: SteeringSettings,
    /// Settings of the misordering injector.
    pub misorder: MisorderSettings,
    /// VLANs at the switch, if the file names them.
    pub vlans: Option<VlanSettings>,
    /// Settings of the cable.
    pub link: PortLinks,
}

/// Settings of what a card does by itself: copies, multicast from card to card, and what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CardSettings {
    /// Whether it is connected to itself, as a copy engine, and to no switch.
    pub loopback: bool,
    /// How long a member of its reliable multicast groups may take nothing before the card removes it.
    #[serde(default = "settings::member_timeout_by_default")]
    pub member_timeout_ns: u64,
    /// Speed that it reports to the guest's driver in Mbit/s, if the file states it.
    #[serde(default)]
    pub speed_mbps: Option<u32>,
    /// Name of the aggregate that the switch forms of it and other cards by LACP.
    #[serde(default)]
    pub aggregate: Option<String>,
}

/// A link between two switches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trunk {
    /// Name of the first switch.
    pub a: String,
    /// Name of the second switch.
    pub b: String,
    /// Place among the trunks, as [`Node::place`].
    pub place: usize,
    /// VLANs that the trunk carries, if the file names them.
    pub vlans: Option<VlanSettings>,
    /// Name of the aggregate.
    pub aggregate: Option<String>,
    /// Path cost in the spanning tree, if the file states it.
    pub stp_cost: Option<u32>,
    /// Settings of the cable.
    pub link: TrunkLinks,
}

impl Lab {
    /// Checks the text of a lab file that names no files; `shown` is its name in messages, `stem` its default name,
    /// `folder` what paths in it are relative to.
    ///
    /// # Errors
    /// Fails with every mistake, with line and column.
    pub fn parse(text: &str, shown: &str, stem: &str, folder: &Path) -> Result<Self, LabError> {
        Self::parse_in(text, shown, stem, LabFolder::without_files(folder), None)
    }

    /// Checks like [`Lab::parse`] a file that may name others, for a lab that runs as `before`: nodes and trunks that
    /// are in both keep what the file does not state (MAC addresses, IP addresses, seeds), wherever they are in the
    /// file.
    ///
    /// # Errors
    /// Fails with every mistake, with line and column.
    pub fn parse_in(
        text: &str,
        shown: &str,
        stem: &str,
        folder: LabFolder<'_>,
        before: Option<&Self>,
    ) -> Result<Self, LabError> {
        let file: LabFile =
            toml::from_str(text).map_err(|error| LabError::new(shown, text, vec![error::from_toml(&error)]))?;
        check::check(file, stem, folder, before).map_err(|problems| LabError::new(shown, text, problems))
    }

    /// Returns the node of that name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Returns every NIC with its port name `node.ethN`.
    pub fn ports(&self) -> impl Iterator<Item = (String, &Node, &Nic)> {
        self.nodes.iter().flat_map(|node| {
            node.nics
                .iter()
                .enumerate()
                .map(move |(index, nic)| (node.port(index), node, nic))
        })
    }
}

impl Node {
    /// Returns the name of its NIC at `index` in `vnicd` and on the command line.
    #[must_use]
    pub fn port(&self, index: usize) -> String {
        port_name(&self.name, self.first_interface + index)
    }

    /// Returns the name of its NIC at `index` in the guest.
    #[must_use]
    pub fn interface(&self, index: usize) -> String {
        format!("eth{}", self.first_interface + index)
    }

    /// Returns the first IPv4 address, which the name of the node stands for in the other guests.
    #[must_use]
    pub fn address(&self) -> Option<Ipv4Net> {
        self.nics.iter().find_map(|nic| nic.address)
    }

    /// Returns the first IPv6 address, if IPv6 runs in the guest.
    #[must_use]
    pub fn address6(&self) -> Option<Ipv6Net> {
        self.nics.iter().find_map(|nic| nic.address6).filter(|_| self.ipv6)
    }
}

fn as_text<S: Serializer>(value: &impl std::fmt::Display, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

fn as_text_if_any<S: Serializer>(value: &Option<impl std::fmt::Display>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_ref().map(ToString::to_string).serialize(serializer)
}

fn from_text<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(deserializer: D) -> Result<T, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn from_text_if_any<'de, D: Deserializer<'de>, T: FromStr<Err: fmt::Display>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    text.map(|text| text.parse().map_err(serde::de::Error::custom))
        .transpose()
}

/// Largest number of a node's first NIC.
pub const FIRST_INTERFACE_MAX: usize = 99;

/// Returns the name of the NIC numbered `nic` in `vnicd` and on the command line.
#[must_use]
pub fn port_name(node: &str, nic: usize) -> String {
    format!("{node}.eth{nic}")
}

/// Makes the JSON schema of the lab file, shipped as `testbed/lab.schema.json`.
#[must_use]
pub fn schema() -> String {
    let schema = schemars::schema_for!(LabFile);
    let mut text = serde_json::to_string_pretty(&schema).expect("a schema is plain JSON");
    text.push('\n');
    text
}

#[cfg(test)]
pub(crate) mod reference;
#[cfg(test)]
mod tests;
