//! Promises of the driver, over veth in a network namespace of the test's own: two and four nodes, each a thread with its own interface.

use std::{
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
    process::Command,
    sync::{
        Arc, Barrier, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use lci::Counter;
use lci_port::{Event, GroupId, Lci, LciError, Options, Packet};
use netif::{AfPacket, AfPacketOptions, Interest, Interface, Netif, NetifCounters, NetifError, Wake};
use rustix::time::{ClockId, clock_gettime};
use weft_guest_driver_testkit::{bridged, in_private_network_as_root};

const LIMIT: Duration = Duration::from_secs(60);

fn ip(args: &str) {
    let status = Command::new("ip").args(args.split(' ')).status();
    assert!(status.expect("`ip` of iproute2 is needed").success(), "ip {args}");
}

fn macs(names: &[String]) -> Vec<MacAddr> {
    names.iter().map(|name| Interface::find(name).unwrap().mac).collect()
}

/// Loses every frame whose turn it is.
struct Lossy {
    port: AfPacket,
    /// In thousandths.
    lose: u64,
    random: u64,
    lost: Arc<AtomicU64>,
}

impl AsFd for Lossy {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

impl Netif for Lossy {
    fn mac(&self) -> MacAddr {
        self.port.mac()
    }

    fn mtu(&self) -> usize {
        self.port.mtu()
    }

    fn poll_receive(&mut self) -> Result<Option<&[u8]>, NetifError> {
        self.port.poll_receive()
    }

    fn send_burst(&mut self, frames: &[&[IoSlice<'_>]]) -> Result<usize, NetifError> {
        for (at, frame) in frames.iter().enumerate() {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            if (self.random >> 11) % 1_000 < self.lose {
                self.lost.fetch_add(1, Ordering::Relaxed);
            } else if !self.port.send(frame)? {
                return Ok(at);
            }
        }
        Ok(frames.len())
    }

    fn wait(
        &mut self,
        interest: Interest,
        deadline: Instant,
        stop: Option<BorrowedFd<'_>>,
    ) -> Result<Wake, NetifError> {
        self.port.wait(interest, deadline, stop)
    }

    fn counters(&mut self) -> NetifCounters {
        self.port.counters()
    }
}

/// Runs `program` at each of `count` nodes, over ports that lose so many thousandths of all frames; returns how many that were.
fn run(count: usize, lose: u64, options: Options, program: impl Fn(&Lci) + Sync) -> u64 {
    let names = bridged(count);
    let macs = macs(&names);
    let lost = Arc::new(AtomicU64::new(0));
    thread::scope(|scope| {
        for (at, name) in names.iter().enumerate() {
            let (macs, program, lost) = (&macs, &program, lost.clone());
            scope.spawn(move || {
                let _end = EndOnPanic;
                let port = AfPacket::open(name, EtherType::CARD_TO_CARD, &AfPacketOptions::default()).unwrap();
                let random = 0x9e37_79b9_7f4a_7c15 ^ at as u64;
                let port = Lossy {
                    port,
                    lose,
                    random,
                    lost,
                };
                let node = Lci::over(Box::new(port), macs, &options).unwrap();
                program(&node);
                assert_eq!(
                    node.finalize(),
                    [0; 0],
                    "all have left in order: {:?}",
                    node.statistics()
                );
            });
        }
    });
    lost.load(Ordering::Relaxed)
}

/// Ends the process, which the test has to itself, when a node's thread panics: the others would wait for it for ever.
struct EndOnPanic;

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::exit(101);
        }
    }
}

/// Checks that packets of each source come in order, and counts them.
#[derive(Clone, Default)]
struct Numbers(Arc<Mutex<Vec<[u32; 3]>>>);

impl Numbers {
    fn upcall(node: &Lci, group: Option<GroupId>) -> Self {
        let numbers = Self(Arc::new(Mutex::new(vec![[0; 3]; node.size()])));
        let counts = numbers.clone();
        node.set_upcall(move |_, packet: Packet| {
            let kind = match packet.group() {
                None => 0,
                Some(GroupId::ALL) => 1,
                other => {
                    assert_eq!(other, group);
                    2
                }
            };
            let expected = &mut counts.0.lock().unwrap()[packet.source()][kind];
            assert_eq!(packet[..4], expected.to_le_bytes());
            assert!(packet[4..].iter().all(|byte| *byte == *expected as u8));
            *expected += 1;
        });
        numbers
    }

    fn are(&self, wanted: impl Fn(usize, usize) -> u32) -> bool {
        let counts = self.0.lock().unwrap();
        let all = counts.iter().enumerate();
        all.clone()
            .all(|(source, kinds)| (0..3).all(|kind| kinds[kind] == wanted(source, kind)))
    }
}

fn send(node: &Lci, number: u32, length: usize, launch: impl Fn(lci_port::SendPacket) -> Result<(), LciError>) {
    let start = Instant::now();
    let mut packet = node.wait_until(|node| {
        assert!(start.elapsed() < LIMIT, "node {}: {:?}", node.me(), node.statistics());
        node.try_allocate()
    });
    packet[..length].fill(number as u8);
    packet[..4].copy_from_slice(&number.to_le_bytes());
    launch(packet).unwrap();
}

fn wait(node: &Lci, done: impl Fn() -> bool) {
    let start = Instant::now();
    node.wait_until(|node| {
        assert!(start.elapsed() < LIMIT, "{:?}", node.statistics());
        done().then_some(())
    });
}

/// Everything to everyone, exactly once and in order.
fn everything(count: usize, lose: u64, packets: u32) -> u64 {
    run(count, lose, Options::default(), |node| {
        let group = (node.me() < count - 1 || count == 2).then(|| {
            let members: Vec<_> = (0..(count - 1).max(2)).collect();
            node.create_group(&members).unwrap()
        });
        let numbers = Numbers::upcall(node, group);
        for number in 0..packets {
            send(node, number, 1_024, |packet| node.broadcast(packet, 1_024));
            for to in (0..count).filter(|to| *to != node.me()) {
                send(node, number, 100, |packet| node.unicast(to, packet, 100));
            }
            if let Some(group) = group {
                send(node, number, 500, |packet| node.multicast(group, packet, 500));
            }
            node.poll();
        }
        wait(node, || {
            numbers.are(|source, kind| match kind {
                _ if source == node.me() => 0,
                2 if group.is_none() || source == count - 1 && count > 2 => 0,
                _ => packets,
            })
        });
    })
}

#[test]
fn m_bv1_two_nodes_exchange_everything_exactly() {
    in_private_network_as_root("m_bv1_two_nodes_exchange_everything_exactly", || {
        everything(2, 0, 2_000);
    });
}

#[test]
fn m_bv2_four_nodes_exchange_everything_exactly_with_one_per_cent_lost() {
    in_private_network_as_root(
        "m_bv2_four_nodes_exchange_everything_exactly_with_one_per_cent_lost",
        || {
            let lost = everything(4, 10, 2_000);
            assert!(lost > 200, "{lost}");
        },
    );
}

#[test]
fn m_bv9_a_disabled_interrupt_returns_without_processing_and_an_enabled_one_delivers() {
    in_private_network_as_root(
        "m_bv9_a_disabled_interrupt_returns_without_processing_and_an_enabled_one_delivers",
        || {
            let turn = Barrier::new(2);
            run(2, 0, Options::default(), |node| {
                if node.me() == 0 {
                    Numbers::upcall(node, None);
                    for number in 0..2 {
                        turn.wait();
                        send(node, number, 10, |packet| node.unicast(1, packet, 10));
                        node.poll();
                        turn.wait();
                    }
                    return;
                }
                let numbers = Numbers::upcall(node, None);
                let got = |count| numbers.are(|source, kind| if (source, kind) == (0, 0) { count } else { 0 });
                let interrupts = || node.statistics().interrupts;
                // The handler runs, and the program does not want to be interrupted.
                node.enable_interrupts().unwrap();
                node.disable_interrupts();
                turn.wait();
                let start = Instant::now();
                while interrupts().suppressed == 0 {
                    assert!(start.elapsed() < LIMIT, "no interrupt: {:?}", interrupts());
                }
                assert!(got(0), "the program does not poll, and is not interrupted");
                turn.wait();
                // What came meanwhile is delivered by an interrupt; the next packet, too.
                node.enable_interrupts().unwrap();
                for count in 1..3 {
                    while !got(count) {
                        assert!(start.elapsed() < LIMIT, "not interrupted: {:?}", interrupts());
                    }
                    if count == 1 {
                        turn.wait();
                        turn.wait();
                    }
                }
                assert!(interrupts().taken >= 1, "{:?}", interrupts());
                node.disable_interrupts();
            });
        },
    );
}

#[test]
fn m_bv8_a_program_that_polls_is_not_interrupted() {
    in_private_network_as_root("m_bv8_a_program_that_polls_is_not_interrupted", || {
        let options = Options {
            watchdog: Duration::from_millis(500),
            ..Options::default()
        };
        let turn = Barrier::new(2);
        run(2, 0, options, |node| {
            let numbers = Numbers::upcall(node, None);
            turn.wait();
            if node.me() == 0 {
                for number in 0..50 {
                    send(node, number, 10, |packet| node.unicast(1, packet, 10));
                    thread::sleep(Duration::from_millis(2));
                    node.poll();
                }
                turn.wait();
                return;
            }
            // The program is slower than the packets, and much faster than the watchdog.
            node.enable_interrupts().unwrap();
            let start = Instant::now();
            while !numbers.are(|source, kind| if (source, kind) == (0, 0) { 50 } else { 0 }) {
                assert!(start.elapsed() < LIMIT, "{:?}", node.statistics());
                thread::sleep(Duration::from_millis(5));
                node.poll();
            }
            // Polled meanwhile, the watchdog of the first packet finds nothing to do.
            while node.statistics().interrupts.cancelled == 0 {
                assert!(start.elapsed() < LIMIT, "{:?}", node.statistics());
                node.poll();
            }
            assert_eq!(node.statistics().interrupts.taken, 0);
            node.disable_interrupts();
            turn.wait();
        });
    });
}

#[test]
fn m_bv10_timers_end_while_the_program_does_not_look_at_the_clock() {
    in_private_network_as_root("m_bv10_timers_end_while_the_program_does_not_look_at_the_clock", || {
        let turn = Barrier::new(2);
        run(2, 0, Options::default(), |node| {
            Numbers::upcall(node, None);
            if node.me() == 0 {
                node.enable_interrupts().unwrap();
                assert!(node.start_timer(7, Duration::from_millis(5)));
                let start = Instant::now();
                let event = loop {
                    if let Some(event) = node.next_event() {
                        break event;
                    }
                    assert!(start.elapsed() < LIMIT, "{:?}", node.statistics());
                };
                assert_eq!(event, Event::Timer { timer: 7 });
                assert!(start.elapsed() >= Duration::from_millis(5));
                assert!(node.statistics().interrupts.clock > 0);
                node.disable_interrupts();
            }
            turn.wait();
        });
    });
}

#[test]
fn m_bv11_acknowledgements_of_a_ping_pong_travel_with_its_packets() {
    in_private_network_as_root("m_bv11_acknowledgements_of_a_ping_pong_travel_with_its_packets", || {
        run(2, 0, Options::default(), |node| {
            let numbers = Numbers::upcall(node, None);
            for number in 0..2_000 {
                if node.me() == 0 {
                    send(node, number, 10, |packet| node.unicast(1, packet, 10));
                }
                wait(node, || {
                    numbers.are(|source, kind| {
                        if source != node.me() && kind == 0 {
                            number + 1
                        } else {
                            0
                        }
                    })
                });
                if node.me() == 1 {
                    send(node, number, 10, |packet| node.unicast(0, packet, 10));
                }
            }
            let engine = node.statistics().engine;
            let (alone, with) = (engine.of(Counter::AcksSent), engine.of(Counter::AcksPiggybacked));
            assert!(with > 1_000 && alone < 1_000, "{alone} alone, {with} with packets");
        });
    });
}

#[test]
fn a_node_that_is_not_there_and_interfaces_that_do_not_fit_are_named() {
    in_private_network_as_root(
        "a_node_that_is_not_there_and_interfaces_that_do_not_fit_are_named",
        || {
            let names = bridged(2);
            let macs = macs(&names);
            let options = Options {
                ready_timeout: Duration::from_millis(200),
                ..Options::default()
            };
            let open = |macs: &[MacAddr]| Lci::open(&names[0], macs, &options).map(drop).unwrap_err().to_string();
            assert_eq!(open(&macs), "nodes [1] were not heard of within 0 s");
            assert!(
                open(&macs[1..]).contains("is not in the list of nodes"),
                "{}",
                open(&macs[1..])
            );
            let by_card = Options {
                by_card: true,
                ..options
            };
            let refused = Lci::open(&names[0], &macs, &by_card).map(drop).unwrap_err();
            assert!(matches!(refused, LciError::NoWatchdog), "{refused}");
            ip(&format!("link set {} mtu 1000", names[0]));
            assert!(open(&macs).contains("raise its MTU"), "{}", open(&macs));
        },
    );
}

#[test]
fn nodes_that_were_started_with_different_lists_say_so_at_once() {
    in_private_network_as_root("nodes_that_were_started_with_different_lists_say_so_at_once", || {
        let names = bridged(3);
        let macs = macs(&names);
        let lists = [&macs[..2], &macs[..]];
        // Whoever is first hears of the other before it gives up: far within the 30 s that a silent node is waited for.
        let start = Instant::now();
        thread::scope(|scope| {
            let open = |node: usize| {
                let (name, list) = (&names[node], lists[node]);
                scope.spawn(move || Lci::open(name, list, &Options::default()).map(drop).unwrap_err())
            };
            for (node, thread) in [open(0), open(1)].into_iter().enumerate() {
                let error = thread.join().unwrap();
                let expected = matches!(error, LciError::Mismatch { node: other } if other == 1 - node);
                assert!(expected, "node {node}: {error}");
            }
        });
        assert!(start.elapsed() < Options::default().ready_timeout / 2);
    });
}

#[test]
fn a_node_that_waits_leaves_the_processor_to_others() {
    in_private_network_as_root("a_node_that_waits_leaves_the_processor_to_others", || {
        run(2, 0, Options::default(), |node| {
            let used = || {
                let now = clock_gettime(ClockId::ThreadCPUTime);
                Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
            };
            let (start, before) = (Instant::now(), used());
            let wait = Duration::from_millis(500);
            node.wait_until(|_| (start.elapsed() >= wait).then_some(()));
            let took = used() - before;
            assert!(took < wait / 2, "{took:?} of {wait:?}");
        });
    });
}
