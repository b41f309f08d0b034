//! Many peers behind one port: engines without programs, each with an address of its own.

use std::{
    collections::VecDeque,
    io::IoSlice,
    sync::LazyLock,
    time::{Duration, Instant},
};

use ether::{MacAddr, Time};
use mxoe::{
    engine::{
        Arrival, Body, Config, Engine, Event, HEAD_BUFFER_LEN, Host, PeerMap, SendOptions, Status, Token, Verdict,
    },
    wire::Preset,
};
use netif::{Interest, Netif};

use super::port::DatagramPort;

/// The endpoint's address.
pub const OWN: MacAddr = MacAddr([2, 0, 0, 1, 0, 0]);
/// Timers are looked at this often.
const TICK: Duration = Duration::from_millis(1);
/// Longest message.
const LEN_MAX: usize = 100_000;
/// Messages of different peers begin at different places of the same bytes.
const SHIFTS: usize = 251;

static BYTES: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..LEN_MAX + SHIFTS).map(|at| (at * 13 + at / 255) as u8).collect());

/// `len` bytes from `offset` of what this peer sends.
pub fn content(number: u16, offset: usize, len: usize) -> &'static [u8] {
    &BYTES[usize::from(number) % SHIFTS + offset..][..len]
}

/// Takes everything; bytes go nowhere.
#[derive(Default)]
struct Sink {
    received: usize,
}

impl Host for Sink {
    fn arrive(&mut self, arrival: Arrival<'_>) -> Verdict {
        match arrival.body {
            Body::Whole(_) => self.received += 1,
            Body::Fragments => {}
            Body::Announced { .. } => {
                return Verdict::Pull {
                    receive: 1,
                    length: arrival.length,
                };
            }
        }
        Verdict::Take(1)
    }

    fn deliver(&mut self, _: Token, _: u32, _: &[u8]) {}
}

struct Peer {
    number: u16,
    engine: Engine<PeerMap>,
    sink: Sink,
    lengths: Vec<u32>,
    connected: bool,
}

/// The peers, and the frames that wait for the port.
pub struct Crowd {
    port: DatagramPort,
    peers: Vec<Peer>,
    waiting: VecDeque<Vec<u8>>,
    begin: Instant,
    ticked: Instant,
}

impl Crowd {
    pub fn new(port: DatagramPort) -> Self {
        let begin = Instant::now();
        Self {
            port,
            peers: Vec::new(),
            waiting: VecDeque::new(),
            begin,
            ticked: begin,
        }
    }

    pub fn join(&mut self) {
        self.port.join();
    }

    fn now(&self) -> Time {
        Time::from_nanos(1 + self.begin.elapsed().as_nanos() as u64)
    }

    /// A peer, numbered in turn, that connects and then sends messages of these lengths.
    pub fn add(&mut self, number: u16, lengths: &[u32]) {
        assert_eq!(usize::from(number), self.peers.len());
        let [high, low] = number.to_be_bytes();
        let mac = MacAddr([2, 0, 0, 2, high, low]);
        let config = Config::new(mac, 0, 100 + u32::from(number), Preset::Native9000);
        let mut engine = Engine::new(config, PeerMap::new(4, 1));
        engine.connect(self.now(), OWN, 0, 0, 0).unwrap();
        self.peers.push(Peer {
            number,
            engine,
            sink: Sink::default(),
            lengths: lengths.to_vec(),
            connected: false,
        });
        self.transmit(usize::from(number));
    }

    pub fn received(&self) -> usize {
        self.peers.iter().map(|peer| peer.sink.received).sum()
    }

    pub fn connected(&self) -> usize {
        self.peers.iter().filter(|peer| peer.connected).count()
    }

    /// Everybody connected, sent all and has every acknowledgement.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.peers.iter().all(|peer| peer.connected && peer.engine.is_idle())
    }

    pub fn run_until(&mut self, limit: Duration, is_over: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        loop {
            let mut frames = 0;
            while let Some((number, now)) = self.receive() {
                self.events(number, now);
                self.transmit(number);
                frames += 1;
            }
            self.flush();
            let ticks = self.ticked.elapsed() >= TICK;
            if ticks {
                self.ticked = Instant::now();
                self.tick();
                if is_over(self) {
                    return;
                }
                assert!(
                    begin.elapsed() < limit,
                    "{} received, {} connected",
                    self.received(),
                    self.connected()
                );
            }
            if frames == 0 && !ticks {
                let interest = if self.waiting.is_empty() {
                    Interest::Receive
                } else {
                    Interest::Both
                };
                self.port.wait(interest, self.ticked + TICK, None).unwrap();
            }
        }
    }

    fn receive(&mut self) -> Option<(usize, Time)> {
        let now = self.now();
        let frame = self.port.poll_receive().unwrap()?;
        let number = usize::from(u16::from_be_bytes([frame[4], frame[5]]));
        let peer = &mut self.peers[number];
        peer.engine.handle(now, frame, &mut peer.sink);
        Some((number, now))
    }

    fn events(&mut self, number: usize, now: Time) {
        let peer = &mut self.peers[number];
        while let Some(event) = peer.engine.poll_event() {
            match event {
                Event::Connected { partner, status, .. } => {
                    assert_eq!(status, Status::Success);
                    peer.connected = true;
                    for length in std::mem::take(&mut peer.lengths) {
                        let token = Token::from(peer.number);
                        let options = SendOptions {
                            copyable: true,
                            synchronous: false,
                        };
                        let sent = if length <= 128 {
                            let data = content(peer.number, 0, length as usize);
                            peer.engine.send_inline(now, partner, token, token, data)
                        } else {
                            peer.engine.send(now, partner, token, token, length, options)
                        };
                        sent.unwrap();
                    }
                }
                Event::Received { status, .. } => {
                    assert_eq!(status, Status::Success);
                    peer.sink.received += 1;
                }
                Event::Sent { status, .. } => assert_eq!(status, Status::Success),
                other => panic!("{other:?}"),
            }
        }
    }

    fn transmit(&mut self, number: usize) {
        let now = self.now();
        let peer = &mut self.peers[number];
        let mut head = [0; HEAD_BUFFER_LEN];
        while let Some(transmit) = peer.engine.poll_transmit(now, &mut head) {
            let mut frame = head[..transmit.head_len].to_vec();
            if let Some(payload) = transmit.payload {
                frame.extend_from_slice(content(peer.number, payload.offset as usize, payload.len as usize));
            }
            frame.resize(transmit.frame_len(), 0);
            self.waiting.push_back(frame);
        }
        self.flush();
    }

    fn flush(&mut self) {
        while let Some(frame) = self.waiting.front() {
            if !self.port.send(&[IoSlice::new(frame)]).unwrap() {
                return;
            }
            self.waiting.pop_front();
        }
    }

    fn tick(&mut self) {
        let now = self.now();
        for number in 0..self.peers.len() {
            let engine = &mut self.peers[number].engine;
            if engine.poll_timeout().is_some_and(|due| due <= now) {
                engine.handle_timeout(now);
                self.events(number, now);
                self.transmit(number);
            }
        }
    }
}
