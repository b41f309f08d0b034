//! Verbs that reach into a guest: exec, cp, console, logs, restart.

use std::{
    fs::File,
    io::{self, IsTerminal, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH},
    iterator::Signals,
};

use super::{
    Usage,
    args::{Cli, ExecArgs},
    check_node, client,
    terminal::{self, RawMode},
};
use crate::{
    guest_channel::{ChannelError, Event, Exec, ExitStatus, GuestChannel},
    report::say,
    supervisor::{client::Client, protocol::Request},
};

/// Exit code of `exec` when weft itself failed, as other tools of this kind have it.
const EXIT_EXEC_FAILED: u8 = 125;

/// How long a guest's agent may take to answer; the guest may just be rebooting.
const AGENT_PATIENCE: Duration = Duration::from_secs(60);

/// How often a log that is followed is looked at.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// What leaves a serial console: Ctrl-], as telnet and virsh have it.
const LEAVE_KEY: u8 = 0x1d;

/// Runs a command in a guest as if it were here.
pub(super) fn exec(cli: &Cli, args: &ExecArgs) -> ExitCode {
    let exec = Exec {
        argv: args.command.clone(),
        env: terminal_type(args.tty),
        cwd: None,
        pty: args.tty.then(terminal::size),
        stdin: !args.no_stdin,
    };
    let status = client(cli).and_then(|client| {
        check_node(&client, &args.node)?;
        let channel = agent(&client, &args.node)?;
        let _raw = if args.tty && io::stdin().is_terminal() {
            Some(RawMode::enter()?)
        } else {
            None
        };
        stream(&channel, &exec)
    });
    match status {
        Ok(status) => exit_code(status),
        Err(error) => match error.downcast_ref::<ChannelError>() {
            Some(ChannelError::NotStarted { message, not_found }) => {
                _ = writeln!(io::stderr(), "weft: {message}");
                if *not_found { 127 } else { 126 }.into()
            }
            _ => match super::report(&error) {
                code if code == ExitCode::FAILURE => EXIT_EXEC_FAILED.into(),
                code => code,
            },
        },
    }
}

/// A program on a terminal wants to know which.
fn terminal_type(tty: bool) -> Vec<(String, String)> {
    let term = std::env::var("TERM").ok().filter(|_| tty);
    term.into_iter().map(|term| ("TERM".to_owned(), term)).collect()
}

fn exit_code(status: ExitStatus) -> ExitCode {
    u8::try_from(status.shell_code()).unwrap_or(u8::MAX).into()
}

fn agent(client: &Client, node: &str) -> Result<GuestChannel> {
    let channel = client.agent(node)?;
    channel
        .wait_ready(AGENT_PATIENCE)
        .with_context(|| format!("the agent of {node}"))?;
    Ok(channel)
}

/// Streams between this process and a command until the command ends.
fn stream(channel: &GuestChannel, exec: &Exec) -> Result<ExitStatus> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH]).context("cannot ask for signals")?;
    let mut running = channel.exec(exec)?;
    let (control, on_terminal) = (running.control(), exec.pty.is_some());
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            match signal {
                SIGWINCH if on_terminal => control.resize(terminal::size()),
                SIGWINCH => {}
                other => control.signal(other),
            }
        }
    })?;
    if let Some(mut input) = running.stdin().filter(|_| exec.stdin) {
        std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
            // It ends with our input or with the command, whichever is first; both are no news.
            _ = io::copy(&mut io::stdin(), &mut input);
        })?;
    }
    let (mut stdout, mut stderr) = (io::stdout(), io::stderr());
    loop {
        match running.next(None)? {
            Event::Started { .. } => {}
            Event::Stdout(bytes) => {
                stdout.write_all(&bytes)?;
                stdout.flush()?;
            }
            Event::Stderr(bytes) => stderr.write_all(&bytes)?,
            Event::Exited(status) => return Ok(status),
        }
    }
}

/// One side of a copy.
enum Place<'a> {
    Here(&'a str),
    Node { node: &'a str, path: &'a str },
}

impl<'a> Place<'a> {
    /// `NODE:PATH` is in a node; a path of this machine that holds a colon is written with a slash before it, as for scp.
    fn parse(text: &'a str) -> Self {
        match text.split_once(':') {
            Some((node, path)) if !node.is_empty() && !node.contains('/') => Self::Node { node, path },
            _ => Self::Here(text),
        }
    }
}

pub(super) fn copy(client: &Client, source: &str, destination: &str) -> Result<()> {
    match (Place::parse(source), Place::parse(destination)) {
        (Place::Here(source), Place::Node { node, path }) => {
            check_node(client, node)?;
            let path = if path.is_empty() { "." } else { path };
            agent(client, node)?.copy_in(Path::new(source), path)?;
        }
        (Place::Node { node, path }, Place::Here(destination)) => {
            check_node(client, node)?;
            agent(client, node)?.copy_out(path, Path::new(destination))?;
        }
        _ => {
            let sentence = "one side of a copy is in a node and the other here: `weft cp FILE n1:/tmp` or `weft cp n1:/tmp/FILE .`";
            return Err(Usage(sentence.to_owned()).into());
        }
    }
    Ok(())
}

pub(super) fn console(client: &Client, node: &str, serial: bool) -> Result<ExitCode> {
    check_node(client, node)?;
    if !serial {
        let ready = client
            .status()?
            .nodes
            .iter()
            .any(|status| status.name == node && status.kernel.is_some());
        if ready {
            let exec = Exec {
                argv: vec!["/bin/sh".to_owned(), "-l".to_owned()],
                env: terminal_type(true),
                cwd: None,
                pty: Some(terminal::size()),
                stdin: true,
            };
            let channel = agent(client, node)?;
            let _raw = if io::stdin().is_terminal() {
                Some(RawMode::enter()?)
            } else {
                None
            };
            return stream(&channel, &exec).map(exit_code);
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
    let _raw = if io::stdin().is_terminal() {
        Some(RawMode::enter()?)
    } else {
        None
    };
    let printer = std::thread::Builder::new().name("serial".to_owned()).spawn(move || {
        // Ends with QEMU, or when the line is shut below.
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

pub(super) fn logs(client: &Client, what: &str, follow: bool) -> Result<()> {
    let name = match what {
        "vnicd" => "vnicd.log".to_owned(),
        "weft" => "weft.log".to_owned(),
        node => {
            check_node(client, node)?;
            format!("{node}.log")
        }
    };
    let path = client.state().file(&name);
    let mut file = File::open(&path).with_context(|| format!("there is no log {}", path.display()))?;
    let mut stdout = io::stdout();
    loop {
        io::copy(&mut file, &mut stdout)?;
        stdout.flush()?;
        if !follow || !client.state().is_alive() {
            return Ok(());
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

pub(super) fn restart(client: &Client, node: &str) -> Result<()> {
    check_node(client, node)?;
    client.request::<()>(&Request::Restart { node: node.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colon_says_that_a_path_is_in_a_node_unless_a_slash_comes_first() {
        assert!(matches!(
            Place::parse("n1:/tmp"),
            Place::Node {
                node: "n1",
                path: "/tmp"
            }
        ));
        assert!(matches!(Place::parse("n1:"), Place::Node { node: "n1", path: "" }));
        assert!(matches!(Place::parse("./a:b"), Place::Here("./a:b")));
        assert!(matches!(Place::parse("file"), Place::Here("file")));
    }
}
