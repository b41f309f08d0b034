//! One set of counters about reception: of a queue or of several, under one strategy or all.

use super::Histogram;
use crate::{Interrupt, Reason};

/// What was counted about reception.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounts {
    /// Packets that arrived and were taken.
    pub packets: u64,
    /// Their bytes, without frame check sequences.
    pub bytes: u64,
    /// How many of these packets carried the latency-sensitive mark, while marks were read.
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
        self.packets_per_interrupt.add(&other.packets_per_interrupt);
    }

    #[inline]
    pub(crate) fn record(&mut self, interrupt: &Interrupt) {
        self.decided[interrupt.reason.index()] += 1;
        self.announced += u64::from(interrupt.packets);
        self.packets_per_interrupt.record(interrupt.packets);
    }
}
