//! The header, and the view of a frame that has one.

use ether::{ETHERNET_HEADER_LEN, EtherType, MacAddr};

use super::{BULK_FRAME_LEN_MIN, Body, CHECK_LEN, HEAD_LEN};

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Kind {
    /// An EDP datagram.
    Datagram = 0,
    /// An EDP ping: asks whether a host is there.
    Ping = 1,
    /// The answer to an EDP ping.
    Pong = 2,
    /// Bytes of a stream.
    Data = 3,
    /// Nothing but an acknowledgement.
    Ack = 4,
    /// Asks for a connection.
    Syn = 5,
    /// Accepts a connection.
    SynAck = 6,
    /// End of the sender's stream.
    Fin = 7,
    /// The connection is not, or no more.
    Reset = 8,
    /// Asks for an acknowledgement: of the window, or whether the peer is there.
    Probe = 9,
    /// The connection lives at another port of the sender from now on.
    Moved = 10,
    /// A part of a packet of data that is too long for the sender's MTU by now.
    Piece = 11,
}

impl Kind {
    /// Every kind, in the order of their numbers.
    pub const ALL: [Self; 12] = [
        Self::Datagram,
        Self::Ping,
        Self::Pong,
        Self::Data,
        Self::Ack,
        Self::Syn,
        Self::SynAck,
        Self::Fin,
        Self::Reset,
        Self::Probe,
        Self::Moved,
        Self::Piece,
    ];

    /// The kind with this number.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        if (number as usize) < Self::ALL.len() {
            Some(Self::ALL[number as usize])
        } else {
            None
        }
    }

    /// Whether it is one of EDP's kinds.
    #[inline]
    pub const fn is_edp(self) -> bool {
        matches!(self, Self::Datagram | Self::Ping | Self::Pong)
    }

    /// Whether it ends with a check sequence where the connection has agreed on one.
    #[inline]
    pub const fn is_checked(self) -> bool {
        matches!(
            self,
            Self::Data | Self::Ack | Self::Fin | Self::Probe | Self::Moved | Self::Piece
        )
    }

    /// Whether the length of its payload follows when it is short.
    #[inline]
    pub(super) const fn has_payload(self) -> bool {
        matches!(self, Self::Datagram | Self::Data | Self::Piece)
    }

    /// Whether a window has to follow.
    const fn needs_window(self) -> bool {
        matches!(self, Self::Ack | Self::Syn | Self::SynAck | Self::Moved)
    }
}

/// The four flags beside the kind; those of them that the presence of a field decides are in [`Header`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags;

impl Flags {
    /// The field *next expected number* is valid.
    pub const ACK: u8 = 1;
    /// A call of the sender ended with this packet.
    pub const PUSH: u8 = 2;
    /// A window follows the header.
    pub const WINDOW: u8 = 4;
    /// The length of the payload follows.
    pub const LENGTH: u8 = 8;
}

/// The 13 bytes behind Ethernet's header, and the window that may follow them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// Number of the packet.
    pub number: u32,
    /// The number that the sender expects next; it has all before.
    pub ack: Option<u32>,
    /// Packets that the sender takes, counted from the one that it expects next.
    pub window: Option<u32>,
    /// Whether a call of the sender ended with this packet.
    pub push: bool,
    /// Whether this is data of which many packets are in flight: a receiver may take it by a path that suits many. Nothing else changes.
    pub bulk: bool,
}

impl Header {
    /// A header with number 0 and nothing optional.
    pub const fn new(source_port: u16, destination_port: u16) -> Self {
        Self {
            source_port,
            destination_port,
            number: 0,
            ack: None,
            window: None,
            push: false,
            bulk: false,
        }
    }
}

/// The 14 bytes of Ethernet's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Whom the frame is for.
    pub destination: MacAddr,
    /// Who sends it.
    pub source: MacAddr,
    /// The EtherType of the network's ESP.
    pub ether_type: EtherType,
}

/// Why bytes are not a frame of ESP or EDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The frame ends inside its header or its body.
    #[error("the frame ends inside its header or its body")]
    Short,
    /// The EtherType is another one.
    #[error("the EtherType is not that of ESP")]
    EtherType,
    /// No packet has this kind.
    #[error("no packet has this kind")]
    Kind,
    /// A flag contradicts the kind or the length of the frame.
    #[error("a flag contradicts the kind or the length of the frame")]
    Flags,
    /// A field has a value that none may have.
    #[error("a field has a value that none may have")]
    Field,
    /// The version is another one.
    #[error("the version is another one")]
    Version,
    /// The check sequence is wrong.
    #[error("the check sequence is wrong")]
    Check,
}

/// A view of a frame whose header was checked. [`body`](Self::body) checks the rest.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Whom it is for.
    pub destination: MacAddr,
    /// Who sent it.
    pub source: MacAddr,
    /// What it is.
    pub kind: Kind,
    /// The header, and the window if one follows.
    pub header: Header,
    /// Length of the payload, if it follows.
    pub(super) length: Option<u16>,
    /// Where the body begins, counted from the end of Ethernet's header.
    pub(super) body_at: usize,
    /// Everything behind Ethernet's header.
    pub(super) bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Checks the headers of a whole frame.
    ///
    /// # Errors
    /// [`WireError`] if `frame` has not these headers.
    #[inline]
    pub fn parse(frame: &'a [u8], ether_type: EtherType) -> Result<Self, WireError> {
        let head: &[u8; HEAD_LEN] = frame.first_chunk().ok_or(WireError::Short)?;
        if head[12..14] != ether_type.0.to_be_bytes() {
            return Err(WireError::EtherType);
        }
        let [first, ports @ .., _, _, _, _, _, _, _, _] = head.last_chunk::<13>().ok_or(WireError::Short)?;
        let kind = Kind::from_number(first >> 4).ok_or(WireError::Kind)?;
        let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let mut parsed = Self {
            destination: MacAddr(core::array::from_fn(|at| head[at])),
            source: MacAddr(core::array::from_fn(|at| head[6 + at])),
            kind,
            header: Header {
                source_port: u16::from_be_bytes([ports[0], ports[1]]),
                destination_port: u16::from_be_bytes([ports[2], ports[3]]),
                number: word(19),
                ack: (first & Flags::ACK != 0).then_some(word(23)),
                window: None,
                push: first & Flags::PUSH != 0,
                bulk: kind == Kind::Data && first & Flags::LENGTH != 0 && frame.len() >= BULK_FRAME_LEN_MIN,
            },
            length: None,
            body_at: HEAD_LEN - ETHERNET_HEADER_LEN,
            bytes: &frame[ETHERNET_HEADER_LEN..],
        };
        parsed.parse_optional(*first)?;
        Ok(parsed)
    }

    #[inline]
    fn parse_optional(&mut self, first: u8) -> Result<(), WireError> {
        let has_window = first & Flags::WINDOW != 0;
        if self.kind.needs_window() && !has_window || self.kind.is_edp() && has_window {
            return Err(WireError::Flags);
        }
        if has_window {
            self.header.window = Some(u32::from_be_bytes(*self.take()?));
        }
        if first & Flags::LENGTH != 0 {
            if !self.kind.has_payload() {
                return Err(WireError::Flags);
            }
            self.length = Some(u16::from_be_bytes(*self.take()?));
        }
        Ok(())
    }

    #[inline]
    fn take<const LEN: usize>(&mut self) -> Result<&'a [u8; LEN], WireError> {
        let taken = self.bytes.get(self.body_at..).and_then(<[u8]>::first_chunk);
        self.body_at += LEN;
        taken.ok_or(WireError::Short)
    }

    /// Checks what follows the header. `check` says whether the connection has agreed on check sequences.
    ///
    /// # Errors
    /// [`WireError`] if the frame is cut off, a field is out of range, or the check sequence is wrong.
    #[inline]
    pub fn body(&self, check: bool) -> Result<Body<'a>, WireError> {
        Body::parse(self, check)
    }

    /// Whether the check sequence behind `end` bytes is right.
    pub(super) fn check(&self, end: usize) -> Result<(), WireError> {
        let (checked, rest) = self.bytes.split_at_checked(end).ok_or(WireError::Short)?;
        let sequence: &[u8; CHECK_LEN] = rest.first_chunk().ok_or(WireError::Short)?;
        if crc32fast::hash(checked).to_be_bytes() == *sequence {
            Ok(())
        } else {
            Err(WireError::Check)
        }
    }
}
