//! Whether everything has arrived, for owners that are about to end.

use super::Engine;
use crate::connection::{Phase, send::Fin};

impl Engine {
    /// Whether nothing waits to be sent or acknowledged: of connections that the program has closed, the end of the stream included.
    pub fn is_delivered(&self) -> bool {
        self.answers.is_empty()
            && self.slots.iter().all(|slot| {
                let Some(connection) = self.slots.get(slot) else {
                    return true;
                };
                let has_finished = matches!(connection.send.fin, Fin::No | Fin::Acknowledged);
                connection.phase != Phase::Open
                    || connection.flags.is_frozen
                    || has_finished && connection.send.ring.is_empty()
            })
    }
}
