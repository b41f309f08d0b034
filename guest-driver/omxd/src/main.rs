//! `omxd`: the authority of one interface as a program. Started by a service manager it stays in the foreground; started on
//! demand by the library it leaves a process of its own behind and says on its standard output what became of it.

use std::{
    io::{self, IsTerminal, Write},
    os::{
        fd::AsFd,
        unix::net::{UnixDatagram, UnixStream},
    },
    process::ExitCode,
};

use clap::Parser;
use omxd::{Arguments, Daemon, DaemonOptions, OmxdError};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing_subscriber::{EnvFilter, filter::LevelFilter};

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_env_filter(
            EnvFilter::builder()
                .with_default_directive(LevelFilter::INFO.into())
                .from_env_lossy(),
        )
        .init();
    if arguments.on_demand {
        // Before any thread exists: the child is a copy of this one.
        // SAFETY: this process has one thread; parent and child go on with everything intact.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: no pointers; a session of its own, so that signals to the program's terminal do not reach it.
                unsafe { libc::setsid() };
            }
            -1 => return failed(true, &format!("cannot make a process: {}", io::Error::last_os_error())),
            _ => return ExitCode::SUCCESS,
        }
    }
    let on_demand = arguments.on_demand;
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(OmxdError::AlreadyRunning { .. }) if on_demand => {
            say("busy");
            ExitCode::SUCCESS
        }
        Err(error) => failed(on_demand, &error.to_string()),
    }
}

fn serve(arguments: Arguments) -> Result<(), OmxdError> {
    let io = |what| move |source| OmxdError::Io { what, source };
    let (stop, signalled) = UnixStream::pair().map_err(io("open a socket"))?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let end = signalled.try_clone().map_err(io("open a socket"))?;
        signal_hook::low_level::pipe::register(signal, end).map_err(io("take over signals"))?;
    }
    let mut options = DaemonOptions::new(&arguments.interface);
    options.preset = arguments.preset;
    options.board_name = arguments.name;
    options.group = arguments.group;
    options.on_demand = arguments.on_demand;
    let daemon = Daemon::new(options)?;
    if arguments.on_demand {
        say("ready");
        close_standard_streams();
    }
    notify_service_manager();
    daemon.run(stop.as_fd())
}

/// One line for the library that started this process; nobody may be left to read it.
fn say(line: &str) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn failed(on_demand: bool, sentence: &str) -> ExitCode {
    if on_demand {
        say(&format!("failed: {sentence}"));
    } else {
        eprintln!("omxd: {sentence}");
    }
    ExitCode::FAILURE
}

/// A process that stays must not hold the terminal or pipes of the program that started it.
fn close_standard_streams() {
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Tells systemd that the authority listens, if systemd asked (sd_notify).
fn notify_service_manager() {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    if let Ok(socket) = UnixDatagram::unbound() {
        let _ = socket.send_to(b"READY=1", path);
    }
}
