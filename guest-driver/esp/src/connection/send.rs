//! The sending half of a connection: bytes until they are acknowledged, the packets that they were cut into, and what was lost.

use alloc::collections::VecDeque;

use ether::Time;

use super::{congestion::Congestion, rtt::Rtt};
use crate::{
    Counter, Counters, PACKETS_MAX,
    memory::{Memory, Purpose},
    number::{is_before, later},
    ring::Ring,
    wire::{BULK_FRAME_LEN_MIN, Ranges},
};

/// Acknowledgements of later packets after which a packet counts as lost.
const LATER_PACKETS: u32 = 3;
/// Packets that an idle connection keeps room for.
const KEPT_CAPACITY: usize = 16;

/// Long packets after which those that follow are marked as some of many, until none is in flight: so the receiver gets no packet by another
/// path than one before it that has not arrived, and sees enough long packets before to look for the marked ones. A message that is
/// answered before the next one is as long as that at MTU 1500 from 370,000 bytes on: shorter ones are quicker by the shorter path.
const BULK_AFTER_PACKETS: u16 = 256;

/// Lists of packets that no connection uses, kept for the next.
pub(crate) type SpareLists<T> = alloc::vec::Vec<VecDeque<T>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is in flight.
    InFlight,
    /// It is to be sent again.
    Lost,
    /// The peer has it, and not all before it.
    Selected,
}

/// A packet that was sent and not acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Position of its first byte in the stream.
    pub(crate) position: u32,
    pub(crate) len: u16,
    pub(crate) push: bool,
    pub(crate) fin: bool,
    pub(crate) fate: Fate,
    pub(crate) is_repeated: bool,
    pub(crate) sent_at: Time,
}

/// What is to be sent next, and from where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) number: u32,
    /// Position in the ring.
    pub(crate) offset: usize,
    pub(crate) len: usize,
    pub(crate) push: bool,
    pub(crate) fin: bool,
    /// Offset and total of a piece.
    pub(crate) place: Option<(u16, u16)>,
    pub(crate) is_repeated: bool,
    /// It is one of many.
    pub(crate) bulk: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fin {
    /// The program may send more.
    #[default]
    No,
    /// The program has closed; there may be bytes to send before.
    Wanted,
    /// The end was sent.
    Sent,
    /// The peer has acknowledged it.
    Acknowledged,
}

/// How many packets have which fate.
#[derive(Debug, Default)]
struct Fates {
    in_flight: u32,
    /// Long packets that were sent since none was in flight, up to one more than [`BULK_AFTER_PACKETS`].
    long_run: u16,
    lost: u32,
    selected: u32,
}

/// What shows that packets are lost, and how long that reduces the window.
#[derive(Debug, Default)]
struct Recovery {
    /// Acknowledgements of the same number in a row.
    repeated_acks: u8,
    /// Until this number is acknowledged, the window was reduced for what is lost at present.
    recover: u32,
    is_recovering: bool,
    /// When the latest of the packets that arrived was sent.
    delivered: Time,
}

#[derive(Debug, Default)]
pub(crate) struct SendHalf {
    /// Number of the oldest packet that is not acknowledged.
    pub(crate) unacknowledged: u32,
    /// Number of the next new packet.
    pub(crate) next: u32,
    /// The peer takes packets with numbers before this one.
    pub(crate) right: u32,
    pub(crate) sent: VecDeque<Sent>,
    pub(crate) ring: Ring,
    /// Position in the stream of the ring's first byte.
    pub(crate) base: u32,
    /// Bytes of the ring that were cut into packets.
    pub(crate) cut: u32,
    /// Position behind the last byte that is not to wait for more.
    pub(crate) pushed: u32,
    pub(crate) fin: Fin,
    pub(crate) limit: u32,
    pub(crate) payload_max: u16,
    pub(crate) congestion: Congestion,
    fates: Fates,
    recovery: Recovery,
    /// Bytes of the first packet that were sent again in pieces.
    piece_at: u16,
}

/// What an acknowledgement meant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Acknowledged {
    pub(crate) packets: u32,
    pub(crate) is_fin: bool,
    pub(crate) sample_ns: Option<u64>,
}

impl SendHalf {
    pub(crate) fn start(&mut self, number: u32) {
        self.unacknowledged = number;
        self.next = number.wrapping_add(1);
        self.right = self.next;
        self.recovery.recover = number;
    }

    /// Bytes that the program may still give.
    #[inline]
    pub(crate) fn space(&self) -> usize {
        (self.limit as usize).saturating_sub(self.ring.len())
    }

    /// Takes bytes of the program, as many as there is memory for.
    #[inline]
    pub(crate) fn give(&mut self, bytes: &[u8], memory: &mut Memory) -> usize {
        let mut len = bytes.len();
        while len > 0 && !self.ring.push(&bytes[..len], Purpose::Send, memory) {
            len /= 2;
        }
        len
    }

    /// Bytes that were not cut into packets.
    #[inline]
    pub(crate) fn uncut(&self) -> usize {
        self.ring.len() - self.cut as usize
    }

    /// Packets in flight.
    #[inline]
    pub(crate) const fn in_flight(&self) -> u32 {
        self.fates.in_flight
    }

    #[inline]
    const fn end_of_cut(&self) -> u32 {
        self.base.wrapping_add(self.cut)
    }

    /// Whether there are bytes of which a packet is to be made as soon as it may be sent.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        let uncut = self.uncut();
        uncut > 0
            && (uncut >= usize::from(self.payload_max)
                || is_before(self.end_of_cut(), self.pushed)
                || self.fin != Fin::No)
    }

    /// Whether bytes wait for more of them.
    #[inline]
    pub(crate) fn is_waiting_for_more(&self) -> bool {
        self.uncut() > 0 && !self.is_due()
    }

    /// All bytes are to go, however few.
    pub(crate) fn push_all(&mut self) {
        self.pushed = self.base.wrapping_add(self.ring.len() as u32);
    }

    /// Whether the peer takes another packet.
    #[inline]
    pub(crate) fn is_window_open(&self) -> bool {
        is_before(self.next, self.right) && (self.sent.len() as u32) < PACKETS_MAX
    }

    /// Whether bytes wait for the peer's window, with nothing in flight that would bring news of it.
    #[inline]
    pub(crate) fn is_stuck(&self) -> bool {
        self.sent.is_empty() && self.is_due() && !self.is_window_open()
    }

    /// Whether a packet can be sent now.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        if self.fates.in_flight >= self.congestion.window {
            return false;
        }
        self.fates.lost > 0 && self.lost_index().is_some()
            || self.is_due() && self.is_window_open()
            || self.is_fin_ready()
    }

    /// The end takes no room at the peer, so the window does not hold it back.
    #[inline]
    fn is_fin_ready(&self) -> bool {
        self.fin == Fin::Wanted && self.uncut() == 0
    }

    /// The oldest lost packet that can be sent. One that is too long by now goes in pieces, and only when it is the next that the peer
    /// expects.
    #[inline]
    fn lost_index(&self) -> Option<usize> {
        let index = self.sent.iter().position(|sent| sent.fate == Fate::Lost)?;
        (index == 0 || self.sent[index].len <= self.payload_max).then_some(index)
    }

    /// Decides what to send, and notes it as sent.
    #[inline]
    pub(crate) fn cut(&mut self, now: Time, spare: &mut SpareLists<Sent>) -> Option<Cut> {
        if self.fates.in_flight >= self.congestion.window {
            return None;
        }
        if self.fates.lost > 0
            && let Some(index) = self.lost_index()
        {
            return Some(self.repeat(index, now));
        }
        let is_data = self.is_due() && self.is_window_open();
        if !is_data && !self.is_fin_ready() {
            return None;
        }
        let len = if is_data {
            self.uncut().min(self.payload_max.into())
        } else {
            0
        };
        let position = self.end_of_cut();
        let end = position.wrapping_add(len as u32);
        let bulk = is_data && self.is_one_of_many(len);
        let push = is_data && is_before(position, self.pushed) && !is_before(end, self.pushed);
        let cut = Cut {
            number: self.next,
            offset: self.cut as usize,
            len,
            push,
            fin: !is_data,
            place: None,
            is_repeated: false,
            bulk,
        };
        if self.sent.capacity() == 0
            && let Some(list) = spare.pop()
        {
            self.sent = list;
        }
        self.sent.push_back(Sent {
            position,
            len: len as u16,
            push,
            fin: !is_data,
            fate: Fate::InFlight,
            is_repeated: false,
            sent_at: now,
        });
        self.cut += len as u32;
        self.next = self.next.wrapping_add(1);
        self.fates.in_flight += 1;
        if !is_data {
            self.fin = Fin::Sent;
        }
        Some(cut)
    }

    /// Whether a new packet of so many bytes is one of many.
    #[inline]
    fn is_one_of_many(&mut self, len: usize) -> bool {
        if self.sent.is_empty() {
            self.fates.long_run = 0;
        }
        if self.fates.long_run <= BULK_AFTER_PACKETS && len * 2 > usize::from(self.payload_max) {
            self.fates.long_run += 1;
        }
        self.is_bulk()
    }

    /// Whether packets are marked as some of many: in an MTU that has room for the shortest frame of that kind.
    #[inline]
    fn is_bulk(&self) -> bool {
        self.fates.long_run > BULK_AFTER_PACKETS && usize::from(self.payload_max) >= BULK_FRAME_LEN_MIN
    }

    fn repeat(&mut self, index: usize, now: Time) -> Cut {
        let number = self.unacknowledged.wrapping_add(index as u32);
        let is_bulk = self.is_bulk();
        let sent = &mut self.sent[index];
        let mut cut = Cut {
            number,
            offset: sent.position.wrapping_sub(self.base) as usize,
            len: sent.len.into(),
            push: sent.push,
            fin: sent.fin,
            place: None,
            is_repeated: true,
            bulk: is_bulk,
        };
        sent.sent_at = now;
        sent.is_repeated = true;
        if sent.len > self.payload_max {
            cut.offset += usize::from(self.piece_at);
            cut.len = usize::from(self.payload_max.min(sent.len - self.piece_at));
            cut.place = Some((self.piece_at, sent.len));
            self.piece_at += cut.len as u16;
            if self.piece_at < sent.len {
                cut.push = false;
                return cut;
            }
            self.piece_at = 0;
        }
        sent.fate = Fate::InFlight;
        self.fates.lost -= 1;
        self.fates.in_flight += 1;
        cut
    }

    /// Takes an acknowledgement; none if it acknowledges what was never sent.
    #[inline]
    pub(crate) fn acknowledge(
        &mut self,
        number: u32,
        now: Time,
        memory: &mut Memory,
        spare: &mut SpareLists<Sent>,
    ) -> Option<Acknowledged> {
        let mut done = Acknowledged::default();
        if is_before(number, self.unacknowledged) {
            return Some(done);
        }
        if is_before(self.next, number) {
            return None;
        }
        let was_limited = self.fates.in_flight * 2 >= self.congestion.window;
        let mut bytes = 0;
        while self.unacknowledged != number {
            let Some(sent) = self.sent.pop_front() else {
                // The SYN.
                self.unacknowledged = number;
                break;
            };
            self.unacknowledged = self.unacknowledged.wrapping_add(1);
            bytes += usize::from(sent.len);
            self.arrived(&sent, now, &mut done);
            self.fates.selected -= u32::from(sent.fate == Fate::Selected);
            done.is_fin |= sent.fin;
            done.packets += 1;
        }
        if done.packets > 0 {
            self.base = self.base.wrapping_add(bytes as u32);
            self.cut -= bytes as u32;
            self.ring.consume(bytes, memory);
            self.progress(done.packets, was_limited, spare);
        }
        Some(done)
    }

    fn progress(&mut self, packets: u32, was_limited: bool, spare: &mut SpareLists<Sent>) {
        self.recovery.repeated_acks = 0;
        self.piece_at = 0;
        if self.recovery.is_recovering && !is_before(self.unacknowledged, self.recovery.recover) {
            self.recovery.is_recovering = false;
        }
        if !self.recovery.is_recovering && was_limited {
            self.congestion.acknowledged(packets);
        }
        if self.sent.is_empty() && self.sent.capacity() > KEPT_CAPACITY {
            spare.push(core::mem::take(&mut self.sent));
        }
    }

    /// A packet is at the peer.
    #[inline]
    fn arrived(&mut self, sent: &Sent, now: Time, done: &mut Acknowledged) {
        match sent.fate {
            Fate::InFlight => self.fates.in_flight -= 1,
            Fate::Lost => self.fates.lost -= 1,
            Fate::Selected => return,
        }
        // Of a packet that was sent twice, it is not known which of them arrived (Karn).
        if !sent.is_repeated {
            self.recovery.delivered = self.recovery.delivered.max(sent.sent_at);
            done.sample_ns = Some(now.nanos_since(sent.sent_at));
        }
    }

    /// Takes a window, counted from an acknowledged number. A window never becomes smaller.
    #[inline]
    pub(crate) fn open(&mut self, number: u32, window: u32) {
        self.right = later(self.right, number.wrapping_add(window.min(PACKETS_MAX)));
    }

    /// Takes the ranges of a selective acknowledgement.
    pub(crate) fn select(&mut self, ranges: &Ranges, now: Time, done: &mut Acknowledged) {
        for (first, end) in ranges.as_slice() {
            let from = first.wrapping_sub(self.unacknowledged) as usize;
            let to = end.wrapping_sub(self.unacknowledged) as usize;
            // A range that is not about packets in flight is old, or a lie.
            if from >= to || to > self.sent.len() {
                continue;
            }
            for index in from..to {
                let sent = self.sent[index];
                if sent.fate != Fate::Selected {
                    self.arrived(&sent, now, done);
                    self.sent[index].fate = Fate::Selected;
                    self.fates.selected += 1;
                }
            }
        }
    }

    /// An acknowledgement of a number that was acknowledged before.
    pub(crate) fn repeated_ack(&mut self) {
        self.recovery.repeated_acks = self.recovery.repeated_acks.saturating_add(1);
    }

    /// Finds packets that are lost, since later ones have arrived.
    pub(crate) fn find_lost(&mut self, rtt: &Rtt, counters: &mut Counters) {
        let before = self.fates.lost;
        let in_flight = self.fates.in_flight;
        if u32::from(self.recovery.repeated_acks) == LATER_PACKETS && self.fates.selected == 0 {
            self.lose(0);
        }
        let tolerance_ns = rtt.smoothed_ns / 4;
        let mut later = self.fates.selected;
        for index in 0..self.sent.len() {
            if later == 0 {
                break;
            }
            let sent = self.sent[index];
            match sent.fate {
                Fate::Selected => later -= 1,
                Fate::Lost => {}
                Fate::InFlight => {
                    let is_late = sent.sent_at.plus_nanos(tolerance_ns) < self.recovery.delivered;
                    if is_late || later >= LATER_PACKETS && !sent.is_repeated {
                        self.lose(index);
                    }
                }
            }
        }
        if self.fates.lost > before {
            counters.count(Counter::FastRetransmits);
            if !self.recovery.is_recovering {
                self.recovery.is_recovering = true;
                self.recovery.recover = self.next;
                self.congestion.lost(in_flight);
            }
        }
    }

    fn lose(&mut self, index: usize) {
        if let Some(sent) = self.sent.get_mut(index)
            && sent.fate == Fate::InFlight
        {
            sent.fate = Fate::Lost;
            self.fates.in_flight -= 1;
            self.fates.lost += 1;
        }
    }

    /// Nothing came back in time: all that is in flight counts as lost. When it happens again, also what the peer has selected, since it
    /// may have forgotten it.
    pub(crate) fn timed_out(&mut self, is_again: bool) {
        if !self.sent.is_empty() {
            self.congestion
                .timed_out(self.fates.in_flight + self.fates.lost, is_again);
        }
        for sent in &mut self.sent {
            if sent.fate == Fate::InFlight || is_again {
                sent.fate = Fate::Lost;
            }
        }
        self.recount();
        self.piece_at = 0;
        self.recovery.repeated_acks = 0;
        self.recovery.is_recovering = true;
        self.recovery.recover = self.next;
    }

    fn recount(&mut self) {
        let count = |fate| self.sent.iter().filter(|sent| sent.fate == fate).count() as u32;
        (self.fates.in_flight, self.fates.lost, self.fates.selected) =
            (count(Fate::InFlight), count(Fate::Lost), count(Fate::Selected));
    }

    /// Takes packets over from another engine: all count as lost, until the peer says what it has.
    pub(crate) fn restore(&mut self, sent: impl Iterator<Item = Sent>) {
        self.sent = sent.collect();
        self.recount();
        self.recovery.recover = self.next;
        self.recovery.is_recovering = true;
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self, memory: &mut Memory, spare: &mut SpareLists<Sent>) {
        self.ring.clear(memory);
        self.cut = 0;
        self.sent.clear();
        if self.sent.capacity() > KEPT_CAPACITY {
            spare.push(core::mem::take(&mut self.sent));
        }
        self.recount();
    }
}
