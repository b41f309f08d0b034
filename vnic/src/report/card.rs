//! Settings and counters of a card's steering and of its misordering injector, with the JSON shape of `docs/spec/control-socket.md`.
//! No behaviour beyond merging a change into settings; values are judged by `firmware`.

use serde::{Deserialize, Serialize};

/// How a card chooses receive queues (papers.md M-GF9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SteeringSettings {
    /// `off`, `flow` or `endpoint`.
    pub mode: String,
    /// Queues of the endpoints from 0 on, at most 256; behind the end the list begins anew. Empty = endpoints modulo the number
    /// of queues that are ready.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<u8>,
    /// Queues of the entries of the indirection table, at most 128; behind the end the list begins anew. Empty = the queues
    /// that are ready in turn.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub indirection: Vec<u8>,
    /// Somebody chose the mode: what a guest's driver proposes does not change it. Absent = false.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub chosen: bool,
}

impl Default for SteeringSettings {
    /// IP flows spread evenly, as on common cards.
    fn default() -> Self {
        SteeringSettings {
            mode: "flow".to_owned(),
            endpoints: Vec::new(),
            indirection: Vec::new(),
            chosen: false,
        }
    }
}

/// A change of [`SteeringSettings`]: absent fields stay as they are, an empty list spreads evenly.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SteeringChange {
    /// See [`SteeringSettings::mode`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// See [`SteeringSettings::endpoints`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<Vec<u8>>,
    /// See [`SteeringSettings::indirection`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub indirection: Option<Vec<u8>>,
}

impl SteeringChange {
    /// Writes the given fields into `settings`.
    pub fn apply_to(&self, settings: &mut SteeringSettings) {
        let SteeringChange {
            mode,
            endpoints,
            indirection,
        } = self.clone();
        settings.chosen |= mode.is_some();
        settings.mode = mode.unwrap_or_else(|| std::mem::take(&mut settings.mode));
        settings.endpoints = endpoints.unwrap_or_else(|| std::mem::take(&mut settings.endpoints));
        settings.indirection = indirection.unwrap_or_else(|| std::mem::take(&mut settings.indirection));
    }

    /// True if no field is given: the request only asks for the settings in force.
    pub fn is_empty(&self) -> bool {
        *self == SteeringChange::default()
    }
}

/// The misordering injector of a card (papers.md M-GF6).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MisorderSettings {
    /// By how many fragments the mark of a medium message is moved forward; 0 = off.
    pub degree: u8,
}

/// A change of [`MisorderSettings`]: absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MisorderChange {
    /// See [`MisorderSettings::degree`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub degree: Option<u8>,
}

/// What one receive queue of a card counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueStats {
    /// Its number, counted from 0.
    pub queue: u16,
    /// The guest's driver uses it now.
    pub ready: bool,
    /// Frames put into it.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many of them carried a mark.
    pub marked: u64,
    /// Interrupts decided by the firmware.
    pub decided: u64,
    /// Of these, unwanted by the guest's driver.
    pub suppressed: u64,
    /// Of these, really signalled to the guest.
    pub signalled: u64,
}
