//! Reading a card's flight recorder: switched on for one reader, emptied now and then, switched off with the reader.
//!
//! What the records mean is `firmware::recorder`'s business, and what they look like is the reader's.

use std::sync::Arc;

use super::Fabric;
use crate::dataplane::Runner;
use crate::dataplane::error::FabricError;

/// Events that a recorder has room for unless the reader says otherwise: 1.5 MiB.
pub const TRACE_EVENTS_DEFAULT: usize = 1 << 16;

/// The one reader of a card's recorder, which is on as long as this lives.
#[must_use = "dropping it ends the recording"]
pub struct TraceReader {
    runner: Arc<Runner>,
    port: usize,
    /// What time 0 of the records is, in nanoseconds since 1970.
    pub origin_unix_ns: u64,
}

impl TraceReader {
    /// Appends the records since the last call to `out`.
    pub fn take(&self, out: &mut Vec<u8>) {
        self.runner
            .with(|plane, _| plane.card(self.port).firmware_mut().drain_recorder(out));
    }
}

impl Drop for TraceReader {
    fn drop(&mut self) {
        self.runner
            .with(|plane, _| plane.card(self.port).firmware_mut().stop_recorder());
    }
}

impl Fabric {
    /// Switches the recorder of a port's card on, with room for `events`.
    ///
    /// # Errors
    /// No such port, or one whose recorder has a reader already.
    pub fn start_trace(&self, name: &str, events: usize) -> Result<TraceReader, FabricError> {
        self.runner.with(|plane, _| {
            let port = plane
                .card_index(name)
                .ok_or_else(|| FabricError::NoSuchPort(name.to_owned()))?;
            if plane.cards()[port].firmware().is_recording() {
                return Err(FabricError::Traced(name.to_owned()));
            }
            plane.card(port).firmware_mut().start_recorder(events);
            Ok(TraceReader {
                runner: Arc::clone(&self.runner),
                port,
                origin_unix_ns: plane.origin_unix_ns,
            })
        })
    }
}
