//! The checksum against the definition of RFC 1071, written as plainly as possible.

use ether::checksum::{Accumulator, at_offset, checksum, finish, fold, pseudo_header_v4, pseudo_header_v6, sum};
use proptest::prelude::*;

/// RFC 1071 section 4.1, word by word.
fn reference(bytes: &[u8]) -> u16 {
    let mut total: u64 = 0;
    for pair in bytes.chunks(2) {
        total += u64::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while total >> 16 != 0 {
        total = (total >> 16) + (total & 0xffff);
    }
    !(total as u16)
}

#[test]
fn the_example_of_rfc_1071_comes_out() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(fold(sum(&bytes)), 0xddf2);
    assert_eq!(checksum(&bytes), !0xddf2);
}

#[test]
fn a_correct_ipv4_header_sums_to_zero() {
    let header = [
        0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8,
        0x00, 0xc7,
    ];
    assert_eq!(checksum(&header), 0);
}

#[test]
fn pseudo_headers_equal_the_sum_of_their_bytes() {
    let (src, dst) = ([10, 0, 0, 1], [10, 0, 255, 2]);
    let v4 = [10, 0, 0, 1, 10, 0, 255, 2, 0, 17, 0x12, 0x34];
    assert_eq!(finish(pseudo_header_v4(src, dst, 17, 0x1234)), reference(&v4));

    let (src, dst) = ([0xfe; 16], [0x81; 16]);
    let mut v6 = [src, dst].concat();
    v6.extend_from_slice(&0x0001_fff0u32.to_be_bytes());
    v6.extend_from_slice(&[0, 0, 0, 6]);
    assert_eq!(finish(pseudo_header_v6(src, dst, 6, 0x0001_fff0)), reference(&v6));
}

#[test]
fn the_longest_run_of_ones_does_not_overflow() {
    let bytes = vec![0xff; 1 << 20];
    assert_eq!(checksum(&bytes), 0);
    let mut pieces = Accumulator::new(u32::MAX);
    for piece in bytes.chunks(7) {
        pieces.push(piece);
    }
    assert_eq!(pieces.finish(), 0);
}

proptest! {
    #[test]
    fn equals_the_reference(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
        prop_assert_eq!(checksum(&bytes), reference(&bytes));
    }

    #[test]
    fn pieces_of_any_length_give_the_sum_of_the_whole(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..20),
    ) {
        let whole = pieces.concat();
        let mut accumulator = Accumulator::default();
        let mut combined = 0;
        let mut offset = 0;
        for piece in &pieces {
            accumulator.push(piece);
            combined += at_offset(sum(piece), offset);
            offset += piece.len();
        }
        prop_assert_eq!(accumulator.finish(), reference(&whole));
        prop_assert_eq!(finish(combined), reference(&whole));
    }
}
