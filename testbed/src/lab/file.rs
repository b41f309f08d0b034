//! The lab file as it is written: one struct per TOML table, every key documented (the JSON schema is made from these).
//! Missing keys stay `None` here; `check` fills them in and finds the mistakes that involve more than one key. Numbers
//! are read as any whole number, so that `check` can answer one that is out of range with the range.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{Error, SeqAccess, Visitor},
};
use toml::Spanned;

use vnicd_protocol::{StpSettings, VLAN_MAX};

use super::{
    bypass::Bypass,
    cable::{Distribution, EcnThreshold, Loss, QueueLimit},
    schema::{
        Address, Address6, CableEnd, GuestPath, KERNEL_SETTING, LabName, MacText, Memory, ModuleName, NameText,
        PackageName, Permissions, PlainName, Speed, Subnet, Subnet6, Time, VARIABLE, Whole, named, vlan_list,
    },
    units::{Rate, Share, Size, Span},
};

/// Largest number of packages that wait for an interrupt.
const FRAMES: i64 = super::settings::FRAMES_MAX as i64;

/// A lab: nodes (QEMU guests), switches, and the cables between them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LabFile {
    /// Name of the lab: up to 24 letters, digits, dashes and underscores, a letter first, a letter or digit last. Default: the name of the
    /// file without `.toml`.
    #[schemars(with = "Option<LabName>")]
    pub name: Option<Spanned<String>>,
    /// Defaults for all nodes, NICs and links.
    #[serde(default)]
    pub defaults: DefaultsFile,
    /// Switches. Without any, there is one named `s1`.
    #[serde(default)]
    pub switch: Vec<SwitchFile>,
    /// Nodes: one QEMU guest each, started in the order of the file.
    #[serde(default)]
    pub node: Vec<NodeFile>,
    /// Trunks: links between two switches.
    #[serde(default)]
    pub trunk: Vec<TrunkFile>,
    /// Cables between two NICs, without a switch.
    #[serde(default)]
    pub cable: Vec<CableFile>,
}

/// Settings that apply unless a node, NIC or trunk overrides them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, such as { cpus = 2, memory = \"256M\" }")]
pub struct DefaultsFile {
    /// Processors per node (1).
    #[schemars(with = "Option<Whole<1, 16>>")]
    pub cpus: Option<Spanned<i64>>,
    /// Memory per node (`192M`).
    #[schemars(with = "Option<Memory>")]
    pub memory: Option<Spanned<Size>>,
    /// The recipe of the nodes' user space: `minimal` (busybox, iperf3, ethtool, tc; the default), `network` (besides tcpdump, nftables,
    /// bird, openssh and Python) or `mpi` (besides Open MPI, MPICH, Weft's libfabric provider, and ssh between the guests without
    /// questions). The last two need at least 192M of memory.
    #[schemars(with = "Option<ImageName>")]
    pub image: Option<Spanned<ImageName>>,
    /// Debian packages for the guest, with their dependencies, from this machine's apt sources. They are unpacked; their installation
    /// scripts do not run, but the accounts that these make are there, and Debian's Essential set. Needs at least 192M of memory.
    #[schemars(with = "Option<Vec<PackageName>>")]
    pub packages: Option<Vec<Spanned<String>>>,
    /// Kernel modules that the guest can load in addition to the recipe's, as in `["nfs"]`. Uses Debian's larger kernel, which takes
    /// longer to boot and needs at least 160M of memory.
    #[schemars(with = "Option<Vec<ModuleName>>")]
    pub modules: Option<Vec<Spanned<String>>>,
    /// Number of a node's first NIC (default 0: `eth0`), as in `1` for topologies that count from `eth1`.
    #[schemars(with = "Option<Whole<0, 99>>")]
    pub first_interface: Option<Spanned<i64>>,
    /// Files and folders that the guest has from its start, as in `{ from = "server.conf", to = "/etc/server.conf" }`.
    pub files: Option<Vec<GuestFileFile>>,
    /// Commands for the guest's shell, run one after the other at each boot before the node counts as ready.
    pub exec: Option<Vec<String>>,
    /// Environment variables of every command in the guest.
    #[schemars(with = "Option<BTreeMap<String, String>>", extend("propertyNames" = named(VARIABLE)))]
    pub env: Option<Spanned<BTreeMap<String, String>>>,
    /// Kernel settings, as in `{ "net.ipv4.ip_forward" = 1 }`.
    #[schemars(with = "Option<BTreeMap<String, SysctlFile>>", extend("propertyNames" = named(KERNEL_SETTING)))]
    pub sysctl: Option<Spanned<BTreeMap<String, SysctlFile>>>,
    /// Labels of your own, shown by `weft ps --json`.
    #[schemars(with = "Option<BTreeMap<String, String>>")]
    pub labels: Option<Spanned<BTreeMap<String, String>>>,
    /// Folders of this machine that are mounted in the guest, as in `{ from = "results", to = "/results" }`. Uses Debian's larger kernel,
    /// which takes longer to boot and needs at least 160M of memory.
    pub mount: Option<Vec<HostFolderFile>>,
    /// IPv6 in the guest (default true). `false` for an experiment that counts frames.
    pub ipv6: Option<bool>,
    /// NIC settings.
    #[serde(default)]
    pub nic: NicSettingsFile,
    /// Link settings, for the cables of NICs and for trunks.
    #[serde(default)]
    pub link: LinkFile,
}

/// A learning Ethernet switch.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table for each switch, such as [[switch]] with name = \"s1\" below it"
)]
pub struct SwitchFile {
    /// Name, different from those of all nodes and switches.
    #[schemars(with = "PlainName")]
    pub name: Spanned<String>,
    /// IPv4 network that NICs on this switch get their address from, such as `10.0.0.0/24`.
    /// Default: `10.77.N.0/24`, the same for switches joined by trunks.
    #[schemars(with = "Option<Subnet>")]
    pub subnet: Option<Spanned<String>>,
    /// IPv6 network of the NICs on this switch, such as `fd00:1::/64`. Default: `fdXX:XXXX:XXXX:N::/64`, whose first part is a hash
    /// of the lab's name, the same for switches joined by trunks.
    #[schemars(with = "Option<Subnet6>")]
    pub subnet6: Option<Spanned<String>>,
    /// Frames to 01:80:C2:00:00:0x (LLDP, LACP, 802.1X, spanning tree): `drop` them, as a switch does (default), or `forward`
    /// them, as a cable does.
    pub reserved: Option<ReservedFile>,
    /// Rapid spanning tree (default false). Trunks may make loops if every switch of the loop has it.
    pub stp: Option<bool>,
    /// Priority in the spanning tree: the switch with the lowest one becomes the root (a multiple of 4096 up to 61440; default 32768).
    #[schemars(schema_with = "priority_schema")]
    #[serde(default)]
    pub stp_priority: Option<Spanned<i64>>,
    /// IGMP and MLD snooping: send frames to an IP multicast group only to ports with members (default false: to all ports). The switch
    /// queries if no router does.
    pub snooping: Option<bool>,
}

/// Recipe of a user space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ImageName {
    /// Busybox and measuring tools, all in memory.
    #[default]
    Minimal,
    /// Also programs for routing, filtering and inspecting packets, on a disk that all guests share.
    Network,
    /// Also Open MPI, MPICH, Weft's libfabric provider, and ssh between the guests of a lab, on a disk that all guests share.
    Mpi,
}

/// A file or folder for a guest: either `from` or `text`.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table for each file, such as { from = \"server.conf\", to = \"/etc/server.conf\" }"
)]
#[schemars(extend("oneOf" = [{ "required": ["from"] }, { "required": ["text"] }]))]
pub struct GuestFileFile {
    /// A file or folder of this machine, relative to the lab file.
    #[schemars(with = "Option<String>")]
    pub from: Option<Spanned<PathBuf>>,
    /// Content of the file.
    pub text: Option<String>,
    /// Path in the guest, absolute.
    #[schemars(with = "GuestPath")]
    pub to: Spanned<String>,
    /// Permissions, such as `0755`. Default: those of `from`, and `0644` for `text`.
    #[schemars(with = "Option<Permissions>")]
    pub mode: Option<Spanned<String>>,
}

/// A folder of this machine in a guest.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table for each folder, such as { from = \"results\", to = \"/results\" }"
)]
pub struct HostFolderFile {
    /// The folder, relative to the lab file.
    #[schemars(with = "String")]
    pub from: Spanned<PathBuf>,
    /// Path in the guest, absolute.
    #[schemars(with = "GuestPath")]
    pub to: Spanned<String>,
    /// Mount it read-only (default false).
    pub readonly: Option<bool>,
}

/// The value of a kernel setting, or those below it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "a number or a text, such as { \"net.ipv4.ip_forward\" = 1 }")]
pub enum SysctlFile {
    /// A number.
    Number(i64),
    /// Anything else.
    Text(String),
    /// As `net.ipv4.ip_forward = 1` is written without quotes.
    Below(BTreeMap<String, SysctlFile>),
}

/// Treatment of frames to 01:80:C2:00:00:0x.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReservedFile {
    /// They end at the switch.
    Drop,
    /// They are forwarded.
    Forward,
}

fn priority_schema(_: &mut SchemaGenerator) -> Schema {
    let (step, max) = (StpSettings::PRIORITY_STEP, StpSettings::PRIORITY_MAX);
    json_schema!({ "type": ["integer", "null"], "minimum": 0, "maximum": max, "multipleOf": step })
}

fn vlan_schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "anyOf": [
        { "type": "integer", "minimum": 1, "maximum": VLAN_MAX },
        { "const": "none" },
        { "type": "null" },
    ] })
}

fn vlans_schema(_: &mut SchemaGenerator) -> Schema {
    let one = json_schema!({ "type": "integer", "minimum": 1, "maximum": VLAN_MAX });
    let list = json_schema!({ "type": "string", "pattern": vlan_list() });
    json_schema!({ "anyOf": [
        { "type": "array", "items": { "anyOf": [one, list] } },
        list,
        one,
        { "type": "null" },
    ] })
}

/// A QEMU guest, or several of the same kind.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table for each node, such as [[node]] with name = \"n1\" below it"
)]
#[schemars(extend("dependentRequired" = { "initramfs": ["kernel"], "disk_writable": ["disk"] }))]
pub struct NodeFile {
    /// Name: up to 24 letters, digits, dashes, underscores and dots, a letter first, a letter or digit last. The guest's host name is the
    /// same with `-` for every `_` and dot.
    #[schemars(with = "NameText")]
    pub name: Spanned<String>,
    /// Number of nodes that this table describes (1 to 64). They are numbered from 1: after the name, or where names, addresses and
    /// `append` contain `{n}` (`{n+10}` for ten more, `{n:02}` for two digits, `{n:02x}` for two hexadecimal digits).
    #[schemars(with = "Option<Whole<1, 64>>")]
    pub count: Option<Spanned<i64>>,
    /// Processors (1 to 16).
    #[schemars(with = "Option<Whole<1, 16>>")]
    pub cpus: Option<Spanned<i64>>,
    /// Memory (`144M` to `64G`).
    #[schemars(with = "Option<Memory>")]
    pub memory: Option<Spanned<Size>>,
    /// NICs, `eth0` first. Default: one, on the only switch. `nic = []` for none.
    pub nic: Option<Vec<NicFile>>,
    /// Access to the host's network: a QEMU user-mode NIC after the others, with address translation.
    pub uplink: Option<bool>,
    /// The recipe of its user space: `minimal` (busybox, iperf3, ethtool, tc; the default), `network` (besides tcpdump, nftables,
    /// bird, openssh and Python) or `mpi` (besides Open MPI, MPICH, Weft's libfabric provider, and ssh between the guests without
    /// questions). The last two need at least 192M of memory.
    #[schemars(with = "Option<ImageName>")]
    pub image: Option<Spanned<ImageName>>,
    /// Debian packages for the guest, with their dependencies, from this machine's apt sources. They are unpacked; their installation
    /// scripts do not run, but the accounts that these make are there, and Debian's Essential set. Needs at least 192M of memory.
    #[schemars(with = "Option<Vec<PackageName>>")]
    pub packages: Option<Vec<Spanned<String>>>,
    /// Files and folders that the guest has from its start, as in `{ from = "server.conf", to = "/etc/server.conf" }`.
    pub files: Option<Vec<GuestFileFile>>,
    /// Commands for the guest's shell, run one after the other at each boot before the node counts as ready.
    pub exec: Option<Vec<String>>,
    /// Environment variables of every command in the guest.
    #[schemars(with = "Option<BTreeMap<String, String>>", extend("propertyNames" = named(VARIABLE)))]
    pub env: Option<Spanned<BTreeMap<String, String>>>,
    /// Kernel settings, as in `{ "net.ipv4.ip_forward" = 1 }`.
    #[schemars(with = "Option<BTreeMap<String, SysctlFile>>", extend("propertyNames" = named(KERNEL_SETTING)))]
    pub sysctl: Option<Spanned<BTreeMap<String, SysctlFile>>>,
    /// Labels of your own, shown by `weft ps --json`.
    #[schemars(with = "Option<BTreeMap<String, String>>")]
    pub labels: Option<Spanned<BTreeMap<String, String>>>,
    /// Folders of this machine that are mounted in the guest, as in `{ from = "results", to = "/results" }`. Uses Debian's larger kernel,
    /// which takes longer to boot.
    pub mount: Option<Vec<HostFolderFile>>,
    /// IPv6 in the guest (default true). `false` for an experiment that counts frames.
    pub ipv6: Option<bool>,
    /// A Linux kernel of your own (bzImage) instead of the recipe's; relative to the lab file. It boots the recipe's user space,
    /// unless there is an `initramfs`.
    #[schemars(with = "Option<String>")]
    pub kernel: Option<Spanned<PathBuf>>,
    /// With `kernel`, its modules: a folder like `/lib/modules/VERSION`; without it, everything that guests need must be built in. Without
    /// `kernel`, modules of Debian's larger kernel that the guest can load in addition to the recipe's, as in `["nfs"]`.
    #[schemars(with = "Option<ModulesFile>")]
    pub modules: Option<Spanned<ModulesFile>>,
    /// An initramfs of your own for `kernel`. Run `weft-agent` in it if `weft exec` should reach the guest.
    #[schemars(with = "Option<String>")]
    pub initramfs: Option<Spanned<PathBuf>>,
    /// Words added to the kernel's command line (with the recipe or `kernel`).
    #[schemars(with = "Option<String>")]
    pub append: Option<Spanned<String>>,
    /// A disk image (qcow2 or raw) to boot from instead of a kernel. It is not written to unless `disk_writable` is set.
    #[schemars(with = "Option<String>")]
    pub disk: Option<Spanned<PathBuf>>,
    /// Keep what the guest writes to `disk` (default false: writes are discarded).
    #[schemars(with = "Option<bool>")]
    pub disk_writable: Option<Spanned<bool>>,
    /// Set up a stock cloud image at its first boot (cloud-init, source NoCloud): host name, addresses, neighbours, user, ssh keys,
    /// and `weft-agent`. `true`, or a table with settings. Not for the recipes, which do not need it.
    #[schemars(with = "Option<CloudInitKey>")]
    pub cloud_init: Option<Spanned<CloudInitKey>>,
}

/// A folder, or names.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum ModulesFile {
    /// The folder with the modules of a kernel of one's own.
    Folder(PathBuf),
    /// Names of modules of Debian's kernel.
    Names(#[schemars(with = "Vec<ModuleName>")] Vec<Spanned<String>>),
}

impl<'de> Deserialize<'de> for ModulesFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Modules;
        impl<'de> Visitor<'de> for Modules {
            type Value = ModulesFile;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of modules, such as [\"nfs\"], or with `kernel` the folder of its modules")
            }
            fn visit_str<E>(self, folder: &str) -> Result<ModulesFile, E> {
                Ok(ModulesFile::Folder(folder.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<ModulesFile, A::Error> {
                let mut found = Vec::new();
                while let Some(name) = names.next_element()? {
                    found.push(name);
                }
                Ok(ModulesFile::Names(found))
            }
        }
        deserializer.deserialize_any(Modules)
    }
}

/// `true`, `false`, or a table.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(untagged)]
pub enum CloudInitKey {
    /// On with defaults, or off.
    Flag(bool),
    /// On, with these settings.
    Table(CloudInitFile),
}

impl<'de> Deserialize<'de> for CloudInitKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Key;
        impl<'de> serde::de::Visitor<'de> for Key {
            type Value = CloudInitKey;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("true, false, or a table such as { user = \"student\", ssh_keys = [\"id.pub\"] }")
            }

            fn visit_bool<E>(self, flag: bool) -> Result<CloudInitKey, E> {
                Ok(CloudInitKey::Flag(flag))
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<CloudInitKey, A::Error> {
                let table = serde::de::value::MapAccessDeserializer::new(map);
                CloudInitFile::deserialize(table).map(CloudInitKey::Table)
            }
        }
        deserializer.deserialize_any(Key)
    }
}

/// Settings for cloud-init besides name and addresses.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CloudInitFile {
    /// A user to create, who may use sudo. Default: none; keys and password are then for the image's own user.
    pub user: Option<String>,
    /// Password of that user, for the console and ssh. Default: none, so no login with a password.
    pub password: Option<String>,
    /// Files with public ssh keys that may log in, relative to the lab file.
    #[serde(default)]
    pub ssh_keys: Vec<PathBuf>,
    /// Whether `weft-agent` is put into the guest (default true; it needs systemd there).
    pub agent: Option<bool>,
}

/// One programmable NIC of a node, with its cable to the switch.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table for each NIC, such as { switch = \"s1\", mtu = 9000 }"
)]
pub struct NicFile {
    /// The switch it is plugged into. Optional if there is only one.
    #[schemars(with = "Option<String>")]
    pub switch: Option<Spanned<String>>,
    /// Unicast MAC address. Default: `52:54:00:…` from the positions of node and NIC.
    #[schemars(with = "Option<MacText>")]
    pub mac: Option<Spanned<String>>,
    /// IPv4 address with prefix, such as `10.0.0.7/24`, or `none`. Default: the next free one of the switch's network. With `vlan` or
    /// `vlans` it may be of another network.
    #[schemars(with = "Option<Address>")]
    pub address: Option<Spanned<String>>,
    /// IPv6 address with prefix, such as `fd00::7/64`, or `none`. Default: the host number of the IPv4 address in the switch's
    /// `subnet6`; none without an IPv4 address. A link-local address is always there.
    #[schemars(with = "Option<Address6>")]
    pub address6: Option<Spanned<String>>,
    /// Pairs of receive and transmit queue (1 to 16; default 1).
    #[schemars(with = "Option<Whole<1, 16>>")]
    pub queue_pairs: Option<Spanned<i64>>,
    /// Largest IP packet in bytes (68 to 9000, with `bypass` to 65521, with `loopback` to 65535; default 1500).
    #[schemars(with = "Option<Whole<68, 65_535>>")]
    pub mtu: Option<Spanned<i64>>,
    /// Speed that the guest's driver reports, in whole Mbit/s (`1Mbit` to `1000Gbit`). Default: the rate of the cable when the guest
    /// boots, of the slower direction; `10Gbit` where it is unlimited. It slows nothing down: `rate` of a link does.
    #[schemars(with = "Option<Speed>")]
    pub speed: Option<Spanned<Rate>>,
    /// Checksum and segmentation offloads (default true). `false` for a guest that loads XDP programs.
    pub offloads: Option<bool>,
    /// Connect the NIC to itself (default false): what the guest sends comes back into its receive buffers, as a copy
    /// engine. It has no switch, no cable, one queue pair, and an address only if one is given.
    #[schemars(with = "Option<bool>")]
    pub loopback: Option<Spanned<bool>>,
    /// Give the card to programs that drive it themselves, without the kernel: `uio` (for root in the guest) or `vfio` (behind an IOMMU,
    /// for other users, too). Programs reach `eth0` as `virtio:0000:00:10.0`, `eth1` as `virtio:0000:00:11.0`, and so on in hexadecimal.
    /// It has no IP address, and by default five queue pairs: one for `omxd`, and one for each open endpoint.
    #[schemars(with = "Option<Bypass>")]
    pub bypass: Option<Spanned<Bypass>>,
    /// How long a card of a reliable multicast group, or its guest, may take nothing before this card removes it and tells the others
    /// (100 ms to 10 min; default 10 s). Programs over LCI-ni and LCI-mixed use such groups.
    #[schemars(with = "Option<Time<100_000_000, 600_000_000_000>>")]
    pub member_timeout: Option<Spanned<Span>>,
    /// When the card interrupts its guest.
    pub coalescing: Option<CoalescingFile>,
    /// The modelled DMA engine.
    pub dma: Option<DmaFile>,
    /// How arriving frames are spread over the receive queues.
    pub steering: Option<SteeringFile>,
    /// How many fragments early the card puts the latency mark of outgoing medium messages (0 to 31; default 0: it stays).
    #[schemars(with = "Option<Whole<0, 31>>")]
    pub misorder: Option<Spanned<i64>>,
    /// The VLAN of untagged frames, 1 to 4094, or `none` for no such frames. The port is an access port of that VLAN, unless `vlans` is
    /// set. Default: 1, on a switch where some NIC or trunk has VLANs; otherwise tags are not read.
    #[serde(default)]
    #[schemars(schema_with = "vlan_schema", skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Spanned<toml::Value>>,
    /// VLANs that the guest sees tagged, such as `[10, 20]`, `"10,20-30"` or `"all"`.
    #[serde(default)]
    #[schemars(schema_with = "vlans_schema", skip_serializing_if = "Option::is_none")]
    pub vlans: Option<Spanned<toml::Value>>,
    /// Name of an aggregate: the switch bundles the NICs of a node that have it, as soon as the guest bundles them by LACP (a bond of
    /// mode 802.3ad). Until then each is a NIC by itself.
    #[schemars(with = "Option<PlainName>")]
    pub aggregate: Option<Spanned<String>>,
    /// The cable between this NIC and its switch, both directions.
    pub link: Option<LinkFile>,
    /// Settings that differ in the direction from the switch to the guest.
    pub link_to_guest: Option<LinkFile>,
    /// Settings that differ in the direction from the guest to the switch.
    pub link_from_guest: Option<LinkFile>,
    /// The number of the `[[cable]]` whose end it is.
    #[serde(skip)]
    #[schemars(skip)]
    pub cable: Option<usize>,
}

impl NicFile {
    /// Returns whether the table says in which VLANs the NIC is.
    pub fn has_vlans(&self) -> bool {
        self.vlan.is_some() || self.vlans.is_some()
    }

    /// Returns whether programs of the guest drive the card themselves.
    pub const fn is_bypassed(&self) -> bool {
        self.bypass.is_some()
    }

    /// Returns whether the table says that the NIC is connected to itself.
    pub fn is_loopback(&self) -> bool {
        self.loopback.as_ref().is_some_and(|on| *on.get_ref())
    }
}

/// NIC settings that can have a lab-wide default.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, such as { queue_pairs = 2, mtu = 9000 }")]
pub struct NicSettingsFile {
    /// Pairs of receive and transmit queue (1 to 16; default 1).
    #[schemars(with = "Option<Whole<1, 16>>")]
    pub queue_pairs: Option<Spanned<i64>>,
    /// Largest IP packet in bytes (68 to 9000; default 1500).
    #[schemars(with = "Option<Whole<68, 65_535>>")]
    pub mtu: Option<Spanned<i64>>,
    /// Speed that the guest's driver reports (`1Mbit` to `1000Gbit`; default: the rate of the cable, else `10Gbit`).
    #[schemars(with = "Option<Speed>")]
    pub speed: Option<Spanned<Rate>>,
    /// Checksum and segmentation offloads (default true).
    pub offloads: Option<bool>,
    /// When the card interrupts its guest.
    pub coalescing: Option<CoalescingFile>,
    /// The modelled DMA engine.
    pub dma: Option<DmaFile>,
    /// How arriving frames are spread over the receive queues.
    pub steering: Option<SteeringFile>,
    /// How many fragments early the card puts the latency mark of outgoing medium messages (0 to 31; default 0: it stays).
    #[schemars(with = "Option<Whole<0, 31>>")]
    pub misorder: Option<Spanned<i64>>,
}

/// When the card interrupts its guest.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, such as { strategy = \"open-mx\", delay = \"1ms\" }"
)]
pub struct CoalescingFile {
    /// Strategy (default `disabled`), such as `open-mx`, or one of your own: one that `vnicd` has.
    #[schemars(with = "Option<String>")]
    pub strategy: Option<Spanned<String>>,
    /// Longest time a received packet waits for its interrupt (default `75us`, at most `1s`).
    #[schemars(with = "Option<Time<0, 1_000_000_000>>")]
    pub delay: Option<Spanned<Span>>,
    /// Interrupt when this many packets wait (default 0: no limit).
    #[schemars(with = "Option<Whole<0, FRAMES>>")]
    pub frames: Option<Spanned<i64>>,
    /// Whether the card looks at latency-sensitive marks (default true).
    pub marks: Option<bool>,
    /// Delay of the polling watchdog, which replaces `delay` (`50us` for each queue pair to `1s`; default `0`: none).
    #[schemars(with = "Option<Time<0, 1_000_000_000>>")]
    pub watchdog: Option<Spanned<Span>>,
}

/// The modelled DMA engine of a card. By default DMA takes no time.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, such as { setup = \"1us\", rate = \"10Gbit\" }"
)]
pub struct DmaFile {
    /// Set-up time per transfer (default `0`, at most `1s`).
    #[schemars(with = "Option<Time<0, 1_000_000_000>>")]
    pub setup: Option<Spanned<Span>>,
    /// Transfer rate (at least `1Mbit`; default `unlimited`).
    #[schemars(with = "Option<Rate>")]
    pub rate: Option<Spanned<Rate>>,
    /// Number of simultaneous transfers (1 to 16; default 1).
    #[schemars(with = "Option<Whole<1, 16>>")]
    pub parallelism: Option<Spanned<i64>>,
}

/// How arriving frames are distributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum SteeringMode {
    /// Everything goes to the first queue.
    Off,
    /// IP by the hash of its flow, everything else to the first queue.
    Flow,
    /// MXoE by the endpoint it is for, other traffic as with `flow`.
    Endpoint,
}

impl From<SteeringMode> for vnicd_protocol::SteeringMode {
    fn from(mode: SteeringMode) -> Self {
        match mode {
            SteeringMode::Off => Self::Off,
            SteeringMode::Flow => Self::Flow,
            SteeringMode::Endpoint => Self::Endpoint,
        }
    }
}

/// How arriving frames are spread over the receive queues that the guest's driver uses.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table, such as { mode = \"endpoint\" }")]
pub struct SteeringFile {
    /// How frames are distributed (default `flow`).
    pub mode: Option<SteeringMode>,
    /// Queues of the endpoints 0, 1, …; repeated behind the end. Default: evenly.
    #[schemars(with = "Option<Vec<Whole<0, 15>>>")]
    pub endpoints: Option<Spanned<Vec<i64>>>,
    /// Queues of the 128 values of the flow hash; repeated behind the end. Default: evenly.
    #[schemars(with = "Option<Vec<Whole<0, 15>>>")]
    pub indirection: Option<Spanned<Vec<i64>>>,
}

/// A cable, or one direction of it.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table, such as { rate = \"10Gbit\", delay = \"10us\" }"
)]
pub struct LinkFile {
    /// Whether the cable is plugged in (default true).
    pub up: Option<bool>,
    /// Bit rate (default `unlimited`).
    pub rate: Option<Rate>,
    /// Size of the token bucket of a link with a rate: bytes that may be sent at once after a pause (default `0B`: none).
    #[schemars(with = "Option<Size>")]
    pub burst: Option<Spanned<Size>>,
    /// Propagation delay (default `0`, at most `10s`).
    #[schemars(with = "Option<Time<0, 10_000_000_000>>")]
    pub delay: Option<Spanned<Span>>,
    /// Variation of the delay (default `0`, at most `10s`).
    #[schemars(with = "Option<Time<0, 10_000_000_000>>")]
    pub jitter: Option<Spanned<Span>>,
    /// Distribution of the delays (default `uniform`).
    pub jitter_distribution: Option<Distribution>,
    /// Let frames with a short delay overtake those before them (default false: they wait for them).
    pub jitter_reorders: Option<bool>,
    /// Limit of the queue in front of a link with a rate, as a size, a number of packets or a time (default `1M`).
    pub queue: Option<QueueLimit>,
    /// Queue length above which packets of ECN-capable transports are marked (default `off`).
    #[schemars(with = "Option<EcnThreshold>")]
    pub ecn_threshold: Option<Spanned<EcnThreshold>>,
    /// Largest payload the link carries (68 to 65521; default 9000, or the MTU of a NIC that has a larger one).
    #[schemars(with = "Option<Whole<68, 65_521>>")]
    pub mtu: Option<Spanned<i64>>,
    /// Probability that a frame is lost; or bursts of loss (the Gilbert-Elliott model).
    pub loss: Option<Loss>,
    /// Lose every Nth frame (default 0: none).
    #[schemars(with = "Option<Whole<0, 4_294_967_295>>")]
    pub loss_every: Option<Spanned<i64>>,
    /// Probability that a frame is delayed by `reorder_delay`.
    #[schemars(with = "Option<Share>")]
    pub reorder: Option<Spanned<Share>>,
    /// How long a reordered frame is delayed (default `0`, at most `10s`).
    #[schemars(with = "Option<Time<0, 10_000_000_000>>")]
    pub reorder_delay: Option<Spanned<Span>>,
    /// Probability that a frame arrives twice.
    pub duplicate: Option<Share>,
    /// Probability that one bit of a frame is flipped.
    pub corrupt: Option<Share>,
    /// Deliver corrupted frames instead of dropping them as a real frame check sequence would.
    pub corrupt_past_fcs: Option<bool>,
    /// Seed of the random choices: equal seeds give equal faults. Each direction of each cable draws its own sequence
    /// from it.
    pub seed: Option<u64>,
}

/// A link between two switches.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table for each trunk, such as [[trunk]] with between = [\"s1\", \"s2\"] below it"
)]
pub struct TrunkFile {
    /// The two switches, such as `["s1", "s2"]`.
    #[schemars(with = "[PlainName; 2]")]
    pub between: Spanned<TrunkEnds>,
    /// Name of an aggregate (link aggregation): all trunks of that name between the same two switches are one, over which flows are
    /// spread.
    #[schemars(with = "Option<PlainName>")]
    pub aggregate: Option<Spanned<String>>,
    /// Path cost in the spanning tree (1 to 200000000). Default: by its rate, 2000 if that is unlimited.
    #[schemars(with = "Option<Whole<1, 200_000_000>>")]
    pub stp_cost: Option<Spanned<i64>>,
    /// The VLAN that crosses untagged, 1 to 4094, or `none` (default 1, on switches with VLANs).
    #[serde(default)]
    #[schemars(schema_with = "vlan_schema", skip_serializing_if = "Option::is_none")]
    pub vlan: Option<Spanned<toml::Value>>,
    /// VLANs that cross tagged, such as `[10, 20]`, `"10,20-30"` or `"all"` (default, on switches with VLANs).
    #[serde(default)]
    #[schemars(schema_with = "vlans_schema", skip_serializing_if = "Option::is_none")]
    pub vlans: Option<Spanned<toml::Value>>,
    /// The cable, both directions.
    pub link: Option<LinkFile>,
    /// Settings that differ in the direction from the first switch to the second.
    pub link_forth: Option<LinkFile>,
    /// Settings that differ in the direction from the second switch to the first.
    pub link_back: Option<LinkFile>,
}

/// A cable between two NICs: what one guest sends, the other one gets, whatever its addresses are. Each is a network of its own.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    expecting = "a table for each cable, such as [[cable]] with between = [\"n1.eth1\", \"n2.eth1\"] below it"
)]
pub struct CableFile {
    /// The two NICs, such as `["n1.eth1", "n2.eth1"]`. A node has the NICs that only cables name, too.
    #[schemars(with = "[CableEnd; 2]")]
    pub between: Spanned<CableEnds>,
    /// Both directions.
    pub link: Option<LinkFile>,
    /// Settings that differ in the direction from the first NIC to the second.
    pub link_forth: Option<LinkFile>,
    /// Settings that differ in the direction from the second NIC to the first.
    pub link_back: Option<LinkFile>,
}

/// The two switches that a trunk joins.
#[derive(Clone, Debug)]
pub struct TrunkEnds(pub [Spanned<String>; 2]);

impl<'de> Deserialize<'de> for TrunkEnds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = TwoNames("the names of two switches, such as [\"s1\", \"s2\"]");
        deserializer.deserialize_seq(names).map(Self)
    }
}

/// The two NICs that a cable joins.
#[derive(Clone, Debug)]
pub struct CableEnds(pub [Spanned<String>; 2]);

impl<'de> Deserialize<'de> for CableEnds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = TwoNames("the names of two NICs, such as [\"n1.eth1\", \"n2.eth1\"]");
        deserializer.deserialize_seq(names).map(Self)
    }
}

/// Reads two names; what they are is said where there are not two.
struct TwoNames(&'static str);

impl<'de> Visitor<'de> for TwoNames {
    type Value = [Spanned<String>; 2];
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(name) = names.next_element::<Spanned<String>>()? {
            found.push(name);
        }
        let count = found.len();
        found.try_into().map_err(|_| A::Error::invalid_length(count, &self))
    }
}
