//! Encoding: values become bytes. Pads are zeros, short frames are padded, and impossible values are refused.

use zerocopy::IntoBytes;

use super::decode::{INNER_LEN, RNDV_LEN, TRUC_ACK};
use crate::wire::{
    Ack, Connect, ConnectKind, Dialect, EXTENSION_WORD, Eager, FRAME_LEN_MIN, HEAD_LEN, HEADER_LEN_MAX,
    HOST_NAME_LEN_MAX, Head, HostReply, MARK, Medium, Mode, NackCode, NackLib, NackMcp, Packet, PacketType, Pull,
    PullReply, RAW_FRAME_LEN_MAX, RNDV_HEAD_MAX, Rndv, SMALL_DATA_MAX, TINY_DATA_MAX,
    layout::{
        ConnectLayout, EagerLayout, HostLayout, MediumLayout, NackLibLayout, NackMcpLayout, NotifyLayout,
        PullNativeLayout, PullReplyLayout, PullWireLayout, RndvLayout, TrucLayout,
    },
};

/// Why a packet was not written. The contents of the buffer are meaningless then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmitError {
    /// The buffer is too small.
    #[error("the frame needs {needed} bytes, the buffer has fewer; nothing was written")]
    BufferTooSmall {
        /// Bytes of the frame.
        needed: usize,
    },
    /// A field or the data do not fit the type's layout in this dialect.
    #[error("the {0} packet holds a value its layout cannot carry; nothing was written")]
    Unencodable(PacketType),
}

impl Dialect {
    /// Returns the length of the frame of `packet` in bytes, padding included.
    #[inline(always)]
    pub fn frame_len(&self, packet: &Packet<'_>) -> usize {
        match packet {
            // Only this type is padded in addition to its variable part (1.2).
            Packet::HostReply(reply) => FRAME_LEN_MIN + reply.name.len() + 1,
            _ => self
                .header_len(packet.packet_type())
                .saturating_add(packet.data().len())
                .max(FRAME_LEN_MIN),
        }
    }

    /// Returns the bytes before the data: head and body header.
    #[inline]
    pub const fn header_len(&self, packet_type: PacketType) -> usize {
        HEAD_LEN + self.body_len(packet_type)
    }

    /// Writes the whole frame, padded with zeros to at least 60 bytes; returns its length.
    ///
    /// # Errors
    /// [`EmitError`]: the buffer is too small, or a value does not fit its field.
    // Always inlined: where the type is known, which is everywhere in the engine, a fifth of the code remains.
    #[inline(always)]
    pub fn emit(&self, head: &Head, packet: &Packet<'_>, out: &mut [u8]) -> Result<usize, EmitError> {
        let needed = self.frame_len(packet);
        let out = out.get_mut(..needed).ok_or(EmitError::BufferTooSmall { needed })?;
        // A frame is never shorter than the longest header.
        let header = out
            .first_chunk_mut::<HEADER_LEN_MAX>()
            .ok_or(EmitError::BufferTooSmall { needed })?;
        let header_len = self.emit_header(head, packet, header)?;
        let data_end = header_len + packet.data().len();
        out[header_len..data_end].copy_from_slice(packet.data());
        out[data_end..].fill(0);
        Ok(needed)
    }

    /// Writes head and body header only and returns their length: for senders that hand over header and data as two
    /// pieces. Such a frame must reach 60 bytes with its data, or be padded by the caller.
    ///
    /// # Errors
    /// [`EmitError::Unencodable`] if a value does not fit its field.
    #[inline(always)]
    pub fn emit_header(
        &self,
        head: &Head,
        packet: &Packet<'_>,
        out: &mut [u8; HEADER_LEN_MAX],
    ) -> Result<usize, EmitError> {
        self.emit_header_for(head, packet, packet.data().len(), out)
    }

    /// As [`Dialect::emit_header`] for a packet whose `data_len` bytes of data are elsewhere; the data in `packet` is
    /// ignored.
    ///
    /// # Errors
    /// [`EmitError::Unencodable`] if a value does not fit its field.
    #[inline(always)]
    pub fn emit_header_for(
        &self,
        head: &Head,
        packet: &Packet<'_>,
        data_len: usize,
        out: &mut [u8; HEADER_LEN_MAX],
    ) -> Result<usize, EmitError> {
        let packet_type = packet.packet_type();
        self.check(packet, data_len)?;
        let len = self.header_len(packet_type);
        // As two words: what is stored byte by byte and copied as words at once costs more than all the rest.
        let (dst, src) = (head.dst.to_u64(), head.src.to_u64());
        let tail = u64::from(self.ether_type.0) << 16 | u64::from(head.peer_index);
        let (head_bytes, body) = out[..len].split_at_mut(HEAD_LEN);
        head_bytes[..8].copy_from_slice(&(dst << 16 | src >> 32).to_be_bytes());
        head_bytes[8..].copy_from_slice(&(src << 32 | tail).to_be_bytes());
        self.emit_body(packet, data_len, body)?;
        body[0] = packet_type.code() | if head.marked && self.marks { MARK } else { 0 };
        Ok(len)
    }

    #[inline(always)]
    fn check(&self, packet: &Packet<'_>, data_len: usize) -> Result<(), EmitError> {
        let fits = match packet {
            Packet::Raw(raw) => raw.payload.len() < RAW_FRAME_LEN_MAX - HEAD_LEN,
            Packet::HostReply(reply) => reply.name.len() < HOST_NAME_LEN_MAX && !reply.name.contains(&0),
            Packet::Tiny(_) => data_len <= TINY_DATA_MAX,
            Packet::Small(_) => data_len <= SMALL_DATA_MAX,
            Packet::Medium(p) => {
                data_len <= self.sizes.fragment_payload() as usize
                    && p.is_well_placed(&self.sizes, data_len)
                    && match self.sizes.mode() {
                        Mode::Wire => p.length <= u16::MAX.into(),
                        Mode::Native => p.frag_pipeline == 0,
                    }
            }
            Packet::Rndv(_) => data_len <= RNDV_HEAD_MAX,
            Packet::PullReply(_) => data_len <= u16::MAX.into(),
            Packet::NackLib(p) => p.code != NackCode::BadRdmaWindow,
            _ => true,
        };
        if fits {
            Ok(())
        } else {
            Err(EmitError::Unencodable(packet.packet_type()))
        }
    }

    /// Writes the body header into `body`, which has exactly its length. The type byte is left to the caller.
    #[inline(always)]
    fn emit_body(&self, packet: &Packet<'_>, data_len: usize, body: &mut [u8]) -> Result<(), EmitError> {
        match packet {
            Packet::Raw(_) => {}
            Packet::HostQuery(p) => body.copy_from_slice(HostLayout::from(p).as_bytes()),
            Packet::HostReply(p) => body.copy_from_slice(host_reply(p).as_bytes()),
            Packet::Ack(p) => body.copy_from_slice(ack(p).as_bytes()),
            Packet::Connect(p) => body.copy_from_slice(connect(p).as_bytes()),
            Packet::Tiny(p) | Packet::Small(p) => body.copy_from_slice(eager(p, data_len).as_bytes()),
            Packet::Medium(p) => body.copy_from_slice(self.medium(p, data_len).as_bytes()),
            Packet::Rndv(p) => body.copy_from_slice(rndv(p, data_len).as_bytes()),
            Packet::Pull(p) => self.pull(p, body).ok_or(EmitError::Unencodable(PacketType::Pull))?,
            Packet::PullReply(p) => body.copy_from_slice(pull_reply(p, data_len).as_bytes()),
            Packet::Notify(p) => body.copy_from_slice(NotifyLayout::from(p).as_bytes()),
            Packet::NackLib(p) => body.copy_from_slice(nack_lib(p).as_bytes()),
            Packet::NackMcp(p) => body.copy_from_slice(nack_mcp(p).as_bytes()),
        }
        Ok(())
    }

    fn medium(&self, p: &Medium<'_>, data_len: usize) -> MediumLayout {
        let length = match self.sizes.mode() {
            // At most 65535: checked before.
            Mode::Wire => p.length << 16,
            Mode::Native => p.length,
        };
        MediumLayout {
            length: length.to_be_bytes(),
            frag_length: (data_len as u16).into(),
            ..p.into()
        }
    }

    fn pull(&self, p: &Pull, body: &mut [u8]) -> Option<()> {
        match self.sizes.mode() {
            Mode::Wire => body.copy_from_slice(
                PullWireLayout {
                    dst_endpoint: p.dst_endpoint,
                    src_endpoint: p.src_endpoint,
                    session: p.session.into(),
                    total_length: p.total_length.into(),
                    rdma_id: p.rdma_id.try_into().ok()?,
                    rdma_seqnum: p.rdma_seqnum,
                    rdma_offset: u16::try_from(p.rdma_offset).ok()?.into(),
                    handle: p.handle.into(),
                    magic: p.magic.into(),
                    first_frame_offset: u16::try_from(p.first_frame_offset).ok()?.into(),
                    block_length: u16::try_from(p.block_length).ok()?.into(),
                    frame_index: p.frame_index.into(),
                    ..Default::default()
                }
                .as_bytes(),
            ),
            Mode::Native => body.copy_from_slice(PullNativeLayout::from(p).as_bytes()),
        }
        Some(())
    }
}

fn host_reply(p: &HostReply<'_>) -> HostLayout {
    HostLayout {
        // At most 80: checked before.
        length: p.name.len() as u8 + 1,
        ..p.into()
    }
}

#[inline]
fn ack(p: &Ack) -> TrucLayout {
    TrucLayout {
        length: INNER_LEN,
        truc: TRUC_ACK,
        ..p.into()
    }
}

fn connect(p: &Connect) -> ConnectLayout {
    let (value, is_reply, status) = match p.kind {
        ConnectKind::Request { key } => (key, 0, 0),
        ConnectKind::Reply { session, status } => (session, 1, status),
    };
    let mut layout = ConnectLayout {
        dst_endpoint: p.dst_endpoint,
        src_endpoint: p.src_endpoint,
        length: INNER_LEN,
        seqnum: p.seqnum.into(),
        peer_index: p.peer_index.into(),
        src_session: p.src_session.into(),
        key_or_session: value.into(),
        recv_seqnum_start: p.recv_seqnum_start.into(),
        is_reply,
        connect_seqnum: p.connect_seqnum,
        status,
        ..Default::default()
    };
    if let Some(extension) = p.extension {
        layout.extension = EXTENSION_WORD.into();
        layout.flags = extension.flags;
        layout.block_frames_log2 = extension.block_frames_log2;
        layout.preset = extension.preset;
    }
    layout
}

#[inline]
fn pull_reply(p: &PullReply<'_>, data_len: usize) -> PullReplyLayout {
    PullReplyLayout {
        frame_length: (data_len as u16).into(),
        ..p.into()
    }
}

fn nack_lib(p: &NackLib) -> NackLibLayout {
    NackLibLayout {
        src_endpoint: p.src_endpoint,
        code: p.code as u8,
        dst_endpoint: p.dst_endpoint,
        peer_index: p.peer_index.into(),
        seqnum: p.seqnum.into(),
        ..Default::default()
    }
}

fn nack_mcp(p: &NackMcp) -> NackMcpLayout {
    NackMcpLayout {
        src_endpoint: p.src_endpoint,
        code: p.code as u8,
        handle: p.handle.into(),
        magic: p.magic.into(),
        ..Default::default()
    }
}

fn eager(p: &Eager<'_>, data_len: usize) -> EagerLayout {
    EagerLayout {
        // At most 128: checked before.
        length: (data_len as u16).into(),
        ..p.into()
    }
}

fn rndv(p: &Rndv<'_>, head_len: usize) -> RndvLayout {
    RndvLayout {
        // At most 128: checked before.
        length: (RNDV_LEN + head_len as u16).into(),
        ..p.into()
    }
}
