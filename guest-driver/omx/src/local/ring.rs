//! Memory that two endpoints share: a ring of records in each direction. The other side may write anything there at any time:
//! every word is read once, checked, and used from private memory; own positions are never read back.

use std::{
    os::fd::AsFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
};

use omxd::PAIR_MEMORY_LEN;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::memory::Segments;

/// Words of one direction.
const LANE_WORDS: usize = PAIR_MEMORY_LEN / 2 / 8;
/// Words before the records; each of the following four has a cache line of its own.
const LANE_HEAD_WORDS: usize = 512;
/// Where its producer is.
const WORD_TAIL: usize = 0;
/// Where its consumer is.
const WORD_HEAD: usize = 16;
/// Not 0: the consumer sleeps and is to be woken.
const WORD_ASLEEP: usize = 32;
/// Not 0: the producer waits for room and is to be woken.
const WORD_WANTS_ROOM: usize = 48;
/// Words of records; a power of two.
const DATA_WORDS: u64 = (LANE_WORDS - LANE_HEAD_WORDS) as u64;
const _: () = assert!(DATA_WORDS.is_power_of_two());
/// Words of a record before its payload.
const RECORD_HEAD_WORDS: u64 = 4;
/// Longest payload of a record: four of them fit, so that writing and reading go on at the same time.
pub(crate) const PAYLOAD_LEN_MAX: usize = 32 << 10;
const _: () = assert!(4 * (PAYLOAD_LEN_MAX as u64 / 8) <= DATA_WORDS);
/// Bytes that are copied at a time between the ring and the program's memory.
const CHUNK_LEN: usize = 512;

/// The mapping, for both directions.
pub(super) struct Memory {
    words: NonNull<AtomicU64>,
}

// SAFETY: the mapping belongs to this value, and every access to it is atomic.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Maps what the authority made; its length is sealed.
    pub(super) fn map(file: impl AsFd) -> std::io::Result<Arc<Self>> {
        let stat = rustix::fs::fstat(&file)?;
        if stat.st_size.cast_unsigned() != PAIR_MEMORY_LEN as u64 {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, of exactly the file's bytes, which nobody can shorten.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                PAIR_MEMORY_LEN,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        let words = NonNull::new(base.cast()).ok_or(std::io::ErrorKind::InvalidData)?;
        Ok(Arc::new(Self { words }))
    }

    #[inline]
    fn words(&self, index: usize, count: usize) -> &[AtomicU64] {
        assert!(index + count <= 2 * LANE_WORDS, "inside the memory");
        // SAFETY: inside the mapping, which is aligned to a page and lives as long as `self`; all accesses are atomic.
        unsafe { std::slice::from_raw_parts(self.words.add(index).as_ptr(), count) }
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < 2 * LANE_WORDS, "inside the memory");
        // SAFETY: inside the mapping, which is aligned to a page and lives as long as `self`; all accesses are atomic.
        unsafe { self.words.add(index).as_ref() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; nothing borrowed from it outlives `self`.
        let _ = unsafe { munmap(self.words.as_ptr().cast(), PAIR_MEMORY_LEN) };
    }
}

/// One direction.
struct Lane {
    memory: Arc<Memory>,
    base: usize,
}

impl Lane {
    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        self.memory.word(self.base + index)
    }

    #[inline]
    fn data(&self, position: u64) -> &AtomicU64 {
        self.word(LANE_HEAD_WORDS + (position % DATA_WORDS) as usize)
    }

    /// Words of records from a position on, as they lie: the second piece is behind the end of the ring.
    #[inline]
    fn pieces(&self, position: u64, count: usize) -> [&[AtomicU64]; 2] {
        let at = (position % DATA_WORDS) as usize;
        let first = count.min(DATA_WORDS as usize - at);
        let piece = |at, count| self.memory.words(self.base + LANE_HEAD_WORDS + at, count);
        [piece(at, first), piece(0, count - first)]
    }

    /// Writes bytes from a position on.
    #[inline]
    fn write(&self, position: u64, bytes: &[u8]) {
        let mut rest = bytes;
        for piece in self.pieces(position, bytes.len().div_ceil(8)) {
            let (here, later) = rest.split_at(rest.len().min(piece.len() * 8));
            let (whole, end) = here.as_chunks::<8>();
            for (word, bytes) in piece.iter().zip(whole) {
                word.store(u64::from_ne_bytes(*bytes), Ordering::Relaxed);
            }
            if !end.is_empty() {
                let mut last = [0; 8];
                last[..end.len()].copy_from_slice(end);
                piece[whole.len()].store(u64::from_ne_bytes(last), Ordering::Relaxed);
            }
            rest = later;
        }
    }

    /// Reads bytes from a position on.
    #[inline]
    fn read(&self, position: u64, out: &mut [u8]) {
        let mut rest = out;
        let count = rest.len().div_ceil(8);
        for piece in self.pieces(position, count) {
            let len = rest.len().min(piece.len() * 8);
            let (here, later) = rest.split_at_mut(len);
            let (whole, end) = here.as_chunks_mut::<8>();
            for (word, bytes) in piece.iter().zip(whole.iter_mut()) {
                *bytes = word.load(Ordering::Relaxed).to_ne_bytes();
            }
            if !end.is_empty() {
                let last = piece[whole.len()].load(Ordering::Relaxed).to_ne_bytes();
                end.copy_from_slice(&last[..end.len()]);
            }
            rest = later;
        }
    }

    /// Whether a flag was set; it is not any more.
    #[inline]
    fn take_flag(&self, word: usize) -> bool {
        // What was published comes before the look at the flag; whoever sets it looks after setting it.
        fence(Ordering::SeqCst);
        let flag = self.word(word);
        if flag.load(Ordering::Relaxed) == 0 {
            return false;
        }
        flag.store(0, Ordering::Relaxed);
        true
    }

    fn set_flag(&self, word: usize) {
        self.word(word).store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

/// The other side broke the rules of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Broken;

/// A record without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) kind: u32,
    /// Bytes of payload.
    pub(super) len: u32,
    pub(super) words: [u64; 3],
}

impl Record {
    const fn total_words(&self) -> u64 {
        RECORD_HEAD_WORDS + (self.len as u64).div_ceil(8)
    }
}

/// The bytes behind a record's head.
pub(super) enum Payload<'a> {
    None,
    Words(&'a [u64]),
    /// From this byte on, as many as the record says.
    Memory(&'a Segments, u32),
}

/// The end that writes.
pub(super) struct Producer {
    lane: Lane,
    tail: u64,
    /// Where the consumer was when last looked at.
    head: u64,
}

impl Producer {
    /// Whether a record with a payload of `len` bytes fits now.
    fn has_room(&mut self, len: usize) -> Result<bool, Broken> {
        let needed = RECORD_HEAD_WORDS + (len as u64).div_ceil(8);
        if self.tail - self.head + needed <= DATA_WORDS {
            return Ok(true);
        }
        let head = self.lane.word(WORD_HEAD).load(Ordering::Acquire);
        if head < self.head || head > self.tail {
            return Err(Broken);
        }
        self.head = head;
        Ok(self.tail - self.head + needed <= DATA_WORDS)
    }

    /// Writes a record. `Ok(false)`: there is no room.
    #[inline]
    pub(super) fn push(&mut self, record: &Record, payload: &Payload<'_>) -> Result<bool, Broken> {
        if !self.has_room(record.len as usize)? {
            return Ok(false);
        }
        let put = |at, word| self.lane.data(self.tail + at).store(word, Ordering::Relaxed);
        put(0, u64::from(record.kind) << 32 | u64::from(record.len));
        for (at, word) in (1..).zip(record.words) {
            put(at, word);
        }
        match payload {
            Payload::None => {}
            Payload::Words(words) => {
                for (at, word) in (RECORD_HEAD_WORDS..).zip(*words) {
                    put(at, *word);
                }
            }
            Payload::Memory(memory, from) => {
                let mut chunk = [0; CHUNK_LEN];
                let (mut done, len) = (0, record.len as usize);
                while done < len {
                    let chunk = &mut chunk[..CHUNK_LEN.min(len - done)];
                    memory.read_at(from + done as u32, chunk);
                    self.lane
                        .write(self.tail + RECORD_HEAD_WORDS + (done / 8) as u64, chunk);
                    done += chunk.len();
                }
            }
        }
        self.tail += record.total_words();
        self.lane.word(WORD_TAIL).store(self.tail, Ordering::Release);
        Ok(true)
    }

    /// Whether the consumer is to be woken after something was written.
    #[inline]
    pub(super) fn consumer_sleeps(&self) -> bool {
        self.lane.take_flag(WORD_ASLEEP)
    }

    /// Asks to be woken when there is room. True if there is some already.
    pub(super) fn want_room(&mut self) -> bool {
        self.lane.set_flag(WORD_WANTS_ROOM);
        // Any error shows when something is written.
        self.has_room(PAYLOAD_LEN_MAX).unwrap_or(true)
    }
}

/// The end that reads.
pub(super) struct Consumer {
    lane: Lane,
    head: u64,
    /// Where the producer was when last looked at.
    tail: u64,
}

impl Consumer {
    /// The oldest record, which stays.
    #[inline]
    pub(super) fn next(&mut self) -> Result<Option<Record>, Broken> {
        if self.tail == self.head {
            let tail = self.lane.word(WORD_TAIL).load(Ordering::Acquire);
            if tail == self.head {
                return Ok(None);
            }
            if tail < self.head || tail - self.head > DATA_WORDS {
                return Err(Broken);
            }
            self.tail = tail;
        }
        let word = |at| self.lane.data(self.head + at).load(Ordering::Relaxed);
        let first = word(0);
        let record = Record {
            kind: (first >> 32) as u32,
            len: first as u32,
            words: [word(1), word(2), word(3)],
        };
        if record.len as usize > PAYLOAD_LEN_MAX || record.total_words() > self.tail - self.head {
            return Err(Broken);
        }
        Ok(Some(record))
    }

    /// Copies bytes of the payload of the oldest record; `offset` is a multiple of 8.
    #[inline]
    fn read(&self, offset: u64, out: &mut [u8]) {
        self.lane.read(self.head + RECORD_HEAD_WORDS + offset / 8, out);
    }

    /// Hands the first `len` bytes of the payload to `take`, with their offset.
    #[inline]
    pub(super) fn for_payload(&self, len: u32, mut take: impl FnMut(u32, &[u8])) {
        let mut chunk = [0; CHUNK_LEN];
        let mut done = 0;
        while done < len {
            let here = CHUNK_LEN.min((len - done) as usize);
            self.read(done.into(), &mut chunk[..here]);
            take(done, &chunk[..here]);
            done += here as u32;
        }
    }

    /// The payload of the oldest record as words.
    pub(super) fn payload_words(&self, record: &Record) -> Vec<u64> {
        let from = self.head + RECORD_HEAD_WORDS;
        (0..u64::from(record.len) / 8)
            .map(|at| self.lane.data(from + at).load(Ordering::Relaxed))
            .collect()
    }

    /// The oldest record is not needed any more.
    #[inline]
    pub(super) fn done(&mut self, record: &Record) {
        self.head += record.total_words();
        self.lane.word(WORD_HEAD).store(self.head, Ordering::Release);
    }

    /// Whether the producer is to be woken after something was read.
    #[inline]
    pub(super) fn producer_waits(&self) -> bool {
        self.lane.take_flag(WORD_WANTS_ROOM)
    }

    /// Asks to be woken when something is written. True if something is there already.
    pub(super) fn sleep(&mut self) -> bool {
        self.lane.set_flag(WORD_ASLEEP);
        !matches!(self.next(), Ok(None))
    }
}

/// Both ends of one side: `first` for the side that asked for the pair.
pub(super) fn ends(memory: &Arc<Memory>, first: bool) -> (Producer, Consumer) {
    let lane = |second: bool| Lane {
        memory: Arc::clone(memory),
        base: if second { LANE_WORDS } else { 0 },
    };
    let (tail, head) = (0, 0);
    let producer = Producer {
        lane: lane(!first),
        tail,
        head,
    };
    let consumer = Consumer {
        lane: lane(first),
        head,
        tail,
    };
    (producer, consumer)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;
    use crate::Segment;

    fn memory() -> Arc<Memory> {
        let file = memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&file, PAIR_MEMORY_LEN as u64).unwrap();
        Memory::map(file).unwrap()
    }

    fn record(kind: u32, len: usize) -> Record {
        Record {
            kind,
            len: len as u32,
            words: [kind.into(), 7, 9],
        }
    }

    #[test]
    fn records_of_all_lengths_come_out_whole_wherever_the_ring_ends() {
        let memory = memory();
        let (mut producer, _) = ends(&memory, true);
        let (_, mut consumer) = ends(&memory, false);
        let data: Vec<u8> = (0..PAYLOAD_LEN_MAX).map(|at| (at * 31 + at / 251) as u8).collect();
        let (mut written, mut read) = (0_u32, 0_u32);
        let len = |n: u32| [0, 1, 8, 513, 4099, PAYLOAD_LEN_MAX][n as usize % 6] - usize::from(n % 7 == 6 && n % 6 > 1);
        while read < 3000 {
            let from = [Segment::of(&data[..len(written)])];
            // SAFETY: `data` outlives the segments and is only read.
            let segments = unsafe { Segments::new(&from) }.unwrap();
            let next = record(written, len(written));
            match producer.push(&next, &Payload::Memory(&segments, 0)).unwrap() {
                true => written += 1,
                // Full: some are taken.
                false => {
                    for _ in 0..1 + written % 5 {
                        let Some(next) = consumer.next().unwrap() else { break };
                        assert_eq!(next, record(read, len(read)));
                        let mut got = Vec::new();
                        consumer.for_payload(next.len, |at, bytes| {
                            assert_eq!(at as usize, got.len());
                            got.extend_from_slice(bytes);
                        });
                        assert!(got == data[..len(read)], "record {read}");
                        consumer.done(&next);
                        read += 1;
                    }
                }
            }
        }
    }

    #[test]
    fn whoever_sleeps_is_seen_once_by_whoever_writes() {
        let memory = memory();
        let (mut producer, _) = ends(&memory, true);
        let (_, mut consumer) = ends(&memory, false);
        assert!(!producer.consumer_sleeps() && !consumer.producer_waits());
        assert!(!consumer.sleep(), "nothing is there");
        producer.push(&record(1, 0), &Payload::None).unwrap();
        assert!(producer.consumer_sleeps() && !producer.consumer_sleeps());
        assert!(consumer.sleep(), "something is there");
        while producer.push(&record(2, 8), &Payload::Words(&[5])).unwrap() {}
        assert!(!producer.want_room());
        let next = consumer.next().unwrap().unwrap();
        consumer.done(&next);
        assert!(consumer.producer_waits() && !consumer.producer_waits());
    }
}
