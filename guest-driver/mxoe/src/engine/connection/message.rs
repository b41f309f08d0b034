//! A message that is to be sent, from posting to its end, and the lists that link such records. This module holds data
//! only.

use ether::Time;

use crate::engine::{Status, Token, seq::Seq, slab::NIL};
use crate::wire::SMALL_DATA_MAX;

/// A list threaded through the slots of a pool.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct List {
    pub head: u32,
    pub tail: u32,
}

impl List {
    pub(in crate::engine) const EMPTY: Self = Self { head: NIL, tail: NIL };

    pub(in crate::engine) const fn is_empty(&self) -> bool {
        self.head == NIL
    }

    pub(in crate::engine) const fn take(&mut self) -> Self {
        let taken = *self;
        *self = Self::EMPTY;
        taken
    }
}

/// The kinds of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Kind {
    Tiny,
    Small,
    /// `copied`: the bytes come from the caller's copy, not from the program's buffer.
    Medium {
        copied: bool,
    },
    /// The region is reserved from just before the message gets its sequence number.
    Rndv {
        region: Option<u8>,
    },
    /// `length` says how much was transferred.
    Notify {
        rdma_id: u8,
        rdma_seqnum: u8,
    },
}

/// The transmissions of a message.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Sent {
    /// How often the message was sent.
    pub times: u32,
    pub first_at: Time,
    pub last_at: Time,
}

impl Sent {
    const NEVER: Self = Self {
        times: 0,
        first_at: Time::ZERO,
        last_at: Time::ZERO,
    };
}

/// One message.
#[derive(Debug)]
pub(in crate::engine) struct Message {
    pub partner: u32,
    pub next: u32,
    pub seq: Seq,
    pub kind: Kind,
    /// The message is in the queue of frames to be sent.
    pub queued: bool,
    /// The next fragment of a medium message to be sent.
    pub cursor: u8,
    /// The message completed for the program before it was acknowledged.
    pub early: bool,
    /// The end was reported already (the message was refused); the record waits for those before it.
    pub done: bool,
    pub length: u32,
    pub match_info: u64,
    pub token: Token,
    pub sent: Sent,
    pub give_up_ns: u64,
    pub data: [u8; SMALL_DATA_MAX],
}

impl Message {
    pub(in crate::engine) const fn new(
        partner: u32,
        kind: Kind,
        token: Token,
        match_info: u64,
        length: u32,
        give_up_ns: u64,
    ) -> Self {
        Self {
            partner,
            next: NIL,
            seq: Seq(0),
            kind,
            queued: false,
            cursor: 0,
            early: false,
            done: false,
            length,
            match_info,
            token,
            sent: Sent::NEVER,
            give_up_ns,
            data: [0; SMALL_DATA_MAX],
        }
    }

    /// Returns the bytes that count against the partner's eager window.
    pub(in crate::engine) const fn eager_bytes(&self) -> u32 {
        match self.kind {
            Kind::Tiny | Kind::Small | Kind::Medium { .. } => self.length,
            Kind::Rndv { .. } | Kind::Notify { .. } => 0,
        }
    }

    /// Returns what must be known to report the end.
    pub(in crate::engine) const fn ending(&self) -> Ending {
        Ending {
            kind: self.kind,
            early: self.early,
            done: self.done,
            length: self.length,
            token: self.token,
        }
    }
}

/// The part of a message that must be known to report its end.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Ending {
    kind: Kind,
    pub early: bool,
    pub done: bool,
    pub length: u32,
    pub token: Token,
}

impl Ending {
    /// Whether the end is told: not for what the engine sends by itself, nor for the success of an inline message that
    /// completed when it was posted.
    pub(in crate::engine) fn is_reported(&self, status: Status) -> bool {
        match self.kind {
            Kind::Notify { .. } => false,
            Kind::Tiny | Kind::Small => !self.early || status != Status::Success,
            Kind::Medium { .. } | Kind::Rndv { .. } => true,
        }
    }
}
