//! What a node knows of one other: its session, when it was heard of, and the frames of both directions.

use ether::{MacAddr, Time};

use crate::{receive::Receiver, transmit::Transmitter};

/// How a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// The peer was not heard of yet.
    Unknown,
    /// The peer's session is known.
    Open,
    /// The peer was removed.
    Gone,
}

/// Another node reported that the peer is gone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspicion {
    pub(crate) by: usize,
    pub(crate) since: Time,
}

/// Whether the peer has said goodbye behind its packets for this node, and behind those for all, which the card multicasts.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Goodbye {
    pub(crate) to_node: bool,
    pub(crate) to_all: bool,
}

/// HELLO frames of a link.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hello {
    /// One is to be sent.
    pub(crate) now: bool,
    /// A session that the peer may have now; it is asked whether it knows ours.
    pub(crate) challenge: u32,
    /// The peer has shown that it has another list of nodes, or another implementation.
    pub(crate) is_other: bool,
}

/// A link to another node.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) mac: MacAddr,
    pub(crate) standing: Standing,
    /// The peer's session; 0 while it is unknown.
    pub(crate) session: u32,
    pub(crate) heard_at: Time,
    /// Questions without an answer, and when the first of them was asked.
    pub(crate) probes: u32,
    pub(crate) probed_at: Time,
    pub(crate) suspicion: Option<Suspicion>,
    /// The peer launches nothing more, and all that it launched is everywhere.
    pub(crate) goodbye: Goodbye,
    /// What HELLO frames are to be sent, and what the peer's have said.
    pub(crate) hello: Hello,
    /// The peer is to answer without delay.
    pub(crate) probe_now: bool,
    /// The peer is to hear that this node was removed: the peer itself, or this one.
    pub(crate) tell_gone: Option<u8>,
    /// In the list of links with something to send.
    pub(crate) queued: bool,
    pub(crate) outward: Transmitter,
    pub(crate) inward: Receiver,
}

impl Link {
    pub(crate) fn new(mac: MacAddr) -> Self {
        Self {
            mac,
            standing: Standing::Unknown,
            session: 0,
            heard_at: Time::ZERO,
            probes: 0,
            probed_at: Time::ZERO,
            suspicion: None,
            goodbye: Goodbye::default(),
            hello: Hello::default(),
            probe_now: false,
            tell_gone: None,
            queued: false,
            outward: Transmitter::new(),
            inward: Receiver::new(),
        }
    }

    /// Whether packets for the peer are kept for it: it was not removed. One that was not heard of yet gets them when it is.
    #[inline]
    pub(crate) fn is_wanted(&self) -> bool {
        self.standing != Standing::Gone
    }

    /// Whether the peer was heard of and not removed.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.standing == Standing::Open
    }

    /// Whether there is a frame to be sent now; numbered ones only if the card, where it is used, has room for them.
    #[inline]
    pub(crate) fn is_ready(&self, has_room: bool) -> bool {
        self.hello.now
            || self.tell_gone.is_some()
            || self.is_open() && (has_room && self.outward.is_ready() || self.inward.ack_now || self.probe_now)
    }

    /// The peer was heard of.
    #[inline]
    pub(crate) fn heard(&mut self, now: Time) {
        self.heard_at = now;
        self.probes = 0;
    }
}
