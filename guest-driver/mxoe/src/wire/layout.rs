//! The layouts of bodies on the wire, with each field at the offset of `mxoe-wire.md`, and the fields that a layout and
//! the value of its packet have in common.
//!
//! `pad` and `unused` are written as zeros and never read: Open-MX leaves memory garbage there (1.2).

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    byteorder::big_endian::{U16, U32, U64},
};

use super::{Ack, Eager, HostQuery, HostReply, Medium, Notify, Pull, PullReply, Rndv};

macro_rules! layouts {
    ($($(#[$doc:meta])* $name:ident = $len:literal { $($field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $type,)* }
        const _: () = assert!(size_of::<$name>() == $len);
    )*};
}

layouts! {
    /// 1.1, from the first byte of the frame.
    HeadLayout = 16 { dst: [u8; 6], src: [u8; 6], ether_type: U16, peer_index: U16, }
    /// 4.1
    ConnectLayout = 32 {
        kind: u8, dst_endpoint: u8, src_endpoint: u8, unused: u8,
        length: u8, flags: u8, block_frames_log2: u8, preset: u8,
        seqnum: U16, peer_index: U16, extension: U32,
        src_session: U32, key_or_session: U32,
        recv_seqnum_start: U16, is_reply: u8, connect_seqnum: u8,
        status: u8, pad: [u8; 3],
    }
    /// 5.1, 5.2
    EagerLayout = 24 {
        kind: u8, dst_endpoint: u8, src_endpoint: u8, unused: u8,
        length: U16, checksum: U16, seqnum: U16, piggyack: U16,
        match_info: U64, session: U32,
    }
    /// 5.3; `length` is four bytes in native mode, two and two of padding in wire mode.
    MediumLayout = 32 {
        kind: u8, dst_endpoint: u8, src_endpoint: u8, unused: u8,
        length: [u8; 4], seqnum: U16, piggyack: U16,
        match_info: U64, session: U32,
        frag_length: U16, frag_seqnum: u8, frag_pipeline: u8,
        checksum: U16, pad: [u8; 2],
    }
    /// 6.1
    RndvLayout = 32 {
        kind: u8, dst_endpoint: u8, src_endpoint: u8, unused: u8,
        length: U16, checksum: U16, seqnum: U16, piggyack: U16,
        match_info: U64, session: U32,
        msg_length: U32, rdma_id: u8, rdma_seqnum: u8, rdma_offset: U16,
    }
    /// 6.2, wire mode
    PullWireLayout = 32 {
        kind: u8, dst_endpoint: u8, src_endpoint: u8, unused: u8,
        session: U32, total_length: U32,
        rdma_id: u8, rdma_seqnum: u8, rdma_offset: U16,
        handle: U32, magic: U32,
        first_frame_offset: U16, block_length: U16, frame_index: U32,
    }
    /// 6.2, native mode
    PullNativeLayout = 44 {
        kind: u8, dst_endpoint: u8, src_endpoint: u8, unused: u8,
        session: U32, total_length: U32,
        rdma_id: U32, rdma_seqnum: u8, pad: [u8; 3], rdma_offset: U32,
        handle: U32, magic: U32,
        first_frame_offset: U32, block_length: U32, frame_index: U32,
    }
    /// 6.3
    PullReplyLayout = 16 {
        kind: u8, frame_seqnum: u8, frame_length: U16,
        msg_offset: U32, handle: U32, magic: U32,
    }
    /// 6.5
    NotifyLayout = 24 {
        kind: u8, dst_endpoint: u8, src_endpoint: u8, unused: u8,
        session: U32, total_length: U32,
        rdma_id: u8, rdma_seqnum: u8, pad: [u8; 4],
        seqnum: U16, piggyack: U16, pad_end: [u8; 2],
    }
    /// 7.3
    TrucLayout = 28 {
        kind: u8, dst_endpoint: u8, src_endpoint: u8, unused: u8,
        length: u8, pad: [u8; 3], session: U32,
        truc: u8, pad_truc: u8, ack: U16, session_id: U32,
        acknum: U32, send_seq: U16, resent: u8, pad_end: u8,
    }
    /// 8.1
    NackLibLayout = 16 {
        kind: u8, src_endpoint: u8, unused: u8, code: u8,
        pad: [u8; 5], dst_endpoint: u8, peer_index: U16,
        seqnum: U16, pad_end: [u8; 2],
    }
    /// 8.2
    NackMcpLayout = 16 {
        kind: u8, src_endpoint: u8, unused: u8, code: u8,
        pad: [u8; 4], handle: U32, magic: U32,
    }
    /// 9.3; `length` is used by the reply only.
    HostLayout = 16 {
        kind: u8, length: u8, peer_index: U16, pad: [u8; 4],
        magic: U32, pad_end: [u8; 4],
    }
    /// 9.2, the free part of a RAW frame, from frame offset 17.
    AnnouncementLayout = 47 {
        pad: [u8; 15], board: U64, serial: U32, pad_end: [u8; 20],
    }
}

/// Converts values and layouts into each other: `=` in both directions, `=>` from the layout alone. Fields that only the
/// layout has become zeros; those that only the value has are given behind a semicolon.
macro_rules! conversions {
    ($($layout:ident $direction:tt $value:ident $(<$life:lifetime>)? {
        $($field:ident),* $(; $($other:ident: $default:expr),*)?
    })*) => {$(
        conversions!(@from $direction $value $(<$life>)? $layout { $($field),* });
        impl From<&$layout> for $value $(<$life>)? {
            #[inline(always)]
            fn from(layout: &$layout) -> Self {
                Self { $($field: layout.$field.into(),)* $($($other: $default,)*)? }
            }
        }
    )*};
    (@from = $value:ident $(<$life:lifetime>)? $layout:ident { $($field:ident),* }) => {
        impl From<&$value $(<$life>)?> for $layout {
            #[inline(always)]
            fn from(value: &$value $(<$life>)?) -> Self {
                Self { $($field: value.$field.into(),)* ..Default::default() }
            }
        }
    };
    (@from => $($rest:tt)*) => {};
}

conversions! {
    EagerLayout = Eager<'_> {
        dst_endpoint, src_endpoint, seqnum, piggyack, match_info, session; data: &[]
    }
    MediumLayout = Medium<'_> {
        dst_endpoint, src_endpoint, seqnum, piggyack, match_info, session, frag_seqnum, frag_pipeline;
        length: 0, data: &[]
    }
    RndvLayout = Rndv<'_> {
        dst_endpoint, src_endpoint, seqnum, piggyack, match_info, session,
        msg_length, rdma_id, rdma_seqnum, rdma_offset;
        head: &[]
    }
    PullWireLayout => Pull {
        dst_endpoint, src_endpoint, session, total_length, rdma_id, rdma_seqnum, rdma_offset, handle, magic,
        first_frame_offset, block_length, frame_index
    }
    PullNativeLayout = Pull {
        dst_endpoint, src_endpoint, session, total_length, rdma_id, rdma_seqnum, rdma_offset, handle, magic,
        first_frame_offset, block_length, frame_index
    }
    PullReplyLayout = PullReply<'_> { frame_seqnum, msg_offset, handle, magic; data: &[] }
    NotifyLayout = Notify {
        dst_endpoint, src_endpoint, session, total_length, rdma_id, rdma_seqnum, seqnum, piggyack
    }
    TrucLayout = Ack {
        dst_endpoint, src_endpoint, session, ack, session_id, acknum, send_seq, resent
    }
    HostLayout = HostQuery { peer_index, magic }
    HostLayout = HostReply<'_> { peer_index, magic; name: &[] }
}
