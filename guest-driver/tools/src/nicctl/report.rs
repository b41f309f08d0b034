//! The card's reports, as text and as JSON.

use std::{collections::BTreeMap, fmt};

use firmware::{
    AdaptiveState, Coalescing, Reason,
    control::{Abilities, AdaptiveReport, CoalescingReport, CounterReport, ability},
};
use serde::Serialize;

use super::Strategies;

/// `nicctl info`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InfoOutput {
    /// The kernel's driver of the card, where it says; with `uio_pci_generic` and `vfio-pci` programs drive the card.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Version of the control protocol.
    pub version: u8,
    /// Number of receive queues.
    pub queue_pairs: u16,
    /// What the card can do.
    pub abilities: Vec<&'static str>,
    /// Coalescing strategies it has.
    pub strategies: Vec<String>,
    /// Longest coalescing delay in nanoseconds.
    pub delay_ns_max: u32,
    /// Greatest count limit.
    pub frames_max: u32,
}

impl InfoOutput {
    /// Describes a card with strategies of these names.
    #[must_use]
    pub fn new(card: Abilities, strategies: &Strategies) -> Self {
        let named = [
            (ability::COALESCING, "coalescing"),
            (ability::MARKS, "marks"),
            (ability::COUNTERS, "counters"),
            (ability::STEERING, "steering"),
            (ability::WATCHDOG, "watchdog"),
            (ability::TIMERS, "timers"),
            (ability::GROUPS, "groups"),
            (ability::ADAPTIVE, "adaptive state"),
            (ability::COPY_ENGINE, "copy-engine"),
            (ability::STRATEGY_NAMES, "strategy names"),
            (ability::HOST_RECORD, "host record"),
        ];
        Self {
            driver: None,
            version: card.version,
            queue_pairs: card.queue_pairs,
            abilities: named
                .into_iter()
                .filter(|(bit, _)| card.bits & bit != 0)
                .map(|(_, name)| name)
                .collect(),
            strategies: card.strategies.iter().map(|code| strategies.name(code)).collect(),
            delay_ns_max: card.delay_ns_max,
            frames_max: card.frames_max_max,
        }
    }
}

impl fmt::Display for InfoOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "programmable card, control protocol version {}", self.version)?;
        if let Some(driver) = &self.driver {
            let who = match driver.as_str() {
                "uio_pci_generic" | "vfio-pci" => "programs drive the card themselves",
                _ => "the kernel drives the card",
            };
            writeln!(f, "driver:         {driver}: {who}")?;
        }
        writeln!(f, "receive queues: {}", self.queue_pairs)?;
        writeln!(f, "abilities:      {}", self.abilities.join(", "))?;
        writeln!(f, "strategies:     {}", self.strategies.join(", "))?;
        write!(
            f,
            "limits:         delay {} us, {} frames",
            self.delay_ns_max / 1000,
            self.frames_max
        )
    }
}

/// `nicctl coalesce`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CoalescingOutput {
    /// The receive queue these settings are of.
    pub queue: u16,
    /// The settings, with the strategy by its name.
    #[serde(flatten)]
    pub coalescing: Coalescing<String>,
}

impl CoalescingOutput {
    /// Describes the report of a card with strategies of these names.
    #[must_use]
    pub fn new(report: CoalescingReport, strategies: &Strategies) -> Self {
        let settings = report.coalescing;
        Self {
            queue: report.queue,
            coalescing: settings.with_strategy(strategies.name(settings.strategy)),
        }
    }
}

impl fmt::Display for CoalescingOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "queue {}: {}, delay {} us, ",
            self.queue,
            self.coalescing.strategy,
            self.coalescing.delay_ns as f64 / 1000.0
        )?;
        match self.coalescing.frames_max {
            0 => write!(f, "no count limit")?,
            frames => write!(f, "at most {frames} frames")?,
        }
        write!(f, ", marks {}", if self.coalescing.marks { "on" } else { "off" })
    }
}

/// `nicctl adaptive`; names as those of `weft nic adaptive`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AdaptiveOutput {
    /// The receive queue.
    pub queue: u16,
    /// The strategy it is set to.
    pub strategy: String,
    /// The longest delay that may be chosen, in nanoseconds: that of the settings.
    pub longest_ns: u64,
    /// What was measured and chosen; absent while adaptive moderation is not on.
    #[serde(flatten)]
    pub state: Option<AdaptiveState>,
}

impl AdaptiveOutput {
    /// Describes the report of a card with strategies of these names.
    #[must_use]
    pub fn new(report: AdaptiveReport, strategies: &Strategies) -> Self {
        Self {
            queue: report.queue,
            strategy: strategies.name(report.strategy),
            longest_ns: report.longest_ns,
            state: report.state,
        }
    }
}

impl fmt::Display for AdaptiveOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1000.0;
        write!(f, "queue {}: {}, ", self.queue, self.strategy)?;
        match self.state {
            None => write!(f, "which does not adapt its delay of {} us", us(self.longest_ns)),
            Some(state) => write!(
                f,
                "delay {} us of at most {} us, {} packets/s when last measured, made longer {} times and shorter {} times",
                us(state.delay_ns),
                us(self.longest_ns),
                state.packets_per_s,
                state.longer,
                state.shorter
            ),
        }
    }
}

/// `nicctl stats`; names as those of `vnicd`'s control socket.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StatsOutput {
    /// The receive queue; absent for the sum of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<u16>,
    /// Counted while this strategy was configured; absent for the sum of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<String>,
    /// Packets that arrived and were taken.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// How many carried the mark.
    pub marked: u64,
    /// Packets refused because too many were in flight.
    pub refused_full: u64,
    /// Packets forgotten by a reset before they were announced.
    pub discarded: u64,
    /// What became of them.
    pub interrupts: InterruptsOutput,
}

/// The interrupts of [`StatsOutput`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InterruptsOutput {
    /// Decided by the card.
    pub decided: u64,
    /// Decided, but not wanted by the driver.
    pub suppressed: u64,
    /// Sent to the guest.
    pub signalled: u64,
    /// Decided, by reason; `strategy:NAME` for what a strategy decided for a reason of its own.
    pub by_reason: BTreeMap<String, u64>,
    /// How many packets each decided interrupt announced.
    pub packets_per_interrupt: Vec<Bucket>,
    /// Times that the interrupt for a marked packet was put off.
    pub deferred: u64,
    /// Packets that this machine had processed before any interrupt announced them, as the watchdog found.
    pub polled: u64,
    /// Packets not announced yet; absent when one strategy was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unannounced: Option<u64>,
}

/// One bucket of a histogram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bucket {
    /// Least value.
    pub from: u32,
    /// Greatest value; absent where there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<u32>,
    /// How many.
    pub count: u64,
}

impl StatsOutput {
    /// Describes the report of a card with strategies of these names; `own` is how often each of them decided for a
    /// reason of its own.
    #[must_use]
    pub fn new(report: &CounterReport, strategies: &Strategies, own: Vec<(String, u64)>) -> Self {
        let counts = report.counts;
        let buckets = counts
            .packets_per_interrupt
            .iter()
            .filter(|(from, _, count)| *from > 0 || *count > 0);
        Self {
            queue: report.queue,
            strategy: report.strategy.map(|code| strategies.name(code)),
            packets: counts.packets,
            bytes: counts.bytes,
            marked: counts.marked,
            refused_full: counts.refused_full,
            discarded: counts.discarded,
            interrupts: InterruptsOutput {
                decided: counts.decided_total(),
                suppressed: counts.suppressed,
                signalled: counts.signalled,
                by_reason: Reason::ALL
                    .into_iter()
                    .filter(|reason| *reason != Reason::Strategy)
                    .map(|reason| (reason.name().to_owned(), counts.decided_for(reason)))
                    .chain(own.into_iter().map(|(name, count)| (format!("strategy:{name}"), count)))
                    .collect(),
                packets_per_interrupt: buckets
                    .map(|(from, to, count)| Bucket {
                        from,
                        to: (to != u32::MAX).then_some(to),
                        count,
                    })
                    .collect(),
                deferred: counts.deferred,
                polled: counts.polled,
                unannounced: report.strategy.is_none().then(|| counts.unannounced()),
            },
        }
    }
}

impl fmt::Display for StatsOutput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let interrupts = &self.interrupts;
        writeln!(
            f,
            "packets received   {} ({} bytes), {} marked",
            self.packets, self.bytes, self.marked
        )?;
        writeln!(
            f,
            "interrupts         {} decided, {} suppressed by the driver, {} signalled",
            interrupts.decided, interrupts.suppressed, interrupts.signalled
        )?;
        for (reason, count) in interrupts.by_reason.iter().filter(|(_, count)| **count > 0) {
            writeln!(f, "  because of       {reason}: {count}")?;
        }
        for bucket in interrupts
            .packets_per_interrupt
            .iter()
            .filter(|bucket| bucket.count > 0)
        {
            let range = match bucket.to {
                Some(to) if to == bucket.from => to.to_string(),
                Some(to) => format!("{} to {to}", bucket.from),
                None => format!("{} and more", bucket.from),
            };
            writeln!(f, "  for packets      {range}: {}", bucket.count)?;
        }
        write!(f, "put off            {} times", interrupts.deferred)?;
        if interrupts.polled > 0 {
            write!(f, "\nfound by polling   {} packets", interrupts.polled)?;
        }
        if let Some(unannounced) = interrupts.unannounced {
            write!(f, "\nnot announced yet  {unannounced} packets")?;
        }
        if self.refused_full + self.discarded > 0 {
            write!(
                f,
                "\nlost in the card   {} too many at once, {} by a reset",
                self.refused_full, self.discarded
            )?;
        }
        Ok(())
    }
}
