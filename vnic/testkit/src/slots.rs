//! Buffers of a test ring: each slot has its descriptors, cut as the layout says, and a buffer, either
//! one for ever (descriptors are then written once) or another one each time, out of a larger pool, as real
//! drivers have it.

use std::sync::Arc;

use crate::memory::GuestMemory;
use crate::ring::{DESC_INDIRECT, DESC_LEN, DESC_NEXT, DESC_WRITE, Descriptor, DriverRing};

/// Bytes of the virtio-net header under VERSION_1 (with num_buffers).
pub const HEADER_LEN: usize = 12;

/// How one buffer (header and frame, contiguous in memory) is cut into descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// One descriptor.
    #[default]
    Single,
    /// The 12-byte header in a descriptor of its own, the frame in a second one.
    HeaderApart,
    /// So many descriptors of about equal length (at least 1).
    Pieces(u16),
    /// One descriptor that names a table of so many descriptors.
    Indirect(u16),
}

impl Layout {
    /// Ring descriptors that one buffer takes.
    pub fn descriptors(self) -> u16 {
        match self {
            Layout::Single | Layout::Indirect(_) => 1,
            Layout::HeaderApart => 2,
            Layout::Pieces(pieces) => pieces.max(1),
        }
    }

    /// Descriptors of the chain the device walks for a buffer.
    pub fn chain_len(self) -> u16 {
        match self {
            Layout::Indirect(pieces) => pieces.max(1),
            other => other.descriptors(),
        }
    }
}

/// All buffers of one ring.
#[derive(Debug)]
pub(super) struct Slots {
    layout: Layout,
    count: u16,
    capacity: usize,
    stride: usize,
    buffers_addr: u64,
    tables_addr: u64,
    buffers: *mut u8,
    lens: Box<[u32]>,
    write_flag: u16,
    /// Buffer of each slot.
    buffer_of: Box<[u32]>,
    /// Buffers that no slot has, in a circle; empty when every slot keeps its own.
    spare: Box<[u32]>,
    /// The one of them that was unused longest.
    oldest_spare: usize,
}

// SAFETY: `buffers` leads into guest memory that the ring beside this value keeps alive; see `GuestMemory`.
unsafe impl Send for Slots {}

impl Slots {
    /// As many slots as the ring has descriptors for, with `pool` buffers (at least one per slot) of `capacity` bytes,
    /// header included.
    pub fn new(
        memory: &Arc<GuestMemory>,
        ring_size: u16,
        layout: Layout,
        capacity: usize,
        pool: usize,
        device_writes: bool,
    ) -> Self {
        let count = ring_size / layout.descriptors();
        let pool = pool.max(usize::from(count));
        // An odd number of cache lines, so that the first lines of all buffers spread over all sets of the cache.
        let stride = (capacity.div_ceil(64) | 1) * 64;
        let buffers_addr = memory.allocate(stride * pool, 4096);
        let table_len = DESC_LEN * usize::from(layout.chain_len());
        let tables_addr = match layout {
            Layout::Indirect(_) => memory.allocate(table_len * usize::from(count), 64),
            _ => 0,
        };
        Slots {
            layout,
            count,
            capacity,
            stride,
            buffers_addr,
            tables_addr,
            buffers: memory.pointer(buffers_addr, stride * pool),
            lens: vec![0; usize::from(count)].into_boxed_slice(),
            write_flag: if device_writes { DESC_WRITE } else { 0 },
            buffer_of: (0..u32::from(count)).collect(),
            spare: (u32::from(count)..pool as u32).collect(),
            oldest_spare: 0,
        }
    }

    pub fn count(&self) -> u16 {
        self.count
    }

    /// Buffers in all.
    pub fn pool(&self) -> usize {
        self.buffer_of.len() + self.spare.len()
    }

    /// Start of buffer `buffer` of the pool.
    pub fn buffer_pointer(&self, buffer: usize) -> *mut u8 {
        assert!(buffer < self.pool());
        // SAFETY: below the pool's size, and `buffers` spans pool * stride bytes.
        unsafe { self.buffers.add(buffer * self.stride) }
    }

    /// Usable bytes of each buffer, header included.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    #[inline]
    pub fn head(&self, slot: u16) -> u16 {
        slot * self.layout.descriptors()
    }

    #[inline]
    pub fn slot_of(&self, head: u16) -> u16 {
        match self.layout {
            Layout::Single | Layout::Indirect(_) => head,
            other => head / other.descriptors(),
        }
    }

    /// Start of the slot's buffer: `capacity` bytes from there on belong to it.
    #[inline]
    pub fn pointer(&self, slot: u16) -> *mut u8 {
        let buffer = self.buffer_of[usize::from(slot)] as usize;
        // SAFETY: every number in `buffer_of` is below the pool's size, and `buffers` spans pool * stride bytes.
        unsafe { self.buffers.add(buffer * self.stride) }
    }

    /// Guest address of the slot's buffer.
    pub fn addr(&self, slot: u16) -> u64 {
        self.buffers_addr + u64::from(self.buffer_of[usize::from(slot)]) * self.stride as u64
    }

    /// Gives the slot, which the device must have returned, the buffer that was unused longest; the descriptors are
    /// written anew at the next `set_len`. Nothing happens without a pool.
    #[inline]
    pub fn rotate(&mut self, slot: u16) {
        if let Some(spare) = self.spare.get_mut(self.oldest_spare) {
            let slot = usize::from(slot);
            std::mem::swap(&mut self.buffer_of[slot], spare);
            self.lens[slot] = 0;
            self.oldest_spare += 1;
            if self.oldest_spare == self.spare.len() {
                self.oldest_spare = 0;
            }
        }
    }

    /// Makes the slot's descriptors cover `len` bytes; cheap when they do already.
    #[inline]
    pub fn set_len(&mut self, ring: &DriverRing, slot: u16, len: usize) {
        if self.lens[usize::from(slot)] != len as u32 {
            self.write_chain(ring, slot, len);
        }
    }

    /// Forgets what the descriptors hold, so that the next `set_len` writes them anew.
    pub fn forget(&mut self) {
        self.lens.fill(0);
    }

    #[inline]
    fn write_chain(&mut self, ring: &DriverRing, slot: u16, len: usize) {
        if self.layout == Layout::Single && len <= self.capacity {
            self.lens[usize::from(slot)] = len as u32;
            let (addr, flags) = (self.addr(slot), self.write_flag);
            let len = len as u32;
            ring.write_descriptor(
                slot,
                Descriptor {
                    addr,
                    len,
                    flags,
                    next: 0,
                },
            );
        } else {
            self.write_pieces(ring, slot, len);
        }
    }

    fn write_pieces(&mut self, ring: &DriverRing, slot: u16, len: usize) {
        assert!(
            len > 0 && len <= self.capacity,
            "{len} bytes do not fit a buffer of {}",
            self.capacity
        );
        self.lens[usize::from(slot)] = len as u32;
        let pieces = usize::from(self.layout.chain_len());
        let table = self.tables_addr + (DESC_LEN * pieces * usize::from(slot)) as u64;
        let mut at = 0;
        for piece in 0..pieces {
            let last = piece + 1 == pieces;
            let piece_len = match self.layout {
                _ if last => len - at,
                Layout::HeaderApart => HEADER_LEN.min(len - 1),
                // Too short a buffer for so many pieces leaves empty ones; those are legal.
                _ => (len / pieces).min(len - at),
            };
            let next = match self.layout {
                Layout::Indirect(_) => piece as u16 + 1,
                _ => self.head(slot) + piece as u16 + 1,
            };
            let descriptor = Descriptor {
                addr: self.addr(slot) + at as u64,
                len: piece_len as u32,
                flags: self.write_flag | if last { 0 } else { DESC_NEXT },
                next: if last { 0 } else { next },
            };
            match self.layout {
                Layout::Indirect(_) => {
                    write_descriptor(ring.memory(), table + (DESC_LEN * piece) as u64, descriptor);
                }
                _ => ring.write_descriptor(self.head(slot) + piece as u16, descriptor),
            }
            at += piece_len;
        }
        if let Layout::Indirect(_) = self.layout {
            let len = (DESC_LEN * pieces) as u32;
            ring.write_descriptor(
                slot,
                Descriptor {
                    addr: table,
                    len,
                    flags: DESC_INDIRECT,
                    next: 0,
                },
            );
        }
    }
}

/// Writes a descriptor anywhere in guest memory (indirect tables, hostile tests).
pub fn write_descriptor(memory: &GuestMemory, addr: u64, descriptor: Descriptor) {
    let mut bytes = [0; DESC_LEN];
    bytes[..8].copy_from_slice(&descriptor.addr.to_le_bytes());
    bytes[8..12].copy_from_slice(&descriptor.len.to_le_bytes());
    bytes[12..14].copy_from_slice(&descriptor.flags.to_le_bytes());
    bytes[14..].copy_from_slice(&descriptor.next.to_le_bytes());
    memory.write(addr, &bytes);
}
