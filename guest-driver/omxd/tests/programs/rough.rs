//! A live network that loses, duplicates and reorders: every message arrives once and in order.

use std::{
    io::IoSlice,
    os::{fd::AsFd, unix::net::UnixStream},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use ether::EtherType;
use netif::{AfPacket, AfPacketOptions, Interest, Interface, Netif, Wake};
use omx::{Address, Counter, Endpoint, StatusCode};
use weft_guest_driver_testkit::Veth;

use crate::rig::{LIMIT, in_own_world, open};

/// Lengths in turn: every kind of message.
const LENGTHS: [usize; 11] = [0, 1, 32, 33, 128, 129, 1500, 9000, 32_768, 32_769, 1 << 20];
const MESSAGES: u64 = 220;
/// Of 1000 frames.
const LOST: u32 = 10;
const DUPLICATED: u32 = 10;
const DELAYED: u32 = 20;
/// This many frames overtake a delayed one.
const OVERTAKING: u32 = 3;
/// A delayed frame waits no longer than this.
const DELAY: Duration = Duration::from_millis(1);

fn content(number: u64) -> Vec<u8> {
    let len = LENGTHS[number as usize % LENGTHS.len()];
    (0..len).map(|at| (at * 13 + at / 255) as u8 ^ number as u8).collect()
}

fn send_all(endpoint: &Endpoint, to: Address) {
    for number in 0..MESSAGES {
        let status = endpoint.send(&content(number), to, number).unwrap();
        assert_eq!(status.code, StatusCode::Success);
    }
}

fn receive_all(endpoint: &Endpoint) {
    let mut buffer = vec![0; 1 << 20];
    for number in 0..MESSAGES {
        let status = endpoint.receive(&mut buffer, 0, 0).unwrap();
        assert_eq!(
            (status.code, status.match_info),
            (StatusCode::Success, number),
            "in order, each once"
        );
        assert!(
            buffer[..status.transferred as usize] == content(number),
            "message {number} changed"
        );
    }
}

/// Both directions at once between endpoints of two interfaces.
fn exchange_exactly_once(interfaces: [&str; 2]) {
    let [near, far] = interfaces.map(|interface| open(interface, None).unwrap());
    let reach = |from: &Endpoint, to: &Endpoint| {
        let to = to.address();
        from.connect(to.mac(), to.endpoint(), 0, Some(LIMIT)).unwrap()
    };
    let (to_far, to_near) = (reach(&near, &far), reach(&far, &near));
    thread::scope(|scope| {
        scope.spawn(|| send_all(&near, to_far));
        scope.spawn(|| send_all(&far, to_near));
        scope.spawn(|| receive_all(&near));
        receive_all(&far);
    });
    for endpoint in [&near, &far] {
        assert!(endpoint.iprobe(0, 0).unwrap().is_none(), "a message came twice");
        let counters = endpoint.counters();
        assert!(
            counters.get(Counter::ResentMessages) > 0,
            "nothing was lost, so nothing is proven"
        );
    }
    // Both at once: each answers what the other still misses.
    thread::scope(|scope| {
        scope.spawn(|| near.close().unwrap());
        far.close().unwrap();
    });
}

/// What a direction of the network did.
#[derive(Debug, Default)]
struct Done {
    lost: u32,
    duplicated: u32,
    overtaken: u32,
}

/// One direction of a network: frames that arrive at one interface leave by another.
fn carry(from: &str, to: &str, stop: &UnixStream) -> Done {
    let options = AfPacketOptions {
        ring_len: 8 << 20,
        ..AfPacketOptions::default()
    };
    let mut from = AfPacket::open(from, EtherType::MXOE, &options).unwrap();
    let mut to = AfPacket::open(to, EtherType::MXOE, &options).unwrap();
    // Full queues are another cause of lost frames.
    let mut send = |frame: &[u8]| {
        to.send(&[IoSlice::new(frame)]).unwrap();
    };
    let (mut done, mut delayed, mut random) = (Done::default(), None::<(Vec<u8>, u32)>, 0x2545_f491_u32);
    loop {
        while let Some(frame) = from.poll_receive().unwrap() {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            let fate = random % 1000;
            if fate < LOST {
                done.lost += 1;
            } else if fate < LOST + DELAYED && delayed.is_none() {
                delayed = Some((frame.to_vec(), 0));
                continue;
            } else {
                send(frame);
                if (LOST + DELAYED..LOST + DELAYED + DUPLICATED).contains(&fate) {
                    send(frame);
                    done.duplicated += 1;
                }
            }
            if let Some((frame, overtaking)) = &mut delayed {
                *overtaking += 1;
                if *overtaking >= OVERTAKING {
                    send(frame);
                    done.overtaken += 1;
                    delayed = None;
                }
            }
        }
        let limit = if delayed.is_some() { DELAY } else { LIMIT };
        match from
            .wait(Interest::Receive, Instant::now() + limit, Some(stop.as_fd()))
            .unwrap()
        {
            Wake::Ready => {}
            Wake::Stop => return done,
            Wake::Deadline => {
                if let Some((frame, _)) = delayed.take() {
                    send(&frame);
                }
            }
        }
    }
}

#[test]
fn over_a_network_that_loses_duplicates_and_reorders_every_message_arrives_once_in_order() {
    in_own_world(
        "rough::over_a_network_that_loses_duplicates_and_reorders_every_message_arrives_once_in_order",
        || {
            // The hosts have the `a` ends; the network has the `b` ends, each with the other host's address so that it
            // takes the frames for that host.
            let links = [Veth::new(1500), Veth::new(1500)];
            for (link, other) in links.iter().zip(links.iter().rev()) {
                let address = Interface::find(&other.a).unwrap().mac.to_string();
                let words = ["link", "set", &link.b, "address", &address];
                assert!(Command::new("ip").args(words).status().unwrap().success());
            }
            thread::scope(|scope| {
                let directions = [[0, 1], [1, 0]].map(|[from, to]| {
                    let (stop, stopper) = UnixStream::pair().unwrap();
                    let (from, to) = (&links[from].b, &links[to].b);
                    (stopper, scope.spawn(move || carry(from, to, &stop)))
                });
                exchange_exactly_once([&links[0].a, &links[1].a]);
                for (stopper, direction) in directions {
                    drop(stopper);
                    let done = direction.join().unwrap();
                    assert!(
                        done.lost > 20 && done.duplicated > 20 && done.overtaken > 20,
                        "{done:?}"
                    );
                }
            });
        },
    );
}
