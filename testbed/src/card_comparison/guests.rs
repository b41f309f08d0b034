//! The two guests: the tools that measure in them, over each path to a card, and what those print.

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::Value;

use super::{
    copies,
    plan::{BYPASS, KERNEL, LONG_BYTES, SHORT_BYTES, TCP, THROUGHPUT, TIME},
    receives,
};
use crate::{
    guest_channel::GuestChannel,
    guest_tools::{TOOL_PATIENCE, output, start_server},
    harness::{Cell, Sample, Turn},
    supervisor_client::client::Client,
};

/// The card that programs drive, as MX names it: that of `eth1` has this place on the PCI bus in every guest.
const CARD: &str = "virtio:0000:00:11.0";
/// The interface of the kernel's card.
const INTERFACE: &str = "eth0";

/// Messages of each length, and those before that are not counted.
const SHORT: (u64, u64) = (1000, 100);
const LONG: (u64, u64) = (20, 2);
/// Seconds that TCP sends in a turn.
const TCP_S: &str = "2";

/// What `omx_perf` prints about a ping-pong.
#[derive(Deserialize)]
struct PingPong {
    /// Half of a round trip.
    us_median: f64,
}

/// Two guests that are ready to measure.
pub(super) struct Guests {
    sender: GuestChannel,
    receiver: GuestChannel,
    /// Hardware addresses of the receiver's cards: that of programs, the kernel's, and that of programs with long frames.
    macs: [String; 3],
    /// IP address of the receiver.
    address: String,
}

impl Guests {
    /// Finds the guests and their addresses.
    pub(super) fn find(client: &Client) -> Result<Self> {
        let ports = client.vnicd()?.info()?.ports;
        let mac = |name: &str| -> Result<String> {
            let port = ports.iter().find(|port| port.name == name);
            let mac = port.and_then(|port| port.mac);
            Ok(mac
                .with_context(|| format!("the card {name} has no address"))?
                .to_string())
        };
        let nodes = client.status()?.nodes;
        let receiver = nodes.iter().find(|node| node.name == "n2");
        let ready = |node: &str| -> Result<GuestChannel> {
            let channel = client.agent(node)?;
            channel.wait_ready(TOOL_PATIENCE)?;
            Ok(channel)
        };
        Ok(Self {
            sender: ready("n1")?,
            receiver: ready("n2")?,
            macs: [mac("n2.eth1")?, mac("n2.eth0")?, mac("n2.eth2")?],
            address: receiver
                .and_then(|node| node.address.clone())
                .context("the receiving guest has no address")?,
        })
    }

    /// Measures everything of one rival, or of those of its turn.
    pub(super) fn measure(&self, rival: usize, turn: &Turn) -> Result<Vec<(Cell, Sample)>> {
        let samples = match rival {
            BYPASS => self.messages(CARD, &self.macs[0], false)?,
            // Which of the two is quicker depends on who else wants the processors.
            KERNEL => {
                let [polling, sleeping] = [false, true].map(|sleeps| self.messages(INTERFACE, &self.macs[1], sleeps));
                let (polling, sleeping) = (polling?, sleeping?);
                vec![
                    (TIME, polling[0].1.min(sleeping[0].1)),
                    (THROUGHPUT, polling[1].1.max(sleeping[1].1)),
                ]
            }
            TCP => vec![(THROUGHPUT, self.tcp()?)],
            copies::ICOPY => return copies::measure(&self.sender, turn),
            receives::CARD => return receives::measure(&self.sender, &self.receiver, &self.macs[2], turn),
            _ => Vec::new(),
        };
        let sample = |(measurement, value)| (Cell { measurement, rival }, Sample::new(value));
        Ok(samples.into_iter().map(sample).collect())
    }

    /// Measures messages over an interface, by programs that poll or sleep: the time of short ones, and the throughput of long ones.
    fn messages(&self, interface: &str, mac: &str, sleeps: bool) -> Result<Vec<(usize, f64)>> {
        let more: &[&str] = if sleeps { &["-w"] } else { &[] };
        let serve = [&["omx_perf", "--interface", interface, "-s", "--json"][..], more].concat();
        let server = start_server(&self.receiver, &serve, "endpoint")?;
        let time_ns = |bytes: u64, (count, before): (u64, u64)| -> Result<f64> {
            let numbers = [bytes, bytes + 1, count, before].map(|number| number.to_string());
            let [first, end, count, before] = numbers.each_ref().map(String::as_str);
            let send = ["omx_perf", "--interface", interface, "-d", mac, "--json"];
            let lengths = ["-S", first, "-E", end, "-N", count, "-W", before];
            let text = output(&self.sender, &[&send[..], &lengths, more].concat())?;
            let said: PingPong = serde_json::from_str(&text).with_context(|| format!("omx_perf printed {text:?}"))?;
            Ok(said.us_median * 1e3)
        };
        let (short_ns, long_ns) = (time_ns(SHORT_BYTES, SHORT)?, time_ns(LONG_BYTES, LONG)?);
        drop(server);
        Ok(vec![(TIME, short_ns), (THROUGHPUT, LONG_BYTES as f64 * 1e9 / long_ns)])
    }

    /// Measures the throughput of TCP, in bytes per second.
    fn tcp(&self) -> Result<f64> {
        let server = start_server(&self.receiver, &["iperf3", "-s", "--forceflush"], "listening")?;
        let text = output(&self.sender, &["iperf3", "-c", &self.address, "-t", TCP_S, "-J"])?;
        drop(server);
        let report: Value = serde_json::from_str(&text).context("iperf3 printed no JSON")?;
        let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
        Ok(bits.context("iperf3 printed no figure")? / 8.0)
    }
}
