//! Runs one of the programs at one node: `lci_program INTERFACE MAC,MAC,… PROGRAM`, at every node.

use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use lci_port::{Counter, Lci, Options};
use lci_programs::{
    absent, asp, broadcast,
    cli::{Arguments, Program},
    kernels::{Settings, barnes_hut, fft, radix},
    live::{self, Live},
    messages::Forwarding,
    ping_pong, qr,
    report::{Figures, Report},
};
use shared_features as _;

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
    if let Ok(figures) = &result {
        if arguments.json {
            println!("{}", serde_json::to_string(&report(&node, &arguments, *figures))?);
        } else if node.lci().me() == 0 {
            println!("{figures}");
        }
    }
    let lost = node.lci().finalize();
    let result = result.map(drop);
    if result.is_ok() && !lost.is_empty() {
        bail!("nodes {lost:?} did not end in order");
    }
    result
}

fn report(node: &Live, arguments: &Arguments, figures: Figures) -> Report {
    let statistics = node.lci().statistics();
    let count = |counter| statistics.engine.of(counter);
    Report {
        node: node.lci().me(),
        nodes: node.lci().size(),
        implementation: arguments.implementation.name(),
        forwarding: arguments.forwarding.name(),
        figures,
        busy_ns: statistics.busy.as_nanos() as u64,
        forwarded: count(Counter::Forwarded),
        retransmitted: count(Counter::Retransmitted),
        missed: count(Counter::Missed),
        interrupts: statistics.interrupts.arrived,
        by_card: statistics.card_looks,
    }
}

fn median(sorted_ns: &[u64]) -> u64 {
    sorted_ns.get(sorted_ns.len() / 2).copied().unwrap_or_default()
}

fn run_broadcast(node: &Live, forwarding: Forwarding, bytes: usize, rounds: u64) -> Result<Figures> {
    let outcome = live::run(broadcast::run(node, forwarding, rounds, bytes))?;
    Ok(Figures::Broadcast {
        bytes,
        rounds,
        answered_ns: median(&outcome.answered_ns),
        stream_ns: outcome.stream_ns,
    })
}

fn run_absent(node: &Live, forwarding: Forwarding, packets: u64, compute_ms: u64) -> Result<Figures> {
    let compute_ns = compute_ms.saturating_mul(1_000_000);
    let outcome = live::run(absent::run(node, forwarding, packets, compute_ns))?;
    Ok(Figures::Absent {
        packets,
        compute_ns,
        lost: outcome.lost,
        received_meanwhile: outcome.received_meanwhile,
        waited_ns: outcome.waited_ns,
    })
}

fn run(node: &Live, arguments: &Arguments, patience_ns: Option<u64>) -> Result<Figures> {
    let forwarding = arguments.forwarding;
    let settings = Settings {
        interrupts: !arguments.no_interrupts,
        patience_ns: patience_ns.unwrap_or(10_000_000_000),
    };
    Ok(match arguments.program {
        Program::PingPong { size, rounds } => Figures::PingPong {
            bytes: size,
            half_round_trip_ns: median(&live::run(ping_pong::run(node, rounds, size))?),
        },
        Program::Broadcast { length, rounds } => run_broadcast(node, forwarding, length, rounds)?,
        Program::Absent { packets, compute_ms } => run_absent(node, forwarding, packets, compute_ms)?,
        Program::Asp { size, polls } => {
            let expected = asp::sequential(size);
            let settings = asp::Settings {
                size,
                forwarding,
                polls,
            };
            Figures::Asp {
                vertices: size,
                took_ns: live::run(asp::run(node, &settings, Some(&expected)))?,
            }
        }
        Program::Qr { size } => {
            let expected = qr::sequential(size);
            Figures::Qr {
                columns: size,
                took_ns: live::run(qr::run(node, size, forwarding, Some(&expected)))?,
            }
        }
        Program::BarnesHut { regions, steps } => {
            let expected = barnes_hut::sequential(regions, steps);
            Figures::BarnesHut {
                bodies: regions * 16,
                steps,
                took_ns: live::run(barnes_hut::run(node, &settings, regions, steps, &expected))?,
            }
        }
        Program::Fft { rows } => {
            let expected = fft::sequential(rows);
            Figures::Fft {
                points: rows * rows,
                took_ns: live::run(fft::run(node, &settings, rows, &expected))?,
            }
        }
        Program::Radix { regions } => {
            let expected = radix::sequential(regions);
            Figures::Radix {
                keys: regions * 64,
                took_ns: live::run(radix::run(node, &settings, regions, &expected))?,
            }
        }
    })
}
