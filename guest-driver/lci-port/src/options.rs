//! How a node is made.

use std::time::Duration;

use lci::{Limits, Policy, Timing};

/// The settings of a node; those of the engine are the same at all nodes.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Which of several programs on the same network.
    pub job: u16,
    /// What the host does itself.
    pub policy: Policy,
    /// Times of the protocol.
    pub timing: Timing,
    /// Limits of the engine.
    pub limits: Limits,
    /// A card of the node's own looks after it: its watchdog and its clock read the node's state from memory, and it interrupts. Otherwise
    /// a thread stands in for it, which looks at the port again and again. Off by default: where `vnicd` is restarted while an
    /// interrupt is not yet taken, QEMU throws away the card's interrupts from then on.
    pub by_card: bool,
    /// How long to wait for all nodes.
    pub ready_timeout: Duration,
    /// M-BV8 on the host, for cards without a watchdog of their own: after a frame has arrived, the program has this time to poll
    /// before it is interrupted, and again as long as it makes progress. Zero interrupts at once.
    pub watchdog: Duration,
    /// M-BV10: while timers run, the clock is looked at this often if the program does not do so.
    pub clock_period: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            job: 0,
            policy: Policy::Host,
            timing: Timing::default(),
            limits: Limits::default(),
            by_card: false,
            ready_timeout: Duration::from_secs(30),
            watchdog: Duration::from_micros(100),
            clock_period: Duration::from_micros(500),
        }
    }
}
