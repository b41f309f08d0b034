//! Settings of cards, links and trunks, and changes of them, with the JSON shape of `docs/spec/control-socket.md`. Units are last in every name.
//! No behaviour beyond merging a change into settings; values are judged by `firmware` and `fabric`, which own their limits.

use serde::{Deserialize, Serialize};

/// How the delays of frames spread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum JitterDistribution {
    /// Evenly, from the jitter before to the jitter behind the delay.
    #[default]
    Uniform,
    /// The bell curve, with the jitter as its standard deviation.
    Normal,
    /// A long tail of late frames (shape 3), with the jitter as the standard deviation.
    Pareto,
}

impl JitterDistribution {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Uniform, Self::Normal, Self::Pareto];

    /// The name in settings and on command lines.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Normal => "normal",
            Self::Pareto => "pareto",
        }
    }
}

/// One direction of a port's link, as asked for and as in force. Absent fields take the values of [`Default`]: settings are
/// read as a change of those.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "LinkChange")]
pub struct LinkSettings {
    /// False: every frame is dropped and counted.
    pub up: bool,
    /// Bits per second; 0 = unlimited.
    pub rate_bps: u64,
    /// Bytes on the wire that may be sent at once after a pause: the size of a token bucket; 0 = none.
    pub burst_bytes: u64,
    /// Propagation delay.
    pub delay_ns: u64,
    /// How far delays are from `delay_ns`; `jitter_distribution` says what of them.
    pub jitter_ns: u64,
    /// How delays spread around `delay_ns`.
    pub jitter_distribution: JitterDistribution,
    /// False: a frame with a short delay waits for those before it; true: it overtakes them.
    pub jitter_reorders: bool,
    /// Bytes that may wait for their turn on a link with a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// Frames that may wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_frames: Option<u32>,
    /// How long the last of them may wait until it is sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ns: Option<u64>,
    /// Bytes in the queue above which frames are marked (ECN) if their transport knows marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn_bytes: Option<u64>,
    /// Frames in it above which they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn_frames: Option<u32>,
    /// Time in it above which they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn_ns: Option<u64>,
    /// Largest payload (the Ethernet header comes on top); longer frames are dropped and counted.
    pub mtu: u32,
    /// Frames lost, out of a million; with bursts, of those outside of one.
    pub loss_ppm: u32,
    /// Frames behind which a burst of losses begins, out of a million outside of one; 0 = no bursts.
    pub loss_enter_ppm: u32,
    /// Frames behind which it ends, out of a million in one.
    pub loss_leave_ppm: u32,
    /// Frames lost in it, out of a million of those.
    pub loss_in_burst_ppm: u32,
    /// Every so many frames one is lost; 0 = none.
    pub loss_every: u32,
    /// Frames held back by `reorder_delay_ns`, out of a million.
    pub reorder_ppm: u32,
    /// How long a reordered frame is held back.
    pub reorder_delay_ns: u64,
    /// Frames delivered twice, out of a million.
    pub duplicate_ppm: u32,
    /// Frames with one flipped bit, out of a million.
    pub corrupt_ppm: u32,
    /// False: a corrupted frame is dropped at the receiver, as its check sequence would do; true: it is delivered.
    pub corrupt_past_fcs: bool,
    /// Seed of the fault generator: the same seed and frames give the same faults.
    pub seed: u64,
}

impl Default for LinkSettings {
    /// An ideal link: up, no rate, delay or fault, MTU 9000, 1 MiB of queue.
    fn default() -> Self {
        LinkSettings {
            up: true,
            rate_bps: 0,
            burst_bytes: 0,
            delay_ns: 0,
            jitter_ns: 0,
            jitter_distribution: JitterDistribution::Uniform,
            jitter_reorders: false,
            queue_bytes: Some(1 << 20),
            queue_frames: None,
            queue_ns: None,
            ecn_bytes: None,
            ecn_frames: None,
            ecn_ns: None,
            mtu: 9000,
            loss_ppm: 0,
            loss_enter_ppm: 0,
            loss_leave_ppm: 0,
            loss_in_burst_ppm: 0,
            loss_every: 0,
            reorder_ppm: 0,
            reorder_delay_ns: 0,
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            corrupt_past_fcs: false,
            seed: 0,
        }
    }
}

impl From<LinkChange> for LinkSettings {
    fn from(change: LinkChange) -> Self {
        let mut settings = Self::default();
        change.apply_to(&mut settings);
        settings
    }
}

/// A change of [`LinkSettings`]: absent fields stay as they are. The three limits of the queue are one setting: if one of them is
/// given, those that are not are lifted; so it is with the three ECN thresholds, of which 0 stands for none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkChange {
    /// See [`LinkSettings::up`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// See [`LinkSettings::rate_bps`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// See [`LinkSettings::burst_bytes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_bytes: Option<u64>,
    /// See [`LinkSettings::delay_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    /// See [`LinkSettings::jitter_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<u64>,
    /// See [`LinkSettings::jitter_distribution`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_distribution: Option<JitterDistribution>,
    /// See [`LinkSettings::jitter_reorders`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_reorders: Option<bool>,
    /// See [`LinkSettings::queue_bytes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// See [`LinkSettings::queue_frames`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_frames: Option<u32>,
    /// See [`LinkSettings::queue_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_ns: Option<u64>,
    /// See [`LinkSettings::ecn_bytes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn_bytes: Option<u64>,
    /// See [`LinkSettings::ecn_frames`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn_frames: Option<u32>,
    /// See [`LinkSettings::ecn_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ecn_ns: Option<u64>,
    /// See [`LinkSettings::mtu`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// See [`LinkSettings::loss_ppm`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_ppm: Option<u32>,
    /// See [`LinkSettings::loss_enter_ppm`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_enter_ppm: Option<u32>,
    /// See [`LinkSettings::loss_leave_ppm`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_leave_ppm: Option<u32>,
    /// See [`LinkSettings::loss_in_burst_ppm`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_in_burst_ppm: Option<u32>,
    /// See [`LinkSettings::loss_every`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_every: Option<u32>,
    /// See [`LinkSettings::reorder_ppm`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder_ppm: Option<u32>,
    /// See [`LinkSettings::reorder_delay_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder_delay_ns: Option<u64>,
    /// See [`LinkSettings::duplicate_ppm`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicate_ppm: Option<u32>,
    /// See [`LinkSettings::corrupt_ppm`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt_ppm: Option<u32>,
    /// See [`LinkSettings::corrupt_past_fcs`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub corrupt_past_fcs: Option<bool>,
    /// See [`LinkSettings::seed`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

impl From<&LinkSettings> for LinkChange {
    /// The change that makes these settings of any others.
    fn from(settings: &LinkSettings) -> Self {
        let has_threshold = settings.ecn_bytes.is_some() || settings.ecn_frames.is_some() || settings.ecn_ns.is_some();
        Self {
            queue_bytes: settings.queue_bytes,
            queue_frames: settings.queue_frames,
            queue_ns: settings.queue_ns,
            ecn_bytes: settings.ecn_bytes.or((!has_threshold).then_some(0)),
            ecn_frames: settings.ecn_frames,
            ecn_ns: settings.ecn_ns,
            up: Some(settings.up),
            rate_bps: Some(settings.rate_bps),
            burst_bytes: Some(settings.burst_bytes),
            delay_ns: Some(settings.delay_ns),
            jitter_ns: Some(settings.jitter_ns),
            jitter_distribution: Some(settings.jitter_distribution),
            jitter_reorders: Some(settings.jitter_reorders),
            mtu: Some(settings.mtu),
            loss_ppm: Some(settings.loss_ppm),
            loss_enter_ppm: Some(settings.loss_enter_ppm),
            loss_leave_ppm: Some(settings.loss_leave_ppm),
            loss_in_burst_ppm: Some(settings.loss_in_burst_ppm),
            loss_every: Some(settings.loss_every),
            reorder_ppm: Some(settings.reorder_ppm),
            reorder_delay_ns: Some(settings.reorder_delay_ns),
            duplicate_ppm: Some(settings.duplicate_ppm),
            corrupt_ppm: Some(settings.corrupt_ppm),
            corrupt_past_fcs: Some(settings.corrupt_past_fcs),
            seed: Some(settings.seed),
        }
    }
}

impl LinkChange {
    /// Writes the given fields into `settings`.
    pub fn apply_to(&self, settings: &mut LinkSettings) {
        set(&mut settings.up, self.up);
        set(&mut settings.rate_bps, self.rate_bps);
        set(&mut settings.burst_bytes, self.burst_bytes);
        set(&mut settings.delay_ns, self.delay_ns);
        set(&mut settings.jitter_ns, self.jitter_ns);
        set(&mut settings.jitter_distribution, self.jitter_distribution);
        set(&mut settings.jitter_reorders, self.jitter_reorders);
        if self.queue_bytes.is_some() || self.queue_frames.is_some() || self.queue_ns.is_some() {
            settings.queue_bytes = self.queue_bytes;
            settings.queue_frames = self.queue_frames;
            settings.queue_ns = self.queue_ns;
        }
        if self.ecn_bytes.is_some() || self.ecn_frames.is_some() || self.ecn_ns.is_some() {
            settings.ecn_bytes = self.ecn_bytes.filter(|threshold| *threshold > 0);
            settings.ecn_frames = self.ecn_frames.filter(|threshold| *threshold > 0);
            settings.ecn_ns = self.ecn_ns.filter(|threshold| *threshold > 0);
        }
        set(&mut settings.mtu, self.mtu);
        set(&mut settings.loss_ppm, self.loss_ppm);
        set(&mut settings.loss_enter_ppm, self.loss_enter_ppm);
        set(&mut settings.loss_leave_ppm, self.loss_leave_ppm);
        set(&mut settings.loss_in_burst_ppm, self.loss_in_burst_ppm);
        set(&mut settings.loss_every, self.loss_every);
        set(&mut settings.reorder_ppm, self.reorder_ppm);
        set(&mut settings.reorder_delay_ns, self.reorder_delay_ns);
        set(&mut settings.duplicate_ppm, self.duplicate_ppm);
        set(&mut settings.corrupt_ppm, self.corrupt_ppm);
        set(&mut settings.corrupt_past_fcs, self.corrupt_past_fcs);
        set(&mut settings.seed, self.seed);
    }

    /// True if no field is given: the request only asks for the settings in force.
    pub fn is_empty(&self) -> bool {
        *self == LinkChange::default()
    }
}

/// Which way of a port's link is meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Both ways.
    #[default]
    Both,
    /// From the switch to the guest.
    ToGuest,
    /// From the guest to the switch.
    FromGuest,
}

/// Both ways of a port's link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PortLinks {
    /// From the switch to the guest.
    pub to_guest: LinkSettings,
    /// From the guest to the switch.
    pub from_guest: LinkSettings,
}

/// Interrupt coalescing of a card.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoalescingSettings {
    /// Name of a strategy that this `vnicd` has; `info` lists them.
    pub strategy: String,
    /// Longest time an arrived packet waits for its interrupt; 0 with `timeout` means `disabled`.
    pub delay_ns: u64,
    /// Packets after which an interrupt is raised at once; 0 = no such limit.
    pub frames: u32,
    /// Whether the card looks at the marks of MXoE packets.
    pub marks: bool,
    /// Delay of the polling watchdog, which takes the place of `delay_ns` (papers.md M-BV8); 0 = none, and absent.
    #[serde(skip_serializing_if = "is_zero")]
    pub watchdog_ns: u64,
    /// The receive queues whose settings are others: a guest may set its queues one by one, in band. Absent if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueCoalescing>,
}

/// Interrupt coalescing of one receive queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueCoalescing {
    /// Its number, counted from 0.
    pub queue: u16,
    /// See [`CoalescingSettings::strategy`].
    pub strategy: String,
    /// See [`CoalescingSettings::delay_ns`].
    pub delay_ns: u64,
    /// See [`CoalescingSettings::frames`].
    pub frames: u32,
    /// See [`CoalescingSettings::marks`].
    pub marks: bool,
    /// See [`CoalescingSettings::watchdog_ns`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub watchdog_ns: u64,
}

impl Default for CoalescingSettings {
    /// No coalescing, as plain virtual cards have it: every time-out would be seen by each ping of a guest. A strategy that
    /// is chosen later finds the delay of the papers' card, 75 µs, and looks at marks (papers.md M-GF1).
    fn default() -> Self {
        CoalescingSettings {
            strategy: "disabled".to_owned(),
            delay_ns: 75_000,
            frames: 0,
            marks: true,
            watchdog_ns: 0,
            queues: Vec::new(),
        }
    }
}

/// A change of [`CoalescingSettings`]: absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CoalescingChange {
    /// See [`CoalescingSettings::strategy`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// See [`CoalescingSettings::delay_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    /// See [`CoalescingSettings::frames`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames: Option<u32>,
    /// See [`CoalescingSettings::marks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub marks: Option<bool>,
    /// See [`CoalescingSettings::watchdog_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog_ns: Option<u64>,
}

impl CoalescingChange {
    /// Writes the given fields into `settings`; all queues are the same from then on.
    pub fn apply_to(&self, settings: &mut CoalescingSettings) {
        settings.queues.clear();
        set(&mut settings.strategy, self.strategy.clone());
        set(&mut settings.delay_ns, self.delay_ns);
        set(&mut settings.frames, self.frames);
        set(&mut settings.marks, self.marks);
        set(&mut settings.watchdog_ns, self.watchdog_ns);
    }

    /// True if no field is given: the request only asks for the settings in force.
    pub fn is_empty(&self) -> bool {
        *self == CoalescingChange::default()
    }
}

/// The card's modelled DMA engine. All zero (the default) = no modelled time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DmaSettings {
    /// Time to set up one transfer.
    pub setup_ns: u64,
    /// Bits per second; 0 = unlimited.
    pub rate_bps: u64,
    /// Transfers under way at once; at least 1.
    pub parallelism: u32,
}

impl Default for DmaSettings {
    /// A DMA engine that takes no time.
    fn default() -> Self {
        DmaSettings {
            setup_ns: 0,
            rate_bps: 0,
            parallelism: 1,
        }
    }
}

/// A change of [`DmaSettings`]: absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DmaChange {
    /// See [`DmaSettings::setup_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_ns: Option<u64>,
    /// See [`DmaSettings::rate_bps`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// See [`DmaSettings::parallelism`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallelism: Option<u32>,
}

impl DmaChange {
    /// Writes the given fields into `settings`.
    pub fn apply_to(&self, settings: &mut DmaSettings) {
        set(&mut settings.setup_ns, self.setup_ns);
        set(&mut settings.rate_bps, self.rate_bps);
        set(&mut settings.parallelism, self.parallelism);
    }

    /// True if no field is given: the request only asks for the settings in force.
    pub fn is_empty(&self) -> bool {
        *self == DmaChange::default()
    }
}

/// Both ways of a trunk between two switches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrunkLinks {
    /// From switch `a` to switch `b`.
    pub a_to_b: LinkSettings,
    /// From switch `b` to switch `a`.
    pub b_to_a: LinkSettings,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

fn set<T>(place: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *place = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_fields_of_a_change_leave_the_settings_alone() {
        let mut settings = LinkSettings {
            delay_ns: 5,
            ..LinkSettings::default()
        };
        let change: LinkChange = serde_json::from_str(r#"{"loss_ppm":1000,"up":false}"#).unwrap();
        assert!(!change.is_empty());
        change.apply_to(&mut settings);
        assert_eq!(
            settings,
            LinkSettings {
                up: false,
                delay_ns: 5,
                loss_ppm: 1000,
                ..LinkSettings::default()
            }
        );
        assert!(serde_json::from_str::<LinkChange>("{}").unwrap().is_empty());
    }

    #[test]
    fn limits_of_a_queue_replace_each_other_and_read_back_as_written() {
        let change = |settings: &mut LinkSettings, text: &str| {
            serde_json::from_str::<LinkChange>(text).unwrap().apply_to(settings);
            let written = serde_json::to_string(settings).unwrap();
            assert_eq!(
                serde_json::from_str::<LinkSettings>(&written).unwrap(),
                *settings,
                "{written}"
            );
            (settings.queue_bytes, settings.queue_frames, settings.queue_ns)
        };
        let mut settings = LinkSettings::default();
        assert_eq!(change(&mut settings, r#"{"delay_ns":1}"#), (Some(1 << 20), None, None));
        assert_eq!(
            change(&mut settings, r#"{"queue_frames":100}"#),
            (None, Some(100), None)
        );
        assert_eq!(
            change(&mut settings, r#"{"queue_ns":5,"queue_bytes":6}"#),
            (Some(6), None, Some(5))
        );
        change(&mut settings, r#"{"ecn_frames":20,"jitter_distribution":"pareto"}"#);
        assert_eq!((settings.ecn_bytes, settings.ecn_frames), (None, Some(20)));
        let marking = settings.clone();
        change(&mut settings, r#"{"ecn_bytes":0}"#);
        for (from, to) in [
            (&marking, &settings),
            (&settings, &marking),
            (&marking, &LinkSettings::default()),
        ] {
            let mut changed = from.clone();
            LinkChange::from(to).apply_to(&mut changed);
            assert_eq!(changed, *to);
        }
        assert_eq!((settings.ecn_bytes, settings.ecn_frames), (None, None));
        assert_eq!(
            serde_json::from_str::<LinkSettings>("{}").unwrap(),
            LinkSettings::default()
        );
    }

    #[test]
    fn misspelt_fields_are_refused_not_ignored() {
        assert!(serde_json::from_str::<LinkChange>(r#"{"loss":1}"#).is_err());
        assert!(serde_json::from_str::<LinkSettings>(r#"{"loss":1}"#).is_err());
        assert!(serde_json::from_str::<LinkChange>(r#"{"jitter_distribution":"gamma"}"#).is_err());
        assert!(serde_json::from_str::<CoalescingChange>(r#"{"delay_us":75}"#).is_err());
        assert!(serde_json::from_str::<DmaChange>(r#"{"setup":1}"#).is_err());
    }
}
