//! Guests that come back to a killed and replaced `vnicd` one after the other: frames for the last ones wait for them, and nothing else does.

use std::time::{Duration, Instant};

use ether::MacAddr;
use vhost::VhostBackend;
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use weft_vnic_testkit::{Frontend, FrontendConfig, Interrupts, Numbered, Tracker};

use crate::daemon::{Daemon, introduce};

const FIRST: MacAddr = MacAddr([2, 0, 0, 0, 4, 0x0a]);
/// Comes back last.
const AWAY_LONG: MacAddr = MacAddr([2, 0, 0, 0, 4, 0x0c]);
const SECOND: MacAddr = MacAddr([2, 0, 0, 0, 4, 0x0b]);
/// Frames that the first guest sends while the second is away.
const FRAMES: u64 = 200;
/// How long the second stays away: QEMU 10 as it is mostly configured.
const AWAY: Duration = Duration::from_millis(500);
/// How long frames wait for a guest that does not come back.
const GRACE: Duration = Duration::from_millis(1200);
/// Longest wait for frames that must come.
const PATIENCE: Duration = Duration::from_secs(10);

/// Two guests that have exchanged frames, and a `vnicd` that was killed and replaced since.
fn replaced(ports: &[&str]) -> (Daemon, Frontend, Frontend) {
    let mut daemon = Daemon::start(ports);
    let connect = |port| daemon.guest(FrontendConfig::connect(daemon.socket(port)));
    let (mut first, mut second) = (connect("first"), connect("second"));
    introduce(&mut first, FIRST, &mut second, SECOND);
    // What was in flight is there.
    std::thread::sleep(Duration::from_millis(50));
    second.pairs[0].rx.poll(256, |_, _| {});
    daemon.service.kill().unwrap();
    daemon.service = Daemon::spawn(&daemon.folder, ports, &[]);
    (daemon, first, second)
}

fn send(guest: &mut Frontend, to: MacAddr, stream: u32, sequence: u64) {
    let mut frame = [0; 300];
    Numbered { stream, sequence }.write(&mut frame, to, FIRST);
    assert!(guest.pairs[0].tx.send(&frame));
}

/// Polls `guest` until it has `count` frames, all of them once and in order.
fn await_all(guest: &mut Frontend, stream: u32, count: u64) {
    let (mut tracker, start) = (Tracker::new(stream), Instant::now());
    while tracker.unique < count {
        guest.pairs[0].rx.poll(256, |_, frame| {
            if let Some(Ok(numbered)) = Numbered::read(frame)
                && numbered.stream == stream
            {
                tracker.note(frame);
            }
        });
        assert!(
            start.elapsed() < PATIENCE,
            "{} of {count} missing",
            tracker.missing(count)
        );
    }
    assert!(tracker.is_perfect(count), "{} repeated", tracker.repeated);
}

#[test]
fn frames_for_a_guest_on_its_way_back_wait_for_it() {
    let (daemon, mut first, mut second) = replaced(&["first", "second"]);
    // Half of them are there when the ring is started again.
    (0..FRAMES / 2).for_each(|sequence| send(&mut first, SECOND, 4, sequence));
    first.reconnect().unwrap();
    (FRAMES / 2..FRAMES).for_each(|sequence| send(&mut first, SECOND, 4, sequence));
    std::thread::sleep(AWAY);
    second.reconnect().unwrap();
    await_all(&mut second, 4, FRAMES);
    drop((first, second));
    daemon.finish();
}

#[test]
fn a_guest_that_stays_away_keeps_nobody_waiting_and_gets_its_frames_when_it_comes() {
    let (daemon, mut first, mut second) = replaced(&["first", "second", "away"]);
    let start = Instant::now();
    first.reconnect().unwrap();
    second.reconnect().unwrap();
    for sequence in 0..FRAMES / 4 {
        send(&mut first, AWAY_LONG, 5, sequence);
        send(&mut first, SECOND, 4, sequence);
    }
    await_all(&mut second, 4, FRAMES / 4);
    println!("the others' frames after {:?}", start.elapsed());
    assert!(start.elapsed() < GRACE, "frames waited for another guest");
    let mut away = daemon.guest(FrontendConfig::connect(daemon.socket("away")));
    await_all(&mut away, 5, FRAMES / 4);
    drop((first, second, away));
    daemon.finish();
}

/// QEMU starts a ring with an interrupt that it does not look at, and gives the one that it does a moment later.
#[test]
fn a_guest_hears_of_what_came_before_its_interrupt_was_known() {
    let daemon = Daemon::start(&["first", "second"]);
    let mut first = daemon.guest(FrontendConfig::connect(daemon.socket("first")));
    let mut second = daemon.guest(FrontendConfig {
        rx_interrupts: Interrupts::Always,
        ..FrontendConfig::connect(daemon.socket("second"))
    });
    introduce(&mut first, FIRST, &mut second, SECOND);
    second.pairs[0].rx.poll_called(|_, _| {});
    let unwatched = EventFd::new(EFD_NONBLOCK).unwrap();
    second.wire().unwrap().set_vring_call(0, &unwatched).unwrap();
    second.ring(0).take_calls();
    send(&mut first, SECOND, 4, 0);
    let start = Instant::now();
    while unwatched.read().is_err() {
        assert!(start.elapsed() < PATIENCE, "the frame does not come");
    }
    let call = second.ring(0).call_fd().try_clone().unwrap();
    second.wire().unwrap().set_vring_call(0, &call).unwrap();
    assert!(second.ring(0).wait_call(PATIENCE.as_millis() as i32).unwrap());
    drop((first, second));
    daemon.finish();
}
