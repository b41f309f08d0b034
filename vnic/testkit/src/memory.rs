//! Guest memory of the test frontend: one or several memfds, mapped side by side in one reserved
//! address range, so that a guest-physical address is a constant offset away from a host pointer.
//! It does not check what is stored in it: hostile tests write whatever they like.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use vhost::VhostUserMemoryRegionInfo;

/// Guest-physical address of the first region. Not zero, so that a forgotten address field (0) is
/// outside memory and gets noticed.
pub const MEMORY_BASE: u64 = 0x1_0000_0000;

/// Bytes of a page.
pub const PAGE_LEN: usize = 4096;

/// Where the memory of a guest behind an IOMMU begins, in guest addresses and in the frontend's own: its driver uses neither.
const BEHIND_IOMMU: [u64; 2] = [0x70_0000_0000, 0x5000_0000_0000];

/// Regions a frontend may have: what one SET_MEM_TABLE message can carry (vhost-user: 8).
pub const REGIONS_MAX: usize = 8;

/// One memfd and where the guest sees it.
#[derive(Debug)]
pub struct Region {
    /// Guest-physical address of its first byte.
    pub guest_addr: u64,
    /// Length in bytes.
    pub len: u64,
    fd: OwnedFd,
}

impl Region {
    /// The memfd behind the region.
    pub fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Cuts the memfd to `len` bytes while it stays mapped everywhere: touching the rest raises
    /// SIGBUS, in the backend as in this process.
    pub fn truncate(&self, len: u64) -> io::Result<()> {
        Ok(ftruncate(&self.fd, len)?)
    }
}

/// The memory of one guest. Regions follow each other without a gap, so a buffer may span two.
#[derive(Debug)]
pub struct GuestMemory {
    base: *mut u8,
    len: usize,
    regions: Vec<Region>,
    next_free: AtomicUsize,
    /// The driver's addresses are I/O addresses: each page of them lies at another place of the memory.
    scattered: bool,
}

// SAFETY: the mapping stays where it is when the value moves to another thread.
unsafe impl Send for GuestMemory {}
// SAFETY: the memory is shared with another process anyway, so all access is through raw pointers whose users take
// turns by the rules of the rings; the fields themselves are constant but for one atomic.
unsafe impl Sync for GuestMemory {}

impl GuestMemory {
    /// Reserves and maps `len` bytes in `regions` memfds of equal size (rounded up to 2 MiB each).
    pub fn new(len: usize, regions: usize) -> io::Result<Self> {
        assert!((1..=REGIONS_MAX).contains(&regions), "1 to {REGIONS_MAX} regions");
        let region_len = len.div_ceil(regions).next_multiple_of(2 << 20);
        let total = region_len * regions;
        // SAFETY: a fresh private reservation at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), total, ProtFlags::empty(), MapFlags::PRIVATE) }?;
        let base = base.cast::<u8>();
        let mut memory = GuestMemory {
            base,
            len: total,
            regions: Vec::new(),
            next_free: AtomicUsize::new(0),
            scattered: false,
        };
        for index in 0..regions {
            let fd = memfd_create("weft-test-guest", MemfdFlags::CLOEXEC)?;
            ftruncate(&fd, region_len as u64)?;
            // SAFETY: replaces a part of the reservation above, which nothing refers to yet.
            unsafe {
                mmap(
                    base.add(index * region_len).cast(),
                    region_len,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED | MapFlags::FIXED,
                    &fd,
                    0,
                )
            }?;
            let guest_addr = MEMORY_BASE + (index * region_len) as u64;
            memory.regions.push(Region {
                guest_addr,
                len: region_len as u64,
                fd,
            });
        }
        Ok(memory)
    }

    /// As [`new`](Self::new) for a guest behind an IOMMU: what this process and the driver see as one piece are pages in any order of the memory that
    /// is shared, and their addresses are I/O addresses.
    pub fn scattered(len: usize, regions: usize) -> io::Result<Self> {
        let mut memory = Self::new(len, regions)?;
        memory.scattered = true;
        for page in 0..memory.len / PAGE_LEN {
            let (region, offset) = memory.place(page);
            // SAFETY: replaces a page of the mapping that was just made, which nothing refers to yet.
            unsafe {
                mmap(
                    memory.base.add(page * PAGE_LEN).cast(),
                    PAGE_LEN,
                    ProtFlags::READ | ProtFlags::WRITE,
                    MapFlags::SHARED | MapFlags::FIXED,
                    &memory.regions[region].fd,
                    offset,
                )
            }?;
        }
        Ok(memory)
    }

    /// Where page `page` of the I/O addresses lies: the region, and the offset in it. Pages of a region are in the reverse order, odd
    /// before even ones, so that none continues its neighbour.
    fn place(&self, page: usize) -> (usize, u64) {
        let pages = self.regions[0].len as usize / PAGE_LEN;
        let (region, page) = (page / pages, pages - 1 - page % pages);
        let place = page / 2 + if page.is_multiple_of(2) { pages / 2 } else { 0 };
        (region, (place * PAGE_LEN) as u64)
    }

    /// The frontend's address of the page at I/O address `addr`, if that is in the memory.
    pub fn translated(&self, addr: u64) -> Option<u64> {
        let offset = addr.checked_sub(MEMORY_BASE)? as usize;
        let (region, place) = self.place((offset < self.len).then_some(offset / PAGE_LEN)?);
        Some(self.shift(BEHIND_IOMMU[1], region) + place)
    }

    fn shift(&self, base: u64, region: usize) -> u64 {
        base + self.regions[region].guest_addr - MEMORY_BASE
    }

    /// The regions in address order.
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Length of the whole memory in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the memory has no bytes (never true; for completeness).
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Hands out `len` bytes aligned to `align` (a power of two); returns the guest address.
    /// Nothing is ever given back. Panics when the memory is used up: the sizes are the test's own.
    pub fn allocate(&self, len: usize, align: usize) -> u64 {
        let take = |free: usize| Some(free.next_multiple_of(align) + len).filter(|end| *end <= self.len);
        let before = self.next_free.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        let before = before.unwrap_or_else(|_| panic!("test guest memory of {} bytes is used up", self.len));
        MEMORY_BASE + before.next_multiple_of(align) as u64
    }

    /// Host pointer to `len` bytes at guest address `addr`. Panics outside the memory.
    pub fn pointer(&self, addr: u64, len: usize) -> *mut u8 {
        let offset = addr
            .checked_sub(MEMORY_BASE)
            .expect("address below the test guest's memory") as usize;
        assert!(
            offset <= self.len && len <= self.len - offset,
            "address beyond the test guest's memory"
        );
        // SAFETY: offset was checked against the mapping's length just above.
        unsafe { self.base.add(offset) }
    }

    /// Copies `bytes` to guest address `addr`.
    pub fn write(&self, addr: u64, bytes: &[u8]) {
        let to = self.pointer(addr, bytes.len());
        // SAFETY: `pointer` checked the range; the mapping is writable and never overlaps a Rust slice.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) }
    }

    /// Copies from guest address `addr` to `bytes`.
    pub fn read(&self, addr: u64, bytes: &mut [u8]) {
        let from = self.pointer(addr, bytes.len());
        // SAFETY: as in `write`; the source is readable shared memory.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) }
    }

    /// Host address (this process) of guest address `addr`: what vhost-user calls the user address. Behind an IOMMU, rings are
    /// described by their I/O addresses instead.
    pub fn user_addr(&self, addr: u64) -> u64 {
        if self.scattered {
            addr
        } else {
            self.pointer(addr, 0) as u64
        }
    }

    /// The memory table as the `vhost` crate wants it.
    pub fn table(&self) -> Vec<VhostUserMemoryRegionInfo> {
        let info = |(index, region): (usize, &Region)| {
            let [guest, user] = if self.scattered {
                BEHIND_IOMMU.map(|base| self.shift(base, index))
            } else {
                [region.guest_addr, self.user_addr(region.guest_addr)]
            };
            VhostUserMemoryRegionInfo {
                guest_phys_addr: guest,
                memory_size: region.len,
                userspace_addr: user,
                mmap_offset: 0,
                mmap_handle: region.fd.as_raw_fd(),
            }
        };
        self.regions.iter().enumerate().map(info).collect()
    }
}

impl Drop for GuestMemory {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; pointers into it live no longer than this value.
        // A failure would mean the range was wrong; nothing can be done about it here.
        let _ = unsafe { munmap(self.base.cast(), self.len) };
    }
}
