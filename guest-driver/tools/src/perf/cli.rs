//! The command line of `omx_perf`.

use std::{
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use clap::Parser;
use ether::MacAddr;
use omx::{Board, Endpoint, EndpointOptions, Error, Waiting};
use serde_json::json;

use super::{
    overlap,
    parameters::{KEY, Mode, Parameters},
    phases, pingpong, rate,
    side::{Polling, Side},
};
use crate::{
    board::one,
    run::{print, print_line, say},
};

/// A name that is not known is sought for this long in the table that the authority keeps in shared memory: authorities
/// announce their boards every second.
const NAMES_LIMIT: Duration = Duration::from_secs(3);
/// The table is polled this often, because no descriptor becomes readable when an authority learns a name.
const NAMES_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Length of the messages of --overlap unless another one is given.
const OVERLAP_LENGTH: u64 = 4 << 20;

/// Times messages between two endpoints: half of the round trip, and the rate that follows from it; or messages per second, or
/// how much of a transfer computation hides, or what a computation loses by receiving.
///
/// Start it without -d on one host, and with -d and that host's name or address on the other. What is measured is said there alone:
/// the receiver (without -d) has -b, -e, -s, -w, -y and -v.
#[derive(Debug, Parser)]
#[command(name = "omx_perf", version, disable_help_flag = true)]
pub struct Arguments {
    /// Board to use [default: the first that is switched on]
    #[arg(short = 'b', value_name = "NUMBER")]
    board: Option<u32>,
    /// Interface to use, in place of a board number
    #[arg(long, value_name = "NAME", conflicts_with = "board")]
    interface: Option<String>,
    /// Endpoint to open [default: 0; any for the sender]
    #[arg(short = 'e', value_name = "NUMBER")]
    endpoint: Option<u8>,
    /// Receiver: serve one sender after the other
    #[arg(short = 's')]
    serve: bool,
    /// Sleep while waiting, in place of polling
    #[arg(short = 'w', conflicts_with = "yielding")]
    wait: bool,
    /// Yield the processor between polls
    #[arg(short = 'y')]
    yielding: bool,
    /// Print what is being done
    #[arg(short = 'v')]
    verbose: bool,
    /// Be the sender to this host: its name or address
    #[arg(short = 'd', value_name = "HOST")]
    destination: Option<String>,
    /// Endpoint of that host
    #[arg(short = 'r', value_name = "NUMBER", default_value_t = 0)]
    remote: u8,
    /// Align buffers to 64 KiB
    #[arg(short = 'a')]
    aligned: bool,
    /// First length in bytes [default: 0; 4 MiB with --overlap and --phases]
    #[arg(short = 'S', value_name = "BYTES")]
    start: Option<u64>,
    /// Lengths stay below this
    #[arg(short = 'E', value_name = "BYTES", default_value_t = (4 << 20) + 1)]
    end: u64,
    /// Next length: this times the last one …
    #[arg(short = 'M', value_name = "FACTOR", default_value_t = 2)]
    multiplier: u64,
    /// … plus this; after 0 comes this, or 1
    #[arg(short = 'I', value_name = "BYTES", default_value_t = 0)]
    increment: u64,
    /// Messages per length
    #[arg(short = 'N', value_name = "COUNT", default_value_t = 1000)]
    iterations: u32,
    /// Messages before those that are timed
    #[arg(short = 'W', value_name = "COUNT", default_value_t = 10)]
    warm_up: u32,
    /// Pause before each length, in milliseconds
    #[arg(short = 'P', value_name = "MS", default_value_t = 100)]
    pause_ms: u64,
    /// Time one direction only: replies are empty, and the time is that of message and empty reply, not half of it
    #[arg(short = 'U')]
    one_way: bool,
    /// Send synchronously
    #[arg(short = 'Y')]
    synchronous: bool,
    /// Print the columns of the Intel MPI Benchmarks
    #[arg(long, conflicts_with_all = ["json", "rate", "overlap", "one_way"])]
    imb: bool,
    /// Measure messages per second, with many in flight at once
    #[arg(long, conflicts_with_all = ["overlap", "one_way"])]
    rate: bool,
    /// Measure how much of a transfer is hidden behind computation of the same duration
    #[arg(long, conflicts_with = "one_way")]
    overlap: bool,
    /// Receive in three phases: post, compute with calls of progress, wait; show what the computation loses by it. The other side sends,
    /// and every byte is checked
    #[arg(long, conflicts_with_all = ["overlap", "rate", "imb", "one_way"])]
    phases: bool,
    /// Print one line of JSON per length, for the ping-pong with median and 99th percentile
    #[arg(long)]
    pub json: bool,
    /// Print help
    #[arg(short = 'h', long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

impl Arguments {
    const fn parameters(&self) -> Parameters {
        Parameters {
            iterations: self.iterations,
            warm_up: self.warm_up,
            first: match self.start {
                Some(start) => start,
                None if self.overlap || self.phases => OVERLAP_LENGTH,
                None => 0,
            },
            end: self.end,
            multiplier: self.multiplier,
            increment: self.increment,
            aligned: self.aligned,
            one_way: self.one_way,
            synchronous: self.synchronous,
            mode: match (self.rate, self.overlap, self.phases) {
                (true, ..) => Mode::Rate,
                (_, true, _) => Mode::Overlap,
                (.., true) => Mode::Phases,
                _ => Mode::PingPong,
            },
            numbered: true,
        }
    }
}

/// Runs `omx_perf`.
///
/// # Errors
/// The endpoint cannot be opened, the receiver not be reached, or a message failed.
pub fn main(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if arguments.iterations == 0 {
        bail!("at least one message per length is needed (-N)");
    }
    let board = match &arguments.interface {
        Some(name) => Board::named(name)?,
        None => one(arguments.board)?,
    };
    let options = EndpointOptions {
        interface: Some(board.interface().name.clone()),
        endpoint: match (arguments.endpoint, &arguments.destination) {
            (None, None) => Some(0),
            (endpoint, _) => endpoint,
        },
        key: KEY,
        waiting: if arguments.wait { Waiting::Sleep } else { Waiting::Spin },
        ..EndpointOptions::default()
    };
    let endpoint = Endpoint::open(&options).context("cannot open the endpoint")?;
    let polling = if arguments.yielding {
        Polling::Yield
    } else {
        Polling::Wait
    };
    let Some(host) = &arguments.destination else {
        if arguments.verbose || arguments.json {
            let own = endpoint.address();
            let line = if arguments.json {
                json!({ "mac": own.mac().to_string(), "endpoint": own.endpoint() }).to_string()
            } else {
                format!("Waiting on {} endpoint {}", own.mac(), own.endpoint())
            };
            print_line(&line)?;
        }
        for service in 0.. {
            let served = pingpong::receive(&endpoint, polling, service);
            match served {
                Err(error) if arguments.serve => say("omx_perf", &format!("{error:#}")),
                other => other?,
            }
            if !arguments.serve {
                break;
            }
        }
        endpoint.close()?;
        return Ok(ExitCode::SUCCESS);
    };
    let mac: MacAddr = match host.parse() {
        Ok(mac) => mac,
        Err(_) => find(&board, host)?,
    };
    if arguments.verbose && !arguments.json {
        let own = endpoint.address();
        let (from, to) = (own.endpoint(), arguments.remote);
        print_line(&format!(
            "Sending from {} endpoint {from} to {mac} endpoint {to}",
            own.mac()
        ))?;
    }
    let parameters = arguments.parameters();
    let side = pingpong::reach(&endpoint, polling, (mac, arguments.remote), parameters)?;
    measure(arguments, &side, parameters)?;
    endpoint.close()?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the address of the host with this name, of which an authority that was just started may not have heard yet.
fn find(board: &Board, host: &str) -> anyhow::Result<MacAddr> {
    let begin = Instant::now();
    loop {
        match board.find_host(host) {
            Err(Error::NameNotFound) if begin.elapsed() < NAMES_LIMIT => thread::sleep(NAMES_POLL_INTERVAL),
            found => {
                return found
                    .with_context(|| format!("no host is called {host} (`omx_info` lists those that are known)"));
            }
        }
    }
}

fn measure(arguments: &Arguments, side: &Side<'_>, parameters: Parameters) -> anyhow::Result<()> {
    let pause = Duration::from_millis(arguments.pause_ms);
    match parameters.mode {
        Mode::PingPong => {
            if arguments.imb {
                print_line(pingpong::IMB_HEAD)?;
            }
            pingpong::send(side, parameters, pause, |result| {
                if arguments.imb {
                    return print_line(&result.imb());
                }
                print(arguments.json, result)
            })
        }
        Mode::Rate => rate::send(side, parameters, pause, |result| print(arguments.json, result)),
        Mode::Overlap => overlap::send(side, parameters, pause, |result| print(arguments.json, result)),
        Mode::Phases => phases::measure(side, parameters, |result| print(arguments.json, result)),
    }
}
