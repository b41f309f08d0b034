//! Two engines that live through the conversation of the worked frames: each frame they send is the one in the file.

use ether::{MacAddr, Time};
use mxoe::{
    engine::{Config, Engine, HEAD_BUFFER_LEN, PeerMap, Peers, SendOptions, Status, Transmit, Verdict},
    matching::Selector,
    wire::Preset,
};

use super::node::Node;

const A: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0a]);
const B: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x0b]);
const MATCH: u64 = 0x0123_4567_89ab_cdef;
const NOW: Time = Time::from_nanos(1);

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(pair).collect()
}

/// An Open-MX-like endpoint: `other` is number `index` in its table.
fn node(mac: MacAddr, endpoint: u8, session: u32, other: MacAddr, index: u8, preset: Preset) -> Node {
    let mut peers = PeerMap::new(16, 0);
    for filler in 0..index {
        peers.add(MacAddr([2, 9, 0, 0, 0, filler]));
    }
    peers.add(other);
    let mut config = Config::new(mac, endpoint, session, preset);
    config.extension = None;
    config.key = 0x1234_5678;
    Node::with_peers(config, peers)
}

fn transmit(node: &mut Node) -> (Vec<u8>, Transmit) {
    let mut buffer = [0xaa; HEAD_BUFFER_LEN];
    let transmit = node.engine.poll_transmit(NOW, &mut buffer).expect("a frame is due");
    let mut frame = buffer[..transmit.head_len].to_vec();
    frame.resize(frame.len() + transmit.pad_len, 0);
    (frame, transmit)
}

/// The next frame of `from` is `expected`, padding left out there; hands it to `to`.
#[track_caller]
fn carries(from: &mut Node, to: &mut Node, expected: &str) {
    let (frame, transmit) = transmit(from);
    let mut expected = hex(expected);
    expected.resize(expected.len().max(frame.len()), 0);
    assert_eq!(frame, expected);
    assert_eq!(transmit.payload, None);
    to.frame(NOW, &frame);
}

/// As [`carries`] without handing the frame on, for a frame with data; the head index is not compared where it has no
/// meaning.
#[track_caller]
fn begins(node: &mut Node, expected: &str, payload: (u32, u32), head_index: bool) {
    let (mut frame, transmit) = transmit(node);
    if !head_index {
        frame[14..16].fill(0);
    }
    assert_eq!(frame, hex(expected));
    let piece = transmit.payload.unwrap();
    assert_eq!((piece.offset, piece.len), payload);
}

fn skip(node: &mut Node, frames: usize) {
    for _ in 0..frames {
        transmit(node);
    }
}

fn pair(preset: Preset) -> (Node, Node) {
    (
        node(A, 3, 0xa1b2_c3d4, B, 5, preset),
        node(B, 1, 0x0bad_cafe, A, 7, preset),
    )
}

fn connected(preset: Preset) -> (Node, Node) {
    let (mut a, mut b) = pair(preset);
    // Known from a HOST_QUERY and its answer.
    a.engine.peers_mut().set_reverse(5, 7);
    b.engine.peers_mut().set_reverse(7, 5);
    a.engine.connect(NOW, B, 1, 0x1234_5678, 0).unwrap();
    carries(&mut a, &mut b, include_str!("../frames/connect_request.hex"));
    carries(&mut b, &mut a, include_str!("../frames/connect_reply.hex"));
    assert_eq!(a.connected.last().map(|(_, status)| *status), Some(Status::Success));
    (a, b)
}

fn large() -> SendOptions {
    SendOptions {
        synchronous: true,
        copyable: false,
    }
}

#[test]
fn a_conversation_of_two_engines_is_the_worked_one() {
    for preset in [Preset::Wire, Preset::Native9000] {
        let (mut a, mut b) = connected(preset);
        let to_b = a.engine.partners().next().unwrap();
        b.program.table.posted.post(Selector::ANY, ());
        a.engine.send_inline(NOW, to_b, MATCH, 1, b"hello").unwrap();
        b.program.verdict = Some(Verdict::Take(0));
        carries(&mut a, &mut b, include_str!("../frames/tiny.hex"));
        b.engine.flush_acks();
        carries(&mut b, &mut a, include_str!("../frames/liback.hex"));

        // Message 2 is the medium of 10 000 bytes.
        a.memory.insert(2, vec![0; 10_000]);
        a.engine
            .send(NOW, to_b, MATCH, 2, 10_000, SendOptions::default())
            .unwrap();
        skip(&mut a, 1);
        let (fragment, rest) = match preset {
            Preset::Wire => (include_str!("../frames/wire_medium_1.hex"), (4_096, 4_096)),
            _ => (include_str!("../frames/native_9000_medium_1.hex"), (8_192, 1_808)),
        };
        begins(&mut a, fragment, rest, true);
        if preset == Preset::Wire {
            skip(&mut a, 1);
        }
    }
}

#[test]
fn a_large_message_between_two_engines_is_the_worked_one() {
    for preset in [Preset::Wire, Preset::Native9000] {
        let (mut a, mut b) = connected(preset);
        let to_b = a.engine.partners().next().unwrap();
        b.program.verdict = Some(Verdict::Take(0));
        for token in 1..3 {
            a.engine.send_inline(NOW, to_b, MATCH, token, b"x").unwrap();
            let (frame, _) = transmit(&mut a);
            b.frame(NOW, &frame);
        }
        b.program.verdict = None;
        b.post_any(NOW, 1);
        a.memory.insert(9, vec![0x5a; 1_000_000]);
        a.engine.send(NOW, to_b, MATCH, 9, 1_000_000, large()).unwrap();
        // Region 0 here, 4 there: the one byte that depends on what else is running.
        let region = |text: &str| {
            text.replace("000f4240 04 17", "000f4240 00 17")
                .replace("00000004 17", "00000000 17")
        };
        carries(&mut a, &mut b, &region(include_str!("../frames/rndv.hex")));
        let (first, second) = match preset {
            Preset::Wire => (
                include_str!("../frames/wire_pull_0.hex"),
                include_str!("../frames/wire_pull_1.hex"),
            ),
            _ => (
                include_str!("../frames/native_9000_pull_0.hex"),
                include_str!("../frames/native_9000_pull_1.hex"),
            ),
        };
        carries(&mut b, &mut a, &region(first));
        carries(&mut b, &mut a, &region(second));
        match preset {
            Preset::Wire => {
                skip(&mut a, 9);
                let reply = include_str!("../frames/wire_pull_reply_9.hex");
                begins(&mut a, reply, (0x9000, 4_096), false);
            }
            _ => {
                skip(&mut a, 33);
                let reply = include_str!("../frames/native_9000_pull_reply_33.hex");
                begins(&mut a, reply, (0x48408, 8_968), false);
            }
        }
    }
}

#[test]
fn the_end_of_a_large_message_and_a_refused_pull_are_the_worked_ones() {
    let (mut a, mut b) = connected(Preset::Native9000);
    let to_b = a.engine.partners().next().unwrap();
    b.program.verdict = Some(Verdict::Take(0));
    for token in 1..3 {
        a.engine.send_inline(NOW, to_b, MATCH, token, b"x").unwrap();
        let (frame, _) = transmit(&mut a);
        b.frame(NOW, &frame);
    }
    b.program.verdict = None;
    b.post_any(NOW, 1);
    a.memory.insert(9, super::node::fill(MATCH, 1_000_000));
    a.engine.send(NOW, to_b, MATCH, 9, 1_000_000, large()).unwrap();
    let mut notify = None;
    for _ in 0..1_000 {
        while let Some(frame) = a.transmit(NOW) {
            b.frame(NOW, &frame);
        }
        let Some(frame) = b.transmit(NOW) else { break };
        if frame[16] == 43 {
            notify = Some(frame);
            break;
        }
        a.frame(NOW, &frame);
    }
    let mut expected = hex(&include_str!("../frames/notify.hex").replace("000f4240 04 17", "000f4240 00 17"));
    expected.resize(60, 0);
    assert_eq!(notify, Some(expected));

    // B asks for a region that A does not have.
    let mut pull = hex(&include_str!("../frames/native_9000_pull_0.hex").replace("00000004 17", "00000009 17"));
    pull.resize(60, 0);
    a.frame(NOW, &pull);
    let mut nack = hex(include_str!("../frames/nack_mcp.hex"));
    nack.resize(60, 0);
    assert_eq!(a.transmit(NOW), Some(nack));
}

#[test]
fn engines_connect_without_having_heard_of_each_other() {
    let mut a = Engine::new(Config::new(A, 3, 1, Preset::Wire), PeerMap::new(8, 0));
    a.connect(NOW, B, 1, 0, 0).unwrap();
    let mut buffer = [0; HEAD_BUFFER_LEN];
    a.poll_transmit(NOW, &mut buffer).unwrap();
    assert_eq!(buffer[14..16], [0xff, 0xff], "an index that is not known yet");
}
