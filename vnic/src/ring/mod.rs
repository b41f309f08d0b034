//! Virtqueues without I/O: layouts, index logic, and the walk along a descriptor chain, each guest-written field read
//! exactly once.
//!
//! One file per layout (`split`); what is common to layouts (descriptors, chains, rules) is here. Nothing here knows
//! what a frame is, who is to be notified how, or which thread runs it.

mod rules;
mod split;
#[cfg(test)]
mod tests;

pub use rules::{Rule, RuleCounters};
pub use split::{DriverWords, RingAddresses, SplitRing};

use crate::memory::{Access, MemoryMap, Piece};

/// The largest ring: what QEMU has for a vhost-user NIC; more only fills caches.
pub const RING_SIZE_MAX: u16 = 1024;

/// Pieces (and descriptors) of one chain: what the most scattered driver uses, Windows' with 256 fragments and their
/// headers; Linux needs 19 for a frame of 64 KiB, or 47 where it was built so, DPDK 33. The data plane works on a chain while all
/// its ports wait, so a chain of a whole large ring of single bytes would be their time.
pub const CHAIN_PIECES_MAX: usize = 258;

/// Pieces of all receive buffers that one frame takes: a whole ring of buffers in one piece each.
pub const FRAME_PIECES_MAX: usize = RING_SIZE_MAX as usize;

const DESC_LEN: usize = 16;
const FLAG_NEXT: u16 = 1;
const FLAG_WRITE: u16 = 2;
const FLAG_INDIRECT: u16 = 4;

/// In which direction the device moves data on a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The driver sends: the device only reads.
    Transmit,
    /// The driver receives: the device only writes.
    Receive,
}

impl Direction {
    const fn access(self) -> Access {
        match self {
            Self::Transmit => Access::Read,
            Self::Receive => Access::Write,
        }
    }
}

/// One descriptor, read once from guest memory.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    addr: u64,
    len: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    /// Reads the descriptor at `ptr`.
    ///
    /// # Safety
    /// 16 bytes at `ptr` must be readable; they may change at any time.
    #[inline]
    unsafe fn read(ptr: *const u8) -> Self {
        let (low, high) = if (ptr as usize).is_multiple_of(8) {
            // SAFETY: readable by contract, aligned as just checked.
            unsafe {
                (
                    ptr.cast::<u64>().read_volatile(),
                    ptr.cast::<u64>().add(1).read_volatile(),
                )
            }
        } else {
            // SAFETY: readable by contract; bytes have no alignment.
            let bytes: [u8; DESC_LEN] = std::array::from_fn(|i| unsafe { ptr.add(i).read_volatile() });
            let word = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
            (word(0), word(8))
        };
        let high = u64::from_le(high);
        Self {
            addr: u64::from_le(low),
            len: high as u32,
            flags: (high >> 32) as u16,
            next: (high >> 48) as u16,
        }
    }
}

/// Appends the pieces of one buffer to `pieces`, of which those from `first` on belong to its chain.
#[inline]
fn push_buffer(
    map: &MemoryMap,
    descriptor: Descriptor,
    direction: Direction,
    pieces: &mut Vec<Piece>,
    first: usize,
) -> Result<(), Rule> {
    let writable = descriptor.flags & FLAG_WRITE != 0;
    match direction {
        Direction::Transmit if writable => return Err(Rule::WritableInTransmit),
        Direction::Receive if !writable => return Err(Rule::ReadOnlyInReceive),
        _ => {}
    }
    let Descriptor { mut addr, mut len, .. } = descriptor;
    addr.checked_add(u64::from(len)).ok_or(Rule::LengthWraps)?;
    while len > 0 {
        let piece = map
            .translate(addr, len, direction.access())
            .map_err(|_| Rule::BufferOutsideMemory)?;
        if pieces.len() - first == CHAIN_PIECES_MAX {
            return Err(Rule::ChainTooScattered);
        }
        pieces.push(piece);
        addr += u64::from(piece.len);
        len -= piece.len;
    }
    Ok(())
}

/// Where a chain's descriptors are read from: the ring's table or an indirect one.
#[derive(Clone, Copy)]
struct Table {
    base: *const u8,
    len: u16,
}

impl Table {
    #[inline]
    fn read(self, index: u16) -> Option<Descriptor> {
        // SAFETY: the table has `len` descriptors in mapped memory, and the index is below it.
        (index < self.len).then(|| unsafe { Descriptor::read(self.base.add(usize::from(index) * DESC_LEN)) })
    }
}

/// The only piece of the chain at `head`, if it is one descriptor with one good piece; `None` says nothing but that
/// [`walk`] must be used.
#[inline(always)]
fn single(table: Table, head: u16, map: &MemoryMap, direction: Direction) -> Option<Piece> {
    let descriptor = table.read(head)?;
    let flags = match direction {
        Direction::Transmit => 0,
        Direction::Receive => FLAG_WRITE,
    };
    if descriptor.flags & (FLAG_NEXT | FLAG_INDIRECT | FLAG_WRITE) != flags || descriptor.len == 0 {
        return None;
    }
    let piece = map
        .translate(descriptor.addr, descriptor.len, direction.access())
        .ok()?;
    (piece.len == descriptor.len).then_some(piece)
}

/// Walks the chain that starts at descriptor `head` of `table` and appends its buffers to `pieces`.
///
/// # Errors
/// The rule that the chain breaks; `pieces` may then hold a part of it.
fn walk(
    table: Table,
    head: u16,
    indirect_allowed: bool,
    map: &MemoryMap,
    direction: Direction,
    pieces: &mut Vec<Piece>,
) -> Result<(), Rule> {
    let first = table.read(head).ok_or(Rule::HeadOutOfRange)?;
    if first.flags & (FLAG_NEXT | FLAG_INDIRECT) == 0 {
        let start = pieces.len();
        return push_buffer(map, first, direction, pieces, start);
    }
    walk_long(table, first, indirect_allowed, map, direction, pieces)
}

fn walk_long(
    ring_table: Table,
    first: Descriptor,
    indirect_allowed: bool,
    map: &MemoryMap,
    direction: Direction,
    pieces: &mut Vec<Piece>,
) -> Result<(), Rule> {
    let mut table = ring_table;
    let mut descriptor = first;
    let mut indirect = false;
    let start = pieces.len();
    // A chain holds at most as many descriptors as the ring, the ones of an indirect table included (virtio 2.7.5.3.1).
    for number in 0..=usize::from(ring_table.len) {
        if number > CHAIN_PIECES_MAX {
            return Err(Rule::ChainTooScattered);
        }
        if descriptor.flags & FLAG_INDIRECT != 0 {
            if !indirect_allowed {
                return Err(Rule::IndirectNotNegotiated);
            }
            if indirect || descriptor.flags & FLAG_NEXT != 0 {
                return Err(Rule::IndirectNested);
            }
            indirect = true;
            let count = descriptor.len / DESC_LEN as u32;
            if count == 0 || !descriptor.len.is_multiple_of(DESC_LEN as u32) || count > u32::from(ring_table.len) {
                return Err(Rule::IndirectLength);
            }
            let base = map
                .contiguous(descriptor.addr, descriptor.len, Access::Read)
                .map_err(|_| Rule::IndirectOutsideMemory)?;
            table = Table {
                base,
                len: count as u16,
            };
            descriptor = table.read(0).ok_or(Rule::IndirectLength)?;
            continue;
        }
        push_buffer(map, descriptor, direction, pieces, start)?;
        if descriptor.flags & FLAG_NEXT == 0 {
            return Ok(());
        }
        descriptor = table.read(descriptor.next).ok_or(Rule::NextOutOfRange)?;
    }
    Err(Rule::ChainTooLong)
}
