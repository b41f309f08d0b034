//! What tools such as `esp_ss` see of this process's connections: the thread in the background writes it, from time to time, to memory that
//! it shares with the authority.

use std::{
    fmt,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{Arc, atomic::Ordering},
};

use esp::{ConnectionId, Counter};
use ether::Time;
use weft_authority::esp::{EspConnection, RECORDS_MAX, write_report};

use crate::{
    host::{Host, now},
    mtu,
    own_fds::OwnFd,
    state::State,
};

/// The shortest time from one report to the next, in nanoseconds.
const INTERVAL_NS: u64 = 200_000_000;
/// The time from one report to the next is so many times what the report took: with thousands of connections, too, it costs 2 % of a
/// processor at most.
const COST_FACTOR: u64 = 50;
/// Connections that are looked at while calls wait for the engine.
const BATCH: usize = 32;

/// What the program calls a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) own: Option<SocketAddr>,
    pub(crate) peer: Option<SocketAddr>,
    /// The number of the program's local socket, as `fstat` says it.
    pub(crate) socket: u64,
}

impl fmt::Display for Ends {
    /// Writes it for a keeper, as [`Ends::of_line`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for address in [self.own, self.peer] {
            match address {
                Some(address) => write!(f, "{address} ")?,
                None => f.write_str("- ")?,
            }
        }
        write!(f, "{}", self.socket)
    }
}

impl Ends {
    /// Notes what the program calls a connection of a host.
    pub(crate) fn note(self, host: &Host, id: ConnectionId) {
        host.lock().connection(id).ends = Some(Box::new(self));
    }

    /// Reads what is known of a connection.
    pub(crate) fn of_line(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let mut address = || words.next().and_then(|word| word.parse().ok());
        let (own, peer) = (address(), address());
        Self {
            own,
            peer,
            socket: words.next().and_then(|word| word.parse().ok()).unwrap_or(0),
        }
    }
}

/// Writes the reports of a host.
#[derive(Debug, Default)]
pub(crate) struct Reporter {
    next: Time,
    number: u64,
    /// Calls, and frames in both directions, at the last report.
    seen: Option<(u64, u64, u64)>,
    records: Vec<u8>,
}

impl Reporter {
    /// Looks at the interface and reports if something happened since the last time and that is long enough ago; returns the nanoseconds
    /// after which it may be due again.
    pub(crate) fn turn(&mut self, host: &Host) -> Option<u64> {
        let begin = now();
        if begin < self.next {
            return Some(self.next.nanos_since(begin));
        }
        self.next = begin.plus_nanos(INTERVAL_NS);
        mtu::look_at(host);
        let state = host.lock();
        let memory = state.report.clone()?;
        let counters = state.engine.counters();
        let seen = (
            host.activity.load(Ordering::Relaxed),
            counters.of(Counter::FramesSent),
            counters.of(Counter::FramesReceived),
        );
        if self.seen.replace(seen) == Some(seen) {
            return None;
        }
        let ids: Vec<ConnectionId> = state.engine.ids().collect();
        drop(state);
        self.write(host, &memory, &ids);
        let end = now();
        self.next = end.plus_nanos(INTERVAL_NS.max(COST_FACTOR * end.nanos_since(begin)));
        Some(self.next.nanos_since(end))
    }

    fn write(&mut self, host: &Host, memory: &OwnFd, ids: &[ConnectionId]) {
        self.records.clear();
        let (shown, omitted) = ids.split_at(ids.len().min(RECORDS_MAX));
        for batch in shown.chunks(BATCH) {
            let state = host.lock();
            for connection in batch.iter().filter_map(|id| described(&state, *id)) {
                connection.put(&mut self.records);
            }
        }
        self.number = self.number.wrapping_add(2);
        // SAFETY: the memory's descriptor is open as long as `memory`.
        let fd = unsafe { BorrowedFd::borrow_raw(memory.as_raw_fd()) };
        // Without the report, tools show less.
        let _ = write_report(fd, self.number, &self.records, omitted.len());
    }
}

fn described(state: &State, id: ConnectionId) -> Option<EspConnection> {
    let info = state.engine.info(id).ok()?;
    let ends = state.connections.get(&id).and_then(|known| known.ends.as_deref());
    // While the handshake is under way, the program has no socket for it yet.
    let names = state.engine.names(id).ok().flatten();
    Some(EspConnection {
        info,
        local: ends.map_or_else(|| names.map(|names| names.source()), |ends| ends.own),
        peer: ends.map_or_else(
            || names.map(|names| SocketAddr::new(names.destination(), info.peer.port)),
            |ends| ends.peer,
        ),
        socket: ends.map_or(0, |ends| ends.socket),
    })
}

/// Has a host's reports written to this memory from now on.
pub(crate) fn go_on_in(host: &Host, memory: OwnFd) {
    host.lock().report = Some(Arc::new(memory));
    host.note_activity();
}
