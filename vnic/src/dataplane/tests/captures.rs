//! Captures hold every frame, on whatever path it went, and leave nothing behind.

use super::paths::TSO4_SHORT;
use super::{NEEDS_CHECKSUM, introduce, tcp_frame};
use crate::dataplane::rig::{ALL_FEATURES, Rig, frame, multicast_frame, mxoe_frame};
use crate::dataplane::{CaptureReader, Fabric, FabricSettings};
use vnicd_protocol::{LinkSettings, PortSettings};

/// A frame in a capture file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Captured {
    pub is_outbound: bool,
    pub at_ns: u64,
    pub bytes: Vec<u8>,
    pub comment: Option<String>,
}

/// All frames of a capture of one port, which ends; and frames that it says are missing.
pub(super) fn finish(reader: CaptureReader) -> (Vec<Captured>, u64) {
    let mut file = Vec::new();
    reader.finish();
    while reader.next_chunk(&mut file) == super::Chunk::Data {}
    let word = |at: usize| u32::from_le_bytes(*file[at..].first_chunk().expect("four bytes"));
    let half = |at: usize| u16::from_le_bytes(*file[at..].first_chunk().expect("two bytes"));
    let (mut at, mut frames, mut missing) = (0, Vec::new(), 0);
    while at < file.len() {
        let end = at + word(at + 4) as usize;
        let options_from = match word(at) {
            6 => at + 28 + (word(at + 20) as usize).next_multiple_of(4),
            5 => at + 20,
            _ => end,
        };
        let mut frame = Captured {
            is_outbound: false,
            at_ns: 0,
            bytes: Vec::new(),
            comment: None,
        };
        let mut option = options_from;
        while option + 4 <= end && half(option) != 0 {
            let (code, len) = (half(option), usize::from(half(option + 2)));
            let value = &file[option + 4..option + 4 + len];
            match (word(at), code) {
                (6, 1) => frame.comment = Some(String::from_utf8_lossy(value).into_owned()),
                (6, 2) => frame.is_outbound = value[0] & 3 == 2,
                (5, 5) => missing += u64::from(value[0]),
                _ => {}
            }
            option += 4 + len.next_multiple_of(4);
        }
        if word(at) == 6 {
            frame.at_ns = u64::from(word(at + 12)) << 32 | u64::from(word(at + 16));
            frame.bytes = file[at + 28..at + 28 + word(at + 20) as usize].to_vec();
            frames.push(frame);
        }
        at = end;
    }
    (frames, missing)
}

/// Lets everything arrive, and takes it.
fn drain(rig: &mut Rig) {
    for _ in 0..200 {
        rig.settle();
        for guest in 0..rig.guests.len() {
            rig.received(guest);
            rig.completed(guest);
        }
        match rig.next_due() {
            Some(due) if due < rig.now.plus_nanos(1_000_000_000) => rig.now = due,
            _ => break,
        }
    }
}

/// What guests 0 and 3 send, by number; how many of the frames that cards send are not counted as their guest's.
fn send(rig: &mut Rig, kind: usize) {
    match kind {
        0 => (0..64).for_each(|index| rig.send(0, index, &frame(1, 0, 100, index as u8))),
        1 => (0..64).for_each(|index| rig.send(0, index, &frame(1 + index as u8 % 2, 0, 100, index as u8))),
        2 => (0..10).for_each(|index| rig.send_with_header(0, index, &TSO4_SHORT, &tcp_frame(1, 1900))),
        3 => (0..10).for_each(|index| rig.send_with_header(0, index, &NEEDS_CHECKSUM, &tcp_frame(1, 100))),
        4 => (0..64).for_each(|index| {
            let mut bytes = frame(1, 0, 100, index as u8);
            bytes[..6].fill(0xff);
            rig.send(0, index, &bytes);
        }),
        5 => (0..64).for_each(|index| rig.send(0, index, &mxoe_frame(1, 0, 100, index % 3 == 0))),
        6 => (0..64).for_each(|index| rig.send(3, index, &frame(1, 3, 100, index as u8))),
        7 => (0..10).for_each(|index| rig.send_with_header(3, index, &TSO4_SHORT, &tcp_frame(1, 1900))),
        8 => {
            let mut request = [0; firmware::CONTROL_FRAME_MAX];
            let hello = firmware::control::Request::Hello {
                version_min: 1,
                version_max: 1,
            };
            let len = hello.encode(ether::MacAddr([2, 0, 0, 0, 0, 0]), 7, &mut request);
            (0..4).for_each(|index| rig.send(0, index, &request[..len]));
        }
        9 => {
            let card = |ether_type: u8| {
                let mut bytes = frame(1, 0, 100, 0);
                bytes[12..14].copy_from_slice(&[0x88, ether_type]);
                bytes
            };
            (0..20).for_each(|index| rig.send(0, index, &card(0xb5 + index as u8 % 2)));
        }
        _ => (0..4).for_each(|index| rig.send(0, index, &multicast_frame(0, 7, 100, index as u8))),
    }
}

const KINDS: usize = 11;
const GROUP_KIND: usize = KINDS - 1;

fn rig() -> Rig {
    let mut rig = Rig::new(&[ALL_FEATURES; 3]);
    introduce(&mut rig, 0, 1);
    introduce(&mut rig, 0, 2);
    rig.add_loopback_guest(ALL_FEATURES);
    (0..3).for_each(|guest| rig.join(guest, 7));
    drain(&mut rig);
    rig
}

#[test]
fn a_capture_and_the_counters_agree_for_each_direction_on_each_way() {
    let ideal = LinkSettings::default();
    let slow = LinkSettings {
        delay_ns: 1000,
        ..ideal
    };
    let lossy = LinkSettings {
        loss_ppm: 200_000,
        duplicate_ppm: 200_000,
        ..ideal
    };
    for settings in [ideal, slow, lossy] {
        for kind in 0..KINDS {
            for guest in 0..4 {
                let what = format!("guest {guest}, kind {kind}, {settings:?}");
                let mut rig = rig();
                (0..3).for_each(|guest| rig.set_link(guest, &settings, &settings));
                let before = rig.stats(guest);
                let reader = rig.capture(guest);
                for _ in 0..4 {
                    send(&mut rig, kind);
                    drain(&mut rig);
                }
                let after = rig.stats(guest);
                let (frames, missing) = finish(reader);
                let outbound = frames.iter().filter(|frame| frame.is_outbound).count() as u64;
                let inbound = frames.iter().filter(|frame| !frame.is_outbound).count() as u64;
                let grown = |of: fn(&vnicd_protocol::PortStats) -> u64| of(&after) - of(&before);
                assert_eq!(missing, 0, "{what}");
                if kind == GROUP_KIND {
                    // Cards make copies, and keep for themselves what is not for guests.
                    assert_eq!(
                        outbound,
                        grown(|stats| stats.link.from_guest["offered_frames"]),
                        "{what}"
                    );
                    assert_eq!(
                        inbound,
                        grown(|stats| stats.link.to_guest["delivered_frames"]),
                        "{what}"
                    );
                } else {
                    assert_eq!(outbound, grown(|stats| stats.tx.frames), "{what}");
                    assert_eq!(inbound, grown(|stats| stats.rx.frames), "{what}");
                }
                let sends = guest == 0 && !matches!(kind, 6 | 7) || guest == 3 && matches!(kind, 6 | 7);
                assert!(outbound > 0 || !sends, "{what}");
            }
        }
    }
}

#[test]
fn a_capture_shows_frames_that_no_interrupt_announced_when_it_ends() {
    let mut rig = rig();
    rig.set_coalescing(1, firmware::StrategyKind::Timeout, 1_000_000);
    let reader = rig.capture(1);
    (0..5).for_each(|index| rig.send(0, index, &frame(1, 0, 100, 0)));
    rig.settle();
    let (frames, _) = finish(reader);
    assert_eq!(frames.len(), 5);
    assert!(frames.iter().all(|frame| frame.comment.is_none()));
    // The same when the guest stops its ring.
    rig.end_captures();
    let reader = rig.capture(1);
    (0..5).for_each(|index| rig.send(0, index, &frame(1, 0, 100, 0)));
    rig.settle();
    rig.stop_receiving(1);
    rig.start_receiving(1, None);
    (0..3).for_each(|index| rig.send(0, index, &frame(1, 0, 100, 0)));
    drain(&mut rig);
    let (frames, _) = finish(reader);
    assert_eq!(frames.len(), 8);
    let comments: Vec<_> = frames.iter().filter_map(|frame| frame.comment.as_deref()).collect();
    assert!(
        comments.len() == 1 && comments[0].ends_with("timeout, 3 packets"),
        "{comments:?}"
    );
}

#[test]
fn a_capture_of_several_cards_is_in_the_order_of_its_times_though_interrupts_are_noticed_late() {
    let mut rig = rig();
    let reader = rig.capture_together(&[0, 1, 2]);
    let delays_ns = [0, 75_000, 40_000];
    for (guest, delay_ns) in (0..).zip(delays_ns).skip(1) {
        rig.set_coalescing(guest, firmware::StrategyKind::Timeout, delay_ns);
    }
    for round in 0..20 {
        for guest in 0..3u8 {
            rig.send(guest.into(), 0, &frame((guest + 1) % 3, guest, 100, round));
        }
        rig.settle();
        // The data plane runs when both time-outs are over, or one of them.
        rig.now = rig.now.plus_nanos(30_000 + 7_000 * u64::from(round));
    }
    rig.settle();
    let (frames, missing) = finish(reader);
    assert_eq!((frames.len(), missing), (2 * 3 * 20, 0));
    assert!(frames.is_sorted_by_key(|frame| frame.at_ns));
    // A received frame carries the time at which its interrupt was decided, which the data plane noticed later.
    let waited_ns = |received: &Captured| {
        let sent = frames
            .iter()
            .find(|frame| frame.is_outbound && frame.bytes == received.bytes);
        received.at_ns - sent.expect("it was sent").at_ns
    };
    for (guest, delay_ns) in (0..).zip(delays_ns).skip(1) {
        let of_guest = frames
            .iter()
            .filter(|frame| !frame.is_outbound && frame.bytes[5] == guest);
        let longest_ns = of_guest.filter(|frame| frame.comment.is_some()).map(waited_ns).max();
        assert_eq!(longest_ns, Some(delay_ns), "guest {guest}");
    }
}

#[test]
fn a_capture_changes_nothing_for_the_guests() {
    let run = |captured: bool| {
        let mut rig = rig();
        let _readers: Vec<_> = (0..3).filter(|_| captured).map(|guest| rig.capture(guest)).collect();
        let mut seen = Vec::new();
        for kind in 0..KINDS {
            send(&mut rig, kind);
            rig.settle();
            let received = (0..4).map(|guest| rig.received(guest)).collect::<Vec<_>>();
            seen.push((received, rig.completed(0), rig.calls(1)));
            drain(&mut rig);
        }
        // A receiver that takes nothing holds its sender as ever.
        for index in 0..256 {
            rig.send(0, index, &frame(1, 0, 60, 0));
        }
        rig.settle();
        rig.completed(0);
        rig.send(0, 0, &frame(1, 0, 60, 0));
        rig.settle();
        (seen, rig.completed(0))
    };
    let (captured, not) = (run(true), run(false));
    assert_eq!(captured, not);
    assert_eq!(not.1, 0, "it waits");
}

#[test]
fn when_its_reader_has_gone_a_capture_has_not_been() {
    let mut rig = rig();
    let reader = rig.capture(1);
    send(&mut rig, 0);
    drain(&mut rig);
    drop(reader);
    rig.end_captures();
    assert!(!rig.is_captured(1));
    // Likewise for a data plane with a thread that is idle, without another frame.
    let fabric = Fabric::new(FabricSettings::default()).expect("a data plane");
    let switch = fabric.add_switch("s");
    let settings = PortSettings {
        name: "g0".to_owned(),
        mtu: 1500,
        returns: false,
        ..PortSettings::default()
    };
    let _device = fabric.add_port(switch, settings).expect("a port");
    let is_captured = || fabric.runner.with(|plane, _| plane.cards()[0].capture().is_some());
    let reader = fabric.start_capture(&[], 0).expect("no other capture runs");
    assert!(is_captured());
    assert!(fabric.start_capture(&[], 0).is_err());
    drop(reader);
    assert!(!is_captured());
    assert!(fabric.start_capture(&[], 0).is_ok());
    fabric.shutdown();
}
