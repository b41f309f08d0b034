//! The programs on four live nodes over veth, each compared with a sequential run.

use std::{process::Command, thread};

use ether::MacAddr;
use lci_port::{Lci, Options, PACKET_LEN_MAX};
use lci_programs::{
    Node, ProgramError, Target, asp, broadcast,
    kernels::{Settings, barnes_hut, fft, radix},
    live::{self, Live},
    messages::{Forwarding, MESSAGE_LEN_MAX, Messages},
    ping_pong, qr,
};
use weft_guest_driver_testkit::{bridged, in_private_network_as_root};

const NODES: usize = 4;

fn mac(name: &str) -> MacAddr {
    let shown = Command::new("ip")
        .args(["-o", "link", "show", "dev", name])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    let mut words = text.split_whitespace().skip_while(|word| *word != "link/ether");
    words.nth(1).expect("an Ethernet interface").parse().unwrap()
}

/// Runs `program` at each node and returns what it returns there. The nodes end in order if it says so.
fn run<T: Send>(in_order: bool, program: impl Fn(&Live) -> T + Sync) -> Vec<T> {
    let names = bridged(NODES);
    let macs: Vec<_> = names.iter().map(|name| mac(name)).collect();
    thread::scope(|scope| {
        let start = |name: &String| {
            let name = name.clone();
            let (macs, program) = (&macs, &program);
            scope.spawn(move || {
                let node = Live::new(Lci::open(&name, macs, &Options::default()).unwrap());
                let result = program(&node);
                let lost = node.lci().finalize();
                assert!(!in_order || lost.is_empty(), "{lost:?} did not end in order");
                result
            })
        };
        let threads: Vec<_> = names.iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

const SETTINGS: Settings = Settings {
    interrupts: true,
    patience_ns: 30_000_000_000,
};

#[test]
fn r_bv1_packets_go_back_and_forth() {
    in_private_network_as_root("r_bv1_packets_go_back_and_forth", || {
        let halves = run(true, |node| live::run(ping_pong::run(node, 500, 64)).unwrap());
        assert_eq!(halves.iter().map(Vec::len).collect::<Vec<_>>(), [500, 500, 0, 0]);
    });
}

#[test]
fn packets_and_messages_that_are_too_long_are_refused_in_a_sentence() {
    in_private_network_as_root(
        "packets_and_messages_that_are_too_long_are_refused_in_a_sentence",
        || {
            run(true, |node| {
                let packet = node.try_send(Target::Node(0), &[0], &[0; PACKET_LEN_MAX]);
                let message =
                    live::run(Messages::new(node, Forwarding::Packets).broadcast(1, &vec![0; MESSAGE_LEN_MAX + 1]));
                for refused in [packet.map(drop), message] {
                    assert!(matches!(refused, Err(ProgramError::Settings(_))), "{refused:?}");
                }
            });
        },
    );
}

#[test]
fn r_bv3_broadcasts_arrive_whole_whatever_forwards_them() {
    in_private_network_as_root("r_bv3_broadcasts_arrive_whole_whatever_forwards_them", || {
        run(true, |node| {
            for (name, forwarding) in Forwarding::ALL {
                for length in [0, 1, 1_012, 1_013, 50_000] {
                    let outcome = live::run(broadcast::run(node, forwarding, 20, length));
                    let outcome = outcome.unwrap_or_else(|error| panic!("{name} {length}: {error}"));
                    assert_eq!(outcome.answered_ns.len(), if node.me() == 0 { 20 } else { 0 });
                }
            }
        });
    });
}

#[test]
fn m_bv6_m_bv7_r_bv4_asp_and_qr_have_the_results_of_a_sequential_run() {
    in_private_network_as_root(
        "m_bv6_m_bv7_r_bv4_asp_and_qr_have_the_results_of_a_sequential_run",
        || {
            let (paths, factors) = (asp::sequential(96), qr::sequential(48));
            run(true, |node| {
                for (_, forwarding) in Forwarding::ALL {
                    for polls in [false, true] {
                        let settings = asp::Settings {
                            size: 96,
                            forwarding,
                            polls,
                        };
                        live::run(asp::run(node, &settings, Some(&paths))).unwrap();
                    }
                    live::run(qr::run(node, 48, forwarding, Some(&factors))).unwrap();
                }
            });
        },
    );
}

#[test]
fn r_bv5_r_bv6_kernels_over_regions_have_the_results_of_a_sequential_run() {
    in_private_network_as_root(
        "r_bv5_r_bv6_kernels_over_regions_have_the_results_of_a_sequential_run",
        || {
            let (bodies, points, keys) = (barnes_hut::sequential(8, 3), fft::sequential(32), radix::sequential(16));
            run(true, |node| {
                live::run(fft::run(node, &SETTINGS, 32, &points)).unwrap();
                live::run(radix::run(node, &SETTINGS, 16, &keys)).unwrap();
                live::run(barnes_hut::run(node, &SETTINGS, 8, 3, &bodies)).unwrap();
            });
        },
    );
}

#[test]
fn r_bv5_radix_does_not_end_with_interrupts_disabled() {
    in_private_network_as_root("r_bv5_radix_does_not_end_with_interrupts_disabled", || {
        let keys = radix::sequential(16);
        let settings = Settings {
            interrupts: false,
            patience_ns: 1_000_000_000,
        };
        let outcomes = run(false, |node| live::run(radix::run(node, &settings, 16, &keys)));
        let stalled = |outcome: &Result<u64, _>| matches!(outcome, Err(ProgramError::Stalled { .. }));
        assert!(outcomes.iter().any(stalled), "{outcomes:?}");
    });
}

#[test]
fn a_wrong_result_is_told() {
    in_private_network_as_root("a_wrong_result_is_told", || {
        let mut paths = asp::sequential(16);
        paths[5][3] += 1;
        let settings = asp::Settings {
            size: 16,
            forwarding: Forwarding::Packets,
            polls: false,
        };
        let outcomes = run(true, |node| live::run(asp::run(node, &settings, Some(&paths))));
        let wrong: Vec<_> = outcomes
            .iter()
            .filter(|outcome| matches!(outcome, Err(ProgramError::Wrong { .. })))
            .collect();
        assert_eq!(wrong.len(), 1, "{outcomes:?}");
    });
}
