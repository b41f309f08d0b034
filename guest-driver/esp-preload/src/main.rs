//! `esp-run`: starts a program whose TCP connections use ESP where the peer speaks it.

use std::{
    env,
    ffi::OsString,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use clap::Parser;
use esp_socket::keeper;

/// The library's name, beside this program or in the folder for libraries next to it.
const LIBRARY: &str = "libesp-preload.so";

/// Start a program whose TCP connections use ESP, stream sockets straight over Ethernet, where the peer speaks it.
#[derive(Parser)]
#[command(name = "esp-run", version)]
struct Arguments {
    /// Fail connections that ESP cannot make, instead of making them by TCP.
    #[arg(long)]
    never_fall_back: bool,
    /// Microseconds that a waiting thread looks for frames before it sleeps.
    #[arg(long, value_name = "US")]
    spin_us: Option<u64>,
    /// The preloaded library, if it is elsewhere.
    #[arg(long, value_name = "FILE", env = "ESP_PRELOAD_LIBRARY")]
    library: Option<PathBuf>,
    /// Serve a connection for programs that share it: for the library's own use.
    #[arg(long, hide = true, value_name = "INTERFACE")]
    keep_connection: Option<String>,
    /// The program and its arguments.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required_unless_present = "keep_connection",
        value_name = "PROGRAM"
    )]
    program: Vec<OsString>,
}

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
    match run(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("esp-run: {error:#}");
            // As `env(1)`: the program could not be started.
            ExitCode::from(127)
        }
    }
}
