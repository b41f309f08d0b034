//! A program that shares memory with an endpoint and writes what it must not.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicU64, Ordering},
};

use omx::{Board, Counter, Error, StatusCode};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use weft_authority::{News, OmxdError, PAIR_MEMORY_LEN, Session, next_visit};
use weft_guest_driver_testkit::Veth;

use crate::{
    rig::{Echo, exchange, in_own_world, open, wait_until},
    same_host::reach,
};

/// A program that has an endpoint and shared memory with another one, and no library.
pub(crate) struct Liar {
    pub(crate) session: Session,
    pub(crate) socket: weft_authority::QuarantinedSocket,
    pub(crate) visits: OwnedFd,
    /// The pair's number.
    pub(crate) id: u64,
    pub(crate) words: &'static [AtomicU64],
}

/// Shared memory of a pair.
pub(crate) fn map(pair: &weft_authority::Pair) -> &'static [AtomicU64] {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let memory = pair.memory.as_fd();
    // SAFETY: a fresh mapping, which stays until the process ends.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            PAIR_MEMORY_LEN,
            protection,
            MapFlags::SHARED,
            memory,
            0,
        )
    };
    // SAFETY: all of the mapping, accessed atomically.
    unsafe { std::slice::from_raw_parts(base.unwrap().cast(), PAIR_MEMORY_LEN / 8) }
}

/// The next pair that is there for an endpoint without a library.
pub(crate) fn next_pair(visits: &OwnedFd) -> Option<weft_authority::Pair> {
    loop {
        match next_visit(visits.as_fd()).unwrap()? {
            News::Paired(pair) => return Some(pair),
            News::Over { .. } => {}
            News::Missed { .. } => panic!("there are descriptors"),
        }
    }
}

impl Liar {
    fn pair_with(veth: &Veth, victim: u8) -> Self {
        Self::pair_as(&veth.a, None, victim)
    }

    /// As endpoint `number` of the interface.
    pub(crate) fn pair_as(interface: &str, number: Option<u8>, victim: u8) -> Self {
        let session = Session::connect(Board::named(interface).unwrap().interface()).unwrap();
        let opened = session.open_endpoint(number).unwrap();
        let mut met = None;
        wait_until("a pair with the victim", || {
            match session.pair(victim, None) {
                Ok(()) | Err(OmxdError::Late) => {}
                Err(error) => panic!("{error}"),
            }
            met = next_pair(&opened.visits);
            met.is_some()
        });
        let pair = met.unwrap();
        let words = map(&pair);
        rustix::net::send(&pair.socket, &[1], rustix::net::SendFlags::empty()).unwrap();
        Self {
            session,
            socket: pair.socket,
            visits: opened.visits,
            id: pair.id,
            words,
        }
    }

    /// Where records of a ring begin: messages to the victim are in the first, answers in the third.
    pub(crate) const fn data(ring: usize) -> usize {
        512 + ring * 16384
    }

    /// Writes records behind each other, each at the beginning of a cache line; the first one's first word last.
    pub(crate) fn write(&self, ring: usize, records: &[Vec<u64>]) {
        let mut at = Self::data(ring);
        for (number, record) in records.iter().enumerate() {
            let first = usize::from(number == 0);
            for (at, word) in (at..).zip(record).skip(first) {
                self.words[at].store(*word, Ordering::Relaxed);
            }
            at += record.len().next_multiple_of(8);
        }
        self.words[Self::data(ring)].store(records[0][0], Ordering::Release);
    }
}

/// Records, and the rings for them.
type Written = Vec<(usize, Vec<Vec<u64>>)>;

const MESSAGES: usize = 0;
const ANSWERS: usize = 2;

const fn head(kind: u64, len: u64) -> u64 {
    kind << 32 | len
}

const CONNECT: [u64; 4] = [head(1, 0), 77, 9, 0];

#[test]
fn whatever_another_program_writes_to_shared_memory_the_endpoint_goes_on() {
    in_own_world(
        "liar::whatever_another_program_writes_to_shared_memory_the_endpoint_goes_on",
        || {
            let veth = Veth::new(1500);
            let endpoint = open(&veth.a, Some(0)).unwrap();
            let mut echo = Echo::start(&veth.a, &[]);
            let to = reach(&endpoint, echo.go_as());
            let one = |record: &[u64]| vec![(MESSAGES, vec![record.to_vec()])];
            let answer = |record: &[u64]| vec![(ANSWERS, vec![record.to_vec()])];
            let after_connect = |record: &[u64]| [answer(&CONNECT), one(record)].concat();
            let cases: Vec<(&str, Written)> = vec![
                ("a message before a connection", one(&[head(3, 0), 1, 0, 0])),
                ("an announcement before a connection", one(&[head(4, 0), 1, 0, 1])),
                (
                    "a message after an answer without a question",
                    [answer(&[head(2, 0), 77, 9, 0]), one(&[head(3, 0), 1, 0, 0])].concat(),
                ),
                (
                    "a message after a wrong key",
                    [answer(&[head(1, 0), 77, 1 << 32 | 9, 0]), one(&[head(3, 0), 1, 0, 0])].concat(),
                ),
                ("no such record", one(&[head(99, 0), 0, 0, 0])),
                ("a record of no kind", one(&[head(0, 16), 0, 0, 0])),
                ("an answer among the messages", one(&[head(2, 0), 0, 0, 0])),
                ("a message among the answers", answer(&[head(3, 0), 1, 0, 0])),
                ("no such answer", answer(&[head(99, 0), 0, 0, 0])),
                ("a connect among the messages", one(&CONNECT)),
                ("a connect with a payload", answer(&[head(1, 4000), 0, 0, 0])),
                ("an answer with a payload", answer(&[head(2, 8), 0, 0, 0])),
                ("an end with a payload", answer(&[head(5, 8), 0, 0, 0])),
                ("a question with a payload", answer(&[head(6, 8), 0, 0, 0])),
                (
                    "a record longer than any",
                    one(&[head(1, u64::from(u32::MAX)), 0, 0, 0]),
                ),
                (
                    "an answer longer than any",
                    answer(&[head(7, u64::from(u32::MAX)), 0, 0, 0]),
                ),
                (
                    "one byte more than the longest",
                    after_connect(&[head(3, 32769), 0, 0, 0]),
                ),
                (
                    "a length that its segments do not have",
                    after_connect(&[head(4, 16), 1, 99, 1, 4096, 98]),
                ),
                (
                    "segments beyond 4 GiB",
                    after_connect(&[head(4, 16), 1, 0, 1, 4096, u64::MAX]),
                ),
                (
                    "the same announced twice",
                    [
                        answer(&CONNECT),
                        vec![(MESSAGES, vec![vec![head(4, 0), 1, 0, 1], vec![head(4, 0), 1, 0, 1]])],
                    ]
                    .concat(),
                ),
                ("half a segment", after_connect(&[head(4, 8), 1, 0, 1, 4096])),
                (
                    "another session in the same conversation",
                    vec![(ANSWERS, vec![CONNECT.to_vec(), vec![head(1, 0), 77, 10, 0]])],
                ),
            ];
            let broken = || endpoint.counters().get(Counter::SharedBroken) as usize;
            for (at, (what, written)) in cases.iter().enumerate() {
                let liar = Liar::pair_with(&veth, 0);
                for (ring, records) in written {
                    liar.write(*ring, records);
                }
                wait_until(what, || {
                    endpoint.progress();
                    broken() == at + 1
                });
            }
            // A consumer that claims to have read what was not written: seen when there seems to be no room.
            let (liar, before) = (Liar::pair_with(&veth, 0), broken());
            liar.write(ANSWERS, &[CONNECT.to_vec()]);
            liar.words[3 * 128].store(1 << 50, Ordering::Release);
            for turn in 0.. {
                // A question for a connection again and again; each has an answer.
                let at = Liar::data(ANSWERS) + turn % 2048 * 8;
                for (word, value) in liar.words[at..].iter().zip(CONNECT).skip(1) {
                    word.store(value, Ordering::Relaxed);
                }
                liar.words[at].store(CONNECT[0], Ordering::Release);
                endpoint.progress();
                if broken() > before {
                    break;
                }
                assert!(turn < 10_000, "a position from nowhere");
            }
            // A record that changes while it is looked at.
            let liar = Liar::pair_with(&veth, 0);
            for turn in 0..1000 {
                liar.words[Liar::data(MESSAGES)].store(head(turn % 4, turn << 20), Ordering::Release);
                endpoint.progress();
            }
            // An address that is not the liar's memory, and answers without questions.
            let liar = Liar::pair_with(&veth, 0);
            let harmless = [[head(5, 0), 3, 100, 0], [head(6, 0), 3, 100, 0], [head(2, 0), 3, 9, 0]];
            let records = harmless.into_iter().chain([CONNECT]).map(|record| record.to_vec());
            liar.write(ANSWERS, &records.collect::<Vec<_>>());
            liar.write(MESSAGES, &[vec![head(4, 16), 8, 100_000, 1, 4096, 100_000]]);
            let mut buffer = vec![0; 100_000];
            let lied = endpoint.receive(&mut buffer, 8, u64::MAX);
            assert!(
                matches!(lied, Err(Error::Failed(StatusCode::BadRdmaWindow))),
                "{lied:?}"
            );
            // Whatever, wherever the endpoint is by then; its answers are written over, too.
            let mut random = 0x9e37_79b9_7f4a_7c15_u64;
            let mut next = || {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                random
            };
            let before = broken();
            for _ in 0..10 {
                let liar = Liar::pair_with(&veth, 0);
                liar.write(ANSWERS, &[CONNECT.to_vec()]);
                endpoint.progress();
                for _ in 0..200 {
                    for (number, line) in liar.words[Liar::data(MESSAGES)..].chunks(8).enumerate() {
                        let any = next();
                        // Most of them records of some kind.
                        let kinds = if number < 4096 { [3, 4, 3, 3] } else { [2, 5, 6, 7] };
                        let first = match any >> 60 {
                            0 => any,
                            _ => head(kinds[(any >> 50) as usize % 4], (any >> 33) % 64),
                        };
                        line[0].store(first, Ordering::Relaxed);
                        for (word, shift) in line[1..].iter().zip([50, 55, 58, 40, 52, 58, 60]) {
                            word.store(next() >> shift, Ordering::Relaxed);
                        }
                    }
                    endpoint.progress();
                }
            }
            assert!(broken() > before, "nothing of that was read");
            while let Some(status) = endpoint.iprobe(0, 0).unwrap() {
                let _ = endpoint.receive(&mut buffer, status.match_info, u64::MAX);
            }
            exchange(&endpoint, to, 200_000, 1 << 62);
        },
    );
}
