//! A command in a guest that is attached to this process's input, output, signals and, on request, terminal.

use std::{
    io::{self, IsTerminal, Read, Write},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH},
    iterator::Signals,
};

use weft_agent::frame::DATA_MAX;

use super::terminal;
use crate::guest_channel::{ChannelError, Event, Exec, ExitStatus, GuestChannel};

/// Time that a guest has to show that it is alive after the user asked a command in it to end.
const SIGN_OF_LIFE: Duration = Duration::from_secs(2);

/// Time that a command has to end after this process was told to, before it is left.
const END_TIME_MAX: Duration = Duration::from_secs(10);

/// Ctrl-C on a terminal in raw mode, where it is a key like any other.
const INTERRUPT_KEY: u8 = 0x03;

/// Returns the terminal's type, which a program on a terminal needs to know.
pub(in crate::cli) fn terminal_type(tty: bool) -> Vec<(String, String)> {
    let term = std::env::var("TERM").ok().filter(|_| tty);
    term.into_iter().map(|term| ("TERM".to_owned(), term)).collect()
}

pub(in crate::cli) fn exit_code(status: ExitStatus) -> ExitCode {
    u8::try_from(status.shell_code()).unwrap_or(u8::MAX).into()
}

/// Streams between this process and a command until the command ends, or until the user asks it to end and the guest
/// does not answer.
pub(in crate::cli) fn stream(channel: &GuestChannel, node: &str, exec: &Exec) -> Result<ExitStatus> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH]).context("cannot catch signals")?;
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
                    if first == SIGTERM && on_terminal {
                        // Interactive shells take only this for their end.
                        control.signal(SIGHUP);
                    }
                    watched.expect_life(first);
                    if first == SIGTERM {
                        watched.expect_end(first);
                    }
                }
            }
        }
    })?;
    if let Some(input) = running.stdin().filter(|_| exec.stdin) {
        // The thread ends with our input or with the command, whichever is first; both are expected.
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

/// Passes our input on; `seen` sees each piece before it is sent, as the guest may not take it.
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

/// Checks whether a guest still answers when the user asks a command in it to end.
#[derive(Clone)]
struct Watch {
    channel: GuestChannel,
    node: String,
    /// Whether a thread is waiting for an answer already.
    asking: Arc<AtomicBool>,
}

impl Watch {
    /// Ends this process when the command goes on after its time to end.
    fn expect_end(&self, signal: i32) {
        let node = self.node.clone();
        let wait = move || {
            std::thread::sleep(END_TIME_MAX);
            let seconds = END_TIME_MAX.as_secs();
            give_up(
                signal,
                &format!("the command in {node} did not end within {seconds} s, and is left"),
            );
        };
        if std::thread::Builder::new().name("end".to_owned()).spawn(wait).is_err() {
            give_up(signal, &format!("the command in {} is left", self.node));
        }
    }

    /// Ends this process when the guest gives no sign of life in time: the command in it cannot receive `signal`.
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

/// Ends this process as `signal` would have, whatever its other threads wait for; the supervisor ends what it had
/// running in a guest once the guest listens again.
pub(in crate::cli) fn give_up(signal: i32, why: &str) -> ! {
    terminal::restore();
    _ = writeln!(io::stderr(), "weft: {why}");
    std::process::exit(128 + signal)
}
