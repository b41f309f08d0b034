//! A small server of lines on a listening socket, in the control plane's one thread.
//!
//! A client costs two bounded buffers: what it said, up to one line, and the answer that it has not read, before which nothing more is
//! taken from it. Each has its turn after one line, one answer or one piece of a stream. The control socket and the metrics use it; it
//! knows nothing of them.

use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use event_manager::{EventOps, EventSet, Events, MutEventSubscriber};
use socket2::Socket;
use vmm_sys_util::timerfd::TimerFd;

use crate::events::{self, ACCEPT_PAUSE, EventThread, LISTENER, Subscriber, Subscription, TIMER};
use crate::session::socket::{ClaimError, ClaimedSocket};

/// Bytes that are read from a client at once.
const PIECE_LEN: usize = 4096;

/// What happens to a client when it has read its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Its next line is read.
    Line,
    /// [`Talk::go_on`] is called after this time, or at once when the client has nothing more to say.
    Later(Duration),
    /// It is let go.
    End,
}

/// One client's side of what is said. Nothing here may wait.
pub trait Talk: Send + 'static {
    /// The server's name.
    const NAME: &'static str;
    /// Clients that may be connected together.
    const CLIENTS_MAX: usize;
    /// Longest line, its end included.
    const LINE_LEN_MAX: usize;
    /// How long a client may leave its answer unread before it is let go, so that its place becomes free.
    const PATIENCE: Duration;
    /// So long may it take for its request, too; otherwise, as long as it likes.
    const IS_ASKED_AT_ONCE: bool;

    /// What a client is told before it is turned away, because there are too many or its line is too long.
    fn refusal(is_full: bool, sentence: &str) -> String;

    /// The client said a line, without the spaces around it; at its end, an empty one. The answer is appended to `out`.
    ///
    /// # Errors
    /// The client is let go.
    fn line(&mut self, client: &Socket, line: &[u8], out: &mut Vec<u8>) -> io::Result<Next>;

    /// What [`Next::Later`] asked for. `has_finished`: the client has nothing more to say.
    fn go_on(&mut self, _has_finished: bool, _out: &mut Vec<u8>) -> Next {
        Next::Line
    }
}

struct Client<T> {
    socket: Socket,
    talk: T,
    said: Vec<u8>,
    has_finished: bool,
    unread: Vec<u8>,
    written: usize,
    next: Next,
    /// When it connected, last took bytes, or was last gone on with.
    since: Instant,
    awaited: EventSet,
}

impl<T: Talk> Client<T> {
    /// Gives the client its turn, at which these events came. Returns those to wait for, none at its end.
    fn turn(&mut self, events: EventSet, now: Instant) -> io::Result<Option<EventSet>> {
        if self.write(now)? {
            match self.next {
                Next::End => {}
                Next::Line => self.listen()?,
                Next::Later(_) => {
                    let is_gone = events.intersects(EventSet::HANG_UP | EventSet::ERROR);
                    let has_finished = is_gone || events.contains(EventSet::READ_HANG_UP);
                    let next = self.talk.go_on(has_finished, &mut self.unread);
                    self.next = if is_gone { Next::End } else { next };
                    self.since = now;
                }
            }
        }
        if !self.write(now)? {
            return Ok(Some(EventSet::OUT));
        }
        Ok(match self.next {
            Next::End => {
                // What it said and nobody read would reach it as a reset connection, before the last answer perhaps.
                let _ = self.socket.read(&mut [0; PIECE_LEN]);
                None
            }
            // There is room to write: it goes on when all others have had their turn.
            Next::Line if self.said.contains(&b'\n') => Some(EventSet::OUT),
            Next::Later(Duration::ZERO) => Some(EventSet::OUT),
            Next::Line => Some(EventSet::IN),
            // Told once: those who only watch may have nothing more to say for as long as they like.
            Next::Later(_) => Some(EventSet::READ_HANG_UP | EventSet::EDGE_TRIGGERED),
        })
    }

    /// Writes what fits now; true if that is all.
    fn write(&mut self, now: Instant) -> io::Result<bool> {
        if !self.unread.is_empty() {
            let Some(len) = now_or_later(self.socket.write(&self.unread[self.written..]))? else {
                return Ok(false);
            };
            self.since = now;
            self.written += len;
            if self.written < self.unread.len() {
                return Ok(false);
            }
            self.unread.clear();
            self.written = 0;
            if self.next == Next::Line {
                self.unread.shrink_to(T::LINE_LEN_MAX);
            }
        }
        Ok(true)
    }

    /// Takes a line, if there is one or one comes.
    fn listen(&mut self) -> io::Result<()> {
        if !self.said.contains(&b'\n') {
            let mut piece = [0; PIECE_LEN];
            let room = PIECE_LEN.min(T::LINE_LEN_MAX - self.said.len());
            match now_or_later(self.socket.read(&mut piece[..room]))? {
                None => return Ok(()),
                Some(0) if self.has_finished => self.next = Next::End,
                Some(0) => {
                    self.has_finished = true;
                    // The last line may have no end of its own.
                    self.said.extend(b"\n\n");
                }
                Some(len) => self.said.extend(&piece[..len]),
            }
        }
        if let Some(end) = self.said.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.said.drain(..=end).collect();
            self.next = self.talk.line(&self.socket, line.trim_ascii(), &mut self.unread)?;
        } else if self.said.len() >= T::LINE_LEN_MAX {
            let sentence = format!("the line is longer than {} bytes", T::LINE_LEN_MAX);
            self.unread.extend(T::refusal(false, &sentence).as_bytes());
            self.next = Next::End;
        }
        Ok(())
    }

    /// When it is gone on with, or let go, if nothing happens before. The reader of a stream may be slow.
    fn due(&self) -> Option<Instant> {
        let after = match self.next {
            Next::Later(after) => self.unread.is_empty().then_some(after)?,
            Next::Line if self.unread.is_empty() && !T::IS_ASKED_AT_ONCE => return None,
            Next::Line | Next::End => T::PATIENCE,
        };
        self.since.checked_add(after)
    }
}

/// The outcome of reading or writing; none if the other side is not ready.
fn now_or_later(outcome: io::Result<usize>) -> io::Result<Option<usize>> {
    match outcome {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
        outcome => outcome.map(Some),
    }
}

struct Server<T, M> {
    socket: ClaimedSocket,
    timer: TimerFd,
    /// Until then no connection is accepted.
    deaf_until: Option<Instant>,
    welcome: M,
    clients: HashMap<RawFd, Client<T>>,
}

/// Serves those who connect until what this returns is dropped, which closes every connection. `welcome` is called for each client.
///
/// # Errors
/// The system gives nothing to wait with.
pub fn start<T: Talk>(
    events: &EventThread,
    socket: ClaimedSocket,
    welcome: impl Fn() -> T + Send + 'static,
) -> Result<Subscription, ClaimError> {
    let system = ClaimError::system(socket.path());
    let started = TimerFd::new().map_err(io::Error::from).and_then(|timer| {
        events.add(Server {
            socket,
            timer,
            deaf_until: None,
            welcome,
            clients: HashMap::new(),
        })
    });
    started.map_err(system)
}

impl<T: Talk, M: Fn() -> T> Server<T, M> {
    fn accept(&mut self, ops: &mut EventOps<'_>, now: Instant) -> io::Result<()> {
        let mut socket = Socket::from(events::accept(self.socket.listener())?);
        if self.clients.len() >= T::CLIENTS_MAX {
            let served = format!("the {} serves {} clients at a time", T::NAME, T::CLIENTS_MAX);
            tracing::warn!("{served}: one more was turned away");
            // A client that does not read it is turned away nevertheless.
            let _ = socket.write_all(T::refusal(true, &format!("{served}, and that many are connected")).as_bytes());
            return Ok(());
        }
        let client = Client {
            talk: (self.welcome)(),
            said: Vec::new(),
            has_finished: false,
            unread: Vec::new(),
            written: 0,
            next: Next::Line,
            since: now,
            awaited: EventSet::IN,
            socket,
        };
        ops.add(Events::new(&client.socket, EventSet::IN))
            .map_err(io::Error::other)?;
        self.clients.insert(client.socket.as_raw_fd(), client);
        Ok(())
    }

    /// Gives a client its turn, or lets it go if it is overdue. Whatever goes wrong with it ends it and nothing else.
    fn turn(&mut self, fd: RawFd, events: EventSet, ops: &mut EventOps<'_>, now: Instant) {
        let Some(client) = self.clients.get_mut(&fd) else {
            return;
        };
        let turn = AssertUnwindSafe(|| match client.next {
            Next::Line | Next::End if events.is_empty() => Err(ErrorKind::TimedOut.into()),
            _ => client.turn(events, now),
        });
        let awaited = catch_unwind(turn).unwrap_or_else(|_| {
            tracing::error!("an internal error (a panic) with a client of the {}", T::NAME);
            Ok(None)
        });
        match awaited {
            Ok(Some(awaited)) if awaited == client.awaited => return,
            Ok(Some(awaited)) => {
                client.awaited = awaited;
                if ops.modify(Events::new_raw(fd, awaited)).is_ok() {
                    return;
                }
            }
            Ok(None) => {}
            Err(error) => tracing::debug!("a client of the {} is let go: {error}", T::NAME),
        }
        // What fails here is not waited for any more, either.
        let _ = ops.remove(Events::empty_raw(fd));
        self.clients.remove(&fd);
    }
}

impl<T: Talk, M: Fn() -> T + Send> Subscriber for Server<T, M> {}

impl<T: Talk, M: Fn() -> T> MutEventSubscriber for Server<T, M> {
    fn init(&mut self, ops: &mut EventOps<'_>) {
        events::wait_for(ops, self.socket.listener(), LISTENER);
        events::wait_for(ops, &self.timer, TIMER);
    }

    fn process(&mut self, events: Events, ops: &mut EventOps<'_>) {
        let now = Instant::now();
        let is_past = |due: Option<Instant>| due.is_some_and(|due| due <= now);
        match events.data() {
            LISTENER => match self.accept(ops, now) {
                Err(error) if error.kind() != ErrorKind::WouldBlock => {
                    tracing::debug!("the {} cannot accept a client: {error}", T::NAME);
                    events::set_deaf(ops, self.socket.listener(), true);
                    self.deaf_until = Some(now + ACCEPT_PAUSE);
                }
                _ => {}
            },
            TIMER => {
                let due = self.clients.iter().filter(|(_, client)| is_past(client.due()));
                for fd in due.map(|(fd, _)| *fd).collect::<Vec<_>>() {
                    self.turn(fd, EventSet::empty(), ops, now);
                }
                if is_past(self.deaf_until) {
                    self.deaf_until = None;
                    events::set_deaf(ops, self.socket.listener(), false);
                }
            }
            _ => self.turn(events.fd(), events.event_set(), ops, now),
        }
        let due = self
            .clients
            .values()
            .filter_map(Client::due)
            .chain(self.deaf_until)
            .min();
        events::set_timer(&mut self.timer, due.map(|due| due.saturating_duration_since(now)));
    }
}

#[cfg(test)]
mod tests;
