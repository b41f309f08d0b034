//! The receiving half of a connection: bytes until they are read, packets that wait for earlier ones, and what is owed to the peer.

use alloc::collections::VecDeque;

use super::{owed::Owed, send::SpareLists};
use crate::{
    Counter, Counters, PACKETS_MAX,
    memory::{Block, Memory, Purpose},
    number::{is_before, later},
    ring::Ring,
    wire::{Piece, RANGES_MAX, Ranges},
};

/// Packets that an idle connection keeps room for.
const KEPT_CAPACITY: usize = 16;
/// A packet that came before an earlier one.
#[derive(Debug)]
pub(crate) struct Parked {
    number: u32,
    len: u16,
    block: Block,
}

#[derive(Debug, Default)]
pub(crate) struct ReceiveHalf {
    /// Number that is expected next.
    pub(crate) next: u32,
    /// Packets with numbers before this one were allowed.
    pub(crate) right: u32,
    pub(crate) ring: Ring,
    pub(crate) parked: VecDeque<Parked>,
    /// Bytes of the next packet that came in pieces.
    pub(crate) partial: u16,
    /// Number of the end of the stream, if it came.
    pub(crate) fin: Option<u32>,
    pub(crate) limit: u32,
    /// Most bytes of a packet, as announced.
    pub(crate) payload_max: u16,
    /// What came since the last acknowledgement.
    owed: Owed,
    /// An acknowledgement is to go at once, on its own if need be.
    pub(crate) ack_now: bool,
    /// The number of the packet that came last, for the order of ranges.
    latest: u32,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// So many bytes can be read more.
    Readable(usize),
    /// It waits, or is of no use.
    Nothing,
    /// The peer breaks the rules.
    Dropped(Counter),
}

/// Where bytes go: into the reader's buffer while nothing waits before them, else into the ring.
pub(crate) struct Reader<'a> {
    pub(crate) room: &'a mut [u8],
    pub(crate) filled: usize,
}

impl ReceiveHalf {
    pub(crate) fn start(&mut self, next: u32) {
        self.next = next;
        self.right = next;
    }

    /// Packets that there is room for.
    #[inline]
    fn free_packets(&self) -> u32 {
        let free = self.limit.saturating_sub(self.ring.len() as u32);
        (free / u32::from(self.payload_max.max(1))).min(PACKETS_MAX)
    }

    #[inline]
    fn new_right(&self) -> u32 {
        later(self.right, self.next.wrapping_add(self.free_packets()))
    }

    /// Moves the window's end to where it can be, and returns the window.
    #[inline]
    pub(crate) fn advertise(&mut self) -> u32 {
        self.right = self.new_right();
        self.right.wrapping_sub(self.next)
    }

    /// Whether the window has changed by a quarter of the largest since it was advertised.
    #[inline]
    pub(crate) fn is_window_news(&self) -> bool {
        let quarter = (self.limit / u32::from(self.payload_max.max(1)) / 4).clamp(1, PACKETS_MAX / 4);
        self.new_right().wrapping_sub(self.right) >= quarter
    }

    /// An acknowledgement goes out.
    #[inline]
    pub(crate) fn acknowledged(&mut self) {
        self.owed.acknowledged();
    }

    /// Whether an acknowledgement is owed.
    #[inline]
    pub(crate) const fn owes_ack(&self) -> bool {
        self.owed.is_any()
    }

    /// A packet of `len` bytes came in order.
    #[inline]
    fn owe_ack(&mut self, len: usize) {
        let is_long = len * 2 > usize::from(self.payload_max);
        self.ack_now |= self.owed.came(is_long, self.right.wrapping_sub(self.next));
    }

    /// The peer has nothing more to send for now.
    #[inline]
    pub(crate) fn pushed(&mut self) {
        self.ack_now |= self.owed.is_end_of_many();
    }

    /// A packet came that is not the next: the peer is to know at once.
    fn out_of_order(&mut self) {
        self.ack_now = true;
        self.owed.out_of_order();
    }

    /// An acknowledgement has waited long enough.
    pub(crate) fn ack_is_due(&mut self) {
        self.ack_now = true;
        self.owed.waited();
    }

    /// Whether the peer's stream is at its end.
    #[inline]
    pub(crate) fn is_finished(&self) -> bool {
        self.fin.is_some_and(|fin| is_before(fin, self.next))
    }

    /// Checks a number: only one in the window is of use.
    #[inline]
    fn check(&mut self, number: u32, counters: &mut Counters) -> Result<(), Taken> {
        if is_before(number, self.next) {
            counters.count(Counter::Duplicates);
            self.out_of_order();
            return Err(Taken::Nothing);
        }
        if !is_before(number, self.right) {
            self.ack_now = true;
            return Err(Taken::Dropped(Counter::DropBeyondWindow));
        }
        if self.fin.is_some_and(|fin| !is_before(number, fin)) {
            return Err(Taken::Dropped(Counter::DropPastEnd));
        }
        Ok(())
    }

    /// Takes a packet of data.
    #[inline]
    pub(crate) fn data(
        &mut self,
        number: u32,
        payload: &[u8],
        reader: &mut Option<Reader<'_>>,
        memory: &mut Memory,
        counters: &mut Counters,
        spare: &mut SpareLists<Parked>,
    ) -> Taken {
        if let Err(taken) = self.check(number, counters) {
            return taken;
        }
        if payload.is_empty() || payload.len() > usize::from(self.payload_max) {
            return Taken::Dropped(Counter::DropBadLength);
        }
        if number != self.next {
            return self.park(number, payload, memory, counters, spare);
        }
        let Some(rest) = payload.get(usize::from(self.partial)..).filter(|rest| !rest.is_empty()) else {
            return Taken::Dropped(Counter::DropBadLength);
        };
        if !self.deliver(rest, reader, memory) {
            return Taken::Dropped(Counter::DropNoMemory);
        }
        self.partial = 0;
        self.next = self.next.wrapping_add(1);
        self.owe_ack(payload.len());
        let mut readable = rest.len();
        if !self.parked.is_empty() {
            readable += self.unpark(reader, memory, spare);
        }
        self.pass_fin();
        counters.count(Counter::DataReceived);
        Taken::Readable(readable)
    }

    #[inline]
    fn deliver(&mut self, mut bytes: &[u8], reader: &mut Option<Reader<'_>>, memory: &mut Memory) -> bool {
        if let Some(reader) = reader
            && self.ring.is_empty()
        {
            let room = &mut reader.room[reader.filled..];
            let direct = room.len().min(bytes.len());
            if direct < bytes.len() && !self.ring.push(&bytes[direct..], Purpose::Read, memory) {
                return false;
            }
            room[..direct].copy_from_slice(&bytes[..direct]);
            reader.filled += direct;
            bytes = &[];
        }
        bytes.is_empty() || self.ring.push(bytes, Purpose::Read, memory)
    }

    #[cold]
    fn park(
        &mut self,
        number: u32,
        payload: &[u8],
        memory: &mut Memory,
        counters: &mut Counters,
        spare: &mut SpareLists<Parked>,
    ) -> Taken {
        self.out_of_order();
        self.latest = number;
        let place = self.parked.partition_point(|parked| is_before(parked.number, number));
        if self.parked.get(place).is_some_and(|parked| parked.number == number) {
            counters.count(Counter::Duplicates);
            return Taken::Nothing;
        }
        let Some(mut block) = memory.take(payload.len(), Purpose::Park) else {
            return Taken::Dropped(Counter::DropNoMemory);
        };
        block[..payload.len()].copy_from_slice(payload);
        if self.parked.capacity() == 0
            && let Some(list) = spare.pop()
        {
            self.parked = list;
        }
        let len = payload.len() as u16;
        self.parked.insert(place, Parked { number, len, block });
        counters.count(Counter::OutOfOrder);
        counters.count(Counter::DataReceived);
        Taken::Nothing
    }

    #[cold]
    fn unpark(
        &mut self,
        reader: &mut Option<Reader<'_>>,
        memory: &mut Memory,
        spare: &mut SpareLists<Parked>,
    ) -> usize {
        let mut readable = 0;
        self.ack_now = true;
        while let Some(parked) = self.parked.pop_front() {
            // Without memory it counts as lost: the peer sends it again.
            let is_next = parked.number == self.next;
            if is_next && !self.deliver(&parked.block[..parked.len.into()], reader, memory) {
                memory.give(parked.block);
                break;
            }
            if !is_next {
                self.parked.push_front(parked);
                break;
            }
            self.next = self.next.wrapping_add(1);
            readable += usize::from(parked.len);
            memory.give(parked.block);
        }
        self.give_list(spare);
        readable
    }

    fn give_list(&mut self, spare: &mut SpareLists<Parked>) {
        if self.parked.is_empty() && self.parked.capacity() > KEPT_CAPACITY {
            spare.push(core::mem::take(&mut self.parked));
        }
    }

    /// The end of the stream counts as a packet.
    #[inline]
    fn pass_fin(&mut self) {
        if self.fin == Some(self.next) {
            self.next = self.next.wrapping_add(1);
            self.ack_now = true;
        }
    }

    /// Takes the end of the stream. It may be beyond the window by one, since it takes no room.
    pub(crate) fn fin(&mut self, number: u32, counters: &mut Counters) -> Taken {
        self.ack_now = true;
        if is_before(number, self.next) {
            counters.count(Counter::Duplicates);
            return Taken::Nothing;
        }
        if is_before(self.right, number) {
            return Taken::Dropped(Counter::DropBeyondWindow);
        }
        let is_behind_data = self.parked.back().is_none_or(|last| is_before(last.number, number));
        if self.fin.is_some_and(|fin| fin != number) || !is_behind_data || self.partial > 0 && number == self.next {
            return Taken::Dropped(Counter::DropPastEnd);
        }
        self.fin = Some(number);
        self.pass_fin();
        Taken::Readable(0)
    }

    /// Takes a piece of the next packet.
    pub(crate) fn piece(
        &mut self,
        number: u32,
        piece: &Piece<'_>,
        memory: &mut Memory,
        counters: &mut Counters,
        spare: &mut SpareLists<Parked>,
    ) -> Taken {
        if let Err(taken) = self.check(number, counters) {
            return taken;
        }
        if piece.total > self.payload_max || self.partial >= piece.total {
            return Taken::Dropped(Counter::DropBadLength);
        }
        let skip = usize::from(self.partial.wrapping_sub(piece.offset));
        if number != self.next || piece.offset > self.partial {
            self.ack_now = true;
            return Taken::Dropped(Counter::DropPieceOrder);
        }
        let Some(rest) = piece.payload.get(skip..).filter(|rest| !rest.is_empty()) else {
            return Taken::Nothing;
        };
        if !self.deliver(rest, &mut None, memory) {
            return Taken::Dropped(Counter::DropNoMemory);
        }
        self.partial += rest.len() as u16;
        let mut readable = rest.len();
        if self.partial == piece.total {
            self.partial = 0;
            self.next = self.next.wrapping_add(1);
            // The peer sends the pieces of the next packet only when it knows.
            self.ack_now = true;
            readable += self.unpark(&mut None, memory, spare);
            self.pass_fin();
            counters.count(Counter::DataReceived);
        }
        Taken::Readable(readable)
    }

    /// What came out of order, the range of the latest packet first (RFC 2018).
    pub(crate) fn ranges(&self) -> Ranges {
        let mut ranges = Ranges::NONE;
        if self.parked.is_empty() {
            return ranges;
        }
        let mut all: [(u32, u32); RANGES_MAX] = [(0, 0); RANGES_MAX];
        let mut count = 0;
        let mut latest = None;
        let mut current: Option<(u32, u32)> = None;
        let mut close = |range: (u32, u32), latest: &mut Option<(u32, u32)>| {
            if !is_before(self.latest, range.0) && is_before(self.latest, range.1) {
                *latest = Some(range);
            } else if count < all.len() {
                all[count] = range;
                count += 1;
            }
        };
        for parked in &self.parked {
            match &mut current {
                Some(range) if range.1 == parked.number => range.1 = parked.number.wrapping_add(1),
                _ => {
                    if let Some(range) = current.take() {
                        close(range, &mut latest);
                    }
                    current = Some((parked.number, parked.number.wrapping_add(1)));
                }
            }
        }
        if let Some(range) = current {
            close(range, &mut latest);
        }
        for range in latest.into_iter().chain(all[..count].iter().copied()) {
            ranges.push(range.0, range.1);
        }
        ranges
    }

    /// Forgets packets out of order.
    pub(crate) fn clear_parked(&mut self, memory: &mut Memory, spare: &mut SpareLists<Parked>) {
        while let Some(parked) = self.parked.pop_front() {
            memory.give(parked.block);
        }
        self.give_list(spare);
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self, memory: &mut Memory, spare: &mut SpareLists<Parked>) {
        self.ring.clear(memory);
        self.clear_parked(memory, spare);
    }
}
