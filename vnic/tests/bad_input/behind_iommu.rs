//! Guests behind IOMMUs of their own against the real `vnicd`: pages that lie anywhere, translations that go and come under traffic,
//! answers that lie or never come, a killed `vnicd`; neighbours must not notice.

use std::time::{Duration, Instant};

use ether::MacAddr;
use weft_vnic_testkit::{
    Answers, F_ACCESS_PLATFORM, Frontend, FrontendConfig, Layout, MEMORY_BASE, Numbered, Seed, Tracker,
};

use crate::daemon::{Daemon, Neighbours, introduce};

/// The rule of rings that only guests behind an IOMMU can break.
pub const ADDRESS_RULE: &str = "address_not_mapped";
/// The rules of sessions that only frontends of such guests can break.
pub const TRANSLATION_RULES: [&str; 2] = ["translation_overdue", "translation_refused"];

const A: MacAddr = MacAddr([2, 0, 0, 0, 5, 0x0a]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 5, 0x0b]);
const PAGE: u64 = 4096;
/// Frames in each direction.
const FRAMES: u64 = 3_000;
/// Frames in flight in each direction at most.
const WINDOW: u64 = 24;
/// How long a frame is waited for that may be lost.
const GIVE_UP: Duration = Duration::from_millis(20);
/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

fn daemon(ports: &[&str]) -> Daemon {
    let folder = tempfile::Builder::new().prefix("vnicd-test-").tempdir().unwrap();
    let service = Daemon::spawn(&folder, ports, &["--iommu"]);
    Daemon { folder, service }
}

fn config(daemon: &Daemon, port: &str) -> FrontendConfig {
    let mut config = FrontendConfig::connect(daemon.socket(port));
    config.features |= F_ACCESS_PLATFORM;
    config
}

/// Numbered frames in both directions; `meanwhile` is called between any two looks at the rings. Frames wait for a translation no longer
/// than for a buffer: what is lost must be counted as such.
fn exchange(
    daemon: &Daemon,
    a: &mut Frontend,
    b: &mut Frontend,
    mut meanwhile: impl FnMut(&mut Frontend, &mut Frontend),
) {
    let lost_before = lost(daemon);
    let (mut to_b, mut to_a) = (Tracker::new(1), Tracker::new(2));
    let mut frame = [0; 1514];
    let (mut sent, mut given_up) = (0, 0);
    let mut progress = Instant::now();
    let window = WINDOW.min(u64::from(a.pairs[0].tx.slots().min(b.pairs[0].tx.slots()) / 2));
    while to_b.unique < FRAMES || to_a.unique < FRAMES {
        while sent < to_b.next().min(to_a.next()).max(given_up) + window {
            let len = 60 + (sent as usize * 97) % 1455;
            for (guest, stream, to, from) in [(&mut *a, 1, B, A), (&mut *b, 2, A, B)] {
                Numbered { stream, sequence: sent }.write(&mut frame[..len], to, from);
                assert!(guest.pairs[0].tx.send(&frame[..len]), "a ring is full");
            }
            sent += 1;
        }
        let taken =
            b.pairs[0].rx.poll(64, |_, frame| to_b.note(frame)) + a.pairs[0].rx.poll(64, |_, frame| to_a.note(frame));
        if taken > 0 {
            progress = Instant::now();
        } else if progress.elapsed() > GIVE_UP && a.pairs[0].tx.free() + b.pairs[0].tx.free() == free_when_idle(a, b) {
            given_up = sent;
        }
        assert!(
            progress.elapsed() < PATIENCE,
            "no frames arrive: {} and {} of {sent}",
            to_b.unique,
            to_a.unique
        );
        meanwhile(a, b);
        // vnicd and the IOMMUs share the machine's few cores with this thread.
        std::thread::sleep(Duration::from_micros(50));
    }
    let deadline = Instant::now() + PATIENCE;
    while to_b.unique + to_a.unique + (lost(daemon) - lost_before) < 2 * sent {
        b.pairs[0].rx.poll(64, |_, frame| to_b.note(frame));
        a.pairs[0].rx.poll(64, |_, frame| to_a.note(frame));
        assert!(
            Instant::now() < deadline,
            "frames are missing that were not counted as lost"
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    for tracker in [&to_b, &to_a] {
        assert_eq!((tracker.repeated, tracker.reordered, tracker.damaged), (0, 0, 0));
    }
}

/// Transmit buffers of both while nothing is in flight.
fn free_when_idle(a: &Frontend, b: &Frontend) -> u16 {
    a.pairs[0].tx.slots() + b.pairs[0].tx.slots()
}

/// Frames that found no buffer in time.
fn lost(daemon: &Daemon) -> u64 {
    let mut control = daemon.control();
    let ports = ["a", "b"].map(|port| control.port_stats(port).unwrap());
    ports
        .iter()
        .map(|stats| stats["rx"]["dropped"]["no_buffer"].as_u64().expect("a counter"))
        .sum()
}

fn translation(daemon: &Daemon, port: &str, what: &str) -> u64 {
    let stats = daemon.control().port_stats(port).unwrap();
    stats["translation"][what].as_u64().expect("a counter")
}

#[test]
fn iommu_frames_arrive_over_rings_and_buffers_whose_pages_lie_anywhere() {
    let daemon = daemon(&["a", "b"]);
    for (ring_size, layout, regions) in [
        (256, Layout::Single, 1),
        // Tables of several pages, none beside the other.
        (1024, Layout::HeaderApart, 3),
        (64, Layout::Pieces(5), 2),
        (512, Layout::Indirect(7), 1),
    ] {
        let [mut a, mut b] = ["a", "b"].map(|port| {
            let mut config = config(&daemon, port);
            (config.ring_size, config.tx_layout, config.regions) = (ring_size, layout, regions);
            if ring_size != 256 {
                config.rx_layout = Layout::Pieces(3);
            }
            daemon.guest(config)
        });
        introduce(&mut a, A, &mut b, B);
        exchange(&daemon, &mut a, &mut b, |_, _| {});
        let info = daemon.control().request("info", serde_json::json!({})).unwrap();
        assert!(info.to_string().contains("ACCESS_PLATFORM"), "{info}");
    }
    assert!(translation(&daemon, "a", "missed") > 100);
    daemon.finish();
}

#[test]
fn iommu_translations_go_and_come_under_traffic() {
    let daemon = daemon(&["a", "b", "left", "right"]);
    let neighbours = Neighbours::start(&daemon);
    let [mut a, mut b] = ["a", "b"].map(|port| daemon.guest(config(&daemon, port)));
    introduce(&mut a, A, &mut b, B);
    let mut random = Seed::new(5);
    let mut rounds = 0;
    exchange(&daemon, &mut a, &mut b, |a, b| {
        rounds += 1;
        let guest = if rounds % 2 == 0 { a } else { b };
        if rounds % 100 == 0 {
            // As when a guest's memory changes: all translations go with the former table.
            guest.replace_memory_table().unwrap();
            return;
        }
        let pages = guest.memory().len() as u64 / PAGE;
        let first = MEMORY_BASE + PAGE * random.range(0, pages - 9);
        // A kernel that flushes lazily has everything invalidated now and then.
        let range = if rounds % 10 == 0 {
            0..1 << 47
        } else {
            first..first + PAGE * random.range(1, 8)
        };
        guest.iommu().invalidate(range).unwrap();
    });
    assert!(translation(&daemon, "a", "invalidated") > 20);
    assert_eq!(translation(&daemon, "a", "denied"), 0);
    neighbours.finish();
    drop((a, b));
    daemon.finish();
}

#[test]
fn iommu_an_address_that_is_not_mapped_fails_the_port_until_its_driver_starts_again() {
    let daemon = daemon(&["a", "b", "left", "right"]);
    let neighbours = Neighbours::start(&daemon);
    let [mut a, mut b] = ["a", "b"].map(|port| daemon.guest(config(&daemon, port)));
    introduce(&mut a, A, &mut b, B);
    let all = MEMORY_BASE..MEMORY_BASE + a.memory().len() as u64;
    a.iommu().unmap(all.clone()).unwrap();
    a.pairs[0].tx.send(&[0x33; 60]);
    a.pairs[0].tx.ring.kick();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = daemon.control().port_stats("a").unwrap();
        if stats["rule_violations"][ADDRESS_RULE] == 1 {
            break;
        }
        assert!(Instant::now() < deadline, "the rule is not counted: {stats}");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(a.is_connected(), "the session goes on");
    a.iommu().map(all);
    a.stop_rings(0).unwrap();
    for index in 0..2 {
        a.start_only(index).unwrap();
    }
    a.pairs[0].rx.post_withheld();
    a.pairs[0].rx.ring.kick();
    a.pairs[0].tx.ring.kick();
    introduce(&mut a, A, &mut b, B);
    exchange(&daemon, &mut a, &mut b, |_, _| {});
    neighbours.finish();
    drop((a, b));
    daemon.finish();
}

/// How a session ends whose frontend answers so.
fn end_of(daemon: &Daemon, answers: Answers) -> String {
    let mut guest = daemon.guest(config(daemon, "victim"));
    guest.iommu().set_answers(answers);
    guest.iommu().invalidate(0..1 << 47).unwrap();
    let start = Instant::now();
    while guest.is_connected() {
        assert!(start.elapsed() < PATIENCE, "{answers:?} ends nothing");
        guest.pairs[0].tx.ring.kick();
        guest.pairs[0].tx.send(&[0x33; 60]);
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(guest);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let info = daemon.control().request("info", serde_json::json!({})).unwrap();
        let ports = info["ports"].as_array().unwrap();
        let victim = ports.iter().find(|port| port["name"] == "victim").unwrap();
        if let Some(failed) = victim["failed"].as_str() {
            return failed.to_owned();
        }
        assert!(Instant::now() < deadline, "{answers:?}: {victim}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn iommu_answers_that_lie_or_never_come_end_only_that_session() {
    let daemon = daemon(&["victim", "left", "right"]);
    let neighbours = Neighbours::start(&daemon);
    let refused = TRANSLATION_RULES[1];
    let overdue = TRANSLATION_RULES[0];
    for (answers, rule, expected) in [
        (Answers::Outside, refused, "outside the shared memory"),
        (Answers::Empty, refused, "a translation of no addresses"),
        (Answers::Wrapping, refused, "beyond the last"),
        (Answers::Never, overdue, "did not translate I/O address"),
        (Answers::OtherPermission, overdue, "did not translate I/O address"),
    ] {
        let sentence = end_of(&daemon, answers);
        assert!(
            sentence.contains(expected) && sentence.ends_with(&format!("(rule {rule})")),
            "{answers:?}: {sentence}"
        );
    }
    let stats = daemon.control().port_stats("victim").unwrap();
    assert_eq!(stats["session_violations"][refused], 3);
    assert_eq!(stats["session_violations"][overdue], 2);
    assert_eq!(stats["translation"]["refused"], 3);
    neighbours.finish();
    daemon.finish();
}

#[test]
fn iommu_a_killed_vnicd_is_resumed_by_guests_behind_iommus() {
    const PORTS: &[&str] = &["a", "b"];
    let mut daemon = daemon(PORTS);
    let [mut a, mut b] = ["a", "b"].map(|port| daemon.guest(config(&daemon, port)));
    for _ in 0..5 {
        introduce(&mut a, A, &mut b, B);
        exchange(&daemon, &mut a, &mut b, |_, _| {});
        daemon.service.kill().unwrap();
        daemon.service = Daemon::spawn(&daemon.folder, PORTS, &["--iommu"]);
        a.reconnect().unwrap();
        b.reconnect().unwrap();
    }
    introduce(&mut a, A, &mut b, B);
    drop((a, b));
    daemon.finish();
}
