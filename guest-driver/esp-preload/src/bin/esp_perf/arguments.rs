//! The command line of `esp_perf`. The package's man page is made from it, too, without the rest of the program.

use std::net::SocketAddr;

use clap::{Parser, Subcommand, ValueEnum};

/// Most bytes of a message.
pub const SIZE_MAX: i64 = 16 << 20;

/// Most messages: the time of each is kept until all are sorted, in 8 bytes.
pub const COUNT_MAX: i64 = 100_000_000;

/// Measure stream sockets: TCP's or, under esp-run, ESP's.
#[derive(Parser)]
#[command(name = "esp_perf", version)]
pub struct Arguments {
    #[command(subcommand)]
    pub role: Role,
}

#[derive(Subcommand)]
pub enum Role {
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
pub struct Measurement {
    /// Address of the server, with its port if that is not 7200.
    #[arg(value_name = "ADDRESS[:PORT]")]
    pub server: String,
    /// What is measured.
    #[arg(long, value_enum, default_value_t = Kind::Latency)]
    pub test: Kind,
    /// Bytes of a message; of a call, for streams.
    #[arg(long, default_value_t = 64, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..=SIZE_MAX))]
    pub size: u32,
    /// Messages; calls, for streams.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=COUNT_MAX))]
    pub count: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// A kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Half the time of a round trip, one message at a time.
    Latency,
    /// The same with a pause before each message, so that both sides are asleep when it comes.
    Asleep,
    /// The time that a send call takes.
    Send,
    /// Bytes per second in one direction.
    Stream,
}
