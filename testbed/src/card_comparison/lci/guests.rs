//! The guests: each program runs at all nodes at the same time, and prints a line of JSON at each.

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::plan::{
    ABSENT_MS, ABSENT_PACKETS, ANSWERED, APPLICATION_NODES, ASP, COLUMNS, FORWARDED, FORWARDING, HOST, INTERRUPTS,
    KERNELS, LOST, MEANWHILE, MESSAGES, NI, NODES, PACKET_BYTES, PACKETS, QR, STALLED, STALLED_S, VERTICES, WAITED,
    WATCHDOGS_US, cell,
};
use crate::{
    guest_channel::{Exec, GuestChannel, Output, Running},
    guest_tools::TOOL_PATIENCE,
    harness::Cell,
    image::GuestBinaries,
    supervisor_client::client::Client,
};

/// The card that programs drive: that of `eth1` has this place on the PCI bus in every guest.
const CARD: &str = "virtio:0000:00:11.0";

/// The program, by its name in `scripts/build`.
pub(in crate::card_comparison) const PROGRAM: &str = "lci_program";

/// Its path in a guest.
const PATH: &str = "/bin/lci_program";

/// How the implementation and the forwarding of each rival are called.
const OPTIONS: [[&str; 2]; 3] = [["ni", "packets"], ["host", "packets"], ["host", "binomial"]];

/// What `lci_program` prints about a node, as far as it is of interest here; figures are those of node 0.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
struct Said {
    node: usize,
    busy_ns: u64,
    forwarded: u64,
    missed: u64,
    answered_ns: u64,
    took_ns: u64,
    lost: u64,
    received_meanwhile: u64,
    waited_ns: u64,
    interrupts: u64,
    by_card: bool,
}

/// Guests that have the program.
pub(super) struct Guests {
    channels: Vec<GuestChannel>,
    /// Hardware addresses of the cards, in the order of the nodes.
    macs: Vec<String>,
}

impl Guests {
    /// Copies the program to all guests.
    pub(super) fn prepare(client: &Client) -> Result<Self> {
        let ports = client.vnicd()?.info()?.ports;
        let program = GuestBinaries::locate()?.find(PROGRAM)?;
        let (mut channels, mut macs) = (Vec::new(), Vec::new());
        for node in 1..=NODES {
            let name = format!("n{node}");
            let channel = client.agent(&name)?;
            channel.wait_ready(TOOL_PATIENCE)?;
            channel.copy_in(&program, PATH)?;
            channels.push(channel);
            let card = format!("{name}.eth1");
            let port = ports.iter().find(|port| port.name == card);
            let mac = port.and_then(|port| port.mac);
            macs.push(
                mac.with_context(|| format!("the card {card} has no address"))?
                    .to_string(),
            );
        }
        Ok(Self { channels, macs })
    }

    /// Measures the turn that begins with `measurement`; its rivals take turns, and each round begins with another one.
    pub(super) fn measure(&self, round: u32, measurement: usize) -> Result<Vec<(Cell, f64)>> {
        let mut samples = Vec::new();
        let rivals: &[usize] = match measurement {
            ANSWERED => &[NI, HOST],
            LOST | INTERRUPTS => &[NI],
            _ => &[NI, HOST, MESSAGES],
        };
        let first = round as usize % rivals.len();
        for rival in rivals[first..].iter().chain(&rivals[..first]).copied() {
            match measurement {
                ANSWERED => {
                    let words = ["broadcast".to_owned(), PACKET_BYTES.to_string(), PACKETS.to_string()];
                    let said = self.run(NODES, rival, &words)?;
                    samples.push((cell(ANSWERED, rival), said[0].answered_ns as f64));
                    let forwarded: u64 = said.iter().map(|node| node.forwarded).sum();
                    samples.push((cell(FORWARDED, rival), forwarded as f64));
                    samples.push((cell(FORWARDING, rival), forwarding_ns(&said)));
                }
                LOST => {
                    let words = ["absent".to_owned(), ABSENT_PACKETS.to_string(), ABSENT_MS.to_string()];
                    let said = self.run(NODES, rival, &words)?;
                    let lost = said[0].lost + said.iter().map(|node| node.missed).sum::<u64>();
                    samples.push((cell(LOST, rival), lost as f64));
                    samples.push((cell(MEANWHILE, rival), said[0].received_meanwhile as f64));
                    samples.push((cell(WAITED, rival), said[0].waited_ns as f64));
                }
                ASP => {
                    let said = self.run(APPLICATION_NODES, rival, &["asp".to_owned(), VERTICES.to_string()])?;
                    samples.push((cell(ASP, rival), said[0].took_ns as f64));
                }
                QR => {
                    let said = self.run(APPLICATION_NODES, rival, &["qr".to_owned(), COLUMNS.to_string()])?;
                    samples.push((cell(QR, rival), said[0].took_ns as f64));
                }
                INTERRUPTS => samples.extend(self.measure_interrupts()?),
                _ => bail!("no turn begins with measurement {measurement}"),
            }
        }
        Ok(samples)
    }

    /// Interrupts of kernels over a shared memory by the delay of the card's watchdog, and whether the one that spins ends without any.
    fn measure_interrupts(&self) -> Result<Vec<(Cell, f64)>> {
        let mut samples = Vec::new();
        for (kernel, words) in KERNELS.into_iter().enumerate() {
            for (watchdog, delay_us) in WATCHDOGS_US.into_iter().enumerate() {
                let program = format!("--by-card --watchdog-us {delay_us} {words}");
                let said = self.run(APPLICATION_NODES, NI, &split(&program))?;
                ensure!(
                    said.iter().all(|node| node.by_card),
                    "a card does not read what its program tells it"
                );
                let interrupts: u64 = said.iter().map(|node| node.interrupts).sum();
                let at = INTERRUPTS + kernel * WATCHDOGS_US.len() + watchdog;
                samples.push((cell(at, NI), interrupts as f64));
            }
        }
        let program = format!("--by-card --no-interrupts --patience-s {STALLED_S} {}", KERNELS[0]);
        let ended = self.outputs(APPLICATION_NODES, NI, &split(&program))?;
        let ended = ended.iter().filter(|(_, output)| output.status.success()).count();
        samples.push((cell(STALLED, NI), ended as f64));
        Ok(samples)
    }

    /// Runs a program at the first nodes, and returns what they print. A node whose result is not right fails.
    fn run(&self, nodes: usize, rival: usize, program: &[String]) -> Result<Vec<Said>> {
        let mut all = Vec::new();
        for (node, (command, output)) in self.outputs(nodes, rival, program)?.into_iter().enumerate() {
            if !output.status.success() {
                let complained = String::from_utf8_lossy(&output.stderr);
                bail!("`{command}` at node {node}: {}: {}", output.status, complained.trim());
            }
            let text = String::from_utf8_lossy(&output.stdout);
            let said: Said = serde_json::from_str(&text).with_context(|| format!("`{command}` printed {text:?}"))?;
            all.push(said);
        }
        Ok(all)
    }

    /// Runs a program at the first nodes, and returns the command and what became of it at each.
    fn outputs(&self, nodes: usize, rival: usize, program: &[String]) -> Result<Vec<(String, Output)>> {
        let [implementation, forwarding] = OPTIONS[rival];
        let macs = self.macs[..nodes].join(",");
        let options = [
            PATH,
            "--json",
            "--implementation",
            implementation,
            "--forwarding",
            forwarding,
            CARD,
            &macs,
        ];
        let argv: Vec<_> = options
            .iter()
            .map(|word| (*word).to_owned())
            .chain(program.iter().cloned())
            .collect();
        let command = argv.join(" ");
        let start = |channel: &GuestChannel| {
            let argv = argv.clone();
            channel.exec(&Exec {
                argv,
                ..Exec::default()
            })
        };
        let running: Vec<_> = self.channels[..nodes].iter().map(start).collect::<Result<_, _>>()?;
        let collect = |(node, running): (usize, Running)| {
            let output = running.collect(TOOL_PATIENCE);
            let output = output.with_context(|| format!("`{command}` at node {node}"))?;
            Ok((command.clone(), output))
        };
        running.into_iter().enumerate().map(collect).collect()
    }
}

fn split(words: &str) -> Vec<String> {
    words.split(' ').map(str::to_owned).collect()
}

/// How much longer guests with children in the binary tree of node 0 work on a packet than those without.
fn forwarding_ns(said: &[Said]) -> f64 {
    let has_children = |node: usize| 2 * node + 1 < said.len();
    let median = |inner: bool| {
        let mut busy_ns: Vec<_> = said[1..]
            .iter()
            .filter(|node| has_children(node.node) == inner)
            .map(|node| node.busy_ns)
            .collect();
        busy_ns.sort_unstable();
        busy_ns.get(busy_ns.len() / 2).copied().unwrap_or_default() as f64
    };
    // Each packet is broadcast twice: with answers, and in a stream.
    ((median(true) - median(false)) / (2 * PACKETS) as f64).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_prints_is_understood_and_inner_nodes_are_told_from_leaves() {
        let line = r#"{"node":0,"nodes":8,"implementation":"ni","forwarding":"packets","program":"asp","vertices":64,
            "took_ns":5,"busy_ns":7,"forwarded":1,"retransmitted":0,"missed":0}"#;
        let said: Said = serde_json::from_str(line).unwrap();
        assert_eq!((said.took_ns, said.busy_ns, said.forwarded), (5, 7, 1));
        let nodes: Vec<_> = (0..8)
            .map(|node| Said {
                node,
                busy_ns: if (1..4).contains(&node) { 50_000_000 } else { 10_000_000 },
                ..Said::default()
            })
            .collect();
        assert_eq!(forwarding_ns(&nodes), 20_000.0);
    }
}
