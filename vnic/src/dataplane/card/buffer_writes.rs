//! Frames copied into receive buffers, each behind its header.
//!
//! Which buffers a frame gets, and whether they have room for it, is decided in `receive_ring`.

use firmware::INLINE_HEADER_LEN;

use super::transmit_batch::CompactFrame;
use crate::dataplane::frames::frame_ref::{FrameRef, copy};
use crate::memory::Piece;
use crate::offload::{NET_HEADER_LEN, NetHeader};

/// Writes a header that asks nothing and the frame into one buffer.
///
/// # Safety
/// `to` must be mapped for the header, the first bytes and the frame's tail, and the tail for its length.
#[inline(always)]
pub unsafe fn write_plain(to: *mut u8, frame: &CompactFrame<'_>) {
    let header = NetHeader::default().to_bytes(1);
    // SAFETY: mapped by contract. What has a fixed size is copied as a value, which is a few moves.
    unsafe {
        to.cast::<[u8; NET_HEADER_LEN]>().write_unaligned(header);
        let at = to.add(NET_HEADER_LEN);
        at.cast::<[u8; INLINE_HEADER_LEN]>().write_unaligned(*frame.inline);
        if frame.tail.len != 0 {
            copy(frame.tail.ptr, at.add(INLINE_HEADER_LEN), frame.tail.len as usize);
        }
    }
}

/// Writes header and frame into one buffer.
///
/// # Safety
/// `to` must be mapped for the header and the whole frame, the frame's pieces for their lengths.
#[inline]
pub unsafe fn write_frame(to: *mut u8, frame: &FrameRef<'_>) {
    let header = frame.header.to_bytes(1);
    // SAFETY: mapped by contract.
    unsafe {
        to.cast::<[u8; NET_HEADER_LEN]>().write_unaligned(header);
        let mut at = to.add(NET_HEADER_LEN);
        copy(frame.inline.as_ptr(), at, frame.inline.len());
        at = at.add(frame.inline.len());
        for piece in frame.rest {
            copy(piece.ptr, at, piece.len as usize);
            at = at.add(piece.len as usize);
        }
    }
}

/// Writes `header` and the frame into `pieces`, one after the other; what does not fit any more is left out.
///
/// # Safety
/// `pieces` must be mapped for their lengths, and so must the frame's pieces.
#[inline]
pub unsafe fn write_scattered(pieces: &[Piece], header: &[u8], frame: &FrameRef<'_>) {
    let mut out = Scatter {
        pieces,
        at: 0,
        offset: 0,
    };
    // SAFETY: mapped by contract.
    unsafe {
        out.write(header.as_ptr(), header.len());
        out.write(frame.inline.as_ptr(), frame.inline.len());
        for piece in frame.rest {
            out.write(piece.ptr, piece.len as usize);
        }
    }
}

/// Writes one after the other into a list of pieces.
struct Scatter<'a> {
    pieces: &'a [Piece],
    at: usize,
    offset: usize,
}

impl Scatter<'_> {
    /// Appends `len` bytes from `from`.
    ///
    /// # Safety
    /// The pieces must be mapped for their lengths, and `from` must be readable for `len` bytes.
    unsafe fn write(&mut self, mut from: *const u8, mut len: usize) {
        while len > 0
            && let Some(piece) = self.pieces.get(self.at)
        {
            let room = piece.len as usize - self.offset;
            let now = room.min(len);
            // SAFETY: `now` bytes fit into the piece behind `offset`; mapped and readable by contract.
            unsafe {
                copy(from, piece.ptr.add(self.offset), now);
                from = from.add(now);
            }
            len -= now;
            self.offset += now;
            if self.offset == piece.len as usize {
                self.at += 1;
                self.offset = 0;
            }
        }
    }
}
