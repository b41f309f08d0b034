//! What a switch is asked to be and what it says of itself, with the JSON shape of `docs/spec/control-socket.md`.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ether::MacAddr;
use serde::{Deserialize, Serialize};

use crate::Counts;

/// The last VLAN.
pub const VLAN_MAX: u16 = 4094;

/// VLANs as a list of numbers and ranges: `10,20-30`, `all`, or nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct VlanList(Vec<(u16, u16)>);

impl VlanList {
    /// All 4094.
    pub fn all() -> Self {
        Self(vec![(1, VLAN_MAX)])
    }

    /// The ranges of the list: first and last number of each, in rising order, with gaps between them.
    pub fn ranges(&self) -> &[(u16, u16)] {
        &self.0
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers of the list, in rising order.
    pub fn numbers(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().flat_map(|(first, last)| *first..=*last)
    }
}

impl FromIterator<u16> for VlanList {
    /// Numbers that are no VLANs are left out.
    fn from_iter<T: IntoIterator<Item = u16>>(numbers: T) -> Self {
        let mut numbers: Vec<_> = numbers.into_iter().filter(|n| (1..=VLAN_MAX).contains(n)).collect();
        numbers.sort_unstable();
        let mut ranges: Vec<(u16, u16)> = Vec::new();
        for number in numbers {
            match ranges.last_mut() {
                Some((_, last)) if number <= *last + 1 => *last = number,
                _ => ranges.push((number, number)),
            }
        }
        Self(ranges)
    }
}

impl fmt::Display for VlanList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::all() {
            return f.write_str("all");
        }
        for (index, (first, last)) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

impl FromStr for VlanList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no list of VLANs: numbers from 1 to {VLAN_MAX} and ranges, as in \"10,20-30\", or \"all\""
            )
        };
        match text.trim() {
            "all" => return Ok(Self::all()),
            "" | "none" => return Ok(Self::default()),
            _ => {}
        }
        let number = |word: &str| word.trim().parse::<u16>().ok().filter(|n| (1..=VLAN_MAX).contains(n));
        let mut numbers = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = number(first).zip(number(last)).ok_or_else(wrong)?;
            if first > last {
                return Err(wrong());
            }
            numbers.extend(first..=last);
        }
        Ok(numbers.into_iter().collect())
    }
}

impl TryFrom<String> for VlanList {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<VlanList> for String {
    fn from(list: VlanList) -> Self {
        list.to_string()
    }
}

/// The VLANs of a port of a switch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VlanSettings {
    /// The VLAN of frames without a tag, which leave without one, too; none: frames without a tag are dropped.
    pub untagged: Option<u16>,
    /// VLANs whose frames come and go with a tag.
    pub tagged: VlanList,
}

impl Default for VlanSettings {
    /// An access port of VLAN 1.
    fn default() -> Self {
        Self {
            untagged: Some(1),
            tagged: VlanList::default(),
        }
    }
}

impl fmt::Display for VlanSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.untagged, self.tagged.is_empty()) {
            (Some(vlan), true) => write!(f, "{vlan}"),
            (Some(vlan), false) => write!(f, "{vlan}, tagged {}", self.tagged),
            (None, true) => f.write_str("none"),
            (None, false) => write!(f, "tagged {}", self.tagged),
        }
    }
}

/// What is asked for the VLANs of a port of a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum VlanChange {
    /// It carries these.
    Set(VlanSettings),
    /// It carries what a port does that was never given any: VLAN 1, and any frame once no port of its switch has VLANs.
    Default,
}

/// What becomes of frames to 01:80:c2:00:00:00 to 01:80:c2:00:00:0f.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reserved {
    /// They end at the switch, as IEEE 802.1D has it.
    #[default]
    Drop,
    /// They are forwarded, as over a cable.
    Forward,
}

impl Reserved {
    /// The name in files and tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Forward => "forward",
        }
    }
}

/// How a switch takes part in the rapid spanning tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StpSettings {
    /// The switch with the lowest one becomes the root: a multiple of 4096, up to 61440.
    pub priority: u16,
}

impl StpSettings {
    /// What priorities are multiples of.
    pub const PRIORITY_STEP: u16 = 4096;
    /// The highest priority.
    pub const PRIORITY_MAX: u16 = 61_440;
}

impl Default for StpSettings {
    /// The priority that IEEE 802.1D recommends.
    fn default() -> Self {
        Self { priority: 32_768 }
    }
}

/// How a switch works.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SwitchSettings {
    /// What becomes of frames to 01:80:c2:00:00:0x.
    pub reserved: Reserved,
    /// Its part in the spanning tree; none: it takes no part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stp: Option<StpSettings>,
    /// Whether it listens to IGMP and MLD, and sends frames to multicast groups only where they are wanted.
    pub snooping: bool,
    /// Whether it is none, but a cable between two cards: each frame from one goes to the other, whatever its addresses are.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub cable: bool,
}

impl SwitchSettings {
    /// A cable between two cards.
    pub fn of_cable() -> Self {
        Self {
            cable: true,
            ..Self::default()
        }
    }
}

/// What a switch knows of the spanning tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StpInfo {
    /// Its identifier: priority in hexadecimal, a dot, and its address.
    pub bridge: String,
    /// The root's.
    pub root: String,
    /// What the path to the root costs; 0 on the root itself.
    pub root_cost: u32,
    /// The port that leads to the root; none on the root itself.
    pub root_port: Option<u16>,
    /// Changes of the topology that it found or was told of.
    pub topology_changes: u64,
    /// Time since the last of them.
    pub since_change_ns: Option<u64>,
}

/// What a port is in the spanning tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StpPortInfo {
    /// `disabled`, `root`, `designated`, `alternate` or `backup`.
    pub role: String,
    /// `discarding`, `learning` or `forwarding`.
    pub state: String,
    /// What the path over the port costs.
    pub cost: u32,
    /// It counts as one without a bridge behind it.
    pub edge: bool,
    /// The bridge behind it speaks the protocol before the rapid one.
    pub old_protocol: bool,
    /// The bridge that leads what is behind the port to the root.
    pub designated: String,
    /// BPDUs received.
    pub bpdus_in: u64,
    /// BPDUs sent.
    pub bpdus_out: u64,
    /// Frames to the address of all bridges that were none.
    pub bpdus_unknown: u64,
}

/// A VLAN in which a switch knows where multicast groups are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnoopedVlanInfo {
    /// Its number; none in a switch without VLANs.
    pub vlan: Option<u16>,
    /// Too little is known yet: frames to groups are flooded.
    pub flooded: bool,
    /// The address of who queries with IGMP; none: this switch.
    pub igmp_querier: Option<String>,
    /// The address of who queries with MLD; none: this switch.
    pub mld_querier: Option<String>,
}

/// What a switch knows of multicast groups.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnoopingInfo {
    /// The VLANs in which groups are kept separate.
    pub vlans: Vec<SnoopedVlanInfo>,
    /// What it heard and said.
    pub counters: Counts,
}

/// A multicast group that is wanted behind a port, as `memberships` of the control socket shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembershipInfo {
    /// The switch.
    pub switch: String,
    /// The VLAN; none in a switch without VLANs.
    pub vlan: Option<u16>,
    /// The group.
    pub group: IpAddr,
    /// What is behind the port.
    pub to: String,
    /// Time until it is forgotten unless a host says again that it wants it.
    pub left_ns: u64,
}

/// A port of a switch, as `switch` of the control socket shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchPortInfo {
    /// Its number in the switch.
    pub port: u16,
    /// What is behind it: the name of a port of this process, or of the switch at the other end of a trunk.
    pub to: String,
    /// Whether it is a trunk.
    pub trunk: bool,
    /// Whether it has a carrier.
    pub up: bool,
    /// The port that stands for the aggregate it is in.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub aggregate: Option<u16>,
    /// What it is in the spanning tree, where the switch takes part.
    pub stp: Option<StpPortInfo>,
    /// Whether a multicast router is known behind it.
    #[serde(default)]
    pub router: bool,
    /// Its VLANs; none in a switch without VLANs.
    pub vlans: Option<VlanSettings>,
    /// Stations known behind it.
    pub stations: u64,
    /// What it counted.
    pub counters: Counts,
    /// Frames from it that ended in the switch, by reason.
    pub dropped: Counts,
    /// Of a trunk: frames that the switch sent over it and that do not arrive, by reason. What is lost on the cable of a card is with
    /// the card.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub lost: Option<Counts>,
}

/// A switch, as `switch` of the control socket shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SwitchInfo {
    /// The name of the switch.
    pub switch: String,
    /// The settings of the switch.
    pub settings: SwitchSettings,
    /// Whether the switch has VLANs.
    pub has_vlans: bool,
    /// What the switch knows of the spanning tree, if it takes part.
    pub stp: Option<StpInfo>,
    /// What the switch knows of multicast groups, if it snoops.
    #[serde(default)]
    pub snooping: Option<SnoopingInfo>,
    /// The ports of the switch.
    pub ports: Vec<SwitchPortInfo>,
}

/// A station that a switch knows, as `macs` of the control socket shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StationInfo {
    /// The switch.
    pub switch: String,
    /// The VLAN that it is known in; none in a switch without VLANs.
    pub vlan: Option<u16>,
    /// The address of the station.
    pub mac: MacAddr,
    /// What is behind the port that it was last heard on.
    pub to: String,
    /// Time since then.
    pub age_ns: u64,
}

/// What `switch` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switches {
    /// The switches that were meant.
    pub switches: Vec<SwitchInfo>,
}

/// What `macs` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stations {
    /// The stations that the switches know.
    pub macs: Vec<StationInfo>,
}

/// What `memberships` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memberships {
    /// The multicast groups that are wanted behind ports.
    pub memberships: Vec<MembershipInfo>,
}

/// What `vlan` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vlans {
    /// The VLANs of the port; none in a switch without VLANs.
    pub vlans: Option<VlanSettings>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_vlans_are_read_as_written_and_written_short() {
        for (text, shown) in [
            ("10", "10"),
            ("20-30, 10,11", "10-11,20-30"),
            ("1-4094", "all"),
            ("all", "all"),
            ("none", ""),
            ("5,5,4-6", "4-6"),
        ] {
            let list: VlanList = text.parse().unwrap();
            assert_eq!(list.to_string(), shown);
            assert_eq!(list.to_string().parse::<VlanList>().unwrap(), list);
        }
        for wrong in ["0", "4095", "10-", "30-20", "ten", "1,,2", "-5"] {
            let sentence = wrong.parse::<VlanList>().unwrap_err();
            assert!(sentence.contains("numbers from 1 to 4094"), "{sentence}");
        }
    }

    #[test]
    fn settings_have_the_json_of_the_control_socket() {
        let settings: VlanSettings = serde_json::from_str(r#"{"untagged":null,"tagged":"10,20-22"}"#).unwrap();
        assert_eq!(settings.tagged.numbers().collect::<Vec<_>>(), [10, 20, 21, 22]);
        assert_eq!(
            serde_json::to_string(&settings).unwrap(),
            r#"{"untagged":null,"tagged":"10,20-22"}"#
        );
        assert_eq!(settings.to_string(), "tagged 10,20-22");
        assert!(serde_json::from_str::<VlanSettings>(r#"{"tagged":"5000"}"#).is_err());
    }
}
