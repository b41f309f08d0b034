//! The end of a large send, and the packet that reports it (6.5).

use ether::MacAddr;
use mxoe::{
    engine::{Counter, Status},
    wire::{Head, Packet, Preset},
};

use super::{
    bad_control::request,
    bad_frames::dropped_as,
    node::config_of,
    script::{PEER_ENDPOINT, Reply, Script, ack, notify},
};

const LENGTH: u32 = 100_000;

#[test]
fn another_partner_cannot_end_a_large_send() {
    let mut script = Script::new(Preset::Native9000);
    script.send_large(LENGTH);
    script.put(Packet::Ack(ack(2, 1)));
    // Another endpoint of the same board, and the same one of another board: partners both.
    let strangers = [
        (script.head(), PEER_ENDPOINT + 1),
        (
            Head {
                src: MacAddr([2, 0, 0, 0, 1, 1]),
                peer_index: 0,
                ..script.head()
            },
            PEER_ENDPOINT,
        ),
    ];
    for (head, src_endpoint) in strangers {
        let mut connect = request(1);
        connect.src_endpoint = src_endpoint;
        script.put_as(&head, Packet::Connect(connect));
        assert!(matches!(script.one(), Reply::Connect(_)));
        let mut end = notify(1, 1, LENGTH);
        end.src_endpoint = src_endpoint;
        // Its number is consumed.
        let bytes = script.bytes_as(&head, Packet::Notify(end));
        dropped_as(&mut script, &[Counter::RecvNotify, Counter::DropStrayNotify], &bytes);
    }
    // And what was announced can still be had.
    script.frames();
    script.put(Packet::Pull(script.pull(1_000)));
    assert_eq!(script.frames().len(), 1);
    script.put(Packet::Notify(notify(1, 2, LENGTH)));
    assert_eq!(script.node.sent, [(1, Status::Success, LENGTH)]);
}

#[test]
fn each_pull_gives_a_large_send_as_much_time_again() {
    const GIVE_UP_NS: u64 = 1_000_000_000;
    let mut config = config_of(0, Preset::Native9000);
    config.timing.give_up_ns = GIVE_UP_NS;
    let mut script = Script::with(config, None);
    script.send_large(LENGTH);
    script.put(Packet::Ack(ack(2, 1)));
    for _ in 0..3 {
        script.pass(GIVE_UP_NS - 100_000_000);
        assert_eq!(script.node.sent, [], "it was asked for less than that ago");
        script.put(Packet::Pull(script.pull(1_000)));
        assert_eq!(script.frames().len(), 1);
    }
    // One that is refused does not.
    script.pass(GIVE_UP_NS - 100_000_000);
    let mut stale = script.pull(1_000);
    stale.rdma_seqnum += 1;
    script.put(Packet::Pull(stale));
    script.pass(99_000_000);
    assert_eq!(script.node.sent, []);
    script.pass(2_000_000);
    assert_eq!(script.node.sent, [(1, Status::Timeout, 0)]);
    assert!(script.node.memory.is_empty());
}
