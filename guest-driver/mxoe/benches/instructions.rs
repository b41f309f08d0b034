//! Instructions per message of the engine and of matching, counted by valgrind: steady on any machine, however busy.
//!
//! `cargo bench -p weft-mxoe` needs valgrind and `gungraun-runner`. Each benchmark handles [`MESSAGES`] messages, so the figure
//! divided by that is one message's, the loop around it included. Recorded figures are in `INSTRUCTIONS.md`.

// The macros of gungraun write functions without documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use ether::{MacAddr, Time};
use gungraun::prelude::*;
use mxoe::{
    engine::{
        Arrival, Config, Engine, HEAD_BUFFER_LEN, Host, PartnerId, PeerMap, SendOptions, Token, Transmit, Verdict,
    },
    matching::{MatchTable, Selector},
    wire::Preset,
};

const MESSAGES: u64 = 1024;
const GAP_NS: u64 = 1_000;

/// Counts what arrives.
#[derive(Default)]
struct Sink(u64);

impl Host for Sink {
    fn arrive(&mut self, arrival: Arrival<'_>) -> Verdict {
        self.0 += u64::from(arrival.length);
        Verdict::Take(1)
    }

    fn deliver(&mut self, _: Token, _: u32, data: &[u8]) {
        self.0 += data.len() as u64;
    }
}

/// Two engines that know each other.
struct Pair {
    engines: [Engine<PeerMap>; 2],
    to: [PartnerId; 2],
    sink: Sink,
    now: Time,
    buffer: Box<[u8; 9_000]>,
}

impl Pair {
    fn carry(&mut self, from: usize) -> u64 {
        let mut frames = 0;
        let mut head = [0; HEAD_BUFFER_LEN];
        while let Some(transmit) = self.engines[from].poll_transmit(self.now, &mut head) {
            let Transmit { head_len, .. } = transmit;
            self.buffer[..head_len].copy_from_slice(&head[..head_len]);
            let frame = &self.buffer[..transmit.frame_len()];
            self.engines[1 - from].handle(self.now, frame, &mut self.sink);
            frames += 1;
        }
        while self.engines[1 - from].poll_event().is_some() {}
        frames
    }

    fn tiny(&mut self, from: usize, data: &[u8]) {
        self.now = self.now.plus_nanos(GAP_NS);
        let to = self.to[from];
        black_box(self.engines[from].send_inline(self.now, to, 7, 0, black_box(data))).unwrap();
        self.carry(from);
    }
}

fn pair() -> Pair {
    let mac = |number| MacAddr([2, 0, 0, 0, 0, number]);
    let engine = |number| {
        let config = Config::new(mac(number), 0, number.into(), Preset::Native9000);
        Engine::new(config, PeerMap::new(8, 0))
    };
    let mut pair = Pair {
        engines: [engine(1), engine(2)],
        to: [PartnerId::default(); 2],
        sink: Sink::default(),
        now: Time::from_nanos(1),
        buffer: Box::new([0; 9_000]),
    };
    for from in 0..2 {
        let other = mac(2 - from as u8);
        pair.to[from] = pair.engines[from].connect(pair.now, other, 0, 0, 0).unwrap();
        pair.carry(from);
        pair.carry(1 - from);
    }
    // Warm memory, and a measured round trip.
    for _ in 0..64 {
        pair.tiny(0, &[0; 8]);
        pair.tiny(1, &[0; 8]);
    }
    pair
}

#[library_benchmark]
#[bench::of_8_bytes(pair(), 8)]
#[bench::of_32_bytes(pair(), 32)]
#[bench::small_of_128_bytes(pair(), 128)]
fn ping_pong(mut pair: Pair, len: usize) -> Pair {
    let data = [0x5a; 128];
    for _ in 0..MESSAGES / 2 {
        pair.tiny(0, &data[..len]);
        pair.tiny(1, &data[..len]);
    }
    pair
}

#[library_benchmark]
#[bench::of_8_bytes(pair())]
fn one_way(mut pair: Pair) -> Pair {
    for _ in 0..MESSAGES {
        pair.tiny(0, &[0x5a; 8]);
        pair.carry(1);
    }
    pair
}

// 4 MiB, 468 frames of data.
#[library_benchmark]
#[bench::of_4_mib(pair())]
fn large(mut pair: Pair) -> Pair {
    let (now, to) = (pair.now, pair.to[0]);
    struct Pulling(u64);
    impl Host for Pulling {
        fn arrive(&mut self, arrival: Arrival<'_>) -> Verdict {
            Verdict::Pull {
                receive: 1,
                length: arrival.length,
            }
        }
        fn deliver(&mut self, _: Token, _: u32, data: &[u8]) {
            self.0 += data.len() as u64;
        }
    }
    let mut sink = Pulling(0);
    pair.engines[0]
        .send(now, to, 7, 0, 4 << 20, SendOptions::default())
        .unwrap();
    let mut head = [0; HEAD_BUFFER_LEN];
    let mut idle = 0;
    while idle < 2 {
        idle += 1;
        for from in 0..2 {
            while let Some(transmit) = pair.engines[from].poll_transmit(now, &mut head) {
                pair.buffer[..transmit.head_len].copy_from_slice(&head[..transmit.head_len]);
                let frame = &pair.buffer[..transmit.frame_len()];
                pair.engines[1 - from].handle(now, frame, &mut sink);
                idle = 0;
            }
        }
    }
    assert_eq!(sink.0, 4 << 20);
    pair
}

type Table = MatchTable<u64, u64>;

/// `posted` receives, each for its own match information.
fn table(posted: u64) -> Table {
    let mut table = Table::new(1 << 20, 7);
    for info in 0..posted {
        table.posted.post(Selector::exact(info), info);
    }
    table
}

// Messages come in the reverse order of the receives; eight are taken, then posted anew.
#[library_benchmark]
#[bench::of_10_posted(table(10), 10)]
#[bench::of_10000_posted(table(10_000), 10_000)]
fn exact_match(mut table: Table, posted: u64) -> Table {
    for round in 0..MESSAGES / 8 {
        let last = posted - 1 - (round * 8) % (posted - 8);
        for info in (last - 7..=last).rev() {
            black_box(table.posted.take(black_box(info))).unwrap();
        }
        for info in last - 7..=last {
            black_box(table.posted.post(Selector::exact(black_box(info)), info));
        }
    }
    table
}

library_benchmark_group!(name = messages, benchmarks = [ping_pong, one_way, large, exact_match]);
main!(library_benchmark_groups = messages);
