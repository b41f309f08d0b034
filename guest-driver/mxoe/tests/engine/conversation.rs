//! The rules of a healthy conversation: which packet for which message, acknowledgements, retransmission, wrap-around.

use mxoe::{
    engine::{Counter, Posted, SendOptions, Status, Verdict},
    wire::{Ack, Notify, Packet, PacketType, Preset},
};

use super::{
    node::{Node, config_of},
    script::{Reply, Script, ack, notify},
    world::World,
};

#[test]
fn each_length_takes_the_packet_type_of_section_3() {
    let mut script = Script::new(Preset::Native1500);
    let (now, to) = (script.now, script.partner);
    for (number, (length, synchronous, kind, frames)) in [
        (0, false, PacketType::Tiny, 1),
        (32, false, PacketType::Tiny, 1),
        (33, false, PacketType::Small, 1),
        (128, false, PacketType::Small, 1),
        (129, false, PacketType::Medium, 1),
        (32_768, false, PacketType::Medium, 23),
        (32_769, false, PacketType::Rndv, 1),
        (0, true, PacketType::Rndv, 1),
        (100, true, PacketType::Rndv, 1),
        (8 << 20, true, PacketType::Rndv, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let options = SendOptions {
            synchronous,
            copyable: false,
        };
        script.node.send(now, to, number as u64, length, options);
        let kinds: Vec<_> = script.replies().iter().map(Reply::kind).collect();
        assert_eq!(kinds, vec![kind; frames], "{length}");
    }
}

#[test]
fn the_fourth_message_is_acknowledged_at_once_and_fewer_after_a_while() {
    let mut script = Script::new(Preset::Native1500);
    for seqnum in 1..=4 {
        assert_eq!(script.replies(), []);
        script.put(Packet::Tiny(script.eager(seqnum, b"x")));
    }
    assert!(matches!(script.one(), Reply::Ack(Ack { ack: 5, acknum: 1, .. })));
    script.put(Packet::Tiny(script.eager(5, b"x")));
    script.pass(15_000_000);
    assert_eq!(script.replies(), []);
    script.put(Packet::Tiny(script.eager(6, b"x")));
    script.pass(1_000_000);
    assert!(
        matches!(script.one(), Reply::Ack(Ack { ack: 7, acknum: 2, .. })),
        "counted from the oldest"
    );
    script.pass(1_000_000_000);
    assert_eq!(script.replies(), []);
    assert_eq!(script.node.engine.poll_timeout(), None);
}

#[test]
fn a_message_the_other_way_takes_the_acknowledgement_along() {
    let mut script = Script::new(Preset::Native1500);
    for seqnum in 1..=3 {
        script.put(Packet::Tiny(script.eager(seqnum, b"x")));
    }
    let (now, to) = (script.now, script.partner);
    script.node.send(now, to, 1, 5, SendOptions::default());
    let frames = script.frames();
    let (_, packet) = script.dialect.decode(&frames[0]).unwrap();
    assert!(matches!(packet, Packet::Tiny(tiny) if tiny.piggyack == 4));
    script.put(Packet::Ack(ack(2, 1)));
    script.pass(1_000_000_000);
    assert_eq!(script.replies(), []);
}

#[test]
fn acknowledgements_are_sent_before_the_endpoint_closes() {
    let mut script = Script::new(Preset::Native1500);
    script.put(Packet::Tiny(script.eager(1, b"x")));
    script.node.engine.flush_acks();
    assert!(matches!(script.one(), Reply::Ack(Ack { ack: 2, .. })));
}

#[test]
fn a_notify_is_acknowledged_at_once_in_wire_mode_only() {
    for preset in Preset::ALL {
        let mut script = Script::new(preset);
        script.send_large(50_000);
        script.put(Packet::Notify(notify(1, 2, 50_000)));
        assert_eq!(script.node.sent, [(1, Status::Success, 50_000)]);
        assert_eq!(script.replies().len(), usize::from(preset == Preset::Wire));
        // Its region comes back with the next use counter.
        let (now, to) = (script.now, script.partner);
        script.node.send(now, to, 2, 50_000, SendOptions::default());
        let frame = script.frames().pop().unwrap();
        let (_, packet) = script.dialect.decode(&frame).unwrap();
        assert!(matches!(packet, Packet::Rndv(rndv) if (rndv.rdma_id, rndv.rdma_seqnum) == (0, 24)));
    }
}

#[test]
fn a_large_send_ends_when_it_is_acknowledged_and_notified() {
    let mut script = Script::new(Preset::Native1500);
    script.send_large(50_000);
    script.put(Packet::Ack(ack(2, 1)));
    assert!(script.node.sent.is_empty());
    script.put(Packet::Notify(notify(1, 2, 20_000)));
    assert_eq!(script.node.sent, [(1, Status::Truncated, 20_000)]);
    assert!(script.node.memory.is_empty());
}

#[test]
fn unacknowledged_messages_are_sent_again_with_doubling_pauses_and_a_fresh_acknowledgement() {
    let mut script = Script::new(Preset::Native1500);
    let (now, to) = (script.now, script.partner);
    script.node.send(now, to, 1, 5, SendOptions::default());
    script.node.send(now, to, 2, 3_000, SendOptions::default());
    assert_eq!(script.frames().len(), 4);
    script.put(Packet::Tiny(script.eager(1, b"x")));
    let mut times = Vec::new();
    let start = script.now;
    for _ in 0..400 {
        script.pass(10_000_000);
        let frames = script.frames();
        let messages: Vec<_> = frames.iter().filter(|frame| frame[16] != 35).collect();
        if !messages.is_empty() {
            assert_eq!(messages.len(), 4, "whole messages, all fragments");
            let (_, packet) = script.dialect.decode(messages[0]).unwrap();
            assert!(matches!(packet, Packet::Tiny(tiny) if tiny.piggyack == 2 && tiny.seqnum == 1));
            times.push(script.now.nanos_since(start) / 10_000_000);
        }
    }
    let pauses: Vec<_> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(
        times[0], 10,
        "nothing measured yet: four times the floor of a foreign peer"
    );
    assert!(pauses.windows(2).all(|pair| pair[1] >= pair[0]), "{pauses:?}");
    assert!(
        pauses.iter().all(|pause| *pause <= 51),
        "half a second at most: {pauses:?}"
    );
    script.put(Packet::Ack(ack(3, 9)));
    assert!(script.node.engine.is_idle());
    assert_eq!(
        script.node.sent.len(),
        1,
        "the tiny one was complete when it was posted"
    );
}

#[test]
fn consumed_messages_are_over_at_their_first_fragment() {
    let mut script = Script::new(Preset::Native1500);
    script.node.program.verdict = Some(Verdict::Consumed);
    let data = [0; 1452];
    script.put(Packet::Medium(script.medium(1, 3 * 1452, 1, &data)));
    script.put(Packet::Medium(script.medium(1, 3 * 1452, 0, &data)));
    assert_eq!(script.count(Counter::DropOldMessage), 1);
    script.put(Packet::Rndv(script.rndv(2, 100_000)));
    let notify = script
        .replies()
        .into_iter()
        .find(|reply| matches!(reply, Reply::Notify(_)));
    assert!(matches!(
        notify,
        Some(Reply::Notify(Notify {
            total_length: 0,
            rdma_id: 3,
            rdma_seqnum: 23,
            ..
        }))
    ));
    script.put(Packet::Tiny(script.eager(3, b"x")));
    assert!(script.node.program.got.is_empty());
}

#[test]
fn declined_and_empty_large_messages_are_notified_with_nothing() {
    let mut script = Script::new(Preset::Native1500);
    script.put(Packet::Rndv(script.rndv(1, 100_000)));
    script.put(Packet::Rndv(script.rndv(2, 0)));
    let larges = script.node.pull_none();
    script.node.engine.decline(larges[0]).unwrap();
    assert!(script.node.engine.decline(larges[0]).is_err());
    assert!(matches!(
        script.one(),
        Reply::Notify(Notify {
            total_length: 0,
            seqnum: 1,
            piggyack: 3,
            ..
        })
    ));
    script.node.program.got.clear();
    let now = script.now;
    script.node.engine.pull(now, larges[1], 77, 100).unwrap();
    assert!(script.node.engine.pull(now, larges[1], 77, 100).is_err());
    assert!(matches!(
        script.one(),
        Reply::Notify(Notify {
            total_length: 0,
            seqnum: 2,
            ..
        })
    ));
    let event = script.node.engine.poll_event().unwrap();
    assert!(matches!(
        event,
        mxoe::engine::Event::Received {
            receive: 77,
            status: Status::Success,
            transferred: 0
        }
    ));
}

#[test]
fn sequence_numbers_wrap() {
    let nodes = (0..2)
        .map(|node| Node::new(config_of(node, Preset::Native9000)))
        .collect();
    let mut world = World::new(nodes, 2);
    let to = world.connect(0, 1);
    let back = world.connect(1, 0);
    for node in 0..2 {
        let now = world.now;
        world.nodes[node].post_any(now, 40_000);
        world.nodes[node].depth = 64;
        for number in 0..40_000 {
            let length = if number % 50 == 0 { 1_000 } else { 4 };
            world.nodes[node]
                .backlog
                .push_back(([to, back][node], number, length, SendOptions::default()));
        }
    }
    world.kick(0);
    world.kick(1);
    assert!(world.run(60_000_000_000, |world| {
        world.nodes.iter().all(|node| node.program.got.len() == 40_000)
    }));
    for node in &world.nodes {
        assert!(node.program.matched.iter().map(|(_, number)| *number).eq(0..40_000));
        assert_eq!(node.count(Counter::ResentMessages), 0);
    }
}

#[test]
fn a_send_that_completed_early_says_so_only_if_it_fails() {
    let mut config = config_of(0, Preset::Native1500);
    config.timing.give_up_ns = 1_000_000_000;
    let mut script = Script::with(config, None);
    let (now, to) = (script.now, script.partner);
    let posted = script.node.engine.send_inline(now, to, 1, 1, b"x").unwrap();
    assert!(matches!(posted, Posted::Early(_)));
    let Posted::Early(send) = posted else { return };
    script.node.engine.set_send_give_up(send, 200_000_000);
    script.frames();
    for _ in 0..30 {
        script.node.depth = 0;
        script.now = script.now.plus_nanos(10_000_000);
        let now = script.now;
        script.node.engine.handle_timeout(now);
        script.frames();
    }
    let event = script.node.engine.poll_event();
    assert_eq!(
        event,
        Some(mxoe::engine::Event::Sent {
            token: 1,
            status: Status::Unreachable,
            transferred: 0
        })
    );
}
