//! Filters for the sockets of ESP: which frames are for the wire ports of one block, and which for the authority. SYNs and EDP's frames
//! are always the authority's, since they name ports that programs bound, not wire ports.

use esp::wire::{BULK_FRAME_LEN_MIN, Flags, Kind};
use ether::ETHERNET_HEADER_LEN;
use netif::Instruction as I;

/// Where kind and flags are.
const KIND_OFFSET: u32 = 14;
const KIND_MASK: u32 = 0xf0;
/// Kinds below are EDP's.
const FIRST_OF_ESP: u32 = 3 << 4;
const SYN: u32 = 5 << 4;
/// The upper half of the destination port, which is its block.
const BLOCK_OFFSET: u32 = 17;

/// Kind and flag of data that is marked as one of many packets, if the frame is so long.
const BULK: u32 = (Kind::Data as u32) << 4 | Flags::LENGTH as u32;
const BULK_MASK: u32 = KIND_MASK | Flags::LENGTH as u32;
const BULK_LEN_MIN: u32 = BULK_FRAME_LEN_MIN as u32;
/// Bytes that programs of groups do not see.
const LINK_HEADER_LEN: u32 = ETHERNET_HEADER_LEN as u32;

/// A set of blocks, a bit each.
pub(crate) type BlockSet = [u32; 8];

/// Passes the frames for the wire ports of this block.
pub(crate) const fn for_block(block: u8) -> [I; 8] {
    [
        I::load_byte(KIND_OFFSET),
        I::and(KIND_MASK),
        I::if_at_least(FIRST_OF_ESP, 0, 4),
        I::if_equal(SYN, 3, 0),
        I::load_byte(BLOCK_OFFSET),
        I::if_equal(block as u32, 0, 1),
        I::pass(),
        I::drop(),
    ]
}

/// Passes the frames for the wire ports of this block that are marked as some of many.
pub(crate) const fn for_bulk(block: u8) -> [I; 9] {
    [
        I::load_byte(KIND_OFFSET),
        I::and(BULK_MASK),
        I::if_equal(BULK, 0, 5),
        I::load_len(),
        I::if_at_least(BULK_LEN_MIN, 0, 3),
        I::load_byte(BLOCK_OFFSET),
        I::if_equal(block as u32, 0, 1),
        I::pass(),
        I::drop(),
    ]
}

/// Passes all other frames for the wire ports of this block.
pub(crate) fn for_messages(block: u8) -> Vec<I> {
    let of_block = for_block(block);
    // Its last instruction drops.
    let to_drop = of_block.len() as u8 - 1;
    let mut program = vec![
        I::load_byte(KIND_OFFSET),
        I::and(BULK_MASK),
        I::if_equal(BULK, 0, 2),
        I::load_len(),
        I::if_at_least(BULK_LEN_MIN, to_drop, 0),
    ];
    program.extend(of_block);
    program
}

/// The sockets of a program that share the kernel's lookup with the authority's port, in the order in which they are members of the
/// group: the one for bulk data, the ring, and behind them the port.
pub(crate) const BULK_MEMBER: u32 = 0;
pub(crate) const RING_MEMBER: u32 = 1;
pub(crate) const PORT_MEMBER: u32 = 2;

/// Chooses a member for each frame. Filters drop what is for none of them, also what is too short to be read and when there is no port.
pub(crate) const fn among_sockets(block: u8) -> [I; 15] {
    [
        // To another station: received because a program asked for such frames.
        I::load_packet_type(),
        I::if_at_least(libc::PACKET_OTHERHOST as u32, 12, 0),
        I::load_byte(BLOCK_OFFSET - LINK_HEADER_LEN),
        I::if_equal(block as u32, 0, 10),
        I::load_byte(KIND_OFFSET - LINK_HEADER_LEN),
        I::and(BULK_MASK),
        I::if_equal(BULK, 0, 3),
        I::load_len(),
        I::if_at_least(BULK_LEN_MIN - LINK_HEADER_LEN, 0, 4),
        I::choose(BULK_MEMBER),
        I::and(KIND_MASK),
        I::if_at_least(FIRST_OF_ESP, 0, 2),
        I::if_equal(SYN, 1, 0),
        I::choose(RING_MEMBER),
        I::choose(PORT_MEMBER),
    ]
}

/// Passes the frames that are for no block in `taken`.
pub(crate) fn for_authority(taken: BlockSet) -> Vec<I> {
    let mut program = vec![
        I::load_byte(KIND_OFFSET),
        I::and(KIND_MASK),
        I::if_at_least(FIRST_OF_ESP, 0, 1),
        I::if_equal(SYN, 0, 1),
        I::pass(),
    ];
    for (end, blocks) in (32..).step_by(32).zip(taken) {
        // No block is behind those of the last word, and the kernel takes no jump behind the end.
        let others = if end == 256 { 6 } else { 7 };
        program.extend([
            I::load_byte(BLOCK_OFFSET),
            I::if_at_least(end, others, 0),
            I::and(31),
            I::to_index(),
            I::load(1),
            I::shift_left_by_index(),
            I::if_any(blocks, 1, 0),
            I::pass(),
            I::drop(),
        ]);
    }
    // No block has a number as high, but the kernel wants a program in which every jump leads somewhere.
    program.push(I::drop());
    program
}

/// Says whether a set has a block.
#[cfg(test)]
pub(crate) const fn has(set: &BlockSet, block: u8) -> bool {
    set[block as usize / 32] & 1 << (block % 32) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::tests::{run, run_as};

    fn frame(kind: u8, port: u16) -> Vec<u8> {
        let mut frame = vec![0xee; 60];
        frame[14] = kind << 4 | 0xf;
        frame[17..19].copy_from_slice(&port.to_be_bytes());
        frame
    }

    #[test]
    fn of_a_programs_two_sockets_one_gets_marked_packets_and_the_other_one_all_else_that_one_alone_would() {
        let block = 0x35;
        let among = among_sockets(block);
        for first in 0..=255 {
            for of in [block, block ^ 1, 0] {
                for len in [14, 15, 17, 18, 60, 127, 128, 1514] {
                    let mut whole = vec![0xee; 1514];
                    whole[14] = first;
                    whole[17] = of;
                    let bytes = &whole[..len];
                    let is_marked = first & 0xf8 == 0x38 && len >= 128;
                    let passes = |filter: &[I]| run(filter, bytes) != 0;
                    let (all, bulk, messages) = (
                        passes(&for_block(block)),
                        passes(&for_bulk(block)),
                        passes(&for_messages(block)),
                    );
                    assert_eq!(
                        (bulk, messages),
                        (all && is_marked, all && !is_marked),
                        "{first:x} {of} {len}"
                    );
                    if len < 18 {
                        // Numbers 0 and 1 have filters that drop it.
                        continue;
                    }
                    let wanted = match (bulk, messages) {
                        (true, _) => BULK_MEMBER,
                        (_, true) => RING_MEMBER,
                        _ => PORT_MEMBER,
                    };
                    assert_eq!(run(&among, &bytes[14..]), wanted, "{first:x} {of} {len}");
                    assert_eq!(run_as(libc::PACKET_OTHERHOST, &among, &bytes[14..]), PORT_MEMBER);
                }
            }
        }
    }

    #[test]
    fn every_frame_is_for_one_program_or_for_the_authority() {
        for taken in [vec![], vec![16], vec![16, 17, 47, 48, 200, 255], (16..=255).collect()] {
            let set = taken.iter().fold([0; 8], |mut set: BlockSet, block: &u8| {
                set[usize::from(*block) / 32] |= 1 << (block % 32);
                set
            });
            let authority = for_authority(set);
            for kind in 0..16 {
                for block in 0..=255 {
                    let frame = frame(kind, u16::from(block) << 8 | 0x5a);
                    let to_program = taken.contains(&block) && kind >= 3 && kind != 5;
                    assert_eq!(run(&authority, &frame) != 0, !to_program, "{taken:?} {kind} {block}");
                    assert_eq!(has(&set, block), taken.contains(&block));
                    let passes = |of| run(&for_block(of), &frame) != 0;
                    assert_eq!(passes(block), kind >= 3 && kind != 5, "{kind} {block}");
                    assert!(!passes(block ^ 1) && !passes(block ^ 0x80));
                }
            }
            for len in [0, 14, 15, 17] {
                assert_eq!(run(&for_block(0xee), &frame(4, 0xeeee)[..len]), 0);
            }
        }
    }
}
