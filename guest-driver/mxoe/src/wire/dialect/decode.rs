//! Decoding: bytes become values, and every length is checked, once.

use ether::MacAddr;
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

use crate::wire::{
    Ack, Connect, ConnectKind, Dialect, EXTENSION_WORD, Eager, Extension, FrameView, HEAD_LEN, HOST_NAME_LEN_MAX, Head,
    HostReply, MARK, Medium, Mode, NackCode, NackLib, NackMcp, Packet, PacketType, Pull, PullReply, RAW_FRAME_LEN_MAX,
    RNDV_HEAD_MAX, Raw, Rndv, SMALL_DATA_MAX, TINY_DATA_MAX,
    layout::{
        ConnectLayout, EagerLayout, HeadLayout, HostLayout, MediumLayout, NackLibLayout, NackMcpLayout, NotifyLayout,
        PullNativeLayout, PullReplyLayout, PullWireLayout, RndvLayout, TrucLayout,
    },
};

/// The only type of TRUC: an acknowledgement.
pub(super) const TRUC_ACK: u8 = 0x55;
/// CONNECT and TRUC write this in their length field, and must say at least this.
pub(super) const INNER_LEN: u8 = 16;
/// RNDV writes this in its length field, and must say at least this.
pub(super) const RNDV_LEN: u16 = 8;

/// Why a frame is dropped; each is to be counted (section 11, see [`WireError::counter`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// No Ethernet header, or another EtherType.
    #[error("not an MXoE frame; it is not for us")]
    NotMxoe,
    /// Shorter than the header of its type.
    #[error("the frame ends inside the header; it is dropped")]
    HeaderTooShort,
    /// A length field says more or less than its type allows, or a fragment has no place in its message.
    #[error("the length field is out of range for this type; the frame is dropped")]
    BadLength,
    /// Less data than the length field announces.
    #[error("the frame holds less data than it announces; it is dropped")]
    Truncated,
    /// A RAW frame of more than 1024 bytes.
    #[error("the RAW frame has more than 1024 bytes; it is dropped")]
    RawTooLarge,
    /// A type that only MX uses.
    #[error("packet type {0} is MX's own; the frame is dropped")]
    InvalidType(u8),
    /// No type has this code; also a marked frame where marking is off.
    #[error("packet type {0} is unknown; the frame is dropped")]
    UnknownType(u8),
    /// A TRUC that is no acknowledgement.
    #[error("TRUC type {0:#04x} is unknown; the frame is dropped")]
    UnknownTruc(u8),
    /// A refusal with a reason that does not exist for its type.
    #[error("nack code {0} does not exist; the frame is ignored")]
    UnknownNack(u8),
}

impl WireError {
    /// Index of the counter in section 11; `None` where the reference has none.
    pub const fn counter(&self) -> Option<u8> {
        match self {
            Self::HeaderTooShort => Some(49),
            Self::BadLength => Some(50),
            Self::Truncated => Some(51),
            Self::RawTooLarge => Some(68),
            Self::InvalidType(_) => Some(70),
            Self::UnknownType(_) => Some(71),
            Self::NotMxoe | Self::UnknownTruc(_) | Self::UnknownNack(_) => None,
        }
    }
}

impl Dialect {
    /// Views and decodes a frame.
    ///
    /// # Errors
    /// [`WireError`] says why the frame must be dropped.
    #[inline]
    pub fn decode<'a>(&self, frame: &'a [u8]) -> Result<(Head, Packet<'a>), WireError> {
        let view = self.view(frame)?;
        Ok((view.head(), view.packet()?))
    }

    /// Decodes the packets on which latency depends in a single step, and says whether it is a tiny one. `None`:
    /// another packet, or one that [`Dialect::decode`] refuses with a reason.
    #[inline]
    pub(crate) fn decode_eager<'a>(&self, frame: &'a [u8]) -> Option<(Head, Eager<'a>, bool)> {
        let (head, body) = HeadLayout::ref_from_prefix(frame).ok()?;
        let (eager, rest) = EagerLayout::ref_from_prefix(body).ok()?;
        let mark = if self.marks { MARK } else { 0 };
        let (is_tiny, data_max) = match eager.kind & !mark {
            TINY => (true, TINY_DATA_MAX),
            SMALL => (false, SMALL_DATA_MAX),
            _ => return None,
        };
        let data = rest.get(..eager.length.get().into())?;
        if head.ether_type.get() != self.ether_type.0 || data.len() > data_max {
            return None;
        }
        let value = Eager { data, ..eager.into() };
        let head = Head {
            dst: MacAddr(head.dst),
            src: MacAddr(head.src),
            peer_index: head.peer_index.get(),
            marked: eager.kind & mark != 0,
        };
        Some((head, value, is_tiny))
    }
}

const TINY: u8 = PacketType::Tiny.code();
const SMALL: u8 = PacketType::Small.code();

fn split<T: FromBytes + KnownLayout + Immutable + Unaligned>(body: &[u8]) -> Result<(&T, &[u8]), WireError> {
    T::ref_from_prefix(body).map_err(|_| WireError::HeaderTooShort)
}

fn data_of(rest: &[u8], len: usize) -> Result<&[u8], WireError> {
    rest.get(..len).ok_or(WireError::Truncated)
}

/// Returns the packet of a frame, as [`FrameView::packet`] says.
pub(super) fn packet<'a>(view: &FrameView<'a>) -> Result<Packet<'a>, WireError> {
    let body = view.body();
    Ok(match view.packet_type() {
        PacketType::Raw => {
            if view.bytes.len() > RAW_FRAME_LEN_MAX {
                return Err(WireError::RawTooLarge);
            }
            Packet::Raw(Raw {
                payload: &view.bytes[HEAD_LEN + 1..],
            })
        }
        PacketType::HostQuery => Packet::HostQuery(split::<HostLayout>(body)?.0.into()),
        PacketType::HostReply => Packet::HostReply(host_reply(body)?),
        PacketType::Truc => Packet::Ack(ack(body)?),
        PacketType::Connect => Packet::Connect(connect(body)?),
        PacketType::Tiny => Packet::Tiny(eager(body, TINY_DATA_MAX)?),
        PacketType::Small => Packet::Small(eager(body, SMALL_DATA_MAX)?),
        PacketType::Medium => Packet::Medium(medium(body, &view.dialect)?),
        PacketType::Rndv => Packet::Rndv(rndv(body)?),
        PacketType::Pull => Packet::Pull(pull(body, &view.dialect)?),
        PacketType::PullReply => Packet::PullReply(pull_reply(body)?),
        PacketType::Notify => Packet::Notify(split::<NotifyLayout>(body)?.0.into()),
        PacketType::NackLib => Packet::NackLib(nack_lib(body)?),
        PacketType::NackMcp => Packet::NackMcp(nack_mcp(body)?),
    })
}

#[inline]
fn pull_reply(body: &[u8]) -> Result<PullReply<'_>, WireError> {
    let (l, rest) = split::<PullReplyLayout>(body)?;
    Ok(PullReply {
        data: data_of(rest, l.frame_length.get().into())?,
        ..l.into()
    })
}

fn nack_lib(body: &[u8]) -> Result<NackLib, WireError> {
    let (l, _) = split::<NackLibLayout>(body)?;
    Ok(NackLib {
        src_endpoint: l.src_endpoint,
        dst_endpoint: l.dst_endpoint,
        code: NackCode::from_code(l.code)
            .filter(|code| *code != NackCode::BadRdmaWindow)
            .ok_or(WireError::UnknownNack(l.code))?,
        peer_index: l.peer_index.get(),
        seqnum: l.seqnum.get(),
    })
}

fn nack_mcp(body: &[u8]) -> Result<NackMcp, WireError> {
    let (l, _) = split::<NackMcpLayout>(body)?;
    Ok(NackMcp {
        src_endpoint: l.src_endpoint,
        code: NackCode::from_code(l.code).ok_or(WireError::UnknownNack(l.code))?,
        handle: l.handle.get(),
        magic: l.magic.get(),
    })
}

fn host_reply(body: &[u8]) -> Result<HostReply<'_>, WireError> {
    let (l, rest) = split::<HostLayout>(body)?;
    let len = usize::from(l.length);
    if len == 0 || len > HOST_NAME_LEN_MAX {
        return Err(WireError::BadLength);
    }
    // The last announced byte is taken as the terminating zero, whatever it is.
    let name = &data_of(rest, len)?[..len - 1];
    let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
    Ok(HostReply { name, ..l.into() })
}

fn ack(body: &[u8]) -> Result<Ack, WireError> {
    let (l, _) = split::<TrucLayout>(body)?;
    if l.truc != TRUC_ACK {
        return Err(WireError::UnknownTruc(l.truc));
    }
    if l.length < INNER_LEN {
        return Err(WireError::BadLength);
    }
    Ok(l.into())
}

fn connect(body: &[u8]) -> Result<Connect, WireError> {
    let (l, _) = split::<ConnectLayout>(body)?;
    if l.length < INNER_LEN {
        return Err(WireError::BadLength);
    }
    let value = l.key_or_session.get();
    Ok(Connect {
        dst_endpoint: l.dst_endpoint,
        src_endpoint: l.src_endpoint,
        seqnum: l.seqnum.get(),
        peer_index: l.peer_index.get(),
        src_session: l.src_session.get(),
        recv_seqnum_start: l.recv_seqnum_start.get(),
        connect_seqnum: l.connect_seqnum,
        kind: match l.is_reply {
            0 => ConnectKind::Request { key: value },
            _ => ConnectKind::Reply {
                session: value,
                status: l.status,
            },
        },
        extension: (l.extension.get() == EXTENSION_WORD).then_some(Extension {
            flags: l.flags,
            block_frames_log2: l.block_frames_log2,
            preset: l.preset,
        }),
    })
}

fn eager(body: &[u8], data_max: usize) -> Result<Eager<'_>, WireError> {
    let (l, rest) = split::<EagerLayout>(body)?;
    let len = usize::from(l.length.get());
    if len > data_max {
        return Err(WireError::BadLength);
    }
    Ok(Eager {
        data: data_of(rest, len)?,
        ..l.into()
    })
}

fn medium<'a>(body: &'a [u8], dialect: &Dialect) -> Result<Medium<'a>, WireError> {
    let (l, rest) = split::<MediumLayout>(body)?;
    let frag_len = l.frag_length.get();
    if u32::from(frag_len) > dialect.sizes.fragment_payload() {
        return Err(WireError::BadLength);
    }
    let [a, b, c, d] = l.length;
    let (length, frag_pipeline) = match dialect.sizes.mode() {
        Mode::Wire => (u16::from_be_bytes([a, b]).into(), l.frag_pipeline),
        Mode::Native => (u32::from_be_bytes([a, b, c, d]), 0),
    };
    let medium = Medium {
        length,
        frag_pipeline,
        data: data_of(rest, frag_len.into())?,
        ..l.into()
    };
    if medium.is_well_placed(&dialect.sizes, medium.data.len()) {
        Ok(medium)
    } else {
        Err(WireError::BadLength)
    }
}

fn rndv(body: &[u8]) -> Result<Rndv<'_>, WireError> {
    let (l, rest) = split::<RndvLayout>(body)?;
    let head_len = l.length.get().checked_sub(RNDV_LEN).ok_or(WireError::BadLength)?;
    if usize::from(head_len) > RNDV_HEAD_MAX {
        return Err(WireError::BadLength);
    }
    Ok(Rndv {
        // Open-MX always says the minimum, and looks at nothing behind it.
        head: data_of(rest, head_len.into())?,
        ..l.into()
    })
}

fn pull(body: &[u8], dialect: &Dialect) -> Result<Pull, WireError> {
    Ok(match dialect.sizes.mode() {
        Mode::Wire => split::<PullWireLayout>(body)?.0.into(),
        Mode::Native => split::<PullNativeLayout>(body)?.0.into(),
    })
}
