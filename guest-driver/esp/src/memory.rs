//! Memory for the bytes of connections: blocks of a few sizes, used again when a connection has nothing to keep. So an idle connection
//! has none, and a busy one allocates nothing.

use alloc::{boxed::Box, vec, vec::Vec};

use crate::BUFFER_MAX;

const CLASS_0_LEN: usize = 2 << 10;
const CLASSES: usize = (BUFFER_MAX as usize / CLASS_0_LEN).ilog2() as usize + 1;

/// A block of a power of two of bytes, at least 2 KiB; the default has none.
pub(crate) type Block = Box<[u8]>;

/// What a block is for. Bytes that are next for a reader may fill all memory, since the reader frees it. The others leave some of it, so
/// that what they wait for finds room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// A packet that came before an earlier one: half.
    Park,
    /// Bytes to be sent: three quarters.
    Send,
    /// Bytes to be read.
    Read,
}

#[derive(Debug)]
pub(crate) struct Memory {
    spare: [Vec<Block>; CLASSES],
    /// Bytes that connections have.
    used: usize,
    spare_bytes: usize,
    used_max: usize,
    spare_max: usize,
}

/// The smallest class whose blocks have `len` bytes.
const fn class_of(len: usize) -> usize {
    let units = len.div_ceil(CLASS_0_LEN);
    units.next_power_of_two().ilog2() as usize
}

impl Memory {
    pub(crate) fn new(used_max: usize, spare_max: usize) -> Self {
        Self {
            spare: [const { Vec::new() }; CLASSES],
            used: 0,
            spare_bytes: 0,
            used_max,
            spare_max,
        }
    }

    /// A block of at least `len` bytes; none if the limit is reached, or there is no such block.
    pub(crate) fn take(&mut self, len: usize, purpose: Purpose) -> Option<Block> {
        let class = class_of(len);
        let len = CLASS_0_LEN << class;
        let used_max = match purpose {
            Purpose::Park => self.used_max / 2,
            Purpose::Send => self.used_max / 4 * 3,
            Purpose::Read => self.used_max,
        };
        if class >= CLASSES || self.used + len > used_max {
            return None;
        }
        self.used += len;
        Some(match self.spare[class].pop() {
            Some(block) => {
                self.spare_bytes -= len;
                block
            }
            None => vec![0; len].into(),
        })
    }

    /// Takes a block back.
    pub(crate) fn give(&mut self, block: Block) {
        let len = block.len();
        if len == 0 {
            return;
        }
        self.used -= len;
        if self.spare_bytes + len <= self.spare_max {
            self.spare_bytes += len;
            self.spare[class_of(len)].push(block);
        }
    }

    /// Whether bytes to be sent find room.
    pub(crate) const fn has_room_to_send(&self) -> bool {
        self.used <= self.used_max / 2
    }

    /// Bytes that connections have.
    pub(crate) const fn used(&self) -> usize {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_used_again_within_the_limits() {
        let mut memory = Memory::new(10 << 10, 4 << 10);
        let a = memory.take(1, Purpose::Read).unwrap();
        let b = memory.take(2_049, Purpose::Read).unwrap();
        let c = memory.take(4_096, Purpose::Read).unwrap();
        assert_eq!([a.len(), b.len(), c.len()], [2_048, 4_096, 4_096]);
        assert_eq!((memory.used(), memory.take(1, Purpose::Read)), (10 << 10, None));
        assert_eq!(
            (memory.take(1, Purpose::Park), memory.take(1, Purpose::Send)),
            (None, None)
        );
        let address = b.as_ptr();
        memory.give(b);
        memory.give(c);
        assert_eq!(memory.spare_bytes, 4 << 10, "the second is freed");
        let again = memory.take(3_000, Purpose::Read).unwrap();
        assert_eq!(again.as_ptr(), address);
        memory.give(Block::default());
        assert_eq!(
            Memory::new(usize::MAX, 0).take(BUFFER_MAX as usize + 1, Purpose::Read),
            None
        );
        assert_eq!(
            Memory::new(usize::MAX, 0)
                .take(BUFFER_MAX as usize, Purpose::Read)
                .unwrap()
                .len(),
            4 << 20
        );
    }
}
