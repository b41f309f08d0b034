//! A view of a frame whose EtherType, type and header length have been checked, for steering and for reading single
//! fields before a whole packet is decoded.

use ether::MacAddr;
use zerocopy::FromBytes;

use super::decode;
use crate::wire::{
    Dialect, HEAD_LEN, MARK, Mode, Packet, PacketType, WireError,
    layout::{self, HeadLayout},
    pull_magic,
};

/// The 16 bytes before every body, and the mark (1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Where the frame goes.
    pub dst: MacAddr,
    /// Where it comes from.
    pub src: MacAddr,
    /// Index of the sender in the receiver's peer table, [`crate::wire::PEER_INDEX_UNKNOWN`] if not known. Garbage in
    /// HOST_QUERY, HOST_REPLY and PULL_REPLY frames of Open-MX: not to be looked at there.
    pub peer_index: u16,
    /// The latency-sensitive mark. Written only by a [`Dialect`] with marking on; false on reception otherwise.
    pub marked: bool,
}

/// A frame known to be MXoE, of a known type, and long enough for that type's header.
#[derive(Clone, Copy, Debug)]
pub struct FrameView<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) dialect: Dialect,
    packet_type: PacketType,
    marked: bool,
}

impl Dialect {
    /// Checks EtherType, type and header length of `frame` (as received, without frame check sequence). O(1).
    ///
    /// # Errors
    /// [`WireError::NotMxoe`], [`WireError::InvalidType`], [`WireError::UnknownType`], [`WireError::HeaderTooShort`].
    #[inline]
    pub fn view<'a>(&self, frame: &'a [u8]) -> Result<FrameView<'a>, WireError> {
        if frame.len() < 14 || frame[12..14] != self.ether_type.0.to_be_bytes() {
            return Err(WireError::NotMxoe);
        }
        let &byte = frame.get(HEAD_LEN).ok_or(WireError::HeaderTooShort)?;
        let (code, marked) = if self.marks {
            (byte & !MARK, byte & MARK != 0)
        } else {
            (byte, false)
        };
        let Some(packet_type) = PacketType::from_code(code) else {
            return Err(match code {
                2 | 32..=34 => WireError::InvalidType(code),
                _ => WireError::UnknownType(code),
            });
        };
        if frame.len() < HEAD_LEN + self.body_len(packet_type) {
            return Err(WireError::HeaderTooShort);
        }
        Ok(FrameView {
            bytes: frame,
            dialect: *self,
            packet_type,
            marked,
        })
    }

    /// Bytes of the body header of a type in this dialect, without data: 1 for RAW, whose only header is the type.
    #[inline]
    pub const fn body_len(&self, packet_type: PacketType) -> usize {
        match packet_type {
            PacketType::Raw => 1,
            PacketType::HostQuery | PacketType::HostReply => size_of::<layout::HostLayout>(),
            PacketType::Truc => size_of::<layout::TrucLayout>(),
            PacketType::Connect => size_of::<layout::ConnectLayout>(),
            PacketType::Tiny | PacketType::Small => size_of::<layout::EagerLayout>(),
            PacketType::Medium => size_of::<layout::MediumLayout>(),
            PacketType::Rndv => size_of::<layout::RndvLayout>(),
            PacketType::Pull => match self.sizes.mode() {
                Mode::Wire => size_of::<layout::PullWireLayout>(),
                Mode::Native => size_of::<layout::PullNativeLayout>(),
            },
            PacketType::PullReply => size_of::<layout::PullReplyLayout>(),
            PacketType::Notify => size_of::<layout::NotifyLayout>(),
            PacketType::NackLib => size_of::<layout::NackLibLayout>(),
            PacketType::NackMcp => size_of::<layout::NackMcpLayout>(),
        }
    }
}

impl<'a> FrameView<'a> {
    /// The packet's type, mark removed.
    #[inline]
    pub const fn packet_type(&self) -> PacketType {
        self.packet_type
    }

    /// Addresses, peer index and mark.
    #[inline]
    pub fn head(&self) -> Head {
        let (dst, src, peer_index) = match HeadLayout::ref_from_prefix(self.bytes) {
            Ok((head, _)) => (head.dst, head.src, head.peer_index.get()),
            // A view is never shorter than a head.
            Err(_) => ([0; 6], [0; 6], 0),
        };
        Head {
            dst: MacAddr(dst),
            src: MacAddr(src),
            peer_index,
            marked: self.marked,
        }
    }

    /// The whole frame.
    #[inline]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The endpoint the frame is for, read where steering hardware reads it (1.5); `None` for the types that are for no
    /// endpoint. Two types carry it inside the magic, of which only the low byte is looked at here.
    #[inline]
    pub fn destination_endpoint(&self) -> Option<u8> {
        let offset = match self.packet_type {
            PacketType::Raw | PacketType::HostQuery | PacketType::HostReply => return None,
            PacketType::PullReply | PacketType::NackMcp => {
                return self.bytes.get(31).map(|low| low ^ (pull_magic(0) as u8));
            }
            PacketType::NackLib => 25,
            _ => 17,
        };
        self.bytes.get(offset).copied()
    }

    /// Returns the packet as a value, whose data is borrowed from the frame.
    ///
    /// # Errors
    /// [`WireError`] says why the frame must be dropped.
    pub fn packet(&self) -> Result<Packet<'a>, WireError> {
        decode::packet(self)
    }

    #[inline]
    pub(super) fn body(&self) -> &'a [u8] {
        &self.bytes[HEAD_LEN..]
    }
}
