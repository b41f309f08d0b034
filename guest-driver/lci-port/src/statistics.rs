//! What a node counted.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use lci::Counters;
use netif::NetifCounters;

/// Interrupts of a node, and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterruptCounters {
    /// Frames arrived while none had before, or a timer's time came; of a card that looks after the node, its interrupts.
    pub arrived: u64,
    /// Not delivered, because the program had polled meanwhile (M-BV8).
    pub cancelled: u64,
    /// Came while the program had interrupts disabled, and returned without processing (M-BV9).
    pub suppressed: u64,
    /// Processed packets.
    pub taken: u64,
    /// The clock was looked at because the program did not (M-BV10).
    pub clock: u64,
}

/// [`InterruptCounters`], counted by several threads.
#[derive(Default)]
pub(crate) struct Interrupts {
    pub(crate) arrived: AtomicU64,
    pub(crate) cancelled: AtomicU64,
    pub(crate) suppressed: AtomicU64,
    pub(crate) taken: AtomicU64,
    pub(crate) clock: AtomicU64,
}

impl Interrupts {
    pub(crate) fn count(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> InterruptCounters {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        InterruptCounters {
            arrived: read(&self.arrived),
            cancelled: read(&self.cancelled),
            suppressed: read(&self.suppressed),
            taken: read(&self.taken),
            clock: read(&self.clock),
        }
    }
}

/// The counts of a node since it was made.
#[derive(Clone, Debug)]
pub struct Statistics {
    /// Of the engine.
    pub engine: Counters,
    /// Of the port.
    pub port: NetifCounters,
    /// Of the interrupts.
    pub interrupts: InterruptCounters,
    /// Time of the library's work on frames that came, what it passed on to others included and the program's upcalls not: polls
    /// that found nothing, waiting, and polls during which the processor was taken away are not in it.
    pub busy: Duration,
    /// Interrupts are those of a card that knows this node's state exactly; otherwise a thread stands in for its watchdog and clock.
    pub card_looks: bool,
}
