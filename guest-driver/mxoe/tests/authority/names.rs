//! Names, discovery and RAW frames.

use ether::MacAddr;
use mxoe::{
    authority::AuthorityEvent,
    engine::{Counter, PeerMap, Peers},
    wire::{Announcement, HOST_MAGIC_FIRST, HostQuery, HostReply, MARK, Packet, PacketType, Raw},
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
    rig.put_counted(&[Counter::RecvHostQuery], query(0x1234));
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
    open.counted(&[Counter::RecvHostQuery, Counter::PeersAdded], &frame);
    assert_eq!(open.peers.index(STRANGER), Some(1));
    assert_eq!(open.sent().len(), 2, "the answer, and a question back");
    for peers in [PeerMap::new(8, 0).fixed(), PeerMap::new(1, 0)] {
        let mut closed = Rig::new(peers);
        closed.only_counted(&[Counter::DropBadPeerAddr], &frame);
        assert_eq!(closed.peers.index(STRANGER), None);
    }
    // Not for this address, or another protocol's: none of our business.
    let mut other = rig();
    let frame = other.frame(PEER, STRANGER, 0, query(1));
    other.only_counted(&[Counter::DropNotMxoe], &frame);
    let mut ip = other.frame(PEER, OWN, 0, query(1));
    ip[12..14].copy_from_slice(&[8, 0]);
    other.only_counted(&[Counter::DropNotMxoe], &ip);
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
    let wrong = rig.frame(PEER, OWN, 0, reply(HOST_MAGIC_FIRST + 1, b"wrong:0"));
    rig.only_counted(&[Counter::DropHostReplyBadMagic], &wrong);
    let stranger = rig.frame(STRANGER, OWN, 0, reply(HOST_MAGIC_FIRST, b"absent:0"));
    rig.only_counted(&[Counter::DropBadPeerAddr], &stranger);
    rig.put_counted(&[Counter::RecvHostReply], reply(HOST_MAGIC_FIRST, b"peer:0"));
    assert_eq!(rig.authority.poll_event(), Some(AuthorityEvent::Named { peer: 0 }));
    rig.put_counted(&[Counter::RecvHostReply], reply(HOST_MAGIC_FIRST, b"later:0"));
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
    let old = rig.frame(PEER, OWN, 0, reply(HOST_MAGIC_FIRST, b"peer:0"));
    rig.only_counted(&[Counter::DropHostReplyBadMagic], &old);
    assert_eq!(rig.authority.name(0), None);
}

#[test]
fn a_board_that_starts_anew_is_asked_for_its_name_again_unless_that_was_configured() {
    for is_configured in [false, true] {
        let mut rig = rig();
        let announce = |rig: &mut Rig, serial| {
            let board = PEER.to_u64();
            let payload = Announcement { board, serial }.to_payload();
            let frame = rig.frame(PEER, MacAddr::BROADCAST, 0, Packet::Raw(Raw { payload: &payload }));
            rig.bytes(&frame);
            rig.sent().len()
        };
        rig.authority.start_discovery(rig.now, 1);
        rig.put_counted(&[Counter::RecvHostQuery], query(1));
        rig.sent();
        announce(&mut rig, 7);
        if is_configured {
            rig.authority.set_name(0, b"by hand");
        } else {
            rig.put_counted(&[Counter::RecvHostReply], reply(HOST_MAGIC_FIRST, b"first"));
        }
        assert_eq!(announce(&mut rig, 7), 0, "nothing is new");
        let asked = announce(&mut rig, 8);
        assert_eq!(asked, usize::from(!is_configured));
        assert!(rig.authority.name(0).is_some(), "the known name stays until the answer");
        rig.put_counted(&[Counter::RecvHostReply], reply(HOST_MAGIC_FIRST, b"second"));
        rig.put_counted(&[Counter::RecvHostReply], reply(HOST_MAGIC_FIRST, b"third"));
        let expected: &[u8] = if is_configured { b"by hand" } else { b"second" };
        assert_eq!(
            rig.authority.name(0),
            Some(expected),
            "a name that was not asked for changes nothing"
        );
    }
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
        rig.only_counted(&[Counter::DropBadDatalen], &bad);
    }
    let mut short = good.clone();
    short[17] = 80;
    rig.only_counted(&[Counter::DropBadSkblen], &short);
    assert_eq!(rig.authority.name(0), None);
}

#[test]
fn a_name_ends_at_its_first_zero_and_before_its_last_byte_whatever_that_is() {
    let cases: [(&[u8], &[u8]); 6] = [
        (b"peer:0\0", b"peer:0"),
        (b"peer:0x", b"peer:0"),
        (b"pe\0r:0\0", b"pe"),
        (b"pe\0r:0x", b"pe"),
        (b"x", b""),
        (&[b'n'; 80], &[b'n'; 79]),
    ];
    for (bytes, name) in cases {
        let mut rig = rig();
        let mut frame = rig.frame(PEER, OWN, 0, reply(HOST_MAGIC_FIRST, &[b'y'; 79]));
        frame[17] = bytes.len() as u8;
        frame[32..][..bytes.len()].copy_from_slice(bytes);
        rig.counted(&[Counter::RecvHostReply], &frame);
        assert_eq!(rig.authority.name(0), Some(name), "{}", bytes.escape_ascii());
    }
}

#[test]
fn every_type_is_dropped_if_it_ends_inside_its_header() {
    let mut rig = rig();
    let good = rig.frame(PEER, OWN, 0, query(1));
    for kind in PacketType::ALL {
        let mut frame = good.clone();
        frame[16] = kind.code();
        for len in 14..rig.dialect.header_len(kind) {
            rig.only_counted(&[Counter::DropBadHeaderDatalen], &frame[..len]);
        }
    }
}

#[test]
fn unknown_types_are_dropped() {
    let mut rig = rig();
    let good = rig.frame(PEER, OWN, 0, query(1));
    for code in (0..=255u8).filter(|code| PacketType::from_code(*code).is_none()) {
        let mut frame = good.clone();
        frame[16] = code;
        let counter = match code {
            2 | 32..=34 => Counter::DropInvalidType,
            _ => Counter::DropUnknownType,
        };
        rig.only_counted(&[counter], &frame);
    }
}

#[test]
fn answers_beyond_the_limit_are_left_out() {
    let mut rig = rig();
    for _ in 0..1_024 {
        rig.put_counted(&[Counter::RecvHostQuery], query(1));
    }
    for _ in 0..100 {
        rig.put_counted(&[Counter::RecvHostQuery, Counter::DropControlFull], query(1));
    }
    assert_eq!(rig.sent().len(), 1_024);
    rig.put_counted(&[Counter::RecvHostQuery], query(1));
    assert_eq!(rig.sent().len(), 1);
}

#[test]
fn raw_frames_wait_for_the_mapping_daemon_up_to_the_limit() {
    let mut rig = rig();
    let frame = rig.frame(PEER, MacAddr::BROADCAST, 0, Packet::Raw(Raw { payload: &[7; 80] }));
    rig.only_counted(&[Counter::DropRawQueueFull], &frame);
    assert_eq!(rig.authority.take_raw(), None, "the raw endpoint is not open");
    rig.authority.set_raw_open(true);
    for _ in 0..32 {
        rig.only_counted(&[Counter::RecvRaw], &frame);
    }
    for _ in 0..8 {
        rig.only_counted(&[Counter::DropRawQueueFull], &frame);
    }
    assert_eq!(rig.authority.take_raw().as_deref(), Some(&frame[..]));
    let mut long = frame.clone();
    long.resize(1_025, 0);
    rig.only_counted(&[Counter::DropRawTooLarge], &long);
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
    let added = [Counter::PeersAdded];
    for (payload, counters, boards) in [
        (&own, &[][..], 0),
        (&new, &added[..], 1),
        (&new, &[], 0),
        (&announcement(STRANGER.to_u64(), 2), &[], 1),
    ] {
        let frame = rig.frame(PEER, MacAddr::BROADCAST, 0, Packet::Raw(Raw { payload }));
        rig.counted(counters, &frame);
        assert_eq!(std::iter::from_fn(|| rig.authority.poll_event()).count(), boards);
    }
    assert_eq!(rig.peers.index(STRANGER), Some(1), "the address inside counts");
    // A board for which there is no room.
    let mut full = Rig::new(PeerMap::new(1, 0));
    full.authority.start_discovery(full.now, 1);
    let frame = full.frame(PEER, MacAddr::BROADCAST, 0, Packet::Raw(Raw { payload: &new }));
    full.only_counted(&[Counter::DropBadPeerAddr], &frame);
    assert_eq!(full.peers.index(STRANGER), None);
    let times: Vec<_> = rig
        .pass(10 * SECOND_NS)
        .iter()
        .filter(|(_, frame)| frame[16] == 1)
        .map(|(at, _)| *at)
        .collect();
    assert_eq!(times, [401, 402, 403, 404, 405, 406, 407, 408]);
}

#[test]
fn what_is_not_sent_to_all_is_no_announcement() {
    let payload = Announcement {
        board: STRANGER.to_u64(),
        serial: 1,
    }
    .to_payload();
    let packet = Packet::Raw(Raw { payload: &payload });
    let mut rig = rig();
    rig.authority.start_discovery(rig.now, 7);
    let other = MacAddr([3, 0, 0, 0, 0, 1]);
    for dst in [OWN, STRANGER, other] {
        let frame = rig.frame(PEER, dst, 0, packet);
        rig.authority.set_raw_open(false);
        rig.only_counted(&[Counter::DropRawQueueFull], &frame);
        // It may be the mapping daemon's.
        rig.authority.set_raw_open(true);
        rig.only_counted(&[Counter::RecvRaw], &frame);
    }
    assert_eq!(rig.peers.index(STRANGER), None);
    let frame = rig.frame(PEER, MacAddr::BROADCAST, 0, packet);
    rig.counted(&[Counter::PeersAdded, Counter::RecvRaw], &frame);
}

/// Section 15: no program waits for what an authority sends.
#[test]
fn nothing_is_marked_where_marks_are_on() {
    let mut rig = Rig::with(PeerMap::new(8, 0), rig().dialect.with_marks(true));
    rig.authority.peer_added(rig.now, 0);
    rig.put(query(1));
    for packet in super::refusals::refused() {
        rig.put(packet);
    }
    rig.authority.start_discovery(rig.now, 7);
    rig.authority.handle_timeout(rig.now);
    let codes: Vec<u8> = rig.sent().iter().map(|frame| frame[16]).collect();
    assert_eq!(codes, [3, 4, 44, 44, 44, 44, 44, 44, 45, 1]);
    // Marked ones are read.
    let mut frame = rig.frame(PEER, OWN, 0, query(1));
    frame[16] |= MARK;
    rig.counted(&[Counter::RecvHostQuery], &frame);
    // And not where marks are off.
    super::rig::rig().only_counted(&[Counter::DropUnknownType], &frame);
}
