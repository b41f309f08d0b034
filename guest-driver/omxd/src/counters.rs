//! The counts of open endpoints in memory that each endpoint's program shares with the authority: it writes, the authority
//! reads. Nothing is concluded from them.

use std::{
    collections::HashMap,
    os::fd::{AsFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
};

use mxoe::engine::Counter;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::{OmxdError, meetings::sealed_memory};

/// Counters of an endpoint.
const COUNT: usize = Counter::ALL.len();
/// Bytes of the shared memory: a page.
const LEN: usize = 4096;
const _: () = assert!(COUNT * 4 <= LEN);

/// The shared memory of one endpoint's counts.
pub struct CounterPage {
    values: NonNull<AtomicU32>,
}

// SAFETY: the mapping belongs to this value, and every access to it is atomic.
unsafe impl Send for CounterPage {}
// SAFETY: as above.
unsafe impl Sync for CounterPage {}

impl CounterPage {
    /// Maps what the authority gave.
    ///
    /// # Errors
    /// [`OmxdError::Io`]; [`OmxdError::Protocol`] for memory of another length.
    pub fn map(file: impl AsFd) -> Result<Self, OmxdError> {
        let stat = rustix::fs::fstat(&file).map_err(OmxdError::io("look at the counters"))?;
        if stat.st_size.cast_unsigned() != LEN as u64 {
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
        unsafe { std::slice::from_raw_parts(self.values.as_ptr(), COUNT) }
    }

    /// Shows counts to the authority.
    pub fn publish(&self, counts: &[u32]) {
        for (value, count) in self.values().iter().zip(counts) {
            value.store(*count, Ordering::Relaxed);
        }
    }
}

impl Drop for CounterPage {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `map`; nothing borrowed from it outlives `self`.
        let _ = unsafe { munmap(self.values.as_ptr().cast(), LEN) };
    }
}

/// The counts of a board, as its authority sees them.
pub(crate) struct BoardCounters {
    pages: HashMap<u64, CounterPage>,
    /// Of endpoints that are closed.
    before: Vec<u32>,
    /// What is not shown any more.
    cleared: Vec<u32>,
}

impl Default for BoardCounters {
    fn default() -> Self {
        Self {
            pages: HashMap::new(),
            before: vec![0; COUNT],
            cleared: vec![0; COUNT],
        }
    }
}

fn add(sum: &mut [u32], page: &CounterPage) {
    for (sum, value) in sum.iter_mut().zip(page.values()) {
        *sum = sum.wrapping_add(value.load(Ordering::Relaxed));
    }
}

impl BoardCounters {
    /// Memory for the endpoint of a connection.
    pub(crate) fn open(&mut self, connection: u64) -> Result<OwnedFd, OmxdError> {
        let memory = sealed_memory("omx-counters", LEN)?;
        self.pages.insert(connection, CounterPage::map(&memory)?);
        Ok(memory)
    }

    /// The connection is gone; its counts stay.
    pub(crate) fn forget(&mut self, connection: u64) {
        if let Some(page) = self.pages.remove(&connection) {
            add(&mut self.before, &page);
        }
    }

    fn all(&self, own: &[u32]) -> Vec<u32> {
        let mut sum = self.before.clone();
        for (sum, own) in sum.iter_mut().zip(own) {
            *sum = sum.wrapping_add(*own);
        }
        for page in self.pages.values() {
            add(&mut sum, page);
        }
        sum
    }

    /// The counts of all endpoints and `own`, those of the authority, since they were cleared.
    pub(crate) fn sum(&self, own: &[u32]) -> Vec<u32> {
        let mut sum = self.all(own);
        for (sum, cleared) in sum.iter_mut().zip(&self.cleared) {
            *sum = sum.wrapping_sub(*cleared);
        }
        sum
    }

    /// Counting begins anew.
    pub(crate) fn clear(&mut self, own: &[u32]) {
        self.cleared = self.all(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_closed_endpoints_stay_and_cleared_ones_do_not_show() {
        let mut board = BoardCounters::default();
        let memory = board.open(1).unwrap();
        let page = CounterPage::map(&memory).unwrap();
        page.publish(&[5, 7]);
        assert_eq!(board.sum(&[1])[..2], [6, 7]);
        board.forget(1);
        assert_eq!(board.sum(&[1])[..2], [6, 7]);
        board.clear(&[1]);
        assert_eq!(board.sum(&[3])[..2], [2, 0]);
    }
}
