//! The command line of `lci_program`, from which its man pages are made, too.

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, builder::RangedU64ValueParser};
use ether::MacAddr;
use lci_port::{PACKET_LEN_MAX, Policy};

use crate::messages::{Forwarding, MESSAGE_LEN_MAX};

/// Run a program over LCI, whose result is compared with that of a sequential run.
///
/// This command runs at every node of the list, and node 0 prints what was measured.
#[derive(Debug, Parser)]
#[command(name = "lci_program", version)]
pub struct Arguments {
    /// The interface of this node.
    pub interface: String,
    /// The addresses of all nodes, the same list everywhere.
    #[arg(value_name = "MAC,MAC,…", value_parser = nodes)]
    pub nodes: Nodes,
    /// How broadcasts are forwarded: packets, binary or binomial (whole messages).
    #[arg(long, default_value = "packets", value_parser = forwarding)]
    pub forwarding: Forwarding,
    /// Who does what: host, mixed or ni. The last two need cards that the programs drive themselves.
    #[arg(long, env = "LCI_IMPLEMENTATION", default_value = "host", value_parser = implementation)]
    pub implementation: Policy,
    /// Microseconds that a program may leave a packet before it is interrupted; 0 = none, an interrupt for each packet.
    #[arg(long, default_value_t = 100)]
    pub watchdog_us: u64,
    /// A card of the node's own interrupts it, by its watchdog and clock, which know the node's exact state.
    #[arg(long)]
    pub by_card: bool,
    /// Milliseconds after which a node that is silent is removed.
    #[arg(long)]
    pub dead_ms: Option<u64>,
    /// Run the kernels with interrupts disabled: Barnes-Hut and radix do not end then, and say so.
    #[arg(long)]
    pub no_interrupts: bool,
    /// Seconds in which nothing may happen before the program gives up: 60, and 10 for kernels on shared regions.
    #[arg(long)]
    pub patience_s: Option<u32>,
    /// Print one line of JSON at each node.
    #[arg(long)]
    pub json: bool,
    /// What is run.
    #[command(subcommand)]
    pub program: Program,
}

/// Rows of a matrix, or regions: a matrix with more, of 8 bytes each, has more than 2 GiB.
const SIDE_MAX: usize = 16_384;

/// Accepts numbers from `least` to `most`.
fn up_to(least: usize, most: usize) -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(least as u64..=most as u64)
}

/// The programs.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Program {
    /// Half the round trip of a packet between nodes 0 and 1.
    PingPong {
        /// Bytes of a packet, at most 1024.
        #[arg(value_parser = up_to(0, PACKET_LEN_MAX))]
        size: usize,
        /// Round trips.
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        rounds: u64,
    },
    /// Latency and throughput of broadcasts.
    Broadcast {
        /// Bytes of a message, at most 16 MiB.
        #[arg(value_parser = up_to(0, MESSAGE_LEN_MAX))]
        length: usize,
        /// Messages, each with answers first, and then one after the other.
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        rounds: u64,
    },
    /// Broadcasts while node 1 computes and does not poll.
    Absent {
        /// Packets that node 0 broadcasts.
        #[arg(value_parser = clap::value_parser!(u64).range(1..))]
        packets: u64,
        /// Milliseconds for which node 1 computes.
        compute_ms: u64,
    },
    /// All shortest paths of a graph.
    Asp {
        /// Vertices, at most 16384.
        #[arg(value_parser = up_to(1, SIDE_MAX))]
        size: usize,
        /// Poll while computing.
        #[arg(long)]
        polls: bool,
    },
    /// QR factorization with column pivoting.
    Qr {
        /// Rows and columns, at most 16384.
        #[arg(value_parser = up_to(1, SIDE_MAX))]
        size: usize,
    },
    /// Bodies that attract each other, 16 in each region.
    BarnesHut {
        /// Regions, at most 16384.
        #[arg(value_parser = up_to(1, SIDE_MAX))]
        regions: usize,
        /// Steps.
        steps: u64,
    },
    /// Fourier transform of rows × rows points.
    Fft {
        /// Rows and columns of points, at most 16384.
        #[arg(value_parser = up_to(1, SIDE_MAX))]
        rows: usize,
    },
    /// Radix sort of 64 keys in each region.
    Radix {
        /// Regions, at most 16384.
        #[arg(value_parser = up_to(1, SIDE_MAX))]
        regions: usize,
    },
}

/// The addresses of all nodes: one word, so that what follows is the program.
#[derive(Clone, Debug)]
pub struct Nodes(pub Vec<MacAddr>);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_nodes_is_one_word_and_the_program_follows() {
        let words = "lci_program eth0 02:00:00:00:00:01,02:00:00:00:00:02 --forwarding binomial asp 64 --polls";
        let arguments = Arguments::try_parse_from(words.split(' ')).unwrap();
        assert_eq!(arguments.nodes.0.len(), 2);
        assert!(matches!(arguments.program, Program::Asp { size: 64, polls: true }));
        for wrong in [
            "ping-pong 1025 1",
            "ping-pong 16 0",
            "broadcast 16777217 1",
            "broadcast 18446744073709551615 1",
            "broadcast 100 0",
            "absent 0 1",
            "asp 0",
            "qr 16385",
        ] {
            let words = format!("lci_program eth0 02:00:00:00:00:01 {wrong}");
            let error = Arguments::try_parse_from(words.split(' ')).unwrap_err().to_string();
            assert!(error.contains("is not in"), "{wrong}: {error}");
        }
        for wrong in ["", "02:00:00:00:00:01,", "eth1"] {
            assert!(
                Arguments::try_parse_from(["lci_program", "eth0", wrong, "qr", "8"]).is_err(),
                "{wrong}"
            );
        }
    }
}
