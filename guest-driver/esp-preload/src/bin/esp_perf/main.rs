//! `esp_perf`: latency, time of a send call, and throughput of stream sockets. It uses plain sockets, so the same program measures TCP
//! and, under `esp-run`, ESP.

mod arguments;
mod client;
mod server;

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use clap::Parser;
use serde_json::json;

use arguments::{Arguments, Kind, Measurement, Role, SIZE_MAX};

/// Port of a server that was not told another one.
const PORT: u16 = 7200;

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

fn run(role: Role) -> Result<()> {
    match role {
        Role::Server { listen } => server::run(listen),
        Role::Client(measurement) => client::run(&measurement),
    }
}

/// Prints a line at once. Who closes the output has read enough, and that is no error.
fn print_line(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match writeln!(out, "{line}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error).context("cannot write to stdout"),
        _ => Ok(()),
    }
}

/// Says what is wrong, with `json` also on standard output. A stream that is closed loses the sentence, and nothing else happens.
fn say(error: &anyhow::Error, json: bool) {
    let sentence = format!("{error:#}");
    let _ = writeln!(io::stderr(), "esp_perf: {sentence}");
    if json {
        let _ = writeln!(io::stdout(), "{}", json!({ "error": sentence }));
    }
}

/// Runs the program: here, or as `esp-run` called by this name.
pub(crate) fn main() -> ExitCode {
    let Arguments { role } = Arguments::parse();
    let json = matches!(&role, Role::Client(measurement) if measurement.json);
    match run(role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error, json);
            ExitCode::FAILURE
        }
    }
}
