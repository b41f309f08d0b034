//! The counts of open endpoints in memory that each endpoint's program shares with the authority: the program writes,
//! the authority reads. The counts are shown and decide nothing.

use std::{
    os::fd::AsFd,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use mxoe::engine::Counter;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{HandoverMemory, OmxdError};

/// Bytes of the shared memory: a page.
const LEN: usize = 4096;
const _: () = assert!(CounterPage::COUNTERS * 4 <= LEN);

/// The shared memory of one endpoint's counts.
pub struct CounterPage {
    values: NonNull<AtomicU32>,
}

// SAFETY: the mapping belongs to this value, and every access to it is atomic.
unsafe impl Send for CounterPage {}
// SAFETY: as above.
unsafe impl Sync for CounterPage {}

impl CounterPage {
    /// Counters of an endpoint.
    pub const COUNTERS: usize = Counter::ALL.len();
    /// Bytes of the shared memory.
    pub const LEN: usize = LEN;

    /// Maps the first page of what the authority gave.
    ///
    /// # Errors
    /// [`OmxdError::Io`]; [`OmxdError::Protocol`] for memory of a length that no authority makes.
    pub fn map(file: impl AsFd) -> Result<Self, OmxdError> {
        if !matches!(len_of(&file)?, LEN | HandoverMemory::END) {
            return Err(OmxdError::Protocol);
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address of the kernel's choice, of exactly the file's bytes, whose length is sealed.
        let base = unsafe { mmap(std::ptr::null_mut(), LEN, protection, MapFlags::SHARED, file, 0) }
            .map_err(OmxdError::io("map the counters"))?;
        let values = NonNull::new(base.cast()).ok_or(OmxdError::Protocol)?;
        Ok(Self { values })
    }

    fn values(&self) -> &[AtomicU32] {
        // SAFETY: inside the mapping, which lives as long as `self`; all accesses are atomic.
        unsafe { std::slice::from_raw_parts(self.values.as_ptr(), Self::COUNTERS) }
    }

    /// Adds the counts as they are now to `sum`, in the order of [`Counter`]; sums wrap.
    pub fn add_to(&self, sum: &mut [u32]) {
        for (sum, value) in sum.iter_mut().zip(self.values()) {
            *sum = sum.wrapping_add(value.load(Ordering::Relaxed));
        }
    }

    /// Publishes counts for the authority.
    pub fn publish(&self, counts: &[u32]) {
        for (value, count) in self.values().iter().zip(counts) {
            value.store(*count, Ordering::Relaxed);
        }
    }
}

/// Returns the length of an endpoint's memory.
pub(crate) fn len_of(file: impl AsFd) -> Result<usize, OmxdError> {
    let stat = rustix::fs::fstat(&file).map_err(OmxdError::io("look at the counters"))?;
    Ok(stat.st_size as usize)
}

impl Drop for CounterPage {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; nothing borrowed from it outlives `self`.
        let _ = unsafe { munmap(self.values.as_ptr().cast(), LEN) };
    }
}
