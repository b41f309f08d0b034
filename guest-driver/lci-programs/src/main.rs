//! Runs one of the programs at one node: `lci_program INTERFACE MAC,MAC,… PROGRAM`, at every node.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use ether::MacAddr;
use lci_port::{Lci, Options, Policy};
use lci_programs::{
    asp, broadcast,
    kernels::{Settings, barnes_hut, fft, radix},
    live::{self, Live},
    messages::Forwarding,
    ping_pong, qr,
};
use shared_features as _;

/// A program over LCI, whose results are compared with a sequential run.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    /// The interface of this node.
    interface: String,
    /// The addresses of all nodes, the same list everywhere.
    #[arg(value_name = "MAC,MAC,…", value_parser = nodes)]
    nodes: Nodes,
    /// How broadcasts are forwarded: packets, binary or binomial (whole messages).
    #[arg(long, default_value = "packets", value_parser = forwarding)]
    forwarding: Forwarding,
    /// Who does what: host, mixed or ni. The last two need cards that the programs drive themselves.
    #[arg(long, env = "LCI_IMPLEMENTATION", default_value = "host", value_parser = implementation)]
    implementation: Policy,
    /// Microseconds that a program may leave a packet before it is interrupted; 0 = none, an interrupt for each packet.
    #[arg(long, default_value_t = 100)]
    watchdog_us: u64,
    /// A card of the node's own interrupts it, by its watchdog and clock, which know the node's exact state.
    #[arg(long)]
    by_card: bool,
    /// Milliseconds after which a node that is silent is removed.
    #[arg(long)]
    dead_ms: Option<u64>,
    /// Run the kernels with interrupts disabled: Barnes-Hut and radix do not end then, and say so.
    #[arg(long)]
    no_interrupts: bool,
    /// Seconds in which nothing may happen before the program gives up: 60, and 10 for kernels on shared regions.
    #[arg(long)]
    patience_s: Option<u32>,
    #[command(subcommand)]
    program: Program,
}

#[derive(Clone, Copy, Subcommand)]
enum Program {
    /// Half the round trip of a packet between nodes 0 and 1.
    PingPong { size: usize, rounds: u64 },
    /// Latency and throughput of broadcasts.
    Broadcast { length: usize, rounds: u64 },
    /// All shortest paths of a graph.
    Asp {
        size: usize,
        /// Poll while computing.
        #[arg(long)]
        polls: bool,
    },
    /// QR factorization with column pivoting.
    Qr { size: usize },
    /// Bodies that attract each other, 16 in each region.
    BarnesHut { regions: usize, steps: u64 },
    /// Fourier transform of rows × rows points.
    Fft { rows: usize },
    /// Radix sort of 64 keys in each region.
    Radix { regions: usize },
}

/// The addresses of all nodes: one word, so that what follows is the program.
#[derive(Clone)]
struct Nodes(Vec<MacAddr>);

fn nodes(list: &str) -> Result<Nodes> {
    let addresses = list.split(',').map(str::parse);
    Ok(Nodes(addresses.collect::<Result<_, _>>()?))
}

fn implementation(name: &str) -> Result<Policy> {
    let known = Policy::ALL.into_iter().find(|known| known.name() == name);
    known.context("an implementation of LCI is host, mixed or ni")
}

fn forwarding(name: &str) -> Result<Forwarding> {
    let known = Forwarding::ALL.iter().find(|(known, _)| *known == name);
    known
        .map(|(_, forwarding)| *forwarding)
        .context("broadcasts are forwarded by packets, binary or binomial")
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let mut options = Options {
        policy: arguments.implementation,
        watchdog: Duration::from_micros(arguments.watchdog_us),
        by_card: arguments.by_card,
        ..Options::default()
    };
    if let Some(dead_ms) = arguments.dead_ms {
        let timing = &mut options.timing;
        timing.dead_ns = dead_ms.saturating_mul(1_000_000);
        timing.retransmit_max_ns = timing.retransmit_max_ns.min(timing.dead_ns / 8);
    }
    let mut node = Live::new(Lci::open(&arguments.interface, &arguments.nodes.0, &options)?);
    let patience_ns = arguments.patience_s.map(|seconds| u64::from(seconds) * 1_000_000_000);
    if let Some(patience_ns) = patience_ns {
        node = node.with_patience(patience_ns);
    }
    let result = run(&node, &arguments, patience_ns);
    if let Ok(line) = &result
        && node.lci().me() == 0
    {
        println!("{line}");
    }
    let lost = node.lci().finalize();
    let result = result.map(drop);
    if result.is_ok() && !lost.is_empty() {
        bail!("nodes {lost:?} did not end in order");
    }
    result
}

fn run(node: &Live, arguments: &Arguments, patience_ns: Option<u64>) -> Result<String> {
    let forwarding = arguments.forwarding;
    let settings = Settings {
        interrupts: !arguments.no_interrupts,
        patience_ns: patience_ns.unwrap_or(10_000_000_000),
    };
    let ms = |ns: u64| ns as f64 / 1e6;
    Ok(match arguments.program {
        Program::PingPong { size, rounds } => {
            let halves_ns = live::run(ping_pong::run(node, rounds, size))?;
            let median_ns = halves_ns.get(halves_ns.len() / 2).copied().unwrap_or_default();
            format!(
                "ping-pong of {size} bytes: half a round trip takes {:.2} µs (median)",
                median_ns as f64 / 1e3
            )
        }
        Program::Broadcast { length, rounds } => {
            let outcome = live::run(broadcast::run(node, forwarding, rounds, length))?;
            let answered_ns = outcome
                .answered_ns
                .get(outcome.answered_ns.len() / 2)
                .copied()
                .unwrap_or_default();
            let bytes_per_s = length as f64 * rounds as f64 * 1e9 / outcome.stream_ns.max(1) as f64;
            format!(
                "broadcast of {length} bytes: answered by all after {:.1} µs (median), {:.1} MB/s",
                answered_ns as f64 / 1e3,
                bytes_per_s / 1e6
            )
        }
        Program::Asp { size, polls } => {
            let expected = asp::sequential(size);
            let settings = asp::Settings {
                size,
                forwarding,
                polls,
            };
            let took_ns = live::run(asp::run(node, &settings, Some(&expected)))?;
            format!("shortest paths of {size} vertices: right, {:.1} ms", ms(took_ns))
        }
        Program::Qr { size } => {
            let expected = qr::sequential(size);
            let took_ns = live::run(qr::run(node, size, forwarding, Some(&expected)))?;
            format!("QR of {size} columns: right, {:.1} ms", ms(took_ns))
        }
        Program::BarnesHut { regions, steps } => {
            let expected = barnes_hut::sequential(regions, steps);
            let took_ns = live::run(barnes_hut::run(node, &settings, regions, steps, &expected))?;
            format!("{steps} steps of {} bodies: right, {:.1} ms", regions * 16, ms(took_ns))
        }
        Program::Fft { rows } => {
            let expected = fft::sequential(rows);
            let took_ns = live::run(fft::run(node, &settings, rows, &expected))?;
            format!(
                "Fourier transform of {} points: right, {:.1} ms",
                rows * rows,
                ms(took_ns)
            )
        }
        Program::Radix { regions } => {
            let expected = radix::sequential(regions);
            let took_ns = live::run(radix::run(node, &settings, regions, &expected))?;
            format!("radix sort of {} keys: right, {:.1} ms", regions * 64, ms(took_ns))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_nodes_is_one_word_and_the_program_follows() {
        let words = "lci_program eth0 02:00:00:00:00:01,02:00:00:00:00:02 --forwarding binomial asp 64 --polls";
        let arguments = Arguments::try_parse_from(words.split(' ')).unwrap();
        assert_eq!(arguments.nodes.0.len(), 2);
        assert!(matches!(arguments.program, Program::Asp { size: 64, polls: true }));
        for wrong in ["", "02:00:00:00:00:01,", "eth1"] {
            assert!(
                Arguments::try_parse_from(["lci_program", "eth0", wrong, "qr", "8"]).is_err(),
                "{wrong}"
            );
        }
    }
}
