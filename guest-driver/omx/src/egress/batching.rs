//! Batching: short sends posted one right after the other are held back and go out together, because frames that share a system call
//! cost a quarter less each. Whether the next send is held is decided here. Held sends go out with the next call that makes progress or
//! takes the completion of one of them, and by the helper thread when it polls next (`Endpoint::isend`, `helper`).
//! A timer of their own would cost more than they save: to set one took 10 us in the virtual machine it was tried in.

use ether::Time;

/// Sends in one burst, with no other progress between them, after which further ones are held: the neighbours of a cell in three
/// dimensions (26) are served at once, whatever the program does then.
const BURST_MIN: u32 = 32;
/// A send posted this much later than the one before it is not held. A send of its own takes a few microseconds.
const GAP_NS: u64 = 10_000;
/// Nor is one after a longer pause, which ends the burst: this long the processor may have been away, for its timer or another program.
const PAUSE_NS: u64 = 100_000;
/// Sends after such a gap that go out one by one, before the burst goes on.
const BURST_AGAIN: u32 = 4;
/// While sends are held the clock is read for every so many: to read it takes as long as to keep a send.
const SENDS_PER_LOOK: u32 = 4;
/// Sends that go out together at most. Messages of 128 bytes per second over veth, against one by one: 1.30 x in batches of 8,
/// 1.35 x of 16, 1.41 x of 32, 1.42 x of 64.
const BATCH_MAX: u32 = 64;

/// What is known of the sends last posted.
#[derive(Debug)]
pub(crate) struct Batching {
    /// Sends posted one right after the other.
    burst: u32,
    last_look: Time,
    /// Sends since then.
    unlooked: u32,
    held: u32,
    /// Which batch is being made; never 0.
    batch: u32,
    /// The send that is being posted may be held: it is short, complete for the program, and leaves by the port.
    may_wait: bool,
}

impl Batching {
    pub(crate) const fn new() -> Self {
        Self {
            burst: 0,
            last_look: Time::ZERO,
            unlooked: 0,
            held: 0,
            batch: 1,
            may_wait: false,
        }
    }

    /// The send that is being posted may be held: it is short, complete for the program, and leaves by the port.
    #[inline]
    pub(crate) const fn allow_holding(&mut self) {
        self.may_wait = true;
    }

    /// Whether it is to be known when the next send is posted.
    #[inline]
    pub(crate) const fn wants_time(&self) -> bool {
        self.burst < BURST_MIN || self.unlooked + 1 >= SENDS_PER_LOOK
    }

    /// A send was posted, at `now` if that is [known](Self::wants_time); `watched`: somebody comes for it if the program does not.
    /// Whether it is held; otherwise everything goes out.
    #[inline]
    pub(crate) fn posted(&mut self, now: Option<Time>, watched: bool) -> bool {
        let may_wait = std::mem::replace(&mut self.may_wait, false) && watched;
        let gap_ns = now.map_or(0, |now| {
            now.nanos_since(self.last_look) / (u64::from(self.unlooked) + 1)
        });
        match now {
            Some(now) => (self.last_look, self.unlooked) = (now, 0),
            None => self.unlooked += 1,
        }
        self.burst = match self.burst {
            _ if !may_wait => 0,
            burst if gap_ns < GAP_NS => burst.saturating_add(1),
            burst if burst >= BURST_MIN && gap_ns < PAUSE_NS => BURST_MIN - BURST_AGAIN,
            _ => 0,
        };
        let held = self.burst >= BURST_MIN && self.held + 1 < BATCH_MAX;
        if held {
            self.held += 1;
        }
        held
    }

    /// What the batch is called that the send just held is in, for [`Batching::holds`]; never 0.
    #[inline]
    pub(crate) const fn batch(&self) -> u32 {
        self.batch
    }

    /// Whether sends of this batch are still here.
    #[inline]
    pub(crate) const fn holds(&self, batch: u32) -> bool {
        self.held > 0 && batch == self.batch
    }

    /// Whether the next send may be held, or others are.
    #[inline]
    pub(crate) const fn may_hold(&self) -> bool {
        self.held > 0 || self.burst + 1 >= BURST_MIN
    }

    #[inline]
    pub(crate) const fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Everything has gone out.
    #[inline]
    pub(crate) fn flushed(&mut self) {
        if self.held > 0 {
            self.held = 0;
            self.batch = self.batch.wrapping_add(1).max(1);
        }
    }

    /// To send a batch took until `now`: the burst goes on from here.
    #[inline]
    pub(crate) const fn goes_on(&mut self, now: Time) {
        (self.last_look, self.unlooked) = (now, 0);
    }

    /// The program did something else: a program that waits for answers is not in a burst of sends.
    #[inline]
    pub(crate) const fn end_burst(&mut self) {
        self.burst = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Posts as a program does whose sends are `gap_ns` apart; how many went out with each one that was not held.
    fn batches(batching: &mut Batching, now_ns: &mut u64, posts: u32, gap_ns: u64) -> Vec<u32> {
        let mut batches = Vec::new();
        let mut held = 0;
        for _ in 0..posts {
            *now_ns += gap_ns;
            batching.allow_holding();
            let now = batching.wants_time().then_some(Time::from_nanos(*now_ns));
            if batching.posted(now, true) {
                assert!(batching.holds(batching.batch()));
                held += 1;
                continue;
            }
            batches.push(held + 1);
            held = 0;
            let batch = batching.batch();
            batching.flushed();
            assert!(batching.is_empty() && !batching.holds(batch));
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
            now_ns += pause_ns * u64::from(SENDS_PER_LOOK);
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
        let mut held = 0;
        for _ in 0..100 {
            now_ns += PAUSE_NS;
            batching.allow_holding();
            let now = batching.wants_time().then_some(Time::from_nanos(now_ns));
            if batching.posted(now, true) {
                held += 1;
            } else {
                batching.flushed();
            }
        }
        assert!(held < SENDS_PER_LOOK, "{held}");
    }

    #[test]
    fn sends_between_which_a_program_waits_are_never_held() {
        let mut batching = Batching::new();
        for round in 0..500 {
            batching.allow_holding();
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
        batching.allow_holding();
        assert!(!batching.posted(Some(Time::from_nanos(now_ns + 600)), true));
    }

    #[test]
    fn nothing_is_held_where_nobody_would_come_for_it() {
        let mut batching = Batching::new();
        for post in 0..500 {
            batching.allow_holding();
            assert!(!batching.posted(Some(Time::from_nanos(post * 300)), false));
        }
    }
}
