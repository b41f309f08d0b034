//! A guest that stops refilling its receive ring for a minute: it costs frames towards it and no
//! others, and it receives again as soon as it refills.

use std::time::{Duration, Instant};

use ether::MacAddr;
use weft_vnic_testkit::{FrontendConfig, Numbered, Tracker};

use crate::daemon::{Daemon, Neighbours, introduce};

/// How long the guest takes no frame.
const STALL: Duration = Duration::from_secs(60);
/// Frames per second towards it meanwhile.
const RATE: u32 = 2000;
/// After the stall, time until its frames arrive again.
const RESUME_MAX: Duration = Duration::from_secs(1);

const SENDER: MacAddr = MacAddr([2, 0, 0, 0, 2, 0x0a]);
const STALLED: MacAddr = MacAddr([2, 0, 0, 0, 2, 0x0b]);

#[test]
fn a_guest_that_stops_refilling_for_a_minute_costs_only_its_own_frames() {
    let daemon = Daemon::start(&["left", "right", "sender", "stalled"]);
    let neighbours = Neighbours::start(&daemon);
    let mut sender = daemon.guest(FrontendConfig::connect(daemon.socket("sender")));
    let mut stalled = daemon.guest(FrontendConfig::connect(daemon.socket("stalled")));
    introduce(&mut sender, SENDER, &mut stalled, STALLED);
    let mut control = daemon.control();
    let mut tracker = Tracker::new(3);
    let mut frame = [0; 300];
    let mut sent = 0;

    stalled.pairs[0].rx.set_refill(false);
    let start = Instant::now();
    let mut refused = 0_u64;
    while start.elapsed() < STALL {
        Numbered {
            stream: 3,
            sequence: sent,
        }
        .write(&mut frame, STALLED, SENDER);
        match sender.pairs[0].tx.send(&frame) {
            true => sent += 1,
            false => refused += 1,
        }
        stalled.pairs[0].rx.poll(64, |_, frame| tracker.note(frame));
        std::thread::sleep(Duration::from_secs(1) / RATE);
    }
    let during = tracker.unique;
    assert!(
        during <= u64::from(stalled.pairs[0].rx.slots()),
        "more frames than buffers arrived: {during}"
    );
    let stats = control.port_stats("stalled").unwrap();
    let no_buffer = stats["rx"]["dropped"]["no_buffer"].as_u64().unwrap_or(0);
    println!(
        "stalled: {sent} frames sent, {refused} tries found the sender's ring full, {no_buffer} dropped for want of a buffer"
    );
    assert!(
        sent > 1000,
        "the sender of frames to a stalled guest is delayed: {sent} sent"
    );
    assert!(no_buffer > 0);

    let resumed_at = sent;
    stalled.pairs[0].rx.set_refill(true);
    let refilled = Instant::now();
    while !(resumed_at..sent).any(|sequence| tracker.has(sequence)) {
        assert!(
            refilled.elapsed() < RESUME_MAX,
            "nothing arrives within {RESUME_MAX:?} of refilling"
        );
        Numbered {
            stream: 3,
            sequence: sent,
        }
        .write(&mut frame, STALLED, SENDER);
        sent += u64::from(sender.pairs[0].tx.send(&frame));
        stalled.pairs[0].rx.poll(64, |_, frame| tracker.note(frame));
    }
    println!("a frame arrived {:?} after refilling", refilled.elapsed());
    // From here on none is lost.
    let steady_at = sent;
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut arrived = steady_at;
    while arrived < steady_at + 10_000 {
        if sent < arrived + 64 {
            Numbered {
                stream: 3,
                sequence: sent,
            }
            .write(&mut frame, STALLED, SENDER);
            sent += u64::from(sender.pairs[0].tx.send(&frame));
        }
        stalled.pairs[0].rx.poll(64, |_, frame| tracker.note(frame));
        while tracker.has(arrived) {
            arrived += 1;
        }
        assert!(Instant::now() < deadline, "frame {arrived} after the stall is missing");
    }
    assert_eq!((tracker.repeated, tracker.damaged), (0, 0));
    drop((sender, stalled));
    neighbours.finish();
    daemon.finish();
}
