//! Filters for the sockets (`mxoe-wire.md` 1.5 and 18): which frames are for one endpoint, and which for nobody but the
//! authority. The kernel runs them for every MXoE frame, so they are short.

use ether::EtherType;
use mxoe::wire::PacketType;
use netif::Instruction as I;

/// Where the type is; its mark is bit 7.
const TYPE_OFFSET: u32 = 16;
const TYPE_MASK: u32 = 0x7f;
/// Destination endpoint of the ordinary types.
const ENDPOINT_OFFSET: u32 = 17;
/// Of NACK_LIB.
const NACK_LIB_OFFSET: u32 = 25;
/// Low byte of the magic, which is the endpoint with bit 7 flipped: PULL_REPLY and NACK_MCP.
const MAGIC_OFFSET: u32 = 31;
const MAGIC_XOR: u32 = 0x80;

const fn code(packet_type: PacketType) -> u32 {
    packet_type.code() as u32
}

/// Frames of this EtherType from this interface for this endpoint.
pub(crate) fn for_endpoint(interface_index: i32, ether_type: EtherType, endpoint: u8) -> Vec<I> {
    let mut program = vec![
        I::load_interface(),
        I::if_equal(interface_index as u32, 1, 0),
        I::drop(),
        I::load_half(12),
        I::if_equal(u32::from(ether_type.0), 1, 0),
        I::drop(),
    ];
    program.extend(load_endpoint(false));
    program.extend([I::if_equal(u32::from(endpoint), 0, 1), I::pass(), I::drop()]);
    program
}

/// Frames for nobody who is in `open`, a set of endpoint numbers below 32: the authority's.
pub(crate) fn for_authority(open: u32) -> Vec<I> {
    let mut program = load_endpoint(true).to_vec();
    program.extend([
        // Endpoints that cannot be open.
        I::if_at_least(32, 4, 0),
        I::to_index(),
        I::load(1),
        I::shift_left_by_index(),
        I::if_any(open, 1, 0),
        I::pass(),
        I::drop(),
    ]);
    program
}

/// Loads the destination endpoint; a frame for none passes or not, as `others` says.
fn load_endpoint(others: bool) -> [I; 13] {
    [
        I::load_byte(TYPE_OFFSET),
        I::and(TYPE_MASK),
        I::if_equal(code(PacketType::PullReply), 6, 0),
        I::if_equal(code(PacketType::NackMcp), 5, 0),
        I::if_equal(code(PacketType::NackLib), 2, 0),
        I::if_at_least(code(PacketType::Truc), 6, 0),
        if others { I::pass() } else { I::drop() },
        I::load_byte(NACK_LIB_OFFSET),
        I::skip(4),
        I::load_byte(MAGIC_OFFSET),
        I::xor(MAGIC_XOR),
        I::skip(1),
        I::load_byte(ENDPOINT_OFFSET),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel does with the few instructions used here.
    fn passes(program: &[I], frame: &[u8], interface_index: i32) -> bool {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
        loop {
            let i = program[at];
            at += 1;
            let same = |other: I| i.code == other.code;
            if i.operand == I::load_interface().operand && same(I::load_interface()) {
                a = interface_index as u32;
            } else if same(I::load_byte(0)) {
                let Some(byte) = frame.get(i.operand as usize) else {
                    return false;
                };
                a = u32::from(*byte);
            } else if same(I::load_half(0)) {
                let at = i.operand as usize;
                let Some(bytes) = frame.get(at..at + 2) else {
                    return false;
                };
                a = u32::from(u16::from_be_bytes([bytes[0], bytes[1]]));
            } else if same(I::load(0)) {
                a = i.operand;
            } else if same(I::and(0)) {
                a &= i.operand;
            } else if same(I::xor(0)) {
                a ^= i.operand;
            } else if same(I::shift_left_by_index()) {
                a = a.checked_shl(x).unwrap_or(0);
            } else if same(I::to_index()) {
                x = a;
            } else if same(I::skip(0)) {
                at += i.operand as usize;
            } else if same(I::pass()) {
                return i.operand != 0;
            } else {
                let holds = if same(I::if_equal(0, 0, 0)) {
                    a == i.operand
                } else if same(I::if_at_least(0, 0, 0)) {
                    a >= i.operand
                } else {
                    a & i.operand != 0
                };
                at += usize::from(if holds { i.if_true } else { i.if_false });
            }
        }
    }

    fn frame(packet_type: u8, endpoint: u8) -> Vec<u8> {
        let mut frame = vec![0xee; 60];
        frame[12..14].copy_from_slice(&EtherType::MXOE.0.to_be_bytes());
        frame[16] = packet_type;
        match packet_type & 0x7f {
            42 | 45 => frame[31] = endpoint ^ 0x80,
            44 => frame[25] = endpoint,
            _ => frame[17] = endpoint,
        }
        frame
    }

    #[test]
    fn every_frame_goes_to_its_endpoint_or_to_the_authority_and_to_nobody_else() {
        let open = 1 << 3 | 1 << 31;
        let authority = for_authority(open);
        for endpoint in [0, 3, 31, 32, 255] {
            let own = for_endpoint(7, EtherType::MXOE, endpoint);
            let other = for_endpoint(7, EtherType::MXOE, endpoint ^ 1);
            for packet_type in 35..=45 {
                for mark in [0, 0x80] {
                    let frame = frame(packet_type | mark, endpoint);
                    assert!(passes(&own, &frame, 7), "type {packet_type} endpoint {endpoint}");
                    assert!(!passes(&other, &frame, 7));
                    assert!(!passes(&own, &frame, 8), "another interface");
                    let is_open = endpoint < 32 && open & 1 << endpoint != 0;
                    assert_eq!(passes(&authority, &frame, 7), !is_open);
                }
            }
            for packet_type in [0, 1, 3, 4, 34] {
                let frame = frame(packet_type, endpoint);
                assert!(!passes(&own, &frame, 7) && passes(&authority, &frame, 7));
            }
        }
        let mut ip = frame(37, 3);
        ip[12] = 8;
        assert!(!passes(&for_endpoint(7, EtherType::MXOE, 3), &ip, 7));
        assert!(!passes(&for_endpoint(7, EtherType::MXOE, 3), &frame(42, 3)[..20], 7));
    }
}
