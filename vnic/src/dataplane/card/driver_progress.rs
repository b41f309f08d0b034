//! What a receive ring's memory says about its driver: whether it asks for calls, how much it has processed, and whether it
//! polls. The polling watchdog and the clock of the card (M-BV8 and M-BV10 in `docs/spec/papers.md`) fetch this where the guest
//! has named no record of its own (`host_record`).
//!
//! Exact for a driver that keeps its ring full of buffers, gives each processed one back at once, and either leaves EVENT_IDX
//! alone or keeps used_event at the next entry to process while it wants calls. Otherwise approximate, and late rather than
//! early: Linux refills in batches, and moves used_event when it leaves its polling loop.

use std::collections::VecDeque;

use ether::Time;

use crate::ring::DriverWords;

/// The packets of one receive ring that are published and not known to be processed, while the card has a watchdog.
#[derive(Default)]
pub struct DriverProgress {
    watched: bool,
    /// Used index up to which entries are known to be processed.
    processed: u16,
    /// Entries of the ring.
    size: u16,
    /// For each packet beyond that: the used index behind its last entry. At most as many as the ring has entries.
    ends: VecDeque<u16>,
}

impl DriverProgress {
    /// Packets are followed from now on, or no more. Of what was published before, the `waiting` packets that no interrupt
    /// announced count as not processed, an entry each.
    #[inline]
    pub fn watch(&mut self, watched: bool, waiting: u32, words: impl FnOnce() -> DriverWords) {
        if watched != self.watched {
            self.begin(watched, waiting, words);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin(&mut self, watched: bool, waiting: u32, words: impl FnOnce() -> DriverWords) {
        self.watched = watched;
        let words = words();
        let waiting = if watched {
            waiting.min(words.size.into()) as u16
        } else {
            0
        };
        self.size = words.size;
        self.processed = words.published.wrapping_sub(waiting);
        self.ends.clear();
        if self.watched {
            self.ends.reserve(usize::from(self.size));
        }
        let first = self.processed;
        self.ends.extend((1..=waiting).map(|step| first.wrapping_add(step)));
    }

    /// Whether packets are followed.
    #[inline]
    pub fn is_watched(&self) -> bool {
        self.watched
    }

    /// A packet was published whose last entry is before used index `end`.
    #[inline(never)]
    pub fn publish(&mut self, end: u16, words: impl FnOnce() -> DriverWords) {
        if self.ends.len() >= usize::from(self.size) {
            // More packets than the ring has entries are not in the driver's hands: the available index tells.
            self.update(&words());
            if self.ends.len() >= usize::from(self.size) {
                self.ends.pop_front();
            }
        }
        self.ends.push_back(end);
    }

    /// Packets that the driver has not processed: what neither used_event nor the available index has gone beyond.
    pub fn update(&mut self, words: &DriverWords) -> u64 {
        // A driver has at most the ring's size of entries: that many made available, less those processed and not given back.
        self.advance(
            words.published,
            [Some(words.available.wrapping_sub(words.size)), words.event],
        )
    }

    /// Packets that the driver has not processed by its own account, which is a used index.
    pub fn update_exactly(&mut self, published: u16, processed: u16) -> u64 {
        self.advance(published, [Some(processed), None])
    }

    /// Goes on to the furthest of the indices; one that is behind or beyond what was published says nothing.
    fn advance(&mut self, published: u16, candidates: [Option<u16>; 2]) -> u64 {
        let unprocessed = published.wrapping_sub(self.processed);
        let mut step = 0;
        for candidate in candidates {
            let ahead = candidate.map_or(0, |index| index.wrapping_sub(self.processed));
            if ahead <= unprocessed {
                step = step.max(ahead);
            }
        }
        self.processed = self.processed.wrapping_add(step);
        let beyond = published.wrapping_sub(self.processed);
        let done = self
            .ends
            .iter()
            .take_while(|end| published.wrapping_sub(**end) >= beyond)
            .count();
        self.ends.drain(..done);
        self.ends.len() as u64
    }

    /// Whether the driver asks for a call: not if it was called since, nor (with EVENT_IDX) if it asked for one at an entry
    /// that it has processed. To be asked after [`update`](Self::update).
    pub fn asks_for_call(&self, words: &DriverWords) -> bool {
        let Some(event) = words.event else {
            return !words.no_interrupt;
        };
        let behind = u32::from(words.published.wrapping_sub(event));
        let unprocessed = u32::from(words.published.wrapping_sub(self.processed));
        (1..=unprocessed.min(words.unsignalled)).contains(&behind)
    }
}

/// When a guest last polled, as far as its receive rings tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastPoll {
    /// used_event (or, without EVENT_IDX, the available index) of all rings, added up, at the last update.
    position: Option<u16>,
    /// Doorbells put into the rings since then: that they were taken says nothing.
    doorbells: u16,
    at: Option<Time>,
}

impl LastPoll {
    /// Reads the rings: a driver that processed more than doorbells since the last update has polled by now.
    pub fn update(&mut self, now: Time, rings: impl Iterator<Item = DriverWords>) -> Option<Time> {
        let position = rings.fold(0u16, |sum, words| {
            sum.wrapping_add(words.event.unwrap_or(words.available))
        });
        let moved = position.wrapping_sub(self.position.replace(position).unwrap_or(position));
        if moved > self.doorbells {
            self.at = Some(now);
        }
        self.doorbells = 0;
        self.at
    }

    /// A doorbell was put into a ring.
    pub fn note_doorbell(&mut self) {
        self.doorbells = self.doorbells.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u16 = 256;

    /// A driver that keeps its ring full, as `processed` of `published` entries leave it.
    fn words(published: u16, processed: u16) -> DriverWords {
        DriverWords {
            size: SIZE,
            published,
            available: processed.wrapping_add(SIZE),
            event: None,
            no_interrupt: false,
            unsignalled: u32::MAX,
        }
    }

    fn watched(start: u16, packets: u16, entries_each: u16) -> DriverProgress {
        let mut progress = DriverProgress::default();
        progress.watch(true, 0, || words(start, start));
        for n in 1..=packets {
            progress.publish(start.wrapping_add(n * entries_each), || words(0, 0));
        }
        progress
    }

    #[test]
    fn m_bv8_a_driver_that_gives_buffers_back_at_once_is_known_exactly_over_the_wrap_too() {
        for start in [0, 65_530] {
            let mut progress = watched(start, 10, 1);
            for processed in [0, 3, 9, 10] {
                let words = words(start.wrapping_add(10), start.wrapping_add(processed));
                assert_eq!(progress.update(&words), u64::from(10 - processed));
            }
        }
    }

    #[test]
    fn m_bv8_a_packet_of_several_buffers_is_processed_with_its_last() {
        let mut progress = watched(0, 4, 3);
        let left = [(0, 4), (2, 4), (3, 3), (11, 1), (12, 0)];
        for (processed, packets) in left {
            assert_eq!(progress.update(&words(12, processed)), packets, "{processed} entries");
        }
    }

    #[test]
    fn m_bv8_the_larger_progress_of_used_event_and_available_index_counts_and_none_goes_back() {
        let mut progress = watched(0, 10, 1);
        let lazy = |event| DriverWords {
            // Nothing was given back since the ring was filled.
            available: SIZE,
            event: Some(event),
            ..words(10, 0)
        };
        assert_eq!(progress.update(&lazy(4)), 6);
        assert_eq!(progress.update(&lazy(2)), 6, "an earlier index says nothing");
        assert_eq!(progress.update(&lazy(60_000)), 6, "nor one from nowhere");
        assert_eq!(progress.update(&words(10, 7)), 3);
        assert_eq!(progress.update(&lazy(10)), 0);
    }

    #[test]
    fn m_bv9_a_call_is_asked_for_by_the_flag_or_by_an_event_that_was_not_signalled() {
        let mut progress = watched(0, 10, 1);
        let mut said = words(10, 4);
        progress.update(&said);
        assert!(progress.asks_for_call(&said));
        said.no_interrupt = true;
        assert!(!progress.asks_for_call(&said));
        let with_event = |event, unsignalled| DriverWords {
            event: Some(event),
            unsignalled,
            ..said
        };
        assert!(
            progress.asks_for_call(&with_event(4, 10)),
            "the flag means nothing with EVENT_IDX"
        );
        assert!(progress.asks_for_call(&with_event(9, 1)));
        for (event, unsignalled) in [(3, 10), (0, 10), (10, 10), (20, 10), (4, 5), (9, 0)] {
            let asked = progress.asks_for_call(&with_event(event, unsignalled));
            assert!(!asked, "event {event}, {unsignalled} entries without a call");
        }
    }

    #[test]
    fn m_bv8_packets_are_forgotten_only_when_the_driver_cannot_have_them_any_more() {
        let mut progress = watched(0, 1024, 1);
        progress.publish(1025, || words(1024, 1000));
        assert_eq!(progress.update(&words(1025, 1000)), 25);
        progress.watch(false, 0, || words(1025, 1000));
        assert_eq!((progress.is_watched(), progress.update(&words(1025, 1000))), (false, 0));
    }

    #[test]
    fn m_bv8_what_waits_when_the_watchdog_is_turned_on_is_not_taken_as_processed() {
        let mut progress = DriverProgress::default();
        progress.watch(true, 3, || words(10, 0));
        assert_eq!(progress.update(&words(10, 0)), 3);
        assert_eq!(progress.update(&words(10, 9)), 1);
    }

    #[test]
    fn m_bv10_a_guest_that_took_more_than_doorbells_has_polled() {
        let mut last = LastPoll::default();
        let look = |last: &mut LastPoll, at, processed| {
            last.update(Time::from_nanos(at), [words(100, processed), words(7, 7)].into_iter())
        };
        assert_eq!(
            look(&mut last, 10, 50),
            None,
            "the first look has nothing to compare with"
        );
        assert_eq!(look(&mut last, 20, 50), None);
        assert_eq!(look(&mut last, 30, 51), Some(Time::from_nanos(30)));
        last.note_doorbell();
        assert_eq!(look(&mut last, 40, 52), Some(Time::from_nanos(30)), "only the doorbell");
        last.note_doorbell();
        assert_eq!(look(&mut last, 50, 54), Some(Time::from_nanos(50)));
    }
}
