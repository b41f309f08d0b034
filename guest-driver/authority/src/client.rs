//! The client of an interface's authority: a program opens endpoints and adds peers with it, and takes an open endpoint
//! back to an authority that was restarted.

mod stream_sockets;

use std::{
    fs::File,
    os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use mxoe::{
    engine::{DataPath, DataPathChoice},
    wire::Preset,
};
use netif::{
    AfPacket, Interface, Netif, PreparedDirect, PreparedSocket, VirtioPort,
    virtio::{CardAddress, CardFacts, PreparedPair},
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    io::fcntl_dupfd_cloexec,
    net::{Shutdown, shutdown},
    process::{Pid, getpid},
};

use crate::{
    BoardStatus, CounterPage, First, HandoverMemory, OmxdError, PeerTable, Place, QuarantinedSocket,
    counters::len_of,
    fd_quarantine, first,
    protocol::{self, Opened, QueuePair, Received, Refusal, Reply, Request, Visit},
    reach::{self, ANSWER_LIMIT, OPEN_LIMIT, Reached, START_LIMIT, START_PAUSE},
};

/// The time limit for requests that are made while a frame is being handled, or while an endpoint is locked: such a
/// caller cannot wait long.
const SOON: Duration = Duration::from_millis(100);
/// The time limit for an answer that came too late once already: callers do not wait for it again.
const OWED_LIMIT: Duration = Duration::from_millis(1);

/// A connection to the authority of one interface.
pub struct Session {
    interface: Interface,
    place: Place,
    socket: OwnedFd,
    /// The authority was started by a program, so that another one without settings may take its place.
    on_demand: bool,
    /// The number of answers that came too late or are still to come; they are dropped.
    owed: AtomicU32,
    /// Descriptors of ESP's part get numbers from here on.
    first_fd: RawFd,
    /// The process that made the session: a forked child has a copy that it must not use.
    process: Pid,
}

/// An endpoint as the authority handed it out.
pub struct OpenedEndpoint {
    /// Its number.
    pub endpoint: u8,
    /// The port on which its frames arrive.
    pub port: Box<dyn Netif + Send>,
    /// Bytes of frames that wait there at most, where that differs from what an endpoint usually has.
    pub receive_len: Option<usize>,
    /// The interface's peers.
    pub table: PeerTable,
    /// Sizes on the wire.
    pub preset: Preset,
    /// The board's name.
    pub board_name: String,
    /// [`mxoe::engine::Timing::pull_queue_ns_max`] of the interface.
    pub pull_queue_ns_max: u64,
    /// EtherType of its frames.
    pub ether_type: EtherType,
    /// The endpoint announces the latency mark.
    pub marks: bool,
    /// The path that data of long messages takes to the endpoint.
    pub data_path: DataPathChoice,
    /// The channel on which other endpoints of the interface show up: for [`next_visit`].
    pub visits: OwnedFd,
    /// The memory in which the endpoint publishes its counts.
    pub counters: CounterPage,
    /// The descriptor of that memory, if what the endpoint owes to its peers can be noted behind the counts.
    pub handover: Option<OwnedFd>,
}

/// What an endpoint gets anew from a new authority.
pub struct Resumed {
    /// The channel on which other endpoints show up from now on.
    pub visits: OwnedFd,
    /// The memory in which the endpoint publishes its counts from now on.
    pub counters: CounterPage,
    /// As in [`OpenedEndpoint`].
    pub handover: Option<OwnedFd>,
}

/// The memory and the socket that two endpoints of an interface share.
#[derive(Debug)]
pub struct Pair {
    /// Its number.
    pub id: u64,
    /// The other endpoint.
    pub endpoint: u8,
    /// This side asked for it.
    pub asked: bool,
    /// The socket is joined to the other endpoint's and preserves message boundaries; it says who sent a message
    /// (`SO_PASSCRED`).
    pub socket: QuarantinedSocket,
    /// The memory: [`crate::PAIR_MEMORY_LEN`] bytes of fixed length.
    pub memory: OwnedFd,
}

/// News about other endpoints of the interface.
#[derive(Debug)]
pub enum News {
    /// A pair was made, because this endpoint or the other one asked for it.
    Paired(Pair),
    /// A pair was asked for, but this process had no descriptors left for it. It must be named in the next
    /// [`Session::pair`].
    Missed {
        /// The pair's number.
        id: u64,
        /// The other endpoint.
        endpoint: u8,
    },
    /// The program of the other endpoint has ended, even if a child of it still has the socket.
    Over {
        /// The pair's number; `None` stands for any pair with the endpoint.
        id: Option<u64>,
        /// The other endpoint.
        endpoint: u8,
    },
}

/// Takes the next piece of news about other endpoints; `None` while there is none.
///
/// # Errors
/// [`OmxdError::Gone`] when the authority is gone, [`OmxdError::Protocol`].
pub fn next_visit(visits: BorrowedFd<'_>) -> Result<Option<News>, OmxdError> {
    let has_numbers = || {
        let number = || rustix::io::fcntl_dupfd_cloexec(visits, 0);
        number().is_ok_and(|_one| number().is_ok())
    };
    if first(visits, false) == First::Descriptors && !has_numbers() && fd_quarantine::is_available() {
        // The kernel would close descriptors for which there are no numbers here, and their sender may have made that
        // take long.
        let missed = protocol::receive_without::<Visit>(visits)?;
        return Ok(missed.map(|visit| News::Missed {
            id: visit.pair,
            endpoint: visit.endpoint,
        }));
    }
    let Some(Received { message, fds, cut }) = protocol::receive_cut::<Visit>(visits)? else {
        return Ok(None);
    };
    let (id, endpoint) = (message.pair, message.endpoint);
    if message.over {
        let id = (id != Visit::ANY_PAIR).then_some(id);
        return Ok(Some(News::Over { id, endpoint }));
    }
    let mut fds = fds.into_iter();
    let socket = fds.next().map(QuarantinedSocket::from);
    if cut {
        return Ok(Some(News::Missed { id, endpoint }));
    }
    let (Some(socket), Some(memory), None) = (socket, fds.next(), fds.next()) else {
        return Err(OmxdError::Protocol);
    };
    Ok(Some(News::Paired(Pair {
        id,
        endpoint,
        asked: message.asked,
        socket,
        memory,
    })))
}

impl Session {
    /// Connects to the authority of `interface`, and starts one if there is none and this process may. One that is being
    /// started again is waited for, [`crate::START_LIMIT`] at most.
    ///
    /// # Errors
    /// [`OmxdError`]: no authority and no privilege, not in the group, the authority did not start.
    pub fn connect(interface: &Interface) -> Result<Self, OmxdError> {
        let place = Place::of(interface.index)?;
        let reached = reach::patiently(interface, &place)?;
        Ok(Self::with(interface, place, reached))
    }

    /// Connects as [`Session::connect`] does, and makes the first request. An authority that ends before it has answered that is waited
    /// for, [`crate::START_LIMIT`] at most: nothing was opened yet that would have to be given back.
    ///
    /// # Errors
    /// Those of [`Session::connect`] and of `request`.
    pub fn begin<T>(
        interface: &Interface,
        request: impl Fn(&Self) -> Result<T, OmxdError>,
    ) -> Result<(Self, T), OmxdError> {
        let begin = Instant::now();
        loop {
            let session = Self::connect(interface)?;
            match request(&session) {
                Ok(answer) => return Ok((session, answer)),
                Err(OmxdError::Gone) if begin.elapsed() < START_LIMIT => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn with(interface: &Interface, place: Place, Reached { socket, on_demand }: Reached) -> Self {
        Self {
            interface: interface.clone(),
            place,
            socket,
            on_demand,
            owed: AtomicU32::new(0),
            first_fd: 0,
            process: getpid(),
        }
    }

    /// Connects to the authority of `interface` if one runs.
    ///
    /// # Errors
    /// As [`Session::connect`].
    pub fn connect_to_running(interface: &Interface) -> Result<Option<Self>, OmxdError> {
        let place = Place::of(interface.index)?;
        let reached = reach::running(interface, &place)?;
        Ok(reached.map(|reached| Self::with(interface, place, reached)))
    }

    /// Takes answers that came too late, after which none is missing.
    fn catch_up(&self, limit: Duration) -> Result<(), OmxdError> {
        while self.owed.load(Ordering::Relaxed) > 0 {
            let late = reach::hear(self.socket.as_fd(), limit);
            if matches!(late, Err(OmxdError::Late)) {
                return Err(OmxdError::Late);
            }
            // The answer is dropped. If the connection has ended, the next request notices it, too.
            self.owed.fetch_sub(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn request(&self, request: &Request, limit: Duration) -> Result<(Reply, Vec<OwnedFd>), OmxdError> {
        self.request_with(request, &[], limit)
    }

    fn request_with(
        &self,
        request: &Request,
        fds: &[BorrowedFd<'_>],
        limit: Duration,
    ) -> Result<(Reply, Vec<OwnedFd>), OmxdError> {
        self.catch_up(limit)?;
        let answer = reach::ask(self.socket.as_fd(), request, fds, limit);
        if matches!(answer, Err(OmxdError::Late)) {
            self.owed.fetch_add(1, Ordering::Relaxed);
        }
        answer
    }

    /// Makes a request whose answer may take long, and gives up when `stop` is readable: `None`.
    fn request_or_stop(
        &self,
        request: &Request,
        limit: Duration,
        stop: BorrowedFd<'_>,
    ) -> Result<Option<Reply>, OmxdError> {
        self.catch_up(ANSWER_LIMIT)?;
        protocol::send(self.socket.as_fd(), request, &[])?;
        // The next request takes an answer that nobody waits for any more.
        self.owed.fetch_add(1, Ordering::Relaxed);
        let mut fds = [
            PollFd::new(&self.socket, PollFlags::IN),
            PollFd::from_borrowed_fd(stop, PollFlags::IN),
        ];
        let left = Timespec::try_from(limit).ok();
        match poll(&mut fds, left.as_ref()) {
            Ok(0) => Err(OmxdError::Late),
            Ok(_) if fds[0].revents().is_empty() => Ok(None),
            Ok(_) => {
                self.owed.fetch_sub(1, Ordering::Relaxed);
                match reach::hear(self.socket.as_fd(), ANSWER_LIMIT)?.0 {
                    Reply::Refused { reason, sentence } => Err(OmxdError::Refused { reason, sentence }),
                    reply => Ok(Some(reply)),
                }
            }
            Err(Errno::INTR) => Ok(None),
            Err(error) => Err(OmxdError::io("wait for omxd")(error)),
        }
    }

    /// Makes a request for a caller that cannot wait.
    fn request_soon(&self, request: &Request) -> Result<(Reply, Vec<OwnedFd>), OmxdError> {
        self.catch_up(OWED_LIMIT)?;
        self.request(request, SOON)
    }

    /// Opens an endpoint, this number or the lowest that is free. It stays open as long as the connection. A number that is kept for a
    /// program from before the authority was restarted is waited for, [`crate::START_LIMIT`] at most.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] when it is open already or does not exist.
    pub fn open_endpoint(&self, endpoint: Option<u8>) -> Result<OpenedEndpoint, OmxdError> {
        let request = Request::Open {
            endpoint,
            command: command(),
            data_socket: true,
            rest_socket: true,
            direct_socket: true,
            handover: true,
        };
        // Where there is none, the endpoint's sockets have filters.
        let proof = PreparedSocket::proof().ok();
        let proof: Vec<_> = proof.iter().map(AsFd::as_fd).collect();
        let begin = Instant::now();
        loop {
            match self.request_with(&request, &proof, OPEN_LIMIT) {
                Ok((Reply::Opened(opened), fds)) => return Self::take(&opened, fds),
                Ok(_) => return Err(OmxdError::Protocol),
                // Kept for the program that had it before the authority was restarted. That one may have closed it meanwhile.
                Err(OmxdError::Refused {
                    reason: Refusal::NotBack,
                    sentence,
                }) => {
                    if begin.elapsed() > START_LIMIT {
                        let reason = Refusal::Busy;
                        return Err(OmxdError::Refused { reason, sentence });
                    }
                    thread::sleep(START_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Makes the port of an endpoint that has a queue pair of a card.
    fn take_pair(
        opened: &Opened,
        pair: &QueuePair,
        table: &PeerTable,
        memory: OwnedFd,
        fds: impl IntoIterator<Item = OwnedFd>,
    ) -> Result<VirtioPort, OmxdError> {
        let (route, place) = pair.place().ok_or(OmxdError::Protocol)?;
        let mut fds = fds.into_iter();
        let prepared = PreparedPair {
            facts: CardFacts {
                address: CardAddress::of_index(opened.interface_index).ok_or(OmxdError::Protocol)?,
                mac: table.own_mac(),
                mtu: opened.mtu,
                up: true,
            },
            route,
            place,
            memory,
            doorbells: fds.next().ok_or(OmxdError::Protocol)?,
            keep: fds.collect(),
        };
        Ok(VirtioPort::from_prepared(prepared, EtherType(opened.ether_type))?)
    }

    fn take(opened: &Opened, mut fds: Vec<OwnedFd>) -> Result<OpenedEndpoint, OmxdError> {
        let direct = match opened.direct_part {
            None => None,
            Some(part) => {
                let (memory, socket) = (fds.pop(), fds.pop());
                Some(PreparedDirect {
                    socket: socket.ok_or(OmxdError::Protocol)?,
                    memory: memory.ok_or(OmxdError::Protocol)?,
                    part,
                })
            }
        };
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or(OmxdError::Protocol);
        let (socket, table, visits, counters) = (next()?, next()?, next()?, next()?);
        let table = PeerTable::map(File::from(table))?;
        if let Some(pair) = &opened.queue_pair {
            let port = Self::take_pair(opened, pair, &table, socket, fds)?;
            let receive_len = Some(port.receive_len());
            let data_path = DataPathChoice::Fixed(DataPath::WithMessages);
            return Self::opened(opened, Box::new(port), receive_len, table, data_path, visits, counters);
        }
        let (mut bulk, mut sink) = (fds.next(), fds.next());
        if opened.rest_socket && sink.is_none() {
            sink = bulk.take();
        }
        let first = |bulk| if bulk { DataPath::Bulk } else { DataPath::WithMessages };
        let data_path = if bulk.is_some() && opened.learns_data_path {
            DataPathChoice::Learned(first(opened.bulk_path_first))
        } else {
            DataPathChoice::Fixed(first(bulk.is_some()))
        };
        let port = AfPacket::from_prepared(PreparedSocket {
            interface: opened.interface(table.own_mac()),
            layout: opened.layout(),
            socket,
            bulk,
            sink,
            direct,
        })?;
        Self::opened(opened, Box::new(port), None, table, data_path, visits, counters)
    }

    fn opened(
        opened: &Opened,
        port: Box<dyn Netif + Send>,
        receive_len: Option<usize>,
        table: PeerTable,
        data_path: DataPathChoice,
        visits: OwnedFd,
        counters: OwnedFd,
    ) -> Result<OpenedEndpoint, OmxdError> {
        Ok(OpenedEndpoint {
            endpoint: opened.endpoint,
            port,
            receive_len,
            table,
            preset: opened.preset.parse().map_err(|_| OmxdError::Protocol)?,
            board_name: opened.board_name.clone(),
            pull_queue_ns_max: opened.pull_queue_ns_max,
            ether_type: EtherType(opened.ether_type),
            marks: opened.marks,
            data_path,
            visits,
            counters: CounterPage::map(&counters)?,
            handover: handover_of(counters)?,
        })
    }

    /// Connects anew after the authority was gone.
    fn reconnect(&mut self) -> Result<(), OmxdError> {
        // An authority with settings is started again by the service that has its settings: another one would serve
        // without them, and block its start.
        let reached = if self.on_demand {
            reach::or_start(&self.interface, &self.place)?
        } else {
            reach::running(&self.interface, &self.place)?.ok_or(OmxdError::Gone)?
        };
        // A child process may have the connection, too; the number that it stands for is to be free.
        self.end();
        (self.socket, self.on_demand) = (self.placed(reached.socket), reached.on_demand);
        self.owed.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Moves the session's socket to a number from `first` on, where what comes with ESP's answers goes, too: for a library in a program
    /// that has a use of its own for low numbers. Where none is free, descriptors stay where they are.
    pub fn place_descriptors_from(&mut self, first: RawFd) {
        self.first_fd = first;
        if let Ok(moved) = fcntl_dupfd_cloexec(&self.socket, first) {
            self.socket = moved;
        }
    }

    /// Moves a descriptor to where this session's are.
    pub(crate) fn placed(&self, fd: OwnedFd) -> OwnedFd {
        if self.first_fd == 0 {
            return fd;
        }
        fcntl_dupfd_cloexec(&fd, self.first_fd).unwrap_or(fd)
    }

    /// Connects anew after the authority was gone, and takes the open endpoint back to the new one.
    ///
    /// # Errors
    /// As [`Session::connect`]; [`OmxdError::Refused`] if the number was given to another program in between.
    pub fn resume(&mut self, endpoint: u8) -> Result<Resumed, OmxdError> {
        self.reconnect()?;
        let request = Request::Resume {
            endpoint,
            command: command(),
            handover: true,
        };
        match self.request(&request, ANSWER_LIMIT)? {
            (Reply::Resumed, fds) => {
                let [visits, counters] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| OmxdError::Protocol)?;
                Ok(Resumed {
                    visits,
                    counters: CounterPage::map(&counters)?,
                    handover: handover_of(counters)?,
                })
            }
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Opens the raw endpoint of the interface, of which there is one. It stays open as long as the connection; frames come
    /// through a socket of the program's own.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] when it is open already, and unless the caller is root; [`OmxdError::Gone`].
    pub fn open_raw(&self) -> Result<(), OmxdError> {
        self.order(&Request::OpenRaw { command: command() })
    }

    /// Whether the authority is gone.
    pub fn is_gone(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
            && fds[0].revents().contains(PollFlags::HUP)
    }

    /// Asks for memory shared with another endpoint of the interface, which comes like a visit ([`next_visit`]): it is there when this
    /// returns, or comes later if the authority is late. `known`: the last pair with it, which is over.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] when it is not open or does not take its visits; [`OmxdError::Gone`], [`OmxdError::Late`].
    pub fn pair(&self, endpoint: u8, known: Option<u64>) -> Result<(), OmxdError> {
        match self.request_soon(&Request::Pair { endpoint, known })? {
            (Reply::Paired, _) => Ok(()),
            _ => Err(OmxdError::Protocol),
        }
    }

    /// Returns the index of a peer, which is added to the table if it is not there.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] when the table is full; [`OmxdError::Gone`], [`OmxdError::Late`].
    pub fn add_peer(&self, mac: MacAddr) -> Result<u16, OmxdError> {
        index_of(self.request(&Request::AddPeer { mac: mac.to_u64() }, ANSWER_LIMIT)?)
    }

    /// As [`Session::add_peer`], for a caller that cannot wait: an authority that does not answer soon counts as late.
    ///
    /// # Errors
    /// As [`Session::add_peer`].
    pub fn try_add_peer(&self, mac: MacAddr) -> Result<u16, OmxdError> {
        index_of(self.request_soon(&Request::AddPeer { mac: mac.to_u64() })?)
    }

    /// Returns what the authority knows of its interface, and its peer table.
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

    /// Sends a control frame to the card behind an interface whose card programs drive themselves, and returns the
    /// frames that it answers with.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] unless the caller is root, and where the kernel drives the card.
    pub fn converse(&self, frame: Vec<u8>) -> Result<Vec<Vec<u8>>, OmxdError> {
        match self.request(&Request::Converse { frame }, ANSWER_LIMIT)? {
            (Reply::Said { frames }, _) => Ok(frames),
            _ => Err(OmxdError::Protocol),
        }
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
    /// [`OmxdError::Refused`] unless the caller is root, and when the table is full; [`OmxdError::Gone`].
    pub fn set_name(&self, peer: Option<MacAddr>, name: &str) -> Result<(), OmxdError> {
        self.order(&Request::SetName {
            mac: peer.map(MacAddr::to_u64),
            name: name.to_owned(),
        })
    }

    /// Forgets the names of all peers; they are asked for anew.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] unless the caller is root; [`OmxdError::Gone`].
    pub fn clear_names(&self) -> Result<(), OmxdError> {
        self.order(&Request::ClearNames)
    }

    /// Counts from 0 from now on.
    ///
    /// # Errors
    /// [`OmxdError::Refused`] unless the caller is root; [`OmxdError::Gone`].
    pub fn clear_counters(&self) -> Result<(), OmxdError> {
        self.order(&Request::ClearCounters)
    }

    /// Tells the authority that this program is done, even if another process still watches the connection: the
    /// endpoint's number is free when the next request of any program is served.
    pub fn end(&self) {
        if self.process != getpid() {
            // This is a forked child that closes its parent's session. The parent goes on.
            return;
        }
        // Fails where the authority is gone, which is what is wanted.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Returns the interface.
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
    /// The descriptor hangs up when the authority is gone, and is readable when an answer has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Returns the endpoint's memory if there is more in it than counts.
fn handover_of(memory: OwnedFd) -> Result<Option<OwnedFd>, OmxdError> {
    Ok((len_of(&memory)? == HandoverMemory::END).then_some(memory))
}

/// Reads a peer's index from the answer.
fn index_of((reply, _): (Reply, Vec<OwnedFd>)) -> Result<u16, OmxdError> {
    match reply {
        Reply::Peer { index } => Ok(index),
        _ => Err(OmxdError::Protocol),
    }
}

/// Returns the name of this program: the one under which it was started, which says more than its file where one file
/// is many programs.
fn command() -> String {
    let called = std::env::args_os().next().unwrap_or_default();
    let own = || std::env::current_exe().unwrap_or_default();
    let path = if called.is_empty() { own() } else { called.into() };
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
