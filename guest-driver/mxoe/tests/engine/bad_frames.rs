//! Every malformed frame and drop reason of section 11 that an endpoint can see, except for pulls and control packets:
//! the counter, the refusal, and that nothing else happens.

use mxoe::{
    engine::{Counter, SendOptions, Status, Verdict},
    wire::{Ack, NackCode, NackLib, PEER_INDEX_UNKNOWN, Packet, PacketType, Preset},
};

use super::{
    bad_control::request,
    node::Node,
    script::{PEER_ENDPOINT, Reply, Script, ack, notify},
};

/// The packet is counted under these counters and changes nothing else.
#[track_caller]
pub fn dropped_as(script: &mut Script, counters: &[Counter], bytes: &[u8]) {
    let state = |script: &Script| {
        let Node {
            sent,
            connected,
            lost,
            program,
            ..
        } = &script.node;
        let ended = (
            sent.len(),
            connected.len(),
            lost.len(),
            program.matched.len(),
            program.got.len(),
        );
        (ended, script.node.engine.partner(script.partner))
    };
    let before = state(script);
    script.counted(counters, bytes);
    assert_eq!(state(script), before);
}

#[track_caller]
pub fn dropped(script: &mut Script, counter: Counter, bytes: &[u8]) {
    dropped_as(script, &[counter], bytes);
}

#[track_caller]
pub fn dropped_silently(script: &mut Script, counter: Counter, bytes: &[u8]) {
    dropped(script, counter, bytes);
    assert_eq!(script.replies(), []);
}

fn sequenced(script: &Script, seqnum: u16) -> Vec<Packet<'static>> {
    let eager = script.eager(seqnum, b"data");
    vec![
        Packet::Tiny(eager),
        Packet::Small(eager),
        Packet::Medium(script.medium(seqnum, 4, 0, b"data")),
        Packet::Rndv(script.rndv(seqnum, 100_000)),
        Packet::Notify(notify(seqnum, 1, 0)),
    ]
}

#[test]
fn frames_that_end_too_soon_or_say_wrong_lengths_are_dropped() {
    for preset in Preset::ALL {
        let mut script = Script::new(preset);
        for packet in sequenced(&script, 1) {
            let bytes = script.bytes(packet);
            dropped_silently(&mut script, Counter::DropBadHeaderDatalen, &bytes[..30]);
        }
        for (packet, len) in [
            (Packet::Tiny(script.eager(1, &[0; 32])), 33u16),
            (Packet::Small(script.eager(1, &[0; 128])), 129),
        ] {
            let mut bytes = script.bytes(packet);
            bytes.resize(300, 0);
            bytes[20..22].copy_from_slice(&len.to_be_bytes());
            dropped_silently(&mut script, Counter::DropBadDatalen, &bytes);
        }
        let short = script.bytes(Packet::Small(script.eager(1, &[0; 128])));
        dropped_silently(&mut script, Counter::DropBadSkblen, &short[..100]);
        let mut rndv = script.bytes(Packet::Rndv(script.rndv(1, 100)));
        rndv[21] = 7;
        dropped_silently(&mut script, Counter::DropBadDatalen, &rndv);
        let mut liback = script.bytes(Packet::Ack(ack(1, 1)));
        liback[20] = 15;
        dropped_silently(&mut script, Counter::DropBadDatalen, &liback);
        liback[20] = 16;
        liback[28] = 0x54;
        dropped_silently(&mut script, Counter::DropUnknownTruc, &liback);
        let mut connect = script.bytes(Packet::Connect(request(1)));
        connect[20] = 15;
        dropped_silently(&mut script, Counter::DropBadDatalen, &connect);
    }
}

/// Of every type, at every length from the whole header down to the type byte.
#[test]
fn every_type_is_dropped_if_it_ends_inside_its_header() {
    for preset in Preset::ALL {
        let mut script = Script::new(preset);
        let tiny = script.bytes(Packet::Tiny(script.eager(1, b"data")));
        for kind in PacketType::ALL {
            let mut frame = tiny.clone();
            frame[16] = kind.code();
            for len in 14..script.dialect.header_len(kind) {
                dropped_silently(&mut script, Counter::DropBadHeaderDatalen, &frame[..len]);
            }
        }
        dropped_silently(&mut script, Counter::DropNotMxoe, &tiny[..13]);
        dropped_silently(&mut script, Counter::DropNotMxoe, &[]);
    }
}

#[test]
fn medium_fragments_outside_their_message_are_dropped() {
    for preset in Preset::ALL {
        let mut script = Script::new(preset);
        let size = script.dialect.sizes().fragment_payload();
        let data = vec![0; size as usize];
        let good = script.bytes(Packet::Medium(script.medium(1, 3 * size, 1, &data)));
        let cases: [(usize, &[u8]); 4] = [
            // Longer than a fragment can be; number 32; number beyond the end; a short one that is not the last.
            (40, &(size as u16 + 1).to_be_bytes()),
            (42, &[32]),
            (42, &[9]),
            (40, &(size as u16 - 1).to_be_bytes()),
        ];
        for (offset, bytes) in cases {
            let mut frame = good.clone();
            frame[offset..offset + bytes.len()].copy_from_slice(bytes);
            dropped_silently(&mut script, Counter::DropBadDatalen, &frame);
        }
        dropped_silently(&mut script, Counter::DropBadSkblen, &good[..good.len() - 1]);
    }
}

#[test]
fn fragments_that_contradict_the_first_one_are_dropped() {
    let mut script = Script::new(Preset::Native1500);
    let data = [0; 1452];
    script.put(Packet::Medium(script.medium(1, 4 * 1452, 0, &data)));
    let mut other = script.medium(1, 5 * 1452, 1, &data);
    let bytes = script.bytes(Packet::Medium(other));
    dropped(&mut script, Counter::DropFragmentMismatch, &bytes);
    other.length = 4 * 1452;
    other.match_info += 1;
    let bytes = script.bytes(Packet::Medium(other));
    dropped(&mut script, Counter::DropFragmentMismatch, &bytes);
    let bytes = script.bytes(Packet::Medium(script.medium(1, 4 * 1452, 0, &data)));
    dropped(&mut script, Counter::DropDuplicateFragment, &bytes);
    // In wire mode the size of the fragments is part of each of them.
    let mut script = Script::new(Preset::Wire);
    let data = [0; 4096];
    script.put(Packet::Medium(script.medium(1, 4 * 4096, 0, &data)));
    let mut other = script.medium(1, 4 * 4096, 1, &data[..2048]);
    other.frag_pipeline = 11;
    let bytes = script.bytes(Packet::Medium(other));
    dropped(&mut script, Counter::DropFragmentMismatch, &bytes);
}

#[test]
fn unknown_and_foreign_types_are_dropped() {
    let mut script = Script::new(Preset::Native9000);
    let good = script.bytes(Packet::Tiny(script.eager(1, b"data")));
    for code in 0..=127u8 {
        if PacketType::from_code(code).is_some() {
            continue;
        }
        let mut frame = good.clone();
        frame[16] = code;
        let counter = match code {
            2 | 32..=34 => Counter::DropInvalidType,
            _ => Counter::DropUnknownType,
        };
        dropped_silently(&mut script, counter, &frame);
    }
    let mut ip = good.clone();
    ip[12..14].copy_from_slice(&[8, 0]);
    dropped_silently(&mut script, Counter::DropNotMxoe, &ip);
    let mut flooded = good.clone();
    flooded[5] ^= 1;
    dropped_silently(&mut script, Counter::DropNotMxoe, &flooded);
    for packet in [
        Packet::Raw(mxoe::wire::Raw { payload: &[1; 60] }),
        Packet::HostQuery(mxoe::wire::HostQuery {
            peer_index: 0,
            magic: 0,
        }),
    ] {
        let bytes = script.bytes(packet);
        dropped_silently(&mut script, Counter::DropBadEndpoint, &bytes);
    }
}

#[test]
fn marks_are_of_unknown_type_where_marks_are_off() {
    let mut config = super::node::config_of(0, Preset::Native9000);
    config.extension = None;
    let mut script = Script::with(config, None);
    let mut frame = script.bytes(Packet::Tiny(script.eager(1, b"data")));
    frame[16] |= 0x80;
    dropped_silently(&mut script, Counter::DropUnknownType, &frame);
}

#[test]
fn the_peer_index_must_be_that_of_the_sender() {
    for index in [0, 2, 500, PEER_INDEX_UNKNOWN] {
        let mut script = Script::new(Preset::Native9000);
        script.peer_index = index;
        let mut packets = sequenced(&script, 1);
        packets.push(Packet::Ack(ack(1, 1)));
        for packet in packets {
            let bytes = script.bytes(packet);
            dropped_silently(&mut script, Counter::DropBadPeerIndex, &bytes);
        }
    }
}

#[test]
fn other_endpoints_and_other_sessions_are_refused_in_this_order() {
    let mut script = Script::new(Preset::Native9000);
    for packet in sequenced(&script, 1) {
        let mut bytes = script.bytes(packet);
        bytes[17] = 2;
        dropped_silently(&mut script, Counter::DropBadEndpoint, &bytes);
        bytes[17] = 1;
        let session = if bytes[16] == 43 { 20 } else { 36 };
        bytes[session..session + 4].copy_from_slice(&[9; 4]);
        dropped(&mut script, Counter::DropBadSession, &bytes);
        let nack = NackLib {
            src_endpoint: 1,
            dst_endpoint: PEER_ENDPOINT,
            code: NackCode::BadSession,
            peer_index: 0x77,
            seqnum: 1,
        };
        assert_eq!(script.one(), Reply::NackLib(nack));
    }
    for (field, counter) in [
        (17, Counter::DropBadEndpoint),
        (24, Counter::DropBadSession),
        (32, Counter::DropBadSession),
    ] {
        let mut bytes = script.bytes(Packet::Ack(ack(1, 1)));
        bytes[field] ^= 2;
        dropped_silently(&mut script, counter, &bytes);
    }
}

#[test]
fn endpoints_that_never_connected_and_old_conversations_are_ignored() {
    let mut script = Script::new(Preset::Native9000);
    for mut packet in sequenced(&script, 1) {
        if let Packet::Tiny(p) | Packet::Small(p) = &mut packet {
            p.src_endpoint = 99;
        }
        let mut bytes = script.bytes(packet);
        bytes[18] = 99;
        dropped_silently(&mut script, Counter::DropUnknownPartner, &bytes);
        bytes[18] = PEER_ENDPOINT;
        let seqnum = if bytes[16] == 43 { 34 } else { 24 };
        bytes[seqnum] |= 0x40;
        dropped_silently(&mut script, Counter::DropOldConversation, &bytes);
        bytes[seqnum] &= 0x3f;
        bytes[seqnum + 2] |= 0x80;
        dropped_silently(&mut script, Counter::DropOldConversation, &bytes);
    }
    let bytes = script.bytes(Packet::Ack(ack(0x4001, 1)));
    dropped_silently(&mut script, Counter::DropOldConversation, &bytes);
    let mut bytes = script.bytes(Packet::Ack(ack(1, 1)));
    bytes[18] = 99;
    dropped_silently(&mut script, Counter::DropUnknownPartner, &bytes);
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_ignored() {
    let mut script = Script::new(Preset::Native9000);
    let (now, partner) = (script.now, script.partner);
    script.node.send(now, partner, 1, 1_000, SendOptions::default());
    script.frames();
    let future = script.bytes(Packet::Ack(ack(3, 1)));
    dropped_as(&mut script, &[Counter::RecvLiback, Counter::DropOldAck], &future);
    script.put_counted(&[Counter::RecvLiback], Packet::Ack(ack(2, 2)));
    assert_eq!(script.node.sent, [(1, Status::Success, 1_000)]);
    // Reordered: its counter is not above the last one's, also across the wrap.
    let late = script.bytes(Packet::Ack(ack(2, 1)));
    dropped_silently(&mut script, Counter::DropOldAck, &late);
    for acknum in [0x7fff_ffff, 0xffff_fffe, 3] {
        // Modulo 2^32.
        let fresh = script.bytes(Packet::Ack(ack(2, acknum)));
        dropped_silently(&mut script, Counter::RecvLiback, &fresh);
    }
}

#[test]
fn old_messages_are_dropped_and_the_newest_of_them_is_acknowledged_at_once() {
    let mut script = Script::new(Preset::Native9000);
    for seqnum in 1..=2 {
        script.put(Packet::Tiny(script.eager(seqnum, b"x")));
    }
    assert_eq!(script.replies(), [], "fewer than four are acknowledged later");
    let older = script.bytes(Packet::Tiny(script.eager(1, b"x")));
    dropped_silently(&mut script, Counter::DropOldMessage, &older);
    let newest = script.bytes(Packet::Tiny(script.eager(2, b"x")));
    dropped(&mut script, Counter::DropOldMessage, &newest);
    assert!(matches!(script.one(), Reply::Ack(Ack { ack: 3, acknum: 1, .. })));
    assert_eq!(script.node.program.matched.len(), 2);
}

#[test]
fn early_messages_beyond_the_window_or_the_room_are_dropped() {
    let mut script = Script::new(Preset::Native9000);
    for (seqnum, counter) in [
        (256, Counter::RecvEarly),
        (256, Counter::DropOldMessage),
        (257, Counter::DropOldMessage),
    ] {
        let early = script.bytes(Packet::Tiny(script.eager(seqnum, b"x")));
        dropped_silently(&mut script, counter, &early);
    }
    let mut config = super::node::config_of(0, Preset::Native9000);
    config.limits.early_packets = 3;
    let mut script = Script::with(config, None);
    for seqnum in 2..=6 {
        let early = script.bytes(Packet::Tiny(script.eager(seqnum, b"x")));
        let counter = if seqnum <= 4 {
            Counter::RecvEarly
        } else {
            Counter::DropEarlyFull
        };
        dropped_silently(&mut script, counter, &early);
    }
    script.put_counted(&[Counter::RecvTiny; 4], Packet::Tiny(script.eager(1, b"x")));
    assert_eq!(script.node.program.matched.len(), 4);
}

#[test]
fn a_refused_message_is_not_acknowledged_and_is_offered_again() {
    let mut script = Script::new(Preset::Native9000);
    script.node.program.verdict = Some(Verdict::Refuse);
    for (seqnum, counters) in [
        (1, &[Counter::UnexpEventqFull, Counter::RecvEarly][..]),
        // The others wait for the first.
        (2, &[Counter::RecvEarly]),
        (3, &[Counter::RecvEarly]),
    ] {
        let refused = script.bytes(Packet::Tiny(script.eager(seqnum, b"x")));
        dropped_as(&mut script, counters, &refused);
    }
    script.pass(100_000_000);
    assert_eq!(script.replies(), []);
    script.node.program.verdict = None;
    let now = script.now;
    script.node.post_any(now, 0);
    assert_eq!(script.node.program.matched.len(), 3);
    script.pass(100_000_000);
    assert!(matches!(script.one(), Reply::Ack(Ack { ack: 4, .. })));
}
