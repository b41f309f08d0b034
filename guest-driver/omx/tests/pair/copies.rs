//! What an engine that copies received data is told and asked to do.

use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use omx::{CopyEngine, Endpoint, Segment, StatusCode};

use crate::{LIMIT, Pair, bytes, irecv, options, pair, pair_with, wait};

/// Is always this many copies behind, unless it is waited for.
const BEHIND: usize = 20;

/// Copies late, and counts.
#[derive(Default)]
struct LateEngine {
    submitted: VecDeque<(usize, usize, usize)>,
    finished: u64,
    copies: Arc<AtomicUsize>,
    bytes: Arc<AtomicUsize>,
}

impl LateEngine {
    fn copy_next(&mut self) {
        let (from, to, len) = self.submitted.pop_front().expect("a copy that was submitted");
        let from = std::ptr::with_exposed_provenance::<u8>(from);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
        // SAFETY: what `submit` was promised holds until the copy is counted.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        self.bytes.fetch_add(len, Ordering::Relaxed);
        self.finished += 1;
    }
}

// SAFETY: a copy is made before it is counted, and nothing else touches memory.
unsafe impl CopyEngine for LateEngine {
    unsafe fn submit(&mut self, from: *const u8, to: *mut u8, len: usize) -> bool {
        // What the engine has no room for is the processor's.
        let takes = self.copies.fetch_add(1, Ordering::Relaxed) % 7 != 6;
        if takes {
            self.submitted
                .push_back((from.expose_provenance(), to.expose_provenance(), len));
        }
        takes
    }

    fn finished(&mut self) -> u64 {
        while self.submitted.len() > BEHIND {
            self.copy_next();
        }
        self.finished
    }

    fn wait(&mut self, count: u64) {
        while self.finished < count {
            self.copy_next();
        }
    }
}

#[test]
fn m_om_a_an_engine_copies_long_messages_and_the_processor_short_ones() {
    let Pair { a, b, to_b } = pair();
    let engine = LateEngine::default();
    let (copies, copied) = (Arc::clone(&engine.copies), Arc::clone(&engine.bytes));
    b.set_copy_engine(Some(Box::new(engine)));
    for (len, expected) in [
        (1000, true),
        (32_768, true),
        (32_769, true),
        (1 << 20, true),
        (1 << 20, false),
    ] {
        copied.store(0, Ordering::Relaxed);
        let before = copies.load(Ordering::Relaxed);
        let data = bytes(len, len);
        let mut got = vec![0; len];
        let posted = expected.then(|| irecv(&b, &mut got, 5, u64::MAX));
        let sender = thread::spawn({
            let (a, data) = (a.clone(), data.clone());
            move || a.send(&data, to_b, 5).unwrap()
        });
        let receive = posted.unwrap_or_else(|| {
            b.probe(5, u64::MAX, LIMIT).unwrap().expect("within the limit");
            irecv(&b, &mut got, 0, 0)
        });
        assert_eq!(wait(&b, receive).code, StatusCode::Success);
        sender.join().unwrap();
        assert!(got == data, "{len} bytes");
        if len <= 32_768 {
            assert_eq!(
                copies.load(Ordering::Relaxed),
                before,
                "{len} bytes are the processor's"
            );
        } else {
            let part = copied.load(Ordering::Relaxed);
            assert!(
                part > len / 2 && part < len,
                "{part} of {len}: all but every seventh piece and the last"
            );
        }
    }
    b.set_copy_engine(None);
    let before = copies.load(Ordering::Relaxed);
    let mut got = vec![0; 1 << 20];
    let receive = irecv(&b, &mut got, 5, u64::MAX);
    let sender = thread::spawn(move || a.send(&bytes(1 << 20, 1), to_b, 5).unwrap());
    assert_eq!(wait(&b, receive).code, StatusCode::Success);
    sender.join().unwrap();
    assert!(got == bytes(1 << 20, 1));
    assert_eq!(copies.load(Ordering::Relaxed), before);
}

/// What an engine that must know memory was told.
#[derive(Debug, Default)]
struct Told {
    known: HashMap<u64, Range<usize>>,
    registered: usize,
    submitted: usize,
    taken: u64,
    /// More than this at once it does not know.
    room: usize,
}

/// Copies at once, but only to memory that it knows.
struct Knowing(Arc<Mutex<Told>>);

// SAFETY: every copy is made when it is submitted.
unsafe impl CopyEngine for Knowing {
    unsafe fn submit(&mut self, from: *const u8, to: *mut u8, len: usize) -> bool {
        let mut told = self.0.lock().unwrap();
        let to_memory = to.addr()..to.addr() + len;
        let contains = |known: &Range<usize>| known.start <= to_memory.start && to_memory.end <= known.end;
        assert!(told.known.values().any(contains), "memory that it does not know");
        told.submitted += 1;
        told.taken += 1;
        // SAFETY: the caller's promise.
        unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
        true
    }

    fn finished(&mut self) -> u64 {
        self.0.lock().unwrap().taken
    }

    fn wait(&mut self, count: u64) {
        assert!(count <= self.finished());
    }

    fn needs_registrations(&self) -> bool {
        true
    }

    unsafe fn register(&mut self, memory: *mut u8, len: usize) -> Option<u64> {
        let mut told = self.0.lock().unwrap();
        if told.known.len() >= told.room {
            return None;
        }
        told.registered += 1;
        let name = told.registered as u64;
        let before = told.known.insert(name, memory.addr()..memory.addr() + len);
        assert_eq!(before, None);
        Some(name)
    }

    fn unregister(&mut self, name: u64) {
        assert!(self.0.lock().unwrap().known.remove(&name).is_some());
    }
}

const LEN: usize = 100_000;

fn engine(b: &Endpoint) -> Arc<Mutex<Told>> {
    let told = Arc::new(Mutex::new(Told {
        room: usize::MAX,
        ..Told::default()
    }));
    b.set_copy_engine(Some(Box::new(Knowing(Arc::clone(&told)))));
    told
}

fn transfer(Pair { a, b, to_b }: &Pair, got: &mut [u8]) {
    let (a, to_b, data) = (a.clone(), *to_b, bytes(LEN, 1));
    let receive = irecv(b, got, 5, u64::MAX);
    let sender = thread::spawn(move || a.send(&data, to_b, 5).unwrap());
    assert_eq!(wait(b, receive).code, StatusCode::Success);
    sender.join().unwrap();
    assert!(got == bytes(LEN, 1));
}

#[test]
fn m_om7_memory_is_known_to_the_engine_as_long_as_its_receive() {
    let pair = pair_with(&options());
    let told = engine(&pair.b);
    let mut got = vec![0; LEN];
    for times in 1..=3 {
        transfer(&pair, &mut got);
        let told = told.lock().unwrap();
        assert_eq!((told.registered, told.known.len()), (times, 0));
    }
    // Every piece of a list, once.
    let (first, second) = got.split_at_mut(LEN / 3);
    let segments = [Segment::of_mut(first), Segment::of_mut(second)];
    // SAFETY: both outlive the request.
    let receive = unsafe { pair.b.irecv(&segments, 5, u64::MAX, 0) }.unwrap();
    let (a, to_b, data) = (pair.a.clone(), pair.to_b, bytes(LEN, 2));
    let sender = thread::spawn(move || a.send(&data, to_b, 5).unwrap());
    assert_eq!(pair.b.wait(receive, LIMIT).unwrap().unwrap().code, StatusCode::Success);
    sender.join().unwrap();
    assert!(got == bytes(LEN, 2));
    assert_eq!(told.lock().unwrap().registered, 5);
    // Memory that it cannot know is the processor's.
    let submitted = {
        let mut told = told.lock().unwrap();
        told.room = 0;
        told.submitted
    };
    transfer(&pair, &mut got);
    assert_eq!(told.lock().unwrap().submitted, submitted);
}

#[test]
fn m_om7_a_receive_of_many_pieces_has_no_more_registrations_than_a_card_has_room_for() {
    const PIECES: usize = 250;
    const PIECE_LEN: usize = 2000;
    let pair = pair_with(&options());
    let told = engine(&pair.b);
    told.lock().unwrap().room = 224;
    let mut got = vec![0; PIECES * PIECE_LEN];
    let segments: Vec<_> = got.chunks_mut(PIECE_LEN).map(Segment::of_mut).collect();
    // SAFETY: the memory outlives the request.
    let receive = unsafe { pair.b.irecv(&segments, 5, u64::MAX, 0) }.unwrap();
    let (a, to_b, data) = (pair.a.clone(), pair.to_b, bytes(PIECES * PIECE_LEN, 3));
    let sender = thread::spawn(move || a.send(&data, to_b, 5).unwrap());
    assert_eq!(pair.b.wait(receive, LIMIT).unwrap().unwrap().code, StatusCode::Success);
    sender.join().unwrap();
    assert!(got == bytes(PIECES * PIECE_LEN, 3));
    let told = told.lock().unwrap();
    // But for those that a packet's end cuts short, which are the processor's.
    assert!(told.registered > told.room, "one after the other: {told:?}");
    assert!(told.known.is_empty(), "and none when the receive is over");
}
