//! What is measured in one round of one way between the guests, and the record of all rounds. Tools run in the guests and
//! time there; processor time is read on the host. What the figures mean is `table`'s business.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;
use serde_json::Value;

use super::{Options, cpu::Cpu, rig::Rig, stop::Stop};
use crate::{
    guest_channel::GuestChannel,
    guest_tools::{TOOL_PATIENCE, output, ping_ms},
    vnicd_client::report::PortStats,
};

/// Pause between two pings: long enough for everybody to have gone to sleep.
const PING_PAUSE_S: &str = "0.02";

/// Pings before anything is timed: addresses are resolved, the switch or bridge learns.
const WARM_UP_PINGS: &str = "5";

/// Bytes of a datagram: with its headers the smallest Ethernet frame.
pub(super) const DATAGRAM_LEN: u64 = 18;

/// A way between the guests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rival {
    /// Tap devices on a Linux bridge.
    Bridge,
    /// `vnicd` with further arguments; none: its defaults.
    Vnicd(String),
}

impl Rival {
    /// The bridge, `vnicd` as it is shipped, and `vnicd` with each of these arguments.
    pub(super) fn all(vnicd_arguments: &[String]) -> Vec<Self> {
        let mut all = vec![Self::Bridge, Self::shipped()];
        all.extend(
            vnicd_arguments
                .iter()
                .map(|arguments| Self::Vnicd(arguments.trim().to_owned())),
        );
        all
    }

    /// `vnicd` as it is shipped: what the bars are about.
    pub(super) fn shipped() -> Self {
        Self::Vnicd(String::new())
    }

    /// Name in tables.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Bridge => "tap + bridge".to_owned(),
            Self::Vnicd(arguments) => format!("vnicd {arguments}").trim_end().to_owned(),
        }
    }

    /// Number of the guests' card that leads this way.
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

/// Everything of one round; a part that was not wanted is missing.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Sample {
    /// Round trips.
    pub ping: Option<Ping>,
    /// One connection.
    pub tcp: Option<Stream>,
    /// Datagrams of [`DATAGRAM_LEN`] bytes, as many as the sender can.
    pub udp: Option<Stream>,
}

/// Round trips of one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Ping {
    /// In milliseconds, smallest first.
    pub times_ms: Vec<f64>,
    /// What it cost.
    pub cost: Cost,
}

/// A stream of one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Stream {
    /// How long it was sent, by the guest's clock.
    pub seconds: f64,
    /// Bytes that arrived, without headers.
    pub bytes: u64,
    /// TCP: segments sent again.
    pub retransmits: Option<u64>,
    /// UDP: datagrams that arrived.
    pub received: Option<u64>,
    /// UDP: datagrams that did not.
    pub lost: Option<u64>,
    /// What it cost.
    pub cost: Cost,
}

/// What a measurement cost the host.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Cost {
    /// Time from start to end, by the host's clock, in nanoseconds.
    pub elapsed_ns: u64,
    /// Processor time meanwhile.
    pub cpu: Cpu,
    /// What the cards counted meanwhile, the sender's first; none where no card is.
    pub cards: Vec<Card>,
}

/// Counters of a card, for those who look for a cause.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Card {
    /// Frames towards the guest; a segmentation offload's many count as one.
    pub rx_frames: u64,
    /// Frames from the guest, likewise.
    pub tx_frames: u64,
    /// Frames lost for want of a receive buffer.
    pub rx_no_buffer: u64,
    /// Notifications from the guest.
    pub kicks: u64,
    /// Receive interrupts decided.
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
pub(super) fn sample(rig: &mut Rig, rival: &Rival, options: &Options, stop: &Stop) -> Result<Sample> {
    if let Rival::Vnicd(arguments) = rival {
        rig.use_vnicd(arguments, stop)?;
    }
    let peer = Rig::receiver_address(rival.interface());
    let seconds = options.seconds.to_string();
    output(rig.sender(), &["ping", "-c", WARM_UP_PINGS, "-i", PING_PAUSE_S, &peer])?;
    let mut sample = Sample::default();
    for part in [Part::Ping, Part::Tcp, Part::Udp] {
        if !options.parts.contains(&part) {
            continue;
        }
        stop.check()?;
        match part {
            Part::Ping => sample.ping = Some(ping(rig, rival, &peer, options.pings)?),
            Part::Tcp => {
                let (text, cost) = iperf3(rig, rival, &["-c", &peer, "-t", &seconds, "-J"])?;
                sample.tcp = Some(stream(&text, cost)?);
            }
            Part::Udp => {
                let len = DATAGRAM_LEN.to_string();
                let flood = ["-c", &peer, "-u", "-b", "0", "-l", &len, "-t", &seconds, "-J"];
                let (text, cost) = iperf3(rig, rival, &flood)?;
                sample.udp = Some(stream(&text, cost)?);
            }
        }
    }
    Ok(sample)
}

fn ping(rig: &mut Rig, rival: &Rival, peer: &str, pings: u32) -> Result<Ping> {
    let pings = pings.to_string();
    let (text, cost) = costed(rig, rival, &["ping", "-c", &pings, "-i", PING_PAUSE_S, peer])?;
    let mut times_ms: Vec<f64> = text.lines().filter_map(ping_ms).collect();
    ensure!(!times_ms.is_empty(), "no ping was answered");
    times_ms.sort_by(f64::total_cmp);
    Ok(Ping { times_ms, cost })
}

/// Runs `iperf3` in the sending guest against a server in the other, as [`costed`] does.
fn iperf3(rig: &mut Rig, rival: &Rival, arguments: &[&str]) -> Result<(String, Cost)> {
    let server = rig.iperf3_server()?;
    let measured = costed(rig, rival, &[&["iperf3"], arguments].concat())?;
    server.collect(TOOL_PATIENCE).context("iperf3 in the receiving guest")?;
    Ok(measured)
}

/// Runs a tool in the sending guest; what it printed, and what that cost.
fn costed(rig: &mut Rig, rival: &Rival, argv: &[&str]) -> Result<(String, Cost)> {
    let cards = |rig: &mut Rig| -> Result<Vec<Card>> {
        match rival {
            Rival::Bridge => Ok(Vec::new()),
            Rival::Vnicd(_) => Ok(rig.card_stats()?.iter().map(Card::of).collect()),
        }
    };
    let cards_before = cards(rig)?;
    let (qemus, vnicd) = (rig.qemus(), rig.vnicd()?);
    let (before, started) = (Cpu::now(&qemus, vnicd)?, Instant::now());
    let text = output(rig.sender(), argv)?;
    let (after, elapsed) = (Cpu::now(&qemus, vnicd)?, started.elapsed());
    let cards = cards(rig)?;
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

/// What iperf3's JSON says.
pub(super) fn stream(text: &str, cost: Cost) -> Result<Stream> {
    let report: Value = serde_json::from_str(text).context("iperf3 printed no JSON")?;
    if let Some(error) = report["error"].as_str() {
        bail!("iperf3: {error}");
    }
    let end = &report["end"];
    let received = &end["sum_received"];
    let figure = |value: &Value| {
        value
            .as_f64()
            .with_context(|| format!("iperf3 printed no result: {end}"))
    };
    let lost = received["lost_packets"].as_u64();
    let sent = received["packets"].as_u64();
    let arrived = sent.zip(lost).map(|(sent, lost)| sent.saturating_sub(lost));
    let bytes = match arrived {
        // What iperf3 says here of UDP is what was sent, in some versions.
        Some(arrived) => arrived * DATAGRAM_LEN,
        None => received["bytes"]
            .as_u64()
            .with_context(|| format!("iperf3 printed no result: {end}"))?,
    };
    ensure!(bytes > 0, "nothing arrived: {end}");
    Ok(Stream {
        seconds: figure(&received["seconds"])?,
        bytes,
        retransmits: end["sum_sent"]["retransmits"].as_u64(),
        received: arrived,
        lost,
        cost,
    })
}

/// All rounds.
pub(super) struct Record {
    /// Who was measured, in the order of `samples`.
    pub rivals: Vec<Rival>,
    /// Samples per rival.
    pub samples: Vec<Vec<Sample>>,
    /// Version of the QEMU.
    pub qemu: String,
    /// How much faster or slower than the host's each guest's clock ran.
    pub clock_errors: Vec<f64>,
    clocks: Vec<Clock>,
}

/// A guest's clock at a moment of the host's.
struct Clock {
    at: Instant,
    uptime: Duration,
}

impl Record {
    /// An empty record.
    pub(super) fn begin(rivals: &[Rival], rig: &Rig) -> Result<Self> {
        Ok(Self {
            rivals: rivals.to_vec(),
            samples: vec![Vec::new(); rivals.len()],
            qemu: rig.qemu_version(),
            clock_errors: Vec::new(),
            clocks: clocks(rig)?,
        })
    }

    /// One more round of the `rival`-th.
    pub(super) fn add(&mut self, rival: usize, sample: Sample) {
        self.samples[rival].push(sample);
    }

    /// The last round was measured. An emulated guest that calibrated its clock on a busy machine may be wrong about
    /// every time it measures.
    pub(super) fn end(&mut self, rig: &Rig) -> Result<()> {
        let error = |(now, then): (Clock, &Clock)| {
            let guest = now.uptime.saturating_sub(then.uptime).as_secs_f64();
            guest / now.at.duration_since(then.at).as_secs_f64().max(f64::MIN_POSITIVE) - 1.0
        };
        self.clock_errors = clocks(rig)?.into_iter().zip(&self.clocks).map(error).collect();
        Ok(())
    }
}

fn clocks(rig: &Rig) -> Result<Vec<Clock>> {
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
    [rig.sender(), rig.receiver()].into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost() -> Cost {
        Cost {
            elapsed_ns: 1,
            cpu: Cpu::default(),
            cards: Vec::new(),
        }
    }

    #[test]
    fn what_arrived_counts_not_what_was_sent() {
        let text = r#"{"end":{"sum_sent":{"packets":10},"sum_received":{"seconds":2.5,"bytes":180,"packets":10,"lost_packets":3}}}"#;
        let udp = stream(text, cost()).unwrap();
        assert_eq!(
            (udp.received, udp.lost, udp.bytes),
            (Some(7), Some(3), 7 * DATAGRAM_LEN)
        );
        let text = r#"{"end":{"sum_sent":{"retransmits":4},"sum_received":{"seconds":2.5,"bytes":9000}}}"#;
        let tcp = stream(text, cost()).unwrap();
        assert_eq!((tcp.bytes, tcp.retransmits, tcp.received), (9000, Some(4), None));
    }

    #[test]
    fn a_test_that_failed_is_an_error() {
        assert!(stream(r#"{"error":"control socket has closed unexpectedly"}"#, cost()).is_err());
        assert!(stream("iperf3: error", cost()).is_err());
    }

    #[test]
    fn vnicd_as_shipped_is_always_measured() {
        let names: Vec<_> = Rival::all(&["--poll-us 0 ".to_owned()])
            .iter()
            .map(Rival::name)
            .collect();
        assert_eq!(names, ["tap + bridge", "vnicd", "vnicd --poll-us 0"]);
    }
}
