//! What follows the header, by kind.

use super::{Blocks, CHECK_LEN, Frame, Kind, Names, PIECE_LEN, Ping, Pong, Ranges, VERSION, WireError};

/// What a SYN says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syn {
    /// The sender's random name of this connection.
    pub instance: u64,
    /// Most bytes of a packet that the sender takes.
    pub payload_max: u16,
    /// What the sender can do.
    pub blocks: Blocks,
    /// What the program that connects calls both ends.
    pub names: Option<Names>,
}

/// What a SYN+ACK says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SynAck {
    /// The sender's random name of this connection.
    pub instance: u64,
    /// The receiver's name of this connection, from its SYN.
    pub peer_instance: u64,
    /// The port that the SYN was for; the sender may answer from another one.
    pub listened_port: u16,
    /// Most bytes of a packet that the sender takes.
    pub payload_max: u16,
    /// What the sender can do.
    pub blocks: Blocks,
}

/// Why there is no connection (any more).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ResetCode {
    /// There is no such connection.
    Unknown = 0,
    /// No program listens at the port.
    Refused = 1,
    /// The program gave the connection up.
    Aborted = 2,
}

/// What says that a connection has moved to the sender's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Where it was.
    pub old_port: u16,
    /// The sender's name of the connection.
    pub instance: u64,
}

/// A part of a packet of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Where the part begins in the packet's payload.
    pub offset: u16,
    /// Bytes of the packet's whole payload.
    pub total: u16,
    /// The part.
    pub payload: &'a [u8],
}

/// What follows the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "it lives on the stack, while a frame is handled"
)]
pub enum Body<'a> {
    /// Payload of an EDP datagram.
    Datagram(&'a [u8]),
    /// An EDP ping.
    Ping(Ping),
    /// The answer to one.
    Pong(Pong),
    /// Bytes of the stream.
    Data(&'a [u8]),
    /// What arrived out of order.
    Ack(Ranges),
    /// Asks for a connection.
    Syn(Syn),
    /// Accepts one.
    SynAck(SynAck),
    /// End of the stream.
    Fin,
    /// There is no connection.
    Reset(ResetCode),
    /// Asks for an acknowledgement.
    Probe,
    /// The connection has moved.
    Moved(Moved),
    /// A part of a packet of data.
    Piece(Piece<'a>),
}

impl Body<'_> {
    /// What a packet with this body is.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Datagram(_) => Kind::Datagram,
            Self::Ping(_) => Kind::Ping,
            Self::Pong(_) => Kind::Pong,
            Self::Data(_) => Kind::Data,
            Self::Ack(_) => Kind::Ack,
            Self::Syn(_) => Kind::Syn,
            Self::SynAck(_) => Kind::SynAck,
            Self::Fin => Kind::Fin,
            Self::Reset(_) => Kind::Reset,
            Self::Probe => Kind::Probe,
            Self::Moved(_) => Kind::Moved,
            Self::Piece(_) => Kind::Piece,
        }
    }
}

/// Reads fields one after the other.
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn array<const LEN: usize>(&mut self) -> Result<[u8; LEN], WireError> {
        let taken = self.bytes.get(self.at..).and_then(<[u8]>::first_chunk);
        self.at += LEN;
        taken.copied().ok_or(WireError::Short)
    }

    pub(super) fn u8(&mut self) -> Result<u8, WireError> {
        self.array().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Result<u16, WireError> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Result<u32, WireError> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, WireError> {
        self.array().map(u64::from_be_bytes)
    }
}

impl<'a> Body<'a> {
    #[inline]
    pub(super) fn parse(frame: &Frame<'a>, check: bool) -> Result<Body<'a>, WireError> {
        let check = check && frame.kind.is_checked();
        if frame.kind == Kind::Data {
            return payload_of(frame, frame.body_at, check).map(Body::Data);
        }
        Self::parse_other(frame, check)
    }

    fn parse_other(frame: &Frame<'a>, check: bool) -> Result<Body<'a>, WireError> {
        let mut reader = Reader {
            bytes: frame.bytes,
            at: frame.body_at,
        };
        let body = match frame.kind {
            Kind::Data => Body::Data(payload_of(frame, frame.body_at, check)?),
            Kind::Datagram => Body::Datagram(payload_of(frame, frame.body_at, check)?),
            Kind::Piece => return piece(frame, &mut reader, check),
            Kind::Ping => Body::Ping(Ping::parse(&mut reader)?),
            Kind::Pong => Body::Pong(Pong::parse(&mut reader)?),
            Kind::Ack => Body::Ack(parse_ranges(&mut reader)?),
            Kind::Syn => Body::Syn(syn(&mut reader)?),
            Kind::SynAck => Body::SynAck(syn_ack(frame, &mut reader)?),
            Kind::Fin => Body::Fin,
            Kind::Reset => Body::Reset(match reader.u8()? {
                0 => ResetCode::Unknown,
                1 => ResetCode::Refused,
                2 => ResetCode::Aborted,
                _ => return Err(WireError::Field),
            }),
            Kind::Probe => Body::Probe,
            Kind::Moved => Body::Moved(Moved {
                old_port: reader.u16()?,
                instance: reader.u64()?,
            }),
        };
        if check {
            frame.check(reader.at)?;
        }
        Ok(body)
    }
}

/// The payload that begins at `at`: it ends where its length says, or with the frame.
#[inline]
fn payload_of<'a>(frame: &Frame<'a>, at: usize, check: bool) -> Result<&'a [u8], WireError> {
    let end = match frame.length {
        Some(length) => at + usize::from(length),
        None if check => frame.bytes.len().saturating_sub(CHECK_LEN),
        None => frame.bytes.len(),
    };
    if check {
        frame.check(end)?;
    }
    frame.bytes.get(at..end).ok_or(WireError::Short)
}

fn piece<'a>(frame: &Frame<'a>, reader: &mut Reader<'a>, check: bool) -> Result<Body<'a>, WireError> {
    let (offset, total) = (reader.u16()?, reader.u16()?);
    let payload = payload_of(frame, frame.body_at + PIECE_LEN, check)?;
    if payload.is_empty() || usize::from(offset) + payload.len() > usize::from(total) {
        return Err(WireError::Field);
    }
    Ok(Body::Piece(Piece { offset, total, payload }))
}

fn syn(reader: &mut Reader<'_>) -> Result<Syn, WireError> {
    if reader.u8()? != VERSION {
        return Err(WireError::Version);
    }
    let (instance, payload_max) = (reader.u64()?, payload_max(reader)?);
    let (blocks, names) = Blocks::parse(reader.bytes.get(reader.at..).unwrap_or_default())?;
    Ok(Syn {
        instance,
        payload_max,
        blocks,
        names,
    })
}

fn syn_ack(frame: &Frame<'_>, reader: &mut Reader<'_>) -> Result<SynAck, WireError> {
    if reader.u8()? != VERSION {
        return Err(WireError::Version);
    }
    if frame.header.ack.is_none() {
        return Err(WireError::Flags);
    }
    Ok(SynAck {
        instance: reader.u64()?,
        peer_instance: reader.u64()?,
        listened_port: reader.u16()?,
        payload_max: payload_max(reader)?,
        blocks: Blocks::parse(reader.bytes.get(reader.at..).unwrap_or_default())?.0,
    })
}

/// A side that takes no byte in a packet takes none at all.
fn payload_max(reader: &mut Reader<'_>) -> Result<u16, WireError> {
    match reader.u16()? {
        0 => Err(WireError::Field),
        payload_max => Ok(payload_max),
    }
}

fn parse_ranges(reader: &mut Reader<'_>) -> Result<Ranges, WireError> {
    let mut ranges = Ranges::NONE;
    for _ in 0..reader.u8()? {
        let (first, end) = (reader.u32()?, reader.u32()?);
        let is_empty = end.wrapping_sub(first).cast_signed() <= 0;
        if is_empty || !ranges.push(first, end) {
            return Err(WireError::Field);
        }
    }
    Ok(ranges)
}
