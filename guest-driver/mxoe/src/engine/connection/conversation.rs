//! The conversation with a partner as both ends agreed on it: the sessions, and what the partner understands (4, 17).

use crate::wire::SESSION_NONE;

/// The abilities of both ends beyond the original protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Abilities {
    /// Marks are sent: both ends announced that they understand them.
    pub marks: bool,
    /// Both ends acknowledge within 1 ms.
    pub short_acks: bool,
    /// The partner announced nothing when it connected: it is the original Open-MX, or MX.
    pub is_foreign: bool,
}

impl Abilities {
    const NONE: Self = Self {
        marks: false,
        short_acks: false,
        is_foreign: false,
    };
}

/// The conversation with one partner.
#[derive(Debug)]
pub(in crate::engine) struct Conversation {
    /// A CONNECT made the remote endpoint a partner.
    known: bool,
    abilities: Abilities,
    /// The session for messages to the partner.
    forward: u32,
    /// The session for acknowledgements, pulls and notifies to the partner.
    back: u32,
    /// The number of this conversation, which distinguishes it from earlier ones.
    epoch: u32,
    connect_seqnum: u8,
}

impl Conversation {
    /// The state before there is a conversation.
    pub(in crate::engine) const NONE: Self = Self {
        known: false,
        abilities: Abilities::NONE,
        forward: SESSION_NONE,
        back: SESSION_NONE,
        epoch: 0,
        connect_seqnum: 0,
    };

    /// Whether a CONNECT made the remote endpoint a partner.
    #[inline]
    pub(in crate::engine) const fn is_known(&self) -> bool {
        self.known
    }

    /// Returns what both ends can do.
    #[inline]
    pub(in crate::engine) const fn abilities(&self) -> Abilities {
        self.abilities
    }

    /// Returns the session for messages to the partner.
    #[inline]
    pub(in crate::engine) const fn forward(&self) -> u32 {
        self.forward
    }

    /// Returns the session for acknowledgements, pulls and notifies to the partner.
    #[inline]
    pub(in crate::engine) const fn back(&self) -> u32 {
        self.back
    }

    /// Returns the number of this conversation.
    pub(in crate::engine) const fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Whether a packet of this partner may name no session where the session *back* belongs: an Open-MX that has received no
    /// CONNECT does so (4.3).
    pub(in crate::engine) const fn may_leave_out(&self, session: u32) -> bool {
        session == SESSION_NONE && self.known && self.abilities.is_foreign
    }

    /// Whether the partner with this session is another instance than the one that was talked to.
    pub(in crate::engine) const fn is_another_instance(&self, session: u32) -> bool {
        self.back != SESSION_NONE && self.back != session
    }

    /// Takes the number of the next connect request.
    pub(in crate::engine) const fn next_connect_seqnum(&mut self) -> u8 {
        let number = self.connect_seqnum;
        self.connect_seqnum = number.wrapping_add(1);
        number
    }

    /// Establishes the conversation: both ends know each other from now on.
    pub(in crate::engine) const fn establish(&mut self, session: u32, abilities: Abilities) {
        self.forward = session;
        self.back = session;
        self.known = true;
        self.abilities = abilities;
    }

    /// Begins another conversation: what follows does not belong to the earlier one.
    pub(in crate::engine) const fn begin_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Gives the partner up: it does not answer, and must be connected to anew.
    pub(in crate::engine) const fn give_up(&mut self) {
        self.known = false;
        self.forward = SESSION_NONE;
        self.back = SESSION_NONE;
        self.connect_seqnum = 0;
    }
}
