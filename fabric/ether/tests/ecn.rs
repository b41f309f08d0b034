//! Marks of congestion: what is marked, what is left alone, and that checksums stay right.

use ether::{checksum, ecn};
use proptest::prelude::*;

const ETHERNET: usize = 14;

fn ethernet(tags: &[u16], protocol: u16) -> Vec<u8> {
    let mut frame = vec![0; 12];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 5]);
    }
    frame.extend(protocol.to_be_bytes());
    frame
}

/// An IPv4 header of a type of service, with a right checksum, and eight bytes behind it.
fn ipv4(tos: u8, filler: u8) -> Vec<u8> {
    let mut header = vec![
        0x45, tos, 0, 28, filler, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, filler, 1, 10, 0, 0, 2,
    ];
    let sum = checksum::checksum(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    header.extend([filler; 8]);
    header
}

fn ipv6(traffic_class: u8) -> Vec<u8> {
    let mut header = vec![0; 48];
    header[0] = 0x60 | traffic_class >> 4;
    header[1] = traffic_class << 4 | 0x0a;
    header
}

fn frame(tags: &[u16], protocol: u16, packet: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(tags, protocol);
    frame.extend(packet);
    frame
}

#[test]
fn capable_packets_are_marked_and_others_left_alone() {
    for tags in [&[][..], &[0x8100], &[0x88a8, 0x8100]] {
        for ecn in 0..4 {
            // The six bits above are of another use, and stay.
            let before = frame(tags, 0x0800, &ipv4(0b1011_0100 | ecn, 3));
            let mut after = before.clone();
            assert_eq!(ecn::mark(&mut after), ecn != 0);
            let expected = if ecn == 0 {
                before
            } else {
                frame(tags, 0x0800, &ipv4(0b1011_0111, 3))
            };
            assert_eq!(after, expected);

            let before = frame(tags, 0x86dd, &ipv6(0b1011_0100 | ecn));
            let mut after = before.clone();
            assert_eq!(ecn::mark(&mut after), ecn != 0);
            let expected = if ecn == 0 {
                before
            } else {
                frame(tags, 0x86dd, &ipv6(0b1011_0111))
            };
            assert_eq!(after, expected);
        }
    }
}

#[test]
fn what_is_no_whole_ip_packet_is_left_alone() {
    let others = [
        frame(&[], 0x0806, &ipv4(1, 0)),
        frame(&[], 0x86dd, &ipv4(1, 0)),
        frame(&[], 0x0800, &ipv6(1)),
        frame(&[], 0x0800, &ipv4(1, 0)[..19]),
        frame(&[], 0x86dd, &ipv6(1)[..39]),
        frame(&[0x8100, 0x8100, 0x8100], 0x0800, &ipv4(1, 0)),
        ethernet(&[], 0x0800),
        ethernet(&[0x8100], 0x0800)[..15].to_vec(),
        Vec::new(),
    ];
    for before in others {
        let mut after = before.clone();
        assert!(!ecn::mark(&mut after), "{before:x?}");
        assert_eq!(after, before);
    }
}

proptest! {
    #[test]
    fn a_right_checksum_stays_right(tos: u8, filler: u8) {
        let mut marked = frame(&[], 0x0800, &ipv4(tos, filler));
        if ecn::mark(&mut marked) {
            let header = &marked[ETHERNET..ETHERNET + 20];
            prop_assert_eq!(checksum::checksum(header), 0);
            prop_assert_eq!(header[1], tos | 3);
        }
    }

    #[test]
    fn nothing_makes_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        ecn::mark(&mut bytes);
    }
}
