//! The connection under a channel: sessions, the requests that wait for answers, and the two threads that read and
//! write. Everything that the guest sends is checked here once: unknown frames are dropped, and no stream may exceed
//! its window.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak, mpsc};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use serde::Serialize;
use weft_agent::credit::WINDOW;
use weft_agent::frame::{DELIMITER, Decoder, Frame, Kind};
use weft_agent::message::{Failed, Hello, PROTOCOL_VERSION, Welcome};

use super::ChannelError;
use super::command::{Running, Slot};
use super::relay::RelaySink;

/// Number of requests in flight on one channel; more are refused. It is twice what an agent runs at a time, so that the
/// answer "too many" comes from the agent.
const REQUESTS_MAX: usize = 2 * weft_agent::message::COMMANDS_MAX;

/// Number of bytes that are read from the socket at a time.
const READ_LEN: usize = 64 * 1024;

/// The connection to a guest.
#[derive(Debug)]
pub(super) struct Link {
    state: Mutex<State>,
    changed: Condvar,
    /// Queue of encoded frames for the other end. The credit of the streams bounds its length.
    out: mpsc::Sender<Vec<u8>>,
    /// Handle to end the reader when the last user of the channel is gone.
    stream: UnixStream,
}

#[derive(Debug, Default)]
struct State {
    session: u32,
    welcome: Option<Welcome>,
    last_boot_id: String,
    boots: u64,
    refused: Option<String>,
    closed: bool,
    /// Counter that grows whenever the agent becomes ready or stops being ready.
    changes: u64,
    next_id: u32,
    requests: HashMap<u32, Request>,
    relays: HashMap<u64, mpsc::Sender<Vec<u8>>>,
    next_relay: u64,
}

/// A request that waits for frames with its id.
#[derive(Debug)]
struct Request {
    sink: Sink,
    /// Bytes of stdout and stderr that were delivered and not yet credited.
    outstanding: [u32; 2],
}

/// The destination of the frames of a request.
#[derive(Clone, Debug)]
pub(super) enum Sink {
    /// The queue of a [`Running`].
    Slot(Arc<Slot>),
    /// The client of a relay.
    Relay(RelaySink),
}

impl Sink {
    fn deliver(&self, frame: Frame) {
        match self {
            Self::Slot(slot) => slot.deliver(frame),
            Self::Relay(relay) => relay.deliver(frame),
        }
    }

    fn end(&self, why: ChannelError) {
        match self {
            Self::Slot(slot) => slot.end(why),
            Self::Relay(relay) => relay.end(&why),
        }
    }
}

/// Returns whether no frame with this id follows.
pub(super) fn ends_request(kind: Kind) -> bool {
    matches!(kind, Kind::Exited | Kind::Failed | Kind::ReportAnswer | Kind::Done)
}

impl Link {
    /// Starts the threads over `stream` and opens a session.
    pub(super) fn start(stream: UnixStream) -> Result<Arc<Self>, ChannelError> {
        let reading = stream.try_clone()?;
        let mut writing = stream.try_clone()?;
        let (out, frames) = mpsc::channel::<Vec<u8>>();
        let link = Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            out,
            stream,
        });
        std::thread::Builder::new().name("guest-writer".into()).spawn(move || {
            for frame in frames {
                // A failed write is the end of the connection: the reader notices it too and reports it.
                if writing.write_all(&frame).is_err() {
                    return;
                }
            }
        })?;
        // The agent may be in the middle of a frame that a former host end left: an end mark ends it.
        link.send_bytes(vec![DELIMITER]);
        link.open_session(&mut link.lock());
        let weak = Arc::downgrade(&link);
        std::thread::Builder::new()
            .name("guest-reader".into())
            .spawn(move || read(reading, &weak))?;
        Ok(link)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn send_bytes(&self, bytes: Vec<u8>) {
        // The writer is gone only when the connection is gone, which the reader reports.
        let _ = self.out.send(bytes);
    }

    fn open_session(&self, state: &mut State) {
        state.welcome = None;
        // Any number that an older session did not have will do; the keys of a `RandomState` are random enough.
        state.session = (RandomState::new().build_hasher().finish() as u32).max(1);
        let protocol = PROTOCOL_VERSION;
        let hello = Frame::json(state.session, 0, Kind::Hello, &Hello { protocol });
        self.send_bytes(hello.expect("a hello is short").encode());
    }

    pub(super) fn welcome(&self) -> Option<Welcome> {
        self.lock().welcome.clone()
    }

    pub(super) fn boots(&self) -> u64 {
        self.lock().boots
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    pub(super) fn wait_welcome(
        &self,
        patience: Duration,
        wanted: impl Fn(&Welcome) -> bool,
    ) -> Result<Welcome, ChannelError> {
        let deadline = Instant::now() + patience;
        let mut state = self.lock();
        loop {
            if let Some(why) = &state.refused {
                return Err(ChannelError::Protocol(why.clone()));
            }
            if state.closed {
                return Err(ChannelError::Closed);
            }
            if let Some(welcome) = state.welcome.as_ref().filter(|welcome| wanted(welcome)) {
                return Ok(welcome.clone());
            }
            if deadline <= Instant::now() {
                return Err(ChannelError::TimedOut(patience));
            }
            self.changed.wait_until(&mut state, deadline);
        }
    }

    pub(super) fn wait_change(&self, seen: u64) -> Result<u64, ChannelError> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return Err(ChannelError::Closed);
            }
            if let Some(why) = &state.refused {
                return Err(ChannelError::Protocol(why.clone()));
            }
            if state.changes != seen {
                return Ok(state.changes);
            }
            self.changed.wait(&mut state);
        }
    }

    /// Sends a request of this process.
    pub(super) fn request(
        self: &Arc<Self>,
        kind: Kind,
        message: Option<&impl Serialize>,
    ) -> Result<Running, ChannelError> {
        let body = match message {
            Some(message) => Frame::json(0, 0, kind, message).map_err(ChannelError::Refused)?.body,
            None => Vec::new(),
        };
        let slot = Arc::new(Slot::default());
        let id = self.register(kind, body, |_| Sink::Slot(Arc::clone(&slot)))?;
        Ok(Running::new(Arc::clone(self), id, slot))
    }

    /// Gives a request an id, notes where its answers go, and sends it.
    pub(super) fn register(
        &self,
        kind: Kind,
        body: Vec<u8>,
        sink: impl FnOnce(u32) -> Sink,
    ) -> Result<u32, ChannelError> {
        let mut state = self.lock();
        if state.closed {
            return Err(ChannelError::Closed);
        }
        if state.welcome.is_none() {
            return Err(ChannelError::NotReady);
        }
        if state.requests.len() >= REQUESTS_MAX {
            return Err(ChannelError::Refused(format!(
                "{REQUESTS_MAX} requests are in flight already"
            )));
        }
        let id = loop {
            state.next_id = state.next_id.wrapping_add(1);
            if state.next_id != 0 && !state.requests.contains_key(&state.next_id) {
                break state.next_id;
            }
        };
        let (sink, outstanding) = (sink(id), [0; 2]);
        state.requests.insert(id, Request { sink, outstanding });
        self.send_bytes(Frame::new(state.session, id, kind, body).encode());
        Ok(id)
    }

    /// Sends a frame that belongs to request `id`; it is dropped when that has ended.
    pub(super) fn send(&self, id: u32, kind: Kind, body: Vec<u8>) {
        let state = self.lock();
        if state.requests.contains_key(&id) {
            self.send_bytes(Frame::new(state.session, id, kind, body).encode());
        }
    }

    /// Gives back credit for output that was consumed: never more than was delivered.
    pub(super) fn credit_output(&self, id: u32, stream: u8, bytes: u32) {
        let mut state = self.lock();
        let session = state.session;
        let Some(request) = state.requests.get_mut(&id) else {
            return;
        };
        let outstanding = &mut request.outstanding[usize::from(stream == 2)];
        let bytes = bytes.min(*outstanding);
        *outstanding -= bytes;
        if bytes > 0 {
            self.send_bytes(Frame::credit_output(session, id, stream, bytes).encode());
        }
    }

    /// Ends a request whose answers are not wanted any more.
    pub(super) fn abort(&self, id: u32) {
        let mut state = self.lock();
        if state.requests.remove(&id).is_some() {
            self.send_bytes(Frame::new(state.session, id, Kind::Abort, Vec::new()).encode());
        }
    }

    /// Adds a relay: it gets a `Ready` frame whenever the guest's agent starts or becomes ready, and an empty message
    /// when the guest is gone. Returns `None` when it is gone already.
    pub(super) fn add_relay(&self, out: mpsc::Sender<Vec<u8>>) -> Option<u64> {
        let mut state = self.lock();
        if state.closed {
            return None;
        }
        state.next_relay += 1;
        let relay = state.next_relay;
        state.relays.insert(relay, out);
        Some(relay)
    }

    /// Removes a relay.
    pub(super) fn remove_relay(&self, relay: u64) {
        self.lock().relays.remove(&relay);
    }

    fn tell_relays(state: &State) {
        let ready = Frame::new(0, 0, Kind::Ready, Vec::new()).encode();
        for relay in state.relays.values() {
            // A relay that is about to leave does not need the frame.
            let _ = relay.send(ready.clone());
        }
    }

    /// Ends all requests and asks for the next agent, unless the connection is gone.
    pub(super) fn reset(&self) {
        let mut state = self.lock();
        if !state.closed {
            self.begin_anew(&mut state);
        }
    }

    fn begin_anew(&self, state: &mut State) {
        for (_, request) in state.requests.drain() {
            request.sink.end(ChannelError::Restarted);
        }
        self.open_session(state);
        Self::tell_relays(state);
        state.changes += 1;
        self.changed.notify_all();
    }

    fn handle(&self, frame: Frame) {
        let mut state = self.lock();
        if frame.kind == Kind::Ready && frame.session == 0 {
            self.begin_anew(&mut state);
            return;
        }
        if frame.session != state.session {
            return;
        }
        match (frame.id, frame.kind) {
            (0, Kind::Welcome) => match frame.parse::<Welcome>() {
                Ok(welcome) if welcome.protocol == PROTOCOL_VERSION => {
                    if state.last_boot_id != welcome.boot_id {
                        state.last_boot_id.clone_from(&welcome.boot_id);
                        state.boots += 1;
                    }
                    let is_first = state.welcome.replace(welcome).is_none();
                    state.changes += 1;
                    if is_first {
                        Self::tell_relays(&state);
                    }
                }
                Ok(other) => {
                    let theirs = other.protocol;
                    state.refused = Some(format!(
                        "it speaks protocol version {theirs}, this is {PROTOCOL_VERSION}"
                    ));
                }
                Err(why) => state.refused = Some(why),
            },
            (0, Kind::Failed) => {
                state.refused = Some(frame.parse::<Failed>().map_or_else(|why| why, |failed| failed.message));
            }
            (0, _) => {}
            (id, _) => self.deliver(&mut state, id, frame),
        }
        self.changed.notify_all();
    }

    fn deliver(&self, state: &mut State, id: u32, frame: Frame) {
        let Some(request) = state.requests.get_mut(&id) else {
            return;
        };
        if let Kind::Stdout | Kind::Stderr = frame.kind {
            let outstanding = &mut request.outstanding[usize::from(frame.kind == Kind::Stderr)];
            // An empty piece carries no data and would use memory that no window counts.
            if frame.body.is_empty() {
                return;
            }
            *outstanding = outstanding.saturating_add(frame.body.len() as u32);
            if *outstanding > WINDOW {
                request
                    .sink
                    .end(ChannelError::Protocol("it sends more than it has credit for".into()));
                state.requests.remove(&id);
                self.send_bytes(Frame::new(state.session, id, Kind::Abort, Vec::new()).encode());
                return;
            }
        }
        let last = ends_request(frame.kind);
        request.sink.deliver(frame);
        if last {
            state.requests.remove(&id);
        }
    }

    /// Shuts the connection; the reader notices its end and reports it.
    pub(super) fn leave(&self) {
        // A connection that is gone already needs no end.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }

    fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.welcome = None;
        for (_, request) in state.requests.drain() {
            request.sink.end(ChannelError::Closed);
        }
        for (_, relay) in state.relays.drain() {
            let _ = relay.send(Vec::new());
        }
        self.changed.notify_all();
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The shutdown tells the other end that the host is gone.
        self.leave();
    }
}

fn read(mut stream: UnixStream, link: &Weak<Link>) {
    let mut decoder = Decoder::default();
    let mut buffer = vec![0; READ_LEN];
    loop {
        let len = match stream.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => break,
            Ok(len) => len,
        };
        let Some(link) = link.upgrade() else { return };
        decoder.feed(&buffer[..len], |frame| match frame {
            Ok(frame) => link.handle(frame),
            Err(error) => tracing::debug!(%error, "dropped bytes from a guest"),
        });
    }
    if let Some(link) = link.upgrade() {
        link.close();
    }
}
