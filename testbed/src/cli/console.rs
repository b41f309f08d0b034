//! `weft console`: opens a shell in a node through its agent, or the serial line of a node without one.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    process::ExitCode,
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGHUP, SIGTERM},
    iterator::Signals,
};

use super::common::{
    CommonOptions, act, agent,
    attached_command::{exit_code, stream, terminal_type},
    check_node, client,
    terminal::{self, RawMode},
};
use crate::{
    guest_channel::Exec,
    report::say,
    supervisor_client::{client::Client, protocol::NodePhase},
};

/// Open a shell in a node (end it with Ctrl-D), or its serial line if it has no agent (leave it with Ctrl-]).
///
/// If standard input is no terminal, the shell reads it to its end, and has no terminal either.
#[derive(Debug, clap::Args)]
#[command(add = act(&[
    ("weft console n1", "a shell; Ctrl-D ends it"),
    ("weft console --serial n1", "the serial line; Ctrl-] leaves it"),
]))]
pub(super) struct ConsoleArgs {
    /// The node.
    node: String,
    /// Open the serial line even if the node has an agent.
    #[arg(long)]
    serial: bool,
}

/// Starts the best shell for people that the node has.
const SHELL: &str = "exec $(command -v bash || command -v ash || echo sh) -l";

/// Key that leaves a serial console: Ctrl-], as in telnet and virsh.
const LEAVE_KEY: u8 = 0x1d;

pub(super) fn run(options: &CommonOptions, args: &ConsoleArgs) -> Result<ExitCode> {
    let (client, node) = (&client(options)?, args.node.as_str());
    check_node(client, node)?;
    if !args.serial {
        let ready = client
            .status()?
            .nodes
            .iter()
            .any(|status| status.name == node && status.phase == NodePhase::Ready);
        if ready {
            let pty = terminal::size_if_any();
            let exec = Exec {
                argv: ["/bin/sh", "-c", SHELL].map(str::to_owned).to_vec(),
                env: terminal_type(pty.is_some()),
                cwd: None,
                pty,
                stdin: true,
            };
            let channel = agent(client, node)?;
            let _raw = RawMode::enter()?;
            return stream(&channel, node, &exec).map(exit_code);
        }
    }
    serial_line(client, node)?;
    Ok(ExitCode::SUCCESS)
}

fn serial_line(client: &Client, node: &str) -> Result<()> {
    let path = client.state().socket(&format!("{node}.serial"))?;
    let line = UnixStream::connect(&path).with_context(|| format!("{node} has no serial line now"))?;
    let mut reading = line.try_clone()?;
    say(format_args!("serial line of {node}; Ctrl-] leaves it"));
    let _raw = RawMode::enter()?;
    let mut signals = Signals::new([SIGTERM, SIGHUP]).context("cannot catch signals")?;
    let leave = move || {
        if let Some(signal) = signals.forever().next() {
            terminal::restore();
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(leave)?;
    let printer = std::thread::Builder::new().name("serial".to_owned()).spawn(move || {
        // The copy ends with QEMU, or when the line is shut below.
        _ = io::copy(&mut reading, &mut io::stdout());
    })?;
    let mut keys = [0; 4096];
    loop {
        let length = io::stdin().read(&mut keys)?;
        let leave = keys[..length].iter().position(|key| *key == LEAVE_KEY);
        (&line).write_all(&keys[..leave.unwrap_or(length)])?;
        if length == 0 || leave.is_some() || printer.is_finished() {
            break;
        }
    }
    line.shutdown(std::net::Shutdown::Both)?;
    _ = printer.join();
    Ok(())
}
