//! The daemon: one thread that sleeps on its packet socket, its Unix socket and its clients. [`mxoe::authority`]
//! decides what is said on the wire; the daemon gives it frames, a peer table and a clock.

use std::{
    fs,
    os::fd::{BorrowedFd, OwnedFd},
    time::{Duration, Instant},
};

use ether::{EtherType, Time};
use mxoe::{
    authority::{Authority, AuthorityConfig, AuthorityEvent},
    engine::Lost,
    finisher::Finishers,
    wire::{Dialect, Preset, RAW_FRAME_LEN_MAX, Sizes},
};
use netif::{Interface, NetifError, SharedLookup};
use rustix::{
    event::{PollFd, PollFlags, poll},
    net::sockopt,
};
use weft_authority::{ENDPOINTS, OmxdError, OpenEndpoint, PEERS, PeerTableWriter, Place, next_word, set_up};

use crate::{
    card::{Pairs, endpoints_of},
    counters::BoardCounters,
    cpu_latency::CpuLatency,
    direct::DirectTransmit,
    endpoints::Endpoints,
    marks::{CardMarks, Frames},
    own_port::{OWN_RING_LEN, OwnPort},
    owners::{self, Owned, Program},
    pairing::Pairing,
    setup::{begin_serial, choose_preset, cut_name, default_board_name, group_id, listen_at, own_table},
    stale_files,
};

mod clients;
mod requests;
mod stream_sockets;

use clients::{CONNECTIONS_MAX, Connection};
use stream_sockets::StreamSockets;

/// Frames handled before clients get their turn.
const FRAMES_PER_TURN: usize = 64;
/// Turns after which the ring of the authority's own socket is empty, whatever it had: a slot is as long as the shortest longest frame of any preset.
const OWN_RING_TURNS: usize = OWN_RING_LEN / Sizes::NATIVE_FRAME_LEN_MIN as usize / FRAMES_PER_TURN;
/// The interface is checked this often: whether it is there, and what it is called.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// An authority that was started on demand ends this long after its last client.
const LINGER: Duration = Duration::from_secs(5);

/// The options of an authority.
#[derive(Clone, Debug)]
pub struct DaemonOptions {
    /// Name of the interface.
    pub interface: String,
    /// Sizes on the wire; by default those that fit the MTU.
    pub preset: Option<Preset>,
    /// Name of the board; by default `<node>:<number of the board>`, and `localhost` for loopback.
    pub board_name: Option<String>,
    /// Group whose members may open endpoints; by default `omx` where it exists.
    pub group: Option<String>,
    /// Ends some seconds after the last client has gone.
    pub on_demand: bool,
    /// Only root adds peers.
    pub static_peers: bool,
    /// Endpoints that can be open at once, at most [`ENDPOINTS`].
    pub endpoints_max: u8,
    /// Peers of the table, at most [`PEERS`].
    pub peers_max: u16,
    /// What others than root may change: a bit each for counters (1), the board's name (2), and the peer table (4).
    pub user_rights: u8,
    /// Bytes of an endpoint's receive ring.
    pub ring_len: usize,
    /// [`mxoe::engine::Timing::pull_queue_ns_max`]; by default what suits the interface's driver.
    pub pull_queue_ns_max: Option<u64>,
    /// Data that endpoints ask for arrives on its own socket; by default where it suits the interface's driver.
    pub data_socket: Option<bool>,
    /// Endpoints hand short frames directly to the driver where no program observes or queues what the interface sends.
    pub direct_transmit: bool,
    /// Microseconds that idle processors may take to wake up while endpoints are open; by default without a limit.
    pub cpu_latency_us_max: Option<u32>,
    /// The EtherType of all frames.
    pub ether_type: EtherType,
    /// The EtherType of ESP, stream sockets directly over Ethernet; `None`: they are not served.
    pub esp_ether_type: Option<EtherType>,
    /// Endpoints announce the latency mark, and the card is told to check it.
    pub marks: bool,
    /// Packets of the authority's own that are lost on purpose, for tests: of each kind one of n on average.
    pub packet_loss: Vec<(Lost, u32)>,
}

impl DaemonOptions {
    /// Makes the default options for an interface.
    pub fn new(interface: &str) -> Self {
        Self {
            interface: interface.to_owned(),
            preset: None,
            board_name: None,
            group: None,
            on_demand: false,
            static_peers: false,
            endpoints_max: ENDPOINTS,
            peers_max: PEERS as u16,
            user_rights: 0,
            // As much as `mxoe::engine::Limits::pull_bytes_outstanding` may have in flight, with room for mediums.
            ring_len: 4 << 20,
            pull_queue_ns_max: None,
            data_socket: None,
            direct_transmit: true,
            cpu_latency_us_max: None,
            ether_type: EtherType::MXOE,
            esp_ether_type: Some(EtherType::ESP),
            marks: true,
            packet_loss: Vec::new(),
        }
    }
}

/// The interface that is served, and its settings.
struct Board {
    interface: Interface,
    place: Place,
    preset: Preset,
    name: String,
}

/// The measures for low latency that last as long as endpoints are open.
struct Latency {
    card: CardMarks,
    cpu: CpuLatency,
    direct: DirectTransmit,
}

/// The programs that are connected.
#[derive(Default)]
struct Clients {
    connections: Vec<Connection>,
    /// The number of the next one.
    next: u64,
    /// No descriptor is left to accept a program, until one leaves.
    deaf: bool,
    /// The connection that has the raw endpoint, and its program.
    raw: Option<(u64, OpenEndpoint)>,
}

/// Whether the authority goes on, and since when.
struct State {
    /// The authority that was set up for this interface has come: this one, started on demand, ends.
    is_replaced: bool,
    /// The interface is gone, and with it everything about its peers.
    gone: bool,
    begin: Instant,
    idle_since: Instant,
    checked_at: Instant,
}

impl State {
    /// Makes the state of an authority that begins at `begin`.
    const fn new(begin: Instant) -> Self {
        Self {
            is_replaced: false,
            gone: false,
            begin,
            idle_since: begin,
            checked_at: begin,
        }
    }
}

/// The authority of one interface.
pub struct Daemon {
    options: DaemonOptions,
    board: Board,
    port: OwnPort,
    /// What a card does for endpoints that drive it themselves.
    pairs: Pairs,
    shares: Option<Sharing>,
    listener: OwnedFd,
    table: PeerTableWriter,
    authority: Authority,
    endpoints: Endpoints,
    pairing: Pairing,
    esp: StreamSockets,
    counters: BoardCounters,
    latency: Latency,
    clients: Clients,
    state: State,
}

/// Returns the board's name, from the options or by default.
fn board_name(options: &DaemonOptions, interface: &Interface) -> String {
    let wanted = options.board_name.clone();
    cut_name(&wanted.unwrap_or_else(|| default_board_name(interface)))
}

fn warn_of_ipv6(options: &DaemonOptions, interface: &Interface) {
    if options.ether_type == EtherType::IPV6 {
        tracing::warn!(
            interface = interface.name,
            "messages have IPv6's EtherType: IPv6 frames of this interface are taken for messages, so use no IPv6 on it"
        );
    }
}

/// Returns the layouts of the frames for endpoints that are not open. Marks are read also where they are off now: endpoints from before
/// a restart, which may be closed any time, have agreed to them.
const fn dialect_of(options: &DaemonOptions, preset: Preset) -> Dialect {
    Dialect::new(preset.sizes())
        .with_marks(true)
        .with_ether_type(options.ether_type)
}

/// Makes the authority that answers other hosts for the interface, by the options. It knows the peers of the table,
/// which takes no further ones where they are static.
fn new_authority(
    options: &DaemonOptions,
    interface: &Interface,
    preset: Preset,
    board_name: &str,
    table: &mut PeerTableWriter,
) -> Authority {
    let mut authority = Authority::new(AuthorityConfig {
        mac: interface.mac,
        dialect: dialect_of(options, preset),
        endpoints: options.endpoints_max.into(),
        name: board_name.as_bytes().into(),
    });
    for (what, every) in &options.packet_loss {
        authority.set_packet_loss(*what, *every, begin_serial());
    }
    for index in 0..table.table().len() {
        match table.table().name(index) {
            Some(name) => authority.set_name(index, name.as_bytes()),
            None => authority.peer_added(Time::ZERO, index),
        }
    }
    if options.static_peers {
        table.fix();
    } else {
        authority.start_discovery(Time::ZERO, std::process::id() ^ begin_serial());
    }
    authority
}

/// Opens the authority's port, and returns how many endpoints there can be. Of those in `open`, a bit for each, the ones that are gone
/// are taken out.
fn open_port(
    options: &DaemonOptions,
    interface: &Interface,
    place: &Place,
    open: &mut u32,
    program_of: impl Fn(u8) -> Option<Program>,
) -> Result<(OwnPort, u8), OmxdError> {
    let programs: Vec<u32> = (0..ENDPOINTS)
        .filter(|endpoint| *open & 1 << endpoint != 0)
        .filter_map(|endpoint| Some(program_of(endpoint)?.pid()))
        .collect();
    let mut port = OwnPort::open(interface, options.ether_type, *open, &programs)?;
    let mut endpoints_max = options.endpoints_max;
    if let Some(own) = port.card() {
        own.card.publish(place.dir()).map_err(NetifError::from)?;
        endpoints_max = endpoints_max.min(endpoints_of(own.card.pairs()));
        if !own.card.goes_on() {
            // Their queue pairs are over.
            *open = 0;
        }
    }
    Ok((port, endpoints_max))
}

impl Daemon {
    /// Becomes the authority of an interface and listens.
    ///
    /// # Errors
    /// [`OmxdError`], in one sentence each; [`OmxdError::AlreadyRunning`] if there is one.
    pub fn new(options: DaemonOptions) -> Result<Self, OmxdError> {
        let interface = Interface::find(&options.interface)?;
        let preset = choose_preset(&interface, options.preset)?;
        let place = Place::of(interface.index)?;
        let group = match &options.group {
            Some(name) => Some(group_id(name).ok_or_else(|| OmxdError::NoGroup { group: name.clone() })?),
            None => group_id("omx"),
        };
        fs::create_dir_all(place.dir()).map_err(OmxdError::io("make the directory of omxd's sockets"))?;
        let mut table = own_table(&place, &interface, options.on_demand)?;
        if options.on_demand && set_up::is_marked(&place, interface.mac) {
            return Err(OmxdError::SetUpIsAway {
                interface: interface.name,
            });
        }
        stale_files::clear(&place);
        let board_name = board_name(&options, &interface);
        table.set_name(0, board_name.as_bytes());
        table.set_limit(options.peers_max.into());

        warn_of_ipv6(&options, &interface);
        let begin = Instant::now();
        let authority = new_authority(&options, &interface, preset, &board_name, &mut table);
        let program_of = |endpoint| owners::read(table.private_file(), Owned::Endpoint(endpoint));
        let mut before = table.table().open_endpoints();
        let finishers = Finishers::new(interface.mac, dialect_of(&options, preset));
        let (port, limit) = open_port(&options, &interface, &place, &mut before, program_of)?;
        let endpoints = Endpoints::new(before, Time::ZERO, program_of, finishers).at_most(limit);
        let pairs = Pairs::new(endpoints.open());
        let esp = StreamSockets::new(&options, &interface, &table);
        if !options.on_demand {
            set_up::mark(&place, interface.mac)?;
        }
        let listener = listen_at(&place, group, CONNECTIONS_MAX)?;
        Ok(Self {
            latency: Latency {
                card: CardMarks::default(),
                cpu: CpuLatency::new(options.cpu_latency_us_max),
                direct: DirectTransmit::new(options.direct_transmit),
            },
            options,
            board: Board {
                interface,
                place,
                preset,
                name: board_name,
            },
            port,
            pairs,
            shares: None,
            listener,
            table,
            authority,
            endpoints,
            pairing: Pairing::default(),
            esp,
            counters: BoardCounters::default(),
            clients: Clients::default(),
            state: State::new(begin),
        })
    }

    /// Serves the interface until `stop` is readable, the interface is gone, or, if it was started on demand, no
    /// program needs it any more.
    ///
    /// # Errors
    /// [`NetifError::NoSuchInterface`] when the interface is gone.
    pub fn run(mut self, stop: BorrowedFd<'_>) -> Result<(), OmxdError> {
        let ended = self.endpoints.expire_ended();
        self.forget_endpoints(&ended);
        if self.board.interface.up {
            self.ask_card()?;
        }
        let mut esp_is_ready = false;
        loop {
            let mut more_frames = self.handle_frames();
            self.handle_time()?;
            more_frames |= self.transmit();
            more_frames |= self.serve_esp(esp_is_ready);
            if self.is_over() {
                return Ok(());
            }
            let timeout = if more_frames || self.port.is_ready() {
                Duration::ZERO
            } else {
                self.sleep_at_most()
            };
            let timeout = rustix::event::Timespec::try_from(timeout).ok();
            let (stopped, listener, port, clients);
            (stopped, listener, port, esp_is_ready, clients) = {
                let listening = if self.clients.deaf {
                    PollFlags::empty()
                } else {
                    PollFlags::IN
                };
                let mut fds = vec![
                    PollFd::from_borrowed_fd(stop, PollFlags::IN),
                    PollFd::new(&self.listener, listening),
                    PollFd::new(&self.port, PollFlags::IN),
                ];
                fds.push(self.esp.watched(stop));
                fds.extend(self.clients.connections.iter().flat_map(Connection::watched));
                match poll(&mut fds, timeout.as_ref()) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return Err(OmxdError::io("wait for something to do")(error)),
                }
                let port = fds[2].revents();
                let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
                let clients: Vec<(bool, bool)> = ready[4..].chunks_exact(2).map(|two| (two[0], two[1])).collect();
                (ready[0], ready[1], port, ready[3], clients)
            };
            if port.contains(PollFlags::ERR) {
                self.read_port_error();
            }
            if stopped {
                return Ok(());
            }
            for (at, (asks, ended)) in clients.into_iter().enumerate().rev() {
                if ended {
                    self.disconnect(at);
                } else if asks {
                    self.serve(at);
                }
            }
            if listener {
                self.accept();
            }
        }
    }

    /// The link went down: the socket reports it until it is read. Frames flow again when it is up.
    fn read_port_error(&self) {
        if let Ok(Err(error)) = sockopt::socket_error(&self.port) {
            tracing::debug!("the port says: {error}");
        }
    }

    /// Whether an authority that was started on demand has nothing left to do.
    fn is_over(&self) -> bool {
        let interface = &self.board.interface.name;
        if self.state.is_replaced {
            tracing::info!(interface, "the omxd that was set up for this interface takes over");
            return true;
        }
        let is_idle =
            self.options.on_demand && self.clients.connections.is_empty() && self.endpoints.finishers.is_empty();
        if is_idle && self.state.idle_since.elapsed() > LINGER {
            tracing::info!(interface, "no endpoint is open any more; omxd ends");
            return true;
        }
        false
    }

    /// Asks the card what it can do, and tells it what endpoints need.
    fn ask_card(&mut self) -> Result<(), OmxdError> {
        let frames = self.frames();
        let name = &self.board.interface.name;
        match self.port.card() {
            Some(own) => {
                let state = self.pairs.begin(own, frames);
                self.latency.card.found(name, state);
                Ok(())
            }
            None => self.latency.card.ask(name, frames),
        }
    }

    const fn frames(&self) -> Frames {
        Frames {
            marks: self.options.marks,
            ether_type: self.options.ether_type,
        }
    }

    fn now(&self) -> Time {
        Time::from_nanos(self.state.begin.elapsed().as_nanos() as u64)
    }

    fn sleep_at_most(&mut self) -> Duration {
        let esp = self.esp.on().and_then(|esp| esp.due());
        let finishers = self.endpoints.finishers.poll_timeout();
        let due = [self.authority.poll_timeout(), self.endpoints.due(), finishers, esp]
            .into_iter()
            .flatten()
            .min();
        let next = due.map_or(CHECK_INTERVAL, |due| Duration::from_nanos(due.nanos_since(self.now())));
        next.min(CHECK_INTERVAL)
    }

    /// Handles received frames. Returns true if there may be more.
    fn handle_frames(&mut self) -> bool {
        let now = self.now();
        for _ in 0..FRAMES_PER_TURN {
            let Ok(Some(frame)) = self.port.poll_receive() else {
                // The interface is gone or switched off: `handle_time` checks that.
                return false;
            };
            if self.endpoints.finishers.handle(now, frame) {
                continue;
            }
            let endpoints = &self.endpoints;
            self.authority
                .handle(now, frame, &mut self.table, |number| endpoints.is_open(number));
            // It is counted. A program with the raw endpoint has a socket of its own, which got the frame as well.
            while self.authority.take_raw().is_some() {}
        }
        true
    }

    /// Forgets endpoints of an earlier authority whose numbers are free.
    fn forget_endpoints(&mut self, freed: &[u8]) {
        for endpoint in freed {
            self.pairing.forget_endpoint(*endpoint);
        }
        if !freed.is_empty() {
            self.endpoints_changed();
        }
    }

    fn handle_time(&mut self) -> Result<(), OmxdError> {
        let now = self.now();
        if self.authority.poll_timeout().is_some_and(|due| due <= now) {
            self.authority.handle_timeout(now);
        }
        self.endpoints.finishers.handle_timeout(now);
        while let Some(event) = self.authority.poll_event() {
            if let AuthorityEvent::Named { peer } = event
                && let Some(name) = self.authority.name(peer)
            {
                self.table.set_name(peer, name);
            }
        }
        let freed = self.endpoints.expire(now);
        self.forget_endpoints(&freed);
        if self.state.checked_at.elapsed() >= CHECK_INTERVAL {
            self.state.checked_at = Instant::now();
            self.clients.deaf = false;
            let seen = match Interface::find_by_index(self.board.interface.index) {
                Ok(seen) => seen,
                Err(gone @ NetifError::NoSuchInterface { .. }) => {
                    self.state.gone = true;
                    return Err(gone.into());
                }
                Err(error) => {
                    // Out of descriptors, say: that tells nothing about the interface.
                    tracing::debug!("{error}");
                    return Ok(());
                }
            };
            if seen.name != self.board.interface.name {
                tracing::info!(
                    was = self.board.interface.name,
                    is = seen.name,
                    "the interface was renamed"
                );
            }
            if seen.up != self.board.interface.up {
                tracing::info!(interface = seen.name, up = seen.up, "the interface was switched");
                if seen.up {
                    // The program that emulates the card may have been restarted.
                    if let Err(error) = self.ask_card() {
                        tracing::warn!("{error}; the card was not asked about marks");
                    }
                }
            }
            let sound = choose_preset(&seen, Some(self.board.preset));
            if seen.mtu != self.board.interface.mtu
                && let Err(error) = sound
            {
                tracing::warn!("{error}; no endpoint can be opened until then");
            }
            if seen.up {
                // It may have been down, however shortly, when that was to be done.
                self.renew_port();
            }
            // The address stays that of the table: endpoints have it in their frames.
            self.board.interface = Interface {
                mac: self.board.interface.mac,
                ..seen
            };
            if let Some(esp) = self.esp.on() {
                esp.interface_seen(&self.board.interface, now);
            }
            self.expire_esp();
            self.check_egress();
        }
        Ok(())
    }

    /// Sends what is to be sent. Returns true if there may be more.
    fn transmit(&mut self) -> bool {
        let mut frame = [0; RAW_FRAME_LEN_MAX];
        while let Some(len) = self.authority.poll_transmit(&self.table, &mut frame) {
            // If the port refuses it or it is lost, it is repeated when the other host asks again.
            let _ = self.port.send(&frame[..len]);
        }
        if self.endpoints.finishers.is_empty() {
            return false;
        }
        let now = self.now();
        let mut frame = vec![0; self.board.preset.sizes().frame_len_max() as usize];
        for _ in 0..FRAMES_PER_TURN {
            let Some(len) = self.endpoints.finishers.poll_transmit(now, &mut frame) else {
                return false;
            };
            let _ = self.port.send(&frame[..len]);
        }
        true
    }

    fn endpoints_changed(&mut self) {
        let open = self.endpoints.open();
        self.table.set_open_endpoints(open);
        // The old filter lets through more or less than the new one; what is for an open endpoint is left alone anyway.
        if let Err(error) = self.port.set_open(open) {
            tracing::warn!("{error}; the filter of omxd's socket stays as it was");
        }
        if let Some(own) = self.port.card() {
            self.pairs.keep(own, open);
        }
        self.renew_port();
        self.check_egress();
        self.latency.cpu.set_needed(open != 0);
    }

    /// Checks whether endpoints may use direct transmit, and publishes it.
    fn check_egress(&mut self) {
        let frame_len_max = self
            .latency
            .direct
            .frame_len_max(&self.board.interface, self.endpoints.open());
        self.publish_direct_limit(frame_len_max);
    }

    fn publish_direct_limit(&self, frame_len_max: usize) {
        let before = self.table.table().direct_word();
        self.table.set_direct_word(next_word(before, frame_len_max));
    }
}

/// The sharing of the kernel's lookup of each frame by the port and an endpoint's sockets.
struct Sharing {
    /// Number and connection of the endpoint.
    endpoint: u8,
    connection: u64,
    _lookup: SharedLookup,
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.endpoints.open() != 0
            && let Some(own) = self.port.card()
        {
            own.card.leave_running();
        }
        // The limit is not checked any more from now on.
        self.publish_direct_limit(0);
        // An orderly end: no socket stays on which no process listens. The table stays, with its indices, as long as
        // its interface.
        let _ = fs::remove_file(self.board.place.socket());
        set_up::unmark(&self.board.place);
        if self.state.gone {
            let _ = fs::remove_file(self.board.place.table());
        }
    }
}
