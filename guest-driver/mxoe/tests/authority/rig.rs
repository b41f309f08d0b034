//! An authority in a table of peers, fed by hand.

use ether::{MacAddr, Time};
use mxoe::{
    authority::{Authority, AuthorityConfig},
    engine::{Counter, PeerMap, Peers},
    wire::{Dialect, Head, Packet, Preset},
};

pub const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
pub const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
pub const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
pub const SECOND_NS: u64 = 1_000_000_000;

pub struct Rig {
    pub authority: Authority,
    pub peers: PeerMap,
    pub now: Time,
    pub dialect: Dialect,
}

/// What frames can change: the table of peers, their indices and names.
type Known = Vec<(Option<MacAddr>, u16, Option<Vec<u8>>)>;

impl Rig {
    pub fn new(peers: PeerMap) -> Self {
        Self::with(peers, Dialect::new(Preset::Native1500.sizes()))
    }

    pub fn with(peers: PeerMap, dialect: Dialect) -> Self {
        let config = AuthorityConfig {
            mac: OWN,
            dialect,
            endpoints: 32,
            name: Box::from(&b"node:0"[..]),
        };
        let mut rig = Self {
            authority: Authority::new(config),
            peers,
            now: Time::from_nanos(1),
            dialect,
        };
        rig.peers.add(PEER);
        rig
    }

    pub fn frame(&self, src: MacAddr, dst: MacAddr, peer_index: u16, packet: Packet<'_>) -> Vec<u8> {
        let head = Head {
            dst,
            src,
            peer_index,
            marked: false,
        };
        let mut frame = [0; 2_000];
        let len = self.dialect.emit(&head, &packet, &mut frame).unwrap();
        frame[..len].to_vec()
    }

    pub fn bytes(&mut self, frame: &[u8]) {
        // Endpoint 1 is open.
        self.authority
            .handle(self.now, frame, &mut self.peers, |endpoint| endpoint == 1);
    }

    pub fn put(&mut self, packet: Packet<'_>) {
        let frame = self.frame(PEER, OWN, 0, packet);
        self.bytes(&frame);
    }

    /// Takes the frame, and counts one for each of these and for nothing else.
    #[track_caller]
    pub fn counted(&mut self, counters: &[Counter], frame: &[u8]) {
        let before = self.authority.counters().clone();
        self.bytes(frame);
        for counter in Counter::ALL {
            let more = counters.iter().filter(|counted| *counted == counter).count() as u32;
            assert_eq!(self.count(*counter), before.get(*counter) + more, "{}", counter.name());
        }
    }

    #[track_caller]
    pub fn put_counted(&mut self, counters: &[Counter], packet: Packet<'_>) {
        let frame = self.frame(PEER, OWN, 0, packet);
        self.counted(counters, &frame);
    }

    /// The frame is counted and changes nothing: no answer, no event, no timer, and the same is known of peers.
    #[track_caller]
    pub fn only_counted(&mut self, counters: &[Counter], frame: &[u8]) {
        let (known, due) = (self.known(), self.authority.poll_timeout());
        self.counted(counters, frame);
        assert_eq!(self.known(), known);
        assert_eq!(self.authority.poll_timeout(), due);
        assert_eq!(self.authority.poll_event(), None);
        assert_eq!(self.sent(), Vec::<Vec<u8>>::new());
    }

    fn known(&self) -> Known {
        let of = |index| {
            let name = self.authority.name(index).map(<[u8]>::to_vec);
            (self.peers.mac(index), self.peers.reverse(index), name)
        };
        (0..16).map(of).collect()
    }

    pub fn count(&self, counter: Counter) -> u32 {
        self.authority.counters().get(counter)
    }

    pub fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut out = [0xee; 1_100];
        std::iter::from_fn(|| {
            let len = self.authority.poll_transmit(&self.peers, &mut out)?;
            Some(out[..len].to_vec())
        })
        .collect()
    }

    pub fn pass(&mut self, ns: u64) -> Vec<(u64, Vec<u8>)> {
        let end = self.now.plus_nanos(ns);
        let mut sent = Vec::new();
        while let Some(due) = self.authority.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.authority.handle_timeout(self.now);
            let at = self.now.as_nanos() / SECOND_NS;
            sent.extend(self.sent().into_iter().map(|frame| (at, frame)));
        }
        self.now = end;
        sent
    }
}

pub fn rig() -> Rig {
    Rig::new(PeerMap::new(8, 0))
}
