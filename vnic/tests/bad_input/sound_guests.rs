//! Legal but unusual guests: buffers cut into many descriptors, memory in several files, rings of other sizes,
//! several queue pairs, rings stopped under traffic. Frames arrive whole, once, and are counted right.

use std::time::{Duration, Instant};

use ether::MacAddr;
use weft_vnic_testkit::{
    F_EVENT_IDX, F_INDIRECT_DESC, F_MQ, F_MRG_RXBUF, Frontend, FrontendConfig, HEADER_LEN, Interrupts, Layout,
    Numbered, Tracker,
};

use crate::daemon::{Daemon, introduce, plain_frame};

const A: MacAddr = MacAddr([2, 0, 0, 0, 4, 0x0a]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 4, 0x0b]);
/// Frames per combination.
const FRAMES: u64 = 3000;
/// Longest wait for frames in flight; only a failing test waits so long.
const DRAIN: Duration = Duration::from_secs(10);

/// Sends `count` numbered frames of lengths up to `longest` from `a` to `b`; all must arrive, in order and intact.
fn exchange(a: &mut Frontend, b: &mut Frontend, stream: u32, count: u64, longest: usize, what: &str) {
    let mut tracker = Tracker::new(stream);
    let mut frame = vec![0; longest];
    // No more in flight than the receiver has buffers for: what waits longer for one is dropped.
    let buffers = (HEADER_LEN + longest).div_ceil(b.config().rx_buffer_len);
    let window = (usize::from(b.pairs[0].rx.slots()) / buffers).clamp(1, 32) as u64;
    let (mut sent, mut last) = (0, Instant::now());
    while tracker.unique < count {
        while sent < count && sent < tracker.unique + window {
            let len = 60 + (sent as usize * 7919) % (longest - 59);
            Numbered { stream, sequence: sent }.write(&mut frame[..len], B, A);
            if !a.pairs[0].tx.send(&frame[..len]) {
                break;
            }
            sent += 1;
        }
        let arrived = b
            .pairs
            .iter_mut()
            .map(|pair| pair.rx.poll(64, |_, frame| tracker.note(frame)))
            .sum::<usize>();
        if arrived > 0 {
            last = Instant::now();
        }
        assert!(
            last.elapsed() < DRAIN,
            "{what}: {} of {sent} frames missing",
            tracker.missing(sent)
        );
    }
    assert!(
        tracker.is_perfect(count),
        "{what}: {} repeated, {} damaged",
        tracker.repeated,
        tracker.damaged
    );
}

#[test]
fn frames_arrive_whole_however_guests_cut_their_buffers() {
    let daemon = Daemon::start(&["a", "b"]);
    let layouts = [
        Layout::Single,
        Layout::HeaderApart,
        Layout::Pieces(5),
        Layout::Pieces(31),
        Layout::Indirect(1),
        Layout::Indirect(40),
    ];
    let features = [0, F_MRG_RXBUF, F_MRG_RXBUF | F_EVENT_IDX];
    for (stream, tx_layout) in layouts.into_iter().enumerate() {
        for rx_layout in layouts {
            let number = stream * layouts.len() + rx_layout.descriptors() as usize;
            let mut config = FrontendConfig::connect(daemon.socket("a"));
            config.features = features[number % 3] | F_INDIRECT_DESC;
            config.regions = 1 + number % 4;
            config.ring_size = [64, 256, 1024][number % 3];
            config.tx_layout = tx_layout;
            config.buffer_pool = 1500;
            config.tx_buffer_len = 9200;
            config.memory_slots = number.is_multiple_of(2);
            let mut a = daemon.guest(config.clone());
            // Merged: many short buffers per frame. Not merged: each buffer takes the longest frame.
            config.rx_buffer_len = if config.features & F_MRG_RXBUF != 0 { 700 } else { 9200 };
            config.transport = weft_vnic_testkit::Transport::Connect(daemon.socket("b"));
            config.rx_layout = rx_layout;
            let mut b = daemon.guest(config);
            introduce(&mut a, A, &mut b, B);
            // As many descriptors as a frame takes must fit into the ring.
            let longest = if b.pairs[0].rx.slots() < 32 && b.features() & F_MRG_RXBUF != 0 {
                600
            } else {
                9014
            };
            let what = format!("{tx_layout:?} to {rx_layout:?}, {:#x}", a.features());
            exchange(&mut a, &mut b, number as u32 + 1, FRAMES / 6, longest, &what);
        }
    }
    daemon.finish();
}

/// Two guests with rings of `size` entries and buffers of one page for eight; `b` fills all its buffers before it looks.
fn fill_rings(daemon: &Daemon, size: u16) {
    let [mut a, mut b] = ["a", "b"].map(|port| {
        let mut config = FrontendConfig::connect(daemon.socket(port));
        config.ring_size = size;
        (config.tx_buffer_len, config.rx_buffer_len) = (448, 448);
        daemon.guest(config)
    });
    introduce(&mut a, A, &mut b, B);
    let deadline = Instant::now() + DRAIN;
    while a.pairs[0].tx.free() < size || b.pairs[0].tx.free() < size {
        assert!(Instant::now() < deadline, "{size}: transmit buffers do not come back");
    }
    // Twice, so that the indices begin anew in between.
    let mut tracker = Tracker::new(1);
    for round in 0..2 {
        while b.pairs[0].rx.poll(64, |_, _| {}) > 0 {}
        for sequence in round * u64::from(size)..(round + 1) * u64::from(size) {
            let mut frame = [0; 60];
            Numbered { stream: 1, sequence }.write(&mut frame, B, A);
            assert!(a.pairs[0].tx.send(&frame), "{size}: the ring is full");
        }
        let deadline = Instant::now() + DRAIN;
        while b.pairs[0].rx.pending() < size || a.pairs[0].tx.free() < size {
            assert!(
                Instant::now() < deadline,
                "{size}: {} have come",
                b.pairs[0].rx.pending()
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        while b.pairs[0].rx.poll(64, |_, frame| tracker.note(frame)) > 0 {}
    }
    assert!(
        tracker.is_perfect(2 * u64::from(size)),
        "{size}: {} repeated",
        tracker.repeated
    );
}

#[test]
fn rings_have_as_many_entries_as_the_specification_allows() {
    let daemon = Daemon::start(&["a", "b"]);
    for size in [2048, 8192, 32_768] {
        fill_rings(&daemon, size);
    }
    daemon.finish();
}

#[test]
fn a_modelled_dma_has_fewer_frames_in_flight_than_a_large_ring_has_buffers() {
    let port = |name: &str| serde_json::json!({ "name": name, "switch": "s", "listen": format!("{name}.sock") });
    let mut slow = port("b");
    slow["dma"] = serde_json::json!({ "setup_ns": 20_000, "rate_bps": 0, "parallelism": 1 });
    let config = serde_json::json!({ "switches": [{ "name": "s" }], "ports": [port("a"), slow] });
    let daemon = Daemon::start_with_config(&config);
    fill_rings(&daemon, 4096);
    daemon.finish();
}

#[test]
fn bursts_to_everybody_reach_everybody() {
    let names = ["a", "b", "c", "d"];
    let daemon = Daemon::start(&names);
    let mut guests: Vec<_> = names
        .iter()
        .map(|name| daemon.guest(FrontendConfig::connect(daemon.socket(name))))
        .collect();
    let (first, rest) = guests.split_first_mut().unwrap();
    for other in rest.iter_mut() {
        introduce(first, A, other, B);
    }
    for guest in rest.iter_mut() {
        while guest.pairs[0].rx.poll(64, |_, _| {}) > 0 {}
    }
    // Broadcast, multicast, and an address that no station has: all of a burst, not only its first frame.
    for destination in [
        MacAddr::BROADCAST,
        MacAddr([1, 0, 0x5e, 0, 0, 9]),
        MacAddr([2, 0, 0, 0, 9, 9]),
    ] {
        let frame = plain_frame(destination, A, 100);
        let tx = &mut first.pairs[0].tx;
        assert!(tx.free() >= 48);
        for _ in 0..48 {
            let buffer = tx.next_buffer();
            buffer[..12].fill(0);
            buffer[12..12 + frame.len()].copy_from_slice(&frame);
            tx.push(12 + frame.len());
        }
        tx.flush();
        for (name, guest) in names[1..].iter().zip(rest.iter_mut()) {
            let (mut arrived, deadline) = (0, Instant::now() + DRAIN);
            while arrived < 48 {
                arrived += guest.pairs[0].rx.poll(64, |_, got| assert_eq!(got, frame));
                assert!(
                    Instant::now() < deadline,
                    "{name} got {arrived} of 48 frames to {destination}"
                );
            }
        }
    }
    daemon.finish();
}

#[test]
fn calls_counted_by_the_guest_are_those_the_card_says_it_signalled() {
    let daemon = Daemon::start(&["a", "b"]);
    for features in [F_EVENT_IDX, 0] {
        let mut control = daemon.control();
        let mut signalled = || {
            let stats = control.port_stats("b").unwrap();
            let interrupts = &stats["interrupts"];
            let reasons = interrupts["by_reason"].as_object().unwrap().values();
            let sum: u64 = reasons.filter_map(serde_json::Value::as_u64).sum();
            let of = |name: &str| interrupts[name].as_u64().unwrap();
            assert_eq!(of("decided"), sum, "reasons add up");
            assert_eq!(of("decided"), of("suppressed") + of("signalled"));
            assert_eq!(
                stats["copied_bytes"], stats["delivered_bytes"],
                "every frame was copied once"
            );
            of("signalled")
        };
        let before = signalled();
        let mut config = FrontendConfig::connect(daemon.socket("a"));
        config.features = features | F_MRG_RXBUF;
        let mut a = daemon.guest(config.clone());
        config.transport = weft_vnic_testkit::Transport::Connect(daemon.socket("b"));
        config.rx_interrupts = Interrupts::Always;
        let mut b = daemon.guest(config);
        introduce(&mut a, A, &mut b, B);
        let rx = &mut b.pairs[0].rx;
        rx.poll_called(|_, _| {});
        let mut tracker = Tracker::new(1);
        let mut frame = [0; 200];
        for sequence in 0..2000 {
            Numbered { stream: 1, sequence }.write(&mut frame, B, A);
            assert!(a.pairs[0].tx.send(&frame));
            // One at a time, waiting for the call as a driver does that sleeps.
            while tracker.unique <= sequence {
                assert!(rx.ring.wait_call(10_000).unwrap(), "no call for frame {sequence}");
                rx.ring.take_calls();
                rx.poll_called(|_, frame| tracker.note(frame));
            }
        }
        // The card announces the last frames for a while yet, even if the guest has taken them.
        let deadline = Instant::now() + DRAIN;
        let counted = loop {
            let said = signalled() - before;
            rx.ring.take_calls();
            let counted = rx.ring.calls();
            if counted == said {
                break counted;
            }
            assert!(
                Instant::now() < deadline,
                "{said} signalled by the card, {counted} read from the eventfd"
            );
        };
        assert!(counted >= 2000 / 64);
    }
    daemon.finish();
}

#[test]
fn a_ring_stopped_under_traffic_goes_on_where_it_stood() {
    let daemon = Daemon::start(&["a", "b"]);
    let mut a = daemon.guest(FrontendConfig::connect(daemon.socket("a")));
    let mut b = daemon.guest(FrontendConfig::connect(daemon.socket("b")));
    introduce(&mut a, A, &mut b, B);
    let mut tracker = Tracker::new(5);
    let mut frame = [0; 300];
    let mut sent = 0;
    for _ in 0..200 {
        for _ in 0..24 {
            Numbered {
                stream: 5,
                sequence: sent,
            }
            .write(&mut frame, B, A);
            sent += u64::from(a.pairs[0].tx.send(&frame));
        }
        // The transmit ring stops with frames in it; the base it gives is that of the first frame not taken.
        let base = a.stop_ring(1).unwrap();
        assert_eq!(base, a.ring(1).used_idx(), "every frame taken was completed");
        a.start_ring(1).unwrap();
        a.ring(1).kick();
        b.pairs[0].rx.poll(256, |_, frame| tracker.note(frame));
    }
    let deadline = Instant::now() + DRAIN;
    while tracker.unique < sent {
        b.pairs[0].rx.poll(256, |_, frame| tracker.note(frame));
        assert!(
            Instant::now() < deadline,
            "{} of {sent} frames missing",
            tracker.missing(sent)
        );
    }
    assert!(
        tracker.is_perfect(sent),
        "{} repeated, {} reordered",
        tracker.repeated,
        tracker.reordered
    );
    daemon.finish();
}

#[test]
fn frames_reach_a_guest_with_several_queue_pairs() {
    let daemon = Daemon::start_with_config(&serde_json::json!({
        "switches": [{ "name": "s" }],
        "ports": [
            { "name": "a", "switch": "s", "listen": "a.sock" },
            { "name": "b", "switch": "s", "listen": "b.sock", "queue_pairs": 2 },
        ],
    }));
    let mut a = daemon.guest(FrontendConfig::connect(daemon.socket("a")));
    let mut config = FrontendConfig::connect(daemon.socket("b"));
    config.queue_pairs = 2;
    config.features |= F_MQ;
    let mut b = daemon.guest(config);
    let deadline = Instant::now() + DRAIN;
    // Introduced by frames of either of b's transmit rings.
    for pair in [0, 1] {
        while a.pairs[0].rx.poll(64, |_, _| {}) == 0 {
            b.pairs[pair].tx.send(&plain_frame(A, B, 60));
            std::thread::sleep(Duration::from_millis(1));
            assert!(Instant::now() < deadline, "nothing comes from transmit ring {pair}");
        }
    }
    exchange(&mut a, &mut b, 1, FRAMES, 1514, "two queue pairs");
    daemon.finish();
}
