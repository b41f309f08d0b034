//! Settings of the steering: by what frames are distinguished, and which of them each queue gets.
//!
//! Only values and their limits are here; what follows from them is decided in `steering`.

use super::QueueTable;

/// How many endpoints the MXoE header can name (`mxoe-wire.md` section 1.3).
pub const ENDPOINTS: usize = 256;
/// Entries of the indirection table, as on common real cards: with 16 queues the load is even to within a few per cent.
pub const INDIRECTION_LEN: usize = 128;
/// Entries of a table that one change may give: a whole indirection table, and what fits a control frame.
pub const TABLE_ENTRIES_MAX: usize = 128;

weft_settings::named! {
    /// How arriving frames are spread over the receive queues.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "lowercase"))]
    #[repr(u8)]
    pub enum SteeringMode, or UnknownSteeringMode: "not a steering mode; known are off, flow and endpoint" {
        /// Not at all: everything goes to the first queue that is ready.
        Off = "off",
        /// As common cards do: IP by the hash of its flow, everything else (MXoE too) to the first queue.
        #[default]
        Flow = "flow",
        /// MXoE by the endpoint it is for, other traffic as with [`SteeringMode::Flow`] (M-GF9).
        Endpoint = "endpoint",
    }
}

impl SteeringMode {
    /// The number in control frames.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The mode of this code.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for SteeringMode {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = alloc::borrow::Cow::<str>::deserialize(deserializer)?;
        let known = name.parse::<Self>();
        known.map_err(|error| serde::de::Error::custom(format_args!("{name:?} is {error}")))
    }
}

weft_settings::settings! {
    /// What steering goes by. A table names queues; where the one it names is not ready, one of those that are stands in for it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", serde(default, deny_unknown_fields))]
    pub struct SteeringSettings, changed by struct SteeringSettingsChange, then note_choice {
        /// By what frames are distinguished.
        pub mode: SteeringMode,
        /// The queue of each endpoint; without a table, endpoint modulo the number of queues that are ready.
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "QueueTable::is_even"))]
        pub endpoints: QueueTable<ENDPOINTS>,
        /// The queue of each entry, which is the hash modulo [`INDIRECTION_LEN`]; without a table, the queues that are ready in turn.
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "QueueTable::is_even"))]
        pub indirection: QueueTable<INDIRECTION_LEN>,
    }
    and {
        /// The mode was chosen by a person, so that what a driver proposes does not change it.
        #[cfg_attr(feature = "serde", serde(skip_serializing_if = "core::ops::Not::not"))]
        pub chosen: bool,
    }
}

/// A mode that is asked for is chosen.
fn note_choice(settings: &mut SteeringSettings, change: &SteeringSettingsChange) {
    settings.chosen |= change.mode.is_some();
}

impl SteeringSettings {
    /// What a card starts with: flows spread evenly, as on common cards, until a driver asks for endpoints.
    pub const DEFAULT: Self = Self {
        mode: SteeringMode::Flow,
        endpoints: QueueTable::EVEN,
        indirection: QueueTable::EVEN,
        chosen: false,
    };

    /// The settings unchanged, if a card with so many receive queues can follow them.
    ///
    /// # Errors
    /// A table names a queue that there is not.
    pub fn validated(self, queue_pairs: u16) -> Result<Self, SteeringError> {
        let known = |queues: &[u8]| queues.iter().all(|queue| u16::from(*queue) < queue_pairs);
        if !self.endpoints.get().is_none_or(known) || !self.indirection.get().is_none_or(known) {
            return Err(SteeringError::UnknownQueue);
        }
        Ok(self)
    }
}

impl Default for SteeringSettings {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// One of the two tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum SteeringTable {
    /// The queue of each endpoint, [`ENDPOINTS`] entries.
    Endpoints = 1,
    /// The queue of each value of the flow hash, [`INDIRECTION_LEN`] entries.
    Indirection = 2,
}

impl SteeringTable {
    /// The number in control frames.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The table of this code.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Endpoints),
            2 => Some(Self::Indirection),
            _ => None,
        }
    }
}

/// Some entries of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableEntries {
    first: u16,
    count: u8,
    queues: [u8; TABLE_ENTRIES_MAX],
}

impl TableEntries {
    /// The entries from number `first` on; `None` if there are none, or more than [`TABLE_ENTRIES_MAX`].
    pub fn new(first: u16, queues: &[u8]) -> Option<Self> {
        let mut entries = Self {
            first,
            count: u8::try_from(queues.len()).ok().filter(|count| *count > 0)?,
            queues: [0; TABLE_ENTRIES_MAX],
        };
        entries.queues.get_mut(..queues.len())?.copy_from_slice(queues);
        Some(entries)
    }

    /// As many entries of `table` as fit, from number `first` on; `None` if there are none.
    pub fn of_table(table: &[u8], first: u16) -> Option<Self> {
        let rest = table.get(usize::from(first)..)?;
        Self::new(first, &rest[..rest.len().min(TABLE_ENTRIES_MAX)])
    }

    /// Number of the first entry.
    pub const fn first(&self) -> u16 {
        self.first
    }

    /// The queues of the entries, in order.
    pub fn queues(&self) -> &[u8] {
        &self.queues[..usize::from(self.count)]
    }
}

/// A change of one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableChange {
    /// Spread over the queues that are ready in turn.
    Even,
    /// These entries; the others keep their queues, which for a table that was spread are those of all queues in turn.
    Entries(TableEntries),
}

/// What to change of [`SteeringSettings`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SteeringChange {
    /// By what frames are distinguished, as in [`SteeringSettings::mode`].
    pub mode: Option<SteeringMode>,
    /// One of the tables.
    pub table: Option<(SteeringTable, TableChange)>,
    /// A driver proposes the mode, which does not replace one that was chosen.
    pub proposed: bool,
}

impl SteeringChange {
    /// The settings with the change; not [validated](SteeringSettings::validated) yet.
    pub(super) fn apply(
        &self,
        settings: &SteeringSettings,
        queue_pairs: u16,
    ) -> Result<SteeringSettings, SteeringError> {
        let mut changed = *settings;
        if let Some(mode) = self.mode.filter(|_| !self.proposed || !settings.chosen) {
            changed.mode = mode;
            changed.chosen |= !self.proposed;
        }
        match self.table {
            None => {}
            Some((SteeringTable::Endpoints, change)) => apply(&mut changed.endpoints, &change, queue_pairs)?,
            Some((SteeringTable::Indirection, change)) => apply(&mut changed.indirection, &change, queue_pairs)?,
        }
        Ok(changed)
    }
}

fn apply<const LEN: usize>(
    table: &mut QueueTable<LEN>,
    change: &TableChange,
    queue_pairs: u16,
) -> Result<(), SteeringError> {
    let TableChange::Entries(entries) = change else {
        *table = QueueTable::EVEN;
        return Ok(());
    };
    let first = usize::from(entries.first());
    let even = core::array::from_fn(|index| (index % usize::from(queue_pairs)) as u8);
    let mut changed = table.0.unwrap_or(even);
    changed
        .get_mut(first..first + entries.queues().len())
        .ok_or(SteeringError::BeyondTable)?
        .copy_from_slice(entries.queues());
    *table = changed.into();
    Ok(())
}

weft_settings::errors! {
    /// The steering was not changed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum SteeringError {
        /// A table names a queue that the card does not have.
        UnknownQueue = "a steering table may only name receive queues that the card has",
        /// The entries reach beyond the end of their table.
        BeyondTable = "the endpoint table has 256 entries and the indirection table 128",
    }
}
