//! The header of a frame with which a program of the guest asks a self-connected card for a copy.
//!
//! It is as long as what the data plane reads of a frame before it decides ([`INLINE_HEADER_LEN`]): no byte of the data is in
//! it, so data is never taken for a control frame, and the notification value behind the data is stored in one piece.

use ether::{ETHERNET_HEADER_LEN, EtherType, MacAddr};

use super::{COPY_MTU_MAX, NOTIFICATION_LEN};
use crate::INLINE_HEADER_LEN;

/// Bytes of a frame before its data.
pub const COPY_HEADER_LEN: usize = 64;
/// The first bytes of the header, behind which all are zero.
pub const COPY_HEADER_START: usize = 24;

/// The longest such frame, in bytes: 63 pages of data, which 64 pieces hold wherever they begin, and a notification value. It passes no
/// other interface than its own, so none's MTU limits it; what does is [`COPY_MTU_MAX`].
pub const COPY_FRAME_LEN_MAX: u32 = COPY_HEADER_LEN as u32 + 63 * 4096 + NOTIFICATION_LEN;

const _: () = assert!(COPY_HEADER_LEN == INLINE_HEADER_LEN && COPY_FRAME_LEN_MAX <= COPY_MTU_MAX);

const MAGIC: u16 = 0x5743;
const VERSION: u8 = 1;
/// The last 8 bytes of the frame are a notification value.
const NOTIFIES: u8 = 1;

/// What the header of such a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyHeader {
    /// The frame ends with a notification value.
    pub notifies: bool,
    /// The index in the available ring of the receive chain that the frame is for, modulo 2¹⁶. A frame that is sent a second time
    /// names the same one.
    pub index: u16,
}

impl CopyHeader {
    /// Returns the first bytes of the header, for a card with this address.
    #[must_use]
    pub fn encode(self, card: MacAddr) -> [u8; COPY_HEADER_START] {
        let mut bytes = [0; COPY_HEADER_START];
        bytes[..6].copy_from_slice(&card.0);
        bytes[6..12].copy_from_slice(&card.0);
        bytes[12..14].copy_from_slice(&EtherType::CARD_TO_CARD.0.to_be_bytes());
        bytes[14..16].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[16] = VERSION;
        bytes[17] = if self.notifies { NOTIFIES } else { 0 };
        bytes[18..20].copy_from_slice(&self.index.to_be_bytes());
        bytes
    }

    /// Reads the header at the beginning of a frame; `None` for any other frame.
    #[must_use]
    pub fn decode(frame: &[u8]) -> Option<Self> {
        let head = frame.first_chunk::<COPY_HEADER_LEN>()?;
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let is_copy = half(ETHERNET_HEADER_LEN - 2) == EtherType::CARD_TO_CARD.0
            && half(ETHERNET_HEADER_LEN) == MAGIC
            && head[16] == VERSION;
        is_copy.then(|| Self {
            notifies: head[17] & NOTIFIES != 0,
            index: half(18),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multicast::is_card_frame;

    #[test]
    fn a_header_survives_the_wire_and_is_no_other_frame() {
        for (notifies, index) in [(false, 0), (true, 1), (true, u16::MAX)] {
            let header = CopyHeader { notifies, index };
            let mut frame = [0; COPY_HEADER_LEN + 1];
            frame[..COPY_HEADER_START].copy_from_slice(&header.encode(MacAddr::CARD));
            assert_eq!(CopyHeader::decode(&frame), Some(header));
            assert!(!crate::Card::is_control(&frame) && !is_card_frame(&frame));
            for at in 12..17 {
                let mut other = frame;
                other[at] ^= 1;
                assert_eq!(CopyHeader::decode(&other), None, "byte {at}");
            }
            assert_eq!(CopyHeader::decode(&frame[..COPY_HEADER_LEN - 1]), None, "too short");
        }
    }
}
