//! Settings of an engine, and the limits of what it keeps.

use ether::{EtherType, MacAddr};

use crate::wire::{Blocks, OVERHEAD_MAX};

/// Smallest MTU that connections can live with, in bytes behind Ethernet's header: that of IPv4.
pub const MTU_MIN: u16 = 68;
/// Most packets of a connection that are in flight, or wait for an earlier one, at a time.
pub const PACKETS_MAX: u32 = 1024;
/// Most bytes that the send buffer or the receive buffer of a connection can hold.
pub const BUFFER_MAX: u32 = 4 << 20;

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// Settings of an engine.
#[derive(Clone, Debug)]
pub struct Config {
    /// Own Ethernet address.
    pub mac: MacAddr,
    /// The EtherType of the network's ESP.
    pub ether_type: EtherType,
    /// Most bytes of a frame behind Ethernet's header.
    pub mtu: u16,
    /// What the engine proposes in handshakes.
    pub blocks: Blocks,
    /// First and last port that the engine answers a SYN from; without them, it answers from the port that the SYN was for. An authority
    /// has such ports: it gets frames for them whatever other programs listen at.
    pub handshake_ports: Option<(u16, u16)>,
    /// Bytes of a new connection that may wait to be sent and acknowledged, at most [`BUFFER_MAX`].
    pub send_buffer: u32,
    /// Bytes of a new connection that may wait to be read, at most [`BUFFER_MAX`].
    pub receive_buffer: u32,
    /// When things are due.
    pub timing: Timing,
    /// How much is kept.
    pub limits: Limits,
}

/// When things are due, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Timing {
    /// An acknowledgement waits so long for data to travel with. Several packets in order are acknowledged without waiting: two after a
    /// loss, up to sixteen when none was lost for long.
    pub ack_delay_ns: u64,
    /// Retransmission time-out before a round trip was measured.
    pub rto_initial_ns: u64,
    /// Shortest retransmission time-out (RFC 6298 has 1 s, a LAN does not need it).
    pub rto_min_ns: u64,
    /// Longest retransmission time-out: so soon a connection goes on behind a cable that is back.
    pub rto_max_ns: u64,
    /// A SYN that is not answered for so long ends the attempt.
    pub connect_give_up_ns: u64,
    /// A peer that acknowledges nothing for so long, although asked, ends the connection.
    pub give_up_ns: u64,
    /// So long the side that closed first remembers a connection: twice the longest retransmission time-out.
    pub time_wait_ns: u64,
    /// A connection that the program has closed may take so long to hear the end of the peer's stream, or to send on.
    pub fin_wait_ns: u64,
    /// A connection that was handed over is remembered for so long at its old port.
    pub moved_wait_ns: u64,
    /// Bytes that were sent without a push wait so long for more (as TCP's `MSG_MORE`).
    pub hold_ns: u64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            ack_delay_ns: MS / 5,
            rto_initial_ns: 20 * MS,
            rto_min_ns: MS,
            rto_max_ns: S,
            connect_give_up_ns: 10 * S,
            give_up_ns: 30 * S,
            time_wait_ns: 2 * S,
            fin_wait_ns: 60 * S,
            moved_wait_ns: 30 * S,
            hold_ns: 200 * MS,
        }
    }
}

/// How much is kept, whatever peers do.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections in any state. At the limit, a new half-open one replaces one of the listener that has the most of them.
    pub connections: usize,
    /// Half-open connections of one listener. The oldest is dropped for a new one: of hosts that have not finished a handshake before, if
    /// there are any.
    pub half_open: usize,
    /// Connections of one listener that wait to be accepted, whatever backlog was asked for.
    pub backlog: usize,
    /// Connections in TIME-WAIT; the oldest is forgotten for a new one.
    pub time_wait: usize,
    /// Connections that were handed over and are remembered; the oldest is forgotten for a new one.
    pub moved: usize,
    /// Bytes of all buffers of all connections. At the limit, programs cannot send, and packets that have no place are dropped.
    pub bytes: usize,
    /// Bytes of buffers that no connection uses and that are kept for the next.
    pub spare_bytes: usize,
    /// Answers that belong to no connection and wait to be sent.
    pub answers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 65_536,
            half_open: 256,
            backlog: 4_096,
            time_wait: 8_192,
            moved: 4_096,
            bytes: 1 << 30,
            spare_bytes: 16 << 20,
            answers: 256,
        }
    }
}

/// A configuration that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The MTU is below [`MTU_MIN`].
    #[error("an MTU of {0} bytes is too small: at least {MTU_MIN}")]
    Mtu(u16),
    /// A buffer is above [`BUFFER_MAX`].
    #[error("a buffer of {0} bytes is too large: at most {BUFFER_MAX}")]
    Buffer(u32),
    /// The first handshake port is 0, or behind the last.
    #[error("handshake ports {0} to {1} are no range of ports")]
    HandshakePorts(u16, u16),
    /// The shortest retransmission time-out is 0, or above the longest.
    #[error("the shortest retransmission time-out is 0 or above the longest")]
    RetransmissionTimes,
}

impl Config {
    /// The defaults for an interface.
    pub fn new(mac: MacAddr, mtu: u16) -> Self {
        Self {
            mac,
            ether_type: EtherType::ESP,
            mtu,
            blocks: Blocks {
                selective: true,
                mark: false,
                check: false,
            },
            handshake_ports: None,
            send_buffer: 512 << 10,
            receive_buffer: 1 << 20,
            timing: Timing::default(),
            limits: Limits::default(),
        }
    }

    /// Checks the values against each other.
    ///
    /// # Errors
    /// [`ConfigError`] names the value that cannot be.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.mtu < MTU_MIN {
            return Err(ConfigError::Mtu(self.mtu));
        }
        if let Some(bytes) = [self.send_buffer, self.receive_buffer]
            .into_iter()
            .find(|bytes| *bytes > BUFFER_MAX)
        {
            return Err(ConfigError::Buffer(bytes));
        }
        if let Some((first, last)) = self.handshake_ports
            && (first == 0 || first > last)
        {
            return Err(ConfigError::HandshakePorts(first, last));
        }
        if self.timing.rto_min_ns == 0 || self.timing.rto_min_ns > self.timing.rto_max_ns {
            return Err(ConfigError::RetransmissionTimes);
        }
        Ok(())
    }

    /// Most bytes of a packet at the engine's MTU.
    pub(crate) const fn payload_max(&self) -> u16 {
        self.mtu - OVERHEAD_MAX as u16
    }
}
