//! The walk along a descriptor chain: each descriptor is read once from guest memory, and what it says is checked.

use super::rules::{Halt, Rule};
use super::{CHAIN_PIECES_MAX, Direction};
use crate::memory::{Access, MemoryMap, Piece, Translation};

/// Bytes of a descriptor.
pub(super) const DESC_LEN: usize = 16;
pub(super) const FLAG_NEXT: u16 = 1;
pub(super) const FLAG_WRITE: u16 = 2;
pub(super) const FLAG_INDIRECT: u16 = 4;

/// One descriptor, read once from guest memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
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
        Self::of_words(u64::from_le(low), u64::from_le(high))
    }

    #[inline]
    fn of_words(addr: u64, high: u64) -> Self {
        Self {
            addr,
            len: high as u32,
            flags: (high >> 32) as u16,
            next: (high >> 48) as u16,
        }
    }
}

/// The descriptor behind a chain's descriptor with these bytes, if there is one.
pub(super) fn next_of(descriptor: &[u8; DESC_LEN]) -> Option<u16> {
    let flags = u16::from_le_bytes([descriptor[12], descriptor[13]]);
    (flags & FLAG_NEXT != 0).then(|| u16::from_le_bytes([descriptor[14], descriptor[15]]))
}

/// Appends the pieces of one buffer to `pieces`, of which those from `first` on belong to its chain.
#[inline]
fn push_buffer(
    map: &MemoryMap,
    descriptor: Descriptor,
    direction: Direction,
    pieces: &mut Vec<Piece>,
    first: usize,
) -> Result<(), Halt> {
    let writable = descriptor.flags & FLAG_WRITE != 0;
    match direction {
        Direction::Transmit if writable => return Err(Rule::WritableInTransmit.into()),
        Direction::Receive if !writable => return Err(Rule::ReadOnlyInReceive.into()),
        _ => {}
    }
    let Descriptor { mut addr, mut len, .. } = descriptor;
    addr.checked_add(u64::from(len)).ok_or(Rule::LengthWraps)?;
    while len > 0 {
        let piece = map
            .translate(addr, len, direction.access())
            .map_err(|error| Halt::of(error, Rule::BufferOutsideMemory))?;
        if pieces.len() - first == CHAIN_PIECES_MAX {
            return Err(Rule::ChainTooScattered.into());
        }
        pieces.push(piece);
        addr += u64::from(piece.len);
        len -= piece.len;
    }
    Ok(())
}

/// A descriptor table in memory that can be read at once.
#[derive(Clone, Copy)]
pub(super) struct Table {
    pub base: *const u8,
    pub len: u16,
}

impl Table {
    #[inline]
    fn read(self, index: u16) -> Option<Descriptor> {
        // SAFETY: the table has `len` descriptors in mapped memory, and the index is below it.
        (index < self.len).then(|| unsafe { Descriptor::read(self.base.add(usize::from(index) * DESC_LEN)) })
    }
}

/// Where a long chain's descriptors are read from: the ring's table or an indirect one.
enum Source<'a> {
    Table(Table),
    /// An indirect table at an I/O address, which may lie across translations.
    Translated {
        translation: &'a Translation,
        addr: u64,
        len: u16,
    },
}

impl<'a> Source<'a> {
    /// The indirect table of `len` descriptors at `addr`.
    fn indirect(map: &'a MemoryMap, addr: u64, len: u16) -> Result<Self, Halt> {
        let bytes = u32::from(len) * DESC_LEN as u32;
        if let Some(translation) = map.translation() {
            addr.checked_add(u64::from(bytes)).ok_or(Rule::IndirectOutsideMemory)?;
            return Ok(Self::Translated { translation, addr, len });
        }
        let base = map
            .contiguous(addr, bytes, Access::Read)
            .map_err(|error| Halt::of(error, Rule::IndirectOutsideMemory))?;
        Ok(Self::Table(Table { base, len }))
    }

    /// Descriptor `index`, or `beyond` if the table does not have it.
    fn read(&self, index: u16, beyond: Rule) -> Result<Descriptor, Halt> {
        match self {
            Self::Table(table) => table.read(index).ok_or(Halt::Broken(beyond)),
            Self::Translated { translation, addr, len } => {
                if index >= *len {
                    return Err(beyond.into());
                }
                let mut bytes = [0; DESC_LEN];
                translation
                    .read(addr + u64::from(index) * DESC_LEN as u64, &mut bytes)
                    .map_err(|error| Halt::of(error, Rule::IndirectOutsideMemory))?;
                let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
                Ok(Descriptor::of_words(word(0), word(8)))
            }
        }
    }
}

/// The only piece of the chain at `head`, if it is one descriptor with one good piece; `None` says nothing but that
/// [`walk`] must be used.
#[inline(always)]
pub(super) fn single(table: Table, head: u16, map: &MemoryMap, direction: Direction) -> Option<Piece> {
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
/// Why the chain cannot be used; `pieces` may then hold a part of it.
pub(super) fn walk(
    table: Table,
    head: u16,
    indirect_allowed: bool,
    map: &MemoryMap,
    direction: Direction,
    pieces: &mut Vec<Piece>,
) -> Result<(), Halt> {
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
) -> Result<(), Halt> {
    let mut table = Source::Table(ring_table);
    let mut descriptor = first;
    let mut indirect = false;
    let start = pieces.len();
    // A chain holds at most as many descriptors as the ring, the ones of an indirect table included (virtio 2.7.5.3.1).
    for number in 0..=usize::from(ring_table.len) {
        if number > CHAIN_PIECES_MAX {
            return Err(Rule::ChainTooScattered.into());
        }
        if descriptor.flags & FLAG_INDIRECT != 0 {
            if !indirect_allowed {
                return Err(Rule::IndirectNotNegotiated.into());
            }
            if indirect || descriptor.flags & FLAG_NEXT != 0 {
                return Err(Rule::IndirectNested.into());
            }
            indirect = true;
            let count = descriptor.len / DESC_LEN as u32;
            if count == 0 || !descriptor.len.is_multiple_of(DESC_LEN as u32) || count > u32::from(ring_table.len) {
                return Err(Rule::IndirectLength.into());
            }
            table = Source::indirect(map, descriptor.addr, count as u16)?;
            descriptor = table.read(0, Rule::IndirectLength)?;
            continue;
        }
        push_buffer(map, descriptor, direction, pieces, start)?;
        if descriptor.flags & FLAG_NEXT == 0 {
            return Ok(());
        }
        descriptor = table.read(descriptor.next, Rule::NextOutOfRange)?;
    }
    Err(Rule::ChainTooLong.into())
}
