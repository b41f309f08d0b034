//! Refusals for endpoints that are not open: the checks in their order, the answer, the counter.

use mxoe::{
    engine::{Counter, Lost, Peers},
    wire::{
        Ack, Connect, ConnectKind, Eager, Medium, NackCode, NackLib, NackMcp, Notify, PEER_INDEX_UNKNOWN, Packet,
        PacketType, Pull, PullReply, Rndv, pull_magic,
    },
};

use super::rig::{OWN, PEER, STRANGER, rig};

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
            head: &[],
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

/// One of each that is refused: the endpoint is not open.
pub fn refused() -> Vec<Packet<'static>> {
    let mut packets = sequenced(2).to_vec();
    packets.push(connect(2, ConnectKind::Request { key: 0 }));
    packets.push(Packet::Pull(pull(2)));
    packets
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
        for packet in sequenced(endpoint) {
            rig.put_counted(&[Counter::DropBadEndpoint], packet);
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
        rig.put_counted(
            &[Counter::RecvPullReq, Counter::DropBadEndpoint],
            Packet::Pull(pull(endpoint)),
        );
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
            rig.put_counted(&[Counter::DropBadEndpoint], connect(endpoint, kind));
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
        let frame = rig.frame(PEER, OWN, 0, packet);
        rig.only_counted(&[], &frame);
    }
    let frame = rig.frame(PEER, OWN, 0, Packet::Pull(pull(1)));
    rig.only_counted(&[Counter::RecvPullReq], &frame);
    rig.put_counted(&[], connect(1, ConnectKind::Request { key: 0 }));
    assert!(rig.sent().is_empty());
}

#[test]
fn refusals_and_raw_frames_are_lost_on_purpose_like_any_packet() {
    let mut rig = rig();
    let announcement = [[0xff; 6], OWN.0].concat();
    let raw = [&announcement[..], &[0x86, 0xdf, 0, 0, PacketType::Raw.code()], &[0; 47]].concat();
    for (named, lost) in [
        ("nack_lib", [true, false, false]),
        ("nack_mcp", [false, true, false]),
        ("raw", [false, false, true]),
        ("packet", [true, true, true]),
        ("tiny", [false, false, false]),
    ] {
        let what = Lost::named(named).unwrap();
        rig.authority.set_packet_loss(what, 1, 7);
        let before = rig.count(Counter::LostOnPurpose);
        rig.put(Packet::Tiny(eager(2)));
        let mut none = vec![rig.sent().is_empty()];
        rig.put(Packet::Pull(pull(2)));
        none.push(rig.sent().is_empty());
        assert!(rig.authority.send_raw(&raw));
        none.push(rig.sent().is_empty());
        assert_eq!(none, lost, "{named}");
        let counted = rig.count(Counter::LostOnPurpose) - before;
        assert_eq!(counted as usize, lost.into_iter().filter(|lost| *lost).count());
        rig.authority.set_packet_loss(what, 0, 7);
    }
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
    let frame = rig.frame(PEER, OWN, 0, Packet::Ack(ack));
    rig.only_counted(&[Counter::DropBadEndpoint], &frame);
    let nack = NackLib {
        src_endpoint: 4,
        dst_endpoint: 2,
        code: NackCode::BadSession,
        peer_index: 0,
        seqnum: 1,
    };
    let frame = rig.frame(PEER, OWN, 0, Packet::NackLib(nack));
    rig.only_counted(&[Counter::DropBadEndpoint], &frame);
    for (magic, dropped) in [(pull_magic(2), true), (0, true), (pull_magic(1), false)] {
        let reply = PullReply {
            frame_seqnum: 0,
            msg_offset: 0,
            handle: 0,
            magic,
            data: b"x",
        };
        let nack = NackMcp {
            src_endpoint: 4,
            code: NackCode::BadSession,
            handle: 0,
            magic,
        };
        for (packet, counter) in [
            (Packet::PullReply(reply), Counter::DropPullReplyBadMagicEndpoint),
            (Packet::NackMcp(nack), Counter::DropNackMcpBadMagicEndpoint),
        ] {
            let frame = rig.frame(PEER, OWN, 0, packet);
            rig.only_counted(&[counter][..usize::from(dropped)], &frame);
        }
    }
}

#[test]
fn refusals_need_a_known_peer() {
    let mut rig = rig();
    for packet in sequenced(2) {
        for (src, index) in [(PEER, 3), (STRANGER, 0)] {
            let frame = rig.frame(src, OWN, index, packet);
            rig.only_counted(&[Counter::DropBadPeerIndex], &frame);
        }
    }
    let nack = Packet::NackLib(NackLib {
        src_endpoint: 4,
        dst_endpoint: 2,
        code: NackCode::BadSession,
        peer_index: 0,
        seqnum: 1,
    });
    for (src, index, counter) in [
        (PEER, 3, Counter::DropNackBadPeerIndex),
        (STRANGER, PEER_INDEX_UNKNOWN, Counter::DropBadPeerAddr),
    ] {
        let frame = rig.frame(src, OWN, index, nack);
        rig.only_counted(&[counter], &frame);
    }
    let reply = rig.frame(
        STRANGER,
        OWN,
        0,
        connect(2, ConnectKind::Reply { session: 1, status: 0 }),
    );
    rig.only_counted(&[Counter::DropBadPeerAddr], &reply);
}
