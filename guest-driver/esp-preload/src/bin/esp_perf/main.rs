//! `esp_perf`: latency, time of a send call, and throughput of stream sockets. It uses plain sockets, so the same program measures TCP
//! and, under `esp-run`, ESP.

mod arguments;
mod client;
mod server;

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Parser;

use arguments::{Arguments, Kind, Measurement, Role};

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

/// Runs the program: here, or as `esp-run` called by this name.
pub(crate) fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("esp_perf: {error:#}");
            ExitCode::FAILURE
        }
    }
}
