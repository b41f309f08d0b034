//! What the card remembers of a packet: its length and whether the sender marked it as latency-sensitive.
//!
//! The mark is read here and nowhere else (`papers.md` M-GF3, `mxoe-wire.md` section 15, `esp-wire.md`). The bytes of the packet
//! stay with the driver.

use ether::{EtherType, Frame};

use crate::mxoe_header::{MARK, TYPE_OFFSET};

/// Frame offset of kind and flags of ESP.
const ESP_FLAGS_OFFSET: usize = 14;
/// The flag *push* of ESP, which is its mark: a call of the sender ended with this packet, or it is one without payload that the
/// sender wants to be announced at once.
const ESP_PUSH: u8 = 0b10;

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

/// Where the mark is in the frames of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    offset: usize,
    bit: u8,
}

impl Mark {
    /// The mark of frames with this Ethernet header, of which frames of a burst share one; `None` if none of them is marked. `header` is a
    /// frame's first 14 bytes or more.
    #[inline]
    pub fn of(header: &[u8], marks_on: bool) -> Option<Self> {
        let (offset, bit) = match Frame::new(header)?.ether_type() {
            _ if !marks_on => return None,
            EtherType::MXOE => (TYPE_OFFSET, MARK),
            EtherType::ESP => (ESP_FLAGS_OFFSET, ESP_PUSH),
            _ => return None,
        };
        Some(Self { offset, bit })
    }

    /// Whether a frame that begins with `header` has it; one that is too short for it has not.
    #[inline]
    pub fn is_in(self, header: &[u8]) -> bool {
        header.get(self.offset).is_some_and(|byte| byte & self.bit != 0)
    }
}

impl PacketInfo {
    /// Reads the descriptor's content out of a frame.
    ///
    /// `header` are the first bytes of the frame (17 are enough, [`INLINE_HEADER_LEN`] is what drivers have at hand);
    /// `frame_len` is the length of the whole frame in bytes. A frame is marked if `marks_on` and it is one of MXoE with bit 7 of
    /// its type byte set, or one of ESP with the flag *push*; a frame too short to have that byte is not marked. In any
    /// other protocol these bytes mean something else (in IPv4 that of MXoE is the upper half of the total length), so the
    /// EtherType is checked. ESP on another EtherType than its own has no mark.
    #[inline]
    pub fn classify(header: &[u8], frame_len: u32, marks_on: bool) -> Self {
        Self {
            len: frame_len,
            marked: Mark::of(header, marks_on).is_some_and(|mark| mark.is_in(header)),
        }
    }
}
