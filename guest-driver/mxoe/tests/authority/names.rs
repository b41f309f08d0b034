//! Names, discovery and RAW frames.

use ether::MacAddr;
use mxoe::{
    authority::AuthorityEvent,
    engine::{Counter, PeerMap, Peers},
    wire::{Announcement, HOST_MAGIC_FIRST, HostQuery, HostReply, Packet, PacketType, Raw},
};

use super::rig::{OWN, PEER, Rig, SECOND_NS, STRANGER, rig};

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
fn a_renamed_board_answers_with_its_new_name() {
    let mut rig = rig();
    rig.authority.set_own_name(&[b'n'; 100]);
    rig.put(query(0x1234));
    let sent = rig.sent();
    let (_, packet) = rig.dialect.decode(&sent[0]).unwrap();
    let expected = HostReply {
        peer_index: 0,
        magic: 0x1234,
        name: &[b'n'; 79],
    };
    assert_eq!(packet, Packet::HostReply(expected));
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

#[test]
fn every_type_is_dropped_if_it_ends_inside_its_header() {
    let mut rig = rig();
    let good = rig.frame(PEER, OWN, 0, query(1));
    let mut count = 0;
    for kind in PacketType::ALL {
        let mut frame = good.clone();
        frame[16] = kind.code();
        for len in 14..rig.dialect.header_len(kind) {
            rig.bytes(&frame[..len]);
            count += 1;
        }
    }
    assert_eq!(rig.count(Counter::DropBadHeaderDatalen), count);
    assert!(rig.sent().is_empty());
}

#[test]
fn answers_beyond_the_limit_are_left_out() {
    let mut rig = rig();
    for _ in 0..2_000 {
        rig.put(query(1));
    }
    let sent = rig.sent().len();
    assert_eq!((sent, rig.count(Counter::DropControlFull)), (1_024, 2_000 - 1_024));
    rig.put(query(1));
    assert_eq!(rig.sent().len(), 1);
}

#[test]
fn raw_frames_wait_for_the_mapping_daemon_up_to_the_limit() {
    let mut rig = rig();
    let frame = rig.frame(PEER, MacAddr::BROADCAST, 0, Packet::Raw(Raw { payload: &[7; 80] }));
    rig.bytes(&frame);
    assert_eq!(rig.authority.take_raw(), None, "nobody opened the raw endpoint");
    assert_eq!(rig.count(Counter::DropRawQueueFull), 1, "nobody takes it");
    rig.authority.set_raw_open(true);
    for _ in 0..40 {
        rig.bytes(&frame);
    }
    assert_eq!(
        (rig.count(Counter::RecvRaw), rig.count(Counter::DropRawQueueFull)),
        (32, 9)
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
    assert_eq!(rig.count(Counter::DropRawQueueFull), 0, "announcements were taken");
    assert_eq!(rig.peers.index(STRANGER), Some(1), "the address inside counts");
    // A board for which there is no room.
    let mut full = Rig::new(PeerMap::new(1, 0));
    full.authority.start_discovery(full.now, 1);
    let frame = full.frame(PEER, MacAddr::BROADCAST, 0, Packet::Raw(Raw { payload: &new }));
    full.bytes(&frame);
    assert_eq!(
        (full.count(Counter::DropBadPeerAddr), full.peers.index(STRANGER)),
        (1, None)
    );
    let times: Vec<_> = rig
        .pass(10 * SECOND_NS)
        .iter()
        .filter(|(_, frame)| frame[16] == 1)
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(times, [401, 402, 403, 404, 405, 406, 407, 408]);
}
