//! Instructions per packet of the engine, counted by valgrind: steady on any machine, however busy.
//!
//! `cargo bench -p weft-esp` needs valgrind and `gungraun-runner`. Recorded figures are in `INSTRUCTIONS.md`.

// The macros of gungraun write functions without documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use esp::{Address, Config, ConnectionId, Engine, ListenOptions, Options};
use ether::{MacAddr, Time};
use gungraun::prelude::*;

const MESSAGES: u64 = 1024;
const GAP_NS: u64 = 1_000;
const STREAM_LEN: usize = 4 << 20;

/// Two engines with a connection.
struct Pair {
    engines: [Engine; 2],
    ids: [ConnectionId; 2],
    now: Time,
    frame: Box<[u8; 9_100]>,
    room: Box<[u8; 70_000]>,
}

impl Pair {
    fn carry(&mut self, from: usize) -> bool {
        let mut any = false;
        while let Some(len) = self.engines[from].poll_transmit(self.now, &mut *self.frame) {
            self.engines[1 - from].handle(&self.frame[..len], self.now);
            while self.engines[1 - from].poll_event().is_some() {}
            any = true;
        }
        any
    }

    fn message(&mut self, from: usize, len: usize) {
        self.now = self.now.plus_nanos(GAP_NS);
        let (from_id, to_id) = (self.ids[from], self.ids[1 - from]);
        let sent = self.engines[from].send(from_id, black_box(&[0x5a; 128][..len]), true, self.now);
        black_box(sent).unwrap();
        self.carry(from);
        let read = self.engines[1 - from].receive(to_id, &mut *self.room, self.now);
        assert_eq!(black_box(read), Ok(len));
    }
}

fn pair(mtu: u16) -> Pair {
    let mac = |number| MacAddr([2, 0, 0, 0, 0, number]);
    let engine = |number| Engine::new(Config::new(mac(number), mtu), number.into()).unwrap();
    let mut engines = [engine(1), engine(2)];
    let now = Time::from_nanos(1);
    let listen = ListenOptions {
        backlog: 1,
        hold: false,
    };
    engines[1].listen(80, listen).unwrap();
    let peer = Address { mac: mac(2), port: 80 };
    let id = engines[0].connect(5_000, peer, Options::default(), now).unwrap();
    let mut pair = Pair {
        engines,
        ids: [id; 2],
        now,
        frame: Box::new([0; 9_100]),
        room: Box::new([0; 70_000]),
    };
    while pair.carry(0) | pair.carry(1) {}
    pair.ids[1] = pair.engines[1].accept(80).unwrap();
    // Warm memory, and a measured round trip.
    for _ in 0..64 {
        pair.message(0, 8);
        pair.message(1, 8);
    }
    stream(pair)
}

#[library_benchmark]
#[bench::of_1_byte(pair(1_500), 1)]
#[bench::of_128_bytes(pair(1_500), 128)]
fn ping_pong(mut pair: Pair, len: usize) -> Pair {
    for _ in 0..MESSAGES / 2 {
        pair.message(0, len);
        pair.message(1, len);
    }
    pair
}

/// 4 MiB from one engine to the other, 32 KiB a call.
fn stream(mut pair: Pair) -> Pair {
    let bytes = [0x5a; 32 << 10];
    let (mut given, mut taken) = (0, 0);
    while taken < STREAM_LEN {
        pair.now = pair.now.plus_nanos(GAP_NS);
        let len = bytes.len().min(STREAM_LEN - given);
        if len > 0 {
            given += pair.engines[0]
                .send(pair.ids[0], &bytes[..len], true, pair.now)
                .unwrap_or(0);
        }
        pair.carry(0);
        while let Ok(len) = pair.engines[1].receive(pair.ids[1], &mut *pair.room, pair.now) {
            taken += len;
        }
        pair.carry(1);
    }
    pair
}

#[library_benchmark]
#[bench::of_4_mib_in_packets_of_1475_bytes(pair(1_500))]
#[bench::of_4_mib_in_packets_of_8975_bytes(pair(9_000))]
fn one_way(pair: Pair) -> Pair {
    stream(pair)
}

library_benchmark_group!(name = packets, benchmarks = [ping_pong, one_way]);
main!(library_benchmark_groups = packets);
