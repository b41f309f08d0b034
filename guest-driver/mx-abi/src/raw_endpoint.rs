//! Open raw endpoints. Each has a lock of its own, which no thread has while it waits for an event.

use std::{
    collections::{BTreeMap, VecDeque},
    io::IoSlice,
    os::fd::{AsFd, AsRawFd, OwnedFd, RawFd},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use ether::EtherType;
use mxoe::{engine::FaultInjection, wire::PacketType};
use netif::{AfPacket, AfPacketOptions, Instruction, Interest, Netif, NetifError, PreparedSocket};
use omx::{Board, EndpointOptions};
use rustix::{
    event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll},
    io::Errno,
};
use weft_authority::{OmxdError, Session};

use crate::{
    codes,
    fault::{Fault, Outcome},
};

/// At most this many sends wait for their completion to be taken.
const COMPLETIONS_MAX: usize = 1024;
/// A thread that waits while the authority is away seeks it this often.
const SEEK: Duration = Duration::from_millis(100);

/// Offset of a frame's type, whose highest bit is a mark (mxoe-wire 2).
const TYPE_AT: u32 = 16;
const TYPE_BITS: u32 = 0x7f;
/// Longest raw frame that is received, in bytes (mxoe-wire 9.1).
const RAW_LEN_MAX: u32 = 1024;

/// Passes raw frames only; frames of messages are not for this port.
fn raw_frames() -> [Instruction; 7] {
    [
        Instruction::load_len(),
        Instruction::if_at_least(RAW_LEN_MAX + 1, 4, 0),
        Instruction::load_byte(TYPE_AT),
        Instruction::and(TYPE_BITS),
        Instruction::if_equal(PacketType::Raw.code() as u32, 0, 1),
        Instruction::pass(),
        Instruction::drop(),
    ]
}

/// An event of a raw endpoint.
pub(crate) enum RawEvent<'a> {
    /// A frame was sent, with this context.
    Sent(u64),
    /// A frame was received.
    Received(&'a [u8]),
}

/// An open raw endpoint.
pub(crate) struct RawEndpoint {
    board: Board,
    /// Readable while there may be an event, or the endpoint is closed: the port and `completions` in one.
    watched: OwnedFd,
    /// Counts completions that were not taken.
    completions: OwnedFd,
    /// The state of an open endpoint; `None` after it was closed.
    state: Mutex<Option<OpenState>>,
}

struct OpenState {
    port: AfPacket,
    completed: VecDeque<u64>,
    /// The connection that stands for the raw endpoint; `None` while the authority is away.
    session: Option<Session>,
    faults: FaultInjection,
}

impl OpenState {
    /// Takes the raw endpoint again after the authority was away. Frames come and go meanwhile.
    fn keep(&mut self, board: &Board) {
        if self.session.as_ref().is_some_and(|session| !session.is_gone()) {
            return;
        }
        let back = Session::connect_to_running(board.interface()).ok().flatten();
        self.session = back.filter(|session| session.open_raw().is_ok());
    }
}

fn exhausted<E>(_: E) -> Fault {
    Fault::new(codes::NO_SYSTEM_RESOURCES)
}

impl RawEndpoint {
    /// Opens the only raw endpoint of a board.
    pub(crate) fn open(board: Board) -> Outcome<Self> {
        let unusable = |error: OmxdError| Fault::of_board(&board, error.into());
        let opened = Session::begin(board.interface(), |session| {
            session.open_raw()?;
            session.status()
        });
        let (session, (status, _)) = opened.map_err(unusable)?;
        let ether_type = EtherType(status.ether_type);
        let refused = |error| {
            Fault::new(match error {
                NetifError::NoPrivilege { .. } => codes::ACCESS_DENIED,
                NetifError::NoSuchInterface { .. } => codes::BOARD_NOT_FOUND,
                _ => codes::NO_SYSTEM_RESOURCES,
            })
        };
        let options = AfPacketOptions::default();
        let socket = PreparedSocket::new(&board.interface().name, ether_type, &options, &raw_frames());
        let port = AfPacket::from_prepared(socket.map_err(refused)?).map_err(refused)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK | EventfdFlags::SEMAPHORE;
        let completions = eventfd(0, flags).map_err(exhausted)?;
        let watched = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(exhausted)?;
        for fd in [port.as_fd(), completions.as_fd()] {
            epoll::add(&watched, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN).map_err(exhausted)?;
        }
        let mut faults = FaultInjection::default();
        for (what, every) in EndpointOptions::default().packet_loss {
            faults.set(what, every, std::process::id());
        }
        let state = OpenState {
            port,
            completed: VecDeque::new(),
            session: Some(session),
            faults,
        };
        Ok(Self {
            board,
            watched,
            completions,
            state: Mutex::new(Some(state)),
        })
    }

    /// Returns the endpoint's board.
    pub(crate) const fn board(&self) -> &Board {
        &self.board
    }

    /// Returns a descriptor that is readable while there may be an event.
    pub(crate) fn handle(&self) -> RawFd {
        self.watched.as_raw_fd()
    }

    fn lock(&self) -> MutexGuard<'_, Option<OpenState>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(&self, body: impl FnOnce(&mut OpenState) -> Outcome<T>) -> Outcome<T> {
        let mut state = self.lock();
        let state = state.as_mut().ok_or_else(|| Fault::new(codes::BAD_ENDPOINT))?;
        state.keep(&self.board);
        body(state)
    }

    /// Sees to it that the endpoint is open, with its authority.
    pub(crate) fn keep(&self) -> Outcome {
        self.with(|_| Ok(()))
    }

    /// Closes the endpoint; threads that wait for its events learn of it.
    pub(crate) fn close(&self) {
        drop(self.lock().take());
        self.tell();
    }

    fn tell(&self) {
        let _ = rustix::io::write(&self.completions, &1u64.to_ne_bytes());
    }

    /// Sends a whole frame.
    pub(crate) fn send(&self, frame: &[u8], context: u64) -> Outcome {
        self.with(|state| {
            if state.completed.len() >= COMPLETIONS_MAX {
                return Err(Fault::new(codes::NO_RESOURCES));
            }
            let is_lost = !state.faults.is_empty() && state.faults.hit(frame);
            let sent = if is_lost {
                Ok(true)
            } else {
                state.port.send(&[IoSlice::new(frame)])
            };
            match sent {
                Ok(true) => {
                    state.completed.push_back(context);
                    self.tell();
                    Ok(())
                }
                Ok(false) => Err(Fault::new(codes::NO_RESOURCES)),
                // The frame is longer than the interface takes, or the interface is off.
                Err(_) => Err(Fault::new(codes::NO_RESOURCES)),
            }
        })
    }

    /// Shows the next event to `take`, if there is one now.
    fn next(&self, state: &mut OpenState, take: &mut impl FnMut(RawEvent<'_>)) -> Outcome<bool> {
        if let Some(context) = state.completed.pop_front() {
            let _ = rustix::io::read(&self.completions, &mut [0; 8]);
            take(RawEvent::Sent(context));
            return Ok(true);
        }
        if let Some(frame) = state.port.poll_receive().map_err(exhausted)? {
            take(RawEvent::Received(frame));
            // A frame that is lent would keep the port readable.
            let _ = state.port.wait(Interest::Receive, Instant::now(), None);
            return Ok(true);
        }
        // The link went down: the socket reports it until it is read, and frames flow again when it is up.
        let _ = rustix::net::sockopt::socket_error(&state.port);
        Ok(false)
    }

    /// Shows the next event to `take`; no event within the time is no error.
    pub(crate) fn wait(&self, timeout: Duration, mut take: impl FnMut(RawEvent<'_>)) -> Outcome {
        let deadline = Instant::now() + timeout;
        loop {
            let mut session = None;
            let found = self.with(|state| {
                let found = self.next(state, &mut take)?;
                let there = state.session.as_ref().filter(|_| !found);
                session = there.and_then(|session| session.as_fd().try_clone_to_owned().ok());
                Ok(found)
            })?;
            let mut left = deadline.saturating_duration_since(Instant::now());
            if found || left.is_zero() {
                return Ok(());
            }
            if session.is_none() {
                left = left.min(SEEK);
            }
            let left = Timespec::try_from(left).ok();
            let mut fds = vec![PollFd::new(&self.watched, PollFlags::IN)];
            // The end of the connection is reported without being asked for.
            fds.extend(session.iter().map(|session| PollFd::new(session, PollFlags::empty())));
            match poll(&mut fds, left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(exhausted(error)),
            }
        }
    }
}

/// The open raw endpoints by their names.
struct Table {
    open: BTreeMap<usize, Arc<RawEndpoint>>,
    /// The next name: never 0, and never given twice, so that the name of a closed endpoint stays invalid.
    next: usize,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    open: BTreeMap::new(),
    next: 1,
});

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives an endpoint a name.
pub(crate) fn name(endpoint: RawEndpoint) -> usize {
    let mut table = table();
    let name = table.next;
    table.next += 1;
    table.open.insert(name, Arc::new(endpoint));
    name
}

/// Returns the endpoint with this name.
pub(crate) fn named(name: usize) -> Outcome<Arc<RawEndpoint>> {
    let found = table().open.get(&name).cloned();
    found.ok_or_else(|| Fault::new(codes::BAD_ENDPOINT))
}

/// Returns the endpoint with this name, which is not valid any more.
pub(crate) fn forget(name: usize) -> Outcome<Arc<RawEndpoint>> {
    let found = table().open.remove(&name);
    found.ok_or_else(|| Fault::new(codes::BAD_ENDPOINT))
}

/// Returns the board of the open endpoint with this handle.
pub(crate) fn board_of_handle(handle: RawFd) -> Option<Board> {
    let table = table();
    let found = table.open.values().find(|endpoint| endpoint.handle() == handle);
    found.map(|endpoint| endpoint.board.clone())
}
