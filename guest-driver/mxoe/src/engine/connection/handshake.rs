//! The handshake sends and repeats connect requests, settles what both ends agree on, and notices peers with different
//! settings (4, 17).

use alloc::vec::Vec;

use ether::{MacAddr, Time};

use super::conversation::Abilities;
use crate::{
    engine::{Config, Counter, Event, Status, Token, slab::Slab, timers::Timers},
    wire::{Connect, ConnectKind, Extension, SESSION_NONE},
};

/// At most this many peers with different settings are reported; later ones are only counted.
const MISMATCHES_MAX: usize = 64;

/// A connect without an answer.
#[derive(Debug)]
struct Pending {
    partner: u32,
    key: u32,
    token: Token,
    connect_seqnum: u8,
    sends: u32,
    first_sent: Time,
    posted: Time,
    give_up_ns: u64,
    order: u64,
}

/// A connect as a program asks for it.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Wanted {
    pub partner: u32,
    pub key: u32,
    pub token: Token,
    /// The number of the request, which its reply repeats.
    pub connect_seqnum: u8,
    pub give_up_ns: u64,
}

/// Names a connect for as long as it has no answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct ConnectId {
    slot: u32,
    generation: u32,
}

/// The packet that is sent for a connect.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Request {
    pub partner: u32,
    pub key: u32,
    pub connect_seqnum: u8,
}

/// A connect whose time has come.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) enum Due {
    /// The request is repeated.
    Again(ConnectId),
    /// The partner is given up.
    GivenUp { partner: u32 },
}

/// A connect that was answered.
#[derive(Clone, Copy, Debug)]
pub(in crate::engine) struct Answered {
    pub token: Token,
    /// How long the answer took, in nanoseconds, if the request was sent once.
    pub took_ns: Option<u64>,
}

/// The agreement of both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Agreement {
    /// Both ends can talk to each other, with these abilities.
    Abilities(Abilities),
    /// Both ends announce their settings, which differ.
    Mismatch {
        /// What this end announces.
        own: Extension,
        /// What the peer announced.
        theirs: Extension,
    },
}

/// The answer to a CONNECT that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum RequestVerdict {
    /// The request is accepted.
    Accept(Abilities),
    /// The request is refused.
    Refuse {
        counter: Counter,
        mismatch: Option<(Extension, Extension)>,
    },
    /// The request is dropped and counted.
    Drop(Counter),
}

impl Agreement {
    /// Finds what two ends agree on that announce this.
    fn of(own: Option<Extension>, theirs: Option<Extension>) -> Self {
        let (Some(own), Some(theirs)) = (own, theirs) else {
            // The peer is foreign, or one of us announces nothing.
            return Self::Abilities(Abilities {
                marks: false,
                short_acks: false,
                is_foreign: true,
            });
        };
        if own.preset != theirs.preset || own.block_frames_log2 != theirs.block_frames_log2 {
            return Self::Mismatch { own, theirs };
        }
        Self::Abilities(Abilities {
            marks: own.understands_mark() && theirs.understands_mark(),
            short_acks: own.acknowledges_early() && theirs.acknowledges_early(),
            is_foreign: false,
        })
    }
}

impl RequestVerdict {
    /// Decides about a request.
    pub(in crate::engine) fn of(config: &Config, connect: &Connect, key: u32) -> Self {
        let own = config.extension.filter(|_| connect.extension.is_some());
        let abilities = match Agreement::of(own, connect.extension) {
            Agreement::Abilities(abilities) => abilities,
            Agreement::Mismatch { own, theirs } => {
                return Self::Refuse {
                    counter: Counter::DropConnectMismatch,
                    mismatch: Some((own, theirs)),
                };
            }
        };
        if key != config.key {
            return Self::Refuse {
                counter: Counter::DropConnectBadKey,
                mismatch: None,
            };
        }
        if connect.src_session == SESSION_NONE {
            return Self::Drop(Counter::DropBadSession);
        }
        Self::Accept(abilities)
    }
}

/// Reads a reply; `None`: it makes no sense.
pub(in crate::engine) fn reply_says(
    own: Option<Extension>,
    connect: &Connect,
    session: u32,
    status: u8,
) -> Option<(Status, Agreement)> {
    let agreement = Agreement::of(own, connect.extension);
    let outcome = match (status, agreement) {
        (_, Agreement::Mismatch { .. }) => Status::BadConnection,
        (ConnectKind::STATUS_SUCCESS, _) if session != SESSION_NONE => Status::Success,
        (ConnectKind::STATUS_BAD_KEY, _) => Status::BadKey,
        _ => return None,
    };
    Some((outcome, agreement))
}

/// The connects of an endpoint.
#[derive(Debug)]
pub(in crate::engine) struct Handshake {
    pending: Slab<Pending>,
    timers: Timers,
    order_next: u64,
    /// The peers whose different settings were reported.
    mismatches: Vec<MacAddr>,
}

impl Handshake {
    pub(in crate::engine) fn new(limit: u32) -> Self {
        Self {
            pending: Slab::new(limit),
            timers: Timers::default(),
            order_next: 0,
            mismatches: Vec::new(),
        }
    }

    /// Whether every connect was answered.
    pub(in crate::engine) const fn is_idle(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether no connect can be added.
    pub(in crate::engine) const fn is_full(&self) -> bool {
        self.pending.is_full()
    }

    /// Returns when a connect is due; [`Time::MAX`] if none is.
    #[inline]
    pub(in crate::engine) fn poll_timeout(&self) -> Time {
        self.timers.next()
    }

    /// Returns the memory in use, in bytes.
    pub(in crate::engine) fn memory(&self) -> usize {
        self.pending.memory() + self.timers.memory()
    }

    /// Adds a connect; `None` at the limit. [`Handshake::asked`] follows when its request is to be sent.
    pub(in crate::engine) fn connect(&mut self, now: Time, wanted: Wanted) -> Option<ConnectId> {
        let pending = Pending {
            partner: wanted.partner,
            key: wanted.key,
            token: wanted.token,
            connect_seqnum: wanted.connect_seqnum,
            sends: 0,
            first_sent: now,
            posted: now,
            give_up_ns: wanted.give_up_ns,
            order: self.order_next,
        };
        self.order_next += 1;
        let slot = self.pending.insert(pending)?;
        Some(ConnectId {
            slot,
            generation: self.pending.generation(slot),
        })
    }

    /// Notes that the request of a connect is about to be sent, and sets the time to repeat it.
    pub(in crate::engine) fn asked(&mut self, now: Time, id: ConnectId, resend_ns: u64) {
        let pending = self.pending.get(id.slot);
        let end = pending.map_or(Time::MAX, |pending| pending.posted.plus_nanos(pending.give_up_ns));
        let again = now.plus_nanos(resend_ns);
        self.timers.at_latest(id.slot, again.min(end));
    }

    /// Returns the request to be sent for a connect at `now`; `None`: the connect is over.
    pub(in crate::engine) fn poll_request(&mut self, now: Time, id: ConnectId) -> Option<Request> {
        if !self.pending.is_current(id.slot, id.generation) {
            return None;
        }
        let pending = self.pending.get_mut(id.slot)?;
        if pending.sends == 0 {
            pending.first_sent = now;
        }
        pending.sends += 1;
        Some(Request {
            partner: pending.partner,
            key: pending.key,
            connect_seqnum: pending.connect_seqnum,
        })
    }

    /// Finds the connect to a partner that has this number.
    pub(in crate::engine) fn find(&self, partner: u32, connect_seqnum: u8) -> Option<ConnectId> {
        let mut all = self.pending.iter();
        let (slot, _) =
            all.find(|(_, pending)| pending.partner == partner && pending.connect_seqnum == connect_seqnum)?;
        Some(ConnectId {
            slot,
            generation: self.pending.generation(slot),
        })
    }

    /// Handles the answer to a connect at `now`.
    pub(in crate::engine) fn handle_reply(&mut self, now: Time, id: ConnectId) -> Option<Answered> {
        let pending = self.remove(id.slot)?;
        Some(Answered {
            token: pending.token,
            took_ns: (pending.sends == 1).then(|| now.nanos_since(pending.first_sent)),
        })
    }

    /// Takes a connect that is due at `now`.
    pub(in crate::engine) fn handle_timeout(&mut self, now: Time) -> Option<Due> {
        loop {
            let slot = self.timers.pop_due(now)?;
            let Some(pending) = self.pending.get(slot) else {
                continue;
            };
            if now.nanos_since(pending.posted) >= pending.give_up_ns {
                return Some(Due::GivenUp {
                    partner: pending.partner,
                });
            }
            return Some(Due::Again(ConnectId {
                slot,
                generation: self.pending.generation(slot),
            }));
        }
    }

    /// Takes out the oldest connect to a partner.
    pub(in crate::engine) fn remove_oldest(&mut self, partner: u32) -> Option<Token> {
        let mine = self.pending.iter().filter(|(_, pending)| pending.partner == partner);
        let (slot, _) = mine.min_by_key(|(_, pending)| pending.order)?;
        self.remove(slot).map(|pending| pending.token)
    }

    /// Forgets a connect. False if there is none of this name.
    pub(in crate::engine) fn cancel(&mut self, token: Token) -> bool {
        let found = self.slot_of(token);
        found.is_some_and(|slot| self.remove(slot).is_some())
    }

    /// Limits a connect to this time. False if there is none of this name.
    pub(in crate::engine) fn set_give_up(&mut self, token: Token, give_up_ns: u64) -> bool {
        let Some(slot) = self.slot_of(token) else {
            return false;
        };
        if let Some(pending) = self.pending.get_mut(slot) {
            pending.give_up_ns = give_up_ns;
            let due = pending.posted.plus_nanos(give_up_ns);
            self.timers.at_latest(slot, due);
        }
        true
    }

    /// Reports that a peer's endpoint has different settings. A peer that keeps asking is reported once.
    pub(in crate::engine) fn mismatch(
        &mut self,
        mac: MacAddr,
        endpoint: u8,
        own: Extension,
        theirs: Extension,
    ) -> Option<Event> {
        if self.mismatches.len() >= MISMATCHES_MAX || self.mismatches.contains(&mac) {
            return None;
        }
        self.mismatches.push(mac);
        Some(Event::Mismatch {
            mac,
            endpoint,
            own,
            theirs,
        })
    }

    fn slot_of(&self, token: Token) -> Option<u32> {
        let found = self.pending.iter().find(|(_, pending)| pending.token == token);
        found.map(|(slot, _)| slot)
    }

    fn remove(&mut self, slot: u32) -> Option<Pending> {
        self.timers.cancel(slot);
        self.pending.remove(slot)
    }
}
