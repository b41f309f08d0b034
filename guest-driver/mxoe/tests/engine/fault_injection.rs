//! Fault injection: each of the reference's 13 parameters loses the packets that it names and no others, and every
//! message arrives nevertheless.

use mxoe::{
    engine::{Counter, Lost, SendOptions},
    wire::{Connect, ConnectKind, Packet, PacketType, Preset, Pull},
};

use super::{
    node::{Node, config_of},
    script::{PEER, PEER_SESSION, SESSION, Script},
    world::World,
};

/// The parameters, without `_packet_loss` at their end.
const NAMES: [&str; 13] = [
    "packet",
    "tiny",
    "small",
    "medium_frag",
    "rndv",
    "pull",
    "pull_reply",
    "notify",
    "connreq",
    "connrep",
    "liback",
    "nack_lib",
    "nack_mcp",
];

/// What a frame is called.
fn name_of(script: &Script, frame: &[u8]) -> &'static str {
    match script.dialect.decode(frame).unwrap().1 {
        Packet::Tiny(_) => "tiny",
        Packet::Small(_) => "small",
        Packet::Medium(_) => "medium_frag",
        Packet::Rndv(_) => "rndv",
        Packet::Pull(_) => "pull",
        Packet::PullReply(_) => "pull_reply",
        Packet::Notify(_) => "notify",
        Packet::Connect(Connect {
            kind: ConnectKind::Request { .. },
            ..
        }) => "connreq",
        Packet::Connect(_) => "connrep",
        Packet::Ack(_) => "liback",
        Packet::NackLib(_) => "nack_lib",
        Packet::NackMcp(_) => "nack_mcp",
        other => panic!("{other:?}"),
    }
}

/// An engine that has one packet of each kind to send: which of them go out, sorted, and how many are counted as lost.
fn sent_with(faults: &[(Lost, u32)]) -> (Vec<&'static str>, u32) {
    let mut script = Script::new(Preset::Native1500);
    let (now, to) = (script.now, script.partner);
    // Announced before anything is lost, so that there is something to pull and to end, in each direction.
    script.send_large(50_000);
    for seqnum in 1..=2 {
        script.put(Packet::Rndv(script.rndv(seqnum, 1_000)));
    }
    let larges = script.node.pull_none();
    for (what, every) in faults {
        script.node.engine.set_packet_loss(*what, *every);
    }
    for (number, length) in [(1, 8), (3, 100), (5, 1_000), (9, 50_000)] {
        script.node.send(now, to, number, length, SendOptions::default());
    }
    script.put(Packet::Pull(script.pull(1_000)));
    script.put(Packet::Pull(Pull {
        session: SESSION ^ 1,
        ..script.pull(1_000)
    }));
    let mut eager = script.eager(3, b"x");
    eager.session ^= 1;
    script.put(Packet::Tiny(eager));
    script.request(PEER_SESSION, 1, None);
    script.node.engine.connect(now, PEER, 9, 0, 0).unwrap();
    script.node.engine.pull(now, larges[0], 1, 1_000).unwrap();
    script.node.engine.decline(larges[1]).unwrap();
    script.node.engine.flush_acks();
    let frames = script.frames();
    let mut names: Vec<_> = frames.iter().map(|frame| name_of(&script, frame)).collect();
    names.sort_unstable();
    (names, script.count(Counter::LostOnPurpose))
}

#[test]
fn each_parameter_loses_what_it_names_and_nothing_else() {
    let mut all = NAMES[1..].to_vec();
    all.sort_unstable();
    assert_eq!(sent_with(&[]), (all.clone(), 0));
    for name in NAMES {
        let what = Lost::named(name).unwrap();
        let mut left = all.clone();
        left.retain(|kind| *kind != name && name != "packet");
        let lost = all.len() - left.len();
        assert_eq!(sent_with(&[(what, 1)]), (left, lost as u32), "{name}");
        assert_eq!(
            sent_with(&[(what, 1), (what, 0)]),
            (all.clone(), 0),
            "{name}: none any more"
        );
    }
    // Several at once.
    let both = [(Lost::Type(PacketType::Tiny), 1), (Lost::ConnectReply, 1)];
    all.retain(|kind| !["tiny", "connrep"].contains(kind));
    assert_eq!(sent_with(&both), (all, 2));
    for unknown in ["", "host_query", "connect", "Tiny"] {
        assert_eq!(Lost::named(unknown), None);
    }
}

#[test]
fn whatever_is_lost_on_purpose_everything_comes_all_the_same() {
    // Refusals do not belong to a conversation.
    for name in NAMES.into_iter().filter(|name| !name.starts_with("nack")) {
        let what = Lost::named(name).unwrap();
        let nodes = (0..2)
            .map(|node| Node::new(config_of(node, Preset::Native1500)))
            .collect();
        let mut world = World::new(nodes, 2);
        for node in &mut world.nodes {
            node.engine.set_packet_loss(what, 7);
        }
        let to = world.connect(0, 1);
        // The distance between two lost packets is 13 at most.
        for _ in 0..13 {
            world.connect(1, 0);
            world.connect(0, 1);
        }
        let now = world.now;
        world.nodes[1].post_any(now, 160);
        for number in 0..40 {
            for (at, length) in [4, 100, 5_000, 50_000].into_iter().enumerate() {
                let match_info = number * 4 + at as u64;
                world.nodes[0].send(now, to, match_info, length, SendOptions::default());
            }
        }
        world.kick(0);
        assert!(
            world.run(60_000_000_000, |world| world.nodes[1].program.got.len() == 160),
            "{name} {}",
            world.report()
        );
        let lost = world
            .nodes
            .iter()
            .map(|node| node.count(Counter::LostOnPurpose))
            .sum::<u32>();
        assert!(lost > 0, "{name}");
        for node in &mut world.nodes {
            node.engine.set_packet_loss(what, 0);
        }
        assert!(world.settle(60_000_000_000));
    }
}
