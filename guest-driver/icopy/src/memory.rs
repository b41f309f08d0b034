//! Memory for copies that belongs to no Rust value: only raw reads and writes touch it, as the card does.

use std::{io, ptr::NonNull, sync::Arc};

use netif::virtio::PAGE;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Memory that [`crate::Engine::allocate`] made and registered. It stays mapped as long as the engine knows it, or a value of this
/// type exists.
#[derive(Clone)]
pub struct Memory(Arc<Mapped>);

struct Mapped {
    base: NonNull<u8>,
    len: usize,
    /// Bytes that are mapped.
    mapped: usize,
}

// SAFETY: the mapping belongs to this value and is not tied to a thread.
unsafe impl Send for Mapped {}
// SAFETY: it is read and written by raw copies only, whose bytes any value may have.
unsafe impl Sync for Mapped {}

impl Memory {
    /// Maps `len` bytes, all zero.
    pub(crate) fn new(len: usize) -> io::Result<Self> {
        let mapped = len
            .max(1)
            .checked_next_multiple_of(PAGE)
            .ok_or(io::ErrorKind::OutOfMemory)?;
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let base = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, protection, flags)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let memory = Self(Arc::new(Mapped { base, len, mapped }));
        // Large pages make long pieces. Where there are none, small ones do.
        // SAFETY: exactly the mapping that was just made.
        let _ = unsafe { madvise(base.as_ptr().cast(), mapped, Advice::LinuxHugepage) };
        Ok(memory)
    }

    /// Returns its first byte.
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.base.as_ptr()
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Returns the byte at an offset, for a copy.
    ///
    /// # Panics
    /// Behind its end.
    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.0.len);
        // SAFETY: inside the mapping or behind its last byte, as was just checked.
        unsafe { self.0.base.add(offset) }.as_ptr()
    }

    /// Returns a notification variable at an offset, which is to be a multiple of 8.
    ///
    /// # Panics
    /// Behind its end.
    pub fn variable(&self, offset: usize) -> *mut u64 {
        assert!(offset.checked_add(8).is_some_and(|end| end <= self.0.len));
        self.at(offset).cast()
    }

    /// Writes bytes at an offset.
    ///
    /// # Panics
    /// Where they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.0.len));
        // SAFETY: inside the mapping, as was just checked, to which no Rust reference exists.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset), bytes.len()) };
    }

    /// Reads bytes at an offset.
    ///
    /// # Panics
    /// Where they are not.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.0.len));
        // SAFETY: as for `write`.
        unsafe { std::ptr::copy_nonoverlapping(self.at(offset), bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies from other memory with the processor.
    ///
    /// # Panics
    /// Where the bytes are not, or do not fit.
    pub fn copy_from(&self, offset: usize, source: &Self, source_offset: usize, len: usize) {
        for (memory, offset) in [(self, offset), (source, source_offset)] {
            assert!(offset.checked_add(len).is_some_and(|end| end <= memory.0.len));
        }
        // SAFETY: inside both mappings, as was just checked; they may be the same.
        unsafe { std::ptr::copy(source.at(source_offset), self.at(offset), len) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping that was made; no pointer into it is used without this value.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}
