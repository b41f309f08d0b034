//! Peers that die, restart, give up, or are set differently: every request ends with the documented status, and the next
//! conversation works.

use mxoe::{
    engine::{Config, Counter, Posted, SendOptions, Status},
    wire::{Connect, ConnectKind, Extension, Packet, Preset, Sizes},
};

use super::{
    node::{Node, config_of, mac_of},
    script::{PEER_SESSION, Reply, Script},
    world::World,
};

const SYNCHRONOUS: SendOptions = SendOptions {
    synchronous: true,
    copyable: false,
};

fn pair(preset: Preset, give_up_ns: u64) -> World {
    let nodes = (0..2).map(|node| {
        let mut config = config_of(node, preset);
        config.timing.give_up_ns = give_up_ns;
        Node::new(config)
    });
    World::new(nodes.collect(), 21)
}

#[test]
fn a_dead_peer_ends_every_request_as_unreachable_within_the_time_out() {
    let mut world = pair(Preset::Native1500, 2_000_000_000);
    let to = world.connect(0, 1);
    world.off[1] = true;
    let now = world.now;
    for number in 1..=3 {
        world.nodes[0].send(now, to, number, 5_000, SendOptions::default());
        world.nodes[0].send(now, to, 10 + number, 100_000, SendOptions::default());
    }
    world.nodes[0].engine.connect(now, mac_of(1), 1, 0, 0).unwrap();
    world.kick(0);
    world.run(2_600_000_000, |_| false);
    let mut ended: Vec<_> = world.nodes[0]
        .sent
        .iter()
        .map(|(token, status, _)| (*token, *status))
        .collect();
    ended.sort_by_key(|(token, _)| *token);
    let expected: Vec<_> = [1, 2, 3, 11, 12, 13].map(|token| (token, Status::Unreachable)).into();
    assert_eq!(ended, expected);
    assert_eq!(world.nodes[0].connected[1..], [(to, Status::Unreachable)]);
    assert_eq!(world.nodes[0].lost, [to]);
    assert!(world.nodes[0].engine.is_idle());
    assert_eq!(world.nodes[0].engine.poll_timeout(), None, "nothing runs any more");
    let again = world.nodes[0].engine.send_inline(world.now, to, 1, 1, b"x");
    assert_eq!(again, Err(mxoe::engine::SendError::NotConnected));
}

#[test]
fn a_peer_that_never_answers_a_connect_ends_it_as_unreachable() {
    let mut world = pair(Preset::Wire, 3_000_000_000);
    world.off[1] = true;
    let now = world.now;
    let to = world.nodes[0].engine.connect(now, mac_of(1), 1, 0, 0).unwrap();
    world.kick(0);
    world.run(4_000_000_000, |_| false);
    assert_eq!(world.nodes[0].connected, [(to, Status::Unreachable)]);
    assert_eq!(
        world.nodes[0].count(Counter::SendConnectRequest),
        6,
        "every half second"
    );
    assert_eq!(world.nodes[0].lost, [], "it never was a partner");
}

#[test]
fn a_peer_that_dies_in_the_middle_of_a_pull_ends_it_within_the_time_out() {
    let mut world = pair(Preset::Native1500, 2_000_000_000);
    let to = world.connect(0, 1);
    let now = world.now;
    world.nodes[1].post_any(now, 1);
    world.nodes[0].send(now, to, 1, 8 << 20, SendOptions::default());
    world.kick(0);
    world.run(1_000_000, |_| false);
    world.off[0] = true;
    world.run(4_000_000_000, |_| false);
    let got = &world.nodes[1].program.got[0];
    assert_eq!((got.status, got.transferred), (Status::Timeout, 0));
    assert_eq!(world.nodes[1].count(Counter::PullTimeoutAbort), 1);
}

#[test]
fn a_peer_that_dies_in_the_middle_of_a_medium_message_ends_it_within_the_time_out() {
    let mut config = config_of(0, Preset::Native1500);
    config.timing.give_up_ns = 2_000_000_000;
    let mut script = Script::with(config, None);
    let data = [0; 1452];
    script.put(Packet::Medium(script.medium(1, 3 * 1452, 1, &data)));
    script.pass(1_500_000_000);
    script.put(Packet::Medium(script.medium(1, 3 * 1452, 0, &data)));
    script.pass(1_900_000_000);
    assert!(script.node.program.got.is_empty());
    script.pass(200_000_000);
    assert_eq!(script.node.program.got[0].status, Status::Unreachable);
    assert_eq!(script.node.lost, [script.partner]);
}

#[test]
fn a_message_that_is_announced_and_never_taken_ends_after_the_time_out() {
    let mut world = pair(Preset::Native1500, 1_000_000_000);
    let to = world.connect(0, 1);
    let now = world.now;
    world.nodes[0].send(now, to, 1, 100_000, SendOptions::default());
    world.kick(0);
    world.run(900_000_000, |_| false);
    assert!(world.nodes[0].sent.is_empty());
    world.run(1_000_000_000, |_| false);
    assert_eq!(world.nodes[0].sent, [(1, Status::Timeout, 0)]);
    // Taken too late: refused, and said so.
    let now = world.now;
    world.nodes[1].drain_unexpected(now, 1);
    world.kick(1);
    world.run(100_000_000, |_| false);
    assert_eq!(world.nodes[1].program.got[0].status, Status::BadRdmaWindow);
}

#[test]
fn the_time_out_of_a_message_can_be_changed_while_it_runs() {
    let mut world = pair(Preset::Native1500, 500_000_000_000);
    let to = world.connect(0, 1);
    let now = world.now;
    let Posted::Pending(send) = world.nodes[0].send(now, to, 1, 100_000, SendOptions::default()) else {
        panic!("large messages complete late")
    };
    world.kick(0);
    world.run(1_000_000_000, |_| false);
    world.nodes[0].engine.set_send_give_up(send, 2_000_000_000);
    world.kick(0);
    world.run(1_500_000_000, |_| false);
    assert_eq!(world.nodes[0].sent, [(1, Status::Timeout, 0)]);
}

#[test]
fn the_time_out_of_a_connect_can_be_changed_while_it_waits() {
    let mut world = pair(Preset::Native1500, 500_000_000_000);
    world.off[1] = true;
    let now = world.now;
    let to = world.nodes[0].engine.connect(now, mac_of(1), 1, 0, 7).unwrap();
    world.kick(0);
    world.run(100_000_000, |_| false);
    assert!(!world.nodes[0].engine.set_connect_give_up(8, 1), "no such connect");
    assert!(world.nodes[0].engine.set_connect_give_up(7, 300_000_000));
    world.kick(0);
    world.run(190_000_000, |_| false);
    assert_eq!(world.nodes[0].connected, []);
    // Not only when it is sent again, every half second.
    world.run(20_000_000, |_| false);
    assert_eq!(world.nodes[0].connected, [(to, Status::Unreachable)]);
}

#[test]
fn the_time_out_of_a_transfer_can_be_changed_while_it_runs_and_while_it_waits_for_its_turn() {
    let nodes = (0..2).map(|node| {
        let mut config = config_of(node, Preset::Native1500);
        config.limits.pulls = 2;
        Node::new(config)
    });
    let mut world = World::new(nodes.collect(), 21);
    let to = world.connect(0, 1);
    let now = world.now;
    world.nodes[1].post_any(now, 6);
    for _ in 0..6 {
        world.nodes[0].send(now, to, 1, 1 << 20, SendOptions::default());
    }
    world.kick(0);
    world.run(100_000, |_| false);
    world.off[0] = true;
    assert!(!world.nodes[1].engine.set_pull_give_up(1 << 40, 1), "no such transfer");
    let receives: Vec<_> = world.nodes[1].program.running().collect();
    assert_eq!(receives.len(), 6);
    for receive in receives {
        assert!(world.nodes[1].engine.set_pull_give_up(receive, 300_000_000));
    }
    world.kick(1);
    // Two at a time, and each has its own time since it began.
    world.run(1_200_000_000, |_| false);
    let got = &world.nodes[1].program.got;
    assert_eq!(got.len(), 6);
    assert!(got.iter().all(|got| got.status == Status::Timeout));
}

#[test]
fn a_restarted_peer_is_a_new_instance_and_can_be_talked_to_at_once() {
    for preset in Preset::ALL {
        let mut world = pair(preset, 500_000_000_000);
        let to = world.connect(0, 1);
        world.connect(1, 0);
        let now = world.now;
        world.nodes[1].post_any(now, 5);
        for number in 1..=5 {
            world.nodes[0].send(now, to, number, 100, SendOptions::default());
        }
        world.kick(0);
        assert!(world.settle(50_000_000));
        assert_eq!(world.nodes[1].program.got.len(), 5);
        // Node 1 dies with messages in flight, and comes back with another session.
        world.nodes[0].send(now, to, 6, 2_000, SendOptions::default());
        world.nodes[0].send(now, to, 7, 200_000, SYNCHRONOUS);
        let mut config = config_of(1, preset);
        config.session = 0xfeed;
        world.nodes[1] = Node::new(config);
        let back = world.connect(1, 0);
        assert_eq!(world.nodes[0].lost, [to]);
        let mut ended: Vec<_> = world.nodes[0]
            .sent
            .iter()
            .map(|(token, status, _)| (*token, *status))
            .collect();
        ended.sort_by_key(|(token, _)| *token);
        assert_eq!(ended, [(6, Status::Unreachable), (7, Status::Unreachable)]);
        assert_eq!(world.nodes[0].engine.partner(to).unwrap().session, 0xfeed);
        // In both directions, without node 0 connecting again.
        let now = world.now;
        world.nodes[0].post_any(now, 2);
        world.nodes[1].post_any(now, 2);
        for number in [21, 22] {
            world.nodes[0].send(now, to, number, 60_000, SendOptions::default());
            world.nodes[1].send(now, back, number, 60_000, SendOptions::default());
        }
        world.kick(0);
        world.kick(1);
        assert!(
            world.run(1_000_000_000, |world| world.nodes.iter().all(|node| node
                .program
                .got
                .len()
                == 2)),
            "{preset}: {}",
            world.report()
        );
    }
}

#[test]
fn messages_to_an_instance_that_is_gone_are_refused_with_bad_session() {
    let mut world = pair(Preset::Native9000, 500_000_000_000);
    let to = world.connect(0, 1);
    let mut config = config_of(1, Preset::Native9000);
    config.session = 0xfeed;
    let mut peers = mxoe::engine::PeerMap::new(8, 0);
    peers.add(mac_of(0));
    world.nodes[1] = Node::with_peers(config, peers);
    let now = world.now;
    world.nodes[0].send(now, to, 6, 2_000, SendOptions::default());
    world.kick(0);
    assert!(world.run(1_000_000_000, |world| !world.nodes[0].sent.is_empty()));
    assert_eq!(world.nodes[0].sent, [(6, Status::BadSession, 0)]);
}

#[test]
fn a_peer_that_gave_up_while_we_did_not_starts_a_new_conversation() {
    let mut world = pair(Preset::Native1500, 1_000_000_000);
    world.nodes[1].engine.set_give_up(500_000_000_000);
    let to = world.connect(0, 1);
    let back = world.connect(1, 0);
    // Node 1 does not hear for long: node 0 gives up, node 1 has messages in flight and does not.
    let now = world.now;
    world.nodes[1].send(now, back, 9, 100, SendOptions::default());
    world.nodes[1].send(now, back, 8, 5_000, SendOptions::default());
    world.nodes[0].send(now, to, 1, 100, SendOptions::default());
    world.off[1] = true;
    world.kick(0);
    world.run(2_000_000_000, |_| false);
    assert_eq!(world.nodes[0].lost, [to]);
    world.off[1] = false;
    world.kick(1);
    world.run(1_000_000_000, |_| false);
    let again = world.connect(0, 1);
    assert_eq!(again, to);
    assert_eq!(
        world.nodes[1].lost,
        [back],
        "the survivor learns it by the session bits"
    );
    assert_eq!(
        world.nodes[1].sent.iter().map(|(token, ..)| *token).collect::<Vec<_>>(),
        [9, 8]
    );
    let now = world.now;
    for node in 0..2 {
        world.nodes[node].post_any(now, 1);
        world.nodes[node].send(now, [to, back][node], 77, 50_000, SendOptions::default());
        world.kick(node);
    }
    assert!(world.run(1_000_000_000, |world| {
        world.nodes.iter().all(|node| node.program.got.len() == 1)
    }));
    assert_eq!(world.nodes[0].engine.partner(to).unwrap().recv_next.session(), 1);
}

#[test]
fn disconnecting_ends_what_is_pending_and_connecting_again_works() {
    let mut world = pair(Preset::Native1500, 500_000_000_000);
    let to = world.connect(0, 1);
    let now = world.now;
    world.nodes[0].send(now, to, 1, 100_000, SendOptions::default());
    world.kick(0);
    world.run(1_000_000, |_| false);
    world.nodes[0].engine.disconnect(to);
    world.kick(0);
    assert_eq!(world.nodes[0].sent, [(1, Status::Unreachable, 0)]);
    world.connect(0, 1);
    assert_eq!(world.nodes[1].pull_none().len(), 1);
    let now = world.now;
    world.nodes[1].post_any(now, 1);
    world.nodes[0].send(now, to, 2, 100_000, SendOptions::default());
    world.kick(0);
    assert!(world.run(1_000_000_000, |world| world.nodes[0].sent.len() == 2));
    assert_eq!(world.nodes[0].sent[1], (2, Status::Success, 100_000));
}

#[test]
fn wrong_keys_and_different_settings_fail_the_connection_at_once() {
    let mut world = pair(Preset::Native1500, 500_000_000_000);
    let now = world.now;
    let to = world.nodes[0].engine.connect(now, mac_of(1), 1, 4711, 0).unwrap();
    world.kick(0);
    assert!(world.run(1_000_000, |world| !world.nodes[0].connected.is_empty()));
    assert_eq!(world.nodes[0].connected, [(to, Status::BadKey)]);
    assert_eq!(world.nodes[1].engine.partners().count(), 0);

    let other_blocks = Config::with_sizes(
        mac_of(1),
        1,
        5,
        Sizes::native(1500, 16).unwrap(),
        Preset::Native1500.code(),
    );
    for other in [
        config_of(1, Preset::Native9000),
        config_of(1, Preset::Wire),
        other_blocks,
    ] {
        let mut world = World::new(vec![Node::new(config_of(0, Preset::Native1500)), Node::new(other)], 1);
        let now = world.now;
        let to = world.nodes[0].engine.connect(now, mac_of(1), 1, 0, 0).unwrap();
        world.kick(0);
        assert!(world.run(1_000_000, |world| !world.nodes[0].connected.is_empty()));
        assert_eq!(world.nodes[0].connected, [(to, Status::BadConnection)]);
        for node in &world.nodes {
            assert_eq!(
                (node.mismatches, node.count(Counter::DropConnectMismatch)),
                (1, 1),
                "both say it"
            );
        }
        // Who keeps asking is told about no more.
        for _ in 0..10 {
            let now = world.now;
            world.nodes[0].engine.connect(now, mac_of(1), 1, 0, 0).unwrap();
            world.kick(0);
            let connects = world.nodes[0].connected.len() + 1;
            assert!(world.run(1_000_000, |world| world.nodes[0].connected.len() == connects));
        }
        for node in &world.nodes {
            assert_eq!((node.mismatches, node.count(Counter::DropConnectMismatch)), (1, 11));
        }
    }
}

#[test]
fn extensions_are_used_only_if_both_announced_them_without_reserved_bits() {
    let word = |flags| {
        Some(Extension {
            flags,
            block_frames_log2: 5,
            preset: Preset::Native9000.code(),
        })
    };
    for (theirs, marks, short_acks) in [
        (None, false, false),
        (word(0), false, false),
        (word(Extension::MARK), true, false),
        (word(Extension::SHORT_ACK), false, true),
        (word(Extension::MARK | Extension::SHORT_ACK), true, true),
        (word(Extension::MARK | 0x80), false, false),
    ] {
        let mut script = Script::with(config_of(0, Preset::Native9000), theirs);
        let info = script.node.engine.partner(script.partner).unwrap();
        assert_eq!((info.marks, info.short_acks), (marks, short_acks));
        let (now, to) = (script.now, script.partner);
        script.node.send(now, to, 1, 5, SendOptions::default());
        script.node.send(now, to, 2, 20_000, SendOptions::default());
        let marked: Vec<bool> = script.frames().iter().map(|frame| frame[16] & 0x80 != 0).collect();
        assert_eq!(marked, [marks, false, false, marks], "tiny, and the last fragment only");
        // The delayed acknowledgement follows the agreement.
        script.put(Packet::Tiny(script.eager(1, b"x")));
        script.pass(1_000_000);
        assert_eq!(
            script.replies().iter().any(|reply| matches!(reply, Reply::Ack(_))),
            short_acks
        );
        script.pass(15_000_000);
        script.frames();
        assert_eq!(script.count(Counter::SendLiback), 1);
    }
}

#[test]
fn repeated_requests_only_cause_repeated_replies() {
    let mut script = Script::new(Preset::Native9000);
    script.put(Packet::Tiny(script.eager(1, b"x")));
    let before = script.node.engine.partner(script.partner);
    for _ in 0..3 {
        script.request(PEER_SESSION, 1, None);
        let Reply::Connect(reply) = script.one() else {
            panic!("a reply")
        };
        assert_eq!(reply.recv_seqnum_start, 2, "what is expected next");
        assert!(matches!(reply.kind, ConnectKind::Reply { status: 0, .. }));
    }
    assert_eq!(script.node.engine.partner(script.partner), before);
    assert!(script.node.lost.is_empty());
    // A late one of an older conversation (session bits behind ours) changes nothing either.
    script.request(PEER_SESSION, 0xc001, None);
    assert_eq!(script.node.engine.partner(script.partner), before);
}

#[test]
fn a_cancelled_connect_is_not_answered_any_more() {
    let mut world = pair(Preset::Wire, 500_000_000_000);
    let now = world.now;
    world.nodes[0].engine.connect(now, mac_of(1), 1, 0, 42).unwrap();
    world.kick(0);
    assert!(world.nodes[0].engine.cancel_connect(42));
    assert!(!world.nodes[0].engine.cancel_connect(42));
    world.run(2_000_000_000, |_| false);
    assert!(world.nodes[0].connected.is_empty());
    assert_eq!(world.nodes[0].count(Counter::DropStrayConnectReply), 1);
}

#[test]
fn both_ends_connecting_at_once_agree() {
    for seed in 0..20 {
        let nodes = (0..2)
            .map(|node| Node::new(config_of(node, Preset::Native1500)))
            .collect();
        let mut world = World::new(nodes, seed);
        let now = world.now;
        let partners = [0, 1].map(|node| {
            world.nodes[node]
                .engine
                .connect(now, mac_of(1 - node), 1, 0, 0)
                .unwrap()
        });
        world.kick(0);
        world.kick(1);
        assert!(world.run(1_000_000_000, |world| {
            world.nodes.iter().all(|node| !node.connected.is_empty())
        }));
        let now = world.now;
        for (node, to) in partners.into_iter().enumerate() {
            world.nodes[node].post_any(now, 1);
            world.nodes[node].send(now, to, 3, 40_000, SendOptions::default());
            world.kick(node);
        }
        assert!(world.run(1_000_000_000, |world| {
            world.nodes.iter().all(|node| node.program.got.len() == 1)
        }));
    }
}

/// The peer's word about what it expects next is used as long as nothing was sent.
#[test]
fn numbers_begin_where_the_peer_says() {
    let mut script = Script::new(Preset::Native9000);
    script.request(0xabcd, 300, None);
    script.one();
    let (now, to) = (script.now, script.partner);
    script.node.send(now, to, 1, 5, SendOptions::default());
    let frame = script.frames().remove(0);
    let (_, packet) = script.dialect.decode(&frame).unwrap();
    let Packet::Tiny(tiny) = packet else {
        panic!("{packet:?}")
    };
    assert_eq!((tiny.seqnum, tiny.session), (300, 0xabcd));
    let connect = Connect {
        kind: ConnectKind::Request { key: 0 },
        ..match script
            .node
            .engine
            .connect(now, super::script::PEER, super::script::PEER_ENDPOINT, 0, 0)
        {
            Ok(_) => match script.one() {
                Reply::Connect(connect) => connect,
                other => panic!("{other:?}"),
            },
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(connect.recv_seqnum_start, 1);
}
