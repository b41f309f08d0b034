//! Memory that two endpoints share: two rings of records in each direction. The other side may write anything there at any time:
//! every word is read once, checked, and used from private memory; own positions are never read back.
//!
//! The cost of a short message between two cores is the cache lines that travel, so it needs one: a record begins a
//! line, its first word is what the consumer polls, and 0 there says that nothing was written yet. The producer
//! therefore puts 0 where the next record will begin before it writes the first word of this one. The consumer
//! publishes its position only now and then.

use std::{
    os::fd::AsFd,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering, fence},
    },
};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use weft_authority::PAIR_MEMORY_LEN;

use crate::memory::Segments;

/// The number of words in use. The pages behind them only distinguish libraries that write the memory otherwise.
const MEMORY_WORDS: usize = PAIR_MEMORY_LEN / 8 - 2 * 512;
/// This many words, a page, come before the records of all rings.
const HEAD_WORDS: usize = 512;
/// This many words of the head belong to one ring; each of the following four has cache lines of its own.
const LANE_HEAD_WORDS: usize = HEAD_WORDS / LANES;
/// The number of rings in the memory.
const LANES: usize = 4;
/// The word with the consumer's position.
const WORD_HEAD: usize = 0;
/// The word that is not 0 while the consumer sleeps and is to be woken.
const WORD_ASLEEP: usize = 16;
/// The word that is not 0 while the producer waits for room and is to be woken.
const WORD_WANTS_ROOM: usize = 32;
/// The word with the number of messages that the producer announced and gave up before the consumer was done with them.
const WORD_WITHDRAWN: usize = 48;
/// The words of records of one ring; a power of two.
const DATA_WORDS: u64 = ((MEMORY_WORDS - HEAD_WORDS) / LANES) as u64;
const _: () = assert!(DATA_WORDS.is_power_of_two());
/// Records begin at multiples of this many words, which are a cache line.
const LINE_WORDS: u64 = 8;
/// Words of a record before its payload.
const RECORD_HEAD_WORDS: u64 = 4;
/// The longest payload of a record: three of them fit and a fourth is written, so that writing and reading go on in
/// parallel.
pub(crate) const PAYLOAD_LEN_MAX: usize = 32 << 10;
const _: () = assert!(4 * (PAYLOAD_LEN_MAX as u64 / 8) <= DATA_WORDS);
/// After this many words the consumer publishes its position. When it has read everything, a producer that waits has
/// been told of room for the longest record.
const SAID_EVERY_WORDS: u64 = DATA_WORDS / 8;
const _: () = assert!(SAID_EVERY_WORDS + total_words(PAYLOAD_LEN_MAX) + LINE_WORDS <= DATA_WORDS);
/// Records that a ring can hold.
pub(super) const RECORDS_MAX: usize = (DATA_WORDS / LINE_WORDS) as usize;
/// Bytes that are copied at a time between the ring and the program's memory.
const CHUNK_LEN: usize = 512;
/// Bytes that are copied at a time of short messages.
const SHORT_CHUNK_LEN: usize = 64;

/// The traffic of a ring. Messages wait for room on the other side; nothing that a message waits for waits behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    Messages = 0,
    Answers = 1,
}

/// The mapping, for all rings.
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
            return Err(std::io::Error::other(
                "omxd is of another version than this program's library",
            ));
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, of exactly the file's bytes, which cannot be shortened.
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
        assert!(index + count <= MEMORY_WORDS, "inside the memory");
        // SAFETY: inside the mapping, which is aligned to a page and lives as long as `self`; all accesses are atomic.
        unsafe { std::slice::from_raw_parts(self.words.add(index).as_ptr(), count) }
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < MEMORY_WORDS, "inside the memory");
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

/// One ring.
struct Lane {
    memory: Arc<Memory>,
    /// The beginning of the ring's part of the head.
    head_base: usize,
    /// The beginning of the ring's records.
    data_base: usize,
}

impl Lane {
    fn new(memory: &Arc<Memory>, traffic: Traffic, second: bool) -> Self {
        let lane = 2 * traffic as usize + usize::from(second);
        Self {
            memory: Arc::clone(memory),
            head_base: lane * LANE_HEAD_WORDS,
            data_base: HEAD_WORDS + lane * DATA_WORDS as usize,
        }
    }

    #[inline]
    fn word(&self, index: usize) -> &AtomicU64 {
        self.memory.word(self.head_base + index)
    }

    #[inline]
    fn data(&self, position: u64) -> &AtomicU64 {
        self.memory.word(self.data_base + (position % DATA_WORDS) as usize)
    }

    /// Returns the words of records from a position on, as they lie: the second piece is behind the end of the ring.
    #[inline]
    fn pieces(&self, position: u64, count: usize) -> [&[AtomicU64]; 2] {
        let at = (position % DATA_WORDS) as usize;
        let first = count.min(DATA_WORDS as usize - at);
        let piece = |at, count| self.memory.words(self.data_base + at, count);
        [piece(at, first), piece(0, count - first)]
    }

    /// Writes bytes from a position on.
    #[inline]
    fn write(&self, position: u64, bytes: &[u8]) {
        if let Ok(one) = bytes.try_into() {
            // Messages without bytes of the program's are often as short as this.
            return self.data(position).store(u64::from_ne_bytes(one), Ordering::Relaxed);
        }
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
        if let Ok(one) = <&mut [u8; 8]>::try_from(&mut *out) {
            *one = self.data(position).load(Ordering::Relaxed).to_ne_bytes();
            return;
        }
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

    /// Clears a flag, and returns whether it was set.
    #[inline]
    fn take_flag(&self, word: usize) -> bool {
        // What was published comes before the check of the flag; the side that sets the flag checks after setting it.
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
        total_words(self.len as usize)
    }
}

/// Returns the words from the beginning of a record with a payload of `len` bytes to the next one.
const fn total_words(len: usize) -> u64 {
    (RECORD_HEAD_WORDS + (len as u64).div_ceil(8)).next_multiple_of(LINE_WORDS)
}

/// The bytes behind a record's head.
pub(super) enum Payload<'a> {
    None,
    Words(&'a [u64]),
    Bytes(&'a [u8]),
    /// The payload is in memory, from this byte on, as many bytes as the record says.
    Memory(&'a Segments, u32),
}

/// The writing end.
pub(super) struct Producer {
    lane: Lane,
    tail: u64,
    /// The consumer's position when it was last read.
    head: u64,
    withdrawn: u32,
}

impl Producer {
    /// Returns the number of messages that were announced and given up: it goes with each one that is announced.
    pub(super) const fn withdrawn(&self) -> u32 {
        self.withdrawn
    }

    /// Gives an announced message up. From now on its memory may be anything: a consumer that has read it and then sees
    /// the number that came with the message has read the message.
    pub(super) fn withdraw(&mut self) {
        self.withdrawn = self.withdrawn.wrapping_add(1);
        let word = self.lane.word(WORD_WITHDRAWN);
        word.store(self.withdrawn.into(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Whether a record with a payload of `len` bytes fits now, and the 0 behind it.
    #[inline]
    fn has_room(&mut self, len: usize) -> Result<bool, Broken> {
        let needed = total_words(len) + LINE_WORDS;
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

    /// Writes a record, whose kind is not 0. `Ok(false)`: there is no room.
    #[inline]
    pub(super) fn push(&mut self, record: &Record, payload: &Payload<'_>) -> Result<bool, Broken> {
        if !self.has_room(record.len as usize)? {
            return Ok(false);
        }
        let put = |at, word| self.lane.data(self.tail + at).store(word, Ordering::Relaxed);
        let total = record.total_words();
        put(total, 0);
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
            Payload::Bytes(bytes) => self.lane.write(self.tail + RECORD_HEAD_WORDS, bytes),
            Payload::Memory(memory, from) => match record.len as usize {
                len @ ..=SHORT_CHUNK_LEN => self.put_memory::<SHORT_CHUNK_LEN>(memory, *from, len),
                len => self.put_memory::<CHUNK_LEN>(memory, *from, len),
            },
        }
        let first = self.lane.data(self.tail);
        first.store(u64::from(record.kind) << 32 | u64::from(record.len), Ordering::Release);
        self.tail += total;
        Ok(true)
    }

    /// Writes the payload of the next record.
    #[inline]
    fn put_memory<const CHUNK_LEN: usize>(&self, memory: &Segments, from: u32, len: usize) {
        let mut chunk = [0; CHUNK_LEN];
        let mut done = 0;
        while done < len {
            let chunk = &mut chunk[..CHUNK_LEN.min(len - done)];
            memory.read_at(from + done as u32, chunk);
            self.lane
                .write(self.tail + RECORD_HEAD_WORDS + (done / 8) as u64, chunk);
            done += chunk.len();
        }
    }

    /// Whether the consumer is to be woken after something was written.
    #[inline]
    pub(super) fn consumer_sleeps(&self) -> bool {
        self.lane.take_flag(WORD_ASLEEP)
    }

    /// Asks to be woken when there is room for a record with a payload of `len` bytes. True if there is already.
    pub(super) fn want_room(&mut self, len: usize) -> bool {
        self.lane.set_flag(WORD_WANTS_ROOM);
        // Any error shows when something is written.
        self.has_room(len).unwrap_or(true)
    }
}

/// The reading end.
pub(super) struct Consumer {
    lane: Lane,
    head: u64,
    /// The position that was published last.
    said: u64,
}

impl Consumer {
    /// Returns the number of messages that the producer has given up, after what was read of its memory before this
    /// call.
    pub(super) fn withdrawn(&self) -> u32 {
        fence(Ordering::SeqCst);
        self.lane.word(WORD_WITHDRAWN).load(Ordering::Relaxed) as u32
    }

    /// Returns the oldest record, which stays.
    #[inline]
    pub(super) fn next(&self) -> Result<Option<Record>, Broken> {
        let first = self.lane.data(self.head).load(Ordering::Acquire);
        if first == 0 {
            return Ok(None);
        }
        let word = |at| self.lane.data(self.head + at).load(Ordering::Relaxed);
        let record = Record {
            kind: (first >> 32) as u32,
            len: first as u32,
            words: [word(1), word(2), word(3)],
        };
        if record.len as usize > PAYLOAD_LEN_MAX {
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
    pub(super) fn for_payload(&self, len: u32, take: impl FnMut(u32, &[u8])) {
        match len as usize {
            ..=SHORT_CHUNK_LEN => self.take_payload::<SHORT_CHUNK_LEN>(len, take),
            _ => self.take_payload::<CHUNK_LEN>(len, take),
        }
    }

    #[inline]
    fn take_payload<const CHUNK_LEN: usize>(&self, len: u32, mut take: impl FnMut(u32, &[u8])) {
        let mut chunk = [0; CHUNK_LEN];
        let mut done = 0;
        while done < len {
            let here = CHUNK_LEN.min((len - done) as usize);
            self.read(done.into(), &mut chunk[..here]);
            take(done, &chunk[..here]);
            done += here as u32;
        }
    }

    /// Returns the payload of the oldest record as words.
    pub(super) fn payload_words(&self, record: &Record) -> Vec<u64> {
        let from = self.head + RECORD_HEAD_WORDS;
        (0..u64::from(record.len) / 8)
            .map(|at| self.lane.data(from + at).load(Ordering::Relaxed))
            .collect()
    }

    /// Drops the oldest record.
    #[inline]
    pub(super) const fn done(&mut self, record: &Record) {
        self.head += record.total_words();
    }

    /// Says how far this end is, if that was long ago or it `stops` with records left. Whether the producer is to be woken.
    #[inline]
    pub(super) fn say_head(&mut self, stops: bool) -> bool {
        let unsaid = self.head - self.said;
        if unsaid < SAID_EVERY_WORDS && !(stops && unsaid > 0) {
            return false;
        }
        self.said = self.head;
        self.lane.word(WORD_HEAD).store(self.head, Ordering::Release);
        self.lane.take_flag(WORD_WANTS_ROOM)
    }

    /// Asks to be woken when something is written. True if something is there already.
    pub(super) fn sleep(&self) -> bool {
        self.lane.set_flag(WORD_ASLEEP);
        !matches!(self.next(), Ok(None))
    }
}

/// Makes both ends of one side: `first` for the side that asked for the pair.
pub(super) fn ends(memory: &Arc<Memory>, traffic: Traffic, first: bool) -> (Producer, Consumer) {
    let producer = Producer {
        lane: Lane::new(memory, traffic, !first),
        tail: 0,
        head: 0,
        withdrawn: 0,
    };
    let consumer = Consumer {
        lane: Lane::new(memory, traffic, first),
        head: 0,
        said: 0,
    };
    (producer, consumer)
}

#[cfg(test)]
mod tests;
