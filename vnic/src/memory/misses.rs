//! What a card asks its frontend for: translations of I/O addresses that its IOTLB lacks.
//!
//! The data plane notes them without waiting; the port's session asks, and says which questions are overdue. Both sides share
//! one list, so that nothing is asked twice.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use super::{Access, Mapping};

/// Questions that wait for their answers at most. With more, those who miss something ask again when the next answer comes.
pub const OUTSTANDING_MAX: usize = 128;

/// Addresses of one page are asked for once: no IOMMU has smaller pages.
const PAGE_LEN: u64 = 4096;

/// A translation that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// The I/O address.
    pub iova: u64,
    /// What the device wants to do there.
    pub access: Access,
}

impl Miss {
    fn is_like(&self, other: &Self) -> bool {
        self.iova / PAGE_LEN == other.iova / PAGE_LEN && self.access == other.access
    }
}

#[derive(Debug)]
struct Question {
    miss: Miss,
    /// When it was sent to the frontend; none before.
    asked_at: Option<Instant>,
}

/// The questions of one card. It lives as long as the card; each connection begins with none.
#[derive(Debug)]
pub struct Misses {
    questions: Mutex<Vec<Question>>,
    missed: AtomicU64,
    /// Signalled when there is something new to ask.
    event: OwnedFd,
}

impl Misses {
    /// No questions.
    ///
    /// # Errors
    /// The system's, if it gives no event descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            questions: Mutex::default(),
            missed: AtomicU64::new(0),
            event: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    fn questions(&self) -> MutexGuard<'_, Vec<Question>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a translation is missing, if that is not known already. Never waits.
    #[cold]
    pub fn note(&self, miss: Miss) {
        let mut questions = self.questions();
        if questions.len() >= OUTSTANDING_MAX || questions.iter().any(|question| question.miss.is_like(&miss)) {
            return;
        }
        questions.push(Question { miss, asked_at: None });
        drop(questions);
        self.missed.fetch_add(1, Ordering::Relaxed);
        // Fails only when the counter is full, and then it is signalled already.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// Becomes readable when there is something to ask; reading resets it.
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// The oldest question that was not asked yet; it counts as asked from `now` on.
    pub fn next_to_ask(&self, now: Instant) -> Option<Miss> {
        let mut questions = self.questions();
        let question = questions.iter_mut().find(|question| question.asked_at.is_none())?;
        question.asked_at = Some(now);
        Some(question.miss)
    }

    /// What [`next_to_ask`](Self::next_to_ask) gave could not be sent: it is not asked yet.
    pub fn not_asked(&self, miss: Miss) {
        let mut questions = self.questions();
        if let Some(question) = questions.iter_mut().find(|question| question.miss == miss) {
            question.asked_at = None;
        }
    }

    /// Since when the oldest question waits for its answer, and which it is.
    pub fn oldest(&self) -> Option<(Instant, Miss)> {
        let questions = self.questions();
        let asked = questions
            .iter()
            .filter_map(|question| Some((question.asked_at?, question.miss)));
        asked.min_by_key(|(asked_at, _)| *asked_at)
    }

    /// When the oldest question is overdue, if its answer may take `limit`.
    pub fn deadline(&self, limit: Duration) -> Option<Instant> {
        self.oldest().map(|(asked_at, _)| asked_at + limit)
    }

    /// Forgets the questions that `mapping` answers.
    pub fn answered(&self, mapping: &Mapping) {
        self.questions()
            .retain(|Question { miss, .. }| !mapping.answers(miss.iova, miss.access));
    }

    /// Forgets a question that has no answer. False if it was not waited for any more.
    pub fn denied(&self, miss: Miss) -> bool {
        let mut questions = self.questions();
        let before = questions.len();
        questions.retain(|question| question.miss != miss);
        questions.len() < before
    }

    /// Forgets all questions: no ring waits for their answers any more.
    pub fn clear(&self) {
        self.questions().clear();
    }

    /// Questions that were ever noted.
    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Permission;
    use super::*;

    fn miss(iova: u64, access: Access) -> Miss {
        Miss { iova, access }
    }

    #[test]
    fn a_page_is_asked_for_once_until_it_is_answered() {
        let misses = Misses::new().unwrap();
        let now = Instant::now();
        misses.note(miss(0x1010, Access::Read));
        misses.note(miss(0x1ff0, Access::Read));
        misses.note(miss(0x1010, Access::Write));
        assert_eq!(misses.missed(), 2);
        assert_eq!(misses.oldest(), None, "nothing was asked yet");
        assert_eq!(misses.next_to_ask(now), Some(miss(0x1010, Access::Read)));
        assert_eq!(misses.next_to_ask(now), Some(miss(0x1010, Access::Write)));
        assert_eq!(misses.next_to_ask(now), None);
        let read_only = Mapping {
            first: 0x1000,
            last: 0x1fff,
            guest: 0,
            permission: Permission {
                read: true,
                write: false,
            },
        };
        misses.answered(&read_only);
        assert_eq!(misses.oldest(), Some((now, miss(0x1010, Access::Write))));
        misses.note(miss(0x1010, Access::Read));
        assert_eq!(misses.missed(), 3);
        assert!(misses.denied(miss(0x1010, Access::Write)) && !misses.denied(miss(0x1010, Access::Write)));
        misses.clear();
        assert_eq!(misses.next_to_ask(now), None);
    }

    #[test]
    fn a_driver_that_misses_without_end_fills_a_list_of_bounded_length() {
        let misses = Misses::new().unwrap();
        for page in 0..10 * OUTSTANDING_MAX as u64 {
            misses.note(miss(page << 12, Access::Read));
        }
        assert_eq!(misses.questions().len(), OUTSTANDING_MAX);
    }
}
