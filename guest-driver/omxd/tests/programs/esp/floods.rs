//! Floods and nonsense on the wire: the authority keeps its limits, and serves all others.

use std::{
    io::IoSlice,
    time::{Duration, Instant},
};

use esp::{
    State,
    wire::{Blocks, Body, FRAME_LEN_MIN, Header, Names, Path, Syn},
};
use ether::{EtherType, MacAddr};
use netif::Netif;
use weft_authority::esp::EspCounter;

use super::rig::{HOST, Program, Stage, on_stage};

/// A small generator of numbers that look random (xorshift).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Sends a SYN from an address, a port and an instance that a random number says.
fn send_syn(stage: &mut Stage, number: u64, to: u16) {
    let path = Path {
        destination: stage.host,
        source: MacAddr([2, 1, number as u8, (number >> 8) as u8, (number >> 16) as u8, 7]),
        ether_type: EtherType::ESP,
    };
    let syn = Syn {
        instance: number,
        payload_max: 1400,
        blocks: Blocks::default(),
        names: Names::new("10.7.0.9:1".parse().unwrap(), HOST.parse().unwrap()),
    };
    let header = Header {
        number: number as u32,
        window: Some(64),
        ..Header::new((number >> 24) as u16 | 1, to)
    };
    stage.send_frame_as(&path, &header, &Body::Syn(syn));
}

#[test]
fn a_flood_of_syns_is_bounded_and_harms_no_connection_no_listener_and_no_message() {
    on_stage(
        "esp::floods::a_flood_of_syns_is_bounded_and_harms_no_connection_no_listener_and_no_message",
        |stage| {
            let mut flooded = Program::start(stage, "0.0.0.0:0");
            let mut other = Program::start(stage, "0.0.0.0:0");
            let before = flooded.join(stage);
            let mut numbers = Numbers(1);
            let mut slowest = Duration::ZERO;
            for round in 0..200 {
                for each in 0..500 {
                    let number = numbers.next();
                    // Half of them are for a port that is listened at, the others for any.
                    let any = (number >> 40) as u16;
                    send_syn(stage, number, if each % 2 == 0 { flooded.port() } else { any });
                }
                let begin = Instant::now();
                let (status, _) = stage.session().status().unwrap();
                assert_eq!(status.pid, stage.omxd.child.id());
                slowest = slowest.max(begin.elapsed());
                if round % 20 == 0 {
                    flooded.exchange(stage, before);
                    let both = other.join(stage);
                    other.exchange(stage, both);
                    // The oldest of the flood gives way, so even the port under attack takes a host that answers.
                    let both = flooded.join(stage);
                    flooded.exchange(stage, both);
                }
            }
            let status = stage.status();
            // The limit is a port's: some of the flood were for the other listener by chance.
            let listeners = stage.session().esp_listeners().unwrap();
            let of_port = |port| {
                listeners
                    .iter()
                    .find(|one| one.address.port() == port)
                    .unwrap()
                    .half_open
            };
            let half_open = of_port(flooded.port());
            assert!(half_open <= 4096 && half_open > 0, "{half_open}");
            assert!(of_port(other.port()) < 100, "{}", of_port(other.port()));
            assert!(
                status.engine[esp::Counter::HalfOpenEvicted as usize] > 10_000,
                "{status:?}"
            );
            assert!(stage.count(EspCounter::SynNoListener) > 10_000, "{status:?}");
            assert!(slowest < Duration::from_secs(1), "{slowest:?}");
            let kilobytes = memory_of(stage.omxd.child.id());
            assert!(kilobytes < 64 << 10, "{kilobytes} KiB");
        },
    );
}

/// Memory of a process that is in use, in KiB.
fn memory_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn whatever_frames_come_the_authority_goes_on() {
    on_stage("esp::floods::whatever_frames_come_the_authority_goes_on", |stage| {
        let mut program = Program::start(stage, "0.0.0.0:0");
        let mut numbers = Numbers(7);
        let (host, own) = (stage.host, stage.peer.port.mac());
        for round in 0..40 {
            for _ in 0..500 {
                let len = FRAME_LEN_MIN + (numbers.next() % 200) as usize;
                let mut frame: Vec<u8> = (0..len).map(|_| numbers.next() as u8).collect();
                frame[..6].copy_from_slice(&host.0);
                frame[6..12].copy_from_slice(&own.0);
                frame[12..14].copy_from_slice(&EtherType::ESP.0.to_be_bytes());
                // Half of them nearly make sense: a kind that is one, a version, the listener's port.
                if numbers.next().is_multiple_of(2) {
                    frame[14] = ((frame[14] % 12) << 4) | (4 * u8::from(numbers.next().is_multiple_of(2)));
                    frame[17..19].copy_from_slice(&program.port().to_be_bytes());
                    frame[31] = 1;
                    let number = numbers.next();
                    if number.is_multiple_of(4) {
                        frame[6] = number as u8;
                    }
                }
                let _ = stage.peer.port.send(&[IoSlice::new(&frame)]);
            }
            let status = stage.status();
            assert!(status.off.is_none(), "round {round}");
            // What the authority answers is not for this station's engine to read.
            while stage.peer.port.poll_receive().unwrap().is_some() {}
        }
        assert!(stage.count(EspCounter::Malformed) > 1000);
        // Tokens of what seemed to be connections may lie in the queue.
        let theirs = stage.connect(program.port());
        stage.await_state(theirs, State::Established);
        let ours = loop {
            let (_socket, from) = program.accept(stage);
            let Ok(claimed) = program.session.claim_esp(from, None) else {
                continue;
            };
            let ours = program.station.attach(&claimed);
            if claimed.peer == "10.7.0.2:40000".parse().unwrap() {
                break ours;
            }
        };
        program.exchange(stage, [theirs, ours]);
    });
}
