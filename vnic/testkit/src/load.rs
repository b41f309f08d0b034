//! Load between two test frontends, both driven by the calling thread: streams in one direction and
//! ping-pong. It measures delivered frames and says how much of the time the generator was the limit.

use std::time::{Duration, Instant};

use crate::frontend::Frontend;
use crate::slots::HEADER_LEN;

/// Frames per transmit burst, as DPDK's generators send them.
pub const BURST: u16 = 32;
/// Rounds of the generator loop between two readings of the clock.
const ROUNDS_PER_CLOCK: u32 = 64;
/// How long frames in flight may take to arrive after the stream stopped.
const DRAIN: Duration = Duration::from_millis(200);
/// Longest wait for one ping-pong frame; longer means it was lost.
const PING_WAIT: Duration = Duration::from_secs(1);
/// Where the sequence number stands in a load frame: behind the Ethernet header.
const SEQUENCE_AT: usize = HEADER_LEN + 14;

/// One measurement of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OneWaySample {
    /// Frames the receiver took per second.
    pub frames_per_s: f64,
    /// Frames the receiver took in the measured time.
    pub received: u64,
    /// Frames that were sent and did not arrive, or arrived out of turn (gaps in the sequence).
    pub lost: u64,
    /// Share of tries in which the transmit ring had no room for a burst.
    pub sender_full: f64,
    /// Share of rounds in which the receive ring had fewer free buffers than a burst: the receiver was the limit.
    pub receiver_starved: f64,
    /// Calls the receiver got.
    pub calls: u64,
}

/// Prepares both ends for frames of `frame_len` bytes (Ethernet header included, no FCS), from a station of `sender`'s
/// to one of `receiver`'s, on queue pair 0.
pub fn prepare(sender: &mut Frontend, receiver: &mut Frontend, frame_len: usize) {
    let tx = &mut sender.pairs[0].tx;
    drain(tx);
    tx.prefill(|buffer| write_frame(&mut buffer[..HEADER_LEN + frame_len], SENDER, RECEIVER));
    let back = &mut receiver.pairs[0].tx;
    drain(back);
    back.prefill(|buffer| write_frame(&mut buffer[..HEADER_LEN + frame_len], RECEIVER, SENDER));
    // A frame in each direction shows that all rings are served, and teaches a learning switch where both are.
    let (mut forth, mut home) = (0, 0);
    let deadline = Instant::now() + PING_WAIT;
    while (forth == 0 || home == 0) && Instant::now() < deadline {
        for ring in [&mut sender.pairs[0].tx, &mut receiver.pairs[0].tx] {
            if ring.free() > 0 {
                ring.push(HEADER_LEN + frame_len);
                ring.flush();
            }
        }
        std::thread::sleep(Duration::from_millis(1));
        forth += receiver.pairs[0].rx.poll(usize::MAX, |_, _| {});
        home += sender.pairs[0].rx.poll(usize::MAX, |_, _| {});
    }
}

const SENDER: [u8; 6] = [0x02, 0, 0, 0, 0x0a, 1];
const RECEIVER: [u8; 6] = [0x02, 0, 0, 0, 0x0a, 2];

fn write_frame(buffer: &mut [u8], source: [u8; 6], destination: [u8; 6]) {
    buffer.fill(0x5a);
    buffer[..HEADER_LEN].fill(0);
    buffer[HEADER_LEN..HEADER_LEN + 6].copy_from_slice(&destination);
    buffer[HEADER_LEN + 6..HEADER_LEN + 12].copy_from_slice(&source);
    buffer[HEADER_LEN + 12..HEADER_LEN + 14].copy_from_slice(&[0x90, 0x00]);
}

fn drain(tx: &mut crate::TxRing) {
    let deadline = Instant::now() + DRAIN;
    while tx.free() < tx.slots() && Instant::now() < deadline {
        std::hint::spin_loop();
    }
    assert!(
        tx.in_flight() == 0,
        "the backend holds {} transmit buffers of an idle sender",
        tx.in_flight()
    );
}

/// State of a stream between two measurements.
#[derive(Debug, Default)]
struct Stream {
    next_sent: u64,
    next_expected: u64,
    lost: u64,
    tries: u64,
    full: u64,
    starved: u64,
    received: u64,
    touch: Touch,
}

/// How much of each frame the guests' processors touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Touch {
    /// The first cache line: sequence number written by the sender, header and number read by the receiver.
    #[default]
    FirstLine,
    /// All of it: written anew by the sender, read by the receiver.
    Whole,
}

/// Streams frames of `frame_len` bytes for `duration` (after `prepare`). Every frame carries a sequence number that is
/// written before it is sent and checked when it arrives.
pub fn one_way(
    sender: &mut Frontend,
    receiver: &mut Frontend,
    frame_len: usize,
    touch: Touch,
    duration: Duration,
) -> OneWaySample {
    let mut stream = Stream {
        touch,
        ..Stream::default()
    };
    // The start is not measured: rings fill, caches and the backend warm up.
    run(&mut stream, sender, receiver, frame_len, duration / 8);
    receiver.pairs[0].rx.ring.take_calls();
    let lost_before = stream.lost;
    let warm = Stream {
        next_sent: stream.next_sent,
        next_expected: stream.next_expected,
        touch,
        ..Stream::default()
    };
    stream = warm;
    let elapsed = run(&mut stream, sender, receiver, frame_len, duration);
    let calls = receiver.pairs[0].rx.ring.take_calls();
    let sample = OneWaySample {
        frames_per_s: stream.received as f64 / elapsed.as_secs_f64(),
        received: stream.received,
        sender_full: stream.full as f64 / stream.tries as f64,
        receiver_starved: stream.starved as f64 / stream.tries as f64,
        calls,
        lost: 0,
    };
    drain(&mut sender.pairs[0].tx);
    let quiet = Instant::now() + DRAIN;
    while stream.next_expected < stream.next_sent && Instant::now() < quiet {
        receive(&mut stream, receiver);
    }
    let missing = stream.next_sent - stream.next_expected;
    OneWaySample {
        lost: stream.lost + lost_before + missing,
        ..sample
    }
}

fn run(
    stream: &mut Stream,
    sender: &mut Frontend,
    receiver: &mut Frontend,
    frame_len: usize,
    duration: Duration,
) -> Duration {
    let start = Instant::now();
    loop {
        for _ in 0..ROUNDS_PER_CLOCK {
            send(stream, sender, HEADER_LEN + frame_len);
            receive(stream, receiver);
        }
        let elapsed = start.elapsed();
        if elapsed >= duration {
            return elapsed;
        }
    }
}

#[inline]
fn send(stream: &mut Stream, sender: &mut Frontend, len: usize) {
    let tx = &mut sender.pairs[0].tx;
    stream.tries += 1;
    if tx.free() < BURST {
        stream.full += 1;
        return;
    }
    tx.prefetch(BURST);
    for _ in 0..BURST {
        let sequence = stream.next_sent.to_le_bytes();
        let buffer = tx.next_buffer();
        if stream.touch == Touch::Whole {
            buffer[SEQUENCE_AT..len].fill(sequence[0]);
        }
        buffer[SEQUENCE_AT..SEQUENCE_AT + 8].copy_from_slice(&sequence);
        tx.push(len);
        stream.next_sent += 1;
    }
    tx.flush();
}

#[inline]
fn receive(stream: &mut Stream, receiver: &mut Frontend) {
    let rx = &mut receiver.pairs[0].rx;
    if rx.pending() > rx.slots() - BURST {
        stream.starved += 1;
    }
    let (mut expected, mut lost, mut sum) = (stream.next_expected, 0, 0);
    let (whole, sent) = (stream.touch == Touch::Whole, stream.next_sent);
    let taken = rx.poll(2 * usize::from(BURST), |_, frame| {
        let Some(bytes) = frame[SEQUENCE_AT - HEADER_LEN..].first_chunk::<8>() else {
            return;
        };
        let sequence = u64::from_le_bytes(*bytes);
        if sequence >= sent {
            // A left-over of the preparation.
            return;
        }
        if sequence != expected {
            lost += sequence.wrapping_sub(expected).min(1 << 20);
        }
        expected = sequence.wrapping_add(1);
        if whole {
            let (words, _) = frame.as_chunks::<8>();
            sum = words.iter().fold(sum, |sum, word| sum ^ u64::from_le_bytes(*word));
        }
    });
    std::hint::black_box(sum);
    stream.next_expected = expected;
    stream.lost += lost;
    stream.received += taken as u64;
}

/// Sends one frame there and back `count` times (after `prepare`), both ends polling; `note` gets every round trip in
/// nanoseconds. Returns how many frames were lost (each ends its round trip without a figure).
pub fn ping_pong(
    left: &mut Frontend,
    right: &mut Frontend,
    frame_len: usize,
    count: u64,
    mut note: impl FnMut(u64),
) -> u64 {
    let mut lost = 0;
    for _ in 0..count {
        let start = Instant::now();
        if pass(left, right, frame_len) && pass(right, left, frame_len) {
            note(start.elapsed().as_nanos() as u64);
        } else {
            lost += 1;
        }
    }
    lost
}

/// One frame from `from` to `to`; false when it did not arrive within a second.
fn pass(from: &mut Frontend, to: &mut Frontend, frame_len: usize) -> bool {
    let tx = &mut from.pairs[0].tx;
    if tx.free() == 0 {
        return false;
    }
    tx.push(HEADER_LEN + frame_len);
    tx.flush();
    let rx = &mut to.pairs[0].rx;
    let mut rounds = 0_u32;
    let start = Instant::now();
    while rx.poll(1, |_, _| {}) == 0 {
        rounds += 1;
        if rounds.is_multiple_of(1024) && start.elapsed() > PING_WAIT {
            return false;
        }
        std::hint::spin_loop();
    }
    true
}
