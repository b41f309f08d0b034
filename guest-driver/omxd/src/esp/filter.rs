//! Filters for the sockets of ESP: which frames are for the wire ports of one block, and which for the authority. SYNs and EDP's frames
//! are always the authority's, since they name ports that programs bound, not wire ports.

use netif::Instruction as I;

/// Where kind and flags are.
const KIND_OFFSET: u32 = 14;
const KIND_MASK: u32 = 0xf0;
/// Kinds below are EDP's.
const FIRST_OF_ESP: u32 = 3 << 4;
const SYN: u32 = 5 << 4;
/// The upper half of the destination port, which is its block.
const BLOCK_OFFSET: u32 = 17;

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
    use crate::filter::tests::run;

    fn frame(kind: u8, port: u16) -> Vec<u8> {
        let mut frame = vec![0xee; 60];
        frame[14] = kind << 4 | 0xf;
        frame[17..19].copy_from_slice(&port.to_be_bytes());
        frame
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
