//! The memory in which an open endpoint notes what it owes to its peers, so that the authority can finish for it, also when its
//! program ends without a word. It lies behind the endpoint's counts ([`CounterPage`](crate::CounterPage)). The program writes, the
//! authority reads when the program has ended, and believes nothing of it.

use std::{
    io,
    ops::Range,
    os::fd::AsFd,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use ether::MacAddr;
use mxoe::engine::{HandedPartner, Handover, Seq};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::OmxdError;

/// Where it begins in the endpoint's memory, in bytes.
const BEGIN: usize = 4096;
/// Words before the records.
const HEAD_WORDS: usize = 8;
/// Words of the record of a partner.
const PARTNER_WORDS: usize = 8;
/// Partners with a record; of the others only what a closing program hands over is known.
const PARTNERS: usize = 2048;
/// Words of the record of a NOTIFY.
const NOTIFY_WORDS: usize = 4;
/// The newest NOTIFYs have records.
const NOTIFIES: usize = 1024;
const WORDS: usize = HEAD_WORDS + PARTNER_WORDS * PARTNERS + NOTIFY_WORDS * NOTIFIES;
/// Bytes of an endpoint that its program handed over.
const BYTES_MAX: usize = 16 << 20;
const LEN: usize = (4 * WORDS + BYTES_MAX).next_multiple_of(4096);

/// Packets with an acknowledgement only count from here on for a program that did not say how many it sent.
const ACKS_UNKNOWN: u32 = 1 << 30;
/// As many messages to a partner may be unacknowledged (7.1 of `mxoe-wire.md`).
const REACH_MAX: u16 = 8191;

/// What the first words are.
const SESSION: usize = 0;
const ENDPOINT: usize = 1;
const BYTES: usize = 2;

const MARKS: u32 = 1;
const SHORT_ACKS: u32 = 2;
const FOREIGN: u32 = 4;

/// The memory of one endpoint, for its program.
#[derive(Debug)]
pub struct HandoverMemory {
    base: NonNull<AtomicU32>,
    notify_next: usize,
}

// SAFETY: the mapping belongs to this value, and is written by it alone: records by atomic accesses, bytes through `&mut self`.
unsafe impl Send for HandoverMemory {}

impl HandoverMemory {
    /// Bytes of an endpoint's memory that has this behind its counts.
    pub const END: usize = BEGIN + LEN;
    /// Bytes of messages that a closing program may hand over, with room for their records.
    pub const ROOM: usize = BYTES_MAX / 2;

    /// Maps the memory that the authority gave to an endpoint with this number and session.
    ///
    /// # Errors
    /// [`OmxdError::Io`].
    pub fn map(file: impl AsFd, endpoint: u8, session: u32) -> Result<Self, OmxdError> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice; the caller has seen that the file is that long, and its length
        // is sealed.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                LEN,
                protection,
                MapFlags::SHARED,
                file,
                BEGIN as u64,
            )
        }
        .map_err(OmxdError::io("map the memory for closing"))?;
        let base = NonNull::new(base.cast()).ok_or(OmxdError::Protocol)?;
        let memory = Self { base, notify_next: 0 };
        memory.words()[SESSION].store(session, Ordering::Relaxed);
        memory.words()[ENDPOINT].store(u32::from(endpoint) + 1, Ordering::Release);
        Ok(memory)
    }

    fn words(&self) -> &[AtomicU32] {
        // SAFETY: inside the mapping, which lives as long as `self`; all accesses are atomic.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), WORDS) }
    }

    fn partner(&self, at: usize) -> Option<&[AtomicU32]> {
        self.words().get(partner_words(at)?)
    }

    /// Notes a conversation with the partner in this place.
    pub fn note_partner(&mut self, at: usize, partner: &HandedPartner) {
        let Some(words) = self.partner(at) else { return };
        words[0].store(0, Ordering::Release);
        let mac = partner.mac.to_u64();
        let flag = |is_set, flag| if is_set { flag } else { 0 };
        let flags =
            flag(partner.marks, MARKS) | flag(partner.short_acks, SHORT_ACKS) | flag(partner.is_foreign, FOREIGN);
        let values = [
            (mac >> 32) as u32 | u32::from(partner.endpoint) << 16 | flags << 24,
            mac as u32,
            partner.session,
            u32::from(partner.peer) | u32::from(partner.reverse) << 16,
            partner.expected.0.into(),
            partner.unacked_first.0.into(),
        ];
        for (word, value) in words[1..].iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        words[0].store(1, Ordering::Release);
    }

    /// Notes that the conversation with a partner is over.
    pub fn forget_partner(&mut self, at: usize) {
        if let Some(words) = self.partner(at) {
            words[0].store(0, Ordering::Relaxed);
        }
    }

    /// Notes that everything before `expected` was received from a partner.
    #[inline]
    pub fn note_received(&mut self, at: usize, expected: Seq) {
        if let Some(words) = self.partner(at) {
            words[5].store(expected.0.into(), Ordering::Relaxed);
        }
    }

    /// Notes that a partner has acknowledged everything before `first`.
    #[inline]
    pub fn note_acknowledged(&mut self, at: usize, first: Seq) {
        if let Some(words) = self.partner(at) {
            words[6].store(first.0.into(), Ordering::Relaxed);
        }
    }

    /// Notes the word to a partner that a large message is over.
    pub fn note_notify(&mut self, at: usize, seq: Seq, [rdma_id, rdma_seqnum]: [u8; 2], transferred: u32) {
        let Some(partner) = u16::try_from(at + 1).ok().filter(|_| at < PARTNERS) else {
            return;
        };
        let place = self.notify_next;
        self.notify_next = (place + 1) % NOTIFIES;
        let words = &self.words()[notify_words(place)];
        words[0].store(0, Ordering::Release);
        words[1].store(u32::from(rdma_id) | u32::from(rdma_seqnum) << 8, Ordering::Relaxed);
        words[2].store(transferred, Ordering::Relaxed);
        words[0].store(u32::from(partner) | u32::from(seq.0) << 16, Ordering::Release);
    }

    /// Hands the endpoint over. False: it is too long, and what was noted has to do.
    pub fn hand_over(&mut self, handover: &Handover) -> bool {
        let bytes = handover.to_bytes();
        if bytes.len() > BYTES_MAX {
            return false;
        }
        // SAFETY: the mapping has `BYTES_MAX` bytes behind its words, which only this value writes; the authority reads them by system
        // calls.
        unsafe {
            let to = self.base.as_ptr().add(WORDS).cast::<u8>();
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        self.words()[BYTES].store(bytes.len() as u32, Ordering::Release);
        true
    }
}

impl Drop for HandoverMemory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; nothing borrowed from it outlives `self`.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), LEN) };
    }
}

fn partner_words(at: usize) -> Option<Range<usize>> {
    let first = HEAD_WORDS + PARTNER_WORDS * at;
    (at < PARTNERS).then_some(first..first + PARTNER_WORDS)
}

const fn notify_words(place: usize) -> Range<usize> {
    let first = HEAD_WORDS + PARTNER_WORDS * PARTNERS + NOTIFY_WORDS * place;
    first..first + NOTIFY_WORDS
}

/// Reads what the program of an endpoint left in its memory, when it has ended. `None`: nothing that makes sense.
pub fn read_handover(file: impl AsFd) -> Option<Handover> {
    let mut head = [0; 4 * HEAD_WORDS];
    read_exact_at(&file, &mut head, BEGIN).ok()?;
    let head = words_of(&head);
    let len = head[BYTES] as usize;
    if len > 0 {
        let mut bytes = vec![0; len.min(BYTES_MAX)];
        read_exact_at(&file, &mut bytes, BEGIN + 4 * WORDS).ok()?;
        return Handover::from_bytes(&bytes).ok();
    }
    let endpoint = u8::try_from(head[ENDPOINT].checked_sub(1)?).ok()?;
    let mut bytes = vec![0; 4 * WORDS];
    read_exact_at(&file, &mut bytes, BEGIN).ok()?;
    Some(noted(endpoint, head[SESSION], &words_of(&bytes)))
}

fn read_exact_at(file: impl AsFd, mut bytes: &mut [u8], at: usize) -> io::Result<()> {
    let mut at = at as u64;
    while !bytes.is_empty() {
        let read = rustix::io::pread(&file, &mut *bytes, at)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        at += read as u64;
        bytes = &mut bytes[read..];
    }
    Ok(())
}

fn words_of(bytes: &[u8]) -> Vec<u32> {
    let (words, _) = bytes.as_chunks();
    words.iter().map(|word| u32::from_ne_bytes(*word)).collect()
}

/// Makes an endpoint of its records.
fn noted(endpoint: u8, session: u32, words: &[u32]) -> Handover {
    let mut handover = Handover::new(endpoint, session);
    for at in 0..PARTNERS {
        let Some(words_of_it) = partner_words(at).map(|range| &words[range]) else {
            break;
        };
        let [1, address, mac_low, session, indices, expected, first, _] = *words_of_it else {
            continue;
        };
        let [_, _, a, b, c, d, e, f] = (u64::from(address & 0xffff) << 32 | u64::from(mac_low)).to_be_bytes();
        let first = Seq(first as u16);
        let notifies = notifies_to(at, first, words);
        let flags = address >> 24;
        handover.add_partner(HandedPartner {
            mac: MacAddr([a, b, c, d, e, f]),
            endpoint: (address >> 16) as u8,
            peer: indices as u16,
            reverse: (indices >> 16) as u16,
            session,
            marks: flags & MARKS != 0,
            short_acks: flags & SHORT_ACKS != 0,
            is_foreign: flags & FOREIGN != 0,
            expected: Seq(expected as u16),
            // Other messages may have been sent, whose acknowledgements are nothing surprising.
            next: first.plus(REACH_MAX),
            unacked_first: first,
            acks_sent: ACKS_UNKNOWN,
            acks_heard: 0,
        });
        for (seq, ids, transferred) in notifies {
            let [rdma_id, rdma_seqnum, ..] = ids.to_le_bytes();
            handover.add_notify(seq, rdma_id, rdma_seqnum, transferred);
        }
    }
    handover
}

/// Returns number, region and length of the NOTIFYs that a partner has not acknowledged, in order.
fn notifies_to(at: usize, first: Seq, words: &[u32]) -> Vec<(Seq, u32, u32)> {
    let all = (0..NOTIFIES).map(|place| &words[notify_words(place)]);
    let its = all.filter(|words| words[0] & 0xffff == at as u32 + 1);
    let noted = its.map(|words| (Seq((words[0] >> 16) as u16), words[1], words[2]));
    let mut notifies: Vec<_> = noted
        .filter(|(seq, ..)| seq.same_session(first) && seq.since(first) < REACH_MAX)
        .collect();
    notifies.sort_by_key(|(seq, ..)| seq.since(first));
    notifies.dedup_by_key(|(seq, ..)| seq.0);
    notifies
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    fn memory() -> std::os::fd::OwnedFd {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, HandoverMemory::END as u64).unwrap();
        file
    }

    fn partner(last: u8) -> HandedPartner {
        HandedPartner {
            mac: MacAddr([2, 0, 0xfe, 0xff, 0, last]),
            endpoint: 7,
            peer: 3,
            reverse: 0xffff,
            session: 0xdead_beef,
            marks: true,
            short_acks: false,
            is_foreign: last > 1,
            expected: Seq(5),
            next: Seq(0x4009),
            unacked_first: Seq(0x4009),
            acks_sent: 0,
            acks_heard: 0,
        }
    }

    #[test]
    fn of_a_program_that_says_nothing_what_it_noted_is_known() {
        let file = memory();
        assert_eq!(read_handover(&file), None, "no endpoint was there");
        let mut memory = HandoverMemory::map(&file, 31, 77).unwrap();
        for at in 0..3 {
            memory.note_partner(at, &partner(at as u8));
            memory.note_received(at, Seq(0x3fff));
        }
        memory.forget_partner(0);
        for seq in [0x400d, 0x400a, 0x400b, 0x800c] {
            memory.note_notify(2, Seq(seq), [9, 8], 1_000 + u32::from(seq));
        }
        memory.note_acknowledged(2, Seq(0x400b));
        // Beyond what there is room for.
        memory.note_received(PARTNERS, Seq(1));
        memory.note_notify(PARTNERS, Seq(1), [0, 0], 1);
        drop(memory);
        let mut expected = Handover::new(31, 77);
        let noted = |last, first: u16| HandedPartner {
            expected: Seq(0x3fff),
            unacked_first: Seq(first),
            next: Seq(first).plus(REACH_MAX),
            acks_sent: ACKS_UNKNOWN,
            ..partner(last)
        };
        expected.add_partner(noted(1, 0x4009));
        expected.add_partner(noted(2, 0x400b));
        expected.add_notify(Seq(0x400b), 9, 8, 1_000 + 0x400b);
        expected.add_notify(Seq(0x400d), 9, 8, 1_000 + 0x400d);
        assert_eq!(read_handover(&file), Some(expected));
    }

    #[test]
    fn what_a_program_hands_over_counts_more_than_what_it_noted() {
        let file = memory();
        let mut memory = HandoverMemory::map(&file, 4, 77).unwrap();
        memory.note_partner(0, &partner(1));
        let mut handover = Handover::new(4, 77);
        handover.add_partner(partner(2));
        assert!(memory.hand_over(&handover));
        assert_eq!(read_handover(&file), Some(handover));
        memory.words()[BYTES].store(u32::MAX, Ordering::Relaxed);
        assert_eq!(read_handover(&file), None, "longer than it can be");
    }
}
