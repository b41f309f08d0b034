//! The frames of one running pull: which were asked for, which arrived, which are surely lost (6.2, 6.3, 6.4). Numbers
//! only; no packets and no time.
//!
//! Every frame that is asked for gets the next *ordinal*. Replies come in the order of the requests, so when an ordinal
//! arrives, a frame with a clearly lower one is lost: whether it was asked for in the same block, an older one, or again.

use crate::engine::transfers::path::Path;

/// Frames that can be outstanding: the number on the wire has eight bits.
pub(super) const WINDOW: u32 = 256;
/// This many ordinals are remembered: asking again takes new ones.
const ORDINALS: u16 = 512;
/// Blocks in flight per pull (section 3).
pub(super) const BLOCKS: u32 = 4;

/// The times of so many requests are remembered.
const STAMPS: usize = 16;

type Bits = [u64; 4];

fn has(bits: &Bits, frame: u32) -> bool {
    bits[(frame % WINDOW / 64) as usize] >> (frame % 64) & 1 != 0
}

fn set(bits: &mut Bits, frame: u32) {
    bits[(frame % WINDOW / 64) as usize] |= 1 << (frame % 64);
}

fn clear(bits: &mut Bits, frame: u32) {
    bits[(frame % WINDOW / 64) as usize] &= !(1 << (frame % 64));
}

/// The ordinals of the frames that were asked for.
#[derive(Debug)]
struct Ordinals {
    /// The newest ordinal of each frame.
    of: [u16; WINDOW as usize],
    /// The frame of each ordinal.
    frame_of: [u8; ORDINALS as usize],
    next: u16,
    /// One above the highest ordinal that arrived.
    seen: u16,
    /// All ordinals below this were judged.
    judged: u16,
}

/// The window of a pull's frames.
#[derive(Debug)]
pub(super) struct PullWindow {
    payload: u32,
    /// Bytes of frame 0 that lie before the message.
    skipped: u32,
    total: u32,
    frames: u32,
    /// The oldest frame that has not arrived.
    base: u32,
    /// The first frame that was never asked for.
    next: u32,
    received: Bits,
    wanted: Bits,
    wanted_count: u32,
    again: Bits,
    ordinals: Ordinals,
    /// First ordinal and time of the last requests, newest at `stamp_last`.
    stamps: [(u16, u64); STAMPS],
    stamp_last: usize,
}

/// A reply as it came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reply {
    pub frame_seqnum: u8,
    pub msg_offset: u32,
    pub len: u32,
    pub now_ns: u64,
}

/// Why a reply is dropped. `spurious`: it is the second copy of a frame that was asked for again, this long after that in
/// nanoseconds, so the first was not lost; 0 if it is not known how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Number and offset do not belong together.
    Wraparound { spurious: Option<u64> },
    /// The frame was not asked for, or has another length.
    BadSeqnum,
    /// The frame is there already.
    Duplicate { spurious: Option<u64> },
}

/// A reply that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// The ordinal of the frame, if it was asked for once.
    pub ordinal: Option<u16>,
    /// This many frames came before it though they were asked for later.
    pub overtaken_by: u16,
    /// Frames that are now known to be lost.
    pub lost: u32,
    /// The oldest block was incomplete and this frame completed a younger one.
    pub done_early: bool,
    /// The frame was asked for again and came this long after that, in nanoseconds: longer than any reply was thought
    /// to take.
    pub late_ns: Option<u64>,
}

impl PullWindow {
    /// Makes a window for `total` bytes from offset `rdma_offset` of the region, in frames of `payload` bytes.
    pub(super) fn new(total: u32, rdma_offset: u32, payload: u32) -> Self {
        let skipped = rdma_offset % payload;
        Self {
            payload,
            skipped,
            total,
            frames: (u64::from(skipped) + u64::from(total)).div_ceil(payload.into()) as u32,
            base: 0,
            next: 0,
            received: [0; 4],
            wanted: [0; 4],
            wanted_count: 0,
            again: [0; 4],
            ordinals: Ordinals {
                of: [0; WINDOW as usize],
                frame_of: [0; ORDINALS as usize],
                next: 0,
                seen: 0,
                judged: 0,
            },
            stamps: [(0, 0); STAMPS],
            stamp_last: 0,
        }
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.base >= self.frames
    }

    /// Returns where a frame's data begins in the message.
    pub(super) const fn offset(&self, frame: u32) -> u32 {
        if frame == 0 {
            0
        } else {
            (frame as u64 * self.payload as u64 - self.skipped as u64) as u32
        }
    }

    /// Returns the bytes of frames `first .. first + count`.
    pub(super) const fn bytes(&self, first: u32, count: u32) -> u32 {
        let end = (first as u64 + count as u64) * self.payload as u64 - self.skipped as u64;
        let end = if end < self.total as u64 {
            end as u32
        } else {
            self.total
        };
        end - self.offset(first)
    }

    /// Returns the bytes to be skipped at the start of a request that begins with this frame.
    pub(super) const fn first_frame_offset(&self, first: u32) -> u32 {
        if first == 0 { self.skipped } else { 0 }
    }

    /// Returns the bytes that were asked for and have not arrived.
    pub(super) fn missing_bytes(&self) -> u32 {
        self.missing().map(|frame| self.bytes(frame, 1)).sum()
    }

    pub(super) const fn is_outstanding(&self) -> bool {
        self.base < self.next
    }

    fn missing(&self) -> impl Iterator<Item = u32> {
        (self.base..self.next).filter(|frame| !has(&self.received, *frame))
    }

    /// Returns the next block to be asked for, if there is one and it is its turn: four blocks may be in flight.
    pub(super) fn next_block(&self, block_frames: u32) -> Option<(u32, u32)> {
        let count = (block_frames - self.next % block_frames).min(self.frames - self.next);
        let oldest_block = self.base - self.base % block_frames;
        let room = self.next + count <= oldest_block + BLOCKS * block_frames;
        (count > 0 && room).then_some((self.next, count))
    }

    /// Returns the next consecutive frames that are to be asked for again.
    pub(super) fn next_wanted(&self, block_frames: u32) -> Option<(u32, u32)> {
        if self.wanted_count == 0 {
            return None;
        }
        let first = (self.base..self.next).find(|frame| has(&self.wanted, *frame))?;
        let end = self.next.min(first + block_frames);
        let count = (first..end).take_while(|frame| has(&self.wanted, *frame)).count();
        Some((first, count as u32))
    }

    /// Notes that frames are asked for at `now_ns`; returns the first one's ordinal.
    pub(super) fn request(&mut self, first: u32, count: u32, now_ns: u64) -> u16 {
        let ordinal = self.ordinals.next;
        self.stamp_last = (self.stamp_last + 1) % STAMPS;
        self.stamps[self.stamp_last] = (ordinal, now_ns);
        for frame in first..first + count {
            if frame < self.next {
                if has(&self.wanted, frame) {
                    clear(&mut self.wanted, frame);
                    self.wanted_count -= 1;
                }
                set(&mut self.again, frame);
            } else {
                clear(&mut self.received, frame);
                clear(&mut self.again, frame);
            }
            self.ordinals.of[(frame % WINDOW) as usize] = self.ordinals.next;
            self.ordinals.frame_of[usize::from(self.ordinals.next % ORDINALS)] = frame as u8;
            self.ordinals.next = self.ordinals.next.wrapping_add(1);
        }
        self.next = self.next.max(first + count);
        // What cannot be remembered is left to the time-out.
        let remembered = self.ordinals.next.wrapping_sub(self.ordinals.judged);
        if remembered > ORDINALS {
            self.ordinals.judged = self.ordinals.next.wrapping_sub(ORDINALS);
            if self.ordinals.seen.wrapping_sub(self.ordinals.judged) as i16 <= 0 {
                self.ordinals.seen = self.ordinals.judged;
            }
        }
        ordinal
    }

    /// Returns when an ordinal was asked for; `None` if many requests followed it.
    fn stamp_of(&self, ordinal: u16) -> Option<u64> {
        let newest_first = (0..STAMPS).map(|age| self.stamps[(self.stamp_last + STAMPS - age) % STAMPS]);
        let mut stamps = newest_first.skip_while(|(first, _)| (ordinal.wrapping_sub(*first) as i16) < 0);
        stamps.next().map(|(_, at_ns)| at_ns)
    }

    /// Returns how long after it was asked for again a frame that is there came once more, if it was asked for again.
    fn second_copy(&self, frame: u32, now_ns: u64) -> Option<u64> {
        if !has(&self.again, frame) {
            return None;
        }
        let asked_ns = self.stamp_of(self.ordinals.of[(frame % WINDOW) as usize]);
        Some(asked_ns.map_or(0, |asked_ns| now_ns.saturating_sub(asked_ns)))
    }

    /// Takes a reply (6.3, checks 5 to 7, and one of Weft's: exactly the offset and length that were asked for).
    pub(super) fn arrive(&mut self, reply: Reply, path: Path, block_frames: u32) -> Result<Taken, Refused> {
        let Reply {
            frame_seqnum,
            msg_offset,
            len,
            now_ns,
        } = reply;
        let ahead = frame_seqnum.wrapping_sub(self.base as u8);
        let frame = self.base + u32::from(ahead);
        let by_offset = msg_offset.div_ceil(self.payload);
        if by_offset != frame {
            let is_past = by_offset < self.base && self.base - by_offset <= WINDOW / 2;
            let spurious = if is_past {
                self.second_copy(by_offset, now_ns)
            } else {
                None
            };
            return Err(Refused::Wraparound { spurious });
        }
        if frame >= self.next || msg_offset != self.offset(frame) || len != self.bytes(frame, 1) {
            return Err(Refused::BadSeqnum);
        }
        if has(&self.received, frame) {
            let spurious = self.second_copy(frame, now_ns);
            return Err(Refused::Duplicate { spurious });
        }
        set(&mut self.received, frame);
        if has(&self.wanted, frame) {
            clear(&mut self.wanted, frame);
            self.wanted_count -= 1;
        }
        let ordinal = self.ordinals.of[(frame % WINDOW) as usize];
        let again = has(&self.again, frame);
        let behind = self.ordinals.seen.wrapping_sub(ordinal);
        let overtaken_by = if behind as i16 > 0 && !again { behind - 1 } else { 0 };
        // A frame that was asked for again and comes too soon is the first copy: its new ordinal tells nothing. It may be
        // the first copy too when it comes late, for then the path is slow.
        let asked_again_ns = if again { self.stamp_of(ordinal) } else { None };
        let after_ns = asked_again_ns.map(|at_ns| now_ns.saturating_sub(at_ns));
        let late_ns = after_ns.filter(|ns| *ns > path.longest_ns);
        let first_copy = after_ns.is_some_and(|ns| ns < path.shortest_ns) || late_ns.is_some();
        if (behind as i16) <= 0 && !first_copy {
            self.ordinals.seen = ordinal.wrapping_add(1);
        }
        while self.base < self.next && has(&self.received, self.base) {
            self.base += 1;
        }
        let block = frame - frame % block_frames;
        let done_early = self.base < block && {
            let end = (block + block_frames).min(self.next);
            (block..end).all(|frame| has(&self.received, frame))
        };
        Ok(Taken {
            ordinal: (!again).then_some(ordinal),
            overtaken_by,
            lost: self.judge(path.reordering),
            done_early,
            late_ns,
        })
    }

    /// Whether the oldest missing frame was asked for before one that arrived.
    pub(super) fn has_gap(&self) -> bool {
        let ordinal = self.ordinals.of[(self.base % WINDOW) as usize];
        self.base < self.next && !has(&self.wanted, self.base) && self.ordinals.seen.wrapping_sub(ordinal) as i16 > 1
    }

    /// Marks the `count` oldest missing frames to be asked for again: a reply will tell about all the others.
    pub(super) fn want_oldest(&mut self, count: usize) {
        for frame in self.base..self.next {
            if self.wanted_count as usize >= count {
                return;
            }
            if !has(&self.received, frame) && !has(&self.wanted, frame) {
                set(&mut self.wanted, frame);
                self.wanted_count += 1;
            }
        }
    }

    /// Time has told that nothing is merely late: every gap is a loss. Returns the frames.
    pub(super) fn close_gaps(&mut self) -> u32 {
        self.judge(0)
    }

    /// Finds frames that are lost: more than `reordering` ordinals above theirs have been seen.
    fn judge(&mut self, reordering: u16) -> u32 {
        let mut lost = 0;
        loop {
            let distance = self.ordinals.seen.wrapping_sub(self.ordinals.judged);
            // One of the distance is the frame itself.
            if distance as i16 - 1 <= reordering as i16 {
                return lost;
            }
            let ordinal = self.ordinals.judged;
            self.ordinals.judged = ordinal.wrapping_add(1);
            let low = self.ordinals.frame_of[usize::from(ordinal % ORDINALS)];
            let frame = self.base + u32::from(low.wrapping_sub(self.base as u8));
            let current = self.ordinals.of[usize::from(low)] == ordinal;
            if current && frame < self.next && !has(&self.received, frame) && !has(&self.wanted, frame) {
                set(&mut self.wanted, frame);
                self.wanted_count += 1;
                lost += 1;
            }
        }
    }

    /// Whether frames are to be asked for again.
    pub(super) const fn wants(&self) -> bool {
        self.wanted_count > 0
    }

    /// Whether the oldest block misses a frame, and whether a younger one does.
    pub(super) fn missing_blocks(&self, block_frames: u32) -> (bool, bool) {
        let oldest_end = self.base - self.base % block_frames + block_frames;
        let oldest = self.base < self.next;
        let younger = self.missing().any(|frame| frame >= oldest_end);
        (oldest, younger)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: u32 = 1000;
    const N: u32 = 8;

    fn asked(total: u32, rdma_offset: u32) -> PullWindow {
        let mut window = PullWindow::new(total, rdma_offset, F);
        while let Some((first, count)) = window.next_block(N) {
            window.request(first, count, 0);
        }
        window
    }

    fn arrive(window: &mut PullWindow, frame_seqnum: u8, msg_offset: u32, len: u32) -> Result<Taken, Refused> {
        let reply = Reply {
            frame_seqnum,
            msg_offset,
            len,
            now_ns: 1_000,
        };
        let path = Path {
            reordering: 3,
            shortest_ns: 100,
            longest_ns: 10_000,
        };
        window.arrive(reply, path, N)
    }

    fn take(window: &mut PullWindow, frame: u32) -> Result<Taken, Refused> {
        let (offset, len) = (window.offset(frame), window.bytes(frame, 1));
        arrive(window, frame as u8, offset, len)
    }

    #[test]
    fn four_blocks_are_in_flight_and_a_new_one_follows_each_retired_one() {
        let mut window = asked(1_000_000, 0);
        assert_eq!(window.next, 32);
        for frame in (0..8).rev() {
            assert_eq!(window.next_block(N), None);
            take(&mut window, frame).unwrap();
        }
        assert_eq!(window.next_block(N), Some((32, 8)));
    }

    #[test]
    fn a_gap_is_asked_for_again_once_and_only_that() {
        let mut window = asked(100_000, 0);
        for frame in [0, 1, 3, 4, 5] {
            assert_eq!(take(&mut window, frame).unwrap().lost, 0, "{frame}");
        }
        assert_eq!(take(&mut window, 6).unwrap().lost, 1);
        assert_eq!(window.next_wanted(N), Some((2, 1)));
        window.request(2, 1, 0);
        assert_eq!(window.next_wanted(N), None);
        for frame in 7..32 {
            assert_eq!(take(&mut window, frame).unwrap().lost, 0);
        }
        assert_eq!(window.next_block(N), None, "the oldest block is incomplete");
        assert!(take(&mut window, 2).unwrap().ordinal.is_none());
        assert_eq!(take(&mut window, 2), Err(Refused::Wraparound { spurious: Some(1_000) }));
    }

    #[test]
    fn a_region_offset_shortens_the_first_frame() {
        let mut window = asked(2_500, 1_300);
        assert_eq!(
            (window.frames, window.offset(1), window.bytes(0, 1), window.bytes(0, 3)),
            (3, 700, 700, 2_500)
        );
        assert_eq!(window.first_frame_offset(0), 300);
        assert_eq!(arrive(&mut window, 1, 700, 999), Err(Refused::BadSeqnum));
        assert_eq!(arrive(&mut window, 1, 701, 1_000), Err(Refused::BadSeqnum));
        assert_eq!(
            arrive(&mut window, 1, 1_701, 800),
            Err(Refused::Wraparound { spurious: None })
        );
        for frame in 0..3 {
            take(&mut window, frame).unwrap();
        }
        assert!(window.is_complete());
    }

    #[test]
    fn a_late_frame_says_how_far_it_was_overtaken() {
        let mut window = asked(100_000, 0);
        take(&mut window, 2).unwrap();
        assert_eq!(take(&mut window, 0).unwrap().overtaken_by, 2);
        assert_eq!(take(&mut window, 0), Err(Refused::Wraparound { spurious: None }));
        assert_eq!(take(&mut window, 2), Err(Refused::Duplicate { spurious: None }));
    }
}
