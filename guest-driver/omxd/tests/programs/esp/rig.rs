//! Two hosts: one is a test's engine on its own end of the cable, the other one an authority with a program, the test itself.

use std::{
    io::IoSlice,
    net::{IpAddr, SocketAddr, TcpListener},
    process::Command,
    time::{Duration, Instant},
};

use esp::{
    Address, Config, ConnectionId, Engine, Event, Handover, Options, Reason, State,
    wire::{Body, Frame, Header, Names, Path, emit},
};
use ether::{EtherType, MacAddr, Time};
use netif::{AfPacket, AfPacketOptions, Interest, Interface, Netif};
use weft_authority::{
    Session,
    esp::{ClaimedEsp, EspCounter, EspListener, EspStatus, may_be_token},
};
use weft_guest_driver_testkit::Veth;

use crate::{
    authority::Omxd,
    rig::{LIMIT, in_own_world},
};

/// The authority's host.
pub const HOST: &str = "10.7.0.1";
/// The host that connects.
pub const PEER: &str = "10.7.0.2";

/// An engine on an Ethernet port.
pub struct Station {
    pub engine: Engine,
    pub port: AfPacket,
    /// The first of its wire ports that is not in use.
    pub next_port: u16,
    pub events: Vec<Event>,
    begin: Instant,
}

impl Station {
    pub fn new(mut port: AfPacket, next_port: u16) -> Self {
        port.expect_bulk(true);
        let config = Config::new(port.mac(), u16::try_from(port.mtu()).unwrap());
        Self {
            engine: Engine::new(config, 0x5eed ^ u64::from(next_port)).unwrap(),
            port,
            next_port,
            events: Vec::new(),
            begin: Instant::now(),
        }
    }

    /// A station on an interface of the test's own.
    pub fn on(interface: &str) -> Self {
        let options = AfPacketOptions::default();
        Self::new(AfPacket::open(interface, EtherType::ESP, &options).unwrap(), 5_000)
    }

    pub fn now(&self) -> Time {
        Time::from_nanos(self.begin.elapsed().as_nanos() as u64)
    }

    /// Handles what came and what is due, and sends what is to be sent.
    pub fn pump(&mut self) {
        let now = self.now();
        while let Some(frame) = self.port.poll_receive().unwrap() {
            self.engine.handle(frame, now);
        }
        self.engine.handle_timeout(now);
        let mut frame = vec![0; self.engine.frame_len_max()];
        while let Some(len) = self.engine.poll_transmit(now, &mut frame) {
            assert!(self.port.send(&[IoSlice::new(&frame[..len])]).unwrap());
        }
        while let Some(event) = self.engine.poll_event() {
            self.events.push(event);
        }
    }

    fn next_port(&mut self) -> u16 {
        self.next_port += 1;
        self.next_port - 1
    }

    pub fn connect_as(&mut self, host: MacAddr, port: u16, names: Option<Names>) -> ConnectionId {
        let (local_port, now) = (self.next_port(), self.now());
        let options = Options {
            names,
            ..Options::default()
        };
        let id = self
            .engine
            .connect(local_port, Address { mac: host, port }, options, now)
            .unwrap();
        self.pump();
        id
    }

    pub fn attach(&mut self, claimed: &ClaimedEsp) -> ConnectionId {
        let (local_port, now) = (self.next_port(), self.now());
        let handover = Handover::from_bytes(&claimed.handover).unwrap();
        let id = self
            .engine
            .attach(handover, local_port, Options::default(), now)
            .unwrap();
        self.pump();
        id
    }

    pub fn state(&self, id: ConnectionId) -> State {
        self.engine.info(id).unwrap().state
    }

    /// Why a connection is over.
    pub fn reason(&self, id: ConnectionId) -> Option<Reason> {
        self.engine.info(id).unwrap().reason
    }

    pub fn send(&mut self, id: ConnectionId, bytes: &[u8]) {
        let now = self.now();
        assert_eq!(self.engine.send(id, bytes, true, now), Ok(bytes.len()));
        self.pump();
    }

    pub fn received(&mut self, id: ConnectionId) -> Vec<u8> {
        let now = self.now();
        let mut bytes = vec![0; 1 << 16];
        let len = self.engine.receive(id, &mut bytes, now).unwrap_or(0);
        bytes.truncate(len);
        bytes
    }
}

/// Lets stations work until something is so; they sleep on the first one's port in between.
pub fn work_until(what: &str, stations: &mut [&mut Station], mut is_so: impl FnMut(&mut [&mut Station]) -> bool) {
    let begin = Instant::now();
    loop {
        for station in stations.iter_mut() {
            station.pump();
        }
        if is_so(stations) {
            return;
        }
        assert!(begin.elapsed() < LIMIT, "{what} within the limit");
        if let Some(first) = stations.first_mut() {
            let soon = Instant::now() + Duration::from_millis(1);
            first.port.wait(Interest::Receive, soon, None).unwrap();
        }
    }
}

/// What the tests have: the cable, the authority on one end, and the host that connects on the other.
pub struct Stage {
    pub veth: Veth,
    pub omxd: Omxd,
    pub peer: Station,
    pub host: MacAddr,
}

/// Runs a test with an authority whose host has [`HOST`] and `fd00:7::1`.
pub fn on_stage(test: &str, body: impl FnOnce(&mut Stage)) {
    in_own_world(test, || body(&mut Stage::new(&[])));
}

impl Stage {
    pub fn new(options: &[&str]) -> Self {
        let veth = Veth::new(1500);
        add_address(&veth.a, &format!("{HOST}/24"));
        add_address(&veth.a, "fd00:7::1/64");
        let omxd = Omxd::start(&[], &veth.a, options);
        Self {
            peer: Station::on(&veth.b),
            host: Interface::find(&veth.a).unwrap().mac,
            omxd,
            veth,
        }
    }

    pub fn session(&self) -> Session {
        self.omxd.session().unwrap()
    }

    pub fn status(&self) -> EspStatus {
        self.session().esp_status().unwrap()
    }

    pub fn count(&self, counter: EspCounter) -> u64 {
        self.status().counters[counter as usize]
    }

    /// Connects from the host on the other end.
    pub fn connect(&mut self, port: u16) -> ConnectionId {
        self.connect_to(HOST, port)
    }

    /// Connects to one of the host's addresses.
    pub fn connect_to(&mut self, to: &str, port: u16) -> ConnectionId {
        let from = if to.contains(':') {
            "[fd00:7::2]:40000"
        } else {
            "10.7.0.2:40000"
        };
        let names = Names::new(from.parse().unwrap(), to.parse::<IpAddr>().unwrap());
        self.peer.connect_as(self.host, port, names)
    }

    pub fn await_state(&mut self, id: ConnectionId, state: State) {
        work_until(&format!("{state:?}"), &mut [&mut self.peer], |stations| {
            stations[0].state(id) == state
        });
    }

    pub fn await_end(&mut self, id: ConnectionId, reason: Reason) {
        work_until(&format!("{reason:?}"), &mut [&mut self.peer], |stations| {
            stations[0].reason(id).is_some()
        });
        assert_eq!(self.peer.reason(id), Some(reason));
    }

    /// Waits until the authority has counted something so often.
    pub fn await_count(&mut self, counter: EspCounter, count: u64) {
        let session = self.session();
        work_until(counter.sentence(), &mut [&mut self.peer], |_| {
            session.esp_status().unwrap().counters[counter as usize] >= count
        });
    }

    /// A frame from the host on the other end.
    pub fn send_frame(&mut self, header: &Header, body: &Body<'_>) {
        let path = Path {
            destination: self.host,
            source: self.peer.port.mac(),
            ether_type: EtherType::ESP,
        };
        self.send_frame_as(&path, header, body);
    }

    pub fn send_frame_as(&mut self, path: &Path, header: &Header, body: &Body<'_>) {
        let mut frame = [0; 512];
        let len = emit(&mut frame, path, header, body, false).unwrap();
        // One that is not taken for want of room is lost, as on a cable.
        let _ = self.peer.port.send(&[IoSlice::new(&frame[..len])]);
    }

    /// Waits for a frame of the authority for which `wanted` has a value.
    pub fn hear<T>(&mut self, wanted: impl Fn(&Frame<'_>) -> Option<T>) -> T {
        let begin = Instant::now();
        loop {
            while let Some(bytes) = self.peer.port.poll_receive().unwrap() {
                let frame = Frame::parse(bytes, EtherType::ESP).unwrap();
                if let Some(value) = wanted(&frame) {
                    return value;
                }
            }
            assert!(begin.elapsed() < LIMIT, "a frame within the limit");
            let soon = Instant::now() + Duration::from_millis(10);
            self.peer.port.wait(Interest::Receive, soon, None).unwrap();
        }
    }
}

pub fn add_address(interface: &str, address: &str) {
    let mut words = vec!["address", "add", address, "dev", interface];
    if address.contains(':') {
        // It is used at once.
        words.push("nodad");
    }
    assert!(Command::new("ip").args(words).status().unwrap().success());
}

/// A program on the authority's host: it listens, and has an engine at its own wire ports.
pub struct Program {
    pub session: Session,
    pub station: Station,
    pub tcp: TcpListener,
    pub listener: EspListener,
}

impl Program {
    pub fn start(stage: &Stage, address: &str) -> Self {
        Self::with(stage, TcpListener::bind(address).unwrap(), false)
    }

    pub fn with(stage: &Stage, tcp: TcpListener, only_v6: bool) -> Self {
        let session = stage.session();
        let opened = session.open_esp().unwrap();
        assert_eq!(opened.ether_type, EtherType::ESP);
        let listener = session.listen_esp(tcp.local_addr().unwrap(), only_v6).unwrap();
        tcp.set_nonblocking(true).unwrap();
        Self {
            station: Station::new(opened.port.port, *opened.port.ports.start()),
            session,
            tcp,
            listener,
        }
    }

    pub fn port(&self) -> u16 {
        self.tcp.local_addr().unwrap().port()
    }

    /// Accepts the next token; returns its connection and address.
    pub fn accept(&self, stage: &mut Stage) -> (std::net::TcpStream, SocketAddr) {
        let mut accepted = None;
        work_until("a token", &mut [&mut stage.peer], |_| {
            accepted = self.tcp.accept().ok();
            accepted.is_some()
        });
        let (socket, from) = accepted.unwrap();
        assert!(may_be_token(from.ip()), "{from}");
        (socket, from)
    }

    /// Accepts and claims the next connection.
    pub fn claim(&mut self, stage: &mut Stage) -> (ConnectionId, ClaimedEsp) {
        let (_socket, from) = self.accept(stage);
        let claimed = self.session.claim_esp(from, Some(self.listener.key)).unwrap();
        (self.station.attach(&claimed), claimed)
    }

    /// Connects the host on the other end with this program.
    pub fn join(&mut self, stage: &mut Stage) -> [ConnectionId; 2] {
        let theirs = stage.connect(self.port());
        let (ours, _) = self.claim(stage);
        stage.await_state(theirs, State::Established);
        [theirs, ours]
    }

    /// Sends bytes in both directions.
    pub fn exchange(&mut self, stage: &mut Stage, [theirs, ours]: [ConnectionId; 2]) {
        stage.peer.send(theirs, b"hello");
        self.station.send(ours, b"world");
        let (mut here, mut there) = (Vec::new(), Vec::new());
        work_until("both texts", &mut [&mut self.station, &mut stage.peer], |stations| {
            here.extend(stations[0].received(ours));
            there.extend(stations[1].received(theirs));
            here.len() >= 5 && there.len() >= 5
        });
        assert_eq!((&here[..], &there[..]), (&b"hello"[..], &b"world"[..]));
    }
}
