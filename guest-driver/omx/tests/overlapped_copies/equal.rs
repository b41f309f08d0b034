//! A thread that copies, and the processor that does, are the same to a program under every setting: what is lost, doubled and
//! reordered, what is cancelled, how much the port lends, and how many endpoints there are.

use mxoe::engine::Lost;
use omx::{CopyEngineKind, Counter, EndpointOptions, Request, Segment, Status};
use proptest::prelude::*;

use crate::{LIMIT, Pair, bytes, isend, options, pair_with, port::Faults};

/// A byte that no test sends.
const GUARD: u8 = 0xee;
/// The bytes on both sides of a buffer.
const GUARD_LEN: usize = 64;

#[derive(Clone, Debug)]
struct Message {
    len: usize,
    /// The receive has room for so much less, or more.
    room: isize,
    /// The receive is a list of pieces of this length; 0: one piece.
    piece_len: usize,
    /// The receive is posted after the message was sent.
    late: bool,
    /// The receive is cancelled after so many steps of progress, and another one is posted if that was in time.
    cancelled_after: Option<usize>,
    pair: usize,
}

#[derive(Clone, Debug)]
struct Setting {
    messages: Vec<Message>,
    pairs: usize,
    faults: Faults,
    loss: Option<u32>,
    helped: bool,
}

/// A receive's memory: guards around the buffer, whose last byte is never sent either.
struct Buffer {
    memory: Vec<u8>,
    len: usize,
}

impl Buffer {
    fn new(len: usize) -> Self {
        Self {
            memory: vec![GUARD; len + 2 * GUARD_LEN],
            len,
        }
    }

    fn buffer(&self) -> &[u8] {
        &self.memory[GUARD_LEN..][..self.len]
    }

    fn post(&mut self, pair: &Pair, number: usize, piece_len: usize) -> Request {
        let len = self.len;
        let buffer = &mut self.memory[GUARD_LEN..][..len];
        let piece_len = if piece_len == 0 {
            len.max(1)
        } else {
            piece_len.max(len.div_ceil(200))
        };
        let pieces: Vec<_> = buffer.chunks_mut(piece_len).map(Segment::of_mut).collect();
        // SAFETY: the memory outlives the request, and is not touched before it is over.
        unsafe { pair.b.irecv(&pieces, number as u64, u64::MAX, number as u64) }.unwrap()
    }
}

impl Message {
    /// The length of the receive's buffer, in bytes.
    fn room(&self) -> usize {
        self.len.saturating_add_signed(self.room)
    }
}

/// What a program sees of a message: its status, and its buffer.
type Seen = (Status, Vec<u8>);

/// Messages in flight.
struct Run<'a> {
    setting: &'a Setting,
    pairs: Vec<Pair>,
    data: Vec<Vec<u8>>,
    buffers: Vec<Buffer>,
    /// Buffers whose receives were cancelled in time.
    cancelled: Vec<Buffer>,
    receives: Vec<Option<Request>>,
    sends: Vec<Option<Request>>,
    seen: Vec<Option<Seen>>,
}

impl<'a> Run<'a> {
    /// Posts what is posted before progress is made.
    fn new(setting: &'a Setting, options: &EndpointOptions) -> Self {
        let messages = setting.messages.iter().enumerate();
        let count = setting.messages.len();
        let mut run = Self {
            setting,
            pairs: (0..setting.pairs).map(|_| pair_with(options, setting.faults)).collect(),
            data: messages.clone().map(|(at, m)| bytes_without_guard(m.len, at)).collect(),
            buffers: messages.clone().map(|(_, m)| Buffer::new(m.room())).collect(),
            cancelled: Vec::new(),
            receives: vec![None; count],
            sends: vec![None; count],
            seen: vec![None; count],
        };
        for (at, m) in messages {
            if !m.late {
                run.post(at);
            }
            let pair = &run.pairs[m.pair % run.pairs.len()];
            run.sends[at] = Some(isend(&pair.a, &run.data[at], pair.to_b, at as u64));
        }
        run
    }

    fn post(&mut self, at: usize) {
        let m = &self.setting.messages[at];
        let pair = &self.pairs[m.pair % self.pairs.len()];
        self.receives[at] = Some(self.buffers[at].post(pair, at, m.piece_len));
    }

    fn is_over(&self) -> bool {
        self.seen.iter().all(Option::is_some) && self.sends.iter().all(Option::is_none)
    }

    /// Makes progress, and does what the program does then.
    fn step(&mut self, steps: usize) {
        for pair in &self.pairs {
            pair.a.progress();
            pair.b.progress();
        }
        for (at, m) in self.setting.messages.iter().enumerate() {
            let (a, b) = {
                let pair = &self.pairs[m.pair % self.pairs.len()];
                (pair.a.clone(), pair.b.clone())
            };
            if m.late && steps == 3 {
                self.post(at);
            }
            if m.cancelled_after == Some(steps)
                && let Some(receive) = self.receives[at]
                && b.cancel(receive).unwrap()
            {
                let buffer = std::mem::replace(&mut self.buffers[at], Buffer::new(m.room()));
                self.cancelled.push(buffer);
                self.post(at);
            }
            if let Some(send) = self.sends[at]
                && a.test(send).unwrap().is_some()
            {
                self.sends[at] = None;
            }
            if let Some(receive) = self.receives[at]
                && let Some(status) = b.test(receive).unwrap()
            {
                self.receives[at] = None;
                self.seen[at] = Some((status, self.buffers[at].buffer().to_vec()));
                // From now on it is the program's.
                self.buffers[at].memory.fill(GUARD);
            }
        }
    }
}

/// Sends and receives all messages, and returns what the program saw and how many copies an engine made.
fn run(setting: &Setting, kind: CopyEngineKind) -> Result<(Vec<Seen>, u32), TestCaseError> {
    let options = EndpointOptions {
        copy_engine: kind,
        progress: setting.helped,
        packet_loss: setting.loss.map(|every| (Lost::Any, every)).into_iter().collect(),
        ..options()
    };
    let mut run = Run::new(setting, &options);
    let begin = std::time::Instant::now();
    for steps in 0.. {
        if run.is_over() {
            break;
        }
        run.step(steps);
        prop_assert!(begin.elapsed() < LIMIT, "within the limit: {:?}", run.seen);
    }
    let mut copies = 0;
    for pair in &run.pairs {
        copies += pair.b.counters().get(Counter::CopiesSubmitted);
        pair.b.clone().close().unwrap();
        prop_assert_eq!(pair.lending.lock().unwrap().kept, 0, "every frame went back");
    }
    for buffer in run.buffers.iter().chain(&run.cancelled) {
        let is_untouched = buffer.memory.iter().all(|byte| *byte == GUARD);
        prop_assert!(is_untouched, "written to beside it, or after it was over or cancelled");
    }
    let seen = run.seen.into_iter().flatten();
    let seen = seen.map(|(status, buffer)| {
        (
            Status {
                address: None,
                ..status
            },
            buffer,
        )
    });
    Ok((seen.collect(), copies))
}

fn bytes_without_guard(len: usize, seed: usize) -> Vec<u8> {
    let mut bytes = bytes(len, seed);
    bytes
        .iter_mut()
        .filter(|byte| **byte == GUARD)
        .for_each(|byte| *byte = 0);
    bytes
}

fn message() -> impl Strategy<Value = Message> {
    let len = prop_oneof![
        0..200_usize,
        20_000..40_000_usize,
        40_000..400_000_usize,
        40_000..400_000_usize
    ];
    let room = prop_oneof![5 => Just(0_isize), 1 => -50_000..0_isize, 1 => 0..5000_isize];
    let piece_len = prop_oneof![3 => Just(0_usize), 1 => 900..20_000_usize];
    (
        len,
        room,
        piece_len,
        any::<bool>(),
        prop::option::of(0..6_usize),
        0..3_usize,
    )
        .prop_map(|(len, room, piece_len, late, cancelled_after, pair)| Message {
            len,
            room,
            piece_len,
            late,
            cancelled_after,
            pair,
        })
}

fn setting() -> impl Strategy<Value = Setting> {
    let every = || prop_oneof![Just(0_u64), 3..40_u64];
    let faults = (
        every(),
        every(),
        every(),
        any::<u64>(),
        prop::bool::weighted(0.1),
        any::<bool>(),
    );
    let messages = prop::collection::vec(message(), 1..6);
    let loss = prop::option::weighted(0.3, 5..40_u32);
    (messages, 1..4_usize, faults, loss, any::<bool>()).prop_map(
        |(messages, pairs, (lost, doubled, delayed, seed, lends_one, may_wait), loss, helped)| Setting {
            messages,
            pairs,
            faults: Faults {
                lost,
                doubled,
                delayed,
                seed,
                lends_one,
                may_wait,
            },
            loss,
            helped,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn m_om_a_a_thread_that_copies_and_none_are_the_same_to_a_program(setting in setting()) {
        let (none, copies) = run(&setting, CopyEngineKind::None)?;
        prop_assert_eq!(copies, 0);
        let (thread, _) = run(&setting, CopyEngineKind::Thread)?;
        for ((at, m), (none, thread)) in setting.messages.iter().enumerate().zip(none.iter().zip(&thread)) {
            prop_assert_eq!(none.0, thread.0, "message {}", at);
            prop_assert!(none.1 == thread.1, "bytes of message {at}");
            let data = bytes_without_guard(m.len, at);
            let common = data.len().min(none.1.len());
            prop_assert!(none.1[..common] == data[..common], "bytes of message {at}");
            prop_assert!(none.1[common..].iter().all(|byte| *byte == GUARD));
        }
    }
}

#[test]
fn m_om_a_the_thread_copies_large_messages() {
    let message = Message {
        len: 300_000,
        room: 0,
        piece_len: 0,
        late: false,
        cancelled_after: None,
        pair: 0,
    };
    let setting = Setting {
        messages: vec![message; 3],
        pairs: 1,
        faults: Faults::default(),
        loss: None,
        helped: false,
    };
    let (seen, copies) = run(&setting, CopyEngineKind::Thread).unwrap();
    // Where the thread gets no processor, the port lends no more after these.
    assert!(copies >= 16, "{copies} copies");
    for (at, (_, buffer)) in seen.iter().enumerate() {
        assert!(*buffer == bytes_without_guard(300_000, at));
    }
}
