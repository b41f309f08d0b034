//! A connection and a listener as `esp_ss` shows them.

use std::net::SocketAddr;

use esp::{Info, State};
use serde::Serialize;
use weft_authority::esp::{EspConnection, EspListening};

use super::holders::{Holder, Holders};

/// Whether it is shown without `-a`: `ss`, too, leaves out what is over.
pub(super) fn is_open(connection: &EspConnection) -> bool {
    !matches!(connection.info.state, State::Closed | State::TimeWait)
}

/// The name that `ss` has for a state.
const fn name_of(state: State) -> &'static str {
    match state {
        State::SynSent => "SYN-SENT",
        State::SynReceived => "SYN-RECV",
        State::Established => "ESTAB",
        State::FinWait1 => "FIN-WAIT-1",
        State::FinWait2 => "FIN-WAIT-2",
        State::CloseWait => "CLOSE-WAIT",
        State::Closing => "CLOSING",
        State::LastAck => "LAST-ACK",
        State::TimeWait => "TIME-WAIT",
        State::Closed => "UNCONN",
    }
}

/// Milliseconds with as many digits as are known.
fn ms(ns: u64) -> f64 {
    (ns as f64 / 1e3).round() / 1e3
}

/// How long answers take, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RoundTrip {
    pub(super) rto_ms: f64,
    pub(super) rtt_ms: f64,
    pub(super) rtt_var_ms: f64,
    pub(super) min_rtt_ms: f64,
}

/// What was sent and received.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Traffic {
    pub(super) bytes_sent: u64,
    pub(super) bytes_acked: u64,
    pub(super) bytes_received: u64,
    pub(super) segs_out: u64,
    pub(super) segs_in: u64,
    /// `None` before the first one.
    pub(super) last_sent_ms: Option<u64>,
    pub(super) last_received_ms: Option<u64>,
    /// Time-outs in a row.
    pub(super) retrans_now: u8,
    /// Packets sent again.
    pub(super) retrans: u64,
    pub(super) out_of_order: usize,
}

/// What may be sent: bytes of a packet, and packets for the network and for the peer.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Windows {
    pub(super) mss: u16,
    pub(super) cwnd: u32,
    pub(super) peer_wnd: u32,
}

/// Where its ends are.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ends {
    pub(super) interface: String,
    /// Where an address is not known, the Ethernet address and the port on the wire.
    pub(super) local: String,
    pub(super) peer: String,
    pub(super) peer_mac: String,
    /// The ports on the wire.
    pub(super) wire_ports: [u16; 2],
}

/// A connection.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Connection {
    pub(super) state: &'static str,
    pub(super) recv_q: usize,
    pub(super) send_q: usize,
    #[serde(flatten)]
    pub(super) ends: Ends,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) users: Option<Vec<Holder>>,
    #[serde(flatten)]
    pub(super) round_trip: RoundTrip,
    #[serde(flatten)]
    pub(super) windows: Windows,
    #[serde(flatten)]
    pub(super) traffic: Traffic,
    /// After a fork: no process has used it yet.
    pub(super) frozen: bool,
    /// The peer does not know its port yet.
    pub(super) moving: bool,
}

/// An end of a connection: the program's address, or what the wire has.
fn end(address: Option<SocketAddr>, wire: impl FnOnce() -> String) -> String {
    address.map_or_else(wire, |address| address.to_string())
}

fn since(now_ns: u64, then_ns: u64) -> Option<u64> {
    (then_ns != 0).then(|| now_ns.saturating_sub(then_ns) / 1_000_000)
}

impl Connection {
    pub(super) fn new(interface: &str, connection: &EspConnection, now_ns: u64, holders: &Holders) -> Self {
        let info: &Info = &connection.info;
        Self {
            state: name_of(info.state),
            recv_q: info.unread,
            send_q: info.unsent.saturating_add(info.unacknowledged),
            ends: Ends {
                interface: interface.to_owned(),
                local: end(connection.local, || format!("*:{}", info.local_port)),
                peer: end(connection.peer, || format!("[{}]:{}", info.peer.mac, info.peer.port)),
                peer_mac: info.peer.mac.to_string(),
                wire_ports: [info.local_port, info.peer.port],
            },
            users: holders.of(connection.socket),
            round_trip: RoundTrip {
                rto_ms: ms(info.timeout_ns),
                rtt_ms: ms(info.round_trip_ns),
                rtt_var_ms: ms(info.round_trip_variation_ns),
                min_rtt_ms: ms(info.round_trip_min_ns),
            },
            windows: Windows {
                mss: info.payload_max,
                cwnd: info.congestion_window,
                peer_wnd: info.peer_window,
            },
            traffic: Traffic {
                bytes_sent: info.bytes_sent,
                bytes_acked: info.bytes_sent.saturating_sub(info.unacknowledged as u64),
                bytes_received: info.bytes_received,
                segs_out: info.packets_sent,
                segs_in: info.packets_received,
                last_sent_ms: since(now_ns, info.sent_at.as_nanos()),
                last_received_ms: since(now_ns, info.heard_at.as_nanos()),
                retrans_now: info.backoff,
                retrans: info.retransmitted,
                out_of_order: info.out_of_order,
            },
            frozen: info.is_frozen,
            moving: info.is_moving,
        }
    }

    /// By what connections are sorted.
    pub(super) fn key(&self) -> (String, String, String) {
        (
            self.ends.interface.clone(),
            self.ends.local.clone(),
            self.ends.peer.clone(),
        )
    }
}

/// A listener.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Listener {
    pub(super) interface: String,
    pub(super) local: String,
    pub(super) only_v6: bool,
    /// Connections that its program has not accepted.
    pub(super) unclaimed: usize,
    pub(super) half_open: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) users: Option<Vec<Holder>>,
}

impl Listener {
    pub(super) fn new(interface: &str, listening: &EspListening, holders: &Holders) -> Self {
        Self {
            interface: interface.to_owned(),
            local: listening.address.to_string(),
            only_v6: listening.only_v6,
            unclaimed: listening.unclaimed,
            half_open: listening.half_open,
            users: holders.program(listening.pid),
        }
    }
}
