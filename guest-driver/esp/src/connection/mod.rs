//! One connection. Each half has its own state; this is what they have in common.

mod closing;
pub(crate) mod congestion;
mod due;
mod handshake;
mod owed;
mod packets;
pub(crate) mod receive;
pub(crate) mod rtt;
pub(crate) mod send;
pub(crate) mod shared;
mod stream;
mod transmit;

use alloc::boxed::Box;

use ether::{MacAddr, Time};

use self::{
    receive::ReceiveHalf,
    rtt::Rtt,
    send::{Fin, SendHalf},
};
use crate::{
    Address, Reason,
    table::Key,
    wire::{Blocks, Names},
};

/// The state of a connection, with TCP's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// A SYN was sent.
    SynSent,
    /// A SYN came, and was answered.
    SynReceived,
    /// Both sides can send.
    Established,
    /// This side has closed; the peer has not acknowledged it.
    FinWait1,
    /// This side has closed, and the peer knows.
    FinWait2,
    /// The peer has closed; this side can still send.
    CloseWait,
    /// Both have closed at the same time.
    Closing,
    /// The peer has closed first, and does not know yet that this side has, too.
    LastAck,
    /// Both have closed; late packets are still answered.
    TimeWait,
    /// It is over.
    Closed,
}

/// The parts of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    SynSent,
    SynReceived,
    /// Established, or closing.
    Open,
    TimeWait,
    Closed(Reason),
    /// It lives in another engine, at this port of the host if it is known.
    Away(Option<u16>),
}

/// What a connection has to say beside its stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags {
    /// The program has no name for it any more.
    pub(crate) is_orphan: bool,
    pub(crate) is_frozen: bool,
    /// It is in the queue of those with something to send.
    pub(crate) is_queued: bool,
    /// A listener made it, and the program has not accepted it.
    pub(crate) is_incoming: bool,
    /// It is among those with events.
    pub(crate) has_events: bool,
    /// SYN, SYN+ACK or *moved* is to be sent now.
    pub(crate) control_now: bool,
    pub(crate) probe_now: bool,
    /// The SYN was sent more than once.
    pub(crate) is_control_repeated: bool,
    /// A call found no room to send.
    pub(crate) wants_room: bool,
    /// This side closed first.
    pub(crate) closed_first: bool,
    /// Its key is in the table.
    pub(crate) is_known: bool,
}

/// When something is due; [`Time::MAX`] for never.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    pub(crate) retransmit: Time,
    pub(crate) ack: Time,
    /// The end of TIME-WAIT, of a wait for the peer's end, or of the memory of a connection that has moved.
    pub(crate) linger: Time,
    /// A question whether the peer is still there.
    pub(crate) keep_alive: Time,
    /// Bytes that wait for more are to go.
    pub(crate) hold: Time,
}

impl Due {
    pub(crate) const NEVER: Self = Self {
        retransmit: Time::MAX,
        ack: Time::MAX,
        linger: Time::MAX,
        keep_alive: Time::MAX,
        hold: Time::MAX,
    };

    #[inline]
    pub(crate) fn first(&self) -> Time {
        self.retransmit
            .min(self.ack)
            .min(self.linger)
            .min(self.keep_alive)
            .min(self.hold)
    }
}

/// Figures of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) bytes_sent: u64,
    pub(crate) bytes_received: u64,
    pub(crate) packets_sent: u64,
    pub(crate) packets_received: u64,
    pub(crate) retransmitted: u64,
}

/// Where the two ends of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub(crate) peer: MacAddr,
    pub(crate) peer_port: u16,
    pub(crate) local_port: u16,
    /// The port that the SYN was for.
    pub(crate) listened_port: u16,
    /// The port that the connection has moved from, until the peer knows.
    pub(crate) moving_from: Option<u16>,
}

/// What the handshake has agreed on.
#[derive(Debug, Default)]
pub(crate) struct Terms {
    pub(crate) instance: u64,
    pub(crate) peer_instance: u64,
    pub(crate) blocks: Blocks,
    /// What the program that connects calls both ends.
    pub(crate) names: Option<Box<Names>>,
    /// Most bytes of a packet that the peer takes.
    pub(crate) peer_payload_max: u16,
}

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) ends: Ends,
    pub(crate) terms: Terms,
    pub(crate) phase: Phase,
    pub(crate) flags: Flags,
    pub(crate) events: u8,
    pub(crate) send: SendHalf,
    pub(crate) receive: ReceiveHalf,
    pub(crate) rtt: Rtt,
    pub(crate) due: Due,
    /// Since when the peer owes an answer.
    pub(crate) waiting_since: Option<Time>,
    /// When the SYN was sent.
    pub(crate) control_sent_at: Time,
    /// When a packet was sent last.
    pub(crate) sent: Time,
    /// When the peer was heard of last.
    pub(crate) heard: Time,
    /// After so long a silence the peer is asked whether it is there; 0 for never.
    pub(crate) keep_alive_ns: u64,
    pub(crate) tally: Tally,
}

impl Connection {
    pub(crate) fn new(address: Address, local_port: u16, phase: Phase) -> Self {
        Self {
            ends: Ends {
                peer: address.mac,
                peer_port: address.port,
                local_port,
                listened_port: 0,
                moving_from: None,
            },
            terms: Terms::default(),
            phase,
            flags: Flags::default(),
            events: 0,
            send: SendHalf::default(),
            receive: ReceiveHalf::default(),
            rtt: Rtt::default(),
            due: Due::NEVER,
            waiting_since: None,
            control_sent_at: Time::ZERO,
            sent: Time::ZERO,
            heard: Time::ZERO,
            keep_alive_ns: 0,
            tally: Tally::default(),
        }
    }

    #[inline]
    pub(crate) const fn key(&self) -> Key {
        Key {
            mac: self.ends.peer,
            peer_port: self.ends.peer_port,
            local_port: self.ends.local_port,
        }
    }

    /// The key of the SYN that began it.
    pub(crate) const fn listened_key(&self) -> Key {
        Key {
            local_port: self.ends.listened_port,
            ..self.key()
        }
    }

    pub(crate) fn state(&self) -> State {
        match self.phase {
            Phase::SynSent => State::SynSent,
            Phase::SynReceived => State::SynReceived,
            Phase::TimeWait => State::TimeWait,
            Phase::Closed(_) | Phase::Away(_) => State::Closed,
            Phase::Open => match (self.send.fin, self.receive.is_finished()) {
                (Fin::No, false) => State::Established,
                (Fin::No, true) => State::CloseWait,
                (Fin::Acknowledged, _) => State::FinWait2,
                (_, false) => State::FinWait1,
                (_, true) if self.flags.closed_first => State::Closing,
                (_, true) => State::LastAck,
            },
        }
    }

    /// Whether it has something to send now.
    #[inline]
    pub(crate) fn has_output(&self) -> bool {
        if self.flags.is_frozen {
            return false;
        }
        match self.phase {
            Phase::Open if self.ends.moving_from.is_none() => {
                self.receive.ack_now || self.flags.probe_now || self.send.is_ready()
            }
            Phase::Open | Phase::SynSent | Phase::SynReceived => self.flags.control_now,
            Phase::TimeWait => self.receive.ack_now,
            Phase::Closed(_) | Phase::Away(_) => false,
        }
    }
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Its state.
    pub state: State,
    /// Why it is over, if it is.
    pub reason: Option<Reason>,
    /// The peer's Ethernet address and port.
    pub peer: Address,
    /// The own port.
    pub local_port: u16,
    /// The port that the SYN was for.
    pub listened_port: u16,
    /// Whether it is frozen.
    pub is_frozen: bool,
    /// Whether the peer does not know the own port yet.
    pub is_moving: bool,
    /// Bytes that wait to be read.
    pub unread: usize,
    /// Bytes that wait to be sent.
    pub unsent: usize,
    /// Bytes that were sent and not acknowledged.
    pub unacknowledged: usize,
    /// Most bytes of a packet that are sent.
    pub payload_max: u16,
    /// Smoothed round trip in ns, 0 before one was measured.
    pub round_trip_ns: u64,
    /// Variation of the round trip in ns.
    pub round_trip_variation_ns: u64,
    /// Shortest round trip in ns.
    pub round_trip_min_ns: u64,
    /// The present retransmission time-out in ns.
    pub timeout_ns: u64,
    /// Time-outs in a row.
    pub backoff: u8,
    /// The congestion window, in packets.
    pub congestion_window: u32,
    /// Packets that the peer takes beyond those acknowledged.
    pub peer_window: u32,
    /// Packets that came before an earlier one and wait.
    pub out_of_order: usize,
    /// Bytes sent, without retransmissions.
    pub bytes_sent: u64,
    /// Bytes received in order.
    pub bytes_received: u64,
    /// Packets sent, of every kind.
    pub packets_sent: u64,
    /// Packets received and taken.
    pub packets_received: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// When a packet was sent last, [`Time::ZERO`] before the first one.
    pub sent_at: Time,
    /// When the peer was heard of last.
    pub heard_at: Time,
}
