//! One engine against frames made by hand: the peer is whatever a test wants it to be.

use ether::{MacAddr, Time};
use mxoe::{
    engine::{Config, Counter, PartnerId, PeerMap, SendOptions},
    wire::{
        Ack, Connect, ConnectKind, Dialect, Eager, Extension, Head, Medium, Notify, Packet, PacketType, Preset, Pull,
        PullReply, Rndv, pull_magic,
    },
};

use super::node::{Node, config_of, mac_of};

pub const SESSION: u32 = 0x1000;
pub const PEER_SESSION: u32 = 0xbeef;
pub const PEER: MacAddr = MacAddr([2, 0, 0, 0, 9, 9]);
pub const PEER_ENDPOINT: u8 = 7;

/// An acknowledgement of the peer's.
pub fn ack(value: u16, acknum: u32) -> Ack {
    Ack {
        dst_endpoint: 1,
        src_endpoint: PEER_ENDPOINT,
        session: SESSION,
        ack: value,
        session_id: SESSION,
        acknum,
        send_seq: value,
        resent: 0,
    }
}

/// The peer's end of the engine's first large send.
pub fn notify(seqnum: u16, piggyack: u16, total_length: u32) -> Notify {
    Notify {
        dst_endpoint: 1,
        src_endpoint: PEER_ENDPOINT,
        session: SESSION,
        total_length,
        rdma_id: 0,
        rdma_seqnum: 23,
        seqnum,
        piggyack,
    }
}

/// The engine under test is node 0, endpoint 1; the peer is a script.
pub struct Script {
    pub node: Node,
    pub now: Time,
    pub dialect: Dialect,
    /// Index of the peer in the engine's table.
    pub peer_index: u16,
    pub partner: PartnerId,
}

impl Script {
    /// Connected by a request of the peer, which announces nothing.
    pub fn new(preset: Preset) -> Self {
        Self::with(config_of(0, preset), None)
    }

    pub fn with(config: Config, extension: Option<Extension>) -> Self {
        let mut peers = PeerMap::new(16, 1);
        peers.add(MacAddr([2, 0, 0, 0, 1, 1]));
        let dialect = config.dialect.with_marks(true);
        let mut script = Self {
            node: Node::with_peers(config, peers),
            now: Time::from_nanos(1_000),
            dialect,
            peer_index: 1,
            partner: PartnerId::default(),
        };
        script.request(PEER_SESSION, 1, extension);
        let reply = script.one();
        assert!(matches!(
            reply,
            Reply::Connect(Connect {
                kind: ConnectKind::Reply { status: 0, .. },
                ..
            })
        ));
        script.partner = script.node.engine.partners().next().unwrap();
        script
    }

    pub fn head(&self) -> Head {
        Head {
            dst: mac_of(0),
            src: PEER,
            peer_index: self.peer_index,
            marked: false,
        }
    }

    pub fn request(&mut self, session: u32, recv_seqnum_start: u16, extension: Option<Extension>) {
        let connect = Connect {
            dst_endpoint: 1,
            src_endpoint: PEER_ENDPOINT,
            seqnum: 0,
            peer_index: 0x77,
            src_session: session,
            recv_seqnum_start,
            connect_seqnum: 0,
            kind: ConnectKind::Request { key: 0 },
            extension,
        };
        self.put(Packet::Connect(connect));
    }

    /// Hands the engine a packet of the peer.
    pub fn put(&mut self, packet: Packet<'_>) {
        let head = self.head();
        self.put_as(&head, packet);
    }

    pub fn put_as(&mut self, head: &Head, packet: Packet<'_>) {
        let mut frame = [0; 9_100];
        let len = self.dialect.emit(head, &packet, &mut frame).unwrap();
        self.put_bytes(&frame[..len]);
    }

    pub fn put_bytes(&mut self, frame: &[u8]) {
        self.node.frame(self.now, frame);
    }

    pub fn bytes(&self, packet: Packet<'_>) -> Vec<u8> {
        self.bytes_as(&self.head(), packet)
    }

    pub fn bytes_as(&self, head: &Head, packet: Packet<'_>) -> Vec<u8> {
        let mut frame = [0; 9_100];
        let len = self.dialect.emit(head, &packet, &mut frame).unwrap();
        frame[..len].to_vec()
    }

    /// Takes the frame, and counts one for each of these and for nothing else.
    #[track_caller]
    pub fn counted(&mut self, counters: &[Counter], bytes: &[u8]) {
        let before = self.node.engine.counters().clone();
        self.put_bytes(bytes);
        for counter in Counter::ALL {
            let more = counters.iter().filter(|counted| *counted == counter).count() as u32;
            assert_eq!(self.count(*counter), before.get(*counter) + more, "{}", counter.name());
        }
    }

    #[track_caller]
    pub fn put_counted(&mut self, counters: &[Counter], packet: Packet<'_>) {
        let bytes = self.bytes(packet);
        self.counted(counters, &bytes);
    }

    pub fn count(&self, counter: Counter) -> u32 {
        self.node.count(counter)
    }

    /// Every frame the engine wants to send now.
    pub fn frames(&mut self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.node.transmit(self.now)).collect()
    }

    pub fn replies(&mut self) -> Vec<Reply> {
        let dialect = self.dialect;
        self.frames().iter().map(|frame| Reply::of(&dialect, frame)).collect()
    }

    /// The only frame the engine wants to send now.
    pub fn one(&mut self) -> Reply {
        let mut replies = self.replies();
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.remove(0)
    }

    /// Lets time pass, with everything that is due in it.
    pub fn pass(&mut self, ns: u64) {
        let end = self.now.plus_nanos(ns);
        while let Some(due) = self.node.engine.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.node.timeout(self.now);
            if due <= self.now && self.node.engine.poll_timeout() == Some(due) {
                panic!("a timer that is due stays due");
            }
        }
        self.now = end;
    }

    /// A message of as many bytes as `like`, with the contents the node expects.
    pub fn eager(&self, seqnum: u16, like: &[u8]) -> Eager<'static> {
        let data = super::node::fill(5, like.len()).leak();
        Eager {
            dst_endpoint: 1,
            src_endpoint: PEER_ENDPOINT,
            seqnum,
            piggyack: 1,
            match_info: 5,
            session: SESSION,
            data,
        }
    }

    pub fn medium<'a>(&self, seqnum: u16, length: u32, frag_seqnum: u8, data: &'a [u8]) -> Medium<'a> {
        Medium {
            dst_endpoint: 1,
            src_endpoint: PEER_ENDPOINT,
            length,
            seqnum,
            piggyack: 1,
            match_info: 5,
            session: SESSION,
            frag_seqnum,
            frag_pipeline: Medium::pipeline_of(self.dialect.sizes()),
            data,
        }
    }

    pub fn rndv(&self, seqnum: u16, msg_length: u32) -> Rndv<'static> {
        Rndv {
            dst_endpoint: 1,
            src_endpoint: PEER_ENDPOINT,
            seqnum,
            piggyack: 1,
            match_info: 5,
            session: SESSION,
            msg_length,
            rdma_id: 3,
            rdma_seqnum: 23,
            rdma_offset: 0,
            head: &[],
        }
    }

    /// A PULL of the peer for the engine's first large send.
    pub fn pull(&self, block_length: u32) -> Pull {
        Pull {
            dst_endpoint: 1,
            src_endpoint: PEER_ENDPOINT,
            session: SESSION,
            total_length: block_length,
            rdma_id: 0,
            rdma_seqnum: 23,
            rdma_offset: 0,
            handle: 0x5555_5555,
            magic: pull_magic(PEER_ENDPOINT),
            first_frame_offset: 0,
            block_length,
            frame_index: 0,
        }
    }

    /// The engine announces a large message of its own.
    pub fn send_large(&mut self, length: u32) {
        let (now, partner) = (self.now, self.partner);
        self.node.send(
            now,
            partner,
            1,
            length,
            SendOptions {
                synchronous: true,
                copyable: false,
            },
        );
        assert_eq!(self.one().kind(), PacketType::Rndv);
    }

    /// The peer announces a large message, and the engine asks for its blocks.
    pub fn pulled(&mut self, length: u32) -> Vec<Pull> {
        let now = self.now;
        self.node.post_any(now, 1);
        self.put(Packet::Rndv(self.rndv(1, length)));
        let replies = self.replies();
        replies
            .into_iter()
            .map(|reply| match reply {
                Reply::Pull(pull) => pull,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    pub fn pull_reply<'a>(&self, pull: &Pull, frame_seqnum: u8, msg_offset: u32, data: &'a [u8]) -> PullReply<'a> {
        PullReply {
            frame_seqnum,
            msg_offset,
            handle: pull.handle,
            magic: pull.magic,
            data,
        }
    }
}

/// A packet the engine sent, with its data owned.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    Connect(Connect),
    Pull(Pull),
    Ack(mxoe::wire::Ack),
    NackLib(mxoe::wire::NackLib),
    NackMcp(mxoe::wire::NackMcp),
    Notify(mxoe::wire::Notify),
    Other(PacketType, Vec<u8>),
}

impl Reply {
    pub fn of(dialect: &Dialect, frame: &[u8]) -> Self {
        let (_, packet) = dialect.decode(frame).unwrap();
        match packet {
            Packet::Connect(p) => Self::Connect(p),
            Packet::Pull(p) => Self::Pull(p),
            Packet::Ack(p) => Self::Ack(p),
            Packet::NackLib(p) => Self::NackLib(p),
            Packet::NackMcp(p) => Self::NackMcp(p),
            Packet::Notify(p) => Self::Notify(p),
            other => Self::Other(other.packet_type(), other.data().to_vec()),
        }
    }

    pub fn kind(&self) -> PacketType {
        match self {
            Self::Connect(_) => PacketType::Connect,
            Self::Pull(_) => PacketType::Pull,
            Self::Ack(_) => PacketType::Truc,
            Self::NackLib(_) => PacketType::NackLib,
            Self::NackMcp(_) => PacketType::NackMcp,
            Self::Notify(_) => PacketType::Notify,
            Self::Other(kind, _) => *kind,
        }
    }
}
