//! Bad connects, connection replies, refusals and ends of messages: the counter, the answer, and that nothing else happens.

use ether::MacAddr;
use mxoe::{
    engine::{Counter, SendOptions, Status},
    wire::{
        Connect, ConnectKind, Extension, Head, NackCode, NackLib, PEER_INDEX_UNKNOWN, Packet, Preset, SESSION_NONE,
    },
};

use super::{
    bad_frames::{dropped, dropped_as, dropped_silently},
    node::mac_of,
    script::{PEER, PEER_ENDPOINT, Reply, SESSION, Script, notify},
};

/// A request of the peer.
pub fn request(endpoint: u8) -> Connect {
    Connect {
        dst_endpoint: endpoint,
        src_endpoint: PEER_ENDPOINT,
        seqnum: 0,
        peer_index: 0x77,
        src_session: 5,
        recv_seqnum_start: 1,
        connect_seqnum: 0,
        kind: ConnectKind::Request { key: 0 },
        extension: None,
    }
}

#[test]
fn connects_from_nowhere_to_nowhere_and_with_wrong_keys_are_refused() {
    let mut config = super::node::config_of(0, Preset::Native9000);
    config.limits.partners = 2;
    let mut script = Script::with(config, None);
    let bytes = script.bytes(Packet::Connect(request(2)));
    dropped_silently(&mut script, Counter::DropBadEndpoint, &bytes);
    // A wrong key leaves the partner alone.
    let before = script.node.engine.partner(script.partner);
    let wrong = Connect {
        kind: ConnectKind::Request { key: 1 },
        ..request(1)
    };
    let bytes = script.bytes(Packet::Connect(wrong));
    dropped(&mut script, Counter::DropConnectBadKey, &bytes);
    assert!(matches!(
        script.one(),
        Reply::Connect(Connect {
            kind: ConnectKind::Reply { status: 11, .. },
            ..
        })
    ));
    assert_eq!(script.node.engine.partner(script.partner), before);
    // Other settings do, too.
    let own = super::node::config_of(0, Preset::Native9000).extension.unwrap();
    for (preset, block_frames_log2) in [
        (Preset::Native1500.code(), own.block_frames_log2),
        (own.preset, own.block_frames_log2 - 1),
    ] {
        let other = Connect {
            extension: Some(Extension {
                preset,
                block_frames_log2,
                ..own
            }),
            ..request(1)
        };
        let bytes = script.bytes(Packet::Connect(other));
        dropped(&mut script, Counter::DropConnectMismatch, &bytes);
        let reply = script.one();
        assert!(
            matches!(
                reply,
                Reply::Connect(Connect { kind: ConnectKind::Reply { status: 11, .. }, extension, .. })
                    if extension == Some(own)
            ),
            "{reply:?}"
        );
    }
    let none = Connect {
        src_session: SESSION_NONE,
        ..request(1)
    };
    let bytes = script.bytes(Packet::Connect(none));
    dropped_silently(&mut script, Counter::DropBadSession, &bytes);
    // Partners have a limit.
    for (source, counter, answers) in [(50, Counter::RecvConnectRequest, 1), (51, Counter::DropPartnersFull, 0)] {
        let mut connect = request(1);
        connect.src_endpoint = source;
        let bytes = script.bytes(Packet::Connect(connect));
        dropped(&mut script, counter, &bytes);
        assert_eq!(script.replies().len(), answers);
    }
    // The peer table has one, too.
    let unknown = |last| Head {
        dst: mac_of(0),
        src: MacAddr([2, 0, 0, 0, 7, last]),
        peer_index: 0,
        marked: false,
    };
    for last in 0..20 {
        let bytes = script.bytes_as(&unknown(last), Packet::Connect(request(1)));
        // 16 with the one that is there from the beginning and the one that connected.
        let counters = if last < 14 {
            &[Counter::PeersAdded, Counter::DropPartnersFull][..]
        } else {
            &[Counter::DropBadPeerAddr]
        };
        dropped_as(&mut script, counters, &bytes);
        assert_eq!(script.replies(), []);
    }
}

#[test]
fn answers_beyond_the_limit_are_left_out_and_what_they_answer_comes_again() {
    let mut config = super::node::config_of(0, Preset::Native9000);
    config.limits.control_packets = 3;
    let mut script = Script::with(config, None);
    // The first one is another instance of the peer.
    script.put(Packet::Connect(request(1)));
    let (taken, full) = (Counter::RecvConnectRequest, Counter::DropControlFull);
    for counters in [&[taken][..], &[taken], &[taken, full], &[taken, full]] {
        script.put_counted(counters, Packet::Connect(request(1)));
    }
    assert_eq!(script.replies().len(), 3);
    script.put(Packet::Connect(request(1)));
    assert!(matches!(script.one(), Reply::Connect(_)));
}

#[test]
fn replies_that_answer_nothing_are_ignored() {
    let mut script = Script::new(Preset::Native9000);
    let reply = Connect {
        kind: ConnectKind::Reply { session: 9, status: 0 },
        src_session: SESSION,
        ..request(1)
    };
    let bytes = script.bytes(Packet::Connect(reply));
    dropped_silently(&mut script, Counter::DropStrayConnectReply, &bytes);
    let now = script.now;
    script.node.engine.connect(now, PEER, PEER_ENDPOINT, 0, 0).unwrap();
    let Reply::Connect(sent) = script.one() else {
        panic!("a request")
    };
    assert!(matches!(sent.kind, ConnectKind::Request { .. }));
    for (connect_seqnum, src_session, status) in [(1, SESSION, 0), (0, SESSION ^ 1, 0), (0, SESSION, 7)] {
        let reply = Connect {
            connect_seqnum,
            src_session,
            kind: ConnectKind::Reply { session: 9, status },
            ..request(1)
        };
        let bytes = script.bytes(Packet::Connect(reply));
        dropped_silently(&mut script, Counter::DropStrayConnectReply, &bytes);
    }
    assert!(script.node.connected.is_empty());
    // An unknown peer's reply does not add it.
    let head = Head {
        src: MacAddr([2, 0, 0, 0, 7, 7]),
        ..script.head()
    };
    let bytes = script.bytes_as(&head, Packet::Connect(reply));
    dropped_silently(&mut script, Counter::DropBadPeerAddr, &bytes);
}

#[test]
fn nacks_end_the_request_they_name_and_strange_ones_are_ignored() {
    let nack = |code, seqnum| NackLib {
        src_endpoint: PEER_ENDPOINT,
        dst_endpoint: 1,
        code,
        peer_index: 1,
        seqnum,
    };
    for (code, status) in [
        (NackCode::BadEndpoint, Status::BadEndpoint),
        (NackCode::EndpointClosed, Status::EndpointClosed),
        (NackCode::BadSession, Status::BadSession),
    ] {
        let mut script = Script::new(Preset::Native9000);
        let (now, partner) = (script.now, script.partner);
        for number in 1..=3 {
            script.node.send(now, partner, number, 5_000, SendOptions::default());
        }
        script.node.send(now, partner, 4, 100_000, SendOptions::default());
        script.frames();
        for seqnum in [2, 4, 4, 1, 3, 9] {
            script.put_counted(&[Counter::RecvNackLib], Packet::NackLib(nack(code, seqnum)));
        }
        let ended: Vec<_> = script
            .node
            .sent
            .iter()
            .map(|(token, status, _)| (*token, *status))
            .collect();
        assert_eq!(ended, [(2, status), (4, status), (1, status), (3, status)]);
        script.put(Packet::NackLib(nack(code, 0)));
        assert_eq!(script.node.engine.partner(partner).unwrap().unacked, 0);
        assert!(script.node.engine.is_idle());
        // A connect has number 0; a late second refusal of a message that was sent twice is not about it.
        script.node.engine.connect(now, PEER, PEER_ENDPOINT, 0, 0).unwrap();
        script.frames();
        script.put(Packet::NackLib(nack(code, 3)));
        assert!(script.node.connected.is_empty());
        script.put(Packet::NackLib(nack(code, 0)));
        assert_eq!(script.node.connected, [(partner, status)]);
    }
    let mut script = Script::new(Preset::Native9000);
    let good = script.bytes(Packet::NackLib(nack(NackCode::BadSession, 1)));
    for code in [0, 4, 5, 200] {
        let mut bytes = good.clone();
        bytes[19] = code;
        dropped_silently(&mut script, Counter::DropUnknownNack, &bytes);
    }
    let mut other = good.clone();
    other[25] = 2;
    dropped_silently(&mut script, Counter::DropBadEndpoint, &other);
    let mut unknown = good.clone();
    unknown[17] = 99;
    dropped_silently(&mut script, Counter::DropUnknownPartner, &unknown);
    script.peer_index = 0;
    let bad_index = script.bytes(Packet::NackLib(nack(NackCode::BadSession, 1)));
    dropped_silently(&mut script, Counter::DropNackBadPeerIndex, &bad_index);
    let head = Head {
        src: MacAddr([2, 0, 0, 0, 7, 7]),
        peer_index: PEER_INDEX_UNKNOWN,
        ..script.head()
    };
    let stranger = script.bytes_as(&head, Packet::NackLib(nack(NackCode::BadSession, 1)));
    dropped_silently(&mut script, Counter::DropBadPeerAddr, &stranger);
    // First contact: found by address.
    script.peer_index = PEER_INDEX_UNKNOWN;
    let first = script.bytes(Packet::NackLib(nack(NackCode::BadSession, 1)));
    dropped_silently(&mut script, Counter::RecvNackLib, &first);
}

#[test]
fn ends_of_messages_that_are_over_are_consumed_and_ignored() {
    let mut script = Script::new(Preset::Native9000);
    let stray = [Counter::RecvNotify, Counter::DropStrayNotify];
    script.put_counted(&stray, Packet::Notify(notify(1, 1, 0)));
    script.put_counted(&[Counter::RecvTiny], Packet::Tiny(script.eager(2, b"x")));
    assert_eq!(script.node.program.matched.len(), 1, "the number was consumed");
}
