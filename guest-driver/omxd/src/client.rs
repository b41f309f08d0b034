//! How a program reaches the authority of an interface: it opens endpoints, adds peers, and takes an open endpoint back to an
//! authority that was restarted.

use std::{
    fs::File,
    io::ErrorKind,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use ether::MacAddr;
use mxoe::wire::Preset;
use netif::{AfPacket, Interface, PreparedSocket};
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown, socket_with,
    sockopt::{Timeout, set_socket_timeout},
};

use crate::{
    BoardStatus, CounterPage, OmxdError, PeerTable, Place,
    protocol::{self, Opened, Reply, Request, Visit},
    start,
};

/// An answer takes microseconds; an authority that needs longer than this is not there.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
/// A peer is added while a frame is being handled: nothing may wait long for it.
const PEER_LIMIT: Duration = Duration::from_millis(100);
/// Another process's authority is just starting, or an old one ending: this long until one listens.
pub(crate) const START_LIMIT: Duration = Duration::from_secs(5);
/// Between two tries meanwhile. Only trying tells when it is over: nothing becomes readable when another process lets go of a
/// file lock, or listens.
const START_PAUSE: Duration = Duration::from_millis(20);

/// A connection to the authority of one interface.
pub struct Session {
    interface: Interface,
    place: Place,
    socket: OwnedFd,
    /// The authority was started by a program: another one like it may take its place.
    on_demand: bool,
    /// Answers that came too late or are still to come: they are for nobody.
    owed: AtomicU32,
    over: bool,
}

/// An endpoint as the authority handed it out.
pub struct OpenedEndpoint {
    /// Its number.
    pub endpoint: u8,
    /// The port on which its frames arrive.
    pub port: AfPacket,
    /// The interface's peers.
    pub table: PeerTable,
    /// Sizes on the wire.
    pub preset: Preset,
    /// The board's name.
    pub board_name: String,
    /// Where other endpoints of the interface show up: for [`next_visit`].
    pub visits: OwnedFd,
    /// Where the endpoint shows its counts.
    pub counters: CounterPage,
}

/// What an endpoint gets anew from a new authority.
pub struct Resumed {
    /// Where other endpoints show up from now on.
    pub visits: OwnedFd,
    /// Where the endpoint shows its counts from now on.
    pub counters: CounterPage,
}

/// Memory and a socket that two endpoints of an interface have in common.
#[derive(Debug)]
pub struct Pair {
    /// Its number.
    pub id: u64,
    /// The other endpoint.
    pub endpoint: u8,
    /// Joined to the other endpoint's, keeping messages apart; it says who sent a message (`SO_PASSCRED`).
    pub socket: OwnedFd,
    /// [`crate::PAIR_MEMORY_LEN`] bytes whose length nobody can change.
    pub memory: OwnedFd,
}

/// What came of [`Session::meet`].
#[derive(Debug)]
pub enum Meeting {
    /// A new pair.
    New(Pair),
    /// The other endpoint was first: [`next_visit`] has the pair.
    Visiting,
}

/// The next pair that another endpoint made; `None` while there is none.
///
/// # Errors
/// [`OmxdError::Gone`] when the authority is gone, [`OmxdError::Protocol`].
pub fn next_visit(visits: BorrowedFd<'_>) -> Result<Option<Pair>, OmxdError> {
    let Some((visit, fds)) = protocol::receive::<Visit>(visits)? else {
        return Ok(None);
    };
    let [socket, memory] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
    Ok(Some(Pair {
        id: visit.pair,
        endpoint: visit.endpoint,
        socket,
        memory,
    }))
}

impl Session {
    /// Connects to the authority of `interface`, and starts one if there is none and this process may.
    ///
    /// # Errors
    /// [`OmxdError`]: no authority and no privilege, not in the group, the authority did not start.
    pub fn connect(interface: &Interface) -> Result<Self, OmxdError> {
        let place = Place::of(interface.index)?;
        let reached = Self::reach(interface, &place)?;
        Ok(Self::with(interface, place, reached))
    }

    fn with(interface: &Interface, place: Place, (socket, on_demand): (OwnedFd, bool)) -> Self {
        Self {
            interface: interface.clone(),
            place,
            socket,
            on_demand,
            owed: AtomicU32::new(0),
            over: false,
        }
    }

    /// Connects to the authority of `interface` if one runs.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub fn connect_to_running(interface: &Interface) -> Result<Option<Self>, OmxdError> {
        let place = Place::of(interface.index)?;
        let reached = Self::try_reach(interface, &place)?;
        Ok(reached.map(|reached| Self::with(interface, place, reached)))
    }

    /// For an authority that was set up for `interface`: one that was started on demand ends, or began to. False: the one
    /// there is stays.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub(crate) fn replace_on_demand(interface: &Interface) -> Result<bool, OmxdError> {
        let Some(session) = Self::connect_to_running(interface)? else {
            // It is just starting, or ending.
            thread::sleep(START_PAUSE);
            return Ok(true);
        };
        match session.order(&Request::GiveWay) {
            // It hangs up when everything it had is free.
            Ok(()) => match Self::hear(session.socket.as_fd(), ANSWER_LIMIT) {
                Err(OmxdError::Gone) => Ok(true),
                Err(error) => Err(error),
                Ok(_) => Err(OmxdError::Protocol),
            },
            Err(OmxdError::Gone) => Ok(true),
            Err(OmxdError::Refused { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn reach(interface: &Interface, place: &Place) -> Result<(OwnedFd, bool), OmxdError> {
        if let Some(reached) = Self::try_reach(interface, place)? {
            return Ok(reached);
        }
        if !start::may_start() {
            return Err(OmxdError::NoAuthority {
                interface: interface.name.clone(),
            });
        }
        // Another one may own the interface: one that is just starting, or one that was killed and is not quite gone.
        let begin = Instant::now();
        loop {
            // It may have been renamed since.
            start::start(&Interface::find_by_index(interface.index)?.name)?;
            if let Some(reached) = Self::try_reach(interface, place)? {
                return Ok(reached);
            }
            if begin.elapsed() > START_LIMIT {
                return Err(OmxdError::NotStarted {
                    sentence: "another one owns the interface and does not listen".to_owned(),
                });
            }
            thread::sleep(START_PAUSE);
        }
    }

    fn try_reach(interface: &Interface, place: &Place) -> Result<Option<(OwnedFd, bool)>, OmxdError> {
        let path = place.socket();
        let address = SocketAddrUnix::new(path.as_os_str().as_bytes()).map_err(OmxdError::io("name omxd's socket"))?;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(OmxdError::io("open a socket"))?;
        match connect(&socket, &address).map_err(std::io::Error::from) {
            Ok(()) => Self::greet(socket),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(None),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(OmxdError::NotInGroup {
                interface: interface.name.clone(),
            }),
            Err(error) => Err(OmxdError::io("connect to omxd")(error)),
        }
    }

    /// A connection counts when the authority answers: one that is about to end still takes connections.
    fn greet(socket: OwnedFd) -> Result<Option<(OwnedFd, bool)>, OmxdError> {
        match Self::ask(socket.as_fd(), &Request::Hello, ANSWER_LIMIT) {
            Ok((Reply::Hello { on_demand }, _)) => Ok(Some((socket, on_demand))),
            Ok(_) => Err(OmxdError::Protocol),
            Err(OmxdError::Late) => Ok(None),
            // It may have hung up with a word.
            Err(OmxdError::Gone) => match Self::hear(socket.as_fd(), ANSWER_LIMIT) {
                Ok((Reply::Refused { reason, sentence }, _)) => Err(OmxdError::Refused { reason, sentence }),
                _ => Ok(None),
            },
            Err(error) => Err(error),
        }
    }

    fn request(&self, request: &Request, limit: Duration) -> Result<(Reply, Vec<OwnedFd>), OmxdError> {
        while self.owed.load(Ordering::Relaxed) > 0 {
            Self::hear(self.socket.as_fd(), limit)?;
            self.owed.fetch_sub(1, Ordering::Relaxed);
        }
        let answer = Self::ask(self.socket.as_fd(), request, limit);
        if matches!(answer, Err(OmxdError::Late)) {
            self.owed.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    /// The next answer, or no authority.
    fn hear(socket: BorrowedFd<'_>, limit: Duration) -> Result<(Reply, Vec<OwnedFd>), OmxdError> {
        set_socket_timeout(socket, Timeout::Recv, Some(limit)).map_err(OmxdError::io("limit the wait for omxd"))?;
        protocol::receive(socket)?.ok_or(OmxdError::Late)
    }

    fn ask(socket: BorrowedFd<'_>, request: &Request, limit: Duration) -> Result<(Reply, Vec<OwnedFd>), OmxdError> {
        protocol::send(socket, request, &[])?;
        let (reply, fds) = Self::hear(socket, limit)?;
        if let Reply::Refused { reason, sentence } = reply {
            return Err(OmxdError::Refused { reason, sentence });
        }
        Ok((reply, fds))
    }

    /// Opens an endpoint, this number or the lowest that is free. It stays open as long as the connection.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] when it is open already or does not exist.
    pub fn open_endpoint(&self, endpoint: Option<u8>) -> Result<OpenedEndpoint, OmxdError> {
        let request = Request::Open {
            endpoint,
            command: command(),
        };
        let (Reply::Opened(opened), fds) = self.request(&request, ANSWER_LIMIT)? else {
            return Err(OmxdError::Protocol);
        };
        Self::take(&opened, fds)
    }

    fn take(opened: &Opened, fds: Vec<OwnedFd>) -> Result<OpenedEndpoint, OmxdError> {
        let [socket, table, visits, counters] = <[OwnedFd; 4]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
        let table = PeerTable::map(File::from(table))?;
        let port = AfPacket::from_prepared(PreparedSocket {
            interface: opened.interface(table.own_mac()),
            layout: opened.layout(),
            socket,
        })?;
        Ok(OpenedEndpoint {
            endpoint: opened.endpoint,
            port,
            table,
            preset: opened.preset.parse().map_err(|_| OmxdError::Protocol)?,
            board_name: opened.board_name.clone(),
            visits,
            counters: CounterPage::map(counters)?,
        })
    }

    /// Connects anew after the authority was gone, and takes the open endpoint back to the new one.
    ///
    /// # Errors
    /// As [`Session::connect`]; [`OmxdError::Refused`] if the number was given to another program in between.
    pub fn resume(&mut self, endpoint: u8) -> Result<Resumed, OmxdError> {
        // One with settings is started again by whoever gave it those: another one would serve without them, and be in
        // its way.
        (self.socket, self.on_demand) = if self.on_demand {
            Self::reach(&self.interface, &self.place)?
        } else {
            Self::try_reach(&self.interface, &self.place)?.ok_or(OmxdError::Gone)?
        };
        self.owed.store(0, Ordering::Relaxed);
        let request = Request::Resume {
            endpoint,
            command: command(),
        };
        match self.request(&request, ANSWER_LIMIT)? {
            (Reply::Resumed, fds) => {
                let [visits, counters] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
                let counters = CounterPage::map(counters)?;
                Ok(Resumed { visits, counters })
            }
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Memory shared with another endpoint of the interface. `known`: the last pair with it, which is over.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] when it is not open or does not look; [`OmxdError::Gone`].
    pub fn meet(&self, endpoint: u8, known: Option<u64>) -> Result<Meeting, OmxdError> {
        match self.request(&Request::Meet { endpoint, known }, ANSWER_LIMIT)? {
            (Reply::MetAlready, _) => Ok(Meeting::Visiting),
            (Reply::Met { pair }, fds) => {
                let [socket, memory] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
                Ok(Meeting::New(Pair {
                    id: pair,
                    endpoint,
                    socket,
                    memory,
                }))
            }
            _ => Err(OmxdError::Protocol),
        }
    }

    /// The index of a peer, which is added to the table if it is not there.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] when the table is full; [`OmxdError::Gone`], [`OmxdError::Late`].
    pub fn add_peer(&self, mac: MacAddr) -> Result<u16, OmxdError> {
        self.add_peer_within(mac, ANSWER_LIMIT)
    }

    /// The same for a caller that cannot wait: an authority that does not answer at once is late.
    ///
    /// # Errors
    /// As [`Session::add_peer`].
    pub fn add_peer_at_once(&self, mac: MacAddr) -> Result<u16, OmxdError> {
        self.add_peer_within(mac, PEER_LIMIT)
    }

    fn add_peer_within(&self, mac: MacAddr, limit: Duration) -> Result<u16, OmxdError> {
        match self.request(&Request::AddPeer { mac: mac.to_u64() }, limit)? {
            (Reply::Peer { index }, _) => Ok(index),
            _ => Err(OmxdError::Protocol),
        }
    }

    /// What the authority knows of its interface, and its peer table.
    ///
    /// # Errors
    /// [`OmxdError::Gone`].
    pub fn status(&self) -> Result<(BoardStatus, PeerTable), OmxdError> {
        let (Reply::Status(status), fds) = self.request(&Request::Status, ANSWER_LIMIT)? else {
            return Err(OmxdError::Protocol);
        };
        let table = fds.into_iter().next().ok_or(OmxdError::Protocol)?;
        Ok((status, PeerTable::map(File::from(table))?))
    }

    fn order(&self, request: &Request) -> Result<(), OmxdError> {
        match self.request(request, ANSWER_LIMIT)? {
            (Reply::Done, _) => Ok(()),
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Names the board, or a peer, which is added if it is not there.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] for anybody but root, and when the table is full; [`OmxdError::Gone`].
    pub fn set_name(&self, peer: Option<MacAddr>, name: &str) -> Result<(), OmxdError> {
        self.order(&Request::SetName {
            mac: peer.map(MacAddr::to_u64),
            name: name.to_owned(),
        })
    }

    /// Forgets the names of all peers; they are asked for anew.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] for anybody but root; [`OmxdError::Gone`].
    pub fn clear_names(&self) -> Result<(), OmxdError> {
        self.order(&Request::ClearNames)
    }

    /// Counts from 0 from now on.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] for anybody but root; [`OmxdError::Gone`].
    pub fn clear_counters(&self) -> Result<(), OmxdError> {
        self.order(&Request::ClearCounters)
    }

    /// The authority learns at once that this program is done, whoever else still watches the connection: the endpoint's
    /// number is free when the next request of anybody is served.
    pub fn end(&mut self) {
        self.over = true;
        // Fails where the authority is gone, which is what is wanted.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Whether [`Session::end`] was called: an authority that is gone is not looked for any more.
    pub const fn is_over(&self) -> bool {
        self.over
    }

    /// The interface.
    pub const fn interface(&self) -> &Interface {
        &self.interface
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.end();
    }
}

impl AsFd for Session {
    /// Becomes readable when the authority is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What this program is called: by the name it was started under, which says more than its file where one file is many
/// programs.
fn command() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    let own = || std::env::current_exe().unwrap_or_default();
    let path = if called.is_empty() { own() } else { called.into() };
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
