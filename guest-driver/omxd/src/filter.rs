//! Filters for the sockets (`mxoe-wire.md` 1.5 and 18): which frames are for one endpoint, and which for the authority
//! only. The kernel runs them for every MXoE frame, so they are short.

use ether::ETHERNET_HEADER_LEN;
use mxoe::{
    engine::{DATA_BULK_BIT, DATA_BULK_OFFSET},
    wire::PacketType,
};
use netif::Instruction as I;

/// Bytes that programs of groups do not see.
const LINK_HEADER_LEN: u32 = ETHERNET_HEADER_LEN as u32;
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

/// A PULL_REPLY says here which path its data takes.
const BULK_OFFSET: u32 = DATA_BULK_OFFSET as u32;
const BULK_BIT: u32 = DATA_BULK_BIT as u32;

/// Passes the frames for this endpoint.
pub(crate) fn for_endpoint(endpoint: u8) -> [I; 26] {
    sort_out(endpoint, [I::pass(), I::pass(), I::drop()])
}

/// Passes the frames for this endpoint except data on the bulk path.
pub(crate) fn for_messages(endpoint: u8) -> [I; 26] {
    sort_out(endpoint, [I::pass(), I::drop(), I::drop()])
}

/// Passes only data for this endpoint on the bulk path.
pub(crate) fn for_data(endpoint: u8) -> [I; 9] {
    [
        I::load_byte(TYPE_OFFSET),
        I::and(TYPE_MASK),
        I::if_equal(code(PacketType::PullReply), 0, 5),
        I::load_byte(MAGIC_OFFSET),
        I::if_equal(u32::from(endpoint) ^ MAGIC_XOR, 0, 3),
        I::load_byte(BULK_OFFSET),
        I::if_any(BULK_BIT, 0, 1),
        I::pass(),
        I::drop(),
    ]
}

/// The sockets of an endpoint that share the kernel's lookup with the authority's port
/// ([`netif::AfPacket::share_lookup`]), in this order: one for bulk data, the ring, and one for all other frames (the
/// sink).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members {
    pub(crate) data: bool,
    pub(crate) sink: bool,
}

/// Chooses a member of a group: for data of this endpoint on the bulk path the socket for it, if there is one; for its
/// other frames the ring; for all other frames the authority's port or, when that is gone, the sink. Frames that are
/// too short to be read go to the first member, whose filter does not pass them, nor does the authority's; without a
/// filter the endpoint drops them.
pub(crate) fn among_sockets(endpoint: u8, members: Members) -> Vec<I> {
    let ring = u32::from(members.data);
    let others = if members.sink {
        // The last one of as many as there are, and of one fewer.
        let before_port = ring + 2;
        before_port * (before_port + 1) - 1
    } else {
        ring + 1
    };
    let mut program = vec![
        // To another station: received because a program asked for such frames, and for none of these sockets.
        I::load_packet_type(),
        I::if_at_least(libc::PACKET_OTHERHOST.into(), 0, 1),
        I::choose(others),
    ];
    program.extend(sort_out(endpoint, [I::choose(ring), I::choose(0), I::choose(others)]));
    for instruction in &mut program {
        if instruction.code == I::load_byte(0).code {
            instruction.operand -= LINK_HEADER_LEN;
        }
    }
    program
}

/// Ends with the first instruction for the endpoint's other frames, which reach it soonest, with the second for its
/// data on the bulk path, and with the third for all other frames.
fn sort_out(endpoint: u8, [own, data, others]: [I; 3]) -> [I; 26] {
    let endpoint = u32::from(endpoint);
    [
        I::load_byte(TYPE_OFFSET),
        I::and(TYPE_MASK),
        I::if_at_least(code(PacketType::PullReply), 5, 0),
        I::if_at_least(code(PacketType::Truc), 0, 3),
        I::load_byte(ENDPOINT_OFFSET),
        I::if_equal(endpoint, 0, 1),
        own,
        others,
        I::if_equal(code(PacketType::PullReply), 0, 6),
        I::load_byte(MAGIC_OFFSET),
        I::if_equal(endpoint ^ MAGIC_XOR, 0, 3),
        I::load_byte(BULK_OFFSET),
        I::if_any(BULK_BIT, 0, 11),
        data,
        others,
        I::if_equal(code(PacketType::NackMcp), 5, 0),
        I::if_equal(code(PacketType::NackLib), 2, 0),
        I::load_byte(ENDPOINT_OFFSET),
        I::skip(4),
        I::load_byte(NACK_LIB_OFFSET),
        I::skip(2),
        I::load_byte(MAGIC_OFFSET),
        I::xor(MAGIC_XOR),
        I::if_equal(endpoint, 0, 1),
        own,
        others,
    ]
}

/// Passes frames that are for no endpoint in `open`, a set of endpoint numbers below 32: the authority's frames.
pub(crate) fn for_authority(open: u32) -> Vec<I> {
    let mut program = load_endpoint().to_vec();
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

/// Loads the destination endpoint; a frame for none passes.
const fn load_endpoint() -> [I; 13] {
    [
        I::load_byte(TYPE_OFFSET),
        I::and(TYPE_MASK),
        I::if_equal(code(PacketType::PullReply), 6, 0),
        I::if_equal(code(PacketType::NackMcp), 5, 0),
        I::if_equal(code(PacketType::NackLib), 2, 0),
        I::if_at_least(code(PacketType::Truc), 6, 0),
        I::pass(),
        I::load_byte(NACK_LIB_OFFSET),
        I::skip(4),
        I::load_byte(MAGIC_OFFSET),
        I::xor(MAGIC_XOR),
        I::skip(1),
        I::load_byte(ENDPOINT_OFFSET),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn passes(program: &[I], frame: &[u8]) -> bool {
        run(program, frame) != 0
    }

    /// Runs a program as the kernel does, for the few instructions used here.
    pub(crate) fn run(program: &[I], frame: &[u8]) -> u32 {
        run_as(libc::PACKET_HOST, program, frame)
    }

    pub(crate) fn run_as(packet_type: u8, program: &[I], frame: &[u8]) -> u32 {
        let (mut a, mut x, mut at) = (0u32, 0u32, 0usize);
        loop {
            let i = program[at];
            at += 1;
            let same = |other: I| i.code == other.code;
            if i == I::load_packet_type() {
                a = packet_type.into();
            } else if same(I::load_len()) {
                a = frame.len() as u32;
            } else if same(I::load_byte(0)) {
                let Some(byte) = frame.get(i.operand as usize) else {
                    return 0;
                };
                a = u32::from(*byte);
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
                return i.operand;
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
        frame[16] = packet_type;
        match packet_type & 0x7f {
            42 | 45 => frame[31] = endpoint ^ 0x80,
            44 => frame[25] = endpoint,
            _ => frame[17] = endpoint,
        }
        frame
    }

    const ALL_MEMBERS: [Members; 4] = [
        Members {
            data: false,
            sink: false,
        },
        Members {
            data: false,
            sink: true,
        },
        Members {
            data: true,
            sink: false,
        },
        Members { data: true, sink: true },
    ];

    /// Returns how many sockets an endpoint has in a group.
    fn size(members: Members) -> u32 {
        1 + u32::from(members.data) + u32::from(members.sink)
    }

    /// Checks that a frame goes to the port, and without a port to the sink.
    fn assert_is_for_others(program: &[I], members: Members, frame: &[u8], packet_type: u8) {
        let chosen = run_as(packet_type, program, &frame[14..]);
        assert_eq!(chosen % (size(members) + 1), size(members), "{members:?}");
        if members.sink {
            assert_eq!(chosen % size(members), size(members) - 1, "{members:?}");
        }
    }

    /// Every slot of a pull, whichever path its data takes.
    #[test]
    fn every_frame_goes_to_its_endpoint_or_to_the_authority_and_to_nobody_else() {
        let open = 1 << 3 | 1 << 31;
        let authority = for_authority(open);
        for endpoint in [0, 3, 31, 32, 255] {
            let own = for_endpoint(endpoint);
            let other = for_endpoint(endpoint ^ 1);
            for packet_type in 35..=45 {
                for (mark, is_bulk) in [(0, false), (0x80, true), (0, true), (0x80, false)] {
                    let mut frame = frame(packet_type | mark, endpoint);
                    if packet_type == code(PacketType::PullReply) as u8 {
                        frame[DATA_BULK_OFFSET] = if is_bulk { DATA_BULK_BIT } else { !DATA_BULK_BIT };
                    }
                    assert!(passes(&own, &frame), "type {packet_type} endpoint {endpoint}");
                    assert!(!passes(&other, &frame));
                    let is_data = is_bulk && packet_type == code(PacketType::PullReply) as u8;
                    let messages = for_messages(endpoint);
                    assert_eq!(passes(&messages, &frame), !is_data);
                    let data = for_data(endpoint);
                    assert_eq!(passes(&data, &frame), is_data);
                    assert!(!passes(&for_data(endpoint ^ 1), &frame));
                    for members in ALL_MEMBERS {
                        let member = if is_data || !members.data { 0 } else { 1 };
                        let program = among_sockets(endpoint, members);
                        // With the port and without it.
                        for count in [size(members) + 1, size(members)] {
                            assert_eq!(run(&program, &frame[14..]) % count, member);
                        }
                        assert_is_for_others(&program, members, &frame, libc::PACKET_OTHERHOST);
                        let program = among_sockets(endpoint ^ 1, members);
                        assert_is_for_others(&program, members, &frame, libc::PACKET_HOST);
                    }
                    let is_open = endpoint < 32 && open & 1 << endpoint != 0;
                    assert_eq!(passes(&authority, &frame), !is_open);
                }
            }
            for packet_type in [0, 1, 3, 4, 34] {
                let frame = frame(packet_type, endpoint);
                assert!(!passes(&own, &frame) && passes(&authority, &frame));
                assert!(!passes(&for_messages(endpoint), &frame));
                assert!(!passes(&for_data(endpoint), &frame));
                for members in ALL_MEMBERS {
                    let program = among_sockets(endpoint, members);
                    assert_is_for_others(&program, members, &frame, libc::PACKET_HOST);
                }
            }
        }
        assert!(!passes(&for_endpoint(3), &frame(42, 3)[..20]));
    }
}
