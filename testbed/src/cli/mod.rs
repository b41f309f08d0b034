//! `weft`: finds out what is wanted, does it through the other modules, and says how it went. Every failure is one
//! sentence on standard error and an exit code that `--help` documents.

mod adaptive;
pub mod args;
mod cables;
mod check;
mod complete;
mod copies;
mod exec_many;
mod graph;
mod group;
mod guest;
mod help;
mod inventory;
mod lab;
mod nic;
mod nic_queues;
mod pattern;
mod pingall;
mod reload;
mod save;
mod switch;
mod switching;
mod terminal;
mod trace;

use std::{
    io::{self, IsTerminal, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Result, bail};

pub use self::help::json_examples;

use self::args::{Cli, LinkVerb, NicVerb, TrunkVerb, Verb};
use crate::{
    lab::{LabError, nearest},
    state::{self, StateDir},
    supervisor::{Interrupted, client::Client, reaper},
};

/// Exit code for mistakes on the command line and in lab files.
const EXIT_USAGE: u8 = 2;
/// Exit code after Ctrl-C, as shells count signals.
const EXIT_INTERRUPTED: u8 = 130;
/// Exit code when the reader of a pipe went away, as shells count signals.
const EXIT_BROKEN_PIPE: u8 = 141;

/// The whole program.
#[must_use]
pub fn main() -> ExitCode {
    if let Some(reaped) = reaper::asked_for() {
        start_logging(0);
        return reaped.map_or_else(|error| report(&error), |()| ExitCode::SUCCESS);
    }
    if complete::answered() {
        return ExitCode::SUCCESS;
    }
    let (cli, meant) = help::parse();
    start_logging(cli.verbose);
    match meant.and_then(|()| run(&cli)) {
        Ok(code) => code,
        Err(error) => report(&error),
    }
}

/// Logs go to standard error; `RUST_LOG` says more than `-v` can.
fn start_logging(verbose: u8) {
    use tracing_subscriber::EnvFilter;
    let default = ["weft=warn,testbed=warn", "weft=info,testbed=info", "debug"][usize::from(verbose.min(2))];
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        // A log on a full disk costs its lines, not the lab: printing why would end the process.
        .log_internal_errors(false)
        .with_target(false)
        .init();
}

fn report(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        let io = cause.downcast_ref::<io::Error>().map(io::Error::kind);
        let json = cause
            .downcast_ref::<serde_json::Error>()
            .and_then(serde_json::Error::io_error_kind);
        io.or(json) == Some(io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(broken_pipe) {
        return EXIT_BROKEN_PIPE.into();
    }
    if error.is::<Interrupted>() {
        return EXIT_INTERRUPTED.into();
    }
    // Standard error may be closed as well; then nobody wants the sentence.
    _ = writeln!(io::stderr(), "weft: {error:#}");
    if error.chain().any(|cause| cause.is::<LabError>() || cause.is::<Usage>()) {
        return EXIT_USAGE.into();
    }
    ExitCode::FAILURE
}

/// A request that cannot mean anything, as opposed to one that failed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Usage(String);

fn run(cli: &Cli) -> Result<ExitCode> {
    match &cli.verb {
        Verb::Check => return check::check(cli.json),
        Verb::Init { file, force } => lab::init(file, *force)?,
        Verb::Up(args) => lab::up(cli, args)?,
        Verb::Deploy(args) => lab::up(cli, &args.detached())?,
        Verb::Wait { nodes, timeout } => lab::wait(&client(cli)?, nodes, lab::Patience::Total(*timeout))?,
        Verb::Ps => lab::ps(cli)?,
        Verb::Exec(args) => return Ok(guest::exec(cli, args)),
        Verb::Cp {
            source, destination, ..
        } => guest::copy(&client(cli)?, source, destination)?,
        Verb::Console { node, serial } => return guest::console(&client(cli)?, node, *serial),
        Verb::Logs { what, follow } => guest::logs(cli, what, *follow)?,
        Verb::Stop { node, force } => switching::stop(&client(cli)?, node, *force)?,
        Verb::Start { node } => switching::start(&client(cli)?, node)?,
        Verb::Restart { node } => switching::restart(&client(cli)?, node)?,
        Verb::Pingall(args) => return pingall::pingall(cli, args),
        Verb::Inventory(args) => inventory::inventory(cli, args)?,
        Verb::Nic(NicVerb::Stats { nic }) => nic::stats(cli, nic.as_deref())?,
        Verb::Nic(NicVerb::Adaptive { nic }) => adaptive::adaptive(cli, nic.as_deref())?,
        Verb::Nic(NicVerb::Group(verb)) => group::group(cli, verb)?,
        Verb::Nic(NicVerb::Trace(args)) => trace::trace(cli, args)?,
        Verb::Nic(NicVerb::Reload { program }) => reload::reload(cli, program.as_deref())?,
        Verb::Nic(NicVerb::CopyEngine { nic }) => copies::copy_engine(cli, nic.as_deref())?,
        Verb::Nic(NicVerb::Info { nic }) => nic::info(cli, nic.as_deref())?,
        Verb::Nic(NicVerb::Watchdog { nic, delay }) => nic::watchdog(cli, nic, *delay)?,
        Verb::Nic(NicVerb::Coalesce {
            nic,
            strategy,
            delay,
            frames,
            marks,
        }) => {
            nic::coalesce(cli, nic, strategy.as_deref(), *delay, *frames, *marks)?;
        }
        Verb::Nic(NicVerb::Steering {
            nic,
            mode,
            endpoints,
            indirection,
        }) => nic_queues::steering(cli, nic, *mode, endpoints.as_ref(), indirection.as_ref())?,
        Verb::Nic(NicVerb::Misorder { nic, degree }) => nic_queues::misorder(cli, nic, *degree)?,
        Verb::Nic(NicVerb::Vlan { nic, vlan, tagged }) => switch::vlan(cli, nic, *vlan, tagged.as_ref())?,
        Verb::Nic(NicVerb::Queues { nic }) => nic_queues::queues(cli, nic.as_deref())?,
        Verb::Link(LinkVerb::Set(args)) => cables::link(cli, args)?,
        Verb::Link(LinkVerb::Ls { nic }) => cables::link_list(cli, nic.as_deref())?,
        Verb::Trunk(TrunkVerb::Set(args)) => cables::trunk(cli, args)?,
        Verb::Trunk(TrunkVerb::Ls) => cables::trunk_list(cli)?,
        Verb::Graph(args) => graph::graph(cli, args)?,
        Verb::Switch(verb) => switch::switch(cli, verb)?,
        Verb::Capture(args) => nic::capture(&client(cli)?, args)?,
        Verb::Down { all } => lab::down(cli, *all)?,
        Verb::Save(args) => save::save(cli, args)?,
        Verb::Clean { cache } => lab::clean(*cache)?,
        Verb::Demo(args) => crate::demo::run(args, cli.json)?,
        Verb::Completion { shell } => complete::script(*shell)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The lab that is meant: the one named, or the only one that runs.
fn client(cli: &Cli) -> Result<Client> {
    let running = state::running_labs()?;
    let name = match (&cli.lab, running.as_slice()) {
        (Some(name), _) if running.contains(name) => name,
        (Some(name), []) => bail!(
            "the lab {name} does not run (none does): `weft up` starts one{}",
            state::ended_labs()
        ),
        (Some(name), _) => {
            let near = nearest(name, running.iter().map(String::as_str));
            let hint = near.map_or_else(String::new, |near| format!(", did you mean {near}?"));
            bail!("the lab {name} does not run{hint} (running: {})", running.join(", "));
        }
        (None, [only]) => only,
        (None, []) => bail!("no lab is running: `weft up` starts one{}", state::ended_labs()),
        (None, _) => {
            return Err(Usage(format!("several labs run, name one with --lab: {}", running.join(", "))).into());
        }
    };
    Ok(Client::new(StateDir::of(name)))
}

/// Where the dissector for Wireshark and tshark is: beside the installed programs, else in the sources.
fn dissector_path() -> PathBuf {
    const NAME: &str = "weft.lua";
    let installed = crate::programs::folder()
        .ok()
        .map(|folder| folder.join("../share/weft").join(NAME));
    installed
        .filter(|path| path.is_file())
        .unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("dissector").join(NAME))
}

/// Complains about a node that does not exist, with the names of those that do.
fn check_node(client: &Client, name: &str) -> Result<()> {
    let nodes: Vec<_> = client.status()?.nodes.into_iter().map(|node| node.name).collect();
    if nodes.iter().any(|node| node == name) {
        return Ok(());
    }
    let near = nearest(name, nodes.iter().map(String::as_str));
    let hint = near.map_or_else(String::new, |near| format!(", did you mean {near}?"));
    bail!(
        "there is no node {name} in the lab {}{hint} (its nodes: {})",
        client.state().lab(),
        nodes.join(", ")
    )
}
