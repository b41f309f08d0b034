//! What ports say of themselves: what they are, how they do and what they counted, with the JSON shape of
//! `docs/spec/control-socket.md`. Units are last in every name (`delay_ns`, `rate_bps`).

use std::collections::BTreeMap;

use ether::MacAddr;
use firmware::{AdaptiveState, timers::TimerCounters};
use serde::{Deserialize, Serialize};

use crate::{ArmedTimer, PacketsGiven, SocketMode, WatchdogStats};

/// Counters by name, in alphabetical order. Values only grow while the process lives.
pub type Counts = BTreeMap<String, u64>;

/// The counters of `counted` by name.
pub fn counts(counted: &impl Serialize) -> Counts {
    let Ok(serde_json::Value::Object(fields)) = serde_json::to_value(counted) else {
        return Counts::new();
    };
    let counts = fields.into_iter();
    counts
        .filter_map(|(name, value)| Some((name, value.as_u64()?)))
        .collect()
}

/// What a port is and how it does, as `info` of the control socket shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortInfo {
    /// Unique name.
    pub name: String,
    /// Name of its switch; [`ITSELF`] for a card that is connected to itself.
    pub switch: String,
    /// The guest's address if configured or seen.
    pub mac: Option<MacAddr>,
    /// The address that the guest uses now: the source of its last frame at its switch. None while the switch knows none.
    #[serde(default)]
    pub mac_in_use: Option<MacAddr>,
    /// Path of the vhost-user socket.
    pub socket: String,
    /// Who binds the socket.
    pub mode: SocketMode,
    /// A frontend is connected now.
    pub connected: bool,
    /// Both directions of the link are up.
    pub link_up: bool,
    /// Rings that are started and enabled.
    pub rings_started: u32,
    /// Ring pairs that the guest may use.
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
    /// What was measured and chosen since adaptive moderation was selected.
    #[serde(flatten)]
    pub state: AdaptiveState,
}

/// What one receive queue of a card counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStats {
    /// The number of the queue, counted from 0.
    pub queue: u16,
    /// The guest's driver uses it now.
    pub ready: bool,
    /// Frames put into the queue.
    pub frames: u64,
    /// The bytes of these frames.
    pub bytes: u64,
    /// How many of these frames carried a mark.
    pub marked: u64,
    /// Interrupts decided by the firmware.
    pub decided: u64,
    /// Decided interrupts that the guest's driver did not want.
    pub suppressed: u64,
    /// Decided interrupts that were signalled to the guest.
    pub signalled: u64,
}

/// The timers of a card.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerStats {
    /// Timers that are armed now; the one value here that also falls.
    pub armed_now: u64,
    /// What the timers counted, with the lateness of clocks in that of all timers.
    #[serde(flatten)]
    pub counters: TimerCounters,
}

/// Interrupts that tell the guest of sent frames.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TxInterruptStats {
    /// Times the card had something to tell.
    pub decided: u64,
    /// Decided interrupts that the guest's driver did not want.
    pub suppressed: u64,
    /// Decided interrupts that were signalled to the guest.
    pub signalled: u64,
}

/// Counters of both directions of a link, by name; what is counted is listed in `fabric`.
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
    /// The number of members of the group, the card included.
    pub members: u32,
    /// Packets by what became of them (`docs/spec/card-multicast.md`).
    pub packets: Counts,
}

/// A multicast group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupInfo {
    /// The number of the group.
    pub group: u16,
    /// The shape of the group's trees.
    pub tree: String,
    /// The members of the group, in the order of their addresses.
    pub members: Vec<GroupMember>,
}

/// A member of a multicast group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupMember {
    /// The name of the member's port.
    pub port: String,
    /// The address of the member.
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
    /// How the card knew the guest's state when its watchdog or a clock asked: `exact`, by a record in the guest's memory; `inferred`
    /// from its rings, since it has named none; or inferred because the record was `unreachable` or `replaced`. `refused`: records
    /// that the card did not take.
    #[serde(default)]
    pub host_record: Counts,
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
    /// Translations of the I/O addresses of a guest that may be behind an IOMMU of its own: `missed`, `updated`, `invalidated`,
    /// `denied`, `refused`; none for other ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub translation: Option<Counts>,
}

/// What `info` answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Info {
    /// Version of `vnicd`.
    pub version: String,
    /// The process of `vnicd`.
    pub pid: u32,
    /// Time since `vnicd` started, in nanoseconds.
    pub uptime_ns: u64,
    /// Names of the coalescing strategies that the cards have.
    #[serde(default)]
    pub strategies: Vec<String>,
    /// The ports of `vnicd`.
    pub ports: Vec<PortInfo>,
}

/// What `stats` answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// The ports that were meant.
    pub ports: Vec<PortStats>,
}

/// What `group` answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Groups {
    /// All multicast groups.
    pub groups: Vec<GroupInfo>,
}

/// What `drain` answers: frames that had not arrived after the time that it waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// Frames on modelled links.
    pub on_links: u64,
    /// Frames in flight to guests' memory.
    pub in_dma: u64,
    /// How long it waited, in nanoseconds.
    pub waited_ns: u64,
    /// Timers that guests had armed, for the next `vnicd`.
    #[serde(default)]
    pub timers: Vec<PortTimer>,
    /// Packets that guests gave to reliable groups, for the next `vnicd`; none if frames were in flight, because packets may be among them.
    #[serde(default)]
    pub packets_given: Vec<PortPacketsGiven>,
}

/// What the guest of a port gave to a reliable group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortPacketsGiven {
    /// Name of the port.
    pub port: String,
    /// The group and how many.
    pub given: PacketsGiven,
}

/// A timer of the guest of a port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortTimer {
    /// Name of the port.
    pub port: String,
    /// The timer, due in nanoseconds since 1970.
    pub timer: ArmedTimer,
}

/// What `trace` answers before the records come.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TraceInfo {
    /// Layout of the records.
    pub record_version: u16,
    /// Length of a record in bytes.
    pub record_bytes: usize,
    /// What time 0 of the records is, in nanoseconds since 1970.
    pub origin_unix_ns: u64,
    /// Names of the card's strategies, in the order of their codes.
    #[serde(default)]
    pub strategies: Vec<String>,
}

/// What an operation answers that has nothing to say but that it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Empty {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PortLinks;

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
