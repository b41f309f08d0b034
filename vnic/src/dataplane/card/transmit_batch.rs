//! The frames of one batch, taken from a transmit ring: each chain is walked once, and the first bytes of its frame are read
//! once into private memory.

use firmware::INLINE_HEADER_LEN;

use crate::dataplane::frames::frame_ref::FrameRef;
use crate::dataplane::frames::transit::Transit;
use crate::memory::{CACHE_LINE, MemoryMap, Piece, prefetch};
use crate::offload::{NET_HEADER_LEN, NetHeader};
use crate::ring::{CHAIN_PIECES_MAX, Direction, Halt, Rule, SplitRing};

/// Frames taken from one ring before the next ring has its turn: long enough to share the cost of publishing, short
/// enough to stay in the first-level cache.
const BATCH: usize = 64;

/// Pieces that the frames of one batch may have together: 32 for each; with more the batch is shorter.
const PIECES_MAX: usize = 2048;

/// One frame of a batch, without its first bytes.
#[derive(Clone, Copy)]
struct Taken {
    header: NetHeader,
    /// What follows the first bytes of a frame in one piece.
    tail: Piece,
    /// The pieces of any other frame; none for a frame in one piece.
    first_piece: u32,
    pieces_end: u32,
    len: u32,
    head: u16,
    inline_len: u8,
}

/// A frame that lies in one piece behind its first bytes.
#[derive(Clone, Copy)]
pub struct CompactFrame<'a> {
    /// Unchecked offload request of the sender.
    pub header: NetHeader,
    /// The first bytes; zeros behind the end of a shorter frame.
    pub inline: &'a [u8; INLINE_HEADER_LEN],
    /// What follows them; empty for a shorter frame.
    pub tail: Piece,
    /// Bytes of the frame.
    pub len: u32,
}

/// The frames of one batch. It is kept and used again, so that taking a batch allocates nothing.
pub struct TransmitBatch {
    frames: Vec<Taken>,
    inline: Box<[[u8; INLINE_HEADER_LEN]; BATCH]>,
    pieces: Vec<Piece>,
    entries: u16,
}

impl TransmitBatch {
    /// An empty batch with all the room it will ever need.
    pub fn new() -> Self {
        Self {
            frames: Vec::with_capacity(BATCH),
            inline: Box::new([[0; INLINE_HEADER_LEN]; BATCH]),
            pieces: Vec::with_capacity(PIECES_MAX),
            entries: 0,
        }
    }

    /// Frames in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.frames.len()
    }

    /// Available entries taken for the batch: its frames, and those from one that broke a rule on.
    #[inline]
    pub fn entries(&self) -> u16 {
        self.entries
    }

    /// Forgets the frames of the batch.
    #[inline]
    pub fn clear(&mut self) {
        self.frames.clear();
        self.pieces.clear();
        self.entries = 0;
    }

    /// Takes up to [`BATCH`] of the `available` chains from `ring` into an empty batch, and reads the first bytes of their frames,
    /// which are behind headers of `header_len` bytes.
    ///
    /// # Errors
    /// Why a chain cannot be taken. The chains before it are in the batch and are good.
    // A function of its own: inlined, its loops lack registers.
    #[inline(never)]
    pub fn fill(
        &mut self,
        ring: &mut SplitRing,
        map: &MemoryMap,
        available: u16,
        header_len: usize,
    ) -> Result<(), Halt> {
        let available = usize::from(available).min(BATCH);
        // All descriptors first, then all first bytes: the prefetches of one have the others' time to arrive.
        let outcome = self.take_chains(ring, map, available);
        if header_len != NET_HEADER_LEN {
            return self.read_heads_behind(header_len, outcome);
        }
        let mut long_enough = 0;
        for (taken, inline) in self.frames.iter_mut().zip(self.inline.iter_mut()) {
            if !taken.read_head(&mut self.pieces, inline) {
                break;
            }
            long_enough += 1;
        }
        if long_enough < self.frames.len() {
            self.frames.truncate(long_enough);
            return Err(Rule::TransmitHeaderTooShort.into());
        }
        outcome
    }

    /// Reads the first bytes of the frames behind headers of `header_len` bytes, by no short path.
    #[cold]
    #[inline(never)]
    fn read_heads_behind(&mut self, header_len: usize, outcome: Result<(), Halt>) -> Result<(), Halt> {
        let pieces = &mut self.pieces;
        let mut frames = self.frames.iter_mut().zip(self.inline.iter_mut());
        let too_short = frames.position(|(taken, inline)| !taken.read_head_behind(pieces, inline, header_len));
        if let Some(first) = too_short {
            self.frames.truncate(first);
            return Err(Rule::TransmitHeaderTooShort.into());
        }
        outcome
    }

    #[inline]
    fn take_chains(&mut self, ring: &mut SplitRing, map: &MemoryMap, available: usize) -> Result<(), Halt> {
        let mut heads = [0; BATCH];
        let heads = &mut heads[..available];
        ring.take_heads(heads);
        self.entries = available as u16;
        for &head in &*heads {
            let first_piece = self.pieces.len() as u32;
            let tail = match ring.single(map, head, Direction::Transmit) {
                Some(piece) => {
                    // Header and first bytes lie on two lines.
                    prefetch(piece.ptr);
                    prefetch(piece.ptr.wrapping_add(CACHE_LINE));
                    piece
                }
                None => {
                    let heads = &heads[self.frames.len()..];
                    ring.walk_first(map, heads, Direction::Transmit, &mut self.pieces)?;
                    Piece::EMPTY
                }
            };
            self.frames.push(Taken {
                header: NetHeader::default(),
                tail,
                first_piece,
                pieces_end: self.pieces.len() as u32,
                len: 0,
                head,
                inline_len: 0,
            });
            if self.pieces.len() + CHAIN_PIECES_MAX > PIECES_MAX {
                let left = self.entries - self.frames.len() as u16;
                ring.untake(left);
                self.entries -= left;
                break;
            }
        }
        Ok(())
    }

    /// The head of the chain of frame `index`.
    #[inline]
    pub fn head(&self, index: usize) -> u16 {
        self.frames[index].head
    }

    /// Frame `index` with its unchecked header.
    #[inline(always)]
    pub fn frame(&self, index: usize, transit: Transit) -> FrameRef<'_> {
        let taken = &self.frames[index];
        FrameRef {
            header: taken.header,
            inline: &self.inline[index][..usize::from(taken.inline_len)],
            rest: taken.rest(&self.pieces),
            len: taken.len,
            whole: None,
            transit,
        }
    }

    /// The first bytes of frame `index`, if there is such a frame; zeros behind the end of a shorter one.
    #[inline(always)]
    pub fn ethernet_header(&self, index: usize) -> Option<&[u8; ether::ETHERNET_HEADER_LEN]> {
        let inline = self.inline.get(index).filter(|_| index < self.frames.len())?;
        inline.first_chunk()
    }

    /// The frames from number `first` on, with their unchecked headers, up to one of several pieces.
    #[inline(always)]
    pub fn compact_frames(&self, first: usize) -> impl Iterator<Item = CompactFrame<'_>> {
        let inline = self.inline[first..].iter();
        let taken = self.frames[first..].iter();
        taken.zip(inline).map_while(|(taken, inline)| {
            taken.is_in_one_piece().then_some(CompactFrame {
                header: taken.header,
                inline,
                tail: taken.tail,
                len: taken.len,
            })
        })
    }

    /// The heads of the chains of `count` frames from number `first` on.
    #[inline(always)]
    pub fn heads(&self, first: usize, count: usize) -> impl Iterator<Item = u16> {
        self.frames[first..first + count].iter().map(|taken| taken.head)
    }

    /// The lengths of `count` frames from number `first` on.
    #[inline(always)]
    pub fn lengths(&self, first: usize, count: usize) -> impl ExactSizeIterator<Item = u32> {
        self.frames[first..first + count].iter().map(|taken| taken.len)
    }

    /// The lengths and first bytes of `count` frames from number `first` on.
    #[inline(always)]
    pub fn beginnings(&self, first: usize, count: usize) -> impl ExactSizeIterator<Item = (u32, &[u8])> {
        let inline = self.inline[first..first + count].iter();
        let taken = self.frames[first..first + count].iter();
        taken
            .zip(inline)
            .map(|(taken, inline)| (taken.len, &inline[..usize::from(taken.inline_len)]))
    }
}

impl Taken {
    /// Reads the header and the first bytes of the frame, and moves the pieces behind them. False if the chain is
    /// shorter than the header.
    #[inline]
    fn read_head(&mut self, pieces: &mut [Piece], inline: &mut [u8; INLINE_HEADER_LEN]) -> bool {
        const BOTH: usize = NET_HEADER_LEN + INLINE_HEADER_LEN;
        let piece = &mut self.tail;
        if piece.len as usize >= BOTH {
            // SAFETY: the piece is mapped for at least as many bytes as are read.
            unsafe {
                let header = piece.ptr.cast::<[u8; NET_HEADER_LEN]>().read_unaligned();
                self.header = NetHeader::parse(&header);
                *inline = piece
                    .ptr
                    .add(NET_HEADER_LEN)
                    .cast::<[u8; INLINE_HEADER_LEN]>()
                    .read_unaligned();
                piece.ptr = piece.ptr.add(BOTH);
            }
            self.len = piece.len - NET_HEADER_LEN as u32;
            self.inline_len = INLINE_HEADER_LEN as u8;
            piece.len -= BOTH as u32;
            return true;
        }
        self.read_head_of_pieces(pieces, inline)
    }

    #[inline(never)]
    fn read_head_of_pieces(&mut self, pieces: &mut [Piece], inline: &mut [u8; INLINE_HEADER_LEN]) -> bool {
        self.read_head_behind(pieces, inline, NET_HEADER_LEN)
    }

    /// As [`read_head`](Self::read_head), behind a header of `header_len` bytes, and for any number of pieces.
    #[inline(always)]
    fn read_head_behind(
        &mut self,
        pieces: &mut [Piece],
        inline: &mut [u8; INLINE_HEADER_LEN],
        header_len: usize,
    ) -> bool {
        let in_place = self.tail.len > 0;
        let pieces = if in_place {
            std::slice::from_mut(&mut self.tail)
        } else {
            &mut pieces[self.first_piece as usize..self.pieces_end as usize]
        };
        let total: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
        if total < header_len as u64 {
            return false;
        }
        // A chain longer than any frame is found by the caller's length check; the sum only must not wrap.
        self.len = (total - header_len as u64).min(u64::from(u32::MAX)) as u32;
        let mut skipped = 0;
        let mut header = [0; NET_HEADER_LEN];
        read(pieces, &mut skipped, &mut header[..header_len]);
        self.header = NetHeader::parse(&header);
        let inline_len = read(pieces, &mut skipped, inline);
        // Nothing of an earlier frame may follow this one.
        inline[inline_len..].fill(0);
        self.inline_len = inline_len as u8;
        if !in_place {
            self.first_piece += skipped;
        }
        true
    }

    #[inline(always)]
    fn is_in_one_piece(&self) -> bool {
        self.first_piece == self.pieces_end
    }

    /// The pieces behind the first bytes.
    #[inline(always)]
    fn rest<'a>(&'a self, pieces: &'a [Piece]) -> &'a [Piece] {
        if self.is_in_one_piece() {
            let tail = std::slice::from_ref(&self.tail);
            if self.tail.len == 0 { &[] } else { tail }
        } else {
            &pieces[self.first_piece as usize..self.pieces_end as usize]
        }
    }
}

/// Reads bytes from the front of `pieces` into `out`, moving the pieces on; `skipped` counts pieces that were used up.
fn read(pieces: &mut [Piece], skipped: &mut u32, out: &mut [u8]) -> usize {
    let mut done = 0;
    while done < out.len()
        && let Some(piece) = pieces.get_mut(*skipped as usize)
    {
        let now = (piece.len as usize).min(out.len() - done);
        // SAFETY: the piece is mapped for at least `now` bytes, and `out` has room for them.
        unsafe {
            std::ptr::copy_nonoverlapping(piece.ptr, out[done..].as_mut_ptr(), now);
            piece.ptr = piece.ptr.add(now);
        }
        piece.len -= now as u32;
        done += now;
        if piece.len == 0 {
            *skipped += 1;
        }
    }
    done
}
