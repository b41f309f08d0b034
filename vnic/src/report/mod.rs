//! What a port is asked to be and what it says of itself: plain data with the JSON shape of `docs/spec/control-socket.md`, shared by
//! the configuration file, the control socket and the metrics. Units are last in every name (`delay_ns`, `rate_bps`).
//! What can be changed is in `settings`. No behaviour.

mod card;
mod settings;
mod switch;
mod timed;

use std::collections::BTreeMap;

use ether::MacAddr;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use card::{MisorderChange, MisorderSettings, QueueStats, SteeringChange, SteeringSettings};
pub use settings::{
    CoalescingChange, CoalescingSettings, Direction, DmaChange, DmaSettings, JitterDistribution, LinkChange,
    LinkSettings, PortLinks, QueueCoalescing, TrunkLinks,
};

pub use switch::{
    MembershipInfo, Reserved, SnoopedVlanInfo, SnoopingInfo, StationInfo, StpInfo, StpPortInfo, StpSettings,
    SwitchInfo, SwitchPortInfo, SwitchSettings, VLAN_MAX, VlanChange, VlanList, VlanSettings,
};
pub use timed::{ArmedTimer, LatenessClass, TimerStats, WatchdogStats};

/// Counters by name, in alphabetical order. Values only grow while the process lives.
pub type Counts = BTreeMap<String, u64>;

/// How a port's vhost-user socket comes to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SocketMode {
    /// `vnicd` binds the socket, the frontend connects.
    Listen,
    /// The frontend binds the socket (QEMU: `server=on`), `vnicd` connects, again and again.
    Connect,
}

/// Everything a port is made from. Made by the command line or the configuration file, both already checked for form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSettings {
    /// Unique name, such as `n1.eth0`.
    pub name: String,
    /// Path of the vhost-user socket, for reports; the session opens it.
    pub socket: String,
    /// Who binds the socket, for reports.
    pub mode: SocketMode,
    /// The guest's address if known, for reports and captures (the frontend tells the guest, not the backend).
    pub mac: Option<MacAddr>,
    /// Receive and transmit ring pairs offered.
    pub queue_pairs: u16,
    /// Largest payload the card takes.
    pub mtu: u32,
    /// Whether checksum and segmentation offloads are offered to the guest.
    pub offloads: bool,
    /// The card's output is wired to its input: it is a copy engine, and at no switch.
    pub loopback: bool,
    /// Interrupt coalescing at start.
    pub coalescing: CoalescingSettings,
    /// DMA engine at start.
    pub dma: DmaSettings,
    /// Choice of receive queues at start.
    pub steering: SteeringSettings,
    /// Misordering injector at start.
    pub misorder: MisorderSettings,
    /// Link at start.
    pub link: PortLinks,
    /// Multicast groups at start; kept current.
    pub groups: Vec<u16>,
    /// Timers that its guest armed in a process before this one; they are armed again when it is back.
    pub timers: Vec<ArmedTimer>,
    /// Whether its guest may have been served by a process before this one, so that others wait a moment for it.
    pub returns: bool,
    /// Its VLANs in its switch; none: nobody said so, see `fabric::Switch::set_port_vlans`.
    pub vlans: Option<VlanSettings>,
}

/// What a port is and how it does, as `info` of the control socket shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// Unique name.
    pub name: String,
    /// Name of its switch; [`ITSELF`] for a card that is connected to itself.
    pub switch: String,
    /// The guest's address if configured or seen.
    #[serde(serialize_with = "mac_out", deserialize_with = "mac_in")]
    pub mac: Option<MacAddr>,
    /// The address that the guest uses now: the source of its last frame at its switch. None while the switch knows none.
    #[serde(default, serialize_with = "mac_out", deserialize_with = "mac_in")]
    pub mac_in_use: Option<MacAddr>,
    /// Path of the vhost-user socket.
    pub socket: String,
    /// Who binds the socket.
    pub mode: SocketMode,
    /// A frontend is connected now.
    pub connected: bool,
    /// Both ways of the link are up.
    pub link_up: bool,
    /// Rings that are started and enabled.
    pub rings_started: u32,
    /// Ring pairs offered.
    pub queue_pairs: u16,
    /// Largest payload the card takes.
    pub mtu: u32,
    /// Names of the virtio features in force, without prefix: `MRG_RXBUF`, `EVENT_IDX`, …
    pub features: Vec<String>,
    /// Why the port does not work; none if it does.
    pub failed: Option<String>,
}

/// What stands for the switch of a card that is connected to itself. No switch can have this name in a configuration: brackets
/// are not allowed there.
pub const ITSELF: &str = "(itself)";

impl PortInfo {
    /// Whether the card is connected to itself: it has a copy engine, and no cable.
    pub fn is_loopback(&self) -> bool {
        self.switch == ITSELF
    }
}

/// Traffic of one direction, as the guest sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrafficStats {
    /// Frames delivered (a segmented frame counts as the frames it was cut into when it was cut).
    pub frames: u64,
    /// Bytes of those frames, without virtio header and check sequence.
    pub bytes: u64,
    /// Frames dropped, by reason (`no_buffer`, …).
    pub dropped: Counts,
}

/// One class of the histogram of packets announced by one interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PacketsPerInterrupt {
    /// Smallest number of packets in this class.
    pub from: u32,
    /// Largest number of packets in this class.
    pub to: u32,
    /// Interrupts in this class.
    pub count: u64,
}

/// Receive interrupts: decided by the card, and what became of each (papers.md M-GF10).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InterruptStats {
    /// Decided by the firmware; equals the sum of `by_reason`.
    pub decided: u64,
    /// Decided, but the guest's driver wanted none (EVENT_IDX, NO_INTERRUPT).
    pub suppressed: u64,
    /// Really signalled to the guest.
    pub signalled: u64,
    /// Decided, by reason (`every-packet`, `mark`, `timeout`, `count`, `deferred`, …; `strategy:NAME` for what a strategy decided for a
    /// reason of its own).
    pub by_reason: Counts,
    /// Packets announced by the interrupts of each reason.
    #[serde(default)]
    pub packets_by_reason: Counts,
    /// How many packets each interrupt announced.
    pub packets_per_interrupt: Vec<PacketsPerInterrupt>,
    /// Decisions put off by Stream coalescing (papers.md M-GF5).
    pub deferred: u64,
    /// Packets that wait for their announcement now; the one value here that also falls.
    pub unannounced: u64,
    /// Packets that the guest had processed before any interrupt announced them, as the watchdog found.
    #[serde(default)]
    pub polled: u64,
}

/// What adaptive moderation of one receive queue measured and chose (papers.md M-GF7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdaptiveStats {
    /// The receive queue.
    pub queue: u16,
    /// The longest delay that may be chosen: that of the settings.
    pub longest_ns: u64,
    /// The delay in force.
    pub delay_ns: u64,
    /// Packets per second in the last whole sample; it stays while nothing arrives.
    pub packets_per_s: u64,
    /// Times that the delay was made longer since adaptive moderation was selected.
    pub longer: u64,
    /// Times that it was made shorter.
    pub shorter: u64,
}

/// Interrupts that tell the guest of sent frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxInterruptStats {
    /// Times the card had something to tell.
    pub decided: u64,
    /// Of these, unwanted by the guest's driver.
    pub suppressed: u64,
    /// Of these, really signalled.
    pub signalled: u64,
}

/// Counters of both ways of a link, by name; what is counted is listed in `fabric`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkStats {
    /// From the switch to the guest.
    pub to_guest: Counts,
    /// From the guest to the switch.
    pub from_guest: Counts,
}

/// What a card counted in a multicast group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupStats {
    /// Number of the group.
    pub group: u16,
    /// Its members, the card included.
    pub members: u32,
    /// Packets by what became of them (`docs/spec/card-multicast.md`).
    pub packets: Counts,
}

/// A multicast group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// Its number.
    pub group: u16,
    /// Shape of its trees.
    pub tree: String,
    /// Its members, in the order of their addresses.
    pub members: Vec<GroupMember>,
}

/// A member of a multicast group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMember {
    /// Name of its port.
    pub port: String,
    /// Its address.
    pub mac: String,
    /// The ports that its card sends to when its own guest is the sender.
    pub children: Vec<String>,
}

/// Everything a port counts, as `stats` of the control socket shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortStats {
    /// Unique name of the port.
    pub name: String,
    /// Towards the guest.
    pub rx: TrafficStats,
    /// From the guest.
    pub tx: TrafficStats,
    /// Receive interrupts.
    pub interrupts: InterruptStats,
    /// Adaptive moderation of the receive queues under which it is on.
    #[serde(default)]
    pub adaptive: Vec<AdaptiveStats>,
    /// Received packets that carried a mark.
    pub marked: u64,
    /// Each receive queue by itself.
    #[serde(default)]
    pub queues: Vec<QueueStats>,
    /// How frames were spread over the queues: `by_endpoint`, `by_flow`, `to_first`.
    #[serde(default)]
    pub steering: Counts,
    /// What the misordering injector did: `moved`, `cleared`, `kept`.
    #[serde(default)]
    pub misorder: Counts,
    /// Transmit interrupts.
    pub tx_interrupts: TxInterruptStats,
    /// Notifications received from the guest.
    pub kicks: u64,
    /// Bytes of frames copied towards this guest.
    pub copied_bytes: u64,
    /// Bytes of frames delivered to this guest; equal to `copied_bytes` where every frame was copied once.
    pub delivered_bytes: u64,
    /// What the guest did against the rules of rings and memory, by rule.
    pub rule_violations: Counts,
    /// Sessions that ended because a message of the frontend broke a rule, by rule.
    #[serde(default)]
    pub session_violations: Counts,
    /// In-band control frames (EtherType 0x88B5): requests, replies, refusals.
    pub control: Counts,
    /// The polling watchdog (papers.md M-BV8).
    #[serde(default)]
    pub watchdog: WatchdogStats,
    /// The timers that the guest armed on its card (papers.md M-BV10).
    #[serde(default)]
    pub timers: TimerStats,
    /// What the card counted in the multicast groups that it is in.
    #[serde(default)]
    pub groups: Vec<GroupStats>,
    /// Multicast of the card in all groups, those included that it has left.
    #[serde(default)]
    pub multicast: Counts,
    /// Frames between cards (EtherType 0x88B6) that the card refused, by reason.
    #[serde(default)]
    pub multicast_refused: Counts,
    /// The port's link.
    pub link: LinkStats,
    /// The port's counters in its switch.
    pub switch: Counts,
    /// The copy engine of a card that is connected to itself; none for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copy_engine: Option<Counts>,
}

fn mac_out<S: Serializer>(mac: &Option<MacAddr>, serializer: S) -> Result<S::Ok, S::Error> {
    match mac {
        Some(mac) => serializer.collect_str(mac),
        None => serializer.serialize_none(),
    }
}

/// Reads an optional MAC address in its usual text form (`52:54:00:00:00:01`).
pub(crate) fn mac_in<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<MacAddr>, D::Error> {
    match Option::<String>::deserialize(deserializer)? {
        Some(text) => text
            .parse()
            .map(Some)
            .map_err(|_| serde::de::Error::custom(format!("{text:?} is not a MAC address such as 52:54:00:00:00:01"))),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_survive_the_trip_through_json() {
        let links = PortLinks::default();
        let text = serde_json::to_string(&links).unwrap();
        assert_eq!(serde_json::from_str::<PortLinks>(&text).unwrap(), links);
        let stats = PortStats {
            name: "a".into(),
            ..PortStats::default()
        };
        let text = serde_json::to_string(&stats).unwrap();
        assert_eq!(serde_json::from_str::<PortStats>(&text).unwrap(), stats);
    }
}
