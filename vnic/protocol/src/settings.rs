//! Settings that belong to a port as a whole, changes of them, and the events that tell of them. Units are last in every name.
//! Values are judged by `firmware` and `fabric`, which own their limits.

use firmware::{Coalescing, StrategyKind};
use serde::{Deserialize, Serialize};

use crate::{
    DmaChange, DmaSettings, LinkSettings, MisorderChange, MisorderSettings, SteeringChange, SteeringSettings,
    VlanSettings,
};

/// A change of some settings of a card, which a client asks for by an operation of its own.
pub trait CardChange: Serialize + for<'de> Deserialize<'de> {
    /// The name of the operation.
    const OP: &'static str;
    /// What is changed, and answered as it is in force.
    type Settings: Serialize + for<'de> Deserialize<'de>;

    /// True if no field is given: the settings in force are only asked for.
    fn is_empty(&self) -> bool;

    /// Writes the fields that are given into `settings`.
    fn apply_to(&self, settings: &mut Self::Settings);
}

/// Makes changes known as those of a card, each with the name of its operation.
macro_rules! card_changes {
    ($($op:literal: $change:ty => $settings:ty;)*) => {
        $(
            impl CardChange for $change {
                const OP: &'static str = $op;
                type Settings = $settings;

                fn is_empty(&self) -> bool {
                    <$change>::is_empty(self)
                }

                fn apply_to(&self, settings: &mut $settings) {
                    <$change>::apply_to(self, settings);
                }
            }
        )*
    };
}

card_changes! {
    "coalesce": CoalescingChange => CoalescingSettings;
    "dma": DmaChange => DmaSettings;
    "misorder": MisorderChange => MisorderSettings;
    "steering": SteeringChange => SteeringSettings;
}

/// Which direction of a port's link is meant.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Both directions.
    #[default]
    Both,
    /// From the switch to the guest.
    ToGuest,
    /// From the guest to the switch.
    FromGuest,
}

/// Which direction of a trunk is meant, as its ends are named in the request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TrunkDirection {
    /// Both directions.
    #[default]
    Both,
    /// From the first switch to the second.
    AToB,
    /// From the second switch to the first.
    BToA,
}

impl TrunkDirection {
    /// Whether the direction from the first switch to the second is meant, and whether the other one is.
    pub const fn selected(self) -> (bool, bool) {
        (!matches!(self, Self::BToA), !matches!(self, Self::AToB))
    }
}

/// Both directions of a port's link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PortLinks {
    /// From the switch to the guest.
    pub to_guest: LinkSettings,
    /// From the guest to the switch.
    pub from_guest: LinkSettings,
}

/// Both directions of a trunk between two switches.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TrunkLinks {
    /// From switch `a` to switch `b`.
    pub a_to_b: LinkSettings,
    /// From switch `b` to switch `a`.
    pub b_to_a: LinkSettings,
}

/// Interrupt coalescing of a card, with the names of strategies as text: `vnicd` may have others than its client was built with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FlatCard")]
pub struct CoalescingSettings {
    /// Coalescing of all queues but those in `queues`. A delay of 0 with `timeout` means `disabled`.
    #[serde(flatten)]
    pub all: Coalescing<String>,
    /// Delay of the polling watchdog, which takes the place of that of coalescing (papers.md M-BV8); 0 = none, and absent.
    #[serde(skip_serializing_if = "is_zero")]
    pub watchdog_ns: u64,
    /// The receive queues whose settings are others: a guest may set its queues one by one, in band. Absent if there is none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub queues: Vec<QueueCoalescing>,
}

/// Interrupt coalescing of one receive queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FlatQueue")]
pub struct QueueCoalescing {
    /// The number of the queue, counted from 0.
    pub queue: u16,
    /// The settings of the queue, in place of [`CoalescingSettings::all`].
    #[serde(flatten)]
    pub coalescing: Coalescing<String>,
    /// The watchdog of the queue, in place of [`CoalescingSettings::watchdog_ns`].
    #[serde(skip_serializing_if = "is_zero")]
    pub watchdog_ns: u64,
}

/// Makes the private type as which coalescing is read: flat, so that an unknown field is answered by the names of the known ones.
macro_rules! flat {
    ($name:ident, $with:literal { $($(#[$meta:meta])* $field:ident: $type:ty,)* }) => {
        #[doc = concat!("Coalescing as it is read, ", $with, ".")]
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name {
            strategy: Option<String>,
            delay_ns: Option<u64>,
            frames: Option<u32>,
            marks: Option<bool>,
            watchdog_ns: Option<u64>,
            $($(#[$meta])* $field: $type,)*
        }

        impl From<$name> for CoalescingChange {
            fn from(flat: $name) -> Self {
                Self {
                    all: firmware::CoalescingChange {
                        strategy: flat.strategy,
                        delay_ns: flat.delay_ns,
                        frames_max: flat.frames,
                        marks: flat.marks,
                    },
                    watchdog_ns: flat.watchdog_ns,
                }
            }
        }
    };
}

flat!(FlatChange, "as a change" {});
flat!(FlatCard, "as a change of the default, and the queues that have others" {
    #[serde(default)]
    queues: Vec<QueueCoalescing>,
});

impl From<FlatCard> for CoalescingSettings {
    fn from(mut card: FlatCard) -> Self {
        let queues = std::mem::take(&mut card.queues);
        let mut settings = Self::default();
        CoalescingChange::from(card).apply_to(&mut settings);
        Self { queues, ..settings }
    }
}

/// Coalescing of a queue as it is read: flat, so that an unknown field is answered by the names of the known ones.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FlatQueue {
    queue: u16,
    strategy: String,
    delay_ns: u64,
    frames: u32,
    marks: bool,
    #[serde(default)]
    watchdog_ns: u64,
}

impl From<FlatQueue> for QueueCoalescing {
    fn from(flat: FlatQueue) -> Self {
        Self {
            queue: flat.queue,
            coalescing: Coalescing {
                strategy: flat.strategy,
                delay_ns: flat.delay_ns,
                frames_max: flat.frames,
                marks: flat.marks,
            },
            watchdog_ns: flat.watchdog_ns,
        }
    }
}

impl Default for CoalescingSettings {
    /// No coalescing, as plain virtual cards have it: every time-out would be seen by each ping of a guest. A strategy that
    /// is chosen later finds the delay of the papers' card, 75 µs, and reads marks (papers.md M-GF1).
    fn default() -> Self {
        CoalescingSettings {
            all: Coalescing::DEFAULT.with_strategy(StrategyKind::Disabled.name().to_owned()),
            watchdog_ns: 0,
            queues: Vec::new(),
        }
    }
}

/// A change of [`CoalescingSettings`]: fields that are absent stay as they are, and all queues have equal settings from then on.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "FlatChange")]
pub struct CoalescingChange {
    /// What changes in [`CoalescingSettings::all`].
    #[serde(flatten)]
    pub all: firmware::CoalescingChange<String>,
    /// The new [`CoalescingSettings::watchdog_ns`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watchdog_ns: Option<u64>,
}

impl CoalescingChange {
    /// Writes the fields that are given into `settings`; all queues have equal settings from then on.
    pub fn apply_to(&self, settings: &mut CoalescingSettings) {
        settings.queues.clear();
        self.all.apply_to(&mut settings.all);
        settings.watchdog_ns = self.watchdog_ns.unwrap_or(settings.watchdog_ns);
    }

    /// True if no field is given: nothing is changed, only the settings in force are asked for.
    pub fn is_empty(&self) -> bool {
        *self == CoalescingChange::default()
    }
}

impl From<&CoalescingSettings> for CoalescingChange {
    /// The change that makes any settings these, for all queues.
    fn from(settings: &CoalescingSettings) -> Self {
        Self {
            all: (&settings.all).into(),
            watchdog_ns: Some(settings.watchdog_ns),
        }
    }
}

/// What those who watch are told: all settings in force of a port or of a trunk, and when they have caught up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum SettingsEvent {
    /// Settings of a port.
    Port {
        /// The name of the port.
        port: String,
        /// Coalescing of its queues.
        coalesce: CoalescingSettings,
        /// DMA engine.
        dma: DmaSettings,
        /// Choice of receive queues.
        #[serde(default)]
        steering: Box<SteeringSettings>,
        /// Misordering injector.
        #[serde(default)]
        misorder: MisorderSettings,
        /// Link.
        link: PortLinks,
        /// Multicast groups that the card is in.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        groups: Vec<u16>,
        /// VLANs of the port in its switch, where they were set.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vlans: Option<Box<VlanSettings>>,
    },
    /// The tree of a multicast group.
    Group {
        /// The number of the group.
        group: u16,
        /// Shape of the tree.
        tree: String,
    },
    /// Settings of a trunk.
    Trunk {
        /// Switch `a`.
        a: String,
        /// Switch `b`.
        b: String,
        /// Which of the trunks between them, counted from 1.
        #[serde(default = "first")]
        number: usize,
        /// Links.
        link: TrunkLinks,
    },
    /// All settings were told; from now on a change is told before it is answered.
    Watching,
}

const fn first() -> usize {
    1
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkChange;

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
            (
                settings.queue_max.bytes,
                settings.queue_max.frames,
                settings.queue_max.ns,
            )
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
        assert_eq!((settings.ecn_above.bytes, settings.ecn_above.frames), (None, Some(20)));
        let marking = settings;
        change(&mut settings, r#"{"ecn_bytes":0}"#);
        for (from, to) in [
            (&marking, &settings),
            (&settings, &marking),
            (&marking, &LinkSettings::default()),
        ] {
            let mut changed = *from;
            LinkChange::from(to).apply_to(&mut changed);
            assert_eq!(changed, *to);
        }
        assert_eq!((settings.ecn_above.bytes, settings.ecn_above.frames), (None, None));
        assert_eq!(
            serde_json::from_str::<LinkSettings>("{}").unwrap(),
            LinkSettings::default()
        );
    }

    #[test]
    fn a_misspelt_field_is_answered_by_the_known_ones() {
        let link = serde_json::from_str::<LinkChange>(r#"{"loss":1}"#)
            .unwrap_err()
            .to_string();
        for known in [
            "unknown field `loss`, expected one of `up`",
            "`queue_bytes`",
            "`ecn_ns`",
            "`seed`",
        ] {
            assert!(link.contains(known), "{link}");
        }
        assert!(!link.contains("queue_max") && !link.contains("ecn_above"), "{link}");
        let settings = serde_json::from_str::<CoalescingSettings>(r#"{"queue":1}"#);
        let queue = r#"{"queues":[{"queue":1,"delay_us":1}]}"#;
        for (refused, known) in [
            (
                serde_json::from_str::<CoalescingChange>(r#"{"delay_us":75}"#).unwrap_err(),
                "unknown field `delay_us`, expected one of `strategy`, `delay_ns`, `frames`, `marks`, `watchdog_ns` at",
            ),
            (settings.unwrap_err(), "`watchdog_ns`, `queues` at"),
            (
                serde_json::from_str::<CoalescingSettings>(queue).unwrap_err(),
                "expected one of `queue`, `strategy`, `delay_ns`, `frames`, `marks`, `watchdog_ns` at",
            ),
        ] {
            assert!(refused.to_string().contains(known), "{refused}");
        }
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
