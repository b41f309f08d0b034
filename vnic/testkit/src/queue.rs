//! The two directions of a queue pair: a transmit ring and a receive ring with fixed buffers.
//! It takes no locks and allocates nothing per frame; batches are the caller's (`push` … `flush`, `poll` with a limit).

use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::memory::GuestMemory;
use crate::prefetch::{prefetch, prefetch_for_write};
use crate::ring::DriverRing;
use crate::slots::{HEADER_LEN, Layout, Slots};

/// Frames a merged receive chain may hold in bytes (64 KiB segment plus headers, rounded up).
const MERGED_MAX: usize = 80 << 10;

/// The guest's transmit direction.
#[derive(Debug)]
pub struct TxRing {
    /// The raw ring, for hostile tests and for calls and kicks.
    pub ring: DriverRing,
    slots: Slots,
    next_slot: u16,
    oldest_slot: u16,
    in_flight: u16,
}

impl TxRing {
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        size: u16,
        layout: Layout,
        capacity: usize,
        pool: usize,
    ) -> io::Result<Self> {
        let ring = DriverRing::new(memory, size)?;
        let slots = Slots::new(memory, size, layout, capacity, pool, false);
        Ok(TxRing {
            ring,
            slots,
            next_slot: 0,
            oldest_slot: 0,
            in_flight: 0,
        })
    }

    /// Frames the ring holds at most.
    pub fn slots(&self) -> u16 {
        self.slots.count()
    }

    /// Frames given to the device and not used yet, as of the last `free`.
    pub fn in_flight(&self) -> u16 {
        self.in_flight
    }

    /// Takes what the device has used and returns how many frames may be pushed now. Panics when the backend completes
    /// something it was not given, or out of order: `vnicd` promises order, and so does DPDK's vhost library.
    #[inline]
    pub fn free(&mut self) -> u16 {
        let used = self.ring.used_pending();
        assert!(
            used <= self.in_flight,
            "backend fault: {used} transmit buffers used, {} given",
            self.in_flight
        );
        for offset in 0..used {
            let (head, _) = self.ring.used_element(offset);
            assert!(
                head == self.slots.head(self.oldest_slot),
                "backend fault: transmit completed out of order"
            );
            self.oldest_slot = self.after(self.oldest_slot);
        }
        if used > 0 {
            self.ring.take_used(used);
            if self.in_flight == self.slots.count() {
                // The next slot was not free when `push` came to it.
                self.slots.rotate(self.next_slot);
            }
            self.in_flight -= used;
        }
        self.slots.count() - self.in_flight
    }

    #[inline]
    fn after(&self, slot: u16) -> u16 {
        if slot + 1 == self.slots.count() { 0 } else { slot + 1 }
    }

    /// Asks for the cache lines that the next `count` calls of `next_buffer` and `push` will write, as far as there are
    /// free slots: the device's processor had them last, and they come while others are worked on.
    #[inline]
    pub fn prefetch(&self, count: u16) {
        let mut slot = self.next_slot;
        for _ in 0..count.min(self.slots.count() - self.in_flight) {
            self.ring.prefetch_descriptor(self.slots.head(slot));
            prefetch_for_write(self.slots.pointer(slot));
            slot = self.after(slot);
        }
    }

    /// Header and frame area of the slot that the next `push` sends. Only valid while `free` says there is one.
    #[inline]
    pub fn next_buffer(&mut self) -> &mut [u8] {
        assert!(self.in_flight < self.slots.count(), "no free transmit slot");
        // SAFETY: the slot is not in flight, so the device has no business with these `capacity` bytes; the borrow of
        // `self` keeps anybody in this process from pushing it meanwhile.
        unsafe { std::slice::from_raw_parts_mut(self.slots.pointer(self.next_slot), self.slots.capacity()) }
    }

    /// Writes every buffer once (all must be free), so that `push` alone sends a frame.
    pub fn prefill(&mut self, mut write: impl FnMut(&mut [u8])) {
        assert!(self.in_flight == 0, "transmit buffers are in flight");
        for buffer in 0..self.slots.pool() {
            let at = self.slots.buffer_pointer(buffer);
            // SAFETY: nothing is in flight, so no buffer belongs to the device.
            write(unsafe { std::slice::from_raw_parts_mut(at, self.slots.capacity()) });
        }
    }

    /// Adds the next slot with `len` bytes (header included); the device sees it after `flush`.
    #[inline]
    pub fn push(&mut self, len: usize) {
        debug_assert!(self.in_flight < self.slots.count());
        let slot = self.next_slot;
        self.slots.set_len(&self.ring, slot, len);
        self.ring.push(self.slots.head(slot));
        self.next_slot = self.after(slot);
        self.in_flight += 1;
        if self.in_flight < self.slots.count() {
            self.slots.rotate(self.next_slot);
        }
    }

    /// Shows all pushed frames to the device and kicks it when it asked for that.
    #[inline]
    pub fn flush(&mut self) {
        self.ring.publish_and_kick();
    }

    /// Sends one frame with an empty virtio-net header; false when the ring is full.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        self.send_with_header(&[0; HEADER_LEN], frame)
    }

    /// Sends one frame with a header of the caller's; false when the ring is full.
    pub fn send_with_header(&mut self, header: &[u8; HEADER_LEN], frame: &[u8]) -> bool {
        if self.free() == 0 {
            return false;
        }
        let buffer = self.next_buffer();
        buffer[..HEADER_LEN].copy_from_slice(header);
        buffer[HEADER_LEN..HEADER_LEN + frame.len()].copy_from_slice(frame);
        self.push(HEADER_LEN + frame.len());
        self.flush();
        true
    }

    /// Starts anew with an empty ring whose indices are `base` (device reset).
    pub fn reset(&mut self, base: u16) {
        self.ring.reset(base);
        self.slots.forget();
        (self.next_slot, self.oldest_slot, self.in_flight) = (0, 0, 0);
    }
}

/// The guest's receive direction.
#[derive(Debug)]
pub struct RxRing {
    /// The raw ring, for hostile tests and for calls and kicks.
    pub ring: DriverRing,
    slots: Slots,
    mergeable: bool,
    refill: bool,
    withheld: Vec<u16>,
    merged: Vec<u8>,
}

impl RxRing {
    pub(super) fn new(
        memory: &Arc<GuestMemory>,
        size: u16,
        layout: Layout,
        capacity: usize,
        pool: usize,
    ) -> io::Result<Self> {
        let ring = DriverRing::new(memory, size)?;
        let slots = Slots::new(memory, size, layout, capacity, pool, true);
        let withheld = (0..slots.count()).collect();
        Ok(RxRing {
            ring,
            slots,
            mergeable: false,
            refill: true,
            withheld,
            merged: vec![0; MERGED_MAX],
        })
    }

    pub(super) fn set_mergeable(&mut self, mergeable: bool) {
        self.mergeable = mergeable;
    }

    /// Buffers the ring holds at most.
    pub fn slots(&self) -> u16 {
        self.slots.count()
    }

    /// Whether `poll` gives buffers back to the device. While off, taken buffers are withheld; switching on posts them.
    pub fn set_refill(&mut self, refill: bool) {
        self.refill = refill;
        if refill {
            self.post_withheld();
        }
    }

    /// Gives all buffers the driver holds to the device and kicks it when it asked for that.
    pub fn post_withheld(&mut self) {
        let capacity = self.slots.capacity();
        for index in 0..self.withheld.len() {
            let slot = self.withheld[index];
            self.slots.set_len(&self.ring, slot, capacity);
            self.ring.push(self.slots.head(slot));
        }
        self.withheld.clear();
        self.ring.publish_and_kick();
    }

    /// Received buffers that wait to be polled.
    #[inline]
    pub fn pending(&self) -> u16 {
        self.ring.used_pending()
    }

    /// Takes up to `limit` frames: `handle(header, frame)` for each, then refills in one batch. Returns the frames taken.
    /// Panics when the backend breaks the rules (see the messages).
    #[inline]
    pub fn poll(&mut self, limit: usize, mut handle: impl FnMut(&[u8], &[u8])) -> usize {
        let used = self.ring.used_pending();
        if used == 0 {
            return 0;
        }
        assert!(
            used <= self.slots.count(),
            "backend fault: more receive buffers used than exist"
        );
        let ahead = usize::from(used).min(limit) as u16;
        for offset in 0..ahead {
            let (head, _) = self.ring.used_element(offset);
            prefetch(self.slots.pointer(self.slots.slot_of(head)));
            if self.refill {
                self.ring.prefetch_descriptor(head);
            }
        }
        let (mut offset, mut frames) = (0, 0);
        while offset < used && frames < limit {
            offset += self.take_frame(offset, used, &mut handle);
            frames += 1;
        }
        self.ring.take_used(offset);
        if self.refill {
            self.ring.publish_and_kick();
        }
        frames
    }

    /// Takes all frames, as a driver that was called does: it looks again after it renewed its wish for calls, since the device
    /// may have published more in between and seen the old wish (virtio 1.2, 2.7.14). Returns the frames taken.
    pub fn poll_called(&mut self, mut handle: impl FnMut(&[u8], &[u8])) -> usize {
        let mut frames = 0;
        loop {
            let more = self.poll(usize::MAX, &mut handle);
            if more == 0 {
                return frames;
            }
            frames += more;
            // The wish must be visible before the used index is read again.
            fence(Ordering::SeqCst);
        }
    }

    /// Handles the frame that starts at used element `first`; returns the buffers it took.
    #[inline]
    fn take_frame(&mut self, first: u16, used: u16, handle: &mut impl FnMut(&[u8], &[u8])) -> u16 {
        let (head, len) = self.ring.used_element(first);
        let slot = self.slots.slot_of(head);
        // SAFETY: as for `filled_slice`; nothing is recycled while the slices are in use.
        let buffer = unsafe { filled_slice(&self.slots, slot, len) };
        assert!(
            buffer.len() >= HEADER_LEN,
            "backend fault: {len} bytes are too few for a virtio-net header"
        );
        let (header, frame) = buffer.split_at(HEADER_LEN);
        let buffers = if self.mergeable {
            u16::from_le_bytes([header[10], header[11]])
        } else {
            1
        };
        if buffers == 1 {
            handle(header, frame);
            self.recycle(slot);
            return 1;
        }
        assert!(buffers != 0, "backend fault: num_buffers is 0");
        assert!(
            buffers <= used - first,
            "backend fault: a merged frame was published in parts"
        );
        let header: [u8; HEADER_LEN] = header.try_into().expect("split at 12");
        let mut total = frame.len();
        let mut merged = std::mem::take(&mut self.merged);
        merged[..total].copy_from_slice(frame);
        self.recycle(slot);
        for offset in 1..buffers {
            let (head, len) = self.ring.used_element(first + offset);
            let slot = self.slots.slot_of(head);
            // SAFETY: as above.
            let part = unsafe { filled_slice(&self.slots, slot, len) };
            merged[total..total + part.len()].copy_from_slice(part);
            total += part.len();
            self.recycle(slot);
        }
        handle(&header, &merged[..total]);
        self.merged = merged;
        buffers
    }

    #[inline]
    fn recycle(&mut self, slot: u16) {
        if self.refill {
            self.slots.rotate(slot);
            self.slots.set_len(&self.ring, slot, self.slots.capacity());
            self.ring.push(self.slots.head(slot));
        } else {
            self.withheld.push(slot);
        }
    }

    /// Starts anew with an empty ring whose indices are `base` and all buffers with the driver (device reset).
    pub fn reset(&mut self, base: u16) {
        self.ring.reset(base);
        self.slots.forget();
        self.withheld.clear();
        self.withheld.extend(0..self.slots.count());
    }
}

/// The bytes the device wrote to a receive buffer.
///
/// # Safety
/// The device has given the buffer back, and it is not published again while the slice lives (which may be longer
/// than the borrow of `slots`).
#[inline]
unsafe fn filled_slice<'a>(slots: &Slots, slot: u16, len: u32) -> &'a [u8] {
    let len = len as usize;
    assert!(
        len <= slots.capacity(),
        "backend fault: {len} bytes written to a smaller buffer"
    );
    // SAFETY: within the slot's `capacity` bytes of mapped memory; nothing writes to it (the caller's promise).
    unsafe { std::slice::from_raw_parts(slots.pointer(slot), len) }
}
