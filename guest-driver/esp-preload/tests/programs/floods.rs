//! Connection requests from everywhere, while programs use connections.

use std::{
    io::IoSlice,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use esp::wire::{Blocks, Body, Header, Names, Path, Syn, emit};
use ether::{EtherType, MacAddr};
use netif::{AfPacket, AfPacketOptions, Netif};

use crate::{
    between_hosts,
    crowds::memory_of,
    faults::{Random, Talk, mac_of},
    hosts::{Hosts, Left, Right},
};

const SYNS: u64 = 100_000;

/// Sends SYNs with random addresses, ports, and instances: half of them to a port that is listened at, the others to any.
fn flood(hosts: &Hosts, listened: u16) -> u64 {
    let right = mac_of(hosts, Right);
    let mut port = AfPacket::open(hosts.interface(Left), EtherType::ESP, &AfPacketOptions::default()).unwrap();
    let mut random = Random::default();
    let mut sent = 0;
    for number in 0..SYNS {
        let instance = random.next();
        let [a, b, c, d, e, f, ..] = instance.to_be_bytes();
        let path = Path {
            destination: right,
            source: MacAddr([2, a, b, c, d, e]),
            ether_type: EtherType::ESP,
        };
        let destination = if number % 2 == 0 {
            listened
        } else {
            random.next() as u16
        };
        let header = Header {
            number: random.next() as u32,
            window: Some(64),
            ..Header::new(u16::from_be_bytes([e, f]) | 1, destination)
        };
        let syn = Syn {
            instance,
            payload_max: 1400,
            blocks: Blocks::default(),
            names: Names::new("192.0.2.9:1".parse().unwrap(), Right.ip().parse().unwrap()),
        };
        let mut frame = [0; 512];
        let len = emit(&mut frame, &path, &header, &Body::Syn(syn), false).unwrap();
        // A port that is full loses the frame, as a cable may.
        sent += u64::from(port.send(&[IoSlice::new(&frame[..len])]).unwrap());
    }
    sent
}

#[test]
fn m_hr2_a_flood_of_syns_leaves_connections_as_they_are_and_lets_new_ones_be_made() {
    between_hosts(
        "floods::m_hr2_a_flood_of_syns_leaves_connections_as_they_are_and_lets_new_ones_be_made",
        |hosts| {
            let mut talk = Talk::new(&hosts);
            assert_eq!(talk.ask("new"), "same");
            let before = memory_of(hosts.daemon(Right));
            let is_over = AtomicBool::new(false);
            let mut slowest = Duration::ZERO;
            let mut during = 0;
            thread::scope(|scope| {
                let flood = scope.spawn(|| {
                    let sent = flood(&hosts, 7005);
                    is_over.store(true, Ordering::Relaxed);
                    sent
                });
                while !is_over.load(Ordering::Relaxed) {
                    let begin = Instant::now();
                    assert_eq!(talk.ask("echo 10000"), "same");
                    slowest = slowest.max(begin.elapsed());
                    assert_eq!(talk.ask("new"), "same");
                    during += 1;
                }
                let sent = flood.join().unwrap();
                assert!(sent > SYNS / 2, "only {sent} of the flood were sent");
            });
            let memory = memory_of(hosts.daemon(Right));
            println!("{during} turns, the slowest in {slowest:?}; omxd: {memory} KiB, {before} before");
            assert!(during > 0);
            assert!(slowest < Duration::from_secs(1), "{slowest:?}");
            assert!(memory < before + (32 << 10), "{memory} KiB, {before} KiB before");
            // What has no listener was refused, and what has one gave way to newer ones.
            let mut tcp = hosts.count_tcp();
            assert_eq!(talk.ask("new"), "same");
            assert_eq!(talk.ask("echo 1000000"), "same");
            assert_eq!(tcp.take(), 0);
        },
    );
}
