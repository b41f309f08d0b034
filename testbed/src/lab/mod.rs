//! A lab: nodes, switches and what joins them, read from a TOML file and checked into values that cannot be wrong.
//! A model without I/O: [`crate::lab_file`] reads the file and says what is at the paths that it names.

mod address;
mod address6;
mod boot;
pub mod cable;
mod check;
mod cloud_init;
mod count;
mod domains;
mod error;
mod file;
mod lab_folder;
mod memory;
mod names;
mod nic_address;
mod nics;
mod nodes;
mod places;
pub mod plan;
mod problems;
pub mod settings;
pub mod setup;
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
pub use cloud_init::CloudInit;
pub use lab_folder::{AtPath, LabFolder};

pub(crate) use error::nearest;
pub use error::{LabError, PROBLEMS_SHOWN_MAX, Problem};
pub use file::{ImageName, LabFile, SteeringMode};
pub use firmware::StrategyKind as Strategy;
pub(crate) use names::is_name;
pub(crate) use setup::is_package_name;
pub use setup::{ImageSpec, OwnKernel, Setup};

use vnicd_protocol::{
    CoalescingSettings, DmaSettings, MisorderSettings, PortLinks, SteeringSettings, SwitchSettings, TrunkLinks,
    VlanSettings,
};

/// Nodes of one lab: more than a machine that runs TCG guests can hold, and the span of derived MAC addresses is far.
pub const NODES_MAX: usize = 64;
/// NICs of one node: QEMU's q35 board has about thirty PCI slots, and each NIC is a vhost-user session.
pub const NICS_MAX: usize = 8;
/// Switches of one lab, each a thread of `vnicd` under load.
pub const SWITCHES_MAX: usize = 16;
/// Queue pairs of one NIC: what `vnicd` offers at most.
pub const QUEUE_PAIRS_MAX: u16 = vnicd_protocol::QUEUE_PAIRS_MAX;
/// Processors of one node.
pub const CPUS_MAX: u32 = 16;
/// Characters of a lab, node or switch name: sockets named after them must fit into 107 bytes.
pub const NAME_LEN_MAX: usize = 24;

/// A checked lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lab {
    /// Name, also of the folder for its sockets.
    pub name: String,
    /// Names of the switches.
    pub switches: Vec<String>,
    /// How those of them work that are not as switches usually are.
    pub switch_settings: BTreeMap<String, SwitchSettings>,
    /// Guests in the order of the file.
    pub nodes: Vec<Node>,
    /// Links between switches.
    pub trunks: Vec<Trunk>,
}

/// One guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// Name and host name.
    pub name: String,
    /// Its place in the lab, which addresses and seeds that the file does not state are made from. The position in the file, but
    /// a node keeps its place when others of a running lab go.
    pub place: usize,
    /// Processors, 1 to [`CPUS_MAX`].
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// NICs; the position is the number in `ethN`.
    pub nics: Vec<Nic>,
    /// Whether there is a QEMU user-mode NIC behind the others.
    pub uplink: bool,
    /// Whether IPv6 runs in it.
    pub ipv6: bool,
    /// What it boots.
    pub boot: Boot,
    /// What is set up in it, if it boots a recipe.
    pub setup: Setup,
    /// The user's words about it.
    pub labels: BTreeMap<String, String>,
    /// How cloud-init sets it up, if its image has that.
    pub cloud_init: Option<CloudInit>,
}

impl Node {
    /// Whether our agent runs in it for certain, so that it is waited for.
    #[must_use]
    pub fn has_agent(&self) -> bool {
        matches!(self.boot, Boot::Recipe { .. }) || self.cloud_init.as_ref().is_some_and(|cloud_init| cloud_init.agent)
    }
}

/// One NIC with its cable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Switch it is plugged into.
    pub switch: String,
    /// Its MAC address.
    #[serde(serialize_with = "as_text", deserialize_with = "from_text")]
    pub mac: MacAddr,
    /// Its IPv4 address, if it shall have one.
    #[serde(serialize_with = "as_text_if_any", deserialize_with = "from_text_if_any")]
    pub address: Option<Ipv4Net>,
    /// Its IPv6 address, if it shall have one beside the link-local one.
    #[serde(serialize_with = "as_text_if_any", deserialize_with = "from_text_if_any")]
    pub address6: Option<Ipv6Net>,
    /// Queue pairs.
    pub queue_pairs: u16,
    /// MTU in bytes.
    pub mtu: u32,
    /// Checksum and segmentation offloads.
    pub offloads: bool,
    /// Connected to itself, as a copy engine, and to no switch.
    pub loopback: bool,
    /// Interrupt coalescing.
    pub coalescing: CoalescingSettings,
    /// Modelled DMA engine.
    pub dma: DmaSettings,
    /// Choice of receive queues.
    pub steering: SteeringSettings,
    /// Misordering injector.
    pub misorder: MisorderSettings,
    /// Its VLANs at the switch, if the file says which.
    pub vlans: Option<VlanSettings>,
    /// The cable.
    pub link: PortLinks,
}

/// A link between two switches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trunk {
    /// First switch.
    pub a: String,
    /// Second switch.
    pub b: String,
    /// Its place among the trunks, as [`Node::place`] is.
    pub place: usize,
    /// VLANs that it carries, if the file says which.
    pub vlans: Option<VlanSettings>,
    /// Name of its aggregate.
    pub aggregate: Option<String>,
    /// What it costs in the spanning tree, if the file says so.
    pub stp_cost: Option<u32>,
    /// The cable.
    pub link: TrunkLinks,
}

impl Lab {
    /// Checks the text of a lab file that names no files; `shown` names it in messages, `stem` is its default name, `folder` the place
    /// that paths in it are relative to.
    ///
    /// # Errors
    /// Every mistake with line and column.
    pub fn parse(text: &str, shown: &str, stem: &str, folder: &Path) -> Result<Self, LabError> {
        Self::parse_in(text, shown, stem, LabFolder::without_files(folder), None)
    }

    /// As [`Lab::parse`], for a file that may name others, and for a lab that runs as `before`: what the file does not state (MAC
    /// addresses, IP addresses, seeds) stays with the nodes and trunks that are there in both, wherever they stand in the file.
    ///
    /// # Errors
    /// Every mistake with line and column.
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

    /// The node of that name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Every NIC with its port name `node.ethN`.
    pub fn ports(&self) -> impl Iterator<Item = (String, &Node, &Nic)> {
        self.nodes.iter().flat_map(|node| {
            node.nics
                .iter()
                .enumerate()
                .map(move |(index, nic)| (port_name(&node.name, index), node, nic))
        })
    }
}

impl Node {
    /// The first IPv4 address, the one that its name means in the other guests.
    #[must_use]
    pub fn address(&self) -> Option<Ipv4Net> {
        self.nics.iter().find_map(|nic| nic.address)
    }

    /// The first IPv6 address, if IPv6 runs in it.
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

/// Name of a NIC in `vnicd` and on the command line.
#[must_use]
pub fn port_name(node: &str, nic: usize) -> String {
    format!("{node}.eth{nic}")
}

/// The JSON schema of the lab file, shipped as `testbed/lab.schema.json`.
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
