//! What the engine tells its owner.

use crate::{ConnectionId, Reason};

/// Something happened to a connection or a listener. Events of a connection come in this order when there are several; one that was
/// not taken yet is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// A connection waits at the listener of this port: [`crate::Engine::accept`].
    Incoming {
        /// The port that is listened at.
        port: u16,
    },
    /// An attempt to connect has succeeded.
    Connected(ConnectionId),
    /// Bytes came that can be read, whether or not others wait already: what an edge-triggered `epoll` needs.
    Readable(ConnectionId),
    /// There is room to send again, after a call found too little.
    Writable(ConnectionId),
    /// The peer's stream has ended; what is there can still be read.
    PeerFinished(ConnectionId),
    /// The connection that was attached is known to the peer at its new port.
    Settled(ConnectionId),
    /// The connection is over; what is there can still be read. It stays until [`crate::Engine::close`].
    Closed {
        /// Which connection.
        id: ConnectionId,
        /// Why.
        reason: Reason,
    },
}

pub(crate) const CONNECTED: u8 = 1;
pub(crate) const READABLE: u8 = 2;
pub(crate) const WRITABLE: u8 = 4;
pub(crate) const PEER_FINISHED: u8 = 8;
pub(crate) const SETTLED: u8 = 16;
pub(crate) const CLOSED: u8 = 32;
