//! What the card counts about reception (`papers.md` M-GF10): per queue, per strategy, with the reason of every interrupt.
//!
//! Plain numbers that only grow. Transmit completions and what the guest took are counted elsewhere.

use crate::{Interrupt, Reason, ReasonOf, StrategyKind};

/// Packets per interrupt, in fixed buckets: 0, 1, 2, 3–4, 5–8, 9–16, 17–32, 33–64, 65 and more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; Self::BUCKETS],
}

impl Histogram {
    /// Number of buckets.
    pub const BUCKETS: usize = 9;

    /// Inclusive bounds of a bucket; the last one has no upper bound and says `u32::MAX`. `None` past the last bucket.
    pub const fn bounds(bucket: usize) -> Option<(u32, u32)> {
        match bucket {
            0 => Some((0, 0)),
            1 => Some((1, 1)),
            2..=7 => Some(((1 << (bucket - 2)) + 1, 1 << (bucket - 1))),
            8 => Some((65, u32::MAX)),
            _ => None,
        }
    }

    /// The bucket that an interrupt for so many packets falls in.
    #[inline]
    pub const fn bucket(packets: u32) -> usize {
        let bucket = match packets {
            0 => 0,
            _ => 33 - (packets - 1).leading_zeros() as usize,
        };
        if bucket < Self::BUCKETS {
            bucket
        } else {
            Self::BUCKETS - 1
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, packets: u32) {
        self.counts[Self::bucket(packets)] += 1;
    }

    /// Interrupts in each bucket.
    pub const fn counts(&self) -> &[u64; Self::BUCKETS] {
        &self.counts
    }

    /// From the counts of another histogram, as a control frame brings them.
    pub const fn from_counts(counts: [u64; Self::BUCKETS]) -> Self {
        Self { counts }
    }

    /// Lower bound, upper bound and count of every bucket.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        self.counts
            .iter()
            .enumerate()
            .filter_map(|(bucket, &count)| Self::bounds(bucket).map(|(from, to)| (from, to, count)))
    }
}

/// One set of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounts {
    /// Packets that arrived and were taken.
    pub packets: u64,
    /// Their bytes, without frame check sequences.
    pub bytes: u64,
    /// How many of them carried the latency-sensitive mark (and marks were looked at).
    pub marked: u64,
    /// Packets announced by an interrupt.
    pub announced: u64,
    /// Packets forgotten by a reset of the queue before they were announced.
    pub discarded: u64,
    /// Packets that the host had processed before any interrupt announced them, as the polling watchdog found.
    pub polled: u64,
    /// Packets refused because too many were in flight to host memory.
    pub refused_full: u64,
    /// Interrupts decided, by [`Reason::index`].
    pub decided: [u64; Reason::COUNT],
    /// Times that the interrupt for a marked packet was put off because other packets were in flight.
    pub deferred: u64,
    /// Decided interrupts that the driver's ring state did not want.
    pub suppressed: u64,
    /// Decided interrupts that were signalled to the guest.
    pub signalled: u64,
    /// Packets per decided interrupt. Its counts add up to the number of decided interrupts.
    pub packets_per_interrupt: Histogram,
}

impl RxCounts {
    /// Interrupts decided for any reason.
    pub fn decided_total(&self) -> u64 {
        self.decided.iter().sum()
    }

    /// Interrupts decided for one reason.
    pub const fn decided_for(&self, reason: Reason) -> u64 {
        self.decided[reason.index()]
    }

    /// Packets that arrived and are neither announced, nor discarded, nor found by polling. Meaningful for sums over all strategies only: a
    /// packet may arrive under one strategy and be announced under the next.
    pub const fn unannounced(&self) -> u64 {
        self.packets
            .saturating_sub(self.announced)
            .saturating_sub(self.discarded)
            .saturating_sub(self.polled)
    }

    /// Adds another set to this one.
    pub fn add(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.marked += other.marked;
        self.announced += other.announced;
        self.discarded += other.discarded;
        self.polled += other.polled;
        self.refused_full += other.refused_full;
        for (sum, count) in self.decided.iter_mut().zip(other.decided) {
            *sum += count;
        }
        self.deferred += other.deferred;
        self.suppressed += other.suppressed;
        self.signalled += other.signalled;
        for (sum, count) in self
            .packets_per_interrupt
            .counts
            .iter_mut()
            .zip(other.packets_per_interrupt.counts)
        {
            *sum += count;
        }
    }

    #[inline]
    pub(crate) fn record(&mut self, interrupt: &Interrupt) {
        self.decided[interrupt.reason.index()] += 1;
        self.announced += u64::from(interrupt.packets);
        self.packets_per_interrupt.record(interrupt.packets);
    }
}

/// The counters of one receive queue. Each event is counted under the strategy that was configured when it happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    by_strategy: [RxCounts; StrategyKind::COUNT],
    /// Packets announced, by [`Reason::index`] of the interrupt that announced them.
    announced: [u64; Reason::COUNT],
    /// Packets announced by the interrupts that each strategy decided for a reason of its own.
    announced_own: [u64; StrategyKind::COUNT],
}

impl RxCounters {
    /// What happened while `strategy` was configured.
    #[inline]
    pub const fn strategy(&self, strategy: StrategyKind) -> &RxCounts {
        &self.by_strategy[strategy.index()]
    }

    #[inline]
    pub(crate) fn strategy_mut(&mut self, strategy: StrategyKind) -> &mut RxCounts {
        &mut self.by_strategy[strategy.index()]
    }

    /// Counts an interrupt decided while `strategy` was configured.
    #[inline]
    pub(crate) fn record(&mut self, strategy: StrategyKind, interrupt: &Interrupt) {
        self.strategy_mut(strategy).record(interrupt);
        self.announced[interrupt.reason.index()] += u64::from(interrupt.packets);
        if interrupt.reason == Reason::Strategy {
            self.announced_own[strategy.index()] += u64::from(interrupt.packets);
        }
    }

    /// Packets announced by the interrupts decided for one reason, under any strategy.
    pub const fn announced_for(&self, reason: Reason) -> u64 {
        self.announced[reason.index()]
    }

    /// For each reason as it is shown, how many interrupts were decided for it and how many packets they announced, under any
    /// strategy. All of [`Reason::ALL`] but [`Reason::Strategy`], and for that each strategy that gave it. The interrupts add up to
    /// [`RxCounters::decided_total`].
    pub fn by_reason(&self) -> impl Iterator<Item = (ReasonOf, u64, u64)> {
        let plain = Reason::ALL.into_iter().filter(|reason| *reason != Reason::Strategy);
        let plain = plain.map(|reason| {
            let counts = (self.decided_for(reason), self.announced_for(reason));
            (reason.of(StrategyKind::ALL[0]), counts.0, counts.1)
        });
        let own = StrategyKind::ALL.iter().filter_map(|&strategy| {
            let decided = self.strategy(strategy).decided_for(Reason::Strategy);
            let announced = self.announced_own[strategy.index()];
            (decided > 0).then_some((Reason::Strategy.of(strategy), decided, announced))
        });
        plain.chain(own)
    }

    /// Sum over all strategies.
    pub fn total(&self) -> RxCounts {
        let mut sum = RxCounts::default();
        self.by_strategy.iter().for_each(|counts| sum.add(counts));
        sum
    }

    /// Interrupts decided for any reason under any strategy.
    pub fn decided_total(&self) -> u64 {
        self.by_strategy.iter().map(RxCounts::decided_total).sum()
    }

    /// Interrupts decided for one reason under any strategy.
    pub fn decided_for(&self, reason: Reason) -> u64 {
        self.by_strategy.iter().map(|counts| counts.decided_for(reason)).sum()
    }

    /// Packets taken and not yet announced (nor discarded), at this moment.
    pub fn unannounced(&self) -> u64 {
        self.total().unannounced()
    }

    /// Adds another queue's counters to these.
    pub fn add(&mut self, other: &Self) {
        for (sum, counts) in self.by_strategy.iter_mut().zip(&other.by_strategy) {
            sum.add(counts);
        }
        let own = self.announced_own.iter_mut().zip(other.announced_own);
        for (sum, count) in self.announced.iter_mut().zip(other.announced).chain(own) {
            *sum += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::{string::ToString, vec::Vec};

    use ether::Time;

    use super::*;

    #[test]
    fn what_a_strategy_decides_by_itself_is_counted_under_its_name() {
        let mut counters = RxCounters::default();
        let mut interrupt = |strategy, reason, packets| {
            counters.record(
                strategy,
                &Interrupt {
                    reason,
                    packets,
                    sequence: 1,
                    decided_at: Time::ZERO,
                },
            );
        };
        interrupt(StrategyKind::Stream, Reason::Mark, 1);
        interrupt(StrategyKind::Stream, Reason::Strategy, 3);
        interrupt(StrategyKind::OpenMx, Reason::Strategy, 4);
        interrupt(StrategyKind::OpenMx, Reason::Strategy, 5);
        let counted: Vec<_> = counters.by_reason().filter(|(_, decided, _)| *decided > 0).collect();
        let words: Vec<_> = counted
            .iter()
            .map(|(reason, decided, announced)| (reason.to_string(), *decided, *announced))
            .collect();
        assert_eq!(
            words,
            [
                ("mark".to_string(), 1, 1),
                ("strategy:open-mx".to_string(), 2, 9),
                ("strategy:stream".to_string(), 1, 3)
            ]
        );
        let sum: u64 = counted.iter().map(|(_, decided, _)| decided).sum();
        assert_eq!(sum, counters.decided_total());
    }

    #[test]
    fn reasons_of_records_have_the_names_that_the_card_has() {
        for &strategy in StrategyKind::ALL {
            for reason in Reason::ALL {
                let named = reason.of(strategy);
                assert_eq!(
                    ReasonOf::name_of_code(named.code(), StrategyKind::NAMES),
                    named.to_string()
                );
            }
        }
        assert_eq!(
            ReasonOf::name_of_code(0x81, &["disabled", "every-second"]),
            "strategy:every-second"
        );
        assert_eq!(
            ReasonOf::name_of_code(0x82, &["disabled", "every-second"]),
            "strategy:2"
        );
        assert_eq!(ReasonOf::name_of_code(0x7f, StrategyKind::NAMES), "unknown");
    }
}
