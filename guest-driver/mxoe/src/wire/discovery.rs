//! Values of discovery and management: RAW, its board announcement, HOST_QUERY, HOST_REPLY (section 9).

use zerocopy::{FromBytes, IntoBytes};

use super::layout::AnnouncementLayout;

/// A free-form frame of the mapping daemons (9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Raw<'a> {
    /// Everything from frame offset 17 on, padding included on reception.
    pub payload: &'a [u8],
}

/// The board announcement of `omxoed`, the free part of a broadcast RAW frame (9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announcement {
    /// The board's address, in the low 48 bits; this one counts, not the Ethernet source.
    pub board: u64,
    /// Random, drawn at the daemon's start.
    pub serial: u32,
}

impl Announcement {
    /// Bytes of the free part; a frame of 64 bytes.
    pub const LEN: usize = size_of::<AnnouncementLayout>();

    /// Reads the free part of a RAW frame. `None` if it is too short or the address has more than 48 bits.
    pub fn from_payload(payload: &[u8]) -> Option<Self> {
        let (layout, _) = AnnouncementLayout::ref_from_prefix(payload).ok()?;
        let (board, serial) = (layout.board.get(), layout.serial.get());
        (board >> 48 == 0).then_some(Self { board, serial })
    }

    /// The free part of a RAW frame.
    pub fn to_payload(&self) -> [u8; Self::LEN] {
        let layout = AnnouncementLayout {
            board: self.board.into(),
            serial: self.serial.into(),
            ..Default::default()
        };
        let mut payload = [0; Self::LEN];
        payload.copy_from_slice(layout.as_bytes());
        payload
    }
}

/// Asks a board for its name (9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostQuery {
    /// Index of the destination in the sender's peer table.
    pub peer_index: u16,
    /// Echoed by the reply.
    pub magic: u32,
}

/// Gives a board's name (9.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReply<'a> {
    /// Index of the destination in the sender's peer table.
    pub peer_index: u16,
    /// Echo of the query's.
    pub magic: u32,
    /// The name without its terminating zero, at most 79 bytes, no zero inside.
    pub name: &'a [u8],
}
