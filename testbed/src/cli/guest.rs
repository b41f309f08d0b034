//! Verbs that reach into a guest: exec, cp, console, logs.

use std::{
    fs::File,
    io::{self, IsTerminal, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH},
    iterator::Signals,
};

use weft_agent::frame::DATA_MAX;

use super::{
    Usage,
    args::{Cli, ExecArgs},
    check_node, client, exec_many, pattern,
    terminal::{self, RawMode},
};
use crate::{
    guest_channel::{ChannelError, Event, Exec, ExitStatus, GuestChannel},
    report::say,
    state::{self, StateDir},
    supervisor::{Interrupted, client::Client, protocol::NodePhase},
};

/// Exit code of `exec` when weft itself failed, as other tools of this kind have it.
pub(super) const EXIT_EXEC_FAILED: u8 = 125;

/// How long a guest's agent may take to answer; the guest may just be rebooting.
const AGENT_PATIENCE: Duration = Duration::from_secs(60);

/// How long a guest may take to show that it lives once somebody wants a command in it to end.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// How often a log that is followed is looked at.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(200);

/// What leaves a serial console: Ctrl-], as telnet and virsh have it.
const LEAVE_KEY: u8 = 0x1d;

/// Ctrl-C on a terminal in raw mode, where it is a key like any other.
const INTERRUPT_KEY: u8 = 0x03;

/// Runs a command in a guest as if it were here, or in several at once.
pub(super) fn exec(cli: &Cli, args: &ExecArgs) -> ExitCode {
    let exec = Exec {
        argv: args.command.clone(),
        env: terminal_type(args.tty),
        cwd: None,
        pty: args.tty.then(terminal::size),
        stdin: !args.no_stdin,
    };
    let status = client(cli).and_then(|client| match &*nodes_meant(&client, &args.node)? {
        [node] if !pattern::is_pattern(&args.node) => {
            let channel = agent(&client, node)?;
            let _raw = if args.tty && io::stdin().is_terminal() {
                Some(RawMode::enter()?)
            } else {
                None
            };
            stream(&channel, node, &exec).map(exit_code)
        }
        _ if args.tty => {
            let sentence = format!("a terminal belongs to one node, and {} may mean several", args.node);
            Err(Usage(sentence).into())
        }
        nodes => {
            let exec = Exec { stdin: false, ..exec };
            exec_many::run(&client, nodes, &exec)
        }
    });
    match status {
        Ok(code) => code,
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

/// The nodes of the lab that a word means: one, or by a pattern several.
pub(super) fn nodes_meant(client: &Client, text: &str) -> Result<Vec<String>> {
    if !pattern::is_pattern(text) {
        check_node(client, text)?;
        return Ok(vec![text.to_owned()]);
    }
    let nodes: Vec<_> = client.status()?.nodes.into_iter().map(|node| node.name).collect();
    pattern::matching(text, &nodes).map_err(|part| {
        let lab = client.state().lab();
        anyhow::anyhow!(
            "no node of the lab {lab} is meant by {part} (its nodes: {})",
            nodes.join(", ")
        )
    })
}

/// A program on a terminal wants to know which.
fn terminal_type(tty: bool) -> Vec<(String, String)> {
    let term = std::env::var("TERM").ok().filter(|_| tty);
    term.into_iter().map(|term| ("TERM".to_owned(), term)).collect()
}

fn exit_code(status: ExitStatus) -> ExitCode {
    u8::try_from(status.shell_code()).unwrap_or(u8::MAX).into()
}

/// The agent of a node, once it answers.
pub(super) fn agent(client: &Client, node: &str) -> Result<GuestChannel> {
    let channel = client.agent(node)?;
    channel
        .wait_ready(AGENT_PATIENCE)
        .with_context(|| format!("the agent of {node}"))?;
    Ok(channel)
}

/// Streams between this process and a command until the command ends, or somebody wants it to and the guest does not answer.
fn stream(channel: &GuestChannel, node: &str, exec: &Exec) -> Result<ExitStatus> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH]).context("cannot ask for signals")?;
    let mut running = channel.exec(exec)?;
    let (control, on_terminal) = (running.control(), exec.pty.is_some());
    let watch = Watch {
        channel: channel.clone(),
        node: node.to_owned(),
        asking: Arc::default(),
    };
    let watched = watch.clone();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let mut asked = false;
        for signal in signals.forever() {
            match signal {
                SIGWINCH if on_terminal => control.resize(terminal::size()),
                SIGWINCH => {}
                again if asked => give_up(
                    again,
                    &format!("the command in {} was told to end twice, and is left", watched.node),
                ),
                first => {
                    asked = true;
                    control.signal(first);
                    watched.expect_life(first);
                }
            }
        }
    })?;
    if let Some(input) = running.stdin().filter(|_| exec.stdin) {
        // It ends with our input or with the command, whichever is first; both are no news.
        if on_terminal && io::stdin().is_terminal() {
            spawn_stdin(input, move |keys| {
                if keys.contains(&INTERRUPT_KEY) {
                    watch.expect_life(SIGINT);
                }
            })?;
        } else {
            spawn_stdin(input, |_| ())?;
        }
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

/// Passes our input on; `seen` sees each piece before it goes, as the guest may not take it.
fn spawn_stdin(mut to: impl Write + Send + 'static, seen: impl Fn(&[u8]) + Send + 'static) -> io::Result<()> {
    let run = move || {
        let mut piece = vec![0; DATA_MAX];
        loop {
            match io::stdin().read(&mut piece) {
                Ok(length @ 1..) => {
                    seen(&piece[..length]);
                    if to.write_all(&piece[..length]).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(0) | Err(_) => return,
            }
        }
    };
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(run)
        .map(drop)
}

/// Looks whether a guest still answers when somebody wants a command in it to end.
#[derive(Clone)]
struct Watch {
    channel: GuestChannel,
    node: String,
    /// Somebody waits for an answer already.
    asking: Arc<AtomicBool>,
}

impl Watch {
    /// Ends this process when the guest gives no sign of life in time: the command in it cannot hear of `signal`.
    fn expect_life(&self, signal: i32) {
        if self.asking.swap(true, Ordering::SeqCst) {
            return;
        }
        let watch = self.clone();
        let ask = move || {
            if let Err(ChannelError::TimedOut(_)) = watch.channel.ping(SIGN_OF_LIFE) {
                let seconds = SIGN_OF_LIFE.as_secs();
                give_up(
                    signal,
                    &format!(
                        "{} did not answer within {seconds} s, and its command is left",
                        watch.node
                    ),
                );
            }
            watch.asking.store(false, Ordering::SeqCst);
        };
        if std::thread::Builder::new()
            .name("sign of life".to_owned())
            .spawn(ask)
            .is_err()
        {
            give_up(
                signal,
                &format!("the command in {} is left: no thread can wait for its end", self.node),
            );
        }
    }
}

/// Ends this process as `signal` would have, whatever its other threads wait for; what it had running in a guest is ended
/// by the supervisor once the guest listens again.
fn give_up(signal: i32, why: &str) -> ! {
    terminal::restore();
    _ = writeln!(io::stderr(), "weft: {why}");
    std::process::exit(128 + signal)
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
            let channel = agent(client, node)?;
            endable(&channel, node, |channel| channel.copy_in(Path::new(source), path))
        }
        (Place::Node { node, path }, Place::Here(destination)) => {
            check_node(client, node)?;
            let channel = agent(client, node)?;
            endable(&channel, node, |channel| {
                channel.copy_out(path, Path::new(destination)).map(drop)
            })
        }
        _ => {
            let sentence = "one side of a copy is in a node and the other here: `weft cp FILE n1:/tmp` or `weft cp n1:/tmp/FILE .`";
            Err(Usage(sentence.to_owned()).into())
        }
    }
}

/// A copy that Ctrl-C ends as if the guest had gone, so that nothing half copied is left here; once more ends it at once.
fn endable(
    channel: &GuestChannel,
    node: &str,
    copy: impl FnOnce(&GuestChannel) -> Result<(), ChannelError>,
) -> Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("cannot ask for signals")?;
    let ended = Arc::new(AtomicBool::new(false));
    let (ending, asked) = (channel.clone(), Arc::clone(&ended));
    let name = node.to_owned();
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            if asked.swap(true, Ordering::SeqCst) {
                give_up(
                    signal,
                    &format!("the copy was told to end twice; {name} may keep a part of it"),
                );
            }
            ending.close();
        }
    })?;
    match copy(channel) {
        Ok(()) => Ok(()),
        Err(_) if ended.load(Ordering::SeqCst) => Err(Interrupted.into()),
        // What the guest says is about a place in it.
        Err(ChannelError::Refused(why) | ChannelError::NotStarted { message: why, .. }) => bail!("{node}: {why}"),
        Err(error) => Err(error.into()),
    }
}

pub(super) fn console(client: &Client, node: &str, serial: bool) -> Result<ExitCode> {
    check_node(client, node)?;
    if !serial {
        let ready = client
            .status()?
            .nodes
            .iter()
            .any(|status| status.name == node && status.phase == NodePhase::Ready);
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

/// Shows a log of a running lab, or of one that has failed.
pub(super) fn logs(cli: &Cli, what: &str, follow: bool) -> Result<()> {
    let client = match client(cli) {
        Ok(client) => client,
        // Several run, and it was not said which.
        Err(error) if error.is::<Usage>() => return Err(error),
        Err(none) => {
            let kept = state::failed_lab(cli.lab.as_deref()).ok_or(none)?;
            return logs_of_failed(&kept, what);
        }
    };
    let name = match what {
        "vnicd" | "weft" => format!("{what}.log"),
        node => {
            check_node(&client, node)?;
            format!("{node}.log")
        }
    };
    let path = client.state().file(&name);
    let mut file = File::open(&path).with_context(|| format!("there is no log {}", path.display()))?;
    let mut stdout = io::stdout();
    let mut shown = 0;
    loop {
        shown += io::copy(&mut file, &mut stdout)?;
        stdout.flush()?;
        if !follow || !client.state().is_alive() {
            if shown == 0 {
                say(nothing_printed(what));
            }
            return Ok(());
        }
        std::thread::sleep(FOLLOW_INTERVAL);
    }
}

fn logs_of_failed(kept: &StateDir, what: &str) -> Result<()> {
    say(format_args!(
        "no such lab is running; these are the logs of one that failed, in {}",
        kept.path().display()
    ));
    match File::open(kept.file(&format!("{what}.log"))) {
        Ok(mut file) => io::copy(&mut file, &mut io::stdout()).map(drop).map_err(Into::into),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Whatever was started has what its QEMU said, if only nothing.
            ensure!(
                matches!(what, "vnicd" | "weft") || kept.file(&format!("{what}.qemu.log")).exists(),
                "no node {what} was started in it"
            );
            say(nothing_printed(what));
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

fn nothing_printed(what: &str) -> String {
    match what {
        "vnicd" | "weft" => format!("{what} has logged nothing"),
        node => format!("{node} has printed nothing on its serial line"),
    }
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
