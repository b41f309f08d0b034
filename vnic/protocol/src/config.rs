//! `vnicd`'s configuration file: the switches, ports and trunks of one process as JSON, checked for form when it is read.
//! The values themselves are judged where they take effect, by `fabric` and `firmware`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ether::MacAddr;
use serde::{Deserialize, Serialize};

use crate::{
    ArmedTimer, CoalescingSettings, DmaSettings, MTU_DEFAULT, MisorderSettings, PortLinks, Reserved, SteeringSettings,
    StpSettings, SwitchSettings, TrunkLinks, VlanSettings,
};

/// Longest name of a port or switch: it stays readable in tables, and `node.ethN` fits for any host name.
pub const NAME_LEN_MAX: usize = 80;

/// Longest file that is read: far beyond the largest lab.
const FILE_LEN_MAX: u64 = 16 << 20;

/// Why a configuration is refused; nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {path}: {reason}")]
    Read {
        /// The file.
        path: String,
        /// The system's reason.
        reason: std::io::Error,
    },
    /// It is not JSON of the right form.
    #[error("{path}: {reason}")]
    Form {
        /// The file.
        path: String,
        /// What is wrong, with line and column.
        reason: String,
    },
    /// It contradicts itself.
    #[error("{0}")]
    Contradiction(String),
}

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Switches.
    pub switches: Vec<SwitchEntry>,
    /// Ports.
    pub ports: Vec<PortSettings>,
    /// Trunks between switches.
    pub trunks: Vec<TrunkEntry>,
    /// Trees of multicast groups.
    pub groups: Vec<GroupEntry>,
}

/// A switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FlatSwitch")]
pub struct SwitchEntry {
    /// Unique name.
    pub name: String,
    /// How it works.
    #[serde(flatten)]
    pub settings: SwitchSettings,
}

/// A switch as it is read: flat, so that an unknown field is answered by the names of the known ones.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlatSwitch {
    name: String,
    #[serde(default)]
    reserved: Reserved,
    #[serde(default)]
    stp: Option<StpSettings>,
    #[serde(default)]
    snooping: bool,
    #[serde(default)]
    cable: bool,
}

impl From<FlatSwitch> for SwitchEntry {
    fn from(flat: FlatSwitch) -> Self {
        let FlatSwitch {
            name,
            reserved,
            stp,
            snooping,
            cable,
        } = flat;
        let settings = SwitchSettings {
            reserved,
            stp,
            snooping,
            cable,
        };
        Self { name, settings }
    }
}

impl SwitchEntry {
    /// A switch with the default settings.
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            settings: SwitchSettings::default(),
        }
    }
}

/// How a port's vhost-user socket comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketMode {
    /// `vnicd` binds the socket, the frontend connects.
    Listen,
    /// The frontend binds the socket (QEMU: `server=on`), `vnicd` connects, again and again.
    Connect,
}

/// Everything a port is made from. Exactly one of `listen` and `connect` is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortSettings {
    /// Unique name, such as `n1.eth0`.
    pub name: String,
    /// Name of its switch.
    pub switch: String,
    /// Path of the socket to bind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listen: Option<PathBuf>,
    /// Path of the socket to connect to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<PathBuf>,
    /// Whether its guest may have been served by a process before this one, so that others wait a moment for it.
    #[serde(default = "yes")]
    pub returns: bool,
    /// The guest's address if known, for reports and captures (the frontend tells the guest, not the backend).
    #[serde(default)]
    pub mac: Option<MacAddr>,
    /// Receive and transmit ring pairs that the guest may use.
    #[serde(default = "one")]
    pub queue_pairs: u16,
    /// Largest payload the card takes; by default the largest there is, since the guest decides what it sends.
    #[serde(default = "largest_mtu")]
    pub mtu: u32,
    /// Whether checksum and segmentation offloads are available to the guest.
    #[serde(default = "yes")]
    pub offloads: bool,
    /// Whether the guest may be behind an IOMMU of its own (feature ACCESS_PLATFORM; QEMU: `iommu_platform=on`), so that a program
    /// of an ordinary user can drive the card.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub iommu: bool,
    /// The card's output is wired to its input: it is a copy engine, and at no switch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub loopback: bool,
    /// How long a member of a reliable multicast group may take nothing, or answer nothing, before this card removes it;
    /// [`MEMBER_TIMEOUT_NS_MIN`](crate::MEMBER_TIMEOUT_NS_MIN) to [`MEMBER_TIMEOUT_NS_MAX`](crate::MEMBER_TIMEOUT_NS_MAX).
    #[serde(default = "member_timeout_ns", skip_serializing_if = "is_default_timeout")]
    pub member_timeout_ns: u64,
    /// Interrupt coalescing at start.
    #[serde(default)]
    pub coalescing: CoalescingSettings,
    /// DMA engine at start.
    #[serde(default)]
    pub dma: DmaSettings,
    /// Choice of receive queues at start.
    #[serde(default)]
    pub steering: SteeringSettings,
    /// Misordering injector at start.
    #[serde(default)]
    pub misorder: MisorderSettings,
    /// Link at start.
    #[serde(default)]
    pub link: PortLinks,
    /// Multicast groups at start, which need `mac`; kept current.
    #[serde(default)]
    pub groups: Vec<u16>,
    /// Timers that its guest armed in a process before this one; they are armed again when it is back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timers: Vec<ArmedTimer>,
    /// Packets that its guest gave to reliable groups in a process before this one that ended in order and lost none. From those of `groups` that
    /// are not here the guest is removed, and is told so: packets are lost.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packets_given: Vec<PacketsGiven>,
    /// Its VLANs in its switch; none: the default of `fabric::Switch::set_port_vlans`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlans: Option<VlanSettings>,
    /// Name of the aggregate that its switch forms by LACP of it and other ports of that name, if one partner is behind them; none: the switch
    /// does not speak LACP there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<String>,
}

impl Default for PortSettings {
    /// A port with an ideal link, without a name or a socket.
    fn default() -> Self {
        Self {
            name: String::new(),
            switch: String::new(),
            listen: None,
            connect: None,
            returns: true,
            mac: None,
            queue_pairs: 1,
            mtu: MTU_DEFAULT,
            offloads: true,
            iommu: false,
            loopback: false,
            member_timeout_ns: member_timeout_ns(),
            coalescing: CoalescingSettings::default(),
            dma: DmaSettings::default(),
            steering: SteeringSettings::default(),
            misorder: MisorderSettings::default(),
            link: PortLinks::default(),
            groups: Vec::new(),
            timers: Vec::new(),
            packets_given: Vec::new(),
            vlans: None,
            aggregate: None,
        }
    }
}

/// Packets that a guest gave to a reliable group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketsGiven {
    /// Number of the group.
    pub group: u16,
    /// How many, modulo 2³².
    pub count: u32,
}

/// A multicast group whose tree is chosen; its members are with the ports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupEntry {
    /// Its number, from 1.
    pub group: u16,
    /// `binary`, `binomial` or `chain`.
    pub tree: String,
}

/// A trunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrunkEntry {
    /// Name of one switch.
    pub a: String,
    /// Name of the other.
    pub b: String,
    /// The settings of both directions.
    #[serde(default)]
    pub link: TrunkLinks,
    /// VLANs that it carries, at both ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlans: Option<VlanSettings>,
    /// Name of the aggregate that it is in with other trunks between these switches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregate: Option<String>,
    /// What the path over the trunk costs in the spanning tree; none: by its rate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stp_cost: Option<u32>,
}

const fn one() -> u16 {
    1
}

const fn yes() -> bool {
    true
}

const fn largest_mtu() -> u32 {
    MTU_DEFAULT
}

const fn member_timeout_ns() -> u64 {
    firmware::multicast::DEAD_NS
}

const fn is_default_timeout(ns: &u64) -> bool {
    *ns == member_timeout_ns()
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn read(path: &Path) -> Result<Config, ConfigError> {
        let name = path.display().to_string();
        let read = |reason| ConfigError::Read {
            path: name.clone(),
            reason,
        };
        let file = std::fs::File::open(path).map_err(read)?;
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::Read::take(file, FILE_LEN_MAX + 1), &mut bytes).map_err(read)?;
        if bytes.len() as u64 > FILE_LEN_MAX {
            return Err(ConfigError::Form {
                path: name,
                reason: format!("longer than {FILE_LEN_MAX} bytes"),
            });
        }
        serde_json::from_slice(&bytes).map_err(|error| ConfigError::Form {
            path: name,
            reason: error.to_string(),
        })
    }

    /// Checks that names are sound and unique, and that everything named exists.
    ///
    /// # Errors
    /// [`ConfigError::Contradiction`]: the sentence names the entry.
    pub fn check(&self) -> Result<(), ConfigError> {
        let wrong = |sentence: String| Err(ConfigError::Contradiction(sentence));
        let mut switches = BTreeSet::new();
        for SwitchEntry { name, .. } in &self.switches {
            check_name("switch", name)?;
            if !switches.insert(name.as_str()) {
                return wrong(format!("there are two switches named {name:?}"));
            }
        }
        let (mut names, mut sockets) = (BTreeSet::new(), BTreeSet::new());
        for port in &self.ports {
            check_name("port", &port.name)?;
            if !names.insert(port.name.as_str()) {
                return wrong(format!("there are two ports named {:?}", port.name));
            }
            if !switches.contains(port.switch.as_str()) {
                return wrong(format!(
                    "port {:?} is on switch {:?}, which does not exist",
                    port.name, port.switch
                ));
            }
            let Some((path, _)) = port.socket() else {
                return wrong(format!("port {:?} needs either \"listen\" or \"connect\"", port.name));
            };
            if !sockets.insert(path) {
                return wrong(format!("two ports use the socket {}", path.display()));
            }
        }
        for trunk in &self.trunks {
            for end in [&trunk.a, &trunk.b] {
                if !switches.contains(end.as_str()) {
                    return wrong(format!(
                        "the trunk {} - {} ends at a switch that does not exist",
                        trunk.a, trunk.b
                    ));
                }
            }
        }
        self.check_cables()
    }

    /// Checks that cables between two cards are no more than that.
    fn check_cables(&self) -> Result<(), ConfigError> {
        let wrong = |sentence: String| Err(ConfigError::Contradiction(sentence));
        for SwitchEntry { name, settings } in self.switches.iter().filter(|switch| switch.settings.cable) {
            if *settings != SwitchSettings::of_cable() {
                return wrong(format!("{name:?} is a cable, which has no setting of a switch"));
            }
            let ends: Vec<_> = self.ports.iter().filter(|port| port.switch == *name).collect();
            if ends.len() > 2 {
                return wrong(format!(
                    "the cable {name:?} has {} ports: it is between two",
                    ends.len()
                ));
            }
            let has_more = |port: &&&PortSettings| port.vlans.is_some() || port.aggregate.is_some();
            if let Some(port) = ends.iter().find(has_more) {
                return wrong(format!(
                    "port {:?} is at a cable, where there are no VLANs and no aggregates",
                    port.name
                ));
            }
            if let Some(trunk) = self.trunks.iter().find(|trunk| trunk.a == *name || trunk.b == *name) {
                return wrong(format!(
                    "the trunk {} - {} ends at a cable between two cards",
                    trunk.a, trunk.b
                ));
            }
        }
        Ok(())
    }
}

impl PortSettings {
    /// The socket and who binds it; none if both or neither are given.
    pub fn socket(&self) -> Option<(&Path, SocketMode)> {
        match (&self.listen, &self.connect) {
            (Some(path), None) => Some((path, SocketMode::Listen)),
            (None, Some(path)) => Some((path, SocketMode::Connect)),
            _ => None,
        }
    }
}

/// Names go into logs, tables, thread names and labels: letters, digits and a few marks.
fn check_name(kind: &str, name: &str) -> Result<(), ConfigError> {
    let is_sound = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '@');
    if name.is_empty() || name.len() > NAME_LEN_MAX || !name.chars().all(is_sound) {
        return Err(ConfigError::Contradiction(format!(
            "{name:?} is no {kind} name: 1 to {NAME_LEN_MAX} letters, digits and . - _ : @"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Config {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn absent_fields_have_defaults() {
        let config =
            parse(r#"{"switches":[{"name":"s1"}],"ports":[{"name":"n1.eth0","switch":"s1","listen":"/run/a.sock"}]}"#);
        config.check().unwrap();
        let settings = &config.ports[0];
        assert_eq!((settings.queue_pairs, settings.mtu, settings.offloads), (1, 9000, true));
        assert_eq!(settings.coalescing.all.strategy, "disabled");
        assert_eq!(settings.socket(), Some((Path::new("/run/a.sock"), SocketMode::Listen)));
        assert_eq!(settings.mac, None);
    }

    #[test]
    fn a_cable_has_two_ends_and_nothing_of_a_switch() {
        let port =
            |name: &str, more: &str| format!(r#"{{"name":"{name}","switch":"c","listen":"/run/{name}.sock"{more}}}"#);
        let refused = |switch: &str, ports: &[String]| {
            let text = format!(r#"{{"switches":[{switch}],"ports":[{}]}}"#, ports.join(","));
            parse(&text).check().err().map(|error| error.to_string())
        };
        let cable = r#"{"name":"c","cable":true}"#;
        let two = ["a", "b"].map(|name| port(name, ""));
        assert_eq!(refused(cable, &two), None);
        let three = ["a", "b", "d"].map(|name| port(name, ""));
        assert_eq!(
            refused(cable, &three).as_deref(),
            Some("the cable \"c\" has 3 ports: it is between two")
        );
        let snooping = r#"{"name":"c","cable":true,"snooping":true}"#;
        assert_eq!(
            refused(snooping, &two).as_deref(),
            Some("\"c\" is a cable, which has no setting of a switch")
        );
        for more in [r#","vlans":{"untagged":1}"#, r#","aggregate":"lag1""#] {
            assert_eq!(
                refused(cable, &[port("a", more)]).as_deref(),
                Some("port \"a\" is at a cable, where there are no VLANs and no aggregates")
            );
        }
    }

    #[test]
    fn contradictions_are_named() {
        let port =
            |name: &str, switch: &str, socket: &str| format!(r#"{{"name":"{name}","switch":"{switch}",{socket}}}"#);
        let config = |ports: &[String]| {
            parse(&format!(
                r#"{{"switches":[{{"name":"s"}}],"ports":[{}]}}"#,
                ports.join(",")
            ))
            .check()
            .unwrap_err()
            .to_string()
        };
        let listen = r#""listen":"/a""#;
        assert_eq!(
            config(&[port("a", "t", listen)]),
            "port \"a\" is on switch \"t\", which does not exist"
        );
        assert_eq!(
            config(&[port("a", "s", listen), port("b", "s", r#""connect":"/a""#)]),
            "two ports use the socket /a"
        );
        assert!(config(&[port("a", "s", listen), port("a", "s", r#""listen":"/b""#)]).contains("two ports named"));
        assert!(config(&[port("a", "s", r#""mtu":1500"#)]).contains("either \"listen\" or \"connect\""));
        assert!(config(&[port("a b", "s", listen)]).starts_with("\"a b\" is no port name"));
        assert!(config(&[port(&"x".repeat(81), "s", listen)]).contains("1 to 80"));
        let trunk = parse(r#"{"switches":[{"name":"s"}],"trunks":[{"a":"s","b":"t"}]}"#);
        assert!(trunk.check().unwrap_err().to_string().contains("does not exist"));
    }

    #[test]
    fn mistakes_in_the_file_come_with_their_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "{\"ports\":[\n{\"name\":\"a\",\"swich\":\"s\"}]}").unwrap();
        let sentence = Config::read(file.path()).unwrap_err().to_string();
        assert!(
            sentence.contains("unknown field `swich`") && sentence.contains("line 2"),
            "{sentence}"
        );
        let refused = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Config::read(file.path()).unwrap_err().to_string()
        };
        let link = "{\"ports\":[{\"link\":{\"to_guest\":{\n\n\"delay\":1}}}]}";
        let coalescing = "{\"ports\":[{\"coalescing\":{\n\n\"delay\":1}}]}";
        for text in [link, coalescing] {
            let sentence = refused(text);
            assert!(
                sentence.contains("unknown field `delay`, expected one of"),
                "{sentence}"
            );
            assert!(
                sentence.contains("`delay_ns`") && sentence.contains("line 3"),
                "{sentence}"
            );
        }
        let sentence = refused("{\"switches\":[\n{\"name\":\"s\",\"snoop\":true}]}");
        let known = "unknown field `snoop`, expected one of `name`, `reserved`, `stp`, `snooping`, `cable` at line 2";
        assert!(sentence.contains(known), "{sentence}");
        assert!(
            Config::read(Path::new("/no/such"))
                .unwrap_err()
                .to_string()
                .starts_with("cannot read /no/such")
        );
        std::fs::write(&file, r#"{"ports":[{"name":"a","switch":"s","mac":"nonsense"}]}"#).unwrap();
        assert!(
            Config::read(file.path())
                .unwrap_err()
                .to_string()
                .contains("is not a MAC address")
        );
    }
}
