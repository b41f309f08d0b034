//! `esp_perf`: latency, time of a send call, and throughput of stream sockets. It uses plain sockets, so the same program measures TCP
//! and, under `esp-run`, ESP.

mod client;
mod server;

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{Parser, Subcommand, ValueEnum};

/// Measure stream sockets: TCP's or, under esp-run, ESP's.
#[derive(Parser)]
#[command(name = "esp_perf", version)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    /// Answer clients until it is ended.
    Server {
        /// Address and port to listen at.
        #[arg(default_value = "0.0.0.0:7200", value_name = "ADDRESS:PORT")]
        listen: SocketAddr,
    },
    /// Measure against a server.
    Client(Measurement),
}

/// What a client measures.
#[derive(clap::Args, Clone)]
struct Measurement {
    /// Address and port of the server.
    #[arg(value_name = "ADDRESS:PORT")]
    server: String,
    /// What is measured.
    #[arg(long, value_enum, default_value_t = Kind::Latency)]
    test: Kind,
    /// Bytes of a message; of a call, for streams.
    #[arg(long, default_value_t = 64, value_name = "BYTES")]
    size: u32,
    /// Messages; calls, for streams.
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    count: u32,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// A kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Half the time of a round trip, one message at a time.
    Latency,
    /// The same with a pause before each message, so that both sides are asleep when it comes.
    Asleep,
    /// The time that a send call takes.
    Send,
    /// Bytes per second in one direction.
    Stream,
}

/// The pause that lets the other side fall asleep.
const PAUSE: Duration = Duration::from_millis(2);

/// What a client tells its server first.
struct Head {
    kind: Kind,
    size: u32,
    count: u32,
}

impl Head {
    const LEN: usize = 9;

    fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [self.kind as u8; Self::LEN];
        bytes[1..5].copy_from_slice(&self.size.to_be_bytes());
        bytes[5..].copy_from_slice(&self.count.to_be_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Self::LEN]) -> Option<Self> {
        let [kind, size @ .., a, b, c, d] = bytes;
        let kinds = [Kind::Latency, Kind::Asleep, Kind::Send, Kind::Stream];
        let kind = kinds.into_iter().find(|known| *known as u8 == kind)?;
        Some(Self {
            kind,
            size: u32::from_be_bytes(size),
            count: u32::from_be_bytes([a, b, c, d]),
        })
    }
}

/// Most bytes of a message.
const SIZE_MAX: u32 = 16 << 20;

fn run(arguments: Arguments) -> Result<()> {
    match arguments.role {
        Role::Server { listen } => server::run(listen),
        Role::Client(measurement) => client::run(&measurement),
    }
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("esp_perf: {error:#}");
            ExitCode::FAILURE
        }
    }
}
