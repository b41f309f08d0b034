//! The peers that pull and acknowledge: two programs of one host, and the original Open-MX that never got a CONNECT and
//! so names no session.

use mxoe::{
    engine::{Counter, SendOptions, Status},
    wire::{Connect, ConnectKind, Extension, Notify, Packet, PacketType, Preset, Pull, SESSION_NONE, pull_magic},
};

use super::{
    node::config_of,
    script::{PEER_ENDPOINT, PEER_SESSION, Script, ack, notify},
};

const LENGTH: u32 = 50_000;
const SYNCHRONOUS: SendOptions = SendOptions {
    synchronous: true,
    copyable: false,
};

#[test]
fn two_programs_of_one_host_whose_pulls_have_equal_handles_both_get_their_bytes() {
    for preset in Preset::ALL {
        let mut script = Script::new(preset);
        script.send_large(LENGTH);
        let other = PEER_ENDPOINT + 1;
        script.put(Packet::Connect(Connect {
            dst_endpoint: 1,
            src_endpoint: other,
            seqnum: 0,
            peer_index: 0x77,
            src_session: PEER_SESSION + 1,
            recv_seqnum_start: 1,
            connect_seqnum: 0,
            kind: ConnectKind::Request { key: 0 },
            extension: None,
        }));
        script.frames();
        let to_other = script.node.engine.partners().nth(1).unwrap();
        let now = script.now;
        script.node.send(now, to_other, 2, LENGTH, SYNCHRONOUS);
        assert_eq!(script.one().kind(), PacketType::Rndv);
        // Slot and generation as in every program's first pull, and an equal range.
        let first = script.pull(script.dialect.sizes().block_len().min(LENGTH));
        let second = Pull {
            src_endpoint: other,
            rdma_id: 1,
            magic: pull_magic(other),
            ..first
        };
        let frames = first.frames(script.dialect.sizes()).unwrap();
        script.put(Packet::Pull(first));
        script.put(Packet::Pull(second));
        // And what is asked for again meanwhile is answered once.
        script.put(Packet::Pull(second));
        assert_eq!(script.count(Counter::DropPullRepeated), 1);
        let replies = script.replies();
        assert!(replies.iter().all(|reply| reply.kind() == PacketType::PullReply));
        assert_eq!(replies.len(), 2 * frames as usize);
    }
}

/// What the peer sends while it believes that it was told no session.
fn without_session(script: &Script) -> (Pull, Notify) {
    let pull = Pull {
        session: SESSION_NONE,
        ..script.pull(LENGTH.min(script.dialect.sizes().block_len()))
    };
    let end = Notify {
        session: SESSION_NONE,
        ..notify(1, 2, LENGTH)
    };
    (pull, end)
}

#[test]
fn a_foreign_peer_that_was_never_asked_to_connect_may_leave_the_session_out_of_its_answers() {
    for preset in Preset::ALL {
        let mut script = Script::new(preset);
        script.send_large(LENGTH);
        let (pull, end) = without_session(&script);
        script.put(Packet::Pull(pull));
        assert!(
            script
                .replies()
                .iter()
                .all(|reply| reply.kind() == PacketType::PullReply)
        );
        script.put(Packet::Notify(end));
        assert_eq!(script.node.sent, [(1, Status::Success, LENGTH)]);
        // And a short message is acknowledged so.
        script.frames();
        let (now, partner) = (script.now, script.partner);
        script.node.engine.send_inline(now, partner, 1, 9, b"x").unwrap();
        script.frames();
        let mut liback = ack(3, 1);
        (liback.session, liback.session_id) = (SESSION_NONE, SESSION_NONE);
        script.put(Packet::Ack(liback));
        assert_eq!(script.count(Counter::RecvLiback), 1);
        assert_eq!(script.node.engine.partner(partner).unwrap().unacked, 0);
        assert_eq!(script.count(Counter::DropBadSession), 0);
        // Data still have to name it.
        let mut eager = script.eager(2, b"abc");
        eager.session = SESSION_NONE;
        script.put(Packet::Tiny(eager));
        assert_eq!(script.count(Counter::DropBadSession), 1);
    }
}

#[test]
fn a_peer_that_announced_our_extensions_names_the_session_or_is_refused() {
    let preset = Preset::Native1500;
    let config = config_of(0, preset);
    let extension: Option<Extension> = config.extension;
    assert!(extension.is_some());
    let mut script = Script::with(config, extension);
    script.send_large(LENGTH);
    let (pull, end) = without_session(&script);
    script.put(Packet::Pull(pull));
    assert_eq!(script.one().kind(), PacketType::NackMcp);
    script.put(Packet::Notify(end));
    assert_eq!(script.one().kind(), PacketType::NackLib);
    let mut liback = ack(2, 1);
    (liback.session, liback.session_id) = (SESSION_NONE, SESSION_NONE);
    script.put(Packet::Ack(liback));
    assert_eq!(script.count(Counter::DropBadSession), 3);
    assert_eq!(script.node.sent, []);
}
