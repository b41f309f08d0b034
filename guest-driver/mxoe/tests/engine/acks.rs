//! When acknowledgements of their own are sent (7.2), and what they say about the round trip (7.4).

use mxoe::{
    engine::{Counter, SendOptions},
    wire::{Ack, Connect, ConnectKind, Extension, Packet, Preset},
};

use super::{
    node::{config_of, fill},
    script::{PEER, PEER_ENDPOINT, PEER_SESSION, Reply, Script, ack, notify},
};

/// A peer of ours: both acknowledge within 1 ms.
fn of_ours() -> Script {
    let config = config_of(0, Preset::Native9000);
    let extension = config.extension;
    Script::with(config, extension)
}

/// The only thing the engine has to say is that everything before this number is there.
#[track_caller]
fn assert_acknowledges(script: &mut Script, before: u16) {
    let reply = script.one();
    assert!(
        matches!(reply, Reply::Ack(Ack { ack, .. }) if ack == before),
        "{reply:?}"
    );
}

#[test]
fn between_endpoints_of_ours_16_short_messages_are_acknowledged_at_once_and_4_where_another_is_among_them() {
    let mut script = of_ours();
    for seqnum in 1..=48 {
        assert_eq!(script.replies(), [], "message {seqnum}");
        let data = [0; 128];
        script.put(match seqnum % 3 {
            0 => Packet::Small(script.eager(seqnum, &data)),
            _ => Packet::Tiny(script.eager(seqnum, b"x")),
        });
        if seqnum % 16 == 0 {
            assert_acknowledges(&mut script, seqnum + 1);
        }
    }
    let short = fill(5, 4);
    // Among them is one whose sender may wait for the acknowledgement: the first, the last.
    let mut next = 49;
    for place in [0, 3] {
        for number in 0..4 {
            assert_eq!(script.replies(), [], "message {next}");
            script.put(if number == place {
                Packet::Medium(script.medium(next, 4, 0, &short))
            } else {
                Packet::Tiny(script.eager(next, b"x"))
            });
            next += 1;
        }
        assert_acknowledges(&mut script, next);
    }
    // After more than 4 short ones it is the first that counts 4.
    for _ in 0..10 {
        script.put(Packet::Tiny(script.eager(next, b"x")));
        next += 1;
    }
    assert_eq!(script.replies(), []);
    script.put(Packet::Medium(script.medium(next, 4, 0, &short)));
    assert_acknowledges(&mut script, next + 1);
    // Fewer wait for the delay only.
    script.put(Packet::Tiny(script.eager(next + 1, b"x")));
    script.pass(999_999);
    assert_eq!(script.replies(), []);
    script.pass(1);
    assert_acknowledges(&mut script, next + 2);
}

#[test]
fn in_wire_mode_a_notify_is_acknowledged_at_once_only_where_no_message_is_partial() {
    let mut script = Script::new(Preset::Wire);
    script.send_large(50_000);
    let whole = fill(5, 2 * 4_096);
    script.put(Packet::Medium(script.medium(1, 2 * 4_096, 0, &whole[..4_096])));
    script.put(Packet::Notify(notify(2, 2, 50_000)));
    assert_eq!(script.node.sent.len(), 1);
    assert_eq!(script.replies(), [], "it would say nothing: message 1 is not complete");
    script.put(Packet::Medium(script.medium(1, 2 * 4_096, 1, &whole[4_096..])));
    assert_eq!(script.replies(), [], "two messages, later");
    // Without one.
    script.send_large(50_000);
    let mut end = notify(3, 3, 50_000);
    end.rdma_seqnum = 24;
    script.put(Packet::Notify(end));
    assert_eq!(script.node.sent.len(), 2);
    assert_acknowledges(&mut script, 4);
}

fn srtt_ns(script: &Script) -> u32 {
    script.node.engine.partner(script.partner).unwrap().srtt_ns
}

/// Sends what is due to be sent again.
fn resend(script: &mut Script) -> usize {
    let due = script.node.engine.poll_timeout().unwrap();
    script.pass(due.nanos_since(script.now));
    script.frames().len()
}

#[test]
fn what_was_sent_again_says_nothing_about_the_round_trip() {
    for frames in [1, 4] {
        let mut script = of_ours();
        let (now, to) = (script.now, script.partner);
        let length = if frames == 1 { 8 } else { 30_000 };
        script.node.send(now, to, 1, length, SendOptions::default());
        assert_eq!(script.frames().len(), frames);
        assert_eq!(resend(&mut script), frames);
        script.pass(10_000);
        script.put(Packet::Ack(ack(2, 1)));
        assert!(script.node.engine.is_idle());
        assert_eq!(srtt_ns(&script), 0, "of the first sending, or of the second?");
        // The next one is measured.
        let now = script.now;
        script.node.send(now, to, 3, length, SendOptions::default());
        script.frames();
        script.pass(30_000);
        script.put(Packet::Ack(ack(3, 2)));
        assert_eq!(srtt_ns(&script), 30_000);
        // Of two that are acknowledged together, the one that was sent once.
        let now = script.now;
        script.node.send(now, to, 5, length, SendOptions::default());
        script.frames();
        assert_eq!(resend(&mut script), frames);
        let now = script.now;
        script.node.send(now, to, 7, length, SendOptions::default());
        script.frames();
        script.pass(30_000);
        script.put(Packet::Ack(ack(5, 3)));
        assert_eq!(srtt_ns(&script), 30_000);
        assert_eq!(script.count(Counter::ResentMessages), 2);
    }
}

#[test]
fn a_connect_that_was_sent_again_says_nothing_about_the_round_trip() {
    for resends in [0, 1] {
        let mut script = of_ours();
        let now = script.now;
        script.node.engine.connect(now, PEER, PEER_ENDPOINT, 0, 0).unwrap();
        let Reply::Connect(request) = script.one() else {
            panic!("a request")
        };
        for _ in 0..resends {
            assert_eq!(resend(&mut script), 1);
        }
        script.pass(40_000);
        script.put(Packet::Connect(Connect {
            dst_endpoint: 1,
            src_endpoint: PEER_ENDPOINT,
            kind: ConnectKind::Reply {
                session: PEER_SESSION,
                status: 0,
            },
            ..request
        }));
        assert_eq!(script.node.connected.len(), 1);
        assert_eq!(srtt_ns(&script), if resends == 0 { 40_000 } else { 0 });
    }
}

/// A gap in a pull is asked for after two of its round trips: far sooner than if the time-out before were one of them.
#[test]
fn a_block_that_was_asked_for_again_says_nothing_about_the_round_trip() {
    let mut script = of_ours();
    let payload = script.dialect.sizes().reply_payload();
    let pull = script.pulled(4 * payload).remove(0);
    let asked_at = script.now;
    while !asked(&mut script).contains(&0) {
        let due = script.node.engine.poll_timeout().unwrap();
        script.pass(due.nanos_since(script.now));
    }
    let took_ns = script.now.nanos_since(asked_at);
    script.pass(20_000);
    let whole = fill(5, 4 * payload as usize);
    for number in [0, 1, 3] {
        let offset = number * payload;
        let data = &whole[offset as usize..][..payload as usize];
        script.put(Packet::PullReply(script.pull_reply(&pull, number as u8, offset, data)));
    }
    script.pass(took_ns / 4);
    assert_eq!(asked(&mut script), [2]);
}

/// The first frames that are asked for now.
fn asked(script: &mut Script) -> Vec<u32> {
    let pulls = script.replies().into_iter().filter_map(|reply| match reply {
        Reply::Pull(pull) => Some(pull.frame_index),
        _ => None,
    });
    pulls.collect()
}

/// Only what a peer announced is used: see `restart::extensions_are_used_only_if_both_announced_them…`.
#[test]
fn peers_that_agreed_on_the_mark_alone_are_acknowledged_as_foreign_ones() {
    let config = config_of(0, Preset::Native9000);
    let extension = config.extension.map(|own| Extension {
        flags: Extension::MARK,
        ..own
    });
    let mut script = Script::with(config, extension);
    for seqnum in 1..=4 {
        assert_eq!(script.replies(), []);
        script.put(Packet::Tiny(script.eager(seqnum, b"x")));
    }
    assert_acknowledges(&mut script, 5);
}
