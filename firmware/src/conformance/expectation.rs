//! Expectation traces: packets that arrive, and the interrupts that a strategy should decide on. A course says with them what is right.

use alloc::{format, string::String, vec::Vec};
use core::fmt;

use ether::Time;

use super::{
    load::{Batch, Load},
    path::Watch,
    strategy::pipeline,
    timeline::Timeline,
};
use crate::{Coalescing, DmaModel, PacketInfo, Reason, StrategyKind, coalescing::Strategy};

/// A packet of an expectation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When the packet arrives. Packets of one time arrive together.
    pub at: Time,
    /// The descriptor of the packet.
    pub packet: PacketInfo,
}

/// An interrupt that should be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected {
    /// When the interrupt is decided.
    pub at: Time,
    /// The reason of the interrupt; `None` = any reason.
    pub reason: Option<Reason>,
    /// How many packets it announces; `None` = any number.
    pub packets: Option<u32>,
}

/// What arrives, and what should follow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The delay of the settings, in nanoseconds.
    pub delay_ns: u64,
    /// The count limit; 0 = none.
    pub frames_max: u32,
    /// How long each DMA takes, one after the other, in nanoseconds; 0 = no time.
    pub dma_ns: u64,
    /// Packets in the order of time.
    pub arrivals: Vec<Arrival>,
    /// All interrupts, in the order of time.
    pub interrupts: Vec<Expected>,
}

/// A strategy does not do what is expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unexpected {
    /// What, in a sentence.
    pub details: String,
    /// What happened, a line for each event.
    pub timeline: String,
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.details)
    }
}

impl core::error::Error for Unexpected {}

impl Expectation {
    /// Lets the packets arrive at a fresh queue with this strategy.
    ///
    /// # Errors
    /// The first interrupt that is not as expected, or that there is a promise which the strategy breaks here.
    pub fn check<S: Strategy>(&self) -> Result<(), Unexpected> {
        let load = self.load();
        let mut watch = Watch::new(pipeline::<S>());
        watch.begin(&load);
        if let Err(broken) = watch.run(&load) {
            return Err(Unexpected {
                details: format!("{broken}"),
                timeline: format!("{}", watch.timeline),
            });
        }
        let decided = watch.decisions(0).interrupts;
        for position in 0..decided.len().max(self.interrupts.len()) {
            let (expected, found) = (self.interrupts.get(position), decided.get(position));
            if !matches!((expected, found), (Some(expected), Some(found)) if expected.is_met_by(*found)) {
                return Err(unexpected(position + 1, expected, found.copied(), &mut watch.timeline));
            }
        }
        Ok(())
    }

    fn load(&self) -> Load {
        let mut batches: Vec<Batch> = Vec::new();
        let mut last = Time::ZERO;
        for arrival in &self.arrivals {
            match batches.last_mut() {
                Some(batch) if arrival.at == last => batch.packets.push(arrival.packet),
                _ => batches.push(Batch {
                    after_ns: arrival.at.nanos_since(last),
                    packets: [arrival.packet].into(),
                    change: None,
                }),
            }
            last = arrival.at;
        }
        Load {
            coalescing: Coalescing {
                // Whatever it is: there is one strategy only.
                strategy: StrategyKind::Timeout,
                delay_ns: self.delay_ns,
                frames_max: self.frames_max,
                marks: true,
            },
            dma: DmaModel {
                setup_ns: self.dma_ns,
                ..DmaModel::ZERO
            },
            batches,
        }
    }
}

impl Expected {
    fn is_met_by(&self, (at, reason, packets): (Time, Reason, u32)) -> bool {
        self.at == at
            && self.reason.is_none_or(|expected| expected == reason)
            && self.packets.is_none_or(|expected| expected == packets)
    }
}

fn unexpected(
    number: usize,
    expected: Option<&Expected>,
    found: Option<(Time, Reason, u32)>,
    timeline: &mut Timeline,
) -> Unexpected {
    let expected = expected.map(|expected| Timeline::words(expected.at, expected.reason, expected.packets));
    let found = found.map(|(at, reason, packets)| Timeline::words(at, Some(reason), Some(packets)));
    let expected = expected.as_deref().unwrap_or("no more");
    let found = found.as_deref().unwrap_or("no more");
    timeline.note(None, format!("interrupt {number} was expected: {expected}"));
    timeline.note(None, format!("              and decided: {found}"));
    Unexpected {
        details: format!("interrupt {number} should be: {expected}; it is: {found}"),
        timeline: format!("{timeline}"),
    }
}
