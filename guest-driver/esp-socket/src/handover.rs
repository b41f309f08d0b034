//! How connections come to a host, and leave it.

use std::net::SocketAddr;

use esp::{Address, ConnectionId, Handover, Options, wire::Names};
use ether::{MacAddr, Time};
use weft_authority::esp::BLOCK_PORTS;

use crate::{
    connection::Connection,
    host::{Host, State, now},
    own_fds,
};

/// The interval in which the end of a process looks whether its last bytes were acknowledged.
const DELIVERY_LOOK_NS: u64 = 5_000_000;
/// So long a process waits for a peer to learn a connection's port.
const SETTLE_LIMIT_NS: u64 = 2_000_000_000;
/// A peer that was silent for so long is asked whether it is there, in nanoseconds: the kernel ends the connections of a program that is
/// killed, and this is how the peers of ours notice.
const KEEP_ALIVE_NS: u64 = 10_000_000_000;

fn options() -> Options {
    Options {
        keep_alive_ns: Some(KEEP_ALIVE_NS),
        ..Options::default()
    }
}

impl Host {
    /// Begins to connect to a peer; `None` if there can be no more connections.
    pub(crate) fn connect(&self, mac: MacAddr, own: SocketAddr, peer: SocketAddr) -> Option<ConnectionId> {
        let address = Address { mac, port: peer.port() };
        let options = Options {
            names: Some(peer.ip())
                .filter(|ip| !ip.is_unspecified())
                .and_then(|ip| Names::new(own, ip)),
            ..options()
        };
        self.at_a_port(|state, port, now| state.engine.connect(port, address, options, now))
    }

    /// Takes a connection over from the authority or another process.
    pub(crate) fn attach(&self, handover: &[u8]) -> Option<ConnectionId> {
        let handover = Handover::from_bytes(handover).ok()?;
        let id = self.at_a_port(|state, port, now| state.engine.attach(handover.clone(), port, options(), now))?;
        self.run(|state, _| state.connection(id).is_connected = true);
        Some(id)
    }

    /// Tries one wire port after the other.
    fn at_a_port(
        &self,
        mut make: impl FnMut(&mut State, u16, Time) -> Result<ConnectionId, esp::Error>,
    ) -> Option<ConnectionId> {
        self.run(|state, now| {
            for _ in 0..BLOCK_PORTS {
                let port = self.first_port + state.next_port;
                state.next_port = (state.next_port + 1) % BLOCK_PORTS;
                match make(state, port, now) {
                    Ok(id) => {
                        state.connections.insert(id, Connection::default());
                        return Some(id);
                    }
                    Err(esp::Error::InUse) => {}
                    Err(_) => return None,
                }
            }
            None
        })
    }

    /// Waits until the peer knows the port at which a connection is. A connection must not move twice before: the peer finds it by the
    /// port that it knows.
    pub(crate) fn await_settled(&self, id: ConnectionId) {
        let begin = now();
        loop {
            let seen = self.changes();
            let is_settled = self.run(|state, _| state.connection(id).is_settled || state.connection(id).is_ended);
            let waited = now().nanos_since(begin);
            if is_settled || waited >= SETTLE_LIMIT_NS {
                return;
            }
            // A signal only makes it look once more.
            let _ = self.sleep(
                seen,
                &[id],
                &mut Vec::new(),
                Some(SETTLE_LIMIT_NS - waited),
                std::ptr::null(),
            );
        }
    }

    /// Takes a connection out of the engine, for another process; the pair that shows its state is as it was made.
    pub(crate) fn take_out(&self, id: ConnectionId) -> Option<Vec<u8>> {
        self.await_settled(id);
        self.run(|state, now| {
            if let Some(mirror) = state.connection(id).mirror.take() {
                mirror.clear();
            }
            state.connections.remove(&id);
            state.engine.detach(id, None, now).ok()
        })
        .map(|handover| handover.to_bytes())
    }

    /// Copies a connection out of the engine of the parent process, of which this one has a copy.
    pub(crate) fn detach_copy(&self, id: ConnectionId) -> Option<Vec<u8>> {
        let mut state = self.lock();
        let now = now();
        let _ = state.engine.thaw(id, now);
        let handover = state.engine.detach(id, None, now).ok()?;
        state.connections.remove(&id);
        Some(handover.to_bytes())
    }

    /// Closes the parent's port in a forked child.
    pub(crate) fn drop_port(&self) {
        own_fds::release(self.packet_fd());
        self.lock().port.close();
    }

    /// Waits until what the program sent is acknowledged, on connections that it closed too.
    pub(crate) fn deliver(&self, deadline: Time) {
        loop {
            let seen = self.changes();
            let (is_done, time) = self.run(|state, now| (state.engine.is_delivered(), now));
            if is_done || time >= deadline {
                return;
            }
            let left = deadline.nanos_since(time);
            // A signal only makes it look once more.
            let _ = self.sleep(
                seen,
                &[],
                &mut Vec::new(),
                Some(left.min(DELIVERY_LOOK_NS)),
                std::ptr::null(),
            );
        }
    }
}
