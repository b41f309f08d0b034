//! The latency-sensitive mark (section 15): it stands on exactly the frames that a program waits for, between peers
//! that agreed on it, and on no frame to any other peer.

use std::fmt::Write;

use mxoe::{
    engine::{Counter, SendOptions},
    wire::{Extension, MARK, Notify, Packet, PacketType, Preset, Pull},
};

use super::{
    node::{Node, config_of},
    script::{PEER, PEER_ENDPOINT, SESSION, Script, ack},
    world::World,
};

const SYNCHRONOUS: SendOptions = SendOptions {
    synchronous: true,
    copyable: false,
};

/// Types and marks (`*`) of frames in their order; how many follow each other where more than one do.
fn listing<'a>(frames: impl IntoIterator<Item = &'a Vec<u8>>) -> String {
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for frame in frames {
        match runs.last_mut() {
            Some((code, count)) if *code == frame[16] => *count += 1,
            _ => runs.push((frame[16], 1)),
        }
    }
    let mut text = String::new();
    for (code, count) in runs {
        let kind = PacketType::from_code(code & !MARK).expect("engines send known types");
        let mark = if code & MARK == 0 { "" } else { "*" };
        let separator = if text.is_empty() { "" } else { " " };
        write!(text, "{separator}{kind:?}{mark}").unwrap();
        if count > 1 {
            write!(text, "x{count}").unwrap();
        }
    }
    text
}

/// Splits such a listing into its frames.
fn each(listing: &str) -> Vec<&str> {
    let mut frames = Vec::new();
    for run in listing.split(' ') {
        let (frame, count) = run.split_once('x').unwrap_or((run, "1"));
        frames.extend(std::iter::repeat_n(frame, count.parse().unwrap()));
    }
    frames
}

/// Those are the frames; towards a peer that did not agree, without any mark.
#[track_caller]
fn assert_listing(found: &str, agreed: bool, expected: &str) {
    if agreed {
        assert_eq!(found, expected);
    } else {
        assert_eq!(each(found), each(&expected.replace('*', "")));
    }
}

/// What the two ends announce, and whether they agree on the mark.
fn agreements() -> [(Option<Extension>, Option<Extension>, bool); 7] {
    let word = |flags| {
        Some(Extension {
            flags,
            block_frames_log2: 5,
            preset: Preset::Native1500.code(),
        })
    };
    let (all, mark) = (word(Extension::MARK | Extension::SHORT_ACK), word(Extension::MARK));
    [
        (all, all, true),
        (all, mark, true),
        (all, word(Extension::SHORT_ACK), false),
        (all, word(Extension::MARK | 0x40), false),
        (all, None, false),
        (word(Extension::SHORT_ACK), all, false),
        (None, all, false),
    ]
}

/// One message after the other, in turns of direction: every frame that each of the two sent.
fn conversation(own: Option<Extension>, theirs: Option<Extension>) -> [String; 2] {
    let nodes = [own, theirs].into_iter().enumerate().map(|(node, extension)| {
        let mut config = config_of(node, Preset::Native1500);
        config.extension = extension;
        Node::new(config)
    });
    let mut world = World::new(nodes.collect(), 5);
    world.trace = Some(Vec::new());
    // The last one when both have agreed.
    let to = [world.connect(0, 1), world.connect(1, 0)];
    world.connect(0, 1);
    for length in [8, 100, 1_000, 4_000, 100_000] {
        for (node, to) in to.into_iter().enumerate() {
            let now = world.now;
            world.nodes[1 - node].post_any(now, 1);
            world.nodes[node].send(now, to, u64::from(length), length, SendOptions::default());
            world.kick(node);
            assert!(world.settle(1_000_000_000));
            // A delayed acknowledgement.
            world.run(20_000_000, |_| false);
        }
    }
    let trace = world.trace.take().unwrap();
    [0, 1].map(|node| listing(trace.iter().filter(|frame| frame[6..12] == super::node::mac_of(node).0)))
}

#[test]
fn of_a_conversation_exactly_the_frames_that_somebody_waits_for_are_marked() {
    // Each message is acknowledged by the next one in the other direction, or alone if it waits for nothing more.
    let messages = "Tiny* Truc Small* Truc Medium* Truc Mediumx2 Medium* Truc";
    let first = "Rndv* PullReplyx31 PullReply* PullReplyx31 PullReply* PullReplyx4 PullReply* Truc Pull*x3 Notify*";
    let second = "Pull*x3 Notify* Rndv* PullReplyx31 PullReply* PullReplyx31 PullReply* PullReplyx4 PullReply* Truc";
    for (own, theirs, agreed) in agreements() {
        let [of_0, of_1] = conversation(own, theirs);
        assert_listing(&of_0, agreed, &format!("Connectx3 {messages} {first}"));
        let messages = "Truc Tiny* Truc Small* Truc Medium* Truc Mediumx2 Medium*";
        assert_listing(&of_1, agreed, &format!("Connectx3 {messages} {second}"));
    }
}

fn script(own: Option<Extension>, theirs: Option<Extension>) -> Script {
    let mut config = config_of(0, Preset::Native1500);
    config.extension = own;
    Script::with(config, theirs)
}

#[test]
fn frames_that_are_sent_again_are_marked_as_they_were() {
    for (own, theirs, agreed) in agreements() {
        let is = |frames: &[Vec<u8>], expected: &str| assert_listing(&listing(frames), agreed, expected);
        // Messages, until they are acknowledged.
        let mut sender = script(own, theirs);
        let (now, to) = (sender.now, sender.partner);
        for (number, length) in (1..).zip([8, 100, 4_000]) {
            sender.node.send(now, to, number, length, SendOptions::default());
        }
        sender.node.send(now, to, 4, 100_000, SYNCHRONOUS);
        for _ in 0..3 {
            is(&sender.frames(), "Tiny* Small* Mediumx2 Medium* Rndv*");
            let due = sender.node.engine.poll_timeout().unwrap();
            sender.pass(due.nanos_since(sender.now));
        }
        assert_eq!(sender.count(Counter::ResentMessages), 3 * 4);
        sender.put(Packet::Ack(ack(5, 1)));
        sender.frames();
        // A block, as often as it is asked for; and parts of it.
        let block = sender.pull(5_000);
        for _ in 0..2 {
            sender.put(Packet::Pull(block));
            is(&sender.frames(), "PullReplyx3 PullReply*");
        }
        let (one, two) = (sender.pull(1_000), sender.pull(2_000));
        sender.put(Packet::Pull(one));
        sender.put(Packet::Pull(Pull { frame_index: 2, ..two }));
        is(&sender.frames(), "PullReply* PullReply PullReply*");
        // Requests, and the end.
        let mut receiver = script(own, theirs);
        let now = receiver.now;
        receiver.node.post_any(now, 1);
        receiver.put(Packet::Rndv(receiver.rndv(1, 1_000)));
        let first = receiver.frames();
        is(&first, "Pull*");
        receiver.now = receiver.now.plus_nanos(1_000);
        for _ in 0..2 {
            let due = receiver.node.engine.poll_timeout().unwrap();
            receiver.pass(due.nanos_since(receiver.now));
            let again = receiver.frames();
            let of = |kind: PacketType| again.iter().filter(move |frame| frame[16] & !MARK == kind.code());
            assert_eq!(of(PacketType::Pull).count() + of(PacketType::Truc).count(), again.len());
            assert!(of(PacketType::Pull).all(|frame| (frame[16] & MARK != 0) == agreed));
            assert!(of(PacketType::Truc).all(|frame| frame[16] & MARK == 0));
        }
        let (_, packet) = receiver.dialect.decode(&first[0]).unwrap();
        let Packet::Pull(pull) = packet else {
            panic!("{packet:?}")
        };
        let data = super::node::fill(5, 1_000);
        receiver.put(Packet::PullReply(receiver.pull_reply(&pull, 0, 0, &data)));
        for _ in 0..3 {
            is(&receiver.frames(), "Notify*");
            let due = receiver.node.engine.poll_timeout().unwrap();
            receiver.pass(due.nanos_since(receiver.now));
        }
    }
}

#[test]
fn refusals_acknowledgements_and_connections_are_never_marked() {
    for (own, theirs, _) in agreements() {
        let mut script = script(own, theirs);
        let mut eager = script.eager(1, b"x");
        eager.session ^= 1;
        script.put(Packet::Tiny(eager));
        let notify = Notify {
            dst_endpoint: 1,
            src_endpoint: PEER_ENDPOINT,
            session: SESSION ^ 1,
            total_length: 0,
            rdma_id: 0,
            rdma_seqnum: 23,
            seqnum: 1,
            piggyack: 1,
        };
        script.put(Packet::Notify(notify));
        script.put(Packet::Pull(script.pull(1_000)));
        script.put(Packet::Pull(Pull {
            session: SESSION ^ 1,
            ..script.pull(1_000)
        }));
        // An answer, and a request that is repeated.
        script.request(super::script::PEER_SESSION, 1, theirs);
        let now = script.now;
        script.node.engine.connect(now, PEER, PEER_ENDPOINT, 0, 0).unwrap();
        script.put(Packet::Tiny(script.eager(1, b"x")));
        script.node.engine.flush_acks();
        assert_eq!(
            listing(&script.frames()),
            "NackLibx2 NackMcpx2 Connectx2 Truc",
            "{own:?} {theirs:?}"
        );
        script.pass(600_000_000);
        assert_eq!(listing(&script.frames()), "Connect", "{own:?} {theirs:?}");
    }
}
