//! What an endpoint has carried, written when it is closed where the program's user asks for it (`FI_MX_STATISTICS`).

use std::{
    env,
    fs::OpenOptions,
    io::{self, Write},
};

use omx::Counter;

/// The variable that names the file to which each endpoint adds a line, or `-` for standard error.
const VARIABLE: &str = "FI_MX_STATISTICS";

/// The messages of an endpoint.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Statistics {
    sent_messages: u64,
    sent_bytes: u64,
    received_messages: u64,
    received_bytes: u64,
}

impl Statistics {
    pub(super) const fn sent(&mut self, len: usize) {
        self.sent_messages += 1;
        self.sent_bytes += len as u64;
    }

    pub(super) const fn received(&mut self, len: usize) {
        self.received_messages += 1;
        self.received_bytes += len as u64;
    }

    /// Writes the line of this endpoint, if it is asked for.
    pub(super) fn report(&self, endpoint: &omx::Endpoint) {
        let Ok(place) = env::var(VARIABLE) else { return };
        let own = endpoint.address();
        let counters = endpoint.counters();
        let line = format!(
            "mx process={} endpoint={}/{} sent_messages={} sent_bytes={} received_messages={} received_bytes={} resent_messages={}\n",
            std::process::id(),
            own.mac(),
            own.endpoint(),
            self.sent_messages,
            self.sent_bytes,
            self.received_messages,
            self.received_bytes,
            counters.get(Counter::ResentMessages),
        );
        let written = if place == "-" {
            io::stderr().write_all(line.as_bytes())
        } else {
            OpenOptions::new()
                .create(true)
                .append(true)
                .open(&place)
                .and_then(|mut file| file.write_all(line.as_bytes()))
        };
        if let Err(error) = written {
            eprintln!("libfabric:{}:mx: {VARIABLE}={place}: {error}", std::process::id());
        }
    }
}
