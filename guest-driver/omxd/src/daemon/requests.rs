//! The requests of programs and their answers: endpoints, peers, names, counters, and memory shared with another
//! endpoint.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ether::MacAddr;
use mxoe::engine::{Counters, Peers};
use netif::{
    AfPacket, AfPacketOptions, Instruction, Interface, NetifError, PreparedDirect, PreparedSocket, RingLayout,
    virtio::{PreparedPair, Route},
};

use super::{Daemon, OWN_RING_TURNS, Sharing};
use weft_authority::{
    BoardStatus, OmxdError, OpenEndpoint, RAW_ENDPOINT,
    protocol::{self, Opened, QueuePair, Refusal, Reply, Request},
};

use crate::{
    card,
    filter::{self, Members},
    own_port::OwnPort,
    owners::{self, Owned, Program},
    setup::{self, choose_preset, cut_name},
};

/// Longest name of a program that is kept.
const COMMAND_LEN_MAX: usize = 64;

const RIGHT_COUNTERS: u8 = 1;
const RIGHT_NAME: u8 = 2;
const RIGHT_PEERS: u8 = 4;

/// Returns the bit of [`super::DaemonOptions::user_rights`] that a request needs; 0: none.
const fn right_for(request: &Request) -> u8 {
    match request {
        Request::ClearCounters => RIGHT_COUNTERS,
        Request::SetName { mac: None, .. } => RIGHT_NAME,
        Request::SetName { mac: Some(_), .. } | Request::ClearNames => RIGHT_PEERS,
        _ => 0,
    }
}

const fn what(right: u8) -> &'static str {
    match right {
        RIGHT_COUNTERS => "counters",
        RIGHT_NAME => "the board's name",
        _ => "the peer table",
    }
}

fn mac_of(number: u64) -> MacAddr {
    let bytes = number.to_be_bytes();
    MacAddr([bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
}

/// The sockets of one endpoint.
struct Sockets {
    layout: RingLayout,
    ring: OwnedFd,
    bulk: Option<OwnedFd>,
    /// A socket that receives nothing but in a group: there it gets all other frames when there is no authority. The
    /// other sockets then have no filters.
    sink: Option<OwnedFd>,
    /// A socket for direct transmit, which receives nothing either and is no packet socket.
    direct: Option<PreparedDirect>,
}

impl Sockets {
    const fn members(&self) -> Members {
        Members {
            data: self.bulk.is_some(),
            sink: self.sink.is_some(),
        }
    }

    fn all(&self) -> impl Iterator<Item = (BorrowedFd<'_>, RingLayout)> {
        fn page(socket: &OwnedFd) -> (BorrowedFd<'_>, RingLayout) {
            (socket.as_fd(), RingLayout::page())
        }
        let ring = (self.ring.as_fd(), self.layout);
        // In the order in which they were made, as `Members` has them.
        [self.bulk.as_ref().map(page), Some(ring), self.sink.as_ref().map(page)]
            .into_iter()
            .flatten()
    }
}

/// What a program gets for an endpoint.
enum Given {
    Sockets(Sockets),
    /// A queue pair of a card.
    Pair(PreparedPair),
}

impl Given {
    /// Lists all descriptors of the answer, with those that every endpoint gets.
    fn descriptors<'a>(&'a self, [table, visits, counters]: [BorrowedFd<'a>; 3]) -> Vec<BorrowedFd<'a>> {
        match self {
            Self::Sockets(sockets) => {
                let mut fds = vec![sockets.ring.as_fd(), table, visits, counters];
                fds.extend([&sockets.bulk, &sockets.sink].into_iter().flatten().map(AsFd::as_fd));
                if let Some(direct) = &sockets.direct {
                    fds.extend([direct.socket.as_fd(), direct.memory.as_fd()]);
                }
                fds
            }
            Self::Pair(pair) => {
                let mut fds = vec![pair.memory.as_fd(), table, visits, counters, pair.doorbells.as_fd()];
                fds.extend(pair.keep.iter().map(AsFd::as_fd));
                fds
            }
        }
    }
}

/// The wishes of a program that opens an endpoint.
#[derive(Clone, Copy)]
struct Wish {
    /// The number that is wanted; `None` stands for any.
    endpoint: Option<u8>,
    /// The program can use a second socket, for bulk data.
    data_socket: bool,
    /// The program may have sockets without filters.
    unfiltered: bool,
    /// The program can use a socket for direct transmit.
    direct_socket: bool,
    /// The program is root's, or of the user of this authority.
    privileged: bool,
    /// The program notes what it owes.
    handover: bool,
}

/// Returns what is kept of a program's name for itself: it can choose any, which is shown on terminals.
pub(super) fn kept_command(mut command: String) -> String {
    command.truncate(command.floor_char_boundary(COMMAND_LEN_MAX));
    command.replace(char::is_control, "?")
}

/// Makes the answer to a program that lacks the right for its request.
const fn not_allowed(sentence: String) -> Reply {
    Reply::Refused {
        reason: Refusal::NotAllowed,
        sentence,
    }
}

/// Makes the answer to a program when an endpoint could not be opened.
fn refusal(error: OmxdError) -> (Refusal, String) {
    let reason = match error {
        OmxdError::Interface(NetifError::Io { .. }) | OmxdError::Io { .. } => Refusal::System,
        _ => Refusal::Interface,
    };
    (reason, error.to_string())
}

/// The sockets that an endpoint is to have.
#[derive(Clone, Copy)]
struct Wanted {
    /// One socket is for bulk data.
    data: bool,
    /// No socket has a filter.
    unfiltered: bool,
}

impl Daemon {
    /// Records the program, so that the next authority gives the endpoint back to this program only.
    fn remember_owner(&self, endpoint: u8, program: &Program) {
        if let Err(error) = owners::write(self.table.private_file(), Owned::Endpoint(endpoint), program) {
            tracing::warn!("endpoint {endpoint} will not be known again when omxd is restarted: {error}");
        }
    }

    /// Answers the connection at this place; `shows_proof`: its program could read every frame.
    pub(super) fn answer(&mut self, at: usize, request: Request, shows_proof: bool) -> Result<(), OmxdError> {
        if matches!(
            request,
            Request::Open { .. } | Request::Resume { .. } | Request::OpenRaw { .. }
        ) {
            self.release_what_is_over();
        }
        let answer = match request {
            _ if !self.has_right(at, &request) => not_allowed(format!(
                "only root may change {} (`omxd --user-rights` says who else)",
                what(right_for(&request))
            )),
            Request::Hello => Reply::Hello {
                on_demand: self.options.on_demand,
            },
            Request::GiveWay if self.options.on_demand && self.clients.connections[at].privileged => {
                self.state.is_replaced = true;
                Reply::Done
            }
            Request::GiveWay => not_allowed("this omxd stays".to_owned()),
            Request::Open {
                endpoint,
                command,
                data_socket,
                rest_socket,
                direct_socket,
                handover,
            } => {
                let wish = Wish {
                    endpoint,
                    data_socket,
                    // A filter keeps nothing from a program that may read every frame.
                    unfiltered: rest_socket && shows_proof,
                    direct_socket,
                    privileged: self.clients.connections[at].privileged,
                    handover,
                };
                return self.answer_open(at, wish, command);
            }
            Request::Resume {
                endpoint,
                command,
                handover,
            } => return self.answer_resume(at, endpoint, command, handover),
            Request::OpenRaw { command } => self.open_raw(at, command),
            Request::AddPeer { mac } => self.add_peer(at, mac_of(mac)),
            Request::SetName { mac, name } => self.set_name(mac, &name),
            Request::ClearNames => self.clear_names(),
            Request::ClearCounters => {
                let own = self.own_counts();
                self.counters.clear(own.values());
                if let Some(esp) = self.esp.on() {
                    esp.clear_counters();
                }
                Reply::Done
            }
            Request::Pair { endpoint, known } => {
                let id = self.clients.connections[at].id;
                self.pairing.pair(id, endpoint, known, &self.endpoints)
            }
            Request::Converse { frame } => self.converse(at, &frame),
            Request::Esp(request) => return self.answer_esp(at, request),
            Request::Status => {
                let status = Reply::Status(self.status());
                return self.say(at, &status, &[self.table.readable()]);
            }
        };
        self.say(at, &answer, &[])
    }

    pub(super) fn say(&self, at: usize, reply: &Reply, fds: &[BorrowedFd<'_>]) -> Result<(), OmxdError> {
        protocol::send(self.clients.connections[at].socket.as_fd(), reply, fds)
    }

    /// Whether the program of this connection may make this request.
    fn has_right(&self, at: usize, request: &Request) -> bool {
        let right = right_for(request);
        self.clients.connections[at].privileged || right & self.options.user_rights == right
    }

    /// Describes the program of this connection and its endpoint; `command` is the program's own name for itself.
    fn who(&self, at: usize, endpoint: u8, command: String) -> OpenEndpoint {
        OpenEndpoint {
            endpoint,
            pid: self.clients.connections[at].pid,
            command: kept_command(command),
        }
    }

    /// Opens an endpoint for this connection, and answers.
    fn answer_open(&mut self, at: usize, wish: Wish, command: String) -> Result<(), OmxdError> {
        let (id, pid, user) = (
            self.clients.connections[at].id,
            self.clients.connections[at].pid,
            self.clients.connections[at].user,
        );
        let (opened, given) = match self.open(wish, id, user) {
            Ok(opened) => opened,
            Err((reason, sentence)) => return self.say(at, &Reply::Refused { reason, sentence }, &[]),
        };
        // A connection stands for one endpoint.
        self.release_endpoint(id);
        let visits = self.pairing.open(id)?;
        let counters = self.counters.open(id, wish.handover)?;
        self.endpoints.finishers.forget(opened.endpoint);
        self.remember_owner(opened.endpoint, &Program::new(user, pid));
        self.endpoints.give(id, self.who(at, opened.endpoint, command));
        self.endpoints_changed();
        let fds = given.descriptors([self.table.readable(), visits.as_fd(), counters.as_fd()]);
        self.say(at, &Reply::Opened(opened), &fds)
    }

    /// Takes an endpoint of an earlier authority back for this connection, and answers.
    fn answer_resume(&mut self, at: usize, endpoint: u8, command: String, handover: bool) -> Result<(), OmxdError> {
        let id = self.clients.connections[at].id;
        let program = Program::new(self.clients.connections[at].user, self.clients.connections[at].pid);
        let who = self.who(at, endpoint, command);
        if self.port.card().is_some() && !self.endpoints.is_expected(endpoint) {
            let reason = Refusal::Busy;
            let sentence =
                format!("the card was set up anew, without the queue pair that endpoint {endpoint} had; open it again");
            return self.say(at, &Reply::Refused { reason, sentence }, &[]);
        }
        if let Err((reason, sentence)) = self.endpoints.take_back(id, who, &program) {
            return self.say(at, &Reply::Refused { reason, sentence }, &[]);
        }
        self.remember_owner(endpoint, &program);
        self.endpoints_changed();
        let visits = self.pairing.open_again(id, endpoint)?;
        let counters = self.counters.open(id, handover)?;
        self.endpoints.finishers.forget(endpoint);
        self.say(at, &Reply::Resumed, &[visits.as_fd(), counters.as_fd()])
    }

    fn converse(&mut self, at: usize, frame: &[u8]) -> Reply {
        if !self.clients.connections[at].privileged {
            return not_allowed("only root may talk with the card".to_owned());
        }
        match self.port.card() {
            Some(own) => match card::converse(own, frame) {
                Ok(frames) => Reply::Said { frames },
                Err(error) => {
                    let (reason, sentence) = refusal(error);
                    Reply::Refused { reason, sentence }
                }
            },
            None => not_allowed("the kernel drives this card: talk with it by a packet socket".to_owned()),
        }
    }

    fn open_raw(&mut self, at: usize, command: String) -> Reply {
        if !self.clients.connections[at].privileged {
            return not_allowed("only root may open the raw endpoint".to_owned());
        }
        if let Some((_, open)) = &self.clients.raw {
            return Reply::Refused {
                reason: Refusal::Busy,
                sentence: format!(
                    "the raw endpoint is open already, by process {} ({})",
                    open.pid, open.command
                ),
            };
        }
        self.clients.raw = Some((self.clients.connections[at].id, self.who(at, RAW_ENDPOINT, command)));
        self.authority.set_raw_open(true);
        Reply::Done
    }

    fn add_peer(&mut self, at: usize, mac: MacAddr) -> Reply {
        let is_new = self.table.index(mac).is_none();
        let user = self.clients.connections[at].user;
        let index = if self.clients.connections[at].privileged || self.options.user_rights & RIGHT_PEERS != 0 {
            self.table.index_or_add(mac)
        } else {
            self.table.index_or_add_for(mac, user)
        };
        self.added(mac, is_new, index)
    }

    /// Returns what happened to frames for no open endpoint.
    fn own_counts(&self) -> Counters {
        let mut counters = self.authority.counters().clone();
        self.endpoints.finishers.add_to(&mut counters);
        counters
    }

    fn clear_names(&mut self) -> Reply {
        for index in 1..self.table.table().len() {
            self.table.set_name(index, b"");
        }
        self.authority.clear_names(self.now());
        // The board's own name stays.
        self.authority.set_name(0, self.board.name.as_bytes());
        Reply::Done
    }

    /// Makes the answer when a peer was wanted and, perhaps, added.
    fn added(&mut self, mac: MacAddr, is_new: bool, index: Option<u16>) -> Reply {
        match index {
            Some(index) => {
                if is_new {
                    self.authority.peer_added(self.now(), index);
                }
                Reply::Peer { index }
            }
            None => Reply::Refused {
                reason: Refusal::NoPeer,
                sentence: format!(
                    "{mac} is no peer's address, or the peer table is full ({} peers) or static, or has {} peers of this user",
                    self.table.limit(),
                    self.table.user_limit()
                ),
            },
        }
    }

    fn set_name(&mut self, mac: Option<u64>, name: &str) -> Reply {
        let name = cut_name(name);
        let index = match mac {
            None => {
                self.board.name.clone_from(&name);
                self.authority.set_own_name(name.as_bytes());
                0
            }
            Some(mac) => {
                let mac = mac_of(mac);
                let is_new = self.table.index(mac).is_none();
                let index = self.table.add(mac);
                match self.added(mac, is_new, index) {
                    Reply::Peer { index } => index,
                    refused => return refused,
                }
            }
        };
        self.authority.set_name(index, name.as_bytes());
        self.table.set_name(index, name.as_bytes());
        Reply::Done
    }

    /// Opens an endpoint, if possible with a bulk path and without filters, and with direct transmit if this user may
    /// have it.
    fn open(&mut self, wish: Wish, connection: u64, user: u32) -> Result<(Opened, Given), (Refusal, String)> {
        self.may_open_pair(wish.privileged)?;
        let endpoint = self.endpoints.choose(wish.endpoint)?;
        let interface = Interface::find_by_index(self.board.interface.index).map_err(|error| refusal(error.into()))?;
        choose_preset(&interface, Some(self.board.preset)).map_err(refusal)?;
        let driver = interface.driver();
        let pull_queue_ns_max = self
            .options
            .pull_queue_ns_max
            .unwrap_or_else(|| setup::pull_queue_ns_max(driver.as_deref()));
        let opened = Opened {
            endpoint,
            interface_name: interface.name.clone(),
            interface_index: interface.index,
            mtu: interface.mtu,
            block_len: 0,
            blocks: 0,
            slot_len: 0,
            preset: self.board.preset.to_string(),
            board_name: self.board.name.clone(),
            pull_queue_ns_max,
            ether_type: self.options.ether_type.0,
            marks: self.options.marks,
            learns_data_path: self.options.data_socket.is_none(),
            bulk_path_first: setup::bulk_path_comes_first(interface.mtu),
            rest_socket: false,
            direct_part: None,
            queue_pair: None,
        };
        let frames = self.frames();
        if let Some(own) = self.port.card() {
            let pair = self.pairs.open(own, endpoint, frames).map_err(refusal)?;
            let queue_pair = Some(QueuePair::new(pair.route, pair.place));
            return Ok((Opened { queue_pair, ..opened }, Given::Pair(pair)));
        }
        // Another socket in the kernel's lookup of each frame costs all others more than it saves its endpoint.
        let another_shares = self.shares_with_open();
        let by_default = || !another_shares && setup::has_data_socket(driver.as_deref());
        let wanted = Wanted {
            data: wish.data_socket && self.options.data_socket.unwrap_or_else(by_default),
            unfiltered: wish.unfiltered && !another_shares,
        };
        let mut sockets = self
            .make_sockets(&interface, endpoint, connection, wanted)
            .map_err(|error| refusal(error.into()))?;
        let direct_for = wish.direct_socket.then_some(user);
        let open = self.endpoints.open();
        sockets.direct = direct_for.and_then(|user| self.latency.direct.socket(&interface, endpoint, user, open));
        let opened = Opened {
            block_len: sockets.layout.block_len,
            blocks: sockets.layout.blocks,
            slot_len: sockets.layout.slot_len,
            rest_socket: sockets.sink.is_some(),
            direct_part: sockets.direct.as_ref().map(|direct| direct.part),
            ..opened
        };
        Ok((opened, Given::Sockets(sockets)))
    }

    /// Refuses an endpoint where it would need a queue pair of a card that it cannot have.
    fn may_open_pair(&mut self, privileged: bool) -> Result<(), (Refusal, String)> {
        let Some(own) = self.port.card() else { return Ok(()) };
        if !privileged {
            let sentence = match own.card.route() {
                Route::Uio => "endpoints on this card are for root: a program with a ring of it reaches all memory",
                Route::Vfio => {
                    "endpoints on this card are for root and the user of its omxd: a program with a ring of it reaches the others"
                }
            };
            return Err((Refusal::NotAllowed, sentence.to_owned()));
        }
        if own.card.pairs() < 2 {
            let sentence = "the card has one queue pair, which omxd uses; an endpoint needs one, too (`queue_pairs` in a lab file)";
            return Err((Refusal::Busy, sentence.to_owned()));
        }
        Ok(())
    }

    /// Makes sockets for an endpoint, which share the kernel's lookup if possible.
    fn make_sockets(
        &mut self,
        interface: &Interface,
        endpoint: u8,
        connection: u64,
        mut wanted: Wanted,
    ) -> Result<Sockets, NetifError> {
        let mut sockets = self.prepare(interface, endpoint, wanted)?;
        let mut shares = self.share_lookup(&sockets, endpoint, connection);
        if let Err(error) = &shares {
            tracing::debug!(
                "{error}; the kernel looks up each frame separately for each socket of endpoint {endpoint}"
            );
            wanted.unfiltered = false;
            wanted.data &= self.options.data_socket.is_some();
            sockets = self.prepare(interface, endpoint, wanted)?;
            shares = Ok(false);
        }
        if matches!(shares, Ok(false)) {
            // Also where there are no groups: there may have been some before, or be some with the next authority, and
            // a socket in no group can be bound to all that the host sends.
            for (socket, _) in sockets.all() {
                PreparedSocket::keep_alone(socket)?;
            }
        }
        Ok(sockets)
    }

    /// Prepares sockets for an endpoint; one for bulk data only if this process may give it enough memory.
    fn prepare(&self, interface: &Interface, endpoint: u8, wanted: Wanted) -> Result<Sockets, NetifError> {
        let none: &[Instruction] = &[];
        let prepare_bulk = || {
            let filter = filter::for_data(endpoint);
            let filter = if wanted.unfiltered { none } else { &filter };
            let bulk = PreparedSocket::bulk(interface, self.options.ether_type, self.options.ring_len, filter);
            bulk.inspect_err(|error| {
                let sentence = format!("{error}; data for endpoint {endpoint} comes through its ring");
                if self.options.data_socket.is_some() {
                    tracing::warn!("{sentence}");
                } else {
                    tracing::debug!("{sentence}");
                }
            })
            .ok()
        };
        let bulk = wanted.data.then(prepare_bulk).flatten();
        let options = AfPacketOptions {
            ring_len: self.options.ring_len,
            linear_head: true,
            ..AfPacketOptions::default()
        };
        let filter = match &bulk {
            Some(_) => filter::for_messages(endpoint),
            None => filter::for_endpoint(endpoint),
        };
        let filter = if wanted.unfiltered { none } else { &filter };
        let prepared = PreparedSocket::new(&interface.name, self.options.ether_type, &options, filter)?;
        let sink = || PreparedSocket::sink(interface, self.options.ether_type);
        Ok(Sockets {
            layout: prepared.layout,
            ring: prepared.socket,
            bulk,
            sink: wanted.unfiltered.then(sink).transpose()?,
            direct: None,
        })
    }

    /// Makes this endpoint's sockets and the authority's port share the kernel's lookup of each frame, unless another
    /// open endpoint's do. Returns whether they share it. One socket that has a filter would gain nothing.
    fn share_lookup(&mut self, sockets: &Sockets, endpoint: u8, connection: u64) -> Result<bool, NetifError> {
        let members = sockets.members();
        if !(members.data || members.sink) || self.shares_with_open() {
            return Ok(false);
        }
        // A group's port must be the youngest of its sockets.
        let port = self.new_port()?;
        let program = filter::among_sockets(endpoint, members);
        let lookup = port.share_lookup(&sockets.all().collect::<Vec<_>>(), &program)?;
        let shares = Sharing {
            endpoint,
            connection,
            _lookup: lookup,
        };
        self.replace_port(port, Some(shares));
        Ok(true)
    }

    fn shares_with_open(&self) -> bool {
        self.shares
            .as_ref()
            .is_some_and(|shares| self.endpoints.connection_of(shares.endpoint) == Some(shares.connection))
    }

    /// Makes a new port if the present one shares the lookup with sockets of an endpoint that is closed. Whether the
    /// sockets are closed is not known: other processes that have them may keep them.
    pub(super) fn renew_port(&mut self) {
        if self.shares.is_none() || self.shares_with_open() {
            return;
        }
        match self.new_port() {
            Ok(port) => self.replace_port(port, None),
            // Tried again with the next check of the interface.
            Err(error) => tracing::debug!("{error}; the port stays"),
        }
    }

    fn new_port(&self) -> Result<AfPacket, NetifError> {
        // It may have been renamed since the last check.
        let interface = Interface::find_by_index(self.board.interface.index)?;
        OwnPort::open_socket(&interface.name, self.options.ether_type, self.endpoints.open())
    }

    fn replace_port(&mut self, port: AfPacket, shares: Option<Sharing>) {
        // What the old one still has; what arrives from now on is in the new one as well.
        for _ in 0..OWN_RING_TURNS {
            if !self.handle_frames() {
                break;
            }
        }
        let before = (
            std::mem::replace(&mut self.port, OwnPort::Socket(Box::new(port))),
            std::mem::replace(&mut self.shares, shares),
        );
        // Closing a packet socket takes the kernel milliseconds, in which no program would be served. Without a thread
        // it is done here.
        let _ = std::thread::Builder::new().spawn(move || drop(before));
    }

    fn status(&self) -> BoardStatus {
        BoardStatus {
            interface: self.board.interface.name.clone(),
            mac: self.board.interface.mac.to_string(),
            mtu: self.board.interface.mtu,
            up: self.board.interface.up,
            name: self.board.name.clone(),
            preset: self.board.preset.to_string(),
            ether_type: self.options.ether_type.0,
            card: self.latency.card.state().to_string(),
            pid: std::process::id(),
            endpoints_max: self.endpoints.limit(),
            peers_max: self.table.limit(),
            static_peers: self.options.static_peers,
            endpoints: self.endpoints.list(),
            raw: self.clients.raw.as_ref().map(|(_, open)| open.clone()),
            cpu_latency_us_max: self.latency.cpu.us_max(),
            counters: self.counters.sum(self.own_counts().values()),
        }
    }
}
