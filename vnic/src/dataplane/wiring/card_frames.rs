//! Frames between cards (multicast in the card, `docs/spec/card-multicast.md`) that have arrived and are not handled yet.

use std::collections::VecDeque;

use ether::MacAddr;
use firmware::INLINE_HEADER_LEN;

use crate::dataplane::frames::FRAME_LEN_MAX;
use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::pool::Pooled;
use crate::dataplane::frames::transit::Transit;
use crate::memory::Piece;
use crate::offload::NetHeader;

/// A frame between cards: its first bytes, which every card writes anew, and the rest where it lies.
#[derive(Clone, Copy)]
pub struct CardFrame {
    /// The first bytes; those behind the end of a shorter frame mean nothing.
    pub head: [u8; INLINE_HEADER_LEN],
    /// What follows them, in one piece.
    tail: Piece,
    /// Bytes of the frame.
    pub len: u32,
    /// It came directly over an ideal link, which counts it with what the card delivers, or after it was handled.
    pub is_direct: bool,
}

impl CardFrame {
    /// A frame of these first bytes and this tail that its link has counted.
    pub fn new(inline: &[u8], tail: Piece, len: u32) -> Self {
        let mut head = [0; INLINE_HEADER_LEN];
        let known = inline.len().min(INLINE_HEADER_LEN);
        head[..known].copy_from_slice(&inline[..known]);
        Self {
            head,
            tail,
            len,
            is_direct: false,
        }
    }

    /// A frame in at most one piece behind its first bytes, which came directly over an ideal link.
    pub fn direct(frame: &FrameRef<'_>) -> Self {
        let tail = frame.rest.first().copied().unwrap_or(Piece::EMPTY);
        Self {
            is_direct: true,
            ..Self::new(frame.inline, tail, frame.len)
        }
    }

    /// A frame that lies in private memory.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        let (inline, tail) = bytes.split_at(bytes.len().min(INLINE_HEADER_LEN));
        let tail = Piece {
            ptr: tail.as_ptr().cast_mut(),
            len: tail.len() as u32,
        };
        Self::new(inline, tail, bytes.len() as u32)
    }

    /// The first bytes, as many as the frame has.
    pub fn inline(&self) -> &[u8] {
        &self.head[..INLINE_HEADER_LEN.min(self.len as usize)]
    }

    /// The frame as one that `transit` describes.
    pub fn as_ref(&self, transit: Transit) -> FrameRef<'_> {
        FrameRef {
            header: NetHeader::default(),
            inline: self.inline(),
            rest: if self.tail.len == 0 {
                &[]
            } else {
                std::slice::from_ref(&self.tail)
            },
            len: self.len,
            whole: None,
            transit,
        }
    }

    /// Writes both addresses.
    pub fn set_addresses(&mut self, to: MacAddr, from: MacAddr) {
        self.head[..6].copy_from_slice(&to.0);
        self.head[6..12].copy_from_slice(&from.0);
    }

    /// Writes the destination address.
    pub fn set_destination(&mut self, to: MacAddr) {
        self.head[..6].copy_from_slice(&to.0);
    }
}

/// Frames that reached a card and are not handled yet. All are handled before the sender of the first goes on: their
/// bytes lie in memory that is in use for no longer.
#[derive(Default)]
pub struct CardFrames {
    arrivals: VecDeque<(usize, CardFrame)>,
    /// Buffers whose frames are among them.
    spent: Vec<Pooled>,
    /// Memory for a frame that its guest handed over in several pieces.
    joined: Vec<u8>,
}

impl CardFrames {
    /// A frame reached the card at `index`.
    pub fn push(&mut self, index: usize, frame: CardFrame) {
        self.arrivals.push_back((index, frame));
    }

    /// A frame reached the card at `index` directly over an ideal link.
    pub fn push_direct(&mut self, index: usize, frame: &CardFrame) {
        let is_direct = true;
        self.arrivals.push_back((index, CardFrame { is_direct, ..*frame }));
    }

    /// The frame that reached a card first.
    pub fn pop(&mut self) -> Option<(usize, CardFrame)> {
        self.arrivals.pop_front()
    }

    /// Keeps the buffer of a frame until all frames are handled.
    pub fn keep(&mut self, buffer: Option<Pooled>) {
        self.spent.extend(buffer);
    }

    /// A buffer whose frames are handled.
    pub fn pop_spent(&mut self) -> Option<Pooled> {
        self.spent.pop()
    }

    /// Forgets all frames: they are left over from a round that panicked, in memory that may be gone.
    pub fn clear(&mut self) {
        self.arrivals.clear();
    }

    /// A frame from a guest, put together once for all its hops if it has several pieces.
    pub fn joined(&mut self, frame: &FrameRef<'_>) -> CardFrame {
        match frame.rest {
            [] => CardFrame::new(frame.inline, Piece::EMPTY, frame.len),
            [tail] => CardFrame::new(frame.inline, *tail, frame.len),
            _ => {
                self.joined.resize(FRAME_LEN_MAX, 0);
                CardFrame::of_bytes(frame.copy_into(&mut self.joined))
            }
        }
    }
}
