//! Guest memory behind the guest's own IOMMU: I/O addresses become guest addresses by the IOTLB, and these become pointers by the
//! memory table of the same snapshot.
//!
//! The IOTLB holds guest addresses and never pointers, so that what it says cannot outlive the memory it speaks of. Pointers
//! that were made here are good until the next change of translations or memory, both of which come in between two rounds of the data plane.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vm_memory::GuestMemoryMmap;

use super::iotlb::{Iotlb, Mapping};
use super::map::{Access, Mapped, Piece, Unreachable};
use super::misses::{Miss, Misses};

/// The translations of a card whose guest is behind an IOMMU, over one memory table.
#[derive(Debug)]
pub struct Translation {
    mapped: Mapped,
    /// One thread at a time uses it, by the data plane's lock: this one is never waited for.
    iotlb: Mutex<Iotlb>,
    misses: Arc<Misses>,
}

impl Translation {
    pub(super) fn new(mapped: Mapped, misses: Arc<Misses>) -> Self {
        Self {
            mapped,
            iotlb: Mutex::default(),
            misses,
        }
    }

    /// The memory table.
    pub(super) fn table(&self) -> Arc<GuestMemoryMmap> {
        self.mapped.table()
    }

    fn iotlb(&self) -> MutexGuard<'_, Iotlb> {
        self.iotlb.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The piece at I/O address `iova` that the card may read, if it is known; shorter than `len` where the translation or the region
    /// ends. What is missing is not asked for.
    pub fn look_up(&self, iova: u64, len: u32) -> Option<Piece> {
        self.known(iova, len, Access::Read)
    }

    fn known(&self, iova: u64, len: u32, access: Access) -> Option<Piece> {
        let target = self.iotlb().find(iova, access)?;
        let room = u32::try_from(target.more.saturating_add(1)).unwrap_or(u32::MAX);
        self.mapped.search(target.guest)?.piece(target.guest, len.min(room))
    }

    /// The contiguous piece that starts at I/O address `iova`; shorter than `len` where the translation or the region ends.
    ///
    /// # Errors
    /// [`Unreachable::Untranslated`], which was noted; [`Unreachable::Outside`] if the range wraps.
    pub fn translate(&self, iova: u64, len: u32, access: Access) -> Result<Piece, Unreachable> {
        if len > 1 && iova.checked_add(u64::from(len) - 1).is_none() {
            return Err(Unreachable::Outside);
        }
        self.known(iova, len, access).ok_or_else(|| {
            self.misses.note(Miss { iova, access });
            Unreachable::Untranslated
        })
    }

    /// Copies guest memory from `iova` on into `bytes`, across as many translations as it takes.
    ///
    /// # Errors
    /// Those of [`translate`](Self::translate); a part may have been copied.
    pub fn read(&self, iova: u64, bytes: &mut [u8]) -> Result<(), Unreachable> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &mut bytes[done..];
            let at = iova.checked_add(done as u64).ok_or(Unreachable::Outside)?;
            let piece = self.translate(at, rest.len() as u32, Access::Read)?;
            // SAFETY: the piece is mapped for its length, which is at most that of the rest.
            unsafe { std::ptr::copy_nonoverlapping(piece.ptr, rest.as_mut_ptr(), piece.len as usize) };
            done += piece.len as usize;
        }
        Ok(())
    }

    /// Copies `bytes` into guest memory from `iova` on, across as many translations as it takes.
    ///
    /// # Errors
    /// Those of [`translate`](Self::translate); a part may have been copied.
    pub fn write(&self, iova: u64, bytes: &[u8]) -> Result<(), Unreachable> {
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            let at = iova.checked_add(done as u64).ok_or(Unreachable::Outside)?;
            let piece = self.translate(at, rest.len() as u32, Access::Write)?;
            // SAFETY: the piece is mapped for its length, which is at most that of the rest.
            unsafe { std::ptr::copy_nonoverlapping(rest.as_ptr(), piece.ptr, piece.len as usize) };
            done += piece.len as usize;
        }
        Ok(())
    }

    /// Reads the little-endian word at `iova`; what follows in the program is read after it.
    ///
    /// # Errors
    /// Those of [`translate`](Self::translate); a word at an odd place or across two translations is [`Unreachable::Outside`].
    pub fn load(&self, iova: u64) -> Result<u16, Unreachable> {
        let word = self.word(iova, Access::Read)?;
        // SAFETY: two mapped, aligned bytes; shared words are only accessed atomically.
        Ok(u16::from_le(
            unsafe { AtomicU16::from_ptr(word) }.load(Ordering::Acquire),
        ))
    }

    /// Writes the little-endian word at `iova`; what precedes in the program is written before it.
    ///
    /// # Errors
    /// Those of [`load`](Self::load).
    pub fn store(&self, iova: u64, value: u16) -> Result<(), Unreachable> {
        let word = self.word(iova, Access::Write)?;
        // SAFETY: as in `load`.
        unsafe { AtomicU16::from_ptr(word) }.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    fn word(&self, iova: u64, access: Access) -> Result<*mut u16, Unreachable> {
        let piece = self.translate(iova, 2, access)?;
        let word = piece.ptr.cast::<u16>();
        if piece.len == 2 && word.is_aligned() {
            Ok(word)
        } else {
            Err(Unreachable::Outside)
        }
    }

    /// Takes in what the frontend says about I/O addresses. True if it had said something else about some of them.
    pub fn insert(&self, mapping: Mapping) -> bool {
        self.misses.answered(&mapping);
        self.iotlb().insert(mapping)
    }

    /// Forgets what the frontend said about these I/O addresses.
    pub fn remove(&self, range: RangeInclusive<u64>) {
        self.iotlb().remove(range);
    }
}
