//! Two protocol engines exchange a message in virtual time: connect, send, pull, acknowledge. No network and no clock is needed.
//!
//! `cargo run -p weft-mxoe --example two_engines`

use ether::{MacAddr, Time};
use mxoe::{
    engine::{
        Arrival, Body, Config, Engine, Event, HEAD_BUFFER_LEN, Host, PeerMap, SendOptions, Status, Token, Verdict,
    },
    wire::Preset,
};

/// Both endpoints have this number.
const ENDPOINT: u8 = 1;
/// What the sender's connect is called.
const CONNECT: Token = 1;
/// What the message is called at its sender: its frames name their bytes by it.
const MESSAGE: Token = 2;
/// What the receive is called at the receiver.
const RECEIVE: Token = 3;
/// The match information of the message.
const MATCH_INFO: u64 = 42;

/// The program behind an engine: it takes every message into one buffer.
#[derive(Default)]
struct Inbox {
    bytes: Vec<u8>,
    is_complete: bool,
}

impl Host for Inbox {
    fn arrive(&mut self, arrival: Arrival<'_>) -> Verdict {
        self.bytes = vec![0; arrival.length as usize];
        match arrival.body {
            Body::Whole(data) => {
                self.bytes.copy_from_slice(data);
                self.is_complete = true;
                Verdict::Take(RECEIVE)
            }
            Body::Fragments => Verdict::Take(RECEIVE),
            Body::Announced { .. } => Verdict::Pull {
                receive: RECEIVE,
                length: arrival.length,
            },
        }
    }

    fn deliver(&mut self, _receive: Token, offset: u32, data: &[u8]) {
        self.bytes[offset as usize..][..data.len()].copy_from_slice(data);
    }
}

struct Node {
    engine: Engine<PeerMap>,
    inbox: Inbox,
    frames_sent: usize,
}

impl Node {
    fn new(mac: MacAddr, session: u32) -> Self {
        let config = Config::new(mac, ENDPOINT, session, Preset::Native1500);
        let peers = PeerMap::new(16, config.seed);
        Self {
            engine: Engine::new(config, peers),
            inbox: Inbox::default(),
            frames_sent: 0,
        }
    }

    /// The next frame: what the engine wrote, then a piece of the message, then zeros up to the least length of a frame.
    fn transmit(&mut self, now: Time, message: &[u8]) -> Option<Vec<u8>> {
        let mut head = [0; HEAD_BUFFER_LEN];
        let transmit = self.engine.poll_transmit(now, &mut head)?;
        let mut frame = head[..transmit.head_len].to_vec();
        if let Some(payload) = transmit.payload {
            frame.extend_from_slice(&message[payload.offset as usize..][..payload.len as usize]);
        }
        frame.resize(transmit.frame_len(), 0);
        self.frames_sent += 1;
        Some(frame)
    }
}

/// Brings the frames of one node to the other, without loss and in no time. False: there were none.
fn carry(now: Time, from: &mut Node, to: &mut Node, message: &[u8]) -> bool {
    let before = from.frames_sent;
    while let Some(frame) = from.transmit(now, message) {
        to.engine.handle(now, &frame, &mut to.inbox);
    }
    from.frames_sent > before
}

/// What the receiver got, and how many frames the sender and the receiver sent.
pub struct Exchanged {
    /// The message as it was received.
    pub received: Vec<u8>,
    /// Frames of the sender.
    pub frames_out: usize,
    /// Frames of the receiver.
    pub frames_back: usize,
}

/// Sends a message from one engine to the other, and returns when both ends know that it arrived.
pub fn exchange(message: &[u8]) -> Exchanged {
    let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let (mut a, mut b) = (Node::new(macs[0], 0x1001), Node::new(macs[1], 0x1002));
    let length = u32::try_from(message.len()).expect("a message has less than 4 GiB");
    let mut now = Time::from_nanos(1);
    let mut is_sent = false;
    a.engine
        .connect(now, macs[1], ENDPOINT, 0, CONNECT)
        .expect("the peer table has room");
    loop {
        while carry(now, &mut a, &mut b, message) | carry(now, &mut b, &mut a, message) {}
        let mut is_posted = false;
        while let Some(event) = a.engine.poll_event() {
            match event {
                Event::Connected { partner, status, .. } => {
                    assert_eq!(status, Status::Success);
                    a.engine
                        .send(now, partner, MATCH_INFO, MESSAGE, length, SendOptions::default())
                        .expect("there is room for one message");
                    is_posted = true;
                }
                Event::Sent { status, .. } => {
                    assert_eq!(status, Status::Success);
                    is_sent = true;
                }
                other => panic!("{other:?}"),
            }
        }
        while let Some(event) = b.engine.poll_event() {
            if let Event::Received { status, .. } = event {
                assert_eq!(status, Status::Success);
                b.inbox.is_complete = true;
            }
        }
        if is_sent && b.inbox.is_complete {
            return Exchanged {
                received: b.inbox.bytes,
                frames_out: a.frames_sent,
                frames_back: b.frames_sent,
            };
        }
        if is_posted {
            continue;
        }
        // Nothing moves until a timer is due: a delayed acknowledgement, for example.
        let due = [a.engine.poll_timeout(), b.engine.poll_timeout()];
        now = due
            .into_iter()
            .flatten()
            .min()
            .expect("an engine that waits has a timer");
        a.engine.handle_timeout(now);
        b.engine.handle_timeout(now);
    }
}

/// Exchanges a short and a long message, and prints how many frames they took.
pub fn main() {
    for length in [5, 100_000] {
        let message: Vec<u8> = (0..length).map(|i| (i % 251) as u8).collect();
        let exchanged = exchange(&message);
        assert!(exchanged.received == message, "every byte arrives");
        println!(
            "{length} bytes: {} frames out, {} back, connection included",
            exchanged.frames_out, exchanged.frames_back
        );
    }
}
