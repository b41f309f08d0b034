//! Guests that are moved from one port to another, as a live migration does: the new port announces them, so that switches know where
//! they are before they have sent anything themselves.

use std::time::{Duration, Instant};

use ether::MacAddr;
use weft_vnic_testkit::{F_GUEST_ANNOUNCE, Frontend, FrontendConfig, Numbered, Tracker};

use crate::daemon::{Daemon, introduce};

const GUEST: MacAddr = MacAddr([2, 0, 0, 0, 7, 0x0a]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 7, 0x0b]);
/// Frames that the peer sends to the guest.
const FRAMES: u64 = 50;
/// Longest wait for what must come.
const PATIENCE: Duration = Duration::from_secs(10);

fn await_that(daemon: &Daemon, what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(
            Instant::now() < deadline,
            "not in time: {what}; vnicd says:\n{}",
            daemon.log()
        );
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn send(peer: &mut Frontend, numbers: std::ops::Range<u64>) {
    for sequence in numbers {
        let mut frame = [0; 100];
        Numbered { stream: 7, sequence }.write(&mut frame, GUEST, PEER);
        assert!(peer.pairs[0].tx.send(&frame));
    }
}

#[test]
fn a_guest_that_was_moved_is_found_at_its_new_port_before_it_sends_anything() {
    let daemon = Daemon::start(&["old", "new", "peer"]);
    let connect = |port| {
        let mut config = FrontendConfig::connect(daemon.socket(port));
        config.features |= F_GUEST_ANNOUNCE;
        daemon.guest(config)
    };
    let (mut old, mut peer) = (connect("old"), connect("peer"));
    introduce(&mut old, GUEST, &mut peer, PEER);
    let mut at_old = Tracker::new(7);
    send(&mut peer, 0..1);
    await_that(&daemon, "the guest is known at its old port", || {
        old.pairs[0].rx.poll(64, |_, frame| at_old.note(frame));
        at_old.unique == 1
    });

    let mut new = connect("new");
    await_that(&daemon, "the rings of the new port run", || {
        let info = daemon.control().request("info", serde_json::json!({})).unwrap();
        info["ports"][1]["rings_started"] == 2
    });
    new.announce(GUEST).unwrap();
    let mut announced = Vec::new();
    await_that(&daemon, "the announcement reaches the peer", || {
        peer.pairs[0].rx.poll(64, |_, frame| {
            if frame[12..14] == [0x80, 0x35] {
                announced.push(frame.to_vec());
            }
        });
        !announced.is_empty()
    });
    let [g0, g1, g2, g3, g4, g5] = GUEST.0;
    let mut expected = vec![0xff; 6];
    expected.extend([g0, g1, g2, g3, g4, g5, 0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
    expected.extend([g0, g1, g2, g3, g4, g5, 0, 0, 0, 0, g0, g1, g2, g3, g4, g5, 0, 0, 0, 0]);
    expected.resize(60, 0);
    assert_eq!(
        announced,
        [expected],
        "a RARP request, as QEMU sends it for other cards"
    );

    let mut at_new = Tracker::new(7);
    send(&mut peer, 1..FRAMES);
    await_that(&daemon, "the frames reach the new port", || {
        new.pairs[0].rx.poll(64, |_, frame| at_new.note(frame));
        at_new.unique == FRAMES - 1
    });
    old.pairs[0].rx.poll(64, |_, frame| at_old.note(frame));
    assert_eq!(at_old.unique, 1, "nothing goes to the old port any more");
    drop((old, new, peer));
    daemon.finish();
}
