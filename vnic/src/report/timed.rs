//! What a card's watchdog and timers counted, with the JSON shape of `docs/spec/control-socket.md`. No behaviour.

use firmware::Lateness;
use firmware::timers::TimerCounters;
use firmware::watchdog::WatchdogCounters;
use serde::{Deserialize, Serialize};

/// One class of the histogram of lateness.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatenessClass {
    /// Greatest lateness in this class; absent in the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to_ns: Option<u64>,
    /// Timers in this class.
    pub count: u64,
}

/// The watchdogs of all queues of a card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchdogStats {
    /// Times that an arrival started a timer.
    pub started: u64,
    /// Expiries: all was processed, the timer stopped.
    pub cancelled: u64,
    /// Expiries: interrupts were disabled, the timer started anew.
    pub restarted_disabled: u64,
    /// Expiries: some was processed since the last look, the timer started anew.
    pub restarted_progress: u64,
    /// Expiries: only unfinished DMAs were left, the timer started anew.
    pub restarted_pending: u64,
    /// Expiries that interrupted the guest.
    pub fired: u64,
    /// Greatest lateness of an expiry.
    pub late_max_ns: u64,
    /// Expiries by lateness; classes without any are left out.
    pub lateness: Vec<LatenessClass>,
}

/// A timer that a guest armed, with what is left of it: what one `vnicd` hands to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmedTimer {
    /// The guest's number for it.
    pub timer: u16,
    /// The address that armed it.
    pub owner: String,
    /// True: a clock, which rings again and again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clock: bool,
    /// The period of a clock; 0 for others.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub period_ns: u64,
    /// When it rings, or the clock's next tick comes, in nanoseconds since 1970. One that was due before it is armed again
    /// rings at once.
    pub due_unix_ns: u64,
}

fn is_zero(value: &u64) -> bool {
    *value == 0
}

/// The timers of a card.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimerStats {
    /// Armed now; the one value here that also falls.
    pub armed_now: u64,
    /// Armed.
    pub armed: u64,
    /// Disarmed.
    pub disarmed: u64,
    /// One-shot timers that rang.
    pub rung_once: u64,
    /// Ticks of clocks at which no timer ran.
    pub clock_idle: u64,
    /// Ticks of clocks at which the guest had polled.
    pub clock_polled: u64,
    /// Ticks of clocks that rang.
    pub clock_rung: u64,
    /// Ticks that the card missed.
    pub clock_missed: u64,
    /// Rings for which the guest had no receive buffer.
    pub lost: u64,
    /// Greatest lateness of a timer or tick.
    pub late_max_ns: u64,
    /// Timers and ticks by lateness; classes without any are left out.
    pub lateness: Vec<LatenessClass>,
}

fn classes(lateness: &Lateness) -> Vec<LatenessClass> {
    let all = lateness.counts().iter().enumerate();
    all.filter(|(_, count)| **count > 0)
        .map(|(bucket, &count)| LatenessClass {
            to_ns: Lateness::bound_ns(bucket).filter(|bound| *bound != u64::MAX),
            count,
        })
        .collect()
}

impl From<&WatchdogCounters> for WatchdogStats {
    fn from(counters: &WatchdogCounters) -> Self {
        Self {
            started: counters.started,
            cancelled: counters.cancelled,
            restarted_disabled: counters.restarted_disabled,
            restarted_progress: counters.restarted_progress,
            restarted_pending: counters.restarted_pending,
            fired: counters.fired,
            late_max_ns: counters.lateness.max_ns(),
            lateness: classes(&counters.lateness),
        }
    }
}

impl TimerStats {
    /// What was counted, with as many timers armed now.
    pub fn new(counters: &TimerCounters, armed_now: usize) -> Self {
        let mut lateness = counters.lateness;
        lateness.add(&counters.clocks.lateness);
        Self {
            armed_now: armed_now as u64,
            armed: counters.armed,
            disarmed: counters.disarmed,
            rung_once: counters.rung_once,
            clock_idle: counters.clocks.idle,
            clock_polled: counters.clocks.polled,
            clock_rung: counters.clocks.rung,
            clock_missed: counters.clocks.missed,
            lost: counters.lost,
            late_max_ns: lateness.max_ns(),
            lateness: classes(&lateness),
        }
    }
}
