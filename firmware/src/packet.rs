//! What the card remembers of a packet: its length and whether the sender marked it as latency-sensitive.
//!
//! The mark is read here and nowhere else (`papers.md` M-GF3, `mxoe-wire.md` section 15). The bytes of the packet stay
//! with the driver.

use ether::{EtherType, Frame};

use crate::mxoe_header::{MARK, TYPE_OFFSET};

/// How many bytes from the start of a frame are enough for every decision of the firmware.
///
/// One cache line: the longest header of MXoE (native PULL) ends at byte 60.
pub const INLINE_HEADER_LEN: usize = 64;

/// The card's packet descriptor as the strategies see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketInfo {
    /// Length of the frame in bytes, without its frame check sequence.
    pub len: u32,
    /// The sending driver asked for an early interrupt.
    pub marked: bool,
}

impl PacketInfo {
    /// Reads the descriptor's content out of a frame.
    ///
    /// `header` are the first bytes of the frame (17 are enough, [`INLINE_HEADER_LEN`] is what drivers have at hand);
    /// `frame_len` is the length of the whole frame in bytes. A frame is marked if `marks_on`, its EtherType is MXoE's and
    /// bit 7 of its type byte is set; a frame too short to have a type byte is not marked. In any other protocol that
    /// byte means something else (in IPv4 it is the upper half of the total length), so the EtherType is checked first.
    #[inline]
    pub fn classify(header: &[u8], frame_len: u32, marks_on: bool) -> Self {
        let marked =
            header.get(TYPE_OFFSET).is_some_and(|kind| kind & MARK != 0) && Self::may_be_marked(header, marks_on);
        Self { len: frame_len, marked }
    }

    /// False only if no frame with this Ethernet header is marked; `header` is the frame's first 14 bytes or more.
    #[inline]
    pub fn may_be_marked(header: &[u8], marks_on: bool) -> bool {
        marks_on && Frame::new(header).is_some_and(|frame| frame.ether_type() == EtherType::MXOE)
    }
}
