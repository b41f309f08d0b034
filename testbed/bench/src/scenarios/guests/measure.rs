//! The measurements of one turn of one path between the guests. Tools run and time in the guests; processor time is
//! read on the host. The scenario interprets the figures.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use testbed::{
    guest_channel::GuestChannel,
    guest_tools::{TOOL_PATIENCE, output, ping_ms},
    vnicd_client::report::PortStats,
};

use super::{Options, cpu::Cpu};
use crate::scenarios::{
    guest_pair::GuestPair,
    iperf3::{DATAGRAM_LEN, Received, received},
};
use testbed::harness::Stop;

/// Pause between two pings in seconds: long enough for all processes involved to go to sleep.
const PING_PAUSE_S: &str = "0.02";

/// Number of pings before anything is timed: addresses are resolved, the switch or bridge learns.
const WARM_UP_PINGS: &str = "5";

/// A path between the guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rival {
    /// Tap devices on a Linux bridge.
    Bridge,
    /// `vnicd` with further arguments; an empty string means its defaults.
    Vnicd(String),
}

impl Rival {
    /// Returns the bridge, `vnicd` with its defaults, and `vnicd` with each of these arguments.
    pub(super) fn all(vnicd_arguments: &[String]) -> Vec<Self> {
        let mut all = vec![Self::Bridge, Self::shipped()];
        all.extend(
            vnicd_arguments
                .iter()
                .map(|arguments| Self::Vnicd(arguments.trim().to_owned())),
        );
        all
    }

    /// Returns `vnicd` with its defaults, which the bars are about.
    pub(super) fn shipped() -> Self {
        Self::Vnicd(String::new())
    }

    /// Returns the name used in tables.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Bridge => "tap + bridge".to_owned(),
            Self::Vnicd(arguments) => format!("vnicd {arguments}").trim_end().to_owned(),
        }
    }

    /// Returns the number of the guests' card that leads to the rival.
    fn interface(&self) -> usize {
        match self {
            Self::Vnicd(_) => 0,
            Self::Bridge => 1,
        }
    }
}

/// A part of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Part {
    /// Round trips of single packets.
    Ping,
    /// One TCP connection.
    Tcp,
    /// Small UDP frames.
    Udp,
}

/// Everything measured in one round; a part that was not wanted is missing.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Round {
    /// Round trips of pings.
    pub ping: Option<Ping>,
    /// One TCP connection.
    pub tcp: Option<Stream>,
    /// Datagrams of [`DATAGRAM_LEN`] bytes, as many as the sender can send.
    pub udp: Option<Stream>,
}

impl Round {
    /// Returns what a part cost the host, if it was measured.
    pub(super) fn cost(&self, part: Part) -> Option<&Cost> {
        match part {
            Part::Ping => Some(&self.ping.as_ref()?.cost),
            Part::Tcp => Some(&self.tcp.as_ref()?.cost),
            Part::Udp => Some(&self.udp.as_ref()?.cost),
        }
    }
}

/// Round trips of one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ping {
    /// Times in milliseconds, smallest first.
    pub times_ms: Vec<f64>,
    /// Cost for the host.
    pub cost: Cost,
}

/// A TCP or UDP stream of one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Stream {
    /// What arrived of the stream.
    #[serde(flatten)]
    pub arrived: Received,
    /// Cost for the host.
    pub cost: Cost,
}

/// The cost of a measurement for the host.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Cost {
    /// Time from start to end, by the host's clock, in nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time during the measurement.
    pub cpu: Cpu,
    /// Counter increments of the cards, the sender's first; empty where no card is involved.
    pub cards: Vec<Card>,
}

/// Counters of a card, which help to find the cause of a figure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Card {
    /// Frames towards the guest; a frame with segmentation offload counts as one.
    pub rx_frames: u64,
    /// Frames from the guest; a frame with segmentation offload counts as one.
    pub tx_frames: u64,
    /// Frames lost for want of a receive buffer.
    pub rx_no_buffer: u64,
    /// Notifications from the guest.
    pub kicks: u64,
    /// Receive interrupts that the firmware decided.
    pub rx_interrupts_decided: u64,
    /// Receive interrupts that the guest got.
    pub rx_interrupts: u64,
    /// Transmit interrupts that the guest got.
    pub tx_interrupts: u64,
}

impl Card {
    fn of(stats: &PortStats) -> Self {
        Self {
            rx_frames: stats.rx.frames,
            tx_frames: stats.tx.frames,
            rx_no_buffer: stats.rx.dropped.get("no_buffer").copied().unwrap_or(0),
            kicks: stats.kicks,
            rx_interrupts_decided: stats.interrupts.decided,
            rx_interrupts: stats.interrupts.signalled,
            tx_interrupts: stats.tx_interrupts.signalled,
        }
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            rx_frames: self.rx_frames - before.rx_frames,
            tx_frames: self.tx_frames - before.tx_frames,
            rx_no_buffer: self.rx_no_buffer - before.rx_no_buffer,
            kicks: self.kicks - before.kicks,
            rx_interrupts_decided: self.rx_interrupts_decided - before.rx_interrupts_decided,
            rx_interrupts: self.rx_interrupts - before.rx_interrupts,
            tx_interrupts: self.tx_interrupts - before.tx_interrupts,
        }
    }
}

/// Measures `rival` once.
pub(super) fn round(guests: &mut GuestPair, rival: &Rival, options: &Options, stop: &Stop) -> Result<Round> {
    if let Rival::Vnicd(arguments) = rival {
        guests.use_vnicd(arguments, stop)?;
    }
    let peer = GuestPair::receiver_address(rival.interface());
    let seconds = options.seconds.to_string();
    output(
        guests.sender(),
        &["ping", "-c", WARM_UP_PINGS, "-i", PING_PAUSE_S, &peer],
    )?;
    let mut round = Round::default();
    for part in [Part::Ping, Part::Tcp, Part::Udp] {
        if !options.parts.contains(&part) {
            continue;
        }
        stop.check()?;
        match part {
            Part::Ping => round.ping = Some(ping(guests, rival, &peer, options.pings)?),
            Part::Tcp => {
                let (text, cost) = iperf3(guests, rival, &["-c", &peer, "-t", &seconds, "-J"])?;
                round.tcp = Some(Stream {
                    arrived: received(&text)?,
                    cost,
                });
            }
            Part::Udp => {
                let len = DATAGRAM_LEN.to_string();
                let flood = ["-c", &peer, "-u", "-b", "0", "-l", &len, "-t", &seconds, "-J"];
                let (text, cost) = iperf3(guests, rival, &flood)?;
                round.udp = Some(Stream {
                    arrived: received(&text)?,
                    cost,
                });
            }
        }
    }
    Ok(round)
}

fn ping(guests: &mut GuestPair, rival: &Rival, peer: &str, pings: u32) -> Result<Ping> {
    let pings = pings.to_string();
    let (text, cost) = costed(guests, rival, &["ping", "-c", &pings, "-i", PING_PAUSE_S, peer])?;
    let mut times_ms: Vec<f64> = text.lines().filter_map(ping_ms).collect();
    ensure!(!times_ms.is_empty(), "no ping was answered");
    times_ms.sort_by(f64::total_cmp);
    Ok(Ping { times_ms, cost })
}

/// Runs `iperf3` in the sending guest against a server in the other, as [`costed`] does.
fn iperf3(guests: &mut GuestPair, rival: &Rival, arguments: &[&str]) -> Result<(String, Cost)> {
    let server = guests.iperf3_server()?;
    let measured = costed(guests, rival, &[&["iperf3"], arguments].concat())?;
    server.collect(TOOL_PATIENCE).context("iperf3 in the receiving guest")?;
    Ok(measured)
}

/// Runs a tool in the sending guest, and returns what it printed and what that cost.
fn costed(guests: &mut GuestPair, rival: &Rival, argv: &[&str]) -> Result<(String, Cost)> {
    let cards = |guests: &mut GuestPair| -> Result<Vec<Card>> {
        match rival {
            Rival::Bridge => Ok(Vec::new()),
            Rival::Vnicd(_) => Ok(guests.card_stats()?.iter().map(Card::of).collect()),
        }
    };
    let cards_before = cards(guests)?;
    let (qemus, vnicd) = (guests.qemus(), guests.vnicd()?);
    let (before, started) = (Cpu::now(&qemus, vnicd)?, Instant::now());
    let text = output(guests.sender(), argv)?;
    let (after, elapsed) = (Cpu::now(&qemus, vnicd)?, started.elapsed());
    let cards = cards(guests)?;
    let cost = Cost {
        elapsed_ns: elapsed.as_nanos() as u64,
        cpu: after.since(before),
        cards: cards
            .iter()
            .zip(&cards_before)
            .map(|(after, before)| after.since(before))
            .collect(),
    };
    Ok((text, cost))
}

/// The clock of a guest at a moment of the host's clock.
pub(super) struct Clock {
    at: Instant,
    uptime: Duration,
}

/// Reads the clocks of both guests.
pub(super) fn clocks(guests: &GuestPair) -> Result<Vec<Clock>> {
    let read = |channel: &GuestChannel| -> Result<Clock> {
        let text = output(channel, &["cat", "/proc/uptime"])?;
        let seconds: f64 = text
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .context("a guest does not say how long it is up")?;
        Ok(Clock {
            at: Instant::now(),
            uptime: Duration::from_secs_f64(seconds),
        })
    };
    [guests.sender(), guests.receiver()].into_iter().map(read).collect()
}

/// Computes how much faster or slower than the host's each guest's clock ran since `before`. An emulated guest that
/// calibrated its clock on a busy machine may be wrong about every time it measures.
pub(super) fn clock_errors(guests: &GuestPair, before: &[Clock]) -> Result<Vec<f64>> {
    let error = |(now, then): (Clock, &Clock)| {
        let guest = now.uptime.saturating_sub(then.uptime).as_secs_f64();
        guest / now.at.duration_since(then.at).as_secs_f64().max(f64::MIN_POSITIVE) - 1.0
    };
    Ok(clocks(guests)?.into_iter().zip(before).map(error).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vnicd_as_shipped_is_always_measured() {
        let names: Vec<_> = Rival::all(&["--poll-us 0 ".to_owned()])
            .iter()
            .map(Rival::name)
            .collect();
        assert_eq!(names, ["tap + bridge", "vnicd", "vnicd --poll-us 0"]);
    }
}
