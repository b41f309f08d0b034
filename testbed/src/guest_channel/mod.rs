//! A client of the agent inside a guest, over the virtio-serial socket of its QEMU: commands with their streams,
//! copying, counters, power. A channel survives reboots of the guest; a new QEMU needs a new channel. The protocol is
//! in `docs/spec/agent-protocol.md`.

mod command;
mod copy;
mod link;
mod relay;
#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;
use weft_agent::frame::Kind;
pub use weft_agent::message::{Exec, ExitStatus, Power, Report, Welcome, WindowSize};

pub use command::{Control, Event, Output, Running, Stdin};
use link::Link;

/// Pause between two attempts to connect to a socket that does not exist yet.
const CONNECT_PAUSE: Duration = Duration::from_millis(10);

/// Time that a short question (ping, counters, power) may take. A guest on an overloaded machine still answers in
/// seconds.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// The reasons why a request to a guest failed.
#[derive(Debug, Error)]
pub enum ChannelError {
    /// The command did not start.
    #[error("{message}")]
    NotStarted {
        /// Sentence from the guest.
        message: String,
        /// Whether the program does not exist (a shell would exit with 127), as opposed to not being executable (126).
        not_found: bool,
    },
    /// The guest refused the request.
    #[error("{0}")]
    Refused(String),
    /// No agent has answered yet.
    #[error("the guest's agent is not ready")]
    NotReady,
    /// The guest was reset, or its agent started again, in the middle of the request.
    #[error("the guest has started again meanwhile")]
    Restarted,
    /// The other end of the channel is gone.
    #[error("the guest is gone")]
    Closed,
    /// No answer came in the time that was given.
    #[error("the guest did not answer within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The guest's end violates the protocol, or speaks another version of it.
    #[error("the guest's agent cannot be used: {0}")]
    Protocol(String),
    /// Something on the host's side failed.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A channel to the agent of one guest. Clones share the channel; every method may be called from any thread, and
/// commands run side by side.
#[derive(Clone, Debug)]
pub struct GuestChannel {
    link: Arc<Link>,
}

impl GuestChannel {
    /// Connects to QEMU's agent socket, or to a [relay](Self::relay), and waits up to `patience` for a listener there.
    /// The guest itself need not have booted: see [`wait_ready`](Self::wait_ready).
    ///
    /// # Errors
    /// Fails when nothing listens in time.
    pub fn connect(socket: &Path, patience: Duration) -> Result<Self, ChannelError> {
        let deadline = Instant::now() + patience;
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return Self::over(stream),
                Err(error) if Instant::now() >= deadline => return Err(error.into()),
                Err(_) => std::thread::sleep(CONNECT_PAUSE),
            }
        }
    }

    /// Makes a channel over an existing connection.
    ///
    /// # Errors
    /// Fails when the connection's threads cannot be started.
    pub fn over(stream: UnixStream) -> Result<Self, ChannelError> {
        Ok(Self {
            link: Link::start(stream)?,
        })
    }

    /// Waits until the agent has answered: the guest is configured and takes commands.
    ///
    /// # Errors
    /// Fails with [`ChannelError::TimedOut`], [`ChannelError::Closed`], or for an agent of another protocol version.
    pub fn wait_ready(&self, patience: Duration) -> Result<Welcome, ChannelError> {
        self.link.wait_welcome(patience, |_| true)
    }

    /// Waits until an agent answers whose boot differs from that of `before`: the guest has booted again.
    ///
    /// # Errors
    /// Fails as [`wait_ready`](Self::wait_ready) does.
    pub fn wait_rebooted(&self, before: &Welcome, patience: Duration) -> Result<Welcome, ChannelError> {
        self.link
            .wait_welcome(patience, |welcome| welcome.boot_id != before.boot_id)
    }

    /// Waits until the counter of changes between ready and not ready differs from `seen`, and returns it; it begins at
    /// 0. [`welcome`](Self::welcome) tells which state the agent is in.
    ///
    /// # Errors
    /// Fails with [`ChannelError::Closed`], or for an agent of another protocol version.
    pub fn wait_change(&self, seen: u64) -> Result<u64, ChannelError> {
        self.link.wait_change(seen)
    }

    /// Has to be called when the guest was reset: answers of its agent are not awaited any more, and the next agent is
    /// asked.
    pub fn guest_was_reset(&self) {
        self.link.reset();
    }

    /// Returns the agent's description of itself, if it is ready now.
    #[must_use]
    pub fn welcome(&self) -> Option<Welcome> {
        self.link.welcome()
    }

    /// Returns how often a booted guest was seen on this channel; the number grows by one with each reboot.
    #[must_use]
    pub fn boots(&self) -> u64 {
        self.link.boots()
    }

    /// Returns whether the other end is gone (QEMU has ended). Such a channel never comes back.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.link.is_closed()
    }

    /// Closes the channel: every wait through it fails with [`ChannelError::Closed`].
    pub fn close(&self) {
        self.link.leave();
    }

    /// Starts a command.
    ///
    /// # Errors
    /// Fails when the agent is not ready. The first event tells whether the command started.
    pub fn exec(&self, exec: &Exec) -> Result<Running, ChannelError> {
        let mut running = self.link.request(Kind::Exec, Some(exec))?;
        if !exec.stdin {
            drop(running.stdin());
        }
        Ok(running)
    }

    /// Runs a command without input and collects its output; ends it after `patience`.
    ///
    /// # Errors
    /// Fails when the command does not start, does not end in time, or prints more than `command::OUTPUT_MAX` bytes.
    pub fn output(&self, argv: &[&str], patience: Duration) -> Result<Output, ChannelError> {
        let argv = argv.iter().map(|&word| word.to_owned()).collect();
        self.exec(&Exec {
            argv,
            ..Exec::default()
        })?
        .collect(patience)
    }

    /// Copies a file or directory into the guest: to `destination`, or below it when that is a directory. Permission
    /// bits and times are kept.
    ///
    /// # Errors
    /// Fails with one sentence from either end.
    pub fn copy_in(&self, source: &Path, destination: &str) -> Result<(), ChannelError> {
        copy::copy_in(&self.link, source, destination)
    }

    /// Copies a file or directory out of the guest: to `destination`, or below it when that is a directory. Returns the
    /// path of the copy.
    ///
    /// # Errors
    /// Fails with one sentence from either end.
    pub fn copy_out(&self, source: &str, destination: &Path) -> Result<std::path::PathBuf, ChannelError> {
        copy::copy_out(&self.link, source, destination)
    }

    /// Reads the guest's own counters.
    ///
    /// # Errors
    /// Fails when the agent does not answer.
    pub fn report(&self) -> Result<Report, ChannelError> {
        let frame = self.link.request(Kind::Report, None::<&()>)?.answer(ANSWER_TIME_MAX)?;
        match frame.kind {
            Kind::ReportAnswer => frame.parse().map_err(ChannelError::Protocol),
            other => Err(ChannelError::Protocol(format!("it answers a report with {other:?}"))),
        }
    }

    /// Asks for a sign of life.
    ///
    /// # Errors
    /// Fails when no answer comes within `patience`.
    pub fn ping(&self, patience: Duration) -> Result<(), ChannelError> {
        self.link.request(Kind::Ping, None::<&()>)?.answer(patience).map(drop)
    }

    /// Switches the guest off, or boots it again. Returns when the agent has understood; the result shows as QEMU's end
    /// or through [`wait_rebooted`](Self::wait_rebooted).
    ///
    /// # Errors
    /// Fails when the agent does not answer.
    pub fn power(&self, power: Power) -> Result<(), ChannelError> {
        self.link
            .request(Kind::Power, Some(&power))?
            .answer(ANSWER_TIME_MAX)
            .map(drop)
    }

    /// Serves another process over `stream` as if it were the guest's agent: its [`GuestChannel`] works beside this
    /// one. Returns when that process leaves or the guest is gone; the commands it left are ended.
    ///
    /// # Errors
    /// Fails when the connection fails.
    pub fn relay(&self, stream: UnixStream) -> io::Result<()> {
        relay::serve(&self.link, stream)
    }
}
