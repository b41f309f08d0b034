//! `esp-run`: starts a program whose TCP connections use ESP where the peer speaks it. Called as `esp_perf` it is that program: in guests,
//! where each byte costs boot time, both are one.

mod arguments;
#[path = "bin/esp_perf/main.rs"]
mod perf;

use std::{
    env,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use esp_socket::{finisher, keeper, starter};

use arguments::Arguments;

/// The library's name, beside this program or in the folder for libraries next to it.
const LIBRARY: &str = "libesp-preload.so";

fn library(own: &Path) -> Result<PathBuf> {
    let dir = own.parent().context("this program has no folder")?;
    let places = [
        dir.join(LIBRARY),
        dir.join("../lib").join(LIBRARY),
        dir.join("../lib/x86_64-linux-gnu").join(LIBRARY),
        dir.join("esp/lib").join(LIBRARY),
    ];
    let found = places.iter().find(|place| place.exists());
    found
        .cloned()
        .with_context(|| format!("{LIBRARY} is not beside {}", own.display()))
}

fn run(arguments: Arguments) -> Result<()> {
    if let Some(interface) = arguments.keep_connection {
        return keeper::run(&interface).map_err(|error| anyhow::anyhow!("{error}"));
    }
    if let Some(interface) = arguments.finish_connections {
        return finisher::run(&interface).map_err(|error| anyhow::anyhow!("{error}"));
    }
    if let Some(interface) = arguments.start_authority {
        return starter::run(&interface).map_err(|error| anyhow::anyhow!("{error}"));
    }
    let own = env::current_exe().context("this program's own file is not known")?;
    let library = match arguments.library {
        Some(library) => library,
        None => library(&own)?,
    };
    let library = library
        .canonicalize()
        .with_context(|| format!("no {}", library.display()))?;
    let mut preload = library.into_os_string();
    if let Some(others) = env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let [program, rest @ ..] = arguments.program.as_slice() else {
        bail!("no program is named");
    };
    let mut command = Command::new(program);
    command
        .args(rest)
        .env("LD_PRELOAD", preload)
        .env(keeper::PROGRAM_VARIABLE, own);
    if arguments.never_fall_back {
        command.env("ESP_FALLBACK", "never");
    }
    if let Some(us) = arguments.spin_us {
        command.env("ESP_SPIN_US", us.to_string());
    }
    let error = command.exec();
    Err(error).with_context(|| format!("{} cannot be started", program.display()))
}

fn main() -> ExitCode {
    let called = env::args_os().next().unwrap_or_default();
    if Path::new(&called).file_name().is_some_and(|name| name == "esp_perf") {
        return perf::main();
    }
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("esp-run: {error:#}");
            // As `env(1)`: the program could not be started.
            ExitCode::from(127)
        }
    }
}
