//! Instructions of the library per short message, send and receive together, counted by valgrind: steady on any machine,
//! however busy.
//!
//! `cargo bench -p weft-omx` needs valgrind and `gungraun-runner`. Each benchmark exchanges [`MESSAGES`] messages between two
//! endpoints on ports joined in memory, so the figure divided by that is one message's; the ports' own instructions, which
//! stand for the kernel's, are in it. Recorded figures are in `INSTRUCTIONS.md`.

// The macros of gungraun write functions without documentation.
#![allow(missing_docs)]

use std::{hint::black_box, time::Duration};

use ether::MacAddr;
use gungraun::prelude::*;
use mxoe::wire::Preset;
use netif::memory_pair;
use omx::{Address, Endpoint, EndpointOptions, Segment, Waiting};

const MESSAGES: u64 = 1024;
const MATCH_INFO: u64 = 7;

/// Two endpoints that know each other; each end's address as the other knows it.
struct Pair {
    ends: [Endpoint; 2],
    to: [Address; 2],
}

impl Pair {
    fn one(&self, from: usize, data: &[u8], buffer: &mut [u8]) {
        let (sender, receiver) = (&self.ends[from], &self.ends[1 - from]);
        // SAFETY: the request is over before the buffer's borrow ends.
        let request = unsafe { receiver.irecv(&[Segment::of_mut(buffer)], MATCH_INFO, u64::MAX, 0) }.unwrap();
        sender.send(black_box(data), self.to[from], MATCH_INFO).unwrap();
        receiver.wait(request, None).unwrap().unwrap();
    }
}

fn pair() -> Pair {
    let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let (first, second) = memory_pair(macs, 1500, 64).unwrap();
    let options = EndpointOptions {
        waiting: Waiting::Spin,
        // Its thread would be counted.
        progress: false,
        ..EndpointOptions::default()
    };
    let open = |port| Endpoint::open_on(&options, Box::new(port), Preset::Native1500).unwrap();
    let ends = [open(first), open(second)];
    let requests = [0, 1].map(|from: usize| ends[from].iconnect(macs[1 - from], 0, options.key, 0, 0).unwrap());
    let to = [0, 1].map(|from: usize| {
        loop {
            ends[1 - from].progress();
            let status = ends[from].wait(requests[from], Some(Duration::from_millis(1))).unwrap();
            if let Some(address) = status.and_then(|status| status.address) {
                break address;
            }
        }
    });
    let pair = Pair { ends, to };
    // Warm memory, and a measured round trip.
    for _ in 0..64 {
        pair.one(0, &[0; 8], &mut [0; 8]);
        pair.one(1, &[0; 8], &mut [0; 8]);
    }
    pair
}

#[library_benchmark]
#[bench::of_8_bytes(pair(), 8)]
#[bench::small_of_128_bytes(pair(), 128)]
fn ping_pong(pair: Pair, len: usize) -> Pair {
    let (data, mut buffer) = ([0x5a; 128], [0; 128]);
    for _ in 0..MESSAGES / 2 {
        pair.one(0, &data[..len], &mut buffer[..len]);
        pair.one(1, &data[..len], &mut buffer[..len]);
    }
    pair
}

library_benchmark_group!(name = messages, benchmarks = [ping_pong]);
main!(library_benchmark_groups = messages);
