//! The measurement of one setting: tools run in the guests and time there, and the receiving card counts. The modules
//! `result` and `reading` interpret the numbers.

use std::{
    collections::BTreeMap,
    fmt,
    io::{BufWriter, Write},
    thread::JoinHandle,
};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::result::{Interrupts, Messages, Sample, Stream, median};
use crate::{
    guest_channel::{GuestChannel, Running},
    guest_tools::{TOOL_PATIENCE, output, ping_ms, start_server},
    lab::Strategy,
    supervisor_client::{client::Client, protocol::Request},
    vnicd_client::{
        CaptureEnd, VnicdClient,
        report::{CoalescingChange, CoalescingSettings, Counts, PortStats},
    },
};

/// Name of the card whose messages are timed.
const SENDER: &str = "n1.eth0";
/// Name of the card whose interrupts are counted.
const RECEIVER: &str = "n2.eth0";

/// Length of a small message in bytes: it fits into the shortest frame.
const SMALL_BYTES: u64 = 16;
/// Length in bytes of a message that takes many packets.
const MEDIUM_BYTES: u64 = 32 << 10;
/// Length in bytes of a message of the stream.
const STREAM_BYTES: u64 = 128;
/// Number of messages of a stream, which take about half a second on an emulated processor.
const STREAM_MESSAGES: u64 = 10_000;
/// Duration of a socket's stream in seconds: the shortest that iperf3 accepts.
const SOCKET_S: &str = "1";
/// Number of bytes that a socket sends while frames are captured.
const SOCKET_CAPTURED: &str = "256K";
/// Port of the server that is reached over TCP, as iperf3 has it by default.
const TCP_PORT: &str = "5201";
/// Port of the server that is reached over ESP.
const ESP_PORT: &str = "5202";
/// Words that run a program's sockets over ESP, and over nothing else.
const OVER_ESP: [&str; 2] = ["esp-run", "--never-fall-back"];
/// Number of pings per round.
const PINGS: &str = "10";

/// An interrupt setting of both cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Setting {
    pub strategy: Strategy,
    pub delay_us: u32,
}

impl Setting {
    pub(crate) const fn new(strategy: Strategy, delay_us: u32) -> Self {
        Self { strategy, delay_us }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.strategy, self.delay_us) {
            (Strategy::Disabled, _) => f.write_str("disabled"),
            (strategy, us) if us % 1000 == 0 => write!(f, "{} {} ms", strategy.name(), us / 1000),
            (strategy, us) => write!(f, "{} {us} µs", strategy.name()),
        }
    }
}

/// The output of `omx_perf` about a ping-pong.
#[derive(Deserialize)]
struct PingPong {
    repetitions: u64,
    /// Time in one direction; the round trip where only one message has a length.
    us_median: f64,
}

/// The output of `omx_perf --rate`.
#[derive(Deserialize)]
struct Rate {
    messages: u64,
    messages_per_s: f64,
}

/// Two guests that are ready to measure.
pub(crate) struct Bench<'a> {
    client: &'a Client,
    vnicd: VnicdClient,
    sender: GuestChannel,
    /// Handles that keep the servers in the receiving guest running.
    _servers: Vec<Running>,
    peer_mac: String,
    peer_address: String,
    capture: Option<(CaptureEnd, JoinHandle<std::io::Result<u64>>)>,
}

impl<'a> Bench<'a> {
    /// Starts the servers in the receiving guest.
    pub(crate) fn start(client: &'a Client) -> Result<Self> {
        let mut vnicd = client.vnicd()?;
        let ports = vnicd.info()?.ports;
        let mac = ports
            .iter()
            .find(|port| port.name == RECEIVER)
            .and_then(|port| port.mac);
        let status = client.status()?;
        let address = status
            .nodes
            .iter()
            .find(|node| node.name == "n2")
            .and_then(|node| node.address.clone());
        let ready = |node: &str| -> Result<GuestChannel> {
            let channel = client.agent(node)?;
            channel.wait_ready(TOOL_PATIENCE)?;
            Ok(channel)
        };
        let receiver = ready("n2")?;
        // Both print a line once they listen. They sleep while they wait: on an emulated processor, a program that
        // polls takes time from the switch.
        let servers = vec![
            start_server(
                &receiver,
                &["omx_perf", "--interface", "eth0", "-s", "-w", "--json"],
                "endpoint",
            )?,
            start_server(
                &receiver,
                &["iperf3", "-s", "-p", TCP_PORT, "--forceflush"],
                "listening",
            )?,
            start_server(
                &receiver,
                &[&OVER_ESP[..], &["iperf3", "-s", "-p", ESP_PORT, "--forceflush"]].concat(),
                "listening",
            )?,
        ];
        Ok(Self {
            client,
            vnicd,
            sender: ready("n1")?,
            _servers: servers,
            peer_mac: mac.context("the receiving card has no address")?.to_string(),
            peer_address: address.context("the receiving guest has no address")?,
            capture: None,
        })
    }

    /// Writes all frames to `out` from now on.
    pub(crate) fn capture_to(&mut self, out: impl Write + Send + 'static) -> Result<()> {
        let capture = self.client.vnicd()?.capture(&[], None)?;
        let handle = capture.handle()?;
        let writer = std::thread::Builder::new().name("capture".to_owned());
        self.capture = Some((handle, writer.spawn(move || capture.write_to(BufWriter::new(out)))?));
        Ok(())
    }

    /// Ends the capture, if there is one.
    pub(crate) fn end_capture(&mut self) -> Result<()> {
        if let Some((handle, writing)) = self.capture.take() {
            handle.end();
            match writing.join() {
                Ok(written) => {
                    let missing = written.context("the capture cannot be written")?;
                    if missing > 0 {
                        tracing::warn!(
                            missing,
                            "the capture misses frames: they came faster than they were written"
                        );
                    }
                }
                Err(_) => bail!("the capture ended with a panic"),
            }
        }
        Ok(())
    }

    /// Measures everything once with one setting.
    pub(crate) fn measure(&mut self, setting: Setting, small: u64, medium: u64) -> Result<Sample> {
        self.set(setting)?;
        let sample = Sample {
            setting,
            small: self.small(small)?,
            medium: self.medium(medium)?,
            stream: self.stream()?,
            ping_ms: self.ping()?,
            tcp_mbit_per_s: self.socket(&[], TCP_PORT)?,
            esp_mbit_per_s: self.socket(&OVER_ESP, ESP_PORT)?,
        };
        Ok(sample)
    }

    /// Measures only small messages with one setting.
    pub(crate) fn measure_small(&mut self, setting: Setting, count: u64) -> Result<Sample> {
        self.set(setting)?;
        Ok(Sample {
            setting,
            small: self.small(count)?,
            medium: Messages::default(),
            stream: Stream::default(),
            ping_ms: None,
            tcp_mbit_per_s: None,
            esp_mbit_per_s: None,
        })
    }

    fn set(&mut self, setting: Setting) -> Result<()> {
        let mut change = CoalescingChange::default();
        change.all.strategy = Some(setting.strategy.name().to_owned());
        change.all.delay_ns = Some(u64::from(setting.delay_us) * 1000);
        change.all.frames_max = Some(0);
        change.all.marks = Some(true);
        for port in [SENDER, RECEIVER] {
            let request = Request::Coalesce {
                port: port.to_owned(),
                change: change.clone(),
            };
            let now: CoalescingSettings = self.client.request(&request)?;
            ensure!(
                now.all.strategy == setting.strategy.name(),
                "the card {port} was told {} and says {}",
                setting.strategy.name(),
                now.all.strategy
            );
        }
        Ok(())
    }

    fn small(&mut self, count: u64) -> Result<Messages> {
        let mut messages = self.messages(SMALL_BYTES, count, &[])?;
        // The reply is as long as the message, and the tool reports the time of one of them.
        messages.rtt_us_median *= 2.0;
        Ok(messages)
    }

    fn medium(&mut self, count: u64) -> Result<Messages> {
        // The reply is empty.
        self.messages(MEDIUM_BYTES, count, &["-U"])
    }

    fn messages(&mut self, bytes: u64, count: u64, more: &[&str]) -> Result<Messages> {
        let (report, counted) = self.perf::<PingPong>(bytes, count, more)?;
        Ok(Messages {
            rtt_us_median: report.us_median,
            rtt_us: None,
            messages: report.repetitions,
            counted,
        })
    }

    fn stream(&mut self) -> Result<Stream> {
        let (report, counted) = self.perf::<Rate>(STREAM_BYTES, STREAM_MESSAGES, &["--rate"])?;
        Ok(Stream {
            messages_per_s: report.messages_per_s,
            rate: None,
            messages: report.messages,
            counted,
        })
    }

    /// Runs `omx_perf` in the sending guest. Every message counts: there is no warm-up and no pause.
    fn perf<T: for<'de> Deserialize<'de>>(&mut self, bytes: u64, count: u64, more: &[&str]) -> Result<(T, Interrupts)> {
        let (first, end, count) = (bytes.to_string(), (bytes + 1).to_string(), count.to_string());
        let peer = self.peer_mac.clone();
        let argv = [
            &["omx_perf", "--interface", "eth0", "-w", "-d", &peer][..],
            &["-S", &first, "-E", &end, "-N", &count, "-W", "0", "-P", "0", "--json"],
            more,
        ];
        self.counted(&argv.concat())
    }

    /// Runs a tool in the sending guest, and counts what the receiving card decided meanwhile.
    fn counted<T: for<'de> Deserialize<'de>>(&mut self, argv: &[&str]) -> Result<(T, Interrupts)> {
        let before = self.receiver_stats()?;
        let text = output(&self.sender, argv)?;
        let after = self.receiver_stats()?;
        let report = serde_json::from_str(&text).with_context(|| format!("`{}` printed {text:?}", argv.join(" ")))?;
        Ok((report, difference(&before, &after)))
    }

    fn receiver_stats(&mut self) -> Result<PortStats> {
        self.vnicd
            .stats(Some(RECEIVER))?
            .pop()
            .with_context(|| format!("vnicd has no counters of {RECEIVER}"))
    }

    fn ping(&mut self) -> Result<Option<f64>> {
        let text = output(&self.sender, &["ping", "-c", PINGS, "-i", "0.02", &self.peer_address])?;
        Ok(median(text.lines().filter_map(ping_ms).collect()))
    }

    /// Measures a stream socket with the program that `under` starts, over the protocol that it uses.
    fn socket(&mut self, under: &[&str], port: &str) -> Result<Option<f64>> {
        let is_captured = self.capture.is_some();
        // A second would be most of the file: a small part is captured, and not counted.
        let how_much = if is_captured {
            ["-n", SOCKET_CAPTURED]
        } else {
            ["-t", SOCKET_S]
        };
        let client = ["iperf3", "-c", &self.peer_address, "-p", port, "-J"];
        let text = output(&self.sender, &[under, &client, &how_much].concat())?;
        if is_captured {
            return Ok(None);
        }
        let report: serde_json::Value = serde_json::from_str(&text).context("iperf3 printed no JSON")?;
        Ok(report["end"]["sum_received"]["bits_per_second"]
            .as_f64()
            .map(|bits| bits / 1e6))
    }
}

/// Returns the difference between two readings of the counters.
fn difference(before: &PortStats, after: &PortStats) -> Interrupts {
    let grown = |before: &Counts, after: &Counts| -> BTreeMap<String, u64> {
        let grown = after.iter().map(|(reason, count)| {
            let earlier = before.get(reason).copied().unwrap_or(0);
            (reason.clone(), count - earlier)
        });
        grown.filter(|(_, count)| *count > 0).collect()
    };
    let (earlier, later) = (&before.interrupts, &after.interrupts);
    Interrupts {
        interrupts: after.interrupts.decided - before.interrupts.decided,
        reasons: grown(&earlier.by_reason, &later.by_reason),
        packets_by_reason: grown(&earlier.packets_by_reason, &later.packets_by_reason),
        signalled: after.interrupts.signalled - before.interrupts.signalled,
        packets: after.rx.frames - before.rx.frames,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_happened_in_between_is_counted() {
        let mut before = PortStats::default();
        before.interrupts.decided = 10;
        before.interrupts.by_reason = [("mark".to_owned(), 10)].into();
        before.interrupts.packets_by_reason = [("mark".to_owned(), 12)].into();
        before.rx.frames = 12;
        let mut after = before.clone();
        after.interrupts.decided = 15;
        after.interrupts.by_reason = [
            ("mark".to_owned(), 12),
            ("timeout".to_owned(), 3),
            ("count".to_owned(), 0),
        ]
        .into();
        after.interrupts.packets_by_reason = [("mark".to_owned(), 14), ("timeout".to_owned(), 21)].into();
        after.rx.frames = 35;
        let counted = difference(&before, &after);
        assert_eq!((counted.interrupts, counted.packets), (5, 23));
        assert_eq!(
            counted.reasons,
            [("mark".to_owned(), 2), ("timeout".to_owned(), 3)].into()
        );
        assert_eq!(
            counted.packets_by_reason,
            [("mark".to_owned(), 2), ("timeout".to_owned(), 21)].into()
        );
    }

    #[test]
    fn settings_are_named_as_in_the_papers() {
        let names = super::super::SETTINGS.map(|setting| setting.to_string());
        assert_eq!(names[0], "disabled");
        assert_eq!(names[2], "open-mx 75 µs");
        assert_eq!(names[6], "stream 1 ms");
    }
}
