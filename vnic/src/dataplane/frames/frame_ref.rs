//! A frame as the data plane handles it: its first bytes are in private memory, the rest is where the sender left it.
//!
//! What is decided on is what is delivered: the first [`INLINE_HEADER_LEN`] bytes are read once and forwarded from that copy.

use firmware::INLINE_HEADER_LEN;

use super::transit::Transit;
use crate::memory::Piece;
use crate::offload::{Cut, HEADERS_MAX, NetHeader, OnWire};

/// A borrowed frame; `rest` continues where `inline` ends.
#[derive(Clone, Copy, Debug)]
pub struct FrameRef<'a> {
    /// Checked offload request of the sender.
    pub header: NetHeader,
    /// The first bytes, at most [`INLINE_HEADER_LEN`].
    pub inline: &'a [u8],
    /// The other bytes, in guest memory or in a buffer of ours.
    pub rest: &'a [Piece],
    /// Bytes of `inline` and `rest` together.
    pub len: u32,
    /// The whole frame, if it lies in one private buffer.
    pub whole: Option<&'a [u8]>,
    /// Where the frame came from, and what may happen to it.
    pub transit: Transit,
}

impl<'a> FrameRef<'a> {
    /// A frame that lies in private memory as a whole. `rest` is where its only piece is kept.
    pub fn of_bytes(bytes: &'a [u8], rest: &'a mut [Piece; 1], header: NetHeader, transit: Transit) -> Self {
        let split = bytes.len().min(INLINE_HEADER_LEN);
        let (inline, tail) = bytes.split_at(split);
        rest[0] = Piece {
            ptr: tail.as_ptr().cast_mut(),
            len: tail.len() as u32,
        };
        let rest = if tail.is_empty() { &rest[..0] } else { &rest[..] };
        Self {
            header,
            inline,
            rest,
            len: bytes.len() as u32,
            whole: Some(bytes),
            transit,
        }
    }

    /// This frame with other transit data.
    #[inline]
    pub fn with_transit(&self, transit: Transit) -> Self {
        Self { transit, ..*self }
    }

    /// What the frame is on the wire; `None` if its headers do not allow the segmentation that it asks for.
    #[inline(always)]
    pub fn on_wire(&self) -> Option<OnWire> {
        if self.header.is_segmented() {
            return self.segments_on_wire();
        }
        Some(OnWire {
            frames: 1,
            bytes: u64::from(self.len),
            longest: self.len,
        })
    }

    #[inline(never)]
    fn segments_on_wire(&self) -> Option<OnWire> {
        let mut head = [0; HEADERS_MAX];
        let mut known = self.inline.len();
        head[..known].copy_from_slice(self.inline);
        for piece in self.rest {
            let part = (piece.len as usize).min(head.len() - known);
            // SAFETY: a piece is readable for its length while its memory map is held, which outlives the batch; there is room
            // for `part` bytes of it.
            unsafe { std::ptr::copy_nonoverlapping(piece.ptr, head[known..].as_mut_ptr(), part) };
            known += part;
        }
        let cut = Cut::new(&head[..known], self.len as usize, self.header).ok()?;
        Some(cut.on_wire())
    }

    /// Copies the frame into `out` and returns its bytes; `out` must be long enough.
    pub fn copy_into<'b>(&self, out: &'b mut [u8]) -> &'b mut [u8] {
        let out = &mut out[..self.len as usize];
        let (head, mut tail) = out.split_at_mut(self.inline.len());
        head.copy_from_slice(self.inline);
        for piece in self.rest {
            let (now, later) = tail.split_at_mut(piece.len as usize);
            // SAFETY: a piece is readable for its length while its memory map is held, which outlives the batch; `now`
            // is private memory of the same length.
            unsafe { std::ptr::copy_nonoverlapping(piece.ptr, now.as_mut_ptr(), now.len()) };
            tail = later;
        }
        out
    }
}

/// Copies `len` bytes between guests' memories, which may be the same.
///
/// # Safety
/// Both ranges must be mapped; they may be shared with guests that change them meanwhile.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: mapped by contract; overlap is allowed.
    unsafe { std::ptr::copy(from, to, len) }
}
