//! The executable specification of the polling watchdog, written from the paper's section 5.1 and `papers.md` M-BV8, and the
//! mutants of it that the tests must tell from the real one. It shares no code with the crate.

use ether::Time;
use firmware::{
    HostState, Watchdog,
    watchdog::{WatchdogAction, WatchdogCounters},
};

/// What the tests need of a watchdog: the real one, the specification, and mutants.
pub trait Dog {
    fn arrive(&mut self, now: u64);
    fn poll(&mut self, now: u64, delivered: u64, pending: bool) -> Option<WatchdogAction>;
    fn host_state(&mut self, now: u64, state: HostState, fetch_ns: u64);
    fn next_event(&self) -> Option<u64>;
    /// Without the lateness.
    fn counters(&self) -> WatchdogCounters;
}

impl Dog for Watchdog {
    fn arrive(&mut self, now: u64) {
        Self::arrive(self, Time::from_nanos(now));
    }

    fn poll(&mut self, now: u64, delivered: u64, pending: bool) -> Option<WatchdogAction> {
        Self::poll(self, Time::from_nanos(now), delivered, pending)
    }

    fn host_state(&mut self, now: u64, state: HostState, fetch_ns: u64) {
        Self::host_state(self, Time::from_nanos(now), state, fetch_ns);
    }

    fn next_event(&self) -> Option<u64> {
        Self::next_event(self).map(Time::as_nanos)
    }

    fn counters(&self) -> WatchdogCounters {
        WatchdogCounters {
            lateness: Default::default(),
            ..*Self::counters(self)
        }
    }
}

/// A fault built into the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    CancelNever,
    FetchBeforeExpiry,
    TimerFromLastArrival,
    InterruptWhileDisabled,
    InterruptInSpiteOfProgress,
    NoRestartAfterInterrupt,
    NoRestartAfterDisabled,
    DecideBeforeTheDma,
    CancelWithDmaPending,
    ProgressSinceEver,
    FetchAtEveryArrival,
}

/// The specification.
#[derive(Clone, Debug)]
pub struct Reference {
    delay: u64,
    mutant: Option<Mutant>,
    /// "A watchdog timer": when it was started.
    timer: Option<u64>,
    fetch_wanted: bool,
    /// What the "single, small DMA transfer" copies, and when it is complete.
    copy: Option<(HostState, u64)>,
    /// The host's variables are still to be handed over.
    reading: bool,
    /// The count of processed packets in the last copy.
    last_count: u64,
    counters: WatchdogCounters,
}

impl Reference {
    pub fn new(delay: u64, mutant: Option<Mutant>) -> Self {
        Self {
            delay,
            mutant,
            timer: None,
            fetch_wanted: false,
            copy: None,
            reading: false,
            last_count: 0,
            counters: WatchdogCounters::default(),
        }
    }

    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn expires(&self) -> Option<u64> {
        let delay = match self.mutant {
            Some(Mutant::FetchBeforeExpiry) => self.delay - 1,
            _ => self.delay,
        };
        self.timer.map(|started| started + delay)
    }
}

impl Dog for Reference {
    /// "LCI starts the watchdog timer each time a packet arrives and the timer is not already running on behalf of an
    /// earlier packet."
    fn arrive(&mut self, now: u64) {
        let runs = self.timer.is_some() || self.reading || self.copy.is_some();
        if !runs {
            self.timer = Some(now);
            self.counters.started += 1;
        } else if self.timer.is_some() && self.is(Mutant::TimerFromLastArrival) {
            self.timer = Some(now);
        }
        self.fetch_wanted |= self.is(Mutant::FetchAtEveryArrival) && !self.reading && self.copy.is_none();
    }

    fn poll(&mut self, now: u64, delivered: u64, pending: bool) -> Option<WatchdogAction> {
        // "When the timer expires, the NI copies both variables to NI memory using a single, small DMA transfer."
        if std::mem::take(&mut self.fetch_wanted) || self.expires().is_some_and(|at| at <= now) {
            self.timer = None;
            self.reading = true;
            return Some(WatchdogAction::FetchHostState);
        }
        let (variables, complete) = self.copy?;
        if complete > now && !self.is(Mutant::DecideBeforeTheDma) {
            return None;
        }
        self.copy = None;
        let count = variables.processed.min(delivered);
        let some_consumed = if self.is(Mutant::ProgressSinceEver) {
            count > 0
        } else {
            count > self.last_count
        };
        self.last_count = count;
        // "If the packet counter indicates that the host has processed all packets delivered to it by the NI, then the NI
        // cancels the polling watchdog timer." A packet that is in flight has started it, and needs it still.
        if count == delivered && !self.is(Mutant::CancelNever) {
            if pending && !self.is(Mutant::CancelWithDmaPending) {
                self.counters.restarted_pending += 1;
                self.timer = Some(complete);
            } else {
                self.counters.cancelled += 1;
            }
            return None;
        }
        // "If the interrupt status flag indicates that the host recently disabled interrupts or if the packet counter
        // shows that the host consumed some of the packets delivered to it, then the NI does not generate an interrupt,
        // but restarts the timer."
        if !variables.interrupts_enabled && !self.is(Mutant::InterruptWhileDisabled) {
            self.counters.restarted_disabled += 1;
            self.timer = (!self.is(Mutant::NoRestartAfterDisabled)).then_some(complete);
            return None;
        }
        if some_consumed && !self.is(Mutant::InterruptInSpiteOfProgress) {
            self.counters.restarted_progress += 1;
            self.timer = Some(complete);
            return None;
        }
        // "Otherwise, the NI generates an interrupt and restarts the timer."
        self.counters.fired += 1;
        self.timer = (!self.is(Mutant::NoRestartAfterInterrupt)).then_some(complete);
        Some(WatchdogAction::Raise(Time::from_nanos(complete)))
    }

    fn host_state(&mut self, now: u64, state: HostState, fetch_ns: u64) {
        if std::mem::take(&mut self.reading) {
            self.copy = Some((state, now + fetch_ns));
        }
    }

    fn next_event(&self) -> Option<u64> {
        self.expires().or(self.copy.map(|(_, complete)| complete))
    }

    fn counters(&self) -> WatchdogCounters {
        self.counters
    }
}
