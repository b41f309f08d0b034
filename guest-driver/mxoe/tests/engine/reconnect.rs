//! The second conversation with a partner: what the first one counted is forgotten, and what still comes of it changes nothing (7.6).

use mxoe::{
    engine::{Counter, SendOptions, Status},
    wire::{Ack, Connect, ConnectKind, Eager, NackCode, NackLib, Packet, Preset},
};

use super::{
    node::config_of,
    script::{PEER, PEER_ENDPOINT, PEER_SESSION, Reply, Script, ack},
};

/// What is different from now on.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Begins {
    /// The peer connects again after a request to it was given up.
    AfterGivingUp,
    /// Another instance of the peer connects.
    WithANewInstance,
    /// The peer gave up and we did not.
    AfterThePeerGaveUp,
}

/// A conversation in which both sent acknowledgements of their own, five the peer and two the engine, and the next one.
fn second(begins: Begins) -> Script {
    let mut config = config_of(0, Preset::Native9000);
    config.timing.give_up_ns = 1_000_000_000;
    let mut script = Script::with(config, None);
    let (now, to) = (script.now, script.partner);
    for number in 1..=5 {
        script.node.send(now, to, number, 1_000, SendOptions::default());
        script.frames();
        let seqnum = number as u16;
        script.put(Packet::Ack(ack(seqnum + 1, number as u32)));
    }
    assert_eq!(script.node.sent.len(), 5);
    for acknum in 1..=2 {
        script.put(Packet::Tiny(Eager {
            piggyack: 6,
            ..script.eager(acknum, b"x")
        }));
        script.node.engine.flush_acks();
        let Reply::Ack(sent) = script.one() else {
            panic!("an acknowledgement")
        };
        assert_eq!((sent.acknum, sent.ack), (u32::from(acknum), acknum + 1));
    }
    // Three connects, of which two are answered.
    for connect_seqnum in 0..3 {
        let request = connect(&mut script);
        assert_eq!(request.connect_seqnum, connect_seqnum);
        if connect_seqnum < 2 {
            answer(&mut script, &request);
        }
    }
    match begins {
        Begins::AfterGivingUp => {
            script.pass(1_100_000_000);
            assert_eq!(script.node.connected.last(), Some(&(to, Status::Unreachable)));
            script.frames();
            script.request(PEER_SESSION, 1, None);
        }
        Begins::WithANewInstance => script.request(PEER_SESSION + 1, 1, None),
        Begins::AfterThePeerGaveUp => script.request(PEER_SESSION, 0x4001, None),
    }
    assert_eq!(script.node.lost, [to]);
    assert!(matches!(script.replies().pop(), Some(Reply::Connect(_))));
    script.node.sent.clear();
    script.node.connected.clear();
    script
}

fn connect(script: &mut Script) -> Connect {
    let now = script.now;
    script.node.engine.connect(now, PEER, PEER_ENDPOINT, 0, 0).unwrap();
    match script.one() {
        Reply::Connect(connect) => connect,
        other => panic!("{other:?}"),
    }
}

/// The peer's answer.
fn answer(script: &mut Script, request: &Connect) {
    script.put(Packet::Connect(Connect {
        dst_endpoint: 1,
        src_endpoint: PEER_ENDPOINT,
        peer_index: 0x77,
        recv_seqnum_start: 6,
        kind: ConnectKind::Reply {
            session: PEER_SESSION,
            status: 0,
        },
        extension: None,
        ..*request
    }));
}

const BEGINNINGS: [Begins; 3] = [
    Begins::AfterGivingUp,
    Begins::WithANewInstance,
    Begins::AfterThePeerGaveUp,
];

#[test]
fn the_peers_first_acknowledgement_of_the_second_conversation_is_number_1_again() {
    for begins in BEGINNINGS {
        let mut script = second(begins);
        let (now, to) = (script.now, script.partner);
        let first = script.node.engine.partner(to).unwrap().send_next.0;
        script.node.send(now, to, 9, 1_000, SendOptions::default());
        script.frames();
        let (taken, old) = (script.count(Counter::RecvLiback), script.count(Counter::DropOldAck));
        script.put(Packet::Ack(ack(first + 1, 1)));
        assert_eq!(script.count(Counter::RecvLiback), taken + 1, "{begins:?}");
        assert_eq!(script.count(Counter::DropOldAck), old, "{begins:?}");
        assert_eq!(script.node.sent, [(9, Status::Success, 1_000)], "{begins:?}");
    }
}

#[test]
fn our_first_acknowledgement_of_the_second_conversation_is_number_1_again() {
    for begins in BEGINNINGS {
        let mut script = second(begins);
        let info = script.node.engine.partner(script.partner).unwrap();
        script.put(Packet::Tiny(Eager {
            piggyack: info.send_next.0,
            ..script.eager(info.recv_next.0, b"x")
        }));
        script.node.engine.flush_acks();
        let reply = script.one();
        let expected = info.recv_next.0 + 1;
        assert!(
            matches!(reply, Reply::Ack(Ack { ack, acknum: 1, .. }) if ack == expected),
            "{begins:?}: {reply:?}"
        );
    }
}

#[test]
fn after_giving_up_connects_are_counted_from_0_again() {
    let mut script = second(Begins::AfterGivingUp);
    assert_eq!(connect(&mut script).connect_seqnum, 0);
}

#[test]
fn session_bits_of_one_or_two_conversations_later_begin_a_new_one() {
    for (bits, is_new) in [(0, false), (1, true), (2, true), (3, false)] {
        let mut script = Script::new(Preset::Native9000);
        let (now, to) = (script.now, script.partner);
        script.node.send(now, to, 1, 1_000, SendOptions::default());
        script.node.send(now, to, 2, 100_000, SendOptions::default());
        script.frames();
        let start = bits << 14 | 7;
        script.request(PEER_SESSION, start, None);
        assert!(matches!(script.one(), Reply::Connect(_)));
        if !is_new {
            assert_eq!(script.node.lost, [], "{bits}");
            assert_eq!(script.node.sent, [], "{bits}");
            continue;
        }
        assert_eq!(script.node.lost, [to], "{bits}");
        let mut ended = script.node.sent.clone();
        ended.sort_by_key(|(token, ..)| *token);
        assert_eq!(
            ended,
            [(1, Status::Unreachable, 0), (2, Status::Unreachable, 0)],
            "{bits}"
        );
        // It goes on from the number given.
        script.node.send(now, to, 3, 5, SendOptions::default());
        let frames = script.frames();
        let (_, packet) = script.dialect.decode(&frames[0]).unwrap();
        assert!(
            matches!(packet, Packet::Tiny(tiny) if tiny.seqnum == start),
            "{packet:?}"
        );
        script.put(Packet::Ack(ack(start + 1, 1)));
        assert!(script.node.engine.is_idle());
    }
}

#[test]
fn a_refusal_of_another_conversation_ends_nothing() {
    let mut script = Script::new(Preset::Native9000);
    let (now, to) = (script.now, script.partner);
    script.node.send(now, to, 1, 1_000, SendOptions::default());
    script.frames();
    // Number 0 may be a connect's, and this one waits for its answer.
    connect(&mut script);
    let nack = |seqnum| NackLib {
        src_endpoint: PEER_ENDPOINT,
        dst_endpoint: 1,
        code: NackCode::BadSession,
        peer_index: 1,
        seqnum,
    };
    for session in 1..4 {
        script.put(Packet::NackLib(nack(session << 14 | 1)));
        assert_eq!(script.count(Counter::RecvNackLib), u32::from(session));
        assert_eq!(script.node.sent, [], "session bits {session}");
        assert_eq!(script.node.connected, [], "session bits {session}");
        assert_eq!(script.node.engine.partner(to).unwrap().unacked, 1);
    }
    script.put(Packet::NackLib(nack(1)));
    assert_eq!(script.node.sent, [(1, Status::BadSession, 0)]);
}
