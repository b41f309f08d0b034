//! `vnic-bench`: vnicd against DPDK's testpmd as vhost forwarders between two test frontends, on the
//! same cores, alternating in one run; and `vnic-bench links`, vnicd against itself with other cables. Called by `scripts/bench`,
//! which builds both ends.

mod backends;
mod dataplane;
mod links;
mod table;
mod virtio_user;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::{Args, Parser, Subcommand};

/// Exit status when a bar is missed, or fewer rounds count than it takes to judge it.
const EXIT_BAR_MISSED: u8 = 3;

/// Compares vnicd with dpdk-testpmd as vhost-user forwarders.
///
/// Exit status: 0 when every bar is met, 3 when one is missed or too few rounds count to judge it, 1 on failure.
#[derive(Debug, Parser)]
#[command(version, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
struct Cli {
    #[command(flatten)]
    dataplane: Options,
    #[command(subcommand)]
    verb: Option<Verb>,
}

/// Other comparisons.
#[derive(Debug, Subcommand)]
enum Verb {
    Links(links::LinkOptions),
}

/// Options of the comparison with testpmd.
#[derive(Debug, Args)]
struct Options {
    /// Alternating rounds; figures are medians over them.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Length of one sample in milliseconds.
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    sample_ms: u64,
    /// Frame sizes in bytes (Ethernet header included, FCS not).
    #[arg(long, value_delimiter = ',', default_value = "64,512,1500,9000")]
    sizes: Vec<usize>,
    /// Forwarders to measure.
    #[arg(long, value_delimiter = ',', default_value = "vnicd,testpmd")]
    backends: Vec<backends::Kind>,
    /// What to measure.
    #[arg(long, value_delimiter = ',', default_value = "one-way,interrupts,ping-pong,idle")]
    parts: Vec<dataplane::Part>,
    /// The vnicd binary; by default the one beside this program.
    #[arg(long)]
    vnicd: Option<PathBuf>,
    /// The testpmd binary.
    #[arg(long, default_value = "dpdk-testpmd")]
    testpmd: PathBuf,
    /// Further arguments for vnicd, split at blanks: by default the strategy of the papers' card, all else as shipped.
    #[arg(long, default_value = "--strategy timeout --delay-us 75", allow_hyphen_values = true)]
    vnicd_args: String,
    /// Core of the forwarder.
    #[arg(long, default_value_t = 0)]
    forwarder_core: usize,
    /// Core of the thread that plays both guests.
    #[arg(long, default_value_t = 1)]
    frontend_core: usize,
    /// Entries per ring.
    #[arg(long, default_value_t = 256)]
    ring: u16,
    /// Bytes per receive buffer; 0: the frame fits one buffer.
    #[arg(long, default_value_t = 0)]
    rx_buffer: usize,
    /// Who plays the guests.
    #[arg(long, value_enum, default_value_t = dataplane::Guest::Weft)]
    frontend: dataplane::Guest,
    /// Buffers each guest uses in turn per ring. 256 or less: each ring slot keeps its buffer, all stays in the caches.
    #[arg(long, default_value_t = 512)]
    buffers: usize,
    /// Let the guests write and read whole frames, not only the first line of each.
    #[arg(long)]
    touch_all: bool,
    /// Leave EVENT_IDX out of the negotiation.
    #[arg(long)]
    no_event_idx: bool,
    /// Print JSON instead of the table.
    #[arg(long)]
    json: bool,
}

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::Relaxed);
}

/// An error once Ctrl-C or SIGTERM came: what was started is then dropped, and with it stopped and removed.
fn check_interrupted() -> anyhow::Result<()> {
    anyhow::ensure!(!INTERRUPTED.load(Ordering::Relaxed), "interrupted");
    Ok(())
}

fn main() -> anyhow::Result<ExitCode> {
    let Cli {
        dataplane: options,
        verb,
    } = Cli::parse();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only stores to an atomic.
        unsafe { libc::signal(signal, interrupt as *const () as libc::sighandler_t) };
    }
    let met = match verb {
        None => {
            let lines = dataplane::run(&options)?;
            if options.json {
                println!("{}", table::json(&options, &lines));
            } else {
                println!("{}", table::text(&options, &lines));
            }
            table::all_met(&options, &lines)
        }
        Some(Verb::Links(options)) => {
            let outcome = links::run(&options)?;
            if options.json {
                println!("{}", outcome.json());
            } else {
                println!("{}", outcome.text());
            }
            outcome.all_met()
        }
    };
    Ok(if met { ExitCode::SUCCESS } else { EXIT_BAR_MISSED.into() })
}
