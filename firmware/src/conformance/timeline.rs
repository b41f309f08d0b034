//! What happened under a load, as lines for people: arrivals, DMA completions, decisions.

use alloc::{
    format,
    string::{String, ToString},
    vec::Vec,
};
use core::fmt;

use ether::Time;

use crate::{Coalescing, DmaModel, Interrupt, PacketInfo, Reason};

/// The lines, in the order in which things happened.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeline {
    lines: Vec<(Option<Time>, String)>,
}

/// `#3`, or `#3 to #5`.
fn numbers(first: usize, count: usize) -> String {
    match count {
        0 => "nothing".into(),
        1 => format!("#{first}"),
        _ => format!("#{first} to #{}", first + count - 1),
    }
}

fn packet(packet: PacketInfo) -> String {
    let mark = if packet.marked { ", marked" } else { "" };
    format!("{} bytes{mark}", packet.len)
}

impl Timeline {
    pub(super) fn settings(&mut self, at: Option<Time>, coalescing: Coalescing) {
        let limit = match coalescing.frames_max {
            0 => "no count limit".to_string(),
            limit => format!("count limit {limit}"),
        };
        let delay = match coalescing.delay_ns {
            0 => "delay 0: coalescing is off".to_string(),
            delay_ns => format!("delay {delay_ns} ns"),
        };
        self.note(at, format!("settings    {delay}, {limit}"));
    }

    pub(super) fn dma(&mut self, model: DmaModel) {
        if model != DmaModel::ZERO {
            let DmaModel { setup_ns, rate_bps, .. } = model;
            let rate = match rate_bps {
                0 => String::new(),
                _ => format!(", {rate_bps} bit/s"),
            };
            self.note(None, format!("settings    each DMA takes {setup_ns} ns{rate}"));
        }
    }

    /// Packets are numbered from 1 in the order of their arrival.
    pub(super) fn arrives(&mut self, at: Time, number: usize, info: PacketInfo) {
        self.note(Some(at), format!("arrives     #{number}, {}", packet(info)));
    }

    pub(super) fn completed(&mut self, at: Time, first: usize, count: usize) {
        self.note(Some(at), format!("DMA done    {}", numbers(first, count)));
    }

    pub(super) fn interrupt(&mut self, interrupt: &Interrupt, first: usize) {
        let Interrupt { reason, packets, .. } = *interrupt;
        let announced = numbers(first, packets as usize);
        self.note(
            Some(interrupt.decided_at),
            format!("INTERRUPT   {reason}, announces {announced}"),
        );
    }

    pub(super) fn completion(&mut self, at: Time, info: PacketInfo, others_pending: bool, answer: &dyn fmt::Debug) {
        let others = if others_pending {
            "others are in flight"
        } else {
            "no other in flight"
        };
        self.note(
            Some(at),
            format!("completed() {}, {others}: answers {answer:?}", packet(info)),
        );
    }

    pub(super) fn note(&mut self, at: Option<Time>, line: impl Into<String>) {
        self.lines.push((at, line.into()));
    }

    /// Expected or found: an interrupt as a phrase.
    pub(super) fn words(at: Time, reason: Option<Reason>, packets: Option<u32>) -> String {
        let reason = reason.map_or_else(String::new, |reason| format!(", {reason}"));
        let packets = match packets {
            None => String::new(),
            Some(1) => ", 1 packet".to_string(),
            Some(packets) => format!(", {packets} packets"),
        };
        format!("at {} ns{reason}{packets}", at.as_nanos())
    }
}

impl fmt::Display for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |(at, _): &(Option<Time>, String)| at.map_or(0, |at| at.as_nanos().to_string().len());
        let width = self.lines.iter().map(width).max().unwrap_or(0);
        for (at, line) in &self.lines {
            match at {
                Some(at) => writeln!(f, "  {:>width$} ns  {line}", at.as_nanos())?,
                None => writeln!(f, "  {:>width$}     {line}", "")?,
            }
        }
        Ok(())
    }
}
