//! The counts of a board: those that open endpoints publish in their [pages](CounterPage), those of closed endpoints,
//! and the authority's own.

use std::{collections::HashMap, os::fd::OwnedFd};

use mxoe::engine::Handover;
use weft_authority::{CounterPage, HandoverMemory, OmxdError, read_handover};

use crate::pairing::sealed_memory;

/// The counts of a board, as its authority sees them.
pub(crate) struct BoardCounters {
    pages: HashMap<u64, Page>,
    /// The counts of endpoints that are closed.
    before: Vec<u32>,
    /// The counts at the last clearing, which are subtracted.
    cleared: Vec<u32>,
}

/// The memory that one endpoint's program shares.
struct Page {
    counts: CounterPage,
    /// What the endpoint owes is noted here, if its program can do that.
    memory: Option<OwnedFd>,
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
    /// Makes memory for the counts of a connection's endpoint. `handover`: its program notes there what it owes, too.
    pub(crate) fn open(&mut self, connection: u64, handover: bool) -> Result<OwnedFd, OmxdError> {
        let len = if handover {
            HandoverMemory::END
        } else {
            CounterPage::LEN
        };
        let memory = sealed_memory("omx-counters", len)?;
        let noted = handover.then(|| memory.try_clone()).transpose();
        let page = Page {
            counts: CounterPage::map(&memory)?,
            memory: noted.map_err(OmxdError::io("keep an endpoint's memory"))?,
        };
        self.pages.insert(connection, page);
        Ok(memory)
    }

    /// Keeps the counts of a connection that is gone, and returns what its endpoint owes.
    pub(crate) fn forget(&mut self, connection: u64) -> Option<Handover> {
        let page = self.pages.remove(&connection)?;
        page.counts.add_to(&mut self.before);
        read_handover(page.memory?)
    }

    fn all(&self, own: &[u32]) -> Vec<u32> {
        let mut sum = self.before.clone();
        for (sum, own) in sum.iter_mut().zip(own) {
            *sum = sum.wrapping_add(*own);
        }
        for page in self.pages.values() {
            page.counts.add_to(&mut sum);
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
        let memory = board.open(1, false).unwrap();
        let page = CounterPage::map(&memory).unwrap();
        page.publish(&[5, 7]);
        assert_eq!(board.sum(&[1])[..2], [6, 7]);
        assert_eq!(board.forget(1), None);
        assert_eq!(board.sum(&[1])[..2], [6, 7]);
        board.clear(&[1]);
        assert_eq!(board.sum(&[3])[..2], [2, 0]);
    }
}
