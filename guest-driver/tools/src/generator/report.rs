//! What the generator found, as text and as JSON.

use std::fmt;

use hdrhistogram::Histogram;
use serde::Serialize;

/// Outcome of `small` and `medium`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PingReport {
    /// Messages that were answered.
    pub messages: u64,
    /// Bytes of each message.
    pub size: usize,
    /// Frames each message took; absent for messages of one frame.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_per_message: Option<u32>,
    /// Whether frames carried the latency-sensitive mark.
    pub marks: bool,
    /// Median time from sending to the answer, in microseconds; null when nothing was answered.
    pub rtt_us_median: Option<f64>,
    /// 99th percentile, in microseconds.
    pub rtt_us_p99: Option<f64>,
    /// Shortest, in microseconds.
    pub rtt_us_min: Option<f64>,
    /// Messages without an answer within the time limit.
    pub lost: u64,
    /// Answers that came after their time limit.
    pub late: u64,
    /// Messages that the port could not take in one call.
    pub split: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// True when a signal ended it early.
    pub interrupted: bool,
}

impl PingReport {
    /// Fills in the times from a histogram of nanoseconds.
    pub(super) fn set_times(&mut self, rtt_ns: &Histogram<u64>) {
        if rtt_ns.is_empty() {
            return;
        }
        let us = |ns: u64| Some(ns as f64 / 1000.0);
        self.rtt_us_median = us(rtt_ns.value_at_quantile(0.5));
        self.rtt_us_p99 = us(rtt_ns.value_at_quantile(0.99));
        self.rtt_us_min = us(rtt_ns.min());
    }
}

impl fmt::Display for PingReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marked = if self.marks { "marked" } else { "unmarked" };
        write!(f, "{} {marked} messages of {} bytes", self.messages, self.size)?;
        if let Some(frames) = self.frames_per_message {
            write!(f, " ({frames} frames each)")?;
        }
        if let (Some(median), Some(p99), Some(min)) = (self.rtt_us_median, self.rtt_us_p99, self.rtt_us_min) {
            write!(
                f,
                ": round trip median {median:.1} us, 99 % {p99:.1} us, shortest {min:.1} us"
            )?;
        }
        write!(f, "; {} lost, {} late", self.lost, self.late)?;
        if self.interrupted {
            write!(f, " (interrupted)")
        } else {
            Ok(())
        }
    }
}

/// Outcome of `stream`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StreamReport {
    /// Messages handed to the port.
    pub messages_sent: u64,
    /// Messages the other end counted.
    pub messages_received: u64,
    /// Rate at the receiver, from its first to its last message, by its clock.
    pub messages_per_s: f64,
    /// Bytes of each message.
    pub size: usize,
    /// Messages handed over per system call.
    pub burst: usize,
    /// Whether frames carried the latency-sensitive mark.
    pub marks: bool,
    /// How long was sent, in seconds by the sender's clock.
    pub seconds: f64,
    /// From the first to the last message that arrived, in seconds by the receiver's clock. Much more or less than
    /// `seconds` means a receiver that could not follow, or two machines whose clocks run at different speeds.
    pub receive_seconds: f64,
    /// True when a signal ended it early.
    pub interrupted: bool,
}

impl fmt::Display for StreamReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let marked = if self.marks { "marked" } else { "unmarked" };
        write!(
            f,
            "{} of {} {marked} messages of {} bytes received: {:.0} per second",
            self.messages_received, self.messages_sent, self.size, self.messages_per_s
        )?;
        if self.interrupted {
            write!(f, " (interrupted)")
        } else {
            Ok(())
        }
    }
}

/// What a server did until it was told to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ServerReport {
    /// Connections made.
    pub connects: u64,
    /// Messages of one frame answered.
    pub pings: u64,
    /// Messages of several fragments answered.
    pub mediums: u64,
    /// Messages only counted.
    pub stream_messages: u64,
    /// Fragments that had arrived before.
    pub duplicates: u64,
    /// Messages of unknown clients or earlier servers, answered by a NACK.
    pub refused: u64,
    /// Frames that are no MXoE packet of this preset, or not for the generator.
    pub ignored: u64,
    /// Answers that the port could not take.
    pub answers_lost: u64,
    /// Frames that arrived while the receive ring was full.
    pub ring_full: u64,
}

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} connections, {} messages and {} medium messages answered, {} counted; {} duplicates, {} refused, {} ignored, \
             {} answers and {} frames lost",
            self.connects,
            self.pings,
            self.mediums,
            self.stream_messages,
            self.duplicates,
            self.refused,
            self.ignored,
            self.answers_lost,
            self.ring_full
        )
    }
}
