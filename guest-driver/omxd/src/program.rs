//! `omxd`: the authority of one interface as a program. Started by a service manager it stays in the foreground.
//! Started on demand by the library it leaves a process behind and reports on its standard output whether that process
//! serves.

use std::{
    env,
    fs::{File, OpenOptions},
    io::{self, IsTerminal, PipeReader, PipeWriter, Read, Write},
    os::{
        fd::AsFd,
        unix::net::{UnixDatagram, UnixStream},
    },
    path::Path,
    process::ExitCode,
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tracing_subscriber::{
    filter::{LevelFilter, Targets},
    layer::SubscriberExt,
    util::SubscriberInitExt,
};
use weft_authority::{NumberedInterface, OmxdError, Settings};

use crate::{Arguments, Daemon, DaemonOptions};

/// The name of the reference's discovery daemon. Discovery is part of `omxd` here: called by this name, without
/// options, it serves every board.
const DISCOVERY: &str = "omxoed";

/// Runs the program with the arguments of this process. Call it first, while the process has one thread: it may go on as another process.
pub fn main() -> ExitCode {
    weft_authority::take_all_signals();
    let mut called = env::args_os();
    let name = called.next().unwrap_or_default();
    if Path::new(&name).file_name().is_some_and(|name| name == DISCOVERY) && called.next().is_none() {
        return serve_every_board();
    }
    let arguments = Arguments::read();
    let goes_away = arguments.on_demand || arguments.background;
    let wanted = env::var("RUST_LOG").ok().and_then(|wanted| wanted.parse().ok());
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal() && !goes_away)
        .with_max_level(LevelFilter::TRACE)
        .finish()
        .with(wanted.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO)))
        .init();
    let mut parent = None;
    if goes_away {
        let (hears, tells) = match io::pipe() {
            Ok(ends) => ends,
            Err(error) => return failed(true, &format!("cannot make a pipe: {error}")),
        };
        // Before any thread exists: the child is a copy of this one.
        // SAFETY: this process has one thread; parent and child go on with everything intact.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: no pointers; a session of its own, so that signals to the program's terminal do not reach it.
                unsafe { libc::setsid() };
                parent = Some(tells);
            }
            -1 => return failed(true, &format!("cannot make a process: {}", io::Error::last_os_error())),
            _ => {
                drop(tells);
                return as_told(hears);
            }
        }
    }
    match serve(arguments, &mut parent) {
        Ok(()) => ExitCode::SUCCESS,
        Err(OmxdError::AlreadyRunning { .. } | OmxdError::SetUpIsAway { .. }) if goes_away => {
            say("busy");
            tell(parent);
            ExitCode::SUCCESS
        }
        Err(error) => failed(goes_away, &error.to_string()),
    }
}

/// Waits until the process in the background serves, so that the next command finds it; a byte says so. If it ends before, this one fails.
fn as_told(mut child: PipeReader) -> ExitCode {
    match child.read_exact(&mut [0]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Lets the process that was started end with success.
fn tell(parent: Option<PipeWriter>) {
    if let Some(mut parent) = parent {
        // It may have been killed.
        let _ = parent.write_all(&[1]);
    }
}

fn serve_every_board() -> ExitCode {
    let (settings, interfaces) = match boards() {
        Ok(found) => found,
        Err(error) => return failed(false, &error.to_string()),
    };
    let variables = settings.of_omxd();
    let mut code = ExitCode::SUCCESS;
    let log = weft_authority::log_file();
    let usable = |board: &&NumberedInterface| board.interface.up && board.left_out.is_none();
    for interface in interfaces.iter().filter(usable).map(|board| &board.interface) {
        let log = ["--log".as_ref(), log.as_os_str()];
        if let Err(error) = weft_authority::start_in_background(&interface.name, &log, &variables) {
            code = failed(false, &format!("{}: {error}", interface.name));
        }
    }
    code
}

fn boards() -> Result<(Settings, Vec<NumberedInterface>), OmxdError> {
    let settings = Settings::read()?;
    let interfaces = weft_authority::interfaces(settings.get("OMX_IFACES").as_deref())?;
    Ok((settings, interfaces))
}

fn serve(arguments: Arguments, parent: &mut Option<PipeWriter>) -> Result<(), OmxdError> {
    let io = |what| move |source| OmxdError::Io { what, source };
    let (stop, signalled) = UnixStream::pair().map_err(io("open a socket"))?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let end = signalled.try_clone().map_err(io("open a socket"))?;
        signal_hook::low_level::pipe::register(signal, end).map_err(io("take over signals"))?;
    }
    let mut options = DaemonOptions::new(arguments.interface());
    options.packet_loss = arguments.parsed_packet_loss();
    options.preset = arguments.preset;
    options.board_name = arguments.name;
    options.group = arguments.group;
    options.on_demand = arguments.on_demand;
    options.static_peers = arguments.static_peers;
    options.endpoints_max = arguments.endpoints_max;
    options.peers_max = arguments.peers_max;
    options.user_rights = arguments.user_rights;
    options.pull_queue_ns_max = arguments
        .queue_us_max
        .map(|microseconds| u64::from(microseconds) * 1000);
    options.data_socket = arguments.data_socket;
    options.direct_transmit = arguments.direct_transmit.unwrap_or(options.direct_transmit);
    options.ether_type = arguments.ether_type.unwrap_or(options.ether_type);
    if let Some(esp) = arguments.esp_ether_type {
        options.esp_ether_type = esp.ether_type();
    }
    options.marks = arguments.marks.unwrap_or(true);
    options.cpu_latency_us_max = arguments.cpu_latency_us_max;
    let log = match &arguments.log {
        Some(path) => Some(
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(path)
                .map_err(io("open the log"))?,
        ),
        None => None,
    };
    use_all_descriptors();
    let daemon = Daemon::new(options)?;
    if arguments.on_demand || arguments.background {
        say("ready");
        close_standard_streams(log.as_ref());
        tell(parent.take());
    }
    notify_service_manager();
    daemon.run(stop.as_fd())
}

/// Raises this process's own limit on descriptors as far as the system lets it: each connection, each listener of ESP and each
/// connection that waits to be claimed needs one.
fn use_all_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit {
        current: limit.maximum,
        ..limit
    };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        tracing::debug!("descriptors stay limited to {:?}: {error}", limit.current);
    }
}

/// Writes one line for the library that started this process, which may have ended.
fn say(line: &str) {
    let mut out = io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn failed(goes_away: bool, sentence: &str) -> ExitCode {
    if goes_away {
        say(&format!("failed: {sentence}"));
    } else {
        let _ = writeln!(io::stderr(), "omxd: {sentence}");
    }
    ExitCode::FAILURE
}

/// Closes the terminal or pipes of the program that started this process, which must not stay open in a process that
/// stays.
fn close_standard_streams(log: Option<&File>) {
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(log.unwrap_or(&null));
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
