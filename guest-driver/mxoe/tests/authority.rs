//! The authority of an interface: names, discovery, RAW frames, and refusals for endpoints that are not open.

use ether::{MacAddr, Time};
use mxoe::{
    authority::{Authority, AuthorityConfig, AuthorityEvent},
    engine::{Counter, PeerMap, Peers},
    wire::{
        Ack, Announcement, Connect, ConnectKind, Dialect, Eager, HOST_MAGIC_FIRST, Head, HostQuery, HostReply, Medium,
        NackCode, NackLib, NackMcp, Notify, PEER_INDEX_UNKNOWN, Packet, Preset, Pull, PullReply, Raw, Rndv, pull_magic,
    },
};

const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const STRANGER: MacAddr = MacAddr([2, 0, 0, 0, 0, 3]);
const SECOND_NS: u64 = 1_000_000_000;

struct Rig {
    authority: Authority,
    peers: PeerMap,
    now: Time,
    dialect: Dialect,
}

impl Rig {
    fn new(peers: PeerMap) -> Self {
        let dialect = Dialect::new(Preset::Native1500.sizes());
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

    fn frame(&self, src: MacAddr, dst: MacAddr, peer_index: u16, packet: Packet<'_>) -> Vec<u8> {
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

    fn bytes(&mut self, frame: &[u8]) {
        // Endpoint 1 is open.
        self.authority
            .handle(self.now, frame, &mut self.peers, |endpoint| endpoint == 1);
    }

    fn put(&mut self, packet: Packet<'_>) {
        let frame = self.frame(PEER, OWN, 0, packet);
        self.bytes(&frame);
    }

    fn count(&self, counter: Counter) -> u32 {
        self.authority.counters().get(counter)
    }

    fn sent(&mut self) -> Vec<Vec<u8>> {
        let mut out = [0xee; 1_100];
        std::iter::from_fn(|| {
            let len = self.authority.poll_transmit(&self.peers, &mut out)?;
            Some(out[..len].to_vec())
        })
        .collect()
    }

    fn pass(&mut self, ns: u64) -> Vec<(u64, Vec<u8>)> {
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

fn rig() -> Rig {
    Rig::new(PeerMap::new(8, 0))
}

fn query(magic: u32) -> Packet<'static> {
    Packet::HostQuery(HostQuery { peer_index: 9, magic })
}

fn reply(magic: u32, name: &[u8]) -> Packet<'_> {
    Packet::HostReply(HostReply {
        peer_index: 9,
        magic,
        name,
    })
}

#[test]
fn a_query_is_answered_with_the_name_and_both_tell_their_index() {
    let mut rig = rig();
    rig.put(query(0x1234));
    assert_eq!(rig.peers.reverse(0), 9);
    let sent = rig.sent();
    let (head, packet) = rig.dialect.decode(&sent[0]).unwrap();
    assert_eq!((sent.len(), head.dst, head.peer_index), (1, PEER, 9));
    let expected = HostReply {
        peer_index: 0,
        magic: 0x1234,
        name: b"node:0",
    };
    assert_eq!(packet, Packet::HostReply(expected));
    assert_eq!(sent[0].len(), 60 + 7);
}

#[test]
fn unknown_peers_that_ask_are_added_unless_the_table_is_static_or_full() {
    let mut open = rig();
    let frame = open.frame(STRANGER, OWN, 0, query(1));
    open.bytes(&frame);
    assert_eq!(
        (open.peers.index(STRANGER), open.count(Counter::PeersAdded)),
        (Some(1), 1)
    );
    assert_eq!(open.sent().len(), 2, "the answer, and a question back");
    for peers in [PeerMap::new(8, 0).fixed(), PeerMap::new(1, 0)] {
        let mut closed = Rig::new(peers);
        closed.bytes(&frame);
        assert_eq!(
            (closed.peers.index(STRANGER), closed.count(Counter::DropBadPeerAddr)),
            (None, 1)
        );
        assert!(closed.sent().is_empty());
    }
    // Not for this address: none of our business.
    let mut other = rig();
    let frame = other.frame(PEER, STRANGER, 0, query(1));
    other.bytes(&frame);
    assert!(other.sent().is_empty());
}

#[test]
fn names_are_asked_for_until_they_come() {
    let mut rig = rig();
    rig.authority.peer_added(rig.now, 0);
    let sent = rig.sent();
    let (_, packet) = rig.dialect.decode(&sent[0]).unwrap();
    assert_eq!(
        packet,
        Packet::HostQuery(HostQuery {
            peer_index: 0,
            magic: HOST_MAGIC_FIRST
        })
    );
    let again = rig.pass(16 * SECOND_NS);
    assert_eq!(again.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [5, 10, 15]);
    rig.put(reply(HOST_MAGIC_FIRST + 1, b"wrong:0"));
    assert_eq!(rig.count(Counter::DropHostReplyBadMagic), 1);
    let stranger = rig.frame(STRANGER, OWN, 0, reply(HOST_MAGIC_FIRST, b"nobody:0"));
    rig.bytes(&stranger);
    assert_eq!(rig.count(Counter::DropBadPeerAddr), 1);
    rig.put(reply(HOST_MAGIC_FIRST, b"peer:0"));
    assert_eq!(rig.authority.poll_event(), Some(AuthorityEvent::Named { peer: 0 }));
    rig.put(reply(HOST_MAGIC_FIRST, b"later:0"));
    assert_eq!(
        rig.authority.name(0),
        Some(&b"peer:0"[..]),
        "a known name is not overwritten"
    );
    assert_eq!(rig.authority.find(b"peer:0"), Some(0));
    assert!(rig.pass(20 * SECOND_NS).is_empty());
    // Cleared: the magic moves on before the questions go out.
    rig.authority.clear_names(rig.now);
    let sent = rig.sent();
    let (_, packet) = rig.dialect.decode(&sent[0]).unwrap();
    assert_eq!(
        packet,
        Packet::HostQuery(HostQuery {
            peer_index: 0,
            magic: HOST_MAGIC_FIRST + 1
        })
    );
    rig.put(reply(HOST_MAGIC_FIRST, b"peer:0"));
    assert_eq!(
        (rig.authority.name(0), rig.count(Counter::DropHostReplyBadMagic)),
        (None, 2)
    );
}

#[test]
fn replies_with_impossible_names_are_dropped() {
    let mut rig = rig();
    let good = rig.frame(PEER, OWN, 0, reply(HOST_MAGIC_FIRST, b"peer:0"));
    for length in [0, 81, 255] {
        let mut bad = good.clone();
        bad.resize(400, 0);
        bad[17] = length;
        rig.bytes(&bad);
    }
    assert_eq!(rig.count(Counter::DropBadDatalen), 3);
    let mut short = good.clone();
    short[17] = 80;
    rig.bytes(&short);
    assert_eq!((rig.count(Counter::DropBadSkblen), rig.authority.name(0)), (1, None));
}

fn eager(dst_endpoint: u8) -> Eager<'static> {
    Eager {
        dst_endpoint,
        src_endpoint: 4,
        seqnum: 77,
        piggyack: 1,
        match_info: 0,
        session: 1,
        data: b"",
    }
}

fn sequenced(dst_endpoint: u8) -> [Packet<'static>; 5] {
    let Eager {
        src_endpoint,
        seqnum,
        piggyack,
        match_info,
        session,
        data,
        ..
    } = eager(dst_endpoint);
    [
        Packet::Tiny(eager(dst_endpoint)),
        Packet::Small(eager(dst_endpoint)),
        Packet::Medium(Medium {
            dst_endpoint,
            src_endpoint,
            length: 0,
            seqnum,
            piggyack,
            match_info,
            session,
            frag_seqnum: 0,
            frag_pipeline: 0,
            data,
        }),
        Packet::Rndv(Rndv {
            dst_endpoint,
            src_endpoint,
            seqnum,
            piggyack,
            match_info,
            session,
            msg_length: 1,
            rdma_id: 0,
            rdma_seqnum: 0,
            rdma_offset: 0,
        }),
        Packet::Notify(Notify {
            dst_endpoint,
            src_endpoint,
            session,
            total_length: 0,
            rdma_id: 0,
            rdma_seqnum: 0,
            seqnum,
            piggyack,
        }),
    ]
}

fn connect(dst_endpoint: u8, kind: ConnectKind) -> Packet<'static> {
    Packet::Connect(Connect {
        dst_endpoint,
        src_endpoint: 4,
        seqnum: 0,
        peer_index: 6,
        src_session: 1,
        recv_seqnum_start: 1,
        connect_seqnum: 0,
        kind,
        extension: None,
    })
}

fn pull(dst_endpoint: u8) -> Pull {
    Pull {
        dst_endpoint,
        src_endpoint: 4,
        session: 1,
        total_length: 1,
        rdma_id: 0,
        rdma_seqnum: 0,
        rdma_offset: 0,
        handle: 0xabc,
        magic: pull_magic(4),
        first_frame_offset: 0,
        block_length: 1,
        frame_index: 0,
    }
}

#[test]
fn what_is_for_no_open_endpoint_is_refused_and_what_is_for_an_open_one_left_alone() {
    for (endpoint, code) in [
        (2, NackCode::EndpointClosed),
        (31, NackCode::EndpointClosed),
        (32, NackCode::BadEndpoint),
    ] {
        let mut rig = rig();
        rig.peers.set_reverse(0, 55);
        let mut refused = 0;
        for packet in sequenced(endpoint) {
            rig.put(packet);
            refused += 1;
            assert_eq!(rig.count(Counter::DropBadEndpoint), refused);
            let sent = rig.sent();
            let (head, answer) = rig.dialect.decode(&sent[0]).unwrap();
            assert_eq!((sent.len(), head.peer_index), (1, 55));
            let nack = NackLib {
                src_endpoint: endpoint,
                dst_endpoint: 4,
                code,
                peer_index: 55,
                seqnum: 77,
            };
            assert_eq!(answer, Packet::NackLib(nack));
        }
        rig.put(Packet::Pull(pull(endpoint)));
        let sent = rig.sent();
        let nack = NackMcp {
            src_endpoint: 4,
            code,
            handle: 0xabc,
            magic: pull_magic(4),
        };
        assert_eq!(rig.dialect.decode(&sent[0]).unwrap().1, Packet::NackMcp(nack));
        for kind in [
            ConnectKind::Request { key: 0 },
            ConnectKind::Reply { session: 1, status: 0 },
        ] {
            rig.put(connect(endpoint, kind));
            let sent = rig.sent();
            let nack = NackLib {
                src_endpoint: endpoint,
                dst_endpoint: 4,
                code,
                peer_index: 6,
                seqnum: 0,
            };
            assert_eq!(rig.dialect.decode(&sent[0]).unwrap().1, Packet::NackLib(nack));
        }
    }
    let mut rig = rig();
    for packet in sequenced(1) {
        rig.put(packet);
    }
    rig.put(Packet::Pull(pull(1)));
    rig.put(connect(1, ConnectKind::Request { key: 0 }));
    assert!(rig.sent().is_empty());
    assert_eq!(rig.count(Counter::DropBadEndpoint), 0);
}

#[test]
fn what_is_never_refused_is_only_counted() {
    let mut rig = rig();
    let ack = Ack {
        dst_endpoint: 2,
        src_endpoint: 4,
        session: 1,
        ack: 1,
        session_id: 1,
        acknum: 1,
        send_seq: 1,
        resent: 0,
    };
    rig.put(Packet::Ack(ack));
    let nack = NackLib {
        src_endpoint: 4,
        dst_endpoint: 2,
        code: NackCode::BadSession,
        peer_index: 0,
        seqnum: 1,
    };
    rig.put(Packet::NackLib(nack));
    assert_eq!(rig.count(Counter::DropBadEndpoint), 2);
    for magic in [pull_magic(2), 0] {
        rig.put(Packet::PullReply(PullReply {
            frame_seqnum: 0,
            msg_offset: 0,
            handle: 0,
            magic,
            data: b"x",
        }));
        rig.put(Packet::NackMcp(NackMcp {
            src_endpoint: 4,
            code: NackCode::BadSession,
            handle: 0,
            magic,
        }));
    }
    assert_eq!(rig.count(Counter::DropPullReplyBadMagicEndpoint), 2);
    assert_eq!(rig.count(Counter::DropNackMcpBadMagicEndpoint), 2);
    assert!(rig.sent().is_empty());
}

#[test]
fn refusals_need_a_known_peer() {
    let mut rig = rig();
    for packet in sequenced(2) {
        let frame = rig.frame(PEER, OWN, 3, packet);
        rig.bytes(&frame);
        let frame = rig.frame(STRANGER, OWN, 0, packet);
        rig.bytes(&frame);
    }
    assert_eq!(rig.count(Counter::DropBadPeerIndex), 10);
    let nack = Packet::NackLib(NackLib {
        src_endpoint: 4,
        dst_endpoint: 2,
        code: NackCode::BadSession,
        peer_index: 0,
        seqnum: 1,
    });
    for (src, index) in [(PEER, 3), (STRANGER, PEER_INDEX_UNKNOWN)] {
        let frame = rig.frame(src, OWN, index, nack);
        rig.bytes(&frame);
    }
    assert_eq!(
        (
            rig.count(Counter::DropNackBadPeerIndex),
            rig.count(Counter::DropBadPeerAddr)
        ),
        (1, 1)
    );
    let reply = rig.frame(
        STRANGER,
        OWN,
        0,
        connect(2, ConnectKind::Reply { session: 1, status: 0 }),
    );
    rig.bytes(&reply);
    assert_eq!(rig.count(Counter::DropBadPeerAddr), 2);
    assert!(rig.sent().is_empty());
}

#[test]
fn raw_frames_wait_for_the_mapping_daemon_up_to_the_limit() {
    let mut rig = rig();
    let frame = rig.frame(PEER, MacAddr::BROADCAST, 0, Packet::Raw(Raw { payload: &[7; 80] }));
    rig.bytes(&frame);
    assert_eq!(rig.authority.take_raw(), None, "nobody opened the raw endpoint");
    rig.authority.set_raw_open(true);
    for _ in 0..40 {
        rig.bytes(&frame);
    }
    assert_eq!(
        (rig.count(Counter::RecvRaw), rig.count(Counter::DropRawQueueFull)),
        (32, 8)
    );
    assert_eq!(rig.authority.take_raw().as_deref(), Some(&frame[..]));
    let mut long = frame.clone();
    long.resize(1_025, 0);
    rig.bytes(&long);
    assert_eq!(rig.count(Counter::DropRawTooLarge), 1);
    assert!(rig.authority.send_raw(&frame) && !rig.authority.send_raw(&long));
    assert_eq!(rig.sent(), [frame]);
}

#[test]
fn boards_announce_themselves_eight_times_and_then_rarely() {
    let mut rig = rig();
    rig.authority.start_discovery(rig.now, 0x6b8b_4567);
    let sent = rig.pass(400 * SECOND_NS);
    let times: Vec<u64> = sent.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0, 1, 2, 3, 4, 5, 6, 7, 187, 367]);
    assert_eq!(sent[0].1.len(), 64);
    // A new board: quickly again, and only when its serial is new.
    let announcement = |board: u64, serial| Announcement { board, serial }.to_payload();
    let own = announcement(OWN.to_u64(), 1);
    let new = announcement(STRANGER.to_u64(), 1);
    for (payload, boards) in [
        (&own, 0),
        (&new, 1),
        (&new, 0),
        (&announcement(STRANGER.to_u64(), 2), 1),
    ] {
        let frame = rig.frame(PEER, MacAddr::BROADCAST, 0, Packet::Raw(Raw { payload }));
        rig.bytes(&frame);
        assert_eq!(std::iter::from_fn(|| rig.authority.poll_event()).count(), boards);
    }
    assert_eq!(rig.peers.index(STRANGER), Some(1), "the address inside counts");
    let times: Vec<_> = rig
        .pass(10 * SECOND_NS)
        .iter()
        .filter(|(_, frame)| frame[16] == 1)
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(times, [401, 402, 403, 404, 405, 406, 407, 408]);
}
