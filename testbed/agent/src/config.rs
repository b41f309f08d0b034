//! The configuration that a guest gets from its lab: one JSON document, passed through QEMU's `fw_cfg` so that it is
//! available at every boot without a server. This module defines its contents; other modules apply it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Name of the `fw_cfg` item that carries a [`GuestConfig`] as JSON.
pub const FW_CFG_ITEM: &str = "opt/weft/config";

/// Serial number of the disk with the guest's root file system, for images whose initramfs does not hold it.
pub const ROOT_DISK: &str = "weft-root";

/// Serial number of the disk with the files that the guest's lab gives it: a tar archive.
pub const FILES_DISK: &str = "weft-files";

/// Longest configuration a guest accepts, in bytes: room for the names of some ten thousand nodes.
pub const CONFIG_LEN_MAX: usize = 1 << 20;

/// The identity of a guest and the names of its neighbours.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GuestConfig {
    /// Host name.
    pub hostname: String,
    /// Ethernet interfaces of the guest; an interface that is not listed stays as the kernel left it.
    #[serde(default)]
    pub interfaces: Vec<Interface>,
    /// Lines of `/etc/hosts`, in addition to `localhost` and the guest's own name.
    #[serde(default)]
    pub hosts: Vec<Host>,
    /// Name servers for `/etc/resolv.conf`.
    #[serde(default)]
    pub nameservers: Vec<IpAddr>,
    /// Whether IPv6 runs in the guest.
    #[serde(default)]
    pub ipv6: bool,
    /// Values below `/proc/sys`, by names such as `net.ipv4.ip_forward`.
    #[serde(default)]
    pub sysctl: BTreeMap<String, String>,
    /// Variables of every process, in addition to those that all guests have.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Folders of the host to mount.
    #[serde(default)]
    pub mounts: Vec<HostFolder>,
    /// Commands for the shell, run one after the other before the guest counts as ready.
    #[serde(default)]
    pub exec: Vec<String>,
}

/// A folder of the host that is mounted in the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostFolder {
    /// Name of the virtio-9p device of the folder.
    pub tag: String,
    /// Absolute path of the mount point.
    pub to: String,
    /// Whether the guest may only read the folder.
    #[serde(default)]
    pub readonly: bool,
}

impl GuestConfig {
    /// Returns the host name, or a default for a guest without one.
    #[must_use]
    pub fn own_name(&self) -> &str {
        if self.hostname.is_empty() {
            "guest"
        } else {
            &self.hostname
        }
    }

    /// Returns the contents of the guest's `/etc/hosts`.
    #[must_use]
    pub fn hosts_file(&self) -> String {
        let hostname = self.own_name();
        let mut text = String::from("127.0.0.1 localhost\n");
        // The guest's own name leads to an address that the others know too, if there is one.
        let own_known = self
            .hosts
            .iter()
            .any(|host| host.names.iter().any(|name| name == hostname));
        if !own_known {
            let own = self.interfaces.iter().flat_map(|interface| &interface.addresses).next();
            let own = own.and_then(|address| address.split('/').next()).unwrap_or("127.0.1.1");
            let _ = writeln!(text, "{own} {hostname}");
        }
        for host in &self.hosts {
            let _ = writeln!(text, "{} {}", host.address, host.names.join(" "));
        }
        text
    }
}

/// An Ethernet interface of a guest, identified by its MAC address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// MAC address, as `52:54:00:00:00:01`.
    pub mac: String,
    /// Name to give the interface in the guest, such as `eth0`.
    pub name: String,
    /// Addresses with prefix length, as `10.0.0.1/24`.
    #[serde(default)]
    pub addresses: Vec<String>,
    /// MTU in bytes; `None` keeps the MTU that the card advertises.
    #[serde(default)]
    pub mtu: Option<u32>,
    /// Whether IPv6 stays off on this interface, regardless of the guest's setting.
    #[serde(default)]
    pub without_ipv6: bool,
    /// Gateway of the default route through this interface.
    #[serde(default)]
    pub gateway: Option<IpAddr>,
    /// Give the card to programs, by this driver of `nicctl bind`: then it is no interface of the kernel.
    #[serde(default)]
    pub bypass: Option<String>,
}

/// An address and the names that it is known by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Host {
    /// IP address of the host.
    pub address: IpAddr,
    /// Names of the host, the canonical one first.
    pub names: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_knows_itself_and_its_neighbours_by_name() {
        let eth0 = Interface {
            addresses: vec!["10.0.0.1/24".into()],
            ..Interface::default()
        };
        let n2 = Host {
            address: "10.0.0.2".parse().unwrap(),
            names: vec!["n2".into(), "n2-eth0".into()],
        };
        let mut config = GuestConfig {
            hostname: "n1".to_owned(),
            interfaces: vec![eth0],
            hosts: vec![n2],
            ..GuestConfig::default()
        };
        assert_eq!(
            config.hosts_file(),
            "127.0.0.1 localhost\n10.0.0.1 n1\n10.0.0.2 n2 n2-eth0\n"
        );
        config.hosts.push(Host {
            address: "10.0.0.1".parse().unwrap(),
            names: vec!["n1".into()],
        });
        assert_eq!(
            config.hosts_file(),
            "127.0.0.1 localhost\n10.0.0.2 n2 n2-eth0\n10.0.0.1 n1\n"
        );
        let unnamed = GuestConfig::default();
        assert_eq!(unnamed.hosts_file(), "127.0.0.1 localhost\n127.0.1.1 guest\n");
    }
}
