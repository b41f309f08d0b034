//! The counts of a board: those that open endpoints publish in their [pages](CounterPage), those of closed endpoints,
//! and the authority's own.

use std::{collections::HashMap, os::fd::OwnedFd};
use weft_authority::{CounterPage, OmxdError};

use crate::pairing::sealed_memory;

/// The counts of a board, as its authority sees them.
pub(crate) struct BoardCounters {
    pages: HashMap<u64, CounterPage>,
    /// The counts of endpoints that are closed.
    before: Vec<u32>,
    /// The counts at the last clearing, which are subtracted.
    cleared: Vec<u32>,
}

impl Default for BoardCounters {
    fn default() -> Self {
        Self {
            pages: HashMap::new(),
            before: vec![0; CounterPage::COUNTERS],
            cleared: vec![0; CounterPage::COUNTERS],
        }
    }
}

impl BoardCounters {
    /// Makes memory for the counts of a connection's endpoint.
    pub(crate) fn open(&mut self, connection: u64) -> Result<OwnedFd, OmxdError> {
        let memory = sealed_memory("omx-counters", CounterPage::LEN)?;
        self.pages.insert(connection, CounterPage::map(&memory)?);
        Ok(memory)
    }

    /// Keeps the counts of a connection that is gone.
    pub(crate) fn forget(&mut self, connection: u64) {
        if let Some(page) = self.pages.remove(&connection) {
            page.add_to(&mut self.before);
        }
    }

    fn all(&self, own: &[u32]) -> Vec<u32> {
        let mut sum = self.before.clone();
        for (sum, own) in sum.iter_mut().zip(own) {
            *sum = sum.wrapping_add(*own);
        }
        for page in self.pages.values() {
            page.add_to(&mut sum);
        }
        sum
    }

    /// Adds up the counts of all endpoints and `own`, those of the authority, since they were cleared.
    pub(crate) fn sum(&self, own: &[u32]) -> Vec<u32> {
        let mut sum = self.all(own);
        for (sum, cleared) in sum.iter_mut().zip(&self.cleared) {
            *sum = sum.wrapping_sub(*cleared);
        }
        sum
    }

    /// Sets the counts back to 0.
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
