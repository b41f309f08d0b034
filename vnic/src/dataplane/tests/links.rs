//! What links do to whole frames on their path through the data plane. When they do it is tested in `fabric`. In virtual time.

use ether::checksum;

use super::introduce;
use crate::dataplane::handle::{SEED_TO_GUEST, link_from};
use crate::dataplane::rig::{Rig, frame};
use vnicd_protocol::LinkSettings;

const FRAMES: u16 = 10;
const ABOVE: usize = 4;

/// An IPv4 or IPv6 packet with these ECN bits; its number is the last byte.
fn packet(ipv6: bool, ecn: u8, number: u8) -> Vec<u8> {
    let mut bytes = frame(1, 0, 200, 0);
    if ipv6 {
        bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
        bytes[14..16].copy_from_slice(&[0x60, ecn << 4]);
    } else {
        bytes[12..14].copy_from_slice(&[8, 0]);
        bytes[14..16].copy_from_slice(&[0x45, ecn]);
        bytes[24..26].fill(0);
        let sum = checksum::checksum(&bytes[14..34]);
        bytes[24..26].copy_from_slice(&sum.to_be_bytes());
    }
    bytes[199] = number;
    bytes
}

fn congested() -> LinkSettings {
    LinkSettings {
        rate_bps: 1_000_000_000,
        ecn_above: fabric::QueueLevel::frames(ABOVE as u32),
        ..LinkSettings::default()
    }
}

/// Sends packets at once over a link that the caller made slow; what arrived.
fn through(rig: &mut Rig, ipv6: bool, ecn: u8) -> Vec<Vec<u8>> {
    for number in 0..FRAMES {
        rig.send(0, number, &packet(ipv6, ecn, number as u8));
    }
    rig.settle();
    rig.now = rig.now.plus_nanos(1_000_000);
    rig.settle();
    assert_eq!(rig.completed(0), usize::from(FRAMES));
    rig.received(1).into_iter().map(|(_, frame)| frame).collect()
}

/// The packets behind the threshold are marked, if they can be, and no others; `marked` reads what the link counted.
fn only_those_above_are_marked(rig: &mut Rig, marked: impl Fn(&Rig) -> u64) {
    for ipv6 in [false, true] {
        for (ecn, after) in [(0, 0), (1, 3), (2, 3), (3, 3)] {
            let before = marked(rig);
            let expected: Vec<_> = (0..FRAMES)
                .map(|number| {
                    let is_above = usize::from(number) >= ABOVE;
                    packet(ipv6, if is_above { after } else { ecn }, number as u8)
                })
                .collect();
            assert_eq!(through(rig, ipv6, ecn), expected, "IPv6: {ipv6}, ECN {ecn}");
            let counted = if ecn == 0 { 0 } else { usize::from(FRAMES) - ABOVE };
            assert_eq!(marked(rig) - before, counted as u64);
        }
    }
}

#[test]
fn packets_above_the_threshold_of_a_cable_are_marked_both_ways() {
    let ideal = LinkSettings::default();
    let mut rig = Rig::new(&[0, 0]);
    introduce(&mut rig, 0, 1);
    rig.set_link(1, &congested(), &ideal);
    only_those_above_are_marked(&mut rig, |rig| rig.stats(1).link.to_guest["marked_frames"]);
    rig.set_link(1, &ideal, &ideal);
    rig.set_link(0, &ideal, &congested());
    only_those_above_are_marked(&mut rig, |rig| rig.stats(0).link.from_guest["marked_frames"]);
}

#[test]
fn packets_above_the_threshold_of_a_trunk_are_marked() {
    let mut rig = Rig::new(&[0]);
    let switch = rig.add_switch();
    rig.add_guest(switch, 0);
    introduce(&mut rig, 0, 1);
    let config = link_from(&congested(), SEED_TO_GUEST).expect("good settings");
    rig.plane.forwarding.wiring.trunks[0].links[0].set_config(config);
    only_those_above_are_marked(&mut rig, |rig| {
        rig.plane.forwarding.wiring.trunks[0].links[0].counters().marked_frames
    });
}

#[test]
fn settings_that_contradict_themselves_are_refused_with_one_sentence() {
    let refused = |settings: LinkSettings| link_from(&settings, 0).unwrap_err().to_string();
    assert_eq!(
        refused(LinkSettings {
            burst_bytes: 1,
            ..LinkSettings::default()
        }),
        "a burst has no effect on a link of unlimited rate"
    );
    assert_eq!(
        refused(LinkSettings {
            ecn_above: fabric::QueueLevel::bytes(1 << 20),
            ..LinkSettings::default()
        }),
        "the ECN threshold is not below the queue limit, so frames would be dropped and none marked"
    );
    assert_eq!(
        refused(LinkSettings {
            jitter_ns: 10_000_000_001,
            ..LinkSettings::default()
        }),
        "jitter_ns is 10000000001, but a link delays by at most 10000000000 ns (10 s)"
    );
}
