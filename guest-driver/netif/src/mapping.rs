//! Memory that is mapped and shared with the kernel: rings, and frames to be sent.

use std::{io, os::fd::BorrowedFd, ptr::NonNull};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Memory shared with the kernel.
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to this value alone; nothing in it is tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: it gives out pointers only; the user of one answers for what other threads do.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of what a descriptor stands for.
    pub(crate) fn new(of: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::with(of, 0, len, MapFlags::SHARED)
    }

    /// As [`Mapping::new`] from an offset on.
    pub(crate) fn shared(of: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        Self::with(of, offset, len, MapFlags::SHARED)
    }

    /// As [`Mapping::new`], only to be read.
    pub(crate) fn readable(of: BorrowedFd<'_>, len: usize) -> io::Result<Self> {
        Self::map(of, 0, len, MapFlags::SHARED, ProtFlags::READ)
    }

    /// As [`Mapping::new`] from an offset on, and fetches the pages at once.
    pub(crate) fn populated(of: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        Self::with(of, offset, len, MapFlags::SHARED | MapFlags::POPULATE)
    }

    fn with(of: BorrowedFd<'_>, offset: u64, len: usize, flags: MapFlags) -> io::Result<Self> {
        Self::map(of, offset, len, flags, ProtFlags::READ | ProtFlags::WRITE)
    }

    fn map(of: BorrowedFd<'_>, offset: u64, len: usize, flags: MapFlags, protection: ProtFlags) -> io::Result<Self> {
        // SAFETY: a fresh mapping at an address of the kernel's choice; the length of memory is sealed, and for rings the kernel refuses
        // a `len` that they do not have.
        let base = unsafe { mmap(std::ptr::null_mut(), len, protection, flags, of, offset)? };
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Self { base, len })
    }

    /// Returns where it begins.
    #[inline]
    pub(crate) const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns a pointer to the value at an offset that the kernel gave.
    pub(crate) fn at<T>(&self, offset: u64) -> io::Result<NonNull<T>> {
        let fits = |offset: usize| {
            let end = offset.checked_add(size_of::<T>());
            end.is_some_and(|end| end <= self.len) && offset.is_multiple_of(align_of::<T>())
        };
        let offset = usize::try_from(offset).ok().filter(|offset| fits(*offset));
        // SAFETY: inside the mapping, as was just checked.
        offset
            .map(|offset| unsafe { self.base.add(offset) }.cast())
            .ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; all pointers into it are dropped with it. A failure would leave it
        // mapped, which does no harm.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}
