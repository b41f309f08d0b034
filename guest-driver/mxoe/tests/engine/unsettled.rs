//! What lies between the arrival of an acknowledgement that came with a message and acting on it. `Node::frame` takes the events at
//! once, and so acts on it at once; here the engine is handed frames with nothing behind them, as a driver does that takes several.

use mxoe::{
    engine::{Counter, Posted, SendOptions, Status},
    wire::{Eager, NackCode, NackLib, Packet, Preset},
};

use super::{
    node::config_of,
    script::{PEER, PEER_ENDPOINT, PEER_SESSION, SESSION, Script, ack, notify},
};

/// Hands the engine a packet and checks nothing else.
fn put_only(script: &mut Script, packet: Packet<'_>) {
    let frame = script.bytes(packet);
    script.node.engine.handle(script.now, &frame, &mut script.node.program);
}

/// The peer's message `seqnum`, which acknowledges everything before `piggyack`.
fn tiny(script: &Script, seqnum: u16, piggyack: u16) -> Eager<'static> {
    Eager {
        piggyack,
        ..script.eager(seqnum, b"abcd")
    }
}

/// The peer's message comes, and nothing else is looked at.
fn answer(script: &mut Script, seqnum: u16, piggyack: u16) {
    let answer = tiny(script, seqnum, piggyack);
    put_only(script, Packet::Tiny(answer));
}

/// Two messages that are over when they are acknowledged are in flight: 1 and 3.
fn two_mediums(script: &mut Script) {
    for match_info in [1, 3] {
        send(script, match_info, 1_000);
    }
    script.frames();
}

/// What was just sent is not acknowledged.
fn is_sent_again_within_100_ms(script: &mut Script) {
    let (sent_at, before) = (script.now, script.count(Counter::ResentMessages));
    while script.count(Counter::ResentMessages) == before {
        let due = script.node.engine.poll_timeout().unwrap();
        script.pass(due.nanos_since(script.now));
    }
    let waited = script.now.nanos_since(sent_at);
    assert!(waited <= 100_000_000, "sent again after {waited} ns");
}

fn send(script: &mut Script, match_info: u64, len: u32) -> Posted {
    let (now, to) = (script.now, script.partner);
    script.node.send(now, to, match_info, len, SendOptions::default())
}

#[test]
fn what_is_acknowledged_is_not_sent_again() {
    let mut script = Script::new(Preset::Native9000);
    for number in 0..5 {
        send(&mut script, 2 * number + 1, 8);
    }
    assert_eq!(script.frames().len(), 5);
    // The time-out passes; before the port takes the repetitions, the peer's answer comes.
    script.pass(100_000_000);
    assert_eq!(script.count(Counter::ResentMessages), 5);
    answer(&mut script, 1, 6);
    assert_eq!(script.frames().len(), 0, "all five are acknowledged");
}

#[test]
fn an_answer_ends_the_longer_time_outs_before_the_next_message_goes() {
    let mut script = Script::new(Preset::Native9000);
    send(&mut script, 1, 8);
    assert_eq!(script.frames().len(), 1);
    // 100 ms, 200 ms: two repetitions.
    for _ in 0..2 {
        let due = script.node.engine.poll_timeout().unwrap();
        script.pass(due.nanos_since(script.now));
        assert_eq!(script.frames().len(), 1);
    }
    script.now = script.now.plus_nanos(1_000_000);
    answer(&mut script, 1, 2);
    send(&mut script, 3, 8);
    assert_eq!(script.frames().len(), 1);
    is_sent_again_within_100_ms(&mut script);
}

#[test]
fn room_that_an_acknowledgement_made_is_there_for_the_next_message() {
    for len in [8, 100] {
        let mut config = config_of(0, Preset::Native9000);
        config.limits.eager_bytes_per_partner = len;
        let mut script = Script::with(config, None);
        send(&mut script, 1, len);
        script.frames();
        answer(&mut script, 1, 2);
        let posted = send(&mut script, 3, len);
        assert!(matches!(posted, Posted::Early(_)), "{posted:?}");
        assert_eq!(script.count(Counter::SendsThrottled), 0);
    }
}

#[test]
fn a_frame_that_the_port_did_not_take_is_counted_once() {
    let mut script = Script::new(Preset::Native9000);
    // 14 is one of those that `Node::send_short` writes at once and the port does not take.
    send(&mut script, 14, 8);
    assert_eq!(script.frames().len(), 1);
    assert_eq!(script.count(Counter::SendTiny), 1);
}

#[test]
fn of_two_acknowledgements_before_anything_is_done_the_newer_one_holds() {
    let mut script = Script::new(Preset::Native9000);
    for number in 0..4 {
        send(&mut script, 2 * number + 1, 8);
    }
    script.frames();
    for (seqnum, piggyack) in [(1, 4), (2, 2), (3, 4)] {
        answer(&mut script, seqnum, piggyack);
    }
    assert_eq!(script.count(Counter::DropOldAck), 1, "2 after 4");
    let now = script.now;
    script.node.events(now);
    let unacked = |script: &Script| script.node.engine.partner(script.partner).unwrap().unacked;
    assert_eq!(unacked(&script), 1);
    // Nothing was sent that has this number.
    answer(&mut script, 4, 6);
    assert_eq!(script.count(Counter::DropOldAck), 2);
    script.node.events(now);
    assert_eq!(unacked(&script), 1);
}

#[test]
fn a_refusal_finds_what_was_acknowledged_before_it_acknowledged() {
    let mut script = Script::new(Preset::Native9000);
    let medium = SendOptions::default();
    let (now, to) = (script.now, script.partner);
    for number in 0..2 {
        script.node.send(now, to, 2 * number + 1, 1_000, medium);
    }
    script.frames();
    answer(&mut script, 1, 2);
    let peer_index = script.peer_index;
    put_only(
        &mut script,
        Packet::NackLib(NackLib {
            src_endpoint: PEER_ENDPOINT,
            dst_endpoint: 1,
            code: NackCode::BadSession,
            peer_index,
            seqnum: 1,
        }),
    );
    script.node.events(now);
    assert_eq!(
        script.node.sent,
        [(1, Status::Success, 1_000)],
        "the refusal came too late"
    );
}

#[test]
fn an_acknowledgement_of_its_own_is_acted_on_at_once() {
    let mut script = Script::new(Preset::Native9000);
    send(&mut script, 1, 8);
    script.frames();
    put_only(&mut script, Packet::Ack(ack(2, 1)));
    assert_eq!(script.node.engine.partner(script.partner).unwrap().unacked, 0);
}

#[test]
fn the_end_of_a_conversation_spares_what_was_acknowledged() {
    let mut script = Script::new(Preset::Native9000);
    let (now, to) = (script.now, script.partner);
    two_mediums(&mut script);
    answer(&mut script, 1, 2);
    script.node.engine.disconnect(to);
    script.node.events(now);
    assert_eq!(
        script.node.sent,
        [(1, Status::Success, 1_000), (3, Status::Unreachable, 0)]
    );
}

#[test]
fn a_new_instance_of_the_peer_spares_what_the_old_one_acknowledged() {
    let mut script = Script::new(Preset::Native9000);
    let (now, to) = (script.now, script.partner);
    two_mediums(&mut script);
    answer(&mut script, 1, 2);
    // And what it said cannot be counted for the new one, whose first message has the same number again.
    let frame = script.bytes(Packet::Connect(mxoe::wire::Connect {
        dst_endpoint: 1,
        src_endpoint: PEER_ENDPOINT,
        seqnum: 0,
        peer_index: 0x77,
        src_session: PEER_SESSION + 1,
        recv_seqnum_start: 1,
        connect_seqnum: 0,
        kind: mxoe::wire::ConnectKind::Request { key: 0 },
        extension: None,
    }));
    script.node.engine.handle(now, &frame, &mut script.node.program);
    script.node.send(now, to, 5, 1_000, SendOptions::default());
    script.frames();
    script.node.events(now);
    assert_eq!(
        script.node.sent,
        [(1, Status::Success, 1_000), (3, Status::Unreachable, 0)]
    );
    assert_eq!(script.node.engine.partner(to).unwrap().unacked, 1);
}

#[test]
fn time_that_passes_after_an_acknowledgement_repeats_nothing() {
    let mut script = Script::new(Preset::Native9000);
    send(&mut script, 1, 8);
    script.frames();
    script.now = script.now.plus_nanos(99_000_000);
    answer(&mut script, 1, 2);
    script.now = script.now.plus_nanos(2_000_000);
    script.node.engine.handle_timeout(script.now);
    assert_eq!(script.count(Counter::ResentMessages), 0);
}

#[test]
fn the_end_of_a_large_message_may_come_with_the_acknowledgement_of_its_announcement() {
    let mut script = Script::new(Preset::Native9000);
    script.send_large(100_000);
    put_only(&mut script, Packet::Notify(notify(1, 2, 100_000)));
    let now = script.now;
    script.node.events(now);
    assert_eq!(script.node.sent, [(1, Status::Success, 100_000)]);
}

#[test]
fn limits_of_posting_count_what_was_acknowledged() {
    // Messages that completed early.
    let mut config = config_of(0, Preset::Native9000);
    config.limits.zombies = 1;
    let mut script = Script::with(config, None);
    send(&mut script, 1, 8);
    script.frames();
    answer(&mut script, 1, 2);
    assert!(matches!(send(&mut script, 3, 8), Posted::Early(_)));
    assert_eq!(script.count(Counter::EarlyCompletionStopped), 0);
    // Messages at all.
    let mut config = config_of(0, Preset::Native9000);
    config.limits.sends = 1;
    let mut script = Script::with(config, None);
    send(&mut script, 1, 8);
    script.frames();
    answer(&mut script, 1, 2);
    send(&mut script, 3, 8);
}

#[test]
fn frames_alone_get_what_an_acknowledgement_made_room_for() {
    let mut config = config_of(0, Preset::Native9000);
    config.limits.eager_bytes_per_partner = 1_000;
    let mut script = Script::with(config, None);
    let (now, to) = (script.now, script.partner);
    for number in 0..2 {
        script.node.send(now, to, 2 * number + 1, 1_000, SendOptions::default());
    }
    assert_eq!(script.frames().len(), 1);
    answer(&mut script, 1, 2);
    // No event is polled.
    assert_eq!(script.frames().len(), 1, "the second one");
}

#[test]
fn events_alone_tell_of_an_acknowledgement() {
    let mut script = Script::new(Preset::Native9000);
    let (now, to) = (script.now, script.partner);
    script.node.send(now, to, 1, 1_000, SendOptions::default());
    script.frames();
    answer(&mut script, 1, 2);
    // No frame is polled: the port may be full.
    script.node.events(now);
    assert_eq!(script.node.sent, [(1, Status::Success, 1_000)]);
}

#[test]
fn the_next_message_but_for_one_thing_is_counted_for_what_it_is() {
    let of = |change: &dyn Fn(&mut mxoe::wire::Head, &mut Eager<'static>), expected: Counter| {
        let mut script = Script::new(Preset::Native9000);
        send(&mut script, 1, 8);
        script.frames();
        // The partner that was last heard is this one.
        let first = tiny(&script, 1, 1);
        script.put(Packet::Tiny(first));
        let (mut head, mut second) = (script.head(), tiny(&script, 2, 1));
        change(&mut head, &mut second);
        let bytes = script.bytes_as(&head, Packet::Tiny(second));
        script.counted(&[expected], &bytes);
    };
    of(&|_, eager| eager.session = SESSION + 1, Counter::DropBadSession);
    of(&|_, eager| eager.dst_endpoint = 2, Counter::DropBadEndpoint);
    of(&|_, eager| eager.src_endpoint += 1, Counter::DropUnknownPartner);
    of(&|_, eager| eager.piggyack = 1 | 1 << 14, Counter::DropOldConversation);
    of(&|_, eager| eager.seqnum = 2 | 1 << 14, Counter::DropOldConversation);
    of(&|head, _| head.dst.0[5] ^= 1, Counter::DropNotMxoe);
    of(&|head, _| head.peer_index += 5, Counter::DropBadPeerIndex);
    of(&|head, _| head.src.0[5] ^= 1, Counter::DropBadPeerIndex);
    assert_ne!(PEER.0, [0; 6]);
}

#[test]
fn after_the_end_of_a_conversation_the_next_message_is_nobodys() {
    let mut script = Script::new(Preset::Native9000);
    let first = tiny(&script, 1, 1);
    script.put(Packet::Tiny(first));
    let to = script.partner;
    script.node.engine.disconnect(to);
    // The numbers of the conversation that the engine would begin.
    let info = script.node.engine.partner(to).unwrap();
    let next = Eager {
        seqnum: info.recv_next.0,
        piggyack: info.send_next.0,
        ..script.eager(1, b"abcd")
    };
    script.put_counted(&[Counter::DropUnknownPartner], Packet::Tiny(next));
}

#[test]
fn a_message_that_fills_a_gap_brings_those_that_were_early() {
    let mut script = Script::new(Preset::Native9000);
    for seqnum in [2, 3, 1] {
        let message = tiny(&script, seqnum, 1);
        script.put(Packet::Tiny(message));
    }
    assert_eq!(script.count(Counter::RecvTiny), 3);
}

#[test]
fn the_same_when_the_answer_is_one_that_came_before() {
    let mut script = Script::new(Preset::Native9000);
    let first = tiny(&script, 1, 1);
    script.put(Packet::Tiny(first));
    send(&mut script, 1, 8);
    assert_eq!(script.frames().len(), 1);
    script.pass(20_000_000);
    for _ in 0..2 {
        let due = script.node.engine.poll_timeout().unwrap();
        script.pass(due.nanos_since(script.now));
        script.frames();
    }
    script.now = script.now.plus_nanos(1_000_000);
    // The peer repeats its message, with a newer acknowledgement.
    answer(&mut script, 1, 2);
    send(&mut script, 3, 8);
    script.frames();
    is_sent_again_within_100_ms(&mut script);
}

#[test]
fn acknowledgements_that_were_acted_on_leave_nothing_behind() {
    let mut script = Script::new(Preset::Native9000);
    for number in 0..1_000 {
        send(&mut script, 2 * number + 1, 8);
    }
    script.frames();
    let memory = script.node.engine.memory();
    for number in 0..1_000 {
        put_only(&mut script, Packet::Ack(ack(number + 2, u32::from(number) + 1)));
    }
    assert!(script.node.engine.is_settled());
    assert!(script.node.engine.memory() <= memory, "a word for each");
}

#[test]
fn the_same_number_from_the_same_endpoint_of_another_board_is_another_message() {
    let mut script = Script::new(Preset::Native9000);
    let first = script.head();
    let mut second = first;
    second.src.0[5] ^= 1;
    second.peer_index = script.peer_index + 1;
    script.put_as(
        &second,
        Packet::Connect(mxoe::wire::Connect {
            dst_endpoint: 1,
            src_endpoint: PEER_ENDPOINT,
            seqnum: 0,
            peer_index: 0x78,
            src_session: PEER_SESSION + 1,
            recv_seqnum_start: 1,
            connect_seqnum: 0,
            kind: mxoe::wire::ConnectKind::Request { key: 0 },
            extension: None,
        }),
    );
    script.replies();
    for seqnum in 1..4 {
        for head in [first, second] {
            let message = tiny(&script, seqnum, 1);
            script.put_as(&head, Packet::Tiny(message));
        }
    }
    assert_eq!(script.count(Counter::RecvTiny), 6);
    let from = |at: usize| script.node.program.matched[at].0;
    assert!((0..6).all(|at| from(at) == from(at % 2)) && from(0) != from(1));
}
