//! Memory that a process, the authority and the card share: the rings and buffers of one queue pair.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64},
    },
};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};

use super::layout::PAGE;
use crate::mapping::Mapping;

/// Memory of fixed length that other processes can map, too.
#[derive(Clone)]
pub(super) struct SharedMemory {
    mapping: Arc<Mapping>,
    file: Arc<OwnedFd>,
    len: usize,
}

// SAFETY: everything in it is read and written atomically, or by the one owner of a slot (`slot`, `slot_mut`).
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Makes memory of `len` bytes, whole pages, all zero; `name` stands in the lists of open files.
    pub(super) fn new(name: &str, len: usize) -> io::Result<Self> {
        let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, len as u64)?;
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        Self::of_file(file, 0, len)
    }

    /// Maps a part of memory that another process made; it must have these bytes.
    pub(super) fn of_file(file: OwnedFd, offset: u64, len: usize) -> io::Result<Self> {
        let is_page = |number: u64| number.is_multiple_of(PAGE as u64);
        let end = offset.checked_add(len as u64);
        let is_inside = end.is_some_and(|end| fstat(&file).is_ok_and(|stat| end <= stat.st_size as u64));
        if len == 0 || !is_page(len as u64) || !is_page(offset) || !is_inside {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mapping = Mapping::populated(file.as_fd(), offset, len)?;
        Ok(Self {
            mapping: Arc::new(mapping),
            file: Arc::new(file),
            len,
        })
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        (*self.file).as_fd()
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }

    #[inline]
    fn at<T>(&self, offset: usize) -> &T {
        assert!(offset + size_of::<T>() <= self.len && offset.is_multiple_of(align_of::<T>()));
        // SAFETY: inside the mapping and aligned (its base is a page), as was just checked; the mapping lives as long as `self`. Only
        // called for atomics below, for which any bytes are a value, whichever process writes them.
        unsafe { self.mapping.base().add(offset).cast::<T>().as_ref() }
    }

    #[inline]
    pub(super) fn byte(&self, offset: usize) -> &AtomicU8 {
        self.at(offset)
    }

    #[inline]
    pub(super) fn half(&self, offset: usize) -> &AtomicU16 {
        self.at(offset)
    }

    #[inline]
    pub(super) fn word(&self, offset: usize) -> &AtomicU32 {
        self.at(offset)
    }

    #[inline]
    pub(super) fn long(&self, offset: usize) -> &AtomicU64 {
        self.at(offset)
    }

    /// Returns bytes of a slot.
    ///
    /// # Safety
    /// The slot belongs to the caller: the card has given it back, and no process writes there while the bytes are
    /// borrowed.
    #[inline]
    pub(super) unsafe fn slot(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: inside the mapping, as was just checked. No process that keeps the rules writes there (this function's contract); a card
        // that breaks them changes bytes that are only looked at, as the kernel could in the ring of a packet socket.
        unsafe { std::slice::from_raw_parts(self.mapping.base().as_ptr().add(offset), len) }
    }

    /// Writes words, as they are.
    ///
    /// # Safety
    /// As [`SharedMemory::write`].
    #[inline]
    pub(super) unsafe fn write_longs(&self, offset: usize, words: &[u64]) {
        assert!(
            offset.is_multiple_of(8)
                && offset
                    .checked_add(size_of_val(words))
                    .is_some_and(|end| end <= self.len)
        );
        // SAFETY: inside the mapping and aligned, as was just checked, and memory of this process's own does not overlap it.
        unsafe {
            let at = self.mapping.base().add(offset).cast::<u64>();
            std::ptr::copy_nonoverlapping(words.as_ptr(), at.as_ptr(), words.len());
        }
    }

    /// Writes pairs of words, as they are; there are `count`, or those behind are not written.
    ///
    /// # Safety
    /// As [`SharedMemory::write`].
    #[inline]
    pub(super) unsafe fn write_pairs(&self, offset: usize, count: usize, pairs: impl Iterator<Item = [u64; 2]>) {
        let end = count
            .checked_mul(size_of::<[u64; 2]>())
            .and_then(|len| offset.checked_add(len));
        assert!(offset.is_multiple_of(8) && end.is_some_and(|end| end <= self.len));
        let at = self.mapping.base().as_ptr().wrapping_add(offset).cast::<[u64; 2]>();
        for (number, pair) in pairs.take(count).enumerate() {
            // SAFETY: inside the mapping and aligned, as was just checked.
            unsafe { at.add(number).write(pair) };
        }
    }

    /// Writes into a slot.
    ///
    /// # Safety
    /// As [`SharedMemory::slot`], and no process reads there.
    #[inline]
    pub(super) unsafe fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset.checked_add(bytes.len()).is_some_and(|end| end <= self.len));
        // SAFETY: inside the mapping, as was just checked, and memory of this process's own does not overlap it.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.mapping.base().as_ptr().add(offset), bytes.len());
        }
    }
}

/// Where the pages of memory are for the card.
#[derive(Clone, Debug, Default)]
pub(super) struct BusAddresses {
    pages: Vec<u64>,
}

impl BusAddresses {
    /// Pages with these addresses.
    pub(super) fn of_pages(pages: Vec<u64>) -> Self {
        Self { pages }
    }

    /// Returns the addresses of all pages.
    pub(super) fn into_pages(self) -> Vec<u64> {
        self.pages
    }

    /// Returns the addresses of a part of the memory.
    pub(super) fn part(&self, offset: usize, len: usize) -> Self {
        let pages = self.pages.iter().skip(offset / PAGE).take(len / PAGE);
        Self {
            pages: pages.copied().collect(),
        }
    }

    /// Returns the address for the card of a place in the memory.
    ///
    /// # Panics
    /// Behind the memory's end.
    pub(super) fn of(&self, offset: usize) -> u64 {
        self.pages[offset / PAGE] + (offset % PAGE) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn memory_is_shared_by_whoever_maps_its_file_and_only_what_is_there() {
        let one = SharedMemory::new("weft-test", 2 * PAGE).unwrap();
        let part = |offset, len| SharedMemory::of_file(one.file().try_clone_to_owned().unwrap(), offset, len);
        let two = part(PAGE as u64, PAGE).unwrap();
        one.half(PAGE).store(7, Ordering::Relaxed);
        assert_eq!(two.half(0).load(Ordering::Relaxed), 7);
        for (offset, len) in [
            (0, 0),
            (0, 3 * PAGE),
            (PAGE as u64, 2 * PAGE),
            (1, PAGE),
            (0, PAGE + 1),
            (u64::MAX - 4095, PAGE),
        ] {
            assert!(part(offset, len).is_err(), "{offset} {len}");
        }
        assert!(ftruncate(one.file(), 0).is_err(), "the length is sealed");
    }
}
