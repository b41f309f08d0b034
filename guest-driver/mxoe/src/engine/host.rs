//! The types between the engine and its caller: names of memory, the trait through which bytes and decisions pass, and
//! the events that come out. They have no behaviour.

use ether::MacAddr;

use super::seq::Seq;
use crate::{
    source_key::SourceKey,
    wire::{Extension, NackCode},
};

/// The caller's name for one of its requests or buffers. The engine hands it back and never interprets it.
pub type Token = u64;

/// A remote endpoint that this endpoint knows. It is valid as long as the engine lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct PartnerId(pub(crate) u32);

impl PartnerId {
    /// Returns a dense number, for tables beside the engine.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An announced large message that waits to be pulled or declined. It is stale once the partner is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LargeId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// A message that was handed over for sending. It is stale once the message is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SendId {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// The calls of the engine to its caller while it handles a frame: they decide where messages go, and take their bytes.
///
/// They come from inside [`super::Engine::handle`] and [`super::Engine::resume`] only, so they must not block and
/// cannot call the engine; what a user's handler wants to post is posted after `handle` returned.
pub trait Host {
    /// Takes the next message in order from a partner. Each message is matched exactly once, at its first fragment.
    fn arrive(&mut self, arrival: Arrival<'_>) -> Verdict;

    /// Takes the bytes from `offset` on of the message that was taken under `receive`. The engine delivers each byte
    /// once, in any order. The caller leaves out what is beyond the user's buffer.
    fn deliver(&mut self, receive: Token, offset: u32, data: &[u8]);

    /// Returns how long the transfer of a large message that was answered by [`Verdict::Pull`] may take, in
    /// nanoseconds, if the general limit does not apply.
    fn transfer_limit_ns(&self, receive: Token) -> Option<u64> {
        let _ = receive;
        None
    }
}

/// A message at the moment of matching.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// The partner that sent the message.
    pub partner: PartnerId,
    /// The session of the partner's endpoint: an answer to this message names it, whatever happens to the partner
    /// meanwhile.
    pub session: u32,
    /// The partner's endpoint, for matching.
    pub source: SourceKey,
    /// Match information.
    pub match_info: u64,
    /// Bytes of the whole message.
    pub length: u32,
    /// The part of the message that is there.
    pub body: Body<'a>,
}

/// The part of a message that is there when it is matched.
#[derive(Clone, Copy, Debug)]
pub enum Body<'a> {
    /// The whole message: the caller copies it now; nothing follows.
    Whole(&'a [u8]),
    /// A medium message of several fragments: [`Host::deliver`] follows, then [`Event::Received`].
    Fragments,
    /// A large message, to be answered by [`Verdict::Pull`] now, or by [`super::Engine::pull`] or
    /// [`super::Engine::decline`] later.
    Announced {
        /// The name for the answer.
        large: LargeId,
        /// The first bytes of the message, where the sender puts them into its announcement
        /// ([`super::Config::announced_head_len`]).
        head: &'a [u8],
    },
}

/// The host's decision about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The message is taken, into a posted receive or among the unexpected ones. Fragments are delivered under this
    /// name.
    Take(Token),
    /// Only for announced messages: transfer the first `length` bytes immediately and deliver them under this name.
    Pull {
        /// Name for [`Host::deliver`] and [`Event::Received`].
        receive: Token,
        /// Bytes wanted: at most the message's length, less if the buffer is shorter.
        length: u32,
    },
    /// The message is consumed (the unexpected handler said *finished*): later fragments are dropped, a large one is
    /// declined.
    Consumed,
    /// There is no room: the message counts as never arrived. It is not acknowledged, so it stops the partner's stream
    /// until there is room.
    Refuse,
}

/// How a request ended (`mx-api.md` 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Everything went well.
    Success,
    /// The receiver took fewer bytes than were sent.
    Truncated,
    /// The connection key is wrong.
    BadKey,
    /// Both ends speak the extensions and are set differently.
    BadConnection,
    /// Nack 1: no such endpoint number.
    BadEndpoint,
    /// Nack 2: that endpoint is not open.
    EndpointClosed,
    /// Nack 3: the endpoint has been opened anew since.
    BadSession,
    /// Nack 4: the sender's region is gone.
    BadRdmaWindow,
    /// The request was given up, or the partner is a new instance.
    Unreachable,
    /// A pull went on beyond its deadline.
    Timeout,
}

impl From<NackCode> for Status {
    fn from(code: NackCode) -> Self {
        match code {
            NackCode::BadEndpoint => Self::BadEndpoint,
            NackCode::EndpointClosed => Self::EndpointClosed,
            NackCode::BadSession => Self::BadSession,
            NackCode::BadRdmaWindow => Self::BadRdmaWindow,
        }
    }
}

/// Something that happened, taken with [`super::Engine::poll_event`]. There is at most one event per request, and one
/// per lost partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connect ended.
    Connected {
        /// The caller's name of the connect.
        token: Token,
        /// The remote endpoint.
        partner: PartnerId,
        /// How the connect ended.
        status: Status,
    },
    /// A send is over: its bytes are needed no more. Follows every send but those that
    /// [`super::Engine::send_inline`] completed early and that succeeded.
    Sent {
        /// The caller's name of the send.
        token: Token,
        /// How the send ended.
        status: Status,
        /// Bytes that were transferred.
        transferred: u32,
    },
    /// A message taken in fragments or by a pull is over: no byte of it follows.
    Received {
        /// The name given in the verdict or to [`super::Engine::pull`].
        receive: Token,
        /// How the transfer ended. With anything but success the bytes are worthless.
        status: Status,
        /// Bytes that were transferred.
        transferred: u32,
    },
    /// Everything pending with this partner has ended as unreachable: unexpected messages from it are to be discarded.
    PartnerLost {
        /// The remote endpoint.
        partner: PartnerId,
        /// It was given up, because it did not answer in time or by [`super::Engine::disconnect`]; otherwise another
        /// instance of it has begun a conversation.
        given_up: bool,
    },
    /// A connection failed because the two ends have different settings: for one sentence in the log.
    Mismatch {
        /// The peer.
        mac: MacAddr,
        /// Its endpoint.
        endpoint: u8,
        /// What this end announces.
        own: Extension,
        /// What the peer announced.
        theirs: Extension,
    },
}

/// Why a request was not taken. It had no effect then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// A limit of [`super::Limits`] is reached.
    #[error("too many requests are pending; the request was not taken")]
    TooMany,
    /// The partner is not connected.
    #[error("the partner is not connected; connect to it first")]
    NotConnected,
    /// The peer is not in the peer table, and the table is full or closed.
    #[error("the peer is not in the peer table; the request was not taken")]
    UnknownPeer,
    /// The bytes do not fit this kind of sending.
    #[error("the message is too long for this kind of sending; it was not taken")]
    TooLong,
    /// The announced message is gone: its partner was lost, or it was pulled or declined before.
    #[error("the announced message is gone; nothing is transferred")]
    Gone,
}

/// The state of a send after it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// The send is complete for the program. For [`super::Engine::send`] the caller must first have copied the bytes to
    /// where they stay until [`Event::Sent`].
    Early(SendId),
    /// The send is complete when [`Event::Sent`] says so.
    Pending(SendId),
}

/// The options of a send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendOptions {
    /// The send is complete only when matched: it always uses rendezvous.
    pub synchronous: bool,
    /// The caller is ready to copy a medium message, so that it may complete early.
    pub copyable: bool,
}

/// One frame to be sent: the bytes written to the buffer, then a piece of the caller's memory, then zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transmit {
    /// Bytes written to the buffer.
    pub head_len: usize,
    /// The caller's memory that follows these bytes.
    pub payload: Option<Payload>,
    /// Zero bytes to be added at the end, so that the frame has 60 bytes.
    pub pad_len: usize,
}

impl Transmit {
    /// Returns the length of the whole frame in bytes.
    pub fn frame_len(&self) -> usize {
        self.head_len + self.payload.map_or(0, |payload| payload.len as usize) + self.pad_len
    }
}

/// A piece of a message that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Payload {
    /// The name given to [`super::Engine::send`].
    pub token: Token,
    /// The first byte, counted in the message.
    pub offset: u32,
    /// The number of bytes, never beyond the length given to [`super::Engine::send`].
    pub len: u32,
}

/// A description of a partner for reports and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartnerInfo {
    /// Its interface.
    pub mac: MacAddr,
    /// Its endpoint number.
    pub endpoint: u8,
    /// Its session id, [`crate::wire::SESSION_NONE`] while not connected.
    pub session: u32,
    /// Marks are sent to it.
    pub marks: bool,
    /// It acknowledges within 1 ms and so do we.
    pub short_acks: bool,
    /// Next sequence number to send.
    pub send_next: Seq,
    /// Next sequence number to match.
    pub recv_next: Seq,
    /// Messages sent and not acknowledged.
    pub unacked: u16,
    /// Smoothed round-trip time in nanoseconds, 0 before the first sample.
    pub srtt_ns: u32,
}
