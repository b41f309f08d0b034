//! Send batching: short sends posted one right after the other are deferred and go out together, because frames that
//! share a system call cost a quarter less each. This module decides whether the next send is deferred. Deferred sends
//! go out with the next call that makes progress or takes the completion of one of them, or when the helper thread
//! polls next (`Endpoint::isend`, `helper`). A timer for them would cost more than batching saves: setting one took 10
//! us in the virtual machine in which it was tried.

use ether::Time;

/// After this many sends in one burst, with no other progress between them, further ones are deferred. The neighbours
/// of a cell in three dimensions (26) are served at once, whatever the program does then.
const BURST_MIN: u32 = 32;
/// A send posted this much later than the one before it is not deferred. A single send takes a few microseconds.
const GAP_NS: u64 = 10_000;
/// A send after a longer pause is not deferred either, and ends the burst. A shorter pause may be the processor's
/// absence, for its timer or another program.
const PAUSE_NS: u64 = 100_000;
/// After such a gap this many sends go out one by one before the burst goes on.
const BURST_AGAIN: u32 = 4;
/// While sends are deferred, the clock is read once in this many: reading it takes as long as deferring a send.
const SENDS_PER_CLOCK_READ: u32 = 4;
/// At most this many sends go out together. Messages of 128 bytes per second over veth, against one by one: 1.30 x in
/// batches of 8, 1.35 x of 16, 1.41 x of 32, 1.42 x of 64.
const BATCH_MAX: u32 = 64;

/// Decides about the next send by what is known of the last ones.
#[derive(Debug)]
pub(crate) struct Batching {
    /// The number of sends posted one right after the other.
    burst: u32,
    clock_read_at: Time,
    /// The sends since the clock was read.
    sends_since_read: u32,
    deferred: u32,
    /// The number of the batch that is being made; never 0.
    batch: u32,
    /// The send that is being posted may be deferred: it is short, complete for the program, and leaves by the port.
    may_wait: bool,
}

impl Batching {
    pub(crate) const fn new() -> Self {
        Self {
            burst: 0,
            clock_read_at: Time::ZERO,
            sends_since_read: 0,
            deferred: 0,
            batch: 1,
            may_wait: false,
        }
    }

    /// Allows deferring the send that is being posted: it is short, complete for the program, and leaves by the port.
    #[inline]
    pub(crate) const fn allow_deferral(&mut self) {
        self.may_wait = true;
    }

    /// Whether the time must be known when the next send is posted.
    #[inline]
    pub(crate) const fn wants_time(&self) -> bool {
        self.burst < BURST_MIN || self.sends_since_read + 1 >= SENDS_PER_CLOCK_READ
    }

    /// Records a send that was posted, at `now` if that is [known](Self::wants_time), and returns whether it is
    /// deferred; otherwise everything goes out. `watched`: the helper thread sends it if the program does not.
    #[inline]
    pub(crate) fn posted(&mut self, now: Option<Time>, watched: bool) -> bool {
        let may_wait = std::mem::replace(&mut self.may_wait, false) && watched;
        let gap_ns = now.map_or(0, |now| {
            now.nanos_since(self.clock_read_at) / (u64::from(self.sends_since_read) + 1)
        });
        match now {
            Some(now) => (self.clock_read_at, self.sends_since_read) = (now, 0),
            None => self.sends_since_read += 1,
        }
        self.burst = match self.burst {
            _ if !may_wait => 0,
            burst if gap_ns < GAP_NS => burst.saturating_add(1),
            burst if burst >= BURST_MIN && gap_ns < PAUSE_NS => BURST_MIN - BURST_AGAIN,
            _ => 0,
        };
        let deferred = self.burst >= BURST_MIN && self.deferred + 1 < BATCH_MAX;
        if deferred {
            self.deferred += 1;
        }
        deferred
    }

    /// Returns the number of the batch that the deferred send is in, for [`Batching::contains`]; never 0.
    #[inline]
    pub(crate) const fn batch(&self) -> u32 {
        self.batch
    }

    /// Whether sends of this batch are still deferred.
    #[inline]
    pub(crate) const fn contains(&self, batch: u32) -> bool {
        self.deferred > 0 && batch == self.batch
    }

    /// Whether the next send may be deferred, or others are.
    #[inline]
    pub(crate) const fn may_defer(&self) -> bool {
        self.deferred > 0 || self.burst + 1 >= BURST_MIN
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.deferred == 0
    }

    /// Records that everything has gone out.
    #[inline]
    pub(crate) fn flushed(&mut self) {
        if self.deferred > 0 {
            self.deferred = 0;
            self.batch = self.batch.wrapping_add(1).max(1);
        }
    }

    /// Records that sending a batch took until `now`: the burst goes on from here.
    #[inline]
    pub(crate) const fn goes_on(&mut self, now: Time) {
        (self.clock_read_at, self.sends_since_read) = (now, 0);
    }

    /// Ends the burst, because the program did something else: a program that waits for answers is not in a burst of
    /// sends.
    #[inline]
    pub(crate) const fn end_burst(&mut self) {
        self.burst = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Posts as a program does whose sends come every `gap_ns`, and returns how many sends went out with each one that
    /// was not deferred.
    fn batches(batching: &mut Batching, now_ns: &mut u64, posts: u32, gap_ns: u64) -> Vec<u32> {
        let mut batches = Vec::new();
        let mut deferred = 0;
        for _ in 0..posts {
            *now_ns += gap_ns;
            batching.allow_deferral();
            let now = batching.wants_time().then_some(Time::from_nanos(*now_ns));
            if batching.posted(now, true) {
                assert!(batching.contains(batching.batch()));
                deferred += 1;
                continue;
            }
            batches.push(deferred + 1);
            deferred = 0;
            let batch = batching.batch();
            batching.flushed();
            assert!(batching.is_empty() && !batching.contains(batch));
            // To send takes its time.
            *now_ns += 2000 * u64::from(batches[batches.len() - 1]);
            batching.goes_on(Time::from_nanos(*now_ns));
        }
        batches
    }

    #[test]
    fn sends_in_quick_succession_go_out_in_batches_after_the_first_ones() {
        let mut batching = Batching::new();
        let batches = batches(&mut batching, &mut 1_000_000, BURST_MIN + 10 * BATCH_MAX, 300);
        let (first, others) = batches.split_at(BURST_MIN as usize);
        assert!(first.iter().all(|batch| *batch == 1), "{first:?}");
        assert!(
            others.len() == 10 && others.iter().all(|batch| *batch == BATCH_MAX),
            "{others:?}"
        );
    }

    #[test]
    fn sends_between_which_a_program_computes_are_never_held() {
        let mut batching = Batching::new();
        let batches = batches(&mut batching, &mut 0, 500, GAP_NS);
        assert_eq!(batches, vec![1; 500]);
    }

    #[test]
    fn a_row_that_is_interrupted_goes_on_after_a_few_sends() {
        let mut batching = Batching::new();
        let mut now_ns = 0;
        for pause_ns in [GAP_NS * 2, PAUSE_NS * 2] {
            batches(&mut batching, &mut now_ns, 2 * BURST_MIN + BATCH_MAX, 300);
            now_ns += pause_ns * u64::from(SENDS_PER_CLOCK_READ);
            let alone = batches(&mut batching, &mut now_ns, BURST_MIN + BATCH_MAX, 300);
            let alone = alone.iter().filter(|batch| **batch == 1).count() as u32;
            let expected = if pause_ns < PAUSE_NS {
                BURST_AGAIN - 1
            } else {
                BURST_MIN - 1
            };
            assert_eq!(alone, expected, "after {pause_ns} ns");
        }
    }

    #[test]
    fn a_program_that_begins_to_compute_between_sends_has_few_of_them_held() {
        let mut batching = Batching::new();
        let mut now_ns = 0;
        batches(&mut batching, &mut now_ns, 2 * BURST_MIN, 300);
        let mut deferred = 0;
        for _ in 0..100 {
            now_ns += PAUSE_NS;
            batching.allow_deferral();
            let now = batching.wants_time().then_some(Time::from_nanos(now_ns));
            if batching.posted(now, true) {
                deferred += 1;
            } else {
                batching.flushed();
            }
        }
        assert!(deferred < SENDS_PER_CLOCK_READ, "{deferred}");
    }

    #[test]
    fn sends_between_which_a_program_waits_are_never_held() {
        let mut batching = Batching::new();
        for round in 0..500 {
            batching.allow_deferral();
            assert!(!batching.posted(Some(Time::from_nanos(round * 1000)), true));
            batching.end_burst();
        }
    }

    #[test]
    fn a_send_that_may_not_wait_takes_the_held_ones_along_and_ends_the_row() {
        let mut batching = Batching::new();
        let mut now_ns = 0;
        batches(&mut batching, &mut now_ns, BURST_MIN + 5, 300);
        assert!(!batching.is_empty());
        assert!(!batching.posted(Some(Time::from_nanos(now_ns + 300)), true));
        batching.flushed();
        batching.allow_deferral();
        assert!(!batching.posted(Some(Time::from_nanos(now_ns + 600)), true));
    }

    #[test]
    fn nothing_is_held_where_nobody_would_come_for_it() {
        let mut batching = Batching::new();
        for post in 0..500 {
            batching.allow_deferral();
            assert!(!batching.posted(Some(Time::from_nanos(post * 300)), false));
        }
    }
}
