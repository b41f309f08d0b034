//! The life of a port: it listens or connects, serves one frontend's connection at a time, and goes on after every end.

use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use event_manager::{EventOps, Events, MutEventSubscriber};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use vmm_sys_util::timerfd::TimerFd;

use super::SessionDevice;
use super::connection::{self, End, thread_name};
use super::guard::{Ender, panic_text};
use super::private::PrivateListener;
use super::refusal::Refusal;
use super::socket::{self, ClaimError, ClaimedSocket, check_path};
use super::vring::{self, NoSignals};
use crate::events::{self, ACCEPT_PAUSE, EventThread, LISTENER, Subscriber, Subscription, TIMER};

/// Says that the event is the end of a connection.
const END: u32 = TIMER + 1;

/// Time between two attempts to reach a frontend's socket that no process listens on: a guest that boots waits for it, and
/// fifty attempts a second cost next to nothing.
const RECONNECT_INTERVAL: Duration = Duration::from_millis(20);

/// Time to leave a frontend alone whose session was ended for what it sent: it may do so again at once.
const REFUSED_PAUSE: Duration = Duration::from_millis(250);

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
    events: EventThread,
}

impl Sessions {
    /// Prepares what interrupts need, and the private socket between the fronts and the published daemons. Ports wait in `events`.
    ///
    /// # Errors
    /// See [`SessionsError`].
    pub fn new(events: &EventThread) -> Result<Sessions, SessionsError> {
        vring::can_signal()?;
        Ok(Sessions {
            private: Arc::new(PrivateListener::new().map_err(|reason| SessionsError::PrivateSocket { reason })?),
            events: events.clone(),
        })
    }

    /// Binds `path` and serves the frontends that connect to it.
    pub fn listen<D: SessionDevice>(&self, device: D, path: &Path) -> Result<Subscription, ClaimError> {
        let socket = ClaimedSocket::bind(path, None)?;
        self.start(device, path, Some(socket))
    }

    /// Connects to the frontend that listens on `path`, now or whenever it comes.
    pub fn connect<D: SessionDevice>(&self, device: D, path: &Path) -> Result<Subscription, ClaimError> {
        check_path(path)?;
        self.start(device, path, None)
    }

    fn start<D: SessionDevice>(
        &self,
        device: D,
        path: &Path,
        socket: Option<ClaimedSocket>,
    ) -> Result<Subscription, ClaimError> {
        let start = || {
            self.events.add(Port {
                device,
                private: Arc::clone(&self.private),
                path: path.to_owned(),
                socket,
                done: Arc::new(EventFd::new(EFD_NONBLOCK)?),
                timer: TimerFd::new()?,
                current: None,
                successor: None,
                log: LogLimit::default(),
            })
        };
        start().map_err(ClaimError::system(path))
    }
}

/// The connection that is being served.
struct Current {
    ender: Arc<Ender>,
    thread: JoinHandle<End>,
}

/// How long a new frontend waits for the one before it to go: the system may close a dead program's socket a moment after
/// its successor connects.
const SUCCESSION_PATIENCE: Duration = Duration::from_secs(1);

/// A port that is being served. Dropping it ends the connection, joins its threads and removes its socket.
struct Port<D: SessionDevice> {
    device: D,
    private: Arc<PrivateListener>,
    path: PathBuf,
    /// None if the port connects.
    socket: Option<ClaimedSocket>,
    /// Signalled by a connection's thread when it ends.
    done: Arc<EventFd>,
    timer: TimerFd,
    current: Option<Current>,
    /// A new frontend, which waits for the one before it to go; the next ones wait to be accepted.
    successor: Option<UnixStream>,
    log: LogLimit,
}

impl<D: SessionDevice> Subscriber for Port<D> {
    fn ask_to_end(&mut self) {
        if let Some(current) = self.current.as_ref().filter(|current| !current.ender.has_ended()) {
            self.device.connection_ends();
            current.ender.end();
        }
    }
}

impl<D: SessionDevice> Drop for Port<D> {
    fn drop(&mut self) {
        self.ask_to_end();
        self.finish();
    }
}

impl<D: SessionDevice> MutEventSubscriber for Port<D> {
    fn init(&mut self, ops: &mut EventOps<'_>) {
        events::wait_for(ops, &self.timer, TIMER);
        events::wait_for(ops, &*self.done, END);
        let (name, path) = (self.device.name(), self.path.display());
        if let Some(socket) = &self.socket {
            events::wait_for(ops, socket.listener(), LISTENER);
            tracing::info!(port = name, "listening on {path}");
        } else {
            tracing::info!(port = name, "connecting to {path}");
            self.connect();
        }
    }

    fn process(&mut self, events: Events, ops: &mut EventOps<'_>) {
        match events.data() {
            LISTENER => self.accept(ops),
            END => {
                let closed = self.finish();
                if self.socket.is_none() {
                    self.pause(if closed { RECONNECT_INTERVAL } else { REFUSED_PAUSE });
                } else if let Some(stream) = self.successor.take() {
                    self.begin(stream);
                    self.listen(ops);
                }
            }
            _ if self.socket.is_none() => self.connect(),
            _ => self.listen(ops),
        }
    }
}

impl<D: SessionDevice> Port<D> {
    /// Serves a new frontend, unless the one before is still there and stays.
    fn accept(&mut self, ops: &EventOps<'_>) {
        let Some(socket) = &self.socket else { return };
        let accepted = events::accept(socket.listener()).map(UnixStream::from);
        match accepted.and_then(|stream| stream.set_nonblocking(false).map(|()| stream)) {
            Ok(stream) if self.current.is_none() => self.begin(stream),
            Ok(stream) => {
                events::set_deaf(ops, socket.listener(), true);
                self.successor = Some(stream);
                self.pause(SUCCESSION_PATIENCE);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => {
                events::set_deaf(ops, socket.listener(), true);
                self.log
                    .warn(self.device.name(), &format!("cannot accept a connection: {error}"));
                self.pause(ACCEPT_PAUSE);
            }
        }
    }

    /// Listens again. A successor has waited for long enough, if the one before it stays.
    fn listen(&mut self, ops: &EventOps<'_>) {
        events::set_timer(&mut self.timer, None);
        let stays = |current: &Current| !current.ender.peer_is_gone();
        if self.successor.is_some() && !self.current.as_ref().is_some_and(stays) {
            return;
        }
        if self.successor.take().is_some() {
            self.log.warn(
                self.device.name(),
                "a second frontend connected and was turned away: a port serves one at a time",
            );
        }
        if let Some(socket) = &self.socket {
            events::set_deaf(ops, socket.listener(), false);
        }
    }

    fn connect(&mut self) {
        events::set_timer(&mut self.timer, None);
        if let Ok(stream) = socket::connect(&self.path) {
            self.begin(stream);
        }
        if self.current.is_none() {
            self.pause(RECONNECT_INTERVAL);
        }
    }

    fn pause(&mut self, pause: Duration) {
        events::set_timer(&mut self.timer, Some(pause));
    }

    fn begin(&mut self, stream: UnixStream) {
        let started = Ender::new(&stream).and_then(|ender| {
            let (device, private) = (self.device.clone(), Arc::clone(&self.private));
            let done = Arc::clone(&self.done);
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
        let _ = self.done.read();
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
}

/// Signals its event when the thread that owns it ends, for whatever reason.
struct SignalOnDrop(Arc<EventFd>);

impl Drop for SignalOnDrop {
    fn drop(&mut self) {
        // Fails only when the counter is full, and then the event is signalled already.
        let _ = self.0.write(1);
    }
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
