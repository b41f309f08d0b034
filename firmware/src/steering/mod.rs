//! Which receive queue an arriving frame goes to (`papers.md` M-GF9): MXoE by the endpoint it is for, IP by its flow.
//!
//! The choice, its settings and its tables are here. A frame's bytes are read by `mxoe_header` and `toeplitz`; rings, and which of them are
//! ready, are the driver's business.

mod queue_table;
mod settings;
mod toeplitz;

pub use queue_table::QueueTable;
pub use settings::{
    ENDPOINTS, INDIRECTION_LEN, SteeringChange, SteeringError, SteeringMode, SteeringSettings, SteeringSettingsChange,
    SteeringTable, TABLE_ENTRIES_MAX, TableChange, TableEntries, UnknownSteeringMode,
};
pub use toeplitz::flow_hash;

use crate::mxoe_header::{destination_endpoint, is_mxoe};

/// How many frames were steered by which rule, while at least two queues were ready; with fewer nothing is decided or counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SteeringCounters {
    /// MXoE frames that went to the queue of the endpoint they are for.
    pub by_endpoint: u64,
    /// IP frames that went to the queue of their flow.
    pub by_flow: u64,
    /// Frames that went to the first queue because they belong to neither an endpoint nor a flow, or steering is off.
    pub to_first: u64,
}

/// The steering of one card.
#[derive(Clone, Debug)]
pub struct Steering {
    settings: SteeringSettings,
    queue_pairs: u16,
    /// Bit *n*: queue *n* is ready.
    ready: u64,
    /// How many bits that is.
    ready_count: u32,
    /// The ready queue of the lowest number; without meaning if there is none.
    first: u8,
    /// For each endpoint a queue that is ready, while there is one.
    endpoint_queues: [u8; ENDPOINTS],
    /// For each entry of the indirection table a queue that is ready, while there is one.
    flow_queues: [u8; INDIRECTION_LEN],
    counters: SteeringCounters,
}

impl Steering {
    /// Steering of a card with so many receive queues, none of which is ready; by flow, everything spread evenly.
    pub(crate) fn new(queue_pairs: u16) -> Self {
        Self {
            settings: SteeringSettings::DEFAULT,
            queue_pairs,
            ready: 0,
            ready_count: 0,
            first: 0,
            endpoint_queues: [0; ENDPOINTS],
            flow_queues: [0; INDIRECTION_LEN],
            counters: SteeringCounters::default(),
        }
    }

    /// The receive queue for a frame that arrives, or `None` if none is ready. `header` are the first bytes of the frame,
    /// [`INLINE_HEADER_LEN`](crate::INLINE_HEADER_LEN) are enough.
    #[inline]
    pub fn queue(&mut self, header: &[u8]) -> Option<u16> {
        match self.ready_count {
            0 => None,
            1 => Some(self.first.into()),
            _ => Some(self.steer(header).into()),
        }
    }

    #[inline]
    fn steer(&mut self, header: &[u8]) -> u8 {
        match self.settings.mode {
            SteeringMode::Endpoint if is_mxoe(header) => {
                if let Some(endpoint) = destination_endpoint(header) {
                    self.counters.by_endpoint += 1;
                    return self.endpoint_queues[usize::from(endpoint)];
                }
            }
            SteeringMode::Endpoint | SteeringMode::Flow => {
                if let Some(hash) = flow_hash(header) {
                    self.counters.by_flow += 1;
                    return self.flow_queues[hash as usize % INDIRECTION_LEN];
                }
            }
            SteeringMode::Off => {}
        }
        self.counters.to_first += 1;
        self.first
    }

    /// Which queues are ready to take frames: bit *n* stands for queue *n*. To be told whenever that changes; queues that the
    /// card does not have are none.
    pub fn set_ready(&mut self, queues: u64) {
        let existing = u64::MAX >> (u64::BITS - u32::from(self.queue_pairs).clamp(1, u64::BITS));
        let ready = queues & existing;
        if ready != self.ready {
            self.ready = ready;
            self.resolve();
        }
    }

    /// How many queues are ready.
    pub fn ready_queues(&self) -> u16 {
        self.ready_count as u16
    }

    /// Number of receive queues, ready or not.
    pub fn queue_pairs(&self) -> u16 {
        self.queue_pairs
    }

    /// The settings in use.
    pub fn settings(&self) -> &SteeringSettings {
        &self.settings
    }

    /// The queue of each endpoint or of each entry of the indirection table now: what the settings say, as far as those
    /// queues are ready. All 0 while none is.
    pub fn table(&self, table: SteeringTable) -> &[u8] {
        match table {
            SteeringTable::Endpoints => &self.endpoint_queues,
            SteeringTable::Indirection => &self.flow_queues,
        }
    }

    /// What was counted since the card was made.
    pub fn counters(&self) -> SteeringCounters {
        self.counters
    }

    /// Replaces the settings; they hold from the next frame on.
    ///
    /// # Errors
    /// A queue that the card does not have; then nothing is changed.
    pub fn set(&mut self, settings: SteeringSettings) -> Result<(), SteeringError> {
        self.settings = settings.validated(self.queue_pairs)?;
        self.resolve();
        Ok(())
    }

    /// Changes some of the settings; they hold from the next frame on. A mode that is only proposed is left out if one was
    /// chosen.
    ///
    /// # Errors
    /// A queue that the card does not have, or entries beyond the end of the table; then nothing is changed.
    pub fn change(&mut self, change: &SteeringChange) -> Result<(), SteeringError> {
        self.set(change.apply(&self.settings, self.queue_pairs)?)
    }

    /// Fills the tables that are read per frame, so that no frame can go to a queue that is not ready.
    fn resolve(&mut self) {
        let mut queues = [0; u64::BITS as usize];
        let mut count = 0;
        for queue in (0..u64::BITS as u8).filter(|queue| self.ready & 1 << queue != 0) {
            queues[count] = queue;
            count += 1;
        }
        self.ready_count = count as u32;
        self.first = queues[0];
        let queues = &queues[..count.max(1)];
        let ready = self.ready;
        let fill = |table: &mut [u8], settings: Option<&[u8]>| {
            for (index, entry) in table.iter_mut().enumerate() {
                *entry = match settings.map(|settings| settings[index]) {
                    Some(queue) if ready & 1 << queue != 0 => queue,
                    Some(queue) => queues[usize::from(queue) % queues.len()],
                    None => queues[index % queues.len()],
                };
            }
        };
        fill(&mut self.endpoint_queues, self.settings.endpoints.get());
        fill(&mut self.flow_queues, self.settings.indirection.get());
    }
}
