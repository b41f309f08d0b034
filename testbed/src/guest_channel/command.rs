//! A running command as its starter sees it: a source of events, a sink for input, and a handle to control it from
//! elsewhere.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use weft_agent::credit::{Consumed, Window};
use weft_agent::frame::{DATA_MAX, Frame, Kind};
use weft_agent::message::{ExitStatus, Failed, Signal, Started, WindowSize};

use super::ChannelError;
use super::link::Link;

/// Number of bytes that [`Running::collect`] keeps of each stream: it is meant for short answers.
pub const OUTPUT_MAX: usize = 16 << 20;

/// Frames of one command that wait to be consumed. The streams' windows bound their size.
#[derive(Debug, Default)]
pub(super) struct Slot {
    queue: Mutex<Queue>,
    changed: Condvar,
    input: Window,
}

#[derive(Debug, Default)]
struct Queue {
    frames: VecDeque<Frame>,
    /// The reason why no further frame will come, which the first reader takes.
    end: Option<ChannelError>,
    ended: bool,
}

impl Slot {
    pub(super) fn deliver(&self, frame: Frame) {
        if frame.kind == Kind::CreditInput {
            if let Some((_, bytes)) = frame.credit() {
                self.input.grant(bytes);
            }
            return;
        }
        if super::link::ends_request(frame.kind) {
            self.input.close();
        }
        self.queue.lock().frames.push_back(frame);
        self.changed.notify_all();
    }

    pub(super) fn end(&self, why: ChannelError) {
        let mut queue = self.queue.lock();
        queue.end = Some(why);
        queue.ended = true;
        self.changed.notify_all();
        self.input.close();
    }

    fn pop(&self, patience: Option<Duration>) -> Result<Frame, ChannelError> {
        let deadline = patience.map(|patience| Instant::now() + patience);
        let mut queue = self.queue.lock();
        loop {
            if let Some(frame) = queue.frames.pop_front() {
                return Ok(frame);
            }
            if queue.ended {
                return Err(queue.end.take().unwrap_or(ChannelError::Closed));
            }
            match deadline {
                None => self.changed.wait(&mut queue),
                Some(deadline) if deadline <= Instant::now() => {
                    return Err(ChannelError::TimedOut(patience.unwrap_or_default()));
                }
                Some(deadline) => _ = self.changed.wait_until(&mut queue, deadline),
            }
        }
    }
}

/// The events of a running command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command runs.
    Started {
        /// Process identifier in the guest.
        pid: i32,
    },
    /// Bytes of the standard output (on a terminal: all output).
    Stdout(Vec<u8>),
    /// Bytes of the standard error.
    Stderr(Vec<u8>),
    /// The command ended; no event follows.
    Exited(ExitStatus),
}

/// The output of a command until its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// How the command ended.
    pub status: ExitStatus,
    /// Bytes of the standard output.
    pub stdout: Vec<u8>,
    /// Bytes of the standard error.
    pub stderr: Vec<u8>,
}

/// A command that runs in a guest. Dropping it ends the command.
#[derive(Debug)]
pub struct Running {
    link: Arc<Link>,
    id: u32,
    slot: Arc<Slot>,
    consumed: [Consumed; 2],
    stdin: Option<Stdin>,
    started: bool,
}

impl Running {
    pub(super) fn new(link: Arc<Link>, id: u32, slot: Arc<Slot>) -> Self {
        let stdin = Some(Stdin {
            link: Arc::clone(&link),
            id,
            slot: Arc::clone(&slot),
        });
        Self {
            link,
            id,
            slot,
            consumed: Default::default(),
            stdin,
            started: false,
        }
    }

    /// Waits for the next event, at most for `patience`, if given.
    ///
    /// # Errors
    /// Fails when the command could not be started, when its end will never be known, or when no event came in time
    /// (then calling again is fine).
    pub fn next(&mut self, patience: Option<Duration>) -> Result<Event, ChannelError> {
        loop {
            let frame = self.slot.pop(patience)?;
            return Ok(match frame.kind {
                Kind::Started => {
                    self.started = true;
                    Event::Started {
                        pid: frame.parse::<Started>().map_err(ChannelError::Protocol)?.pid,
                    }
                }
                Kind::Stdout => {
                    self.consume(1, frame.body.len());
                    Event::Stdout(frame.body)
                }
                Kind::Stderr => {
                    self.consume(2, frame.body.len());
                    Event::Stderr(frame.body)
                }
                Kind::Exited => Event::Exited(frame.parse().map_err(ChannelError::Protocol)?),
                Kind::Failed => return Err(self.failure(&frame)),
                _ => continue,
            });
        }
    }

    /// Waits for the single frame that answers a short question.
    pub(super) fn answer(&self, patience: Duration) -> Result<Frame, ChannelError> {
        let frame = self.slot.pop(Some(patience))?;
        if frame.kind == Kind::Failed {
            Err(self.failure(&frame))
        } else {
            Ok(frame)
        }
    }

    fn failure(&self, frame: &Frame) -> ChannelError {
        match frame.parse::<Failed>() {
            Err(why) => ChannelError::Protocol(why),
            Ok(Failed { message, .. }) if self.started => ChannelError::Refused(message),
            Ok(Failed { message, not_found }) => ChannelError::NotStarted { message, not_found },
        }
    }

    fn consume(&mut self, stream: u8, len: usize) {
        if let Some(bytes) = self.consumed[usize::from(stream - 1)].add(len) {
            self.link.credit_output(self.id, stream, bytes);
        }
    }

    /// Takes the command's standard input; `None` when it was taken already or the command has none.
    pub fn stdin(&mut self) -> Option<Stdin> {
        self.stdin.take()
    }

    /// Returns a handle to control the command from another thread.
    #[must_use]
    pub fn control(&self) -> Control {
        Control {
            link: Arc::clone(&self.link),
            id: self.id,
        }
    }

    /// Waits for the end and collects the output.
    ///
    /// # Errors
    /// Fails as [`next`](Self::next) does; also when the command takes longer than `patience` or writes more than
    /// `OUTPUT_MAX`.
    pub fn collect(mut self, patience: Duration) -> Result<Output, ChannelError> {
        let deadline = Instant::now() + patience;
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let event = match self.next(Some(left)) {
                Err(ChannelError::TimedOut(_)) => return Err(ChannelError::TimedOut(patience)),
                other => other?,
            };
            match event {
                Event::Started { .. } => {}
                Event::Stdout(bytes) => stdout.extend(bytes),
                Event::Stderr(bytes) => stderr.extend(bytes),
                Event::Exited(status) => return Ok(Output { status, stdout, stderr }),
            }
            if stdout.len().max(stderr.len()) > OUTPUT_MAX {
                return Err(ChannelError::Refused(format!(
                    "the command printed more than {OUTPUT_MAX} bytes"
                )));
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.link.abort(self.id);
        self.slot.input.close();
    }
}

/// A handle to control a running command. After the command's end it has no effect.
#[derive(Clone, Debug)]
pub struct Control {
    link: Arc<Link>,
    id: u32,
}

impl Control {
    /// Sends a signal to the command and its children.
    pub fn signal(&self, number: i32) {
        self.json(Kind::Signal, &Signal { number });
    }

    /// Tells the command's terminal its size.
    pub fn resize(&self, size: WindowSize) {
        self.json(Kind::Resize, &size);
    }

    fn json(&self, kind: Kind, message: &impl serde::Serialize) {
        let frame = Frame::json(0, self.id, kind, message).expect("a few numbers fit into a frame");
        self.link.send(self.id, kind, frame.body);
    }
}

/// The standard input of a running command. Bytes reach it in order; when it does not read, writing waits. Dropping the
/// handle ends the input.
#[derive(Debug)]
pub struct Stdin {
    link: Arc<Link>,
    id: u32,
    slot: Arc<Slot>,
}

impl Write for Stdin {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.is_empty() {
            return Ok(0);
        }
        let wanted = bytes.len().min(DATA_MAX) as u32;
        let len = self.slot.input.take(wanted).ok_or(io::ErrorKind::BrokenPipe)? as usize;
        self.link.send(self.id, Kind::Stdin, bytes[..len].to_vec());
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stdin {
    fn drop(&mut self) {
        self.link.send(self.id, Kind::StdinEnd, Vec::new());
    }
}
