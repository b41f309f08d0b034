//! Whether everything has arrived, for owners that are about to end.

use alloc::vec::Vec;

use ether::Time;

use super::Engine;
use crate::{
    Counter, Handover,
    connection::{Connection, Phase, send::Fin},
};

/// Whether something of a connection waits to be sent or acknowledged.
fn waits(connection: &Connection) -> bool {
    let has_finished = matches!(connection.send.fin, Fin::No | Fin::Acknowledged);
    let is_delivered = has_finished && connection.send.ring.is_empty();
    connection.phase == Phase::Open && !connection.flags.is_frozen && !is_delivered
}

impl Engine {
    /// Whether nothing waits to be sent or acknowledged: of connections that the program has closed, the end of the stream included.
    pub fn is_delivered(&self) -> bool {
        let connections = || self.slots.iter().filter_map(|slot| self.slots.get(slot));
        self.answers.is_empty() && !connections().any(waits)
    }

    /// Takes the connections out that the program has closed and whose last bytes, or end, were not acknowledged so far: for an engine
    /// that lives longer. There they are closed again as soon as they are attached. As [`detach`](Self::detach) otherwise.
    pub fn detach_undelivered(&mut self, now: Time) -> Vec<Handover> {
        let is_left = |connection: &Connection| connection.flags.is_orphan && waits(connection);
        let slots: Vec<u32> = self
            .slots
            .iter()
            .filter(|slot| self.slots.get(*slot).is_some_and(is_left))
            .collect();
        let mut handovers = Vec::new();
        for slot in slots {
            if let Some(connection) = self.slots.get(slot) {
                handovers.push(Handover::of(connection));
                self.shared.counters.count(Counter::HandedOver);
                self.send_away(self.slots.id(slot), None, now);
            }
        }
        handovers
    }
}
