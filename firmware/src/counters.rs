//! What the card counts about reception (`papers.md` M-GF10): per queue, per strategy, with the reason of every interrupt.
//!
//! The counters are plain numbers that only grow. Transmit completions and what the guest took are counted elsewhere.

mod histogram;
mod rx_counts;

pub use histogram::Histogram;
pub use rx_counts::RxCounts;

use crate::{Interrupt, Reason, ReasonOf, StrategyKind};

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
            (ReasonOf::new(reason, StrategyKind::ALL[0]), counts.0, counts.1)
        });
        let own = StrategyKind::ALL.iter().filter_map(|&strategy| {
            let decided = self.strategy(strategy).decided_for(Reason::Strategy);
            let announced = self.announced_own[strategy.index()];
            (decided > 0).then_some((ReasonOf::new(Reason::Strategy, strategy), decided, announced))
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
                let named = ReasonOf::new(reason, strategy);
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
