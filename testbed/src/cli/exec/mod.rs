//! `weft exec`: runs a command in a node as if it were a local one, or in several nodes in parallel.

mod in_parallel;

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::Result;

use super::common::{
    CommonOptions, Usage, act, agent,
    attached_command::{exit_code, stream, terminal_type},
    client, failure, node_pattern, nodes_meant,
    terminal::{self, RawMode},
};
use crate::guest_channel::{ChannelError, Exec};

/// Run a command in a node. Output and exit status are the command's.
///
/// In several nodes it runs in parallel, without standard input, and each line has its node in front. The exit status is that of
/// the first node, in the order of the lab, whose command failed.
#[derive(Debug, clap::Args)]
#[command(add = act(&[
    ("weft exec n1 -- ping -c 3 n2", "a command in a node"),
    ("weft exec -it n1 sh", "a shell on a terminal"),
    ("weft exec all -- ip -br address", "in all nodes at once"),
    ("weft exec 'n[1-2]' -- uname -r", "in some"),
    ("weft exec n1 -- sh -c 'cat > /tmp/x' < file", "with input"),
]))]
pub(super) struct ExecArgs {
    /// A node, or several: `all`, `n*`, `n[1-3]`, `n1,n4`.
    #[arg(value_name = "NODES")]
    node: String,
    /// Run the command on a terminal, if standard input is one.
    #[arg(short, long)]
    tty: bool,
    /// Pass standard input to the command (the default).
    #[arg(short, long, overrides_with = "no_stdin")]
    interactive: bool,
    /// Do not pass standard input (for use in loops that read it).
    #[arg(short = 'n', long)]
    no_stdin: bool,
    /// The command and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Exit code of `exec` when weft itself failed, as in other tools of this kind.
const EXIT_EXEC_FAILED: u8 = 125;

/// Runs a command in a guest as if it were a local one, or in several in parallel.
pub(super) fn run(options: &CommonOptions, args: &ExecArgs) -> Result<ExitCode> {
    let pty = terminal::size_if_any().filter(|_| args.tty);
    let exec = Exec {
        argv: args.command.clone(),
        env: terminal_type(pty.is_some()),
        cwd: None,
        pty,
        stdin: !args.no_stdin,
    };
    let status = client(options).and_then(|client| match &*nodes_meant(&client, &args.node)? {
        [node] if !node_pattern::is_pattern(&args.node) => {
            let channel = agent(&client, node)?;
            let _raw = exec.pty.is_some().then(RawMode::enter).transpose()?;
            stream(&channel, node, &exec).map(exit_code)
        }
        _ if args.tty => {
            let sentence = format!("a terminal belongs to one node, and {} may mean several", args.node);
            Err(Usage(sentence).into())
        }
        nodes => {
            let exec = Exec { stdin: false, ..exec };
            in_parallel::run(&client, nodes, &exec)
        }
    });
    Ok(match status {
        Ok(code) => code,
        Err(error) => match error.downcast_ref::<ChannelError>() {
            Some(ChannelError::NotStarted { message, not_found }) => {
                _ = writeln!(io::stderr(), "weft: {message}");
                if *not_found { 127 } else { 126 }.into()
            }
            _ => match failure::report(&error) {
                code if code == ExitCode::FAILURE => EXIT_EXEC_FAILED.into(),
                code => code,
            },
        },
    })
}
