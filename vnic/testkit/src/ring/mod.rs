//! The driver's half of one split ring on raw shared memory: descriptors, avail, used, kick and
//! call. It knows nothing about frames, which `queue` puts on top, and checks nothing that a test wants to break.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering, fence};

use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

use crate::memory::GuestMemory;
use crate::prefetch::prefetch_for_write;

mod hostile;

/// Descriptor flag: another descriptor follows (`next` is valid).
pub const DESC_NEXT: u16 = 1;
/// Descriptor flag: the device may write the buffer (and must not read it).
pub const DESC_WRITE: u16 = 2;
/// Descriptor flag: the buffer is a table of descriptors.
pub const DESC_INDIRECT: u16 = 4;
/// Avail flag: the driver wants no calls (ignored under EVENT_IDX).
pub const AVAIL_NO_INTERRUPT: u16 = 1;
/// Used flag: the device wants no kicks (ignored under EVENT_IDX).
pub const USED_NO_NOTIFY: u16 = 1;
/// Bytes of one descriptor.
pub const DESC_LEN: usize = 16;

/// One descriptor as it lies in memory (little-endian machines only, as vhost-user itself).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Descriptor {
    /// Guest-physical address of the buffer.
    pub addr: u64,
    /// Length of the buffer in bytes.
    pub len: u32,
    /// `DESC_*` bits.
    pub flags: u16,
    /// Index of the next descriptor of the chain.
    pub next: u16,
}

/// When the driver wants to be called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Interrupts {
    /// Never: the driver polls.
    #[default]
    Never,
    /// At every progress of the used ring.
    Always,
}

/// Where the three parts of a ring lie: guest addresses, and pointers to them in this process.
#[derive(Debug)]
struct Parts {
    desc_addr: u64,
    avail_addr: u64,
    used_addr: u64,
    desc: *mut Descriptor,
    avail: *mut u16,
    used: *mut u8,
}

/// The driver's half of a split ring.
#[derive(Debug)]
pub struct DriverRing {
    memory: Arc<GuestMemory>,
    size: u16,
    event_idx: bool,
    interrupts: Interrupts,
    parts: Parts,
    avail_idx: u16,
    published_idx: u16,
    used_seen: u16,
    never_event: u16,
    shadow_avail: Box<[u16]>,
    kick: EventFd,
    call: EventFd,
    calls: u64,
    kicks: u64,
}

// SAFETY: the pointers lead into `memory`, which the ring keeps alive and which may be used from any thread.
unsafe impl Send for DriverRing {}

impl DriverRing {
    /// Lays a ring of `size` entries (a power of two) out in `memory`. The ring starts empty.
    pub fn new(memory: &Arc<GuestMemory>, size: u16) -> io::Result<Self> {
        assert!(
            size.is_power_of_two() && size <= 32768,
            "ring size is a power of two up to 32768"
        );
        let entries = usize::from(size);
        let desc_addr = memory.allocate(entries * DESC_LEN, 4096);
        let avail_addr = memory.allocate(6 + 2 * entries, 64);
        // Own page: the device writes here, the driver there.
        let used_addr = memory.allocate(6 + 8 * entries, 4096);
        let ring = DriverRing {
            size,
            event_idx: false,
            interrupts: Interrupts::Never,
            parts: Parts {
                desc_addr,
                avail_addr,
                used_addr,
                desc: memory.pointer(desc_addr, entries * DESC_LEN).cast(),
                avail: memory.pointer(avail_addr, 6 + 2 * entries).cast(),
                used: memory.pointer(used_addr, 6 + 8 * entries),
            },
            avail_idx: 0,
            published_idx: 0,
            used_seen: 0,
            never_event: 0,
            shadow_avail: vec![0; entries].into_boxed_slice(),
            kick: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            call: EventFd::new(EFD_NONBLOCK | EFD_CLOEXEC)?,
            calls: 0,
            kicks: 0,
            memory: Arc::clone(memory),
        };
        Ok(ring)
    }

    /// Entries of the ring.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The memory the ring lies in.
    pub fn memory(&self) -> &Arc<GuestMemory> {
        &self.memory
    }

    /// Guest addresses of descriptor table, avail ring and used ring.
    pub fn addresses(&self) -> (u64, u64, u64) {
        (self.parts.desc_addr, self.parts.avail_addr, self.parts.used_addr)
    }

    /// The eventfd the driver writes when it made buffers available.
    pub fn kick_fd(&self) -> &EventFd {
        &self.kick
    }

    /// The eventfd the device writes when it used buffers.
    pub fn call_fd(&self) -> &EventFd {
        &self.call
    }

    /// Applies what was negotiated: whether EVENT_IDX holds, and when the driver wants calls.
    pub fn configure(&mut self, event_idx: bool, interrupts: Interrupts) {
        self.event_idx = event_idx;
        self.interrupts = interrupts;
        let flags = if interrupts == Interrupts::Never && !event_idx {
            AVAIL_NO_INTERRUPT
        } else {
            0
        };
        // SAFETY: `avail` points at 6 + 2*size bytes of mapped memory.
        unsafe { self.parts.avail.write_volatile(flags) };
        self.never_event = self.used_seen.wrapping_sub(1);
        self.write_used_event(self.used_seen);
    }

    fn write_used_event(&self, used_seen: u16) {
        let value = match self.interrupts {
            Interrupts::Always => used_seen,
            Interrupts::Never => self.never_event,
        };
        // SAFETY: the used_event field follows the `size` avail entries; the area was allocated for it.
        unsafe { self.parts.avail.add(2 + usize::from(self.size)).write_volatile(value) };
    }

    /// Asks for the cache line of descriptor `index` (modulo the size), which will be written soon.
    #[inline]
    pub fn prefetch_descriptor(&self, index: u16) {
        prefetch_for_write(
            self.parts
                .desc
                .wrapping_add(usize::from(index & (self.size - 1)))
                .cast(),
        );
    }

    /// Puts a descriptor at `index` (modulo the size) of the table.
    pub fn write_descriptor(&self, index: u16, descriptor: Descriptor) {
        // SAFETY: the index is masked to the table's length.
        unsafe {
            self.parts
                .desc
                .add(usize::from(index & (self.size - 1)))
                .write_volatile(descriptor)
        };
    }

    /// Adds the chain that starts at `head` to the avail ring; the device sees it after `publish`.
    /// The entry is written only when it differs from what already stands there: a driver that recycles its buffers in
    /// order then shares that cache line instead of taking it back each time.
    #[inline]
    pub fn push(&mut self, head: u16) {
        let slot = usize::from(self.avail_idx & (self.size - 1));
        if self.shadow_avail[slot] != head {
            self.shadow_avail[slot] = head;
            // SAFETY: slot < size, entries start after the two 16-bit header fields.
            unsafe { self.parts.avail.add(2 + slot).write_volatile(head) };
        }
        self.avail_idx = self.avail_idx.wrapping_add(1);
    }

    fn avail_idx_cell(&self) -> &AtomicU16 {
        // SAFETY: the avail index is the second, aligned 16-bit field of mapped memory that `self` keeps alive.
        unsafe { AtomicU16::from_ptr(self.parts.avail.add(1)) }
    }

    fn used_idx_cell(&self) -> &AtomicU16 {
        // SAFETY: the used index is the second, aligned 16-bit field of mapped memory that `self` keeps alive.
        unsafe { AtomicU16::from_ptr(self.parts.used.cast::<u16>().add(1)) }
    }

    /// Shows all pushed chains to the device; returns whether it wants a kick for them.
    #[inline]
    pub fn publish(&mut self) -> bool {
        let old = self.published_idx;
        if old == self.avail_idx {
            return false;
        }
        self.avail_idx_cell().store(self.avail_idx, Ordering::Release);
        self.published_idx = self.avail_idx;
        // The store above must be visible before the device's wish is read (virtio 1.2, 2.7.13.4.1).
        fence(Ordering::SeqCst);
        if self.event_idx {
            // SAFETY: avail_event follows the `size` used elements; the area was allocated for it.
            let event = unsafe {
                self.parts
                    .used
                    .add(4 + 8 * usize::from(self.size))
                    .cast::<u16>()
                    .read_volatile()
            };
            need_event(event, self.avail_idx, old)
        } else {
            // SAFETY: the flags are the first field of the used ring.
            unsafe { self.parts.used.cast::<u16>().read_volatile() & USED_NO_NOTIFY == 0 }
        }
    }

    /// `publish`, then a kick if the device wants one.
    #[inline]
    pub fn publish_and_kick(&mut self) {
        if self.publish() {
            self.kick();
        }
    }

    /// Kicks whether wanted or not (as QEMU does after a start).
    pub fn kick(&mut self) {
        self.kicks += 1;
        // Fails only when the counter is at its end (2^64-2 unread kicks): the device has a kick waiting then.
        let _ = self.kick.write(1);
    }

    /// Kicks written so far.
    pub fn kicks(&self) -> u64 {
        self.kicks
    }

    /// Used elements the driver has not taken yet.
    #[inline]
    pub fn used_pending(&self) -> u16 {
        self.used_idx_cell()
            .load(Ordering::Acquire)
            .wrapping_sub(self.used_seen)
    }

    /// The used element `offset` places after the oldest not taken: (head, bytes written).
    #[inline]
    pub fn used_element(&self, offset: u16) -> (u16, u32) {
        let slot = usize::from(self.used_seen.wrapping_add(offset) & (self.size - 1));
        // SAFETY: slot < size, elements of 8 bytes start after the two 16-bit header fields.
        let (id, len) = unsafe {
            let element = self.parts.used.add(4 + 8 * slot).cast::<u32>();
            (element.read_volatile(), element.add(1).read_volatile())
        };
        assert!(
            id < u32::from(self.size),
            "backend fault: used element names head {id} of a ring of {}",
            self.size
        );
        (id as u16, len)
    }

    /// Marks `count` used elements as taken and renews the wish for calls.
    #[inline]
    pub fn take_used(&mut self, count: u16) {
        self.used_seen = self.used_seen.wrapping_add(count);
        if !self.event_idx {
            return;
        }
        match self.interrupts {
            Interrupts::Always => self.write_used_event(self.used_seen),
            // "Never" is a mark just behind the index; it is moved seldom, but well before the index comes round to it.
            Interrupts::Never if self.used_seen.wrapping_sub(self.never_event) > 0x4000 => {
                self.never_event = self.used_seen.wrapping_sub(1);
                self.write_used_event(self.used_seen);
            }
            Interrupts::Never => {}
        }
    }

    /// The indices as the driver knows them: (published avail, used taken).
    pub fn indices(&self) -> (u16, u16) {
        (self.published_idx, self.used_seen)
    }

    /// The used index in memory: where a new backend has to go on (what QEMU sends as SET_VRING_BASE after a reconnect).
    pub fn used_idx(&self) -> u16 {
        self.used_idx_cell().load(Ordering::Acquire)
    }

    /// Reads the call eventfd without waiting; returns how many calls came since the last time.
    pub fn take_calls(&mut self) -> u64 {
        // WouldBlock means none.
        let calls = self.call.read().unwrap_or(0);
        self.calls += calls;
        calls
    }

    /// Calls counted by `take_calls` so far.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Waits up to `timeout_ms` for a call (or one already there); does not take it.
    pub fn wait_call(&self, timeout_ms: i32) -> io::Result<bool> {
        let mut poll = libc::pollfd {
            fd: self.call.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid pollfd, which poll(2) only writes within the call.
        match unsafe { libc::poll(&mut poll, 1, timeout_ms) } {
            -1 => Err(io::Error::last_os_error()),
            ready => Ok(ready > 0),
        }
    }

    /// Empties the ring as a driver does that starts the device anew. All indices, in memory and here, become `base`: 0
    /// for a fresh device, anything else to be near the 16-bit wrap.
    pub fn reset(&mut self, base: u16) {
        let entries = usize::from(self.size);
        self.memory.write(self.parts.avail_addr, &vec![0; 6 + 2 * entries]);
        self.memory.write(self.parts.used_addr, &vec![0; 6 + 8 * entries]);
        self.shadow_avail.fill(0);
        (self.avail_idx, self.published_idx, self.used_seen) = (base, base, base);
        self.avail_idx_cell().store(base, Ordering::Release);
        self.used_idx_cell().store(base, Ordering::Release);
        self.configure(self.event_idx, self.interrupts);
    }
}

/// Length in bytes of a descriptor table with `entries` descriptors.
pub fn table_len(entries: usize) -> u32 {
    (entries * DESC_LEN) as u32
}

/// Whether moving an index from `old` to `new` passes `event` (virtio 1.2, 2.7.10: vring_need_event).
#[inline]
pub fn need_event(event: u16, new: u16, old: u16) -> bool {
    new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
}
