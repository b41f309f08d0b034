//! The authority's half for ESP, stream sockets directly over Ethernet: the wire ports of programs, the handshakes for those that
//! listen, and pings. What is said on the wire is the business of [`esp::Engine`]; no byte of a stream passes through it.
//!
//! Programs that listen have TCP sockets. A connection by ESP is agreed on here, with a window of 0, and announced to its listener by a
//! [token](tokens); the program that accepts it claims it, and goes on with it in an engine of its own at one of its own wire ports.

mod addresses;
mod blocks;
mod counters;
mod filter;
mod handshakes;
mod listeners;
mod pings;
mod resolver;
mod sessions;
mod sharing;
mod socket_table;
mod stock;
mod tokens;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::{IoSlice, Read},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use esp::{
    Config, Engine, Event, MTU_MIN,
    wire::{Frame, Kind},
};
use ether::{EtherType, Time};
use netif::{AfPacket, AfPacketOptions, Interface, Netif};
use rustix::event::epoll;
use weft_authority::{
    OmxdError, Refusal,
    esp::{EspCounter, EspReply},
};

pub(crate) use self::sessions::{Answered, Asking};
use self::{
    addresses::HostAddresses, blocks::Blocks, counters::Counts, listeners::Listeners, pings::Pings, resolver::Resolver,
    sessions::Session, sharing::Sharing, stock::Stock, tokens::Tokens,
};
use crate::{own_port::OWN_RING_LEN, owners::Program, setup};

/// Frames handled, and frames sent, before others get their turn.
const FRAMES_PER_TURN: usize = 64;
/// News of sockets taken before others get their turn.
const NEWS_PER_TURN: usize = 64;
/// The wire ports of handshakes.
const HANDSHAKE_PORTS: (u16, u16) = (1, 4095);
/// Connections of the authority's engine that were claimed, and are remembered until late frames have ceased.
const CLAIMED_MAX: usize = 4096;
/// Half-open connections of one port: a new one replaces the oldest. More than the frames that wait in the ring of the authority's
/// socket: so in a flood a peer's answer to the authority's comes before its connection is replaced.
const HALF_OPEN_MAX: usize = 4096;
/// Connections of one port whose handshake is finished and that have no token yet.
const BACKLOG_MAX: usize = 128;
/// Connections of the engine in any state: those above, of a few ports under attack. At the limit, new half-open ones replace the oldest
/// of the port that has the most.
const CONNECTIONS_MAX: usize = 16_384;

/// The smallest MTU that a program's port is taken to have: one that comes from an earlier authority says what it has itself.
const PORT_MTU_MIN: usize = 1500;

/// What a refused request is answered with.
pub(crate) type Refused = (Refusal, String);

/// What the kernel's news are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Watched {
    Port,
    Listener(u64),
    Token(u64),
}

impl Watched {
    const KIND_SHIFT: u32 = 62;

    const fn to_data(self) -> epoll::EventData {
        epoll::EventData::new_u64(match self {
            Self::Port => 0,
            Self::Listener(id) => 1 << Self::KIND_SHIFT | id,
            Self::Token(number) => 2 << Self::KIND_SHIFT | number,
        })
    }

    fn of(data: epoll::EventData) -> Self {
        let number = data.u64() & !(3 << Self::KIND_SHIFT);
        match data.u64() >> Self::KIND_SHIFT {
            0 => Self::Port,
            1 => Self::Listener(number),
            _ => Self::Token(number),
        }
    }
}

/// How an interface is served.
pub(crate) struct Settings {
    pub(crate) ether_type: EtherType,
    /// Bytes of a program's ring.
    pub(crate) ring_len: usize,
    /// Whether programs have a second socket for bulk data; by default where it pays.
    pub(crate) bulk_socket: Option<bool>,
}

/// The interface that is served, and how.
struct Wire {
    interface: Interface,
    /// The MTU that the engine has.
    mtu: usize,
    ether_type: EtherType,
    port: AfPacket,
    /// How programs' sockets are.
    options: AfPacketOptions,
    stock: Stock,
    /// Programs may have a second socket for bulk data.
    has_bulk: bool,
    sharing: Option<Sharing>,
}

/// The authority of an interface for ESP.
pub(crate) struct Esp {
    wire: Wire,
    engine: Engine,
    /// Watches the port, the listeners' pipes and the tokens.
    watch: OwnedFd,
    random: Random,
    blocks: Blocks,
    sessions: BTreeMap<u64, Session>,
    listeners: Listeners,
    tokens: Tokens,
    addresses: HostAddresses,
    resolver: Resolver,
    pings: Pings,
    counts: Counts,
    /// Ports at which connections wait for a token.
    waiting_ports: BTreeSet<u16>,
    /// Answers to connections that have waited.
    answers: Vec<(u64, EspReply)>,
    /// Room for a frame.
    frame: Vec<u8>,
}

/// The system's random numbers, which no program can guess.
struct Random(File);

impl Random {
    fn new() -> Result<Self, OmxdError> {
        File::open("/dev/urandom")
            .map(Self)
            .map_err(OmxdError::io("open /dev/urandom"))
    }

    fn next(&mut self) -> Result<u64, OmxdError> {
        let mut bytes = [0; 8];
        let read = self.0.read_exact(&mut bytes);
        read.map_err(OmxdError::io("read random numbers"))?;
        Ok(u64::from_ne_bytes(bytes))
    }
}

/// Says why an interface can have no ESP; `None`: it can.
#[must_use]
pub fn why_no_esp(interface: &Interface) -> Option<String> {
    let name = &interface.name;
    if interface.loopback {
        Some(format!(
            "{name} is the loopback interface, over which TCP is quicker than any frame"
        ))
    } else if interface.card().is_some() {
        Some(format!(
            "programs drive the card {name} themselves: ESP needs an interface of the kernel's, so programs use TCP over another one"
        ))
    } else if u16::try_from(interface.mtu).is_ok_and(|mtu| mtu >= MTU_MIN) {
        None
    } else {
        let (mtu, max) = (interface.mtu, u16::MAX);
        Some(format!(
            "the MTU of {name} is {mtu} bytes: ESP needs {MTU_MIN} to {max}"
        ))
    }
}

/// Whether data of many packets comes to programs by a socket of its own. Over veth the sender's core does the kernel's work for a frame,
/// up to the copy into the receiver's ring, and is the limit; what it leaves in a socket without a ring the receiver's core copies. Frames
/// that the kernel puts into pages of their own gain nothing.
fn has_bulk_sockets(interface: &Interface) -> bool {
    setup::has_data_socket(interface.driver().as_deref()) && setup::bulk_path_comes_first(interface.mtu)
}

impl Wire {
    fn open(interface: &Interface, settings: &Settings) -> Result<Self, OmxdError> {
        let Settings {
            ether_type, ring_len, ..
        } = *settings;
        let own_ring = AfPacketOptions {
            ring_len: OWN_RING_LEN,
            ..AfPacketOptions::default()
        };
        let options = AfPacketOptions {
            ring_len,
            linear_head: true,
            ..AfPacketOptions::default()
        };
        let has_bulk = settings.bulk_socket.unwrap_or_else(|| has_bulk_sockets(interface));
        Ok(Self {
            interface: interface.clone(),
            mtu: interface.mtu,
            ether_type,
            port: AfPacket::open(&interface.name, ether_type, &own_ring)?,
            options,
            stock: Stock::new(&interface.name, options, has_bulk)?,
            has_bulk,
            sharing: None,
        })
    }
}

impl Esp {
    /// Begins to serve an interface. `program_of` says which program has a block from an earlier authority.
    ///
    /// # Errors
    /// [`OmxdError`] where the system refuses something.
    pub(crate) fn new(
        interface: &Interface,
        settings: &Settings,
        program_of: impl Fn(u8) -> Option<Program>,
    ) -> Result<Self, OmxdError> {
        let mut random = Random::new()?;
        let wire = Wire::open(interface, settings)?;
        let mut config = Config::new(interface.mac, u16::try_from(interface.mtu).unwrap_or(u16::MAX));
        config.ether_type = settings.ether_type;
        config.handshake_ports = Some(HANDSHAKE_PORTS);
        config.send_buffer = 0;
        config.receive_buffer = 0;
        config.limits.connections = CONNECTIONS_MAX;
        config.limits.half_open = HALF_OPEN_MAX;
        config.limits.backlog = BACKLOG_MAX;
        config.limits.moved = CLAIMED_MAX;
        let engine = Engine::new(config, random.next()?)
            .map_err(std::io::Error::other)
            .map_err(OmxdError::io("set ESP up"))?;
        let watch = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(OmxdError::io("watch sockets"))?;
        epoll::add(&watch, &wire.port, Watched::Port.to_data(), epoll::EventFlags::IN)
            .map_err(OmxdError::io("watch sockets"))?;
        let esp = Self {
            wire,
            engine,
            watch,
            random,
            blocks: Blocks::new(Time::ZERO, program_of),
            sessions: BTreeMap::new(),
            listeners: Listeners::default(),
            tokens: Tokens::default(),
            addresses: HostAddresses::default(),
            resolver: Resolver::default(),
            pings: Pings::default(),
            counts: Counts::default(),
            waiting_ports: BTreeSet::new(),
            answers: Vec::new(),
            frame: Vec::new(),
        };
        esp.set_filter()?;
        Ok(esp)
    }

    fn set_filter(&self) -> Result<(), OmxdError> {
        Ok(self.wire.port.set_filter(&filter::for_authority(self.blocks.taken()))?)
    }

    /// After blocks were given or freed. The frames of a program that come here all the same are dropped.
    fn blocks_changed(&self) {
        if let Err(error) = self.set_filter() {
            tracing::warn!("{error}; the filter of omxd's socket for ESP stays as it was");
        }
    }

    /// Takes the state of the interface.
    pub(crate) fn interface_seen(&mut self, seen: &Interface, now: Time) {
        self.wire.interface = Interface {
            mac: self.wire.interface.mac,
            ..seen.clone()
        };
        self.follow_mtu(now);
    }

    /// Has peers send what the interface lets pass and each program's port has room for: the ring of one that was opened when the MTU was
    /// smaller takes no longer frames, and it may be the one that claims a connection.
    fn follow_mtu(&mut self, now: Time) {
        let ports = self.sessions.values().map(|session| session.port_mtu.max(PORT_MTU_MIN));
        let mtu = ports.fold(self.wire.interface.mtu, usize::min);
        if std::mem::replace(&mut self.wire.mtu, mtu) != mtu
            && let Err(error) = self.engine.set_mtu(u16::try_from(mtu).unwrap_or(u16::MAX), now)
        {
            tracing::warn!("{error}; connections by ESP go on with what they had");
        }
    }

    /// Handles received frames. Returns true if there may be more.
    pub(crate) fn handle_frames(&mut self, now: Time) -> bool {
        let mut bytes = std::mem::take(&mut self.frame);
        let mut more = true;
        for _ in 0..FRAMES_PER_TURN {
            // Copied, since the port lends it while everything else may be needed: they are short, and few.
            bytes.clear();
            match self.wire.port.poll_receive() {
                Ok(Some(lent)) => bytes.extend_from_slice(lent),
                _ => {
                    // The interface is gone or switched off: the daemon checks that.
                    more = false;
                    break;
                }
            }
            self.handle_frame(&bytes, now);
        }
        self.frame = bytes;
        more
    }

    fn handle_frame(&mut self, bytes: &[u8], now: Time) {
        self.counts.count(EspCounter::Frames);
        match Frame::parse(bytes, self.wire.ether_type) {
            Err(_) => self.counts.count(EspCounter::Malformed),
            Ok(frame) if frame.kind.is_edp() => self.handle_edp(&frame, now),
            Ok(frame) if frame.kind == Kind::Syn && !self.may_connect(&frame, now) => {}
            Ok(_) => {
                self.engine.handle(bytes, now);
            }
        }
    }

    /// Does what is due, and what follows from all that happened.
    pub(crate) fn handle_time(&mut self, now: Time) {
        if self.engine.poll_timeout().is_some_and(|due| due <= now) {
            self.engine.handle_timeout(now);
        }
        self.follow_mtu(now);
        self.handle_events(now);
        self.expire_tokens(now);
        self.resolve_due(now);
        self.expire_pings(now);
    }

    fn handle_events(&mut self, now: Time) {
        while let Some(event) = self.engine.poll_event() {
            match event {
                Event::Incoming { port } => {
                    self.waiting_ports.insert(port);
                }
                Event::Closed { id, .. } => self.connection_over(id, now),
                // A peer that has ended its stream already may still be accepted; nothing is read here.
                _ => {}
            }
        }
        self.announce(now);
    }

    /// Returns when [`Esp::handle_time`] has something to do.
    pub(crate) fn due(&mut self) -> Option<Time> {
        let due = [
            self.engine.poll_timeout(),
            self.tokens.due(),
            self.resolver.due(),
            self.pings.due(),
        ];
        due.into_iter().flatten().min()
    }

    /// Sends what is to be sent. Returns true if there is more.
    pub(crate) fn transmit(&mut self, now: Time) -> bool {
        let mut bytes = std::mem::take(&mut self.frame);
        bytes.resize(self.engine.frame_len_max(), 0);
        let mut sent = 0;
        while sent < FRAMES_PER_TURN
            && let Some(len) = self.engine.poll_transmit(now, &mut bytes)
        {
            self.send(&bytes[..len]);
            sent += 1;
        }
        self.frame = bytes;
        self.engine.has_output()
    }

    /// Sends a frame. If the interface does not take it, it is lost as on a cable.
    fn send(&mut self, frame: &[u8]) {
        if !matches!(self.wire.port.send(&[IoSlice::new(frame)]), Ok(true)) {
            self.counts.count(EspCounter::SendFailed);
        }
    }

    /// Takes the kernel's news of sockets and pipes, after [`AsFd::as_fd`] was readable.
    pub(crate) fn handle_news(&mut self) {
        let mut room = [MaybeUninit::uninit(); NEWS_PER_TURN];
        let Ok((news, _)) = epoll::wait(&self.watch, &mut room, Some(&rustix::event::Timespec::default())) else {
            return;
        };
        for event in news {
            let (flags, data) = (event.flags, event.data);
            match Watched::of(data) {
                Watched::Port if flags.contains(epoll::EventFlags::ERR) => self.read_port_error(),
                Watched::Port => {}
                Watched::Listener(id) => self.forget_listener(id),
                Watched::Token(number) => self.token_news(number, flags),
            }
        }
    }

    /// The link went down: the socket reports it until it is read. Frames flow again when it is up.
    fn read_port_error(&self) {
        if let Ok(Err(error)) = rustix::net::sockopt::socket_error(&self.wire.port) {
            tracing::debug!("the port for ESP says: {error}");
        }
    }

    /// Takes the answers to connections that have waited.
    pub(crate) fn take_answers(&mut self) -> Vec<(u64, EspReply)> {
        std::mem::take(&mut self.answers)
    }
}

impl AsFd for Esp {
    /// Readable when there are frames, or news of sockets.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}
