//! A TPACKET_V2 receive ring: slots that the kernel fills and hands over one by one, read without a system call.
//!
//! Never version 3: its blocks reach user space only when full or after a time-out of a millisecond, which is far
//! longer than a message takes.

use std::{
    collections::VecDeque,
    io,
    os::fd::BorrowedFd,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use ether::ETHERNET_HEADER_LEN;
use libc::{TP_STATUS_KERNEL, TP_STATUS_USER, c_int, sockaddr_ll, tpacket_req, tpacket2_hdr};

use super::{socket::set_option, vnet};
use crate::{LentMemory, mapping::Mapping};

/// Bytes of one block of slots, the unit the kernel allocates: 16 pages, which it usually finds in one piece.
const BLOCK_LEN: usize = 64 * 1024;
/// Where the link-layer address of a slot begins: behind its header, aligned.
const ADDRESS_OFFSET: usize = align(size_of::<tpacket2_hdr>());
/// Bytes of a slot before the frame: header, address, and what the kernel keeps free for a link header (net/packet).
const FRAME_OFFSET_MAX: usize = align(libc::TPACKET2_HDRLEN + 16);
// The kernel lets what follows the link header begin there, so that a frame begins its link header earlier; a head before frames
// moves both on, by no more.
const _: () = assert!(vnet::HEAD_LEN <= ETHERNET_HEADER_LEN);
/// A VLAN tag that the card did not strip.
pub(super) const VLAN_TAG_LEN: usize = 4;

const fn align(len: usize) -> usize {
    (len + libc::TPACKET_ALIGNMENT - 1) & !(libc::TPACKET_ALIGNMENT - 1)
}

/// The layout of a receive ring's slots. A process that maps a ring which another process set up needs it, since the
/// kernel cannot be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    /// Bytes of a block.
    pub block_len: usize,
    /// Blocks.
    pub blocks: usize,
    /// Bytes of a slot: header, address and frame.
    pub slot_len: usize,
}

impl RingLayout {
    /// Lays out a ring of about `ring_len` bytes with slots for frames of `frame_len` bytes.
    pub(super) fn new(frame_len: usize, ring_len: usize) -> Self {
        let slot_len = align(FRAME_OFFSET_MAX + frame_len + VLAN_TAG_LEN);
        let block_len = BLOCK_LEN.max(slot_len.next_power_of_two());
        Self {
            block_len,
            blocks: ring_len.div_ceil(block_len).max(2),
            slot_len,
        }
    }

    const fn slots_per_block(&self) -> usize {
        self.block_len / self.slot_len
    }

    /// Returns the number of slots: the frames that the ring holds.
    pub const fn slots(&self) -> usize {
        self.slots_per_block() * self.blocks
    }

    /// Whether a ring can have these numbers.
    const fn is_sound(&self) -> bool {
        self.slot_len >= FRAME_OFFSET_MAX
            && self.slot_len <= self.block_len
            && self.blocks > 0
            && self.block_len.checked_mul(self.blocks).is_some()
    }

    /// Lays out a single slot of a page, for a socket that has no ring for frames.
    pub fn page() -> Self {
        let page_len = rustix::param::page_size();
        Self {
            block_len: page_len,
            blocks: 1,
            slot_len: page_len,
        }
    }

    /// Makes the kernel allocate the ring: PACKET_RX_RING, for which the socket must be set to TPACKET_V2, or PACKET_TX_RING.
    pub(super) fn request(&self, socket: BorrowedFd<'_>, option: c_int) -> io::Result<()> {
        let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let request = tpacket_req {
            tp_block_size: self.block_len.try_into().map_err(too_large)?,
            tp_block_nr: self.blocks.try_into().map_err(too_large)?,
            tp_frame_size: self.slot_len.try_into().map_err(too_large)?,
            tp_frame_nr: self.slots().try_into().map_err(too_large)?,
        };
        set_option(socket, option, &request)
    }
}

/// What is fetched of a frame at once when it is seen: the longest that is copied whole.
const FETCH_LEN: usize = 256;
/// Bytes of a cache line.
const LINE_LEN: usize = 64;

/// Fetches the cache lines of a short frame, which another core has written, all at once: fetched one after the other,
/// as they are read, each takes as long as handling the frame.
#[inline]
pub(super) fn fetch_ahead(frame: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in frame[..frame.len().min(FETCH_LEN)].chunks(LINE_LEN) {
        // SAFETY: a hint about memory that may be read; every processor of this architecture has it.
        unsafe {
            core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.as_ptr().cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = frame;
}

/// One frame in the ring.
pub(super) struct Slot<'a> {
    /// The frame.
    pub(super) bytes: &'a [u8],
    /// False if the slot was too short for it.
    pub(super) complete: bool,
    /// `PACKET_HOST`, `PACKET_OTHERHOST`, …
    pub(super) packet_type: u8,
}

impl Slot<'_> {
    /// Whether the frame came here and for this station.
    #[inline]
    pub(super) const fn is_ours(&self) -> bool {
        is_ours(self.packet_type)
    }
}

/// Whether a frame of this kind came here and for this station.
#[inline]
pub(super) const fn is_ours(packet_type: u8) -> bool {
    !matches!(packet_type, libc::PACKET_OTHERHOST | libc::PACKET_OUTGOING)
}

/// At most this part of the slots is kept at once, so that a burst finds room.
const KEPT_PART: usize = 8;

/// The mapped ring. The slot at `next` belongs to the kernel until its status says otherwise. Its address is kept
/// instead of computed, because it is read many times for every frame.
pub(super) struct RxRing {
    memory: Mapping,
    layout: RingLayout,
    /// The next slot: its memory, its block, its number there.
    next: NonNull<u8>,
    block: usize,
    in_block: usize,
    /// Slots before `next` that stay the user's, the oldest first.
    kept: VecDeque<NonNull<u8>>,
}

// SAFETY: the pointers lead into the mapping of this value alone; nothing in it is tied to a thread.
unsafe impl Send for RxRing {}

impl RxRing {
    /// Maps the ring of this layout that was requested for the socket.
    pub(super) fn map(socket: BorrowedFd<'_>, layout: RingLayout) -> io::Result<Self> {
        if !layout.is_sound() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let memory = Mapping::new(socket, layout.block_len * layout.blocks)?;
        Ok(Self {
            next: memory.base(),
            memory,
            layout,
            block: 0,
            in_block: 0,
            kept: VecDeque::new(),
        })
    }

    fn status(&self) -> &AtomicU32 {
        self.status_of(self.next)
    }

    /// Returns the status of a slot, whose address is that of a slot of this ring.
    fn status_of(&self, slot: NonNull<u8>) -> &AtomicU32 {
        // SAFETY: the status is the first field of the slot's header, aligned to 16; kernel and user both access it as
        // one 32-bit word, and the mapping lives as long as `self`.
        unsafe { AtomicU32::from_ptr(slot.cast().as_ptr()) }
    }

    /// Whether the kernel has handed the next slot over.
    #[inline]
    pub(super) fn is_ready(&self) -> bool {
        self.status().load(Ordering::Acquire) & TP_STATUS_USER != 0
    }

    /// Returns the next slot, if the kernel has handed it over. It stays the user's until [`RxRing::release`].
    #[inline]
    pub(super) fn peek(&self) -> Option<Slot<'_>> {
        if !self.is_ready() {
            return None;
        }
        let (slot, slot_len) = (self.next, self.layout.slot_len);
        // SAFETY: the acquired status says that the kernel has finished writing this slot and will not touch it until
        // it is released, which needs `&mut self`; header and address lie inside the slot at these offsets.
        let (header, address) = unsafe {
            (
                slot.cast::<tpacket2_hdr>().read(),
                slot.add(ADDRESS_OFFSET).cast::<sockaddr_ll>().read_unaligned(),
            )
        };
        let start = usize::from(header.tp_mac).min(slot_len);
        let len = (header.tp_snaplen as usize).min(slot_len - start);
        // SAFETY: `start + len` was limited to the slot; the bytes are initialised (the kernel zeroes the ring) and not
        // written while the slot is the user's.
        let bytes = unsafe { std::slice::from_raw_parts(slot.add(start).as_ptr(), len) };
        Some(Slot {
            bytes,
            complete: header.tp_snaplen == header.tp_len,
            packet_type: address.sll_pkttype,
        })
    }

    /// Gives the slot last peeked at back to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        self.status().store(TP_STATUS_KERNEL, Ordering::Release);
        self.advance();
    }

    /// Returns the memory of all slots.
    pub(super) const fn memory(&self) -> LentMemory {
        LentMemory {
            base: self.memory.base(),
            len: self.layout.block_len * self.layout.blocks,
        }
    }

    /// Returns how many slots can be kept.
    pub(super) const fn kept_max(&self) -> usize {
        self.layout.slots() / KEPT_PART
    }

    /// Keeps the slot last peeked at from the kernel until [`RxRing::release_kept`]. The kernel, which fills slots in
    /// order, drops frames when it comes round to it before that.
    pub(super) fn keep(&mut self) {
        self.kept.push_back(self.next);
        self.advance();
    }

    /// Gives the slot that was kept first back to the kernel.
    pub(super) fn release_kept(&mut self) {
        if let Some(slot) = self.kept.pop_front() {
            self.status_of(slot).store(TP_STATUS_KERNEL, Ordering::Release);
        }
    }

    /// Goes on to the slot after `next`.
    #[inline]
    fn advance(&mut self) {
        self.in_block += 1;
        let mut offset = self.in_block * self.layout.slot_len;
        if offset + self.layout.slot_len > self.layout.block_len {
            self.in_block = 0;
            self.block = if self.block + 1 == self.layout.blocks {
                0
            } else {
                self.block + 1
            };
            offset = 0;
        }
        // SAFETY: `block` < `blocks` and the slot ends inside its block, so it lies inside the mapping.
        self.next = unsafe { self.memory.base().add(self.block * self.layout.block_len + offset) };
    }
}
