//! A running command: its process, the threads that move its streams within their credit, and its end. A command that
//! leaves children behind ends with its main process: later output of the children is not awaited.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{self, Child, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use weft_agent::credit::{Consumed, Window};
use weft_agent::frame::{DATA_MAX, Frame, Kind};
use weft_agent::message::{Exec, ExitStatus, Started, WindowSize};

use super::Session;

/// The end-of-file character of a terminal (Ctrl-D).
const END_OF_FILE: u8 = 4;

/// The reason why a command did not start.
pub struct StartError {
    pub message: String,
    pub not_found: bool,
}

impl StartError {
    pub fn other(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            not_found: false,
        }
    }
}

impl From<String> for StartError {
    fn from(message: String) -> Self {
        Self::other(message)
    }
}

/// A piece of the host's input, or its end.
pub enum Input {
    Bytes(Vec<u8>),
    End,
}

/// A command, or a copy, as the session sees it.
#[derive(Default)]
pub struct Command {
    /// Queue for input; taken when the input has ended. The host's credit bounds what waits in it.
    input: Mutex<Option<mpsc::Sender<Input>>>,
    /// Credit of stdout and stderr.
    pub output: [Window; 2],
    /// Process group, as long as its leader was not reaped, so that its number cannot belong to another process.
    group: Mutex<Option<Pid>>,
    terminal: Option<OwnedFd>,
}

impl Command {
    /// Makes a command without a process, with `input` as the queue of what the host sends.
    pub fn without_process(input: mpsc::Sender<Input>) -> Arc<Self> {
        Arc::new(Self {
            input: Mutex::new(Some(input)),
            ..Self::default()
        })
    }

    pub fn input(&self, bytes: Vec<u8>) {
        if let Some(input) = &*self.input.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = input.send(Input::Bytes(bytes));
        }
    }

    pub fn input_end(&self) {
        if let Some(input) = self.input.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = input.send(Input::End);
        }
    }

    pub fn credit(&self, stream: u8, bytes: u32) {
        self.output[usize::from(stream == 2)].grant(bytes);
    }

    pub fn signal(&self, number: i32) {
        if let (Some(group), Some(signal)) = (
            *self.group.lock().unwrap_or_else(PoisonError::into_inner),
            Signal::from_named_raw(number),
        ) {
            // This fails when all of them have ended, which is as good.
            let _ = kill_process_group(group, signal);
        }
    }

    pub fn resize(&self, size: WindowSize) {
        if let Some(terminal) = &self.terminal {
            set_size(terminal, size);
        }
    }

    /// Ends the process group; its output is not wanted any more.
    pub fn abort(&self) {
        self.input.lock().unwrap_or_else(PoisonError::into_inner).take();
        for window in &self.output {
            window.close();
        }
        self.signal(Signal::KILL.as_raw());
    }
}

fn set_size(terminal: impl AsFd, size: WindowSize) {
    let size = Winsize {
        ws_row: size.rows,
        ws_col: size.columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // A terminal whose process has ended has no size.
    let _ = tcsetwinsize(terminal, size);
}

/// The agent's ends of a process's streams.
struct Streams {
    stdin: Option<OwnedFd>,
    outputs: Vec<(Kind, OwnedFd)>,
    terminal: Option<OwnedFd>,
}

/// Starts `exec` as command `id` of `session`.
pub fn start(session: &Arc<Session>, id: u32, exec: &Exec) -> Result<(), StartError> {
    let (child, streams) = spawn(exec)?;
    let pid = Pid::from_child(&child);
    let (sender, input) = mpsc::channel();
    let command = Arc::new(Command {
        input: Mutex::new(streams.stdin.is_some().then_some(sender)),
        output: Default::default(),
        group: Mutex::new(Some(pid)),
        terminal: streams.terminal,
    });
    session.add(id, Arc::clone(&command));
    session.say(
        id,
        Kind::Started,
        &Started {
            pid: pid.as_raw_nonzero().get(),
        },
    );
    // This descriptor becomes readable when the process has ended.
    let ended = eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| StartError::other(error.to_string()))?;
    let ended = Arc::new(ended);
    let on_terminal = exec.pty.is_some();
    if let Some(stdin) = streams.stdin {
        let (session, ended) = (Arc::clone(session), Arc::clone(&ended));
        thread("stdin", move || {
            feed(&session, id, &stdin, &input, ended.as_fd(), on_terminal)
        })?;
    }
    let mut pumps = Vec::new();
    for (kind, output) in streams.outputs {
        let (session, command, ended) = (Arc::clone(session), Arc::clone(&command), Arc::clone(&ended));
        pumps.push(thread("output", move || {
            pump(&session, id, &command, kind, &output, ended.as_fd())
        })?);
    }
    let session = Arc::clone(session);
    thread("wait", move || {
        let status = wait(child, &command);
        let _ = rustix::io::write(&*ended, &1u64.to_ne_bytes());
        for pump in pumps {
            let _ = pump.join();
        }
        session.finish(id, Kind::Exited, &status);
    })?;
    Ok(())
}

fn thread(name: &str, run: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>, StartError> {
    let started = std::thread::Builder::new().name(name.into()).spawn(run);
    started.map_err(|error| StartError::other(format!("no thread for the command: {error}")))
}

fn spawn(exec: &Exec) -> Result<(Child, Streams), StartError> {
    let [program, arguments @ ..] = exec.argv.as_slice() else {
        return Err(StartError::other("the command is empty"));
    };
    let mut command = process::Command::new(program);
    command
        .args(arguments)
        .envs(exec.env.iter().map(|(name, value)| (name, value)));
    // Only a guest of Weft's own recipe is sure to have /root.
    let home = std::env::var("HOME").unwrap_or_else(|_| "/".into());
    command.current_dir(exec.cwd.as_deref().unwrap_or(&home));
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::NotFound if exec.cwd.as_ref().is_some_and(|cwd| !std::path::Path::new(cwd).is_dir()) => {
            StartError::other(format!(
                "there is no directory {}",
                exec.cwd.as_deref().unwrap_or_default()
            ))
        }
        ErrorKind::NotFound => StartError {
            message: match crate::interpreter::missing(program) {
                Some(missing) => format!("{program}: it needs {missing}, which is not there"),
                None => format!("{program}: not found"),
            },
            not_found: true,
        },
        _ => StartError::other(format!("{program}: {error}")),
    };
    if let Some(size) = exec.pty {
        let (child, terminal) = spawn_on_terminal(command, size).map_err(failed)?;
        let again = |fd: &OwnedFd| fd.try_clone().map_err(failed);
        let (stdin, output) = (again(&terminal)?, again(&terminal)?);
        let streams = Streams {
            stdin: Some(stdin),
            outputs: vec![(Kind::Stdout, output)],
            terminal: Some(terminal),
        };
        return Ok((child, streams));
    }
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if exec.stdin { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().map_err(failed)?;
    let mut outputs = Vec::new();
    outputs.extend(child.stdout.take().map(|pipe| (Kind::Stdout, pipe.into())));
    outputs.extend(child.stderr.take().map(|pipe| (Kind::Stderr, pipe.into())));
    let streams = Streams {
        stdin: child.stdin.take().map(Into::into),
        outputs,
        terminal: None,
    };
    Ok((child, streams))
}

fn spawn_on_terminal(mut command: process::Command, size: WindowSize) -> io::Result<(Child, OwnedFd)> {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&terminal)?;
    unlockpt(&terminal)?;
    set_size(&terminal, size);
    let name = ptsname(&terminal, Vec::new())?;
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let end = rustix::fs::open(&name, flags, rustix::fs::Mode::empty())?;
    command.stdin(end.try_clone()?).stdout(end.try_clone()?).stderr(end);
    let lead = || {
        rustix::process::setsid()?;
        // SAFETY: the standard input was put into place before this runs in the child and stays open.
        rustix::process::ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(0) })?;
        Ok(())
    };
    // SAFETY: between fork and exec `lead` only makes two system calls; it takes no lock and allocates nothing.
    unsafe { command.pre_exec(lead) };
    Ok((command.spawn()?, terminal))
}

/// Waits for the end of the process.
fn wait(mut child: Child, command: &Command) -> ExitStatus {
    // The first wait does not reap: until the group is forgotten below, its number must stay taken.
    while let Err(rustix::io::Errno::INTR) = waitid(
        WaitId::Pid(Pid::from_child(&child)),
        WaitIdOptions::EXITED | WaitIdOptions::NOWAIT,
    ) {}
    let mut group = command.group.lock().unwrap_or_else(PoisonError::into_inner);
    let status = child.wait();
    *group = None;
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => ExitStatus::Code(code),
            (None, signal) => ExitStatus::Signal(signal.unwrap_or_default()),
        },
        Err(_) => ExitStatus::Signal(0),
    }
}

/// Waits until `fd` is ready for `what`; returns true when the process has ended meanwhile.
fn wait_ready(fd: &OwnedFd, what: PollFlags, ended: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::new(fd, what), PollFd::from_borrowed_fd(ended, PollFlags::IN)];
    // An interrupted wait is a wait that ended early.
    let _ = poll(&mut fds, None);
    !fds[1].revents().is_empty()
}

fn set_nonblocking(fd: &OwnedFd) -> rustix::io::Result<()> {
    fcntl_setfl(fd, fcntl_getfl(fd)? | OFlags::NONBLOCK)
}

/// Moves output to the host, as far as its credit goes.
fn pump(session: &Session, id: u32, command: &Command, kind: Kind, output: &OwnedFd, ended: BorrowedFd<'_>) {
    let window = &command.output[usize::from(kind == Kind::Stderr)];
    let mut buffer = vec![0; DATA_MAX];
    let mut over = false;
    if set_nonblocking(output).is_err() {
        return;
    }
    loop {
        match rustix::io::read(output, &mut buffer) {
            // On a terminal the end of the last process reads as an error.
            Ok(0) | Err(rustix::io::Errno::IO) => return,
            Ok(len) => {
                let mut piece = &buffer[..len];
                while !piece.is_empty() {
                    let Some(taken) = window.take(piece.len() as u32) else {
                        return;
                    };
                    let (now, later) = piece.split_at(taken as usize);
                    session.send(id, kind, now.to_vec());
                    piece = later;
                }
            }
            Err(rustix::io::Errno::INTR) => {}
            // The process is gone and everything it wrote was read; its children may keep the pipe open forever.
            Err(rustix::io::Errno::AGAIN) if over => return,
            Err(rustix::io::Errno::AGAIN) => over = wait_ready(output, PollFlags::IN, ended),
            Err(_) => return,
        }
    }
}

/// Moves the host's input to the command and gives credit back. Input of a command that stopped reading is discarded.
fn feed(
    session: &Session,
    id: u32,
    stdin: &OwnedFd,
    input: &mpsc::Receiver<Input>,
    ended: BorrowedFd<'_>,
    on_terminal: bool,
) {
    let mut consumed = Consumed::default();
    let mut broken = set_nonblocking(stdin).is_err();
    for item in input {
        let end = [END_OF_FILE];
        let bytes = match &item {
            Input::Bytes(bytes) => bytes.as_slice(),
            Input::End if on_terminal => &end,
            Input::End => return,
        };
        let mut rest = bytes;
        while !rest.is_empty() && !broken {
            match rustix::io::write(stdin, rest) {
                Ok(len) => rest = &rest[len..],
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::AGAIN) => broken = wait_ready(stdin, PollFlags::OUT, ended),
                Err(_) => broken = true,
            }
        }
        if let Some(bytes) = consumed.add(bytes.len()) {
            session.out.send(&Frame::credit_input(session.number, id, bytes));
        }
    }
}

/// The host's input as a reader, for requests without a process; gives credit back as it is read.
pub struct InputReader {
    pub session: Arc<Session>,
    pub id: u32,
    pub input: mpsc::Receiver<Input>,
    pub piece: Vec<u8>,
    pub at: usize,
    pub consumed: Consumed,
}

impl Read for InputReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            match self.input.recv() {
                Ok(Input::Bytes(piece)) => {
                    if let Some(bytes) = self.consumed.add(piece.len()) {
                        self.session
                            .out
                            .send(&Frame::credit_input(self.session.number, self.id, bytes));
                    }
                    (self.piece, self.at) = (piece, 0);
                }
                Ok(Input::End) => return Ok(0),
                Err(_) => return Err(io::Error::other("the host has left")),
            }
        }
        let len = buffer.len().min(self.piece.len() - self.at);
        buffer[..len].copy_from_slice(&self.piece[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}

/// The standard output towards the host as a writer, for requests without a process.
pub struct OutputWriter {
    pub session: Arc<Session>,
    pub id: u32,
    pub command: Arc<Command>,
}

impl Write for OutputWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let wanted = bytes.len().min(DATA_MAX) as u32;
        if wanted == 0 {
            return Ok(0);
        }
        let taken = self.command.output[0].take(wanted).ok_or(ErrorKind::BrokenPipe)? as usize;
        self.session.send(self.id, Kind::Stdout, bytes[..taken].to_vec());
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
