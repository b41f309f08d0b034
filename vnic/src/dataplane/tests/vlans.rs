//! VLANs through the whole data path: tags pushed and popped for single frames, bursts, floods, segments and trunks, each kept
//! equal to what 802.1Q makes of the frame.

use fabric::{PortVlans, VlanId, VlanSet};

use super::{NEEDS_CHECKSUM, TSO4, is_complete_tcp, tcp_frame};
use crate::dataplane::frames::{SEGMENTED_FRAME_MAX, mtu};
use crate::dataplane::rig::{ALL_FEATURES, Rig, frame};
use vnicd_protocol::LinkSettings;

fn vlan(number: u16) -> VlanId {
    VlanId::new(number).unwrap()
}

fn tagged_port(numbers: &[u16]) -> PortVlans {
    PortVlans::trunk(None, numbers.iter().copied().map(vlan).collect::<VlanSet>())
}

pub(super) fn set(rig: &mut Rig, guest: usize, vlans: PortVlans) {
    let at = rig.plane.cards()[guest].attachment();
    rig.plane.forwarding.switches[at.switch]
        .switch
        .set_port_vlans(at.port, Some(vlans));
}

/// The frame with a tag.
fn tagged(frame: &[u8], tci: u16) -> Vec<u8> {
    let mut bytes = frame[..12].to_vec();
    bytes.extend_from_slice(&[0x81, 0]);
    bytes.extend_from_slice(&tci.to_be_bytes());
    bytes.extend_from_slice(&frame[12..]);
    bytes
}

/// The frame from another guest.
fn from(source: u8, mut frame: Vec<u8>) -> Vec<u8> {
    frame[11] = source;
    frame
}

/// Guest 0 sees VLANs 10 and 20 with tags; guest 1 is in 10, guest 2 in 20, with the same address (that is what VLANs
/// allow), guest 3 in 10, too.
fn rig(features: u64) -> Rig {
    let mut rig = Rig::new(&[features; 4]);
    set(&mut rig, 0, tagged_port(&[10, 20]));
    for (guest, number) in [(1, 10), (2, 20), (3, 10)] {
        set(&mut rig, guest, PortVlans::access(vlan(number)));
    }
    rig
}

fn frames(rig: &mut Rig, guest: usize) -> Vec<Vec<u8>> {
    rig.received(guest).into_iter().map(|(_, frame)| frame).collect()
}

#[test]
fn rows_of_frames_with_the_same_first_bytes_go_where_their_tags_say() {
    let mut rig = rig(ALL_FEATURES);
    for guest in [1, 2] {
        rig.send(guest, 0, &frame(0, 9, 60, guest as u8));
    }
    rig.settle();
    assert_eq!(
        frames(&mut rig, 0),
        [tagged(&frame(0, 9, 60, 1), 10), tagged(&frame(0, 9, 60, 2), 20)]
    );
    // Nobody had been heard of: that one was flooded.
    assert_eq!(frames(&mut rig, 3), [frame(0, 9, 60, 1)]);
    // The same 14 bytes at the beginning of all of them, in one batch.
    let mut expected = [Vec::new(), Vec::new()];
    for index in 0..60 {
        let number = if index % 3 == 0 { 20 } else { 10 };
        let sent = frame(9, 0, 200 + usize::from(index), index as u8);
        rig.send(0, index, &tagged(&sent, number | 0x2000));
        expected[usize::from(number == 20)].push(sent);
    }
    rig.settle();
    assert_eq!([1, 2].map(|guest| frames(&mut rig, guest)), expected);
    assert_eq!(frames(&mut rig, 3).len(), 0);
    assert_eq!(rig.completed(0), 60);
    // And a burst without tags from an access port to a tagged one.
    let rows: Vec<_> = (0..60).map(|index| frame(0, 9, 100 + index, 5)).collect();
    for (index, sent) in (100..).zip(&rows) {
        rig.send(1, index, sent);
    }
    rig.settle();
    let expected: Vec<_> = rows.iter().map(|sent| tagged(sent, 10)).collect();
    assert_eq!(frames(&mut rig, 0), expected);
    let stats = rig.stats(0);
    assert_eq!((stats.rx.frames, stats.tx.frames), (62, 60));
}

#[test]
fn a_row_between_access_ports_of_one_vlan_goes_straight_and_is_counted() {
    let mut rig = rig(ALL_FEATURES);
    rig.send(3, 0, &frame(1, 3, 60, 0));
    rig.send(1, 0, &frame(3, 1, 60, 0));
    rig.settle();
    rig.received(1);
    let before = rig.stats(1);
    let rows: Vec<_> = (0..60).map(|index| frame(1, 3, 500, index)).collect();
    for (index, sent) in (1..).zip(&rows) {
        rig.send(3, index, sent);
    }
    rig.settle();
    assert_eq!(frames(&mut rig, 1), rows);
    let after = rig.stats(1);
    assert_eq!(after.copied_bytes - before.copied_bytes, 60 * 500, "copied once");
    assert_eq!(after.switch["out_frames"] - before.switch["out_frames"], 60);
    assert_eq!(rig.stats(3).switch["in_frames"], 61);
}

#[test]
fn a_flood_reaches_each_port_in_its_form() {
    let mut rig = rig(ALL_FEATURES);
    let all = frame(0xff, 7, 300, 3);
    let all = [&[0xff; 6], &all[6..]].concat();
    rig.send(1, 0, &all);
    rig.send(0, 0, &tagged(&all, 20));
    rig.settle();
    assert_eq!(frames(&mut rig, 0), [tagged(&all, 10)]);
    assert_eq!(frames(&mut rig, 3), std::slice::from_ref(&all));
    assert_eq!(frames(&mut rig, 2), std::slice::from_ref(&all));
    assert_eq!(frames(&mut rig, 1).len(), 0);
    // A frame of a VLAN that the port does not carry ends there, under its reason.
    rig.send(0, 1, &tagged(&all, 30));
    rig.settle();
    let counters = rig.plane.forwarding.switches[0].switch.counters(fabric::PortId(0));
    assert_eq!(counters.dropped(fabric::DropReason::VlanNotAllowed), 1);
}

#[test]
fn segments_and_checksums_stay_right_when_a_tag_comes_or_goes() {
    for receiver in [ALL_FEATURES, 0] {
        for capturing in [false, true] {
            let mut rig = Rig::new(&[ALL_FEATURES, receiver]);
            set(&mut rig, 0, PortVlans::access(vlan(10)));
            set(&mut rig, 1, tagged_port(&[10]));
            let reader = capturing.then(|| rig.capture(1));
            rig.send(1, 0, &tagged(&frame(0, 1, 60, 0), 10));
            rig.settle();
            assert_eq!(frames(&mut rig, 0), [frame(0, 1, 60, 0)]);
            rig.send_with_header(0, 1, &TSO4, &tcp_frame(1, 1900));
            rig.send_with_header(0, 2, &NEEDS_CHECKSUM, &tcp_frame(1, 100));
            rig.settle();
            let received = rig.received(1);
            if receiver == ALL_FEATURES && received.len() == 2 {
                // As it is, its offsets moved by the tag.
                assert_eq!(received[0].0[..10], [1, 1, 58, 0, 0xe8, 3, 38, 0, 16, 0]);
                assert_eq!(received[0].1, tagged(&tcp_frame(1, 1900), 10));
            } else {
                let lengths: Vec<_> = received.iter().map(|(_, frame)| frame.len()).collect();
                assert_eq!(lengths, [1058, 958, 158]);
                for (header, frame) in &received {
                    assert_eq!(header[..2], [0, 0]);
                    assert_eq!(frame[12..16], [0x81, 0, 0, 10]);
                    assert!(is_complete_tcp(&[&frame[..12], &frame[16..]].concat()));
                }
            }
            assert_eq!(rig.completed(0), 2);
            drop(reader);
        }
    }
    // And in the other direction: a guest with tags of its own, whose offsets count them.
    let mut rig = Rig::new(&[ALL_FEATURES, 0]);
    set(&mut rig, 0, tagged_port(&[10]));
    set(&mut rig, 1, PortVlans::access(vlan(10)));
    rig.send_with_header(
        0,
        1,
        &[1, 1, 58, 0, 0xe8, 3, 38, 0, 16, 0, 0, 0],
        &tagged(&tcp_frame(1, 1900), 10),
    );
    rig.settle();
    let received = frames(&mut rig, 1);
    assert_eq!(received.iter().map(Vec::len).collect::<Vec<_>>(), [1054, 954]);
    assert!(received.iter().all(|frame| is_complete_tcp(frame)));
}

#[test]
fn vlans_cross_trunks_with_their_tags() {
    let mut rig = Rig::new(&[ALL_FEATURES, ALL_FEATURES]);
    let far = rig.add_switch();
    let far_guests = [10, 20].map(|number| {
        let guest = rig.add_guest(far, ALL_FEATURES);
        set(&mut rig, guest, PortVlans::access(vlan(number)));
        guest
    });
    set(&mut rig, 0, PortVlans::access(vlan(10)));
    set(&mut rig, 1, PortVlans::access(vlan(20)));
    let all = [&[0xff; 6], &frame(0, 7, 200, 3)[6..]].concat();
    rig.send(0, 0, &all);
    rig.settle();
    assert_eq!(frames(&mut rig, far_guests[0]), std::slice::from_ref(&all));
    assert_eq!(frames(&mut rig, far_guests[1]).len(), 0);
    assert_eq!(frames(&mut rig, 1).len(), 0);
    rig.send_with_header(far_guests[0], 1, &TSO4, &from(2, tcp_frame(7, 1900)));
    rig.settle();
    let received = rig.received(0);
    assert_eq!(received[0].0[..10], TSO4[..10], "uncut, its offsets as they were");
    assert_eq!(received[0].1, from(2, tcp_frame(7, 1900)));
    assert_eq!((received.len(), rig.completed(far_guests[0])), (1, 1));
    // What it is on the wire is counted, with its tag on the trunk.
    let trunk = rig.plane.forwarding.wiring.trunks[0].ends[0].1;
    let counters = rig.plane.forwarding.switches[0].switch.counters(trunk);
    assert_eq!((counters.in_frames, counters.in_bytes), (2, 1058 + 958));
}

#[test]
fn a_receiver_without_buffers_gets_retagged_frames_when_it_has_some() {
    let mut rig = rig(ALL_FEATURES);
    rig.send(1, 0, &frame(0, 9, 60, 0));
    rig.settle();
    rig.received(0);
    rig.stop_receiving(0);
    rig.start_receiving(0, None);
    // All its buffers and some frames more, which wait in private memory.
    for round in 0..2u16 {
        for index in 0..200 {
            rig.send(1, index, &frame(0, 9, 60 + usize::from(index), round as u8));
        }
        rig.settle();
        rig.completed(1);
    }
    let mut received = frames(&mut rig, 0);
    rig.settle();
    received.extend(frames(&mut rig, 0));
    assert_eq!(received.len(), 400);
    for (index, got) in received.iter().enumerate() {
        let sent = frame(0, 9, 60 + index % 200, (index / 200) as u8);
        assert_eq!(*got, tagged(&sent, 10), "frame {index}");
    }
    assert_eq!(rig.pooled_bytes(), 0);
}

#[test]
fn the_longest_frame_that_a_guest_may_hand_over_gets_its_tag_on_every_way() {
    let headers = 54;
    let slow = |delay_ns, rate_bps| LinkSettings {
        delay_ns,
        rate_bps,
        ..LinkSettings::default()
    };
    for len in [65_535, SEGMENTED_FRAME_MAX - 3, SEGMENTED_FRAME_MAX] {
        let sent = tcp_frame(1, len as usize - headers);
        for features in [ALL_FEATURES, 0] {
            for link in [slow(0, 0), slow(1_000, 0), slow(1_000, 10_000_000_000)] {
                for over_trunk in [false, true] {
                    let mut rig = Rig::new(&[ALL_FEATURES]);
                    let switch = if over_trunk { rig.add_switch() } else { 0 };
                    let guest = rig.add_guest(switch, features);
                    set(&mut rig, 0, PortVlans::access(vlan(10)));
                    set(&mut rig, guest, tagged_port(&[10]));
                    rig.set_link(guest, &link, &LinkSettings::default());
                    if over_trunk {
                        rig.set_trunk(&link, &link);
                    }
                    rig.send_long_with_header(0, 1, &TSO4, &sent);
                    rig.settle();
                    rig.now = rig.now.plus_nanos(1_000_000_000);
                    rig.settle();
                    rig.now = rig.now.plus_nanos(1_000_000_000);
                    rig.settle();
                    let what = format!("{len} bytes, features {features:#x}, {link:?}, trunk {over_trunk}");
                    assert_eq!((rig.failed(0), rig.failed(guest)), (None, None), "{what}");
                    assert_eq!(rig.completed(0), 1, "{what}");
                    let received = frames(&mut rig, guest);
                    if let [whole] = &received[..] {
                        assert!(*whole == tagged(&sent, 10), "{what}");
                    }
                    let payload: usize = received.iter().map(|frame| frame.len() - headers - 4).sum();
                    assert_eq!(payload, sent.len() - headers, "{what}");
                }
            }
        }
    }
}

#[test]
fn a_frame_for_cards_that_loses_its_tag_is_held_to_the_mtu_of_the_receiver() {
    let mut rig = Rig::new(&[ALL_FEATURES]);
    let guest = rig.add_guest_with(0, ALL_FEATURES, |settings| settings.mtu = 576);
    set(&mut rig, 0, tagged_port(&[10]));
    set(&mut rig, guest, PortVlans::access(vlan(10)));
    for (index, mtu) in [(1, 576), (2, 577)] {
        let len = mtu::frame_len_max(mtu) as usize;
        let mut sent = frame(1, 0, len, 0);
        sent[12..16].copy_from_slice(&[0x88, 0xb6, 0x57, 0x4d]);
        rig.send(0, index, &tagged(&sent, 10));
    }
    rig.settle();
    assert_eq!(rig.completed(0), 2);
    let dropped = rig.stats(guest).rx.dropped;
    // The first is for the card, and no packet of a group.
    assert_eq!((dropped["card_refused"], dropped["too_long"]), (1, 1));
}
