//! Settings of cards, links and trunks, and changes of them, with the JSON shape of `CONTROL-SOCKET.md`. Units are last in every name.
//! No behaviour beyond merging a change into settings; values are judged by `firmware` and `fabric`, which own their limits.

use serde::{Deserialize, Serialize};

/// One direction of a port's link, as asked for and as in force. Absent fields take the values of [`Default`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkSettings {
    /// False: every frame is dropped and counted.
    pub up: bool,
    /// Bits per second; 0 = unlimited.
    pub rate_bps: u64,
    /// Propagation delay.
    pub delay_ns: u64,
    /// Bytes that may wait for their turn on a link with a rate.
    pub queue_bytes: u64,
    /// Largest payload (the Ethernet header comes on top); longer frames are dropped and counted.
    pub mtu: u32,
    /// Frames lost, out of a million.
    pub loss_ppm: u32,
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
            delay_ns: 0,
            queue_bytes: 1 << 20,
            mtu: 9000,
            loss_ppm: 0,
            reorder_ppm: 0,
            reorder_delay_ns: 0,
            duplicate_ppm: 0,
            corrupt_ppm: 0,
            corrupt_past_fcs: false,
            seed: 0,
        }
    }
}

/// A change of [`LinkSettings`]: absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinkChange {
    /// See [`LinkSettings::up`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// See [`LinkSettings::rate_bps`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// See [`LinkSettings::delay_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
    /// See [`LinkSettings::queue_bytes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_bytes: Option<u64>,
    /// See [`LinkSettings::mtu`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// See [`LinkSettings::loss_ppm`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_ppm: Option<u32>,
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

impl LinkChange {
    /// Writes the given fields into `settings`.
    pub fn apply_to(&self, settings: &mut LinkSettings) {
        set(&mut settings.up, self.up);
        set(&mut settings.rate_bps, self.rate_bps);
        set(&mut settings.delay_ns, self.delay_ns);
        set(&mut settings.queue_bytes, self.queue_bytes);
        set(&mut settings.mtu, self.mtu);
        set(&mut settings.loss_ppm, self.loss_ppm);
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
    /// Name of a strategy of `firmware`: `disabled`, `timeout`, `open-mx`, `stream`, `adaptive`, …
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
    fn misspelt_fields_are_refused_not_ignored() {
        assert!(serde_json::from_str::<LinkChange>(r#"{"loss":1}"#).is_err());
        assert!(serde_json::from_str::<CoalescingChange>(r#"{"delay_us":75}"#).is_err());
        assert!(serde_json::from_str::<DmaChange>(r#"{"setup":1}"#).is_err());
    }
}
