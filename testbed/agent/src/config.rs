//! The configuration a guest gets from its lab: one JSON document, handed over through QEMU's `fw_cfg`, so that it is
//! there at every boot without anybody answering. This module says what is in it, not how it is applied.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Name of the `fw_cfg` item that carries a [`GuestConfig`] as JSON.
pub const FW_CFG_ITEM: &str = "opt/weft/config";

/// Longest configuration a guest accepts, in bytes: room for the names of some ten thousand nodes.
pub const CONFIG_LEN_MAX: usize = 1 << 20;

/// Who a guest is and whom it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestConfig {
    /// Host name.
    pub hostname: String,
    /// The guest's Ethernet interfaces; one that is not listed here stays as the kernel left it.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// Lines of `/etc/hosts`, besides `localhost` and the guest's own name.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// Name servers for `/etc/resolv.conf`.
    #[serde(default)]
    pub nameservers: Vec<IpAddr>,
    /// Whether IPv6 runs on the interfaces. Off by default: its neighbour and router messages would be counted
    /// among the frames of an experiment.
    #[serde(default)]
    pub ipv6: bool,
}

/// One Ethernet interface of a guest, found by its MAC address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// MAC address, as `52:54:00:00:00:01`.
    pub mac: String,
    /// The name it shall have in the guest, such as `eth0`.
    pub name: String,
    /// Addresses with prefix length, as `10.0.0.1/24`.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// MTU in bytes; `None` keeps what the card says.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// Default route through this interface.
    #[serde(default)]
    pub gateway: Option<IpAddr>,
}

/// An address and the names it is known by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// The address.
    pub address: IpAddr,
    /// Its names, the first one canonical.
    pub names: Vec<String>,
}
