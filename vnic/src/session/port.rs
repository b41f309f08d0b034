//! The life of a port: it listens or connects, serves one frontend's connection at a time, and goes on after every end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use super::SessionDevice;
use super::connection::{self, End, thread_name};
use super::guard::{Ender, panic_text};
use super::private::PrivateListener;
use super::refusal::Refusal;
use super::socket::{ClaimError, ClaimedSocket, check_path};
use super::vring::{self, NoSignals};

/// Time between two attempts to reach a frontend's socket that no process listens on: a guest that boots waits for it, and
/// fifty attempts a second cost next to nothing.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// Time to leave a frontend alone whose session was ended for what it sent: it may do so again at once.
const REFUSED_PAUSE: Duration = Duration::from_millis(250);

/// Time to wait when no connection can be accepted (out of file descriptors, say), so that the attempt does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A port's log lines are counted in windows of this length …
const LOG_WINDOW: Duration = Duration::from_secs(10);

/// … and this many of a window are shown: a frontend that comes and goes without end must not fill the log.
const LOG_LINES_MAX: u32 = 10;

/// Why no port can be served.
#[derive(Debug, thiserror::Error)]
pub enum SessionsError {
    /// The system does not let interrupts be signalled.
    #[error(transparent)]
    NoSignals(#[from] NoSignals),
    /// The system gives no socket, or no place for it.
    #[error("cannot make the private socket of the sessions in {}: {reason}", std::env::temp_dir().display())]
    PrivateSocket {
        /// The system's reason.
        reason: io::Error,
    },
}

/// Makes ports' sessions; one per process.
#[derive(Clone)]
pub struct Sessions {
    private: Arc<PrivateListener>,
}

impl Sessions {
    /// Prepares what interrupts need, and the private socket between the fronts and the published daemons.
    ///
    /// # Errors
    /// See [`SessionsError`].
    pub fn new() -> Result<Sessions, SessionsError> {
        vring::can_signal()?;
        Ok(Sessions {
            private: Arc::new(PrivateListener::new().map_err(|reason| SessionsError::PrivateSocket { reason })?),
        })
    }

    /// Binds `path` and serves the frontends that connect to it.
    pub fn listen<D: SessionDevice>(&self, device: D, path: &Path) -> Result<PortSession, ClaimError> {
        let socket = ClaimedSocket::bind(path, None)?;
        self.spawn(device, path, Source::Listen(socket))
    }

    /// Connects to the frontend that listens on `path`, now or whenever it comes.
    pub fn connect<D: SessionDevice>(&self, device: D, path: &Path) -> Result<PortSession, ClaimError> {
        check_path(path)?;
        self.spawn(device, path, Source::Connect(path.to_owned()))
    }

    fn spawn<D: SessionDevice>(&self, device: D, path: &Path, source: Source) -> Result<PortSession, ClaimError> {
        let system = |reason: io::Error| ClaimError::System {
            path: path.display().to_string(),
            reason,
        };
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let stop = Arc::new(eventfd(0, flags).map_err(|error| system(error.into()))?);
        let done = Arc::new(eventfd(0, flags).map_err(|error| system(error.into()))?);
        let name = thread_name("port", device.name());
        let port = Port {
            device,
            private: Arc::clone(&self.private),
            stop: Arc::clone(&stop),
            done,
            current: None,
            log: LogLimit::default(),
        };
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || port.run(source))
            .map_err(system)?;
        Ok(PortSession {
            stop,
            thread: Some(thread),
        })
    }
}

/// A port that is being served. Dropping it ends the connection, joins its threads and removes its socket.
#[must_use = "dropping it ends the port"]
pub struct PortSession {
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl PortSession {
    /// Asks the port to end, without waiting: so that many ports can end together.
    pub fn ask_to_stop(&self) {
        signal(&self.stop);
    }
}

impl Drop for PortSession {
    fn drop(&mut self) {
        self.ask_to_stop();
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("a port's thread panicked: {}", panic_text(&*panic));
        }
    }
}

enum Source {
    Listen(ClaimedSocket),
    Connect(PathBuf),
}

/// The connection that is being served.
struct Current {
    ender: Arc<Ender>,
    thread: JoinHandle<End>,
}

/// How long a new frontend waits for the one before it to go: the system may close a dead program's socket a moment after
/// its successor connects.
const SUCCESSION_PATIENCE: Duration = Duration::from_secs(1);

struct Port<D: SessionDevice> {
    device: D,
    private: Arc<PrivateListener>,
    stop: Arc<OwnedFd>,
    /// Signalled by a connection's thread when it ends.
    done: Arc<OwnedFd>,
    current: Option<Current>,
    log: LogLimit,
}

/// What a port woke up for.
struct Woken {
    stop: bool,
    done: bool,
    incoming: bool,
}

impl<D: SessionDevice> Port<D> {
    fn run(mut self, source: Source) {
        match source {
            Source::Listen(socket) => self.listen(&socket),
            Source::Connect(path) => self.connect(&path),
        }
        if let Some(current) = &self.current {
            self.device.connection_ends();
            current.ender.end();
        }
        self.finish();
    }

    fn listen(&mut self, socket: &ClaimedSocket) {
        tracing::info!(port = self.device.name(), "listening on {}", socket.path().display());
        loop {
            let woken = self.wait(Some(socket), None);
            if woken.stop {
                return;
            }
            if woken.done {
                self.finish();
            }
            if !woken.incoming {
                continue;
            }
            match socket.listener().accept() {
                Ok((stream, _)) => self.take(stream),
                Err(error) => {
                    self.log
                        .warn(self.device.name(), &format!("cannot accept a connection: {error}"));
                    if self.wait(None, Some(ACCEPT_PAUSE)).stop {
                        return;
                    }
                }
            }
        }
    }

    /// Serves a new frontend, unless the one before is still there and stays.
    fn take(&mut self, stream: UnixStream) {
        if let Some(current) = &self.current {
            if !current.ender.peer_is_gone() && !self.wait(None, Some(SUCCESSION_PATIENCE)).done {
                self.log.warn(
                    self.device.name(),
                    "a second frontend connected and was turned away: a port serves one at a time",
                );
                return;
            }
            self.finish();
        }
        self.begin(stream);
    }

    fn connect(&mut self, path: &Path) {
        tracing::info!(port = self.device.name(), "connecting to {}", path.display());
        loop {
            let mut pause = RECONNECT_INTERVAL;
            if let Ok(stream) = UnixStream::connect(path) {
                self.begin(stream);
                while self.current.is_some() {
                    let woken = self.wait(None, None);
                    if woken.stop {
                        return;
                    }
                    if woken.done && !self.finish() {
                        pause = REFUSED_PAUSE;
                    }
                }
            }
            if self.wait(None, Some(pause)).stop {
                return;
            }
        }
    }

    fn begin(&mut self, stream: UnixStream) {
        let started = Ender::new(&stream).and_then(|ender| {
            let (device, private, done) = (self.device.clone(), Arc::clone(&self.private), Arc::clone(&self.done));
            let for_thread = Arc::clone(&ender);
            let thread = std::thread::Builder::new()
                .name(thread_name("conn", self.device.name()))
                .spawn(move || {
                    let ring_out = SignalOnDrop(done);
                    let end = connection::serve(&device, stream, &for_thread, &private);
                    drop(ring_out);
                    end
                })?;
            Ok(Current { ender, thread })
        });
        match started {
            Ok(current) => {
                self.log.info(self.device.name(), "a frontend connected");
                self.current = Some(current);
            }
            Err(error) => self
                .log
                .warn(self.device.name(), &format!("cannot serve a connection: {error}")),
        }
    }

    /// Joins the connection that ended or is about to; false if it was ended for what was wrong with it.
    fn finish(&mut self) -> bool {
        let Some(current) = self.current.take() else {
            return true;
        };
        let end = current.thread.join();
        // Also wakes the thread that still has the frontend's socket after a panic.
        current.ender.end();
        // The event says nothing more than the join just did.
        let _ = rustix::io::read(&self.done, &mut [0; 8]);
        let closed = matches!(end, Ok(End::Closed));
        match end {
            Ok(End::Closed) => self.log.info(self.device.name(), "the frontend is gone"),
            Ok(End::Refused(Refusal { rule, sentence })) => self
                .device
                .fail(format!("its session was ended: {sentence} (rule {rule})"), Some(rule)),
            Ok(End::Failed(sentence)) => self.device.fail(format!("its session was ended: {sentence}"), None),
            Err(panic) => {
                self.device.connection_closed();
                self.device
                    .fail(format!("its session panicked: {}", panic_text(&*panic)), None);
            }
        }
        closed
    }

    /// Waits for something to do, at most for `limit`.
    fn wait(&self, socket: Option<&ClaimedSocket>, limit: Option<Duration>) -> Woken {
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs() as i64,
            tv_nsec: i64::from(limit.subsec_nanos()),
        });
        let mut fds = vec![
            PollFd::new(&*self.stop, PollFlags::IN),
            PollFd::new(&*self.done, PollFlags::IN),
        ];
        if let Some(socket) = socket {
            fds.push(PollFd::new(socket.listener(), PollFlags::IN));
        }
        // An interrupted wait reports nothing, and every caller waits again.
        let _ = poll(&mut fds, limit.as_ref());
        let is_ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        Woken {
            stop: is_ready(0),
            done: is_ready(1),
            incoming: is_ready(2),
        }
    }
}

/// Signals its event when the thread that owns it ends, for whatever reason.
struct SignalOnDrop(Arc<OwnedFd>);

impl Drop for SignalOnDrop {
    fn drop(&mut self) {
        signal(&self.0);
    }
}

fn signal(event: &OwnedFd) {
    // Fails only when the counter is full, and then the event is signalled already.
    let _ = rustix::io::write(event, &1u64.to_ne_bytes());
}

/// Shows [`LOG_LINES_MAX`] lines per [`LOG_WINDOW`]; the others are there at debug level only.
#[derive(Debug, Default)]
struct LogLimit {
    window_start: Option<Instant>,
    lines: u32,
}

impl LogLimit {
    fn warn(&mut self, port: &str, sentence: &str) {
        if self.is_shown(port) {
            tracing::warn!(port, "{sentence}");
        } else {
            tracing::debug!(port, "{sentence}");
        }
    }

    fn info(&mut self, port: &str, sentence: &str) {
        if self.is_shown(port) {
            tracing::info!(port, "{sentence}");
        } else {
            tracing::debug!(port, "{sentence}");
        }
    }

    /// Counts a line.
    fn is_shown(&mut self, port: &str) -> bool {
        if self.window_start.is_none_or(|start| start.elapsed() >= LOG_WINDOW) {
            let hidden = self.lines.saturating_sub(LOG_LINES_MAX);
            if hidden != 0 {
                tracing::warn!(
                    port,
                    hidden,
                    "connections come and go so fast that not every line was shown"
                );
            }
            *self = LogLimit {
                window_start: Some(Instant::now()),
                lines: 0,
            };
        }
        self.lines = self.lines.saturating_add(1);
        self.lines <= LOG_LINES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frontend_that_comes_and_goes_cannot_fill_the_log() {
        let mut limit = LogLimit::default();
        let shown = (0..1000).filter(|_| limit.is_shown("a")).count();
        assert_eq!(shown, LOG_LINES_MAX as usize);
        limit.window_start = Instant::now().checked_sub(LOG_WINDOW);
        assert!(limit.is_shown("a"));
    }
}
