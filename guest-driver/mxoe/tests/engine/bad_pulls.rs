//! Pulls, their replies and their refusals when they are wrong: each check of 6.2 and 6.3, its counter and its answer.

use ether::MacAddr;
use mxoe::{
    engine::{Counter, Status},
    wire::{Head, NackCode, NackMcp, Notify, Packet, Preset, Pull, PullReply, pull_magic},
};

use super::{
    bad_frames::{dropped_as, dropped_silently},
    script::{Reply, SESSION, Script, notify},
};

const LENGTH: u32 = 100_000;

fn asked(preset: Preset) -> Script {
    let mut script = Script::new(preset);
    script.send_large(LENGTH);
    script
}

#[track_caller]
fn pull_is_dropped(script: &mut Script, pull: Pull, counter: Counter) {
    let bytes = script.bytes(Packet::Pull(pull));
    // Counted as received before any check.
    dropped_as(script, &[Counter::RecvPullReq, counter], &bytes);
    assert_eq!(script.replies(), []);
}

#[track_caller]
fn pull_is_refused(script: &mut Script, head: &Head, pull: Pull, counter: Counter, code: NackCode) {
    let bytes = script.bytes_as(head, Packet::Pull(pull));
    dropped_as(script, &[Counter::RecvPullReq, counter], &bytes);
    let nack = NackMcp {
        src_endpoint: pull.src_endpoint,
        code,
        handle: pull.handle,
        magic: pull.magic,
    };
    assert_eq!(script.one(), Reply::NackMcp(nack));
}

#[test]
fn pulls_outside_of_what_was_announced_are_dropped_or_refused() {
    for preset in Preset::ALL {
        let mut script = asked(preset);
        let (good, head) = (script.pull(20_000), script.head());
        let sizes = *script.dialect.sizes();
        pull_is_refused(
            &mut script,
            &head,
            Pull {
                session: SESSION ^ 1,
                ..good
            },
            Counter::DropBadSession,
            NackCode::BadSession,
        );
        pull_is_dropped(
            &mut script,
            Pull {
                dst_endpoint: 2,
                ..good
            },
            Counter::DropBadEndpoint,
        );
        let long = Pull {
            block_length: sizes.block_len() + 1,
            ..good
        };
        pull_is_dropped(&mut script, long, Counter::DropPullBadReplies);
        if preset != Preset::Wire {
            let huge = Pull {
                block_length: u32::MAX,
                first_frame_offset: u32::MAX,
                ..good
            };
            pull_is_dropped(&mut script, huge, Counter::DropPullBadReplies);
        }
        for region in [
            Pull { rdma_id: 1, ..good },
            Pull { rdma_id: 255, ..good },
            Pull {
                rdma_seqnum: 24,
                ..good
            },
            Pull {
                src_endpoint: 99,
                ..good
            },
        ] {
            pull_is_refused(
                &mut script,
                &head,
                region,
                Counter::DropPullBadRegion,
                NackCode::BadRdmaWindow,
            );
        }
        for range in [
            Pull {
                block_length: 0,
                ..good
            },
            Pull {
                first_frame_offset: sizes.reply_payload(),
                block_length: 1,
                ..good
            },
            Pull {
                frame_index: u32::MAX,
                ..good
            },
            Pull {
                frame_index: LENGTH / sizes.reply_payload(),
                block_length: sizes.reply_payload() + 1,
                ..good
            },
            Pull { rdma_offset: 5, ..good },
            Pull {
                rdma_offset: 65_535,
                block_length: 30_000,
                frame_index: 9,
                ..good
            },
        ] {
            // A region offset without the skipped bytes would begin before the message.
            pull_is_dropped(&mut script, range, Counter::DropPullBadOffsetLength);
        }
        script.peer_index = 0;
        pull_is_dropped(&mut script, good, Counter::DropBadPeerIndex);
        assert!(script.node.sent.is_empty());
    }
}

#[test]
fn another_host_cannot_pull_what_was_announced_to_its_partner() {
    let mut script = asked(Preset::Native1500);
    let thief = MacAddr([2, 0, 0, 0, 1, 1]);
    let head = Head {
        src: thief,
        peer_index: 0,
        ..script.head()
    };
    let pull = script.pull(1_000);
    pull_is_refused(
        &mut script,
        &head,
        pull,
        Counter::DropPullBadRegion,
        NackCode::BadRdmaWindow,
    );
}

#[test]
fn a_good_pull_is_answered_with_exactly_its_range() {
    for preset in Preset::ALL {
        let mut script = asked(preset);
        let payload = script.dialect.sizes().reply_payload();
        let skipped = 100;
        let pull = Pull {
            rdma_offset: skipped,
            first_frame_offset: skipped,
            block_length: 3 * payload,
            ..script.pull(0)
        };
        script.put(Packet::Pull(pull));
        let frames = script.frames();
        let whole = super::node::fill(1, LENGTH as usize);
        let mut at = 0u32;
        for (number, frame) in frames.iter().enumerate() {
            let (_, packet) = script.dialect.decode(frame).unwrap();
            let Packet::PullReply(reply) = packet else {
                panic!("{packet:?}")
            };
            assert_eq!((reply.frame_seqnum, reply.msg_offset), (number as u8, at));
            assert_eq!(reply.data, &whole[(at + skipped) as usize..][..reply.data.len()]);
            at += reply.data.len() as u32;
        }
        assert_eq!((frames.len(), at), (4, 3 * payload));
    }
}

#[test]
fn a_message_that_is_over_is_not_read_any_more() {
    let mut script = asked(Preset::Native1500);
    script.put(Packet::Pull(script.pull(20_000)));
    let half = script.node.transmit(script.now).unwrap();
    assert_eq!(half[16], 42);
    script.put(Packet::Notify(notify(1, 2, 20_000)));
    assert_eq!(script.node.sent, [(1, Status::Truncated, 20_000)]);
    assert_eq!(
        script.frames(),
        Vec::<Vec<u8>>::new(),
        "the rest of the block is forgotten"
    );
}

#[test]
fn too_many_blocks_at_once_are_dropped_and_counted() {
    let mut config = super::node::config_of(0, Preset::Native1500);
    config.limits.reply_blocks = 3;
    let mut script = Script::with(config, None);
    script.send_large(LENGTH);
    for frame_index in 0..5 {
        let pull = Pull {
            frame_index,
            ..script.pull(1_000)
        };
        let bytes = script.bytes(Packet::Pull(pull));
        // What still waits is not sent twice.
        let (first, again) = if frame_index < 3 {
            (None, Counter::DropPullRepeated)
        } else {
            (Some(Counter::DropReplyBlocksFull), Counter::DropReplyBlocksFull)
        };
        for counter in [first, Some(again)] {
            let counters: Vec<_> = [Counter::RecvPullReq].into_iter().chain(counter).collect();
            dropped_as(&mut script, &counters, &bytes);
        }
    }
    assert_eq!(script.frames().len(), 3);
}

#[track_caller]
fn reply_is_dropped(script: &mut Script, reply: PullReply<'_>, counter: Counter) {
    let bytes = script.bytes(Packet::PullReply(reply));
    // Counted as received before any check.
    dropped_as(script, &[Counter::RecvPullReply, counter], &bytes);
}

#[test]
fn replies_that_were_not_asked_for_are_dropped_without_ending_the_pull() {
    for preset in Preset::ALL {
        let mut script = Script::new(preset);
        let payload = script.dialect.sizes().reply_payload();
        let total = 3 * payload + 77;
        let pulls = script.pulled(total);
        assert_eq!(pulls.iter().map(|pull| pull.block_length).sum::<u32>(), total);
        let whole = super::node::fill(5, total as usize);
        let frame =
            |number: usize| &whole[number * payload as usize..(total as usize).min((number + 1) * payload as usize)];
        let good = script.pull_reply(&pulls[0], 0, 0, frame(0));
        for magic in [pull_magic(2), good.magic ^ 0x100, 0] {
            reply_is_dropped(
                &mut script,
                PullReply { magic, ..good },
                Counter::DropPullReplyBadMagicEndpoint,
            );
        }
        for handle in [good.handle ^ 1, good.handle ^ 1 << 22, u32::MAX] {
            reply_is_dropped(
                &mut script,
                PullReply { handle, ..good },
                Counter::DropPullReplyBadWireHandle,
            );
        }
        let other = script.pull_reply(&pulls[0], 1, 0, frame(0));
        reply_is_dropped(&mut script, other, Counter::DropPullReplyBadSeqnumWraparound);
        let beyond = script.pull_reply(&pulls[0], 4, 4 * payload, frame(0));
        reply_is_dropped(&mut script, beyond, Counter::DropPullReplyBadSeqnum);
        let long = script.pull_reply(&pulls[0], 3, 3 * payload, &whole[..78]);
        reply_is_dropped(&mut script, long, Counter::DropPullReplyBadSeqnum);
        let short = script.pull_reply(&pulls[0], 0, 0, &whole[..5]);
        reply_is_dropped(&mut script, short, Counter::DropPullReplyBadSeqnum);
        let askew = script.pull_reply(&pulls[0], 1, payload - 1, frame(1));
        reply_is_dropped(&mut script, askew, Counter::DropPullReplyBadSeqnum);
        let bytes = script.bytes(Packet::PullReply(good));
        dropped_silently(&mut script, Counter::DropBadSkblen, &bytes[..bytes.len() - 1]);
        // From another host, all the rest right.
        let head = Head {
            src: MacAddr([2, 0, 0, 0, 1, 1]),
            ..script.head()
        };
        let bytes = script.bytes_as(&head, Packet::PullReply(good));
        let counters = [Counter::RecvPullReply, Counter::DropPullReplyBadWireHandle];
        dropped_as(&mut script, &counters, &bytes);
        assert_eq!(script.replies(), []);
        // After all that the message arrives whole.
        for number in [2, 2, 0, 1, 3] {
            let reply = script.pull_reply(&pulls[0], number as u8, number as u32 * payload, frame(number));
            script.put(Packet::PullReply(reply));
        }
        assert_eq!(script.count(Counter::DropPullReplyDuplicate), 1);
        let got = script.node.program.got.pop().unwrap();
        assert_eq!((got.status, got.transferred), (Status::Success, total));
        assert!(matches!(
            script.replies().pop(),
            Some(Reply::Notify(Notify { piggyack: 2, .. }))
        ));
    }
}

#[track_caller]
fn nack_is_dropped(script: &mut Script, nack: NackMcp, counter: Counter) {
    let bytes = script.bytes(Packet::NackMcp(nack));
    // Counted as received before any check.
    dropped_as(script, &[Counter::RecvNackMcp, counter], &bytes);
    assert_eq!(script.replies(), []);
}

#[test]
fn refused_pulls_end_with_the_reason_and_strange_refusals_are_ignored() {
    let mut script = Script::new(Preset::Native9000);
    let pulls = script.pulled(LENGTH);
    let nack = NackMcp {
        src_endpoint: 1,
        code: NackCode::BadRdmaWindow,
        handle: pulls[0].handle,
        magic: pulls[0].magic,
    };
    let bad_magic = Counter::DropNackMcpBadMagicEndpoint;
    let bad_handle = Counter::DropNackMcpBadWireHandle;
    for magic in [pull_magic(2), nack.magic ^ 0x100] {
        nack_is_dropped(&mut script, NackMcp { magic, ..nack }, bad_magic);
    }
    let handle = nack.handle ^ 1;
    nack_is_dropped(&mut script, NackMcp { handle, ..nack }, bad_handle);
    let good = script.bytes(Packet::NackMcp(nack));
    for code in [0, 5, 6, 7, 255] {
        // It cannot be read at all.
        let mut bytes = good.clone();
        bytes[19] = code;
        dropped_silently(&mut script, Counter::DropUnknownNack, &bytes);
    }
    let head = Head {
        src: MacAddr([2, 0, 0, 0, 1, 1]),
        peer_index: 0,
        ..script.head()
    };
    let stranger = script.bytes_as(&head, Packet::NackMcp(nack));
    dropped_as(&mut script, &[Counter::RecvNackMcp, bad_handle], &stranger);
    script.peer_index = 0;
    nack_is_dropped(&mut script, nack, Counter::DropNackBadPeerIndex);
    script.peer_index = 1;
    assert!(script.node.program.got.is_empty());
    script.put(Packet::NackMcp(nack));
    let got = script.node.program.got.pop().unwrap();
    assert_eq!((got.status, got.transferred), (Status::BadRdmaWindow, 0));
    assert!(matches!(script.one(), Reply::Notify(Notify { total_length: 0, .. })));
    // Its slot has another generation.
    nack_is_dropped(&mut script, nack, bad_handle);
}

#[test]
fn handle_and_magic_are_those_of_the_reference() {
    let mut script = Script::new(Preset::Native1500);
    let pulls = script.pulled(LENGTH);
    assert_eq!((pulls[0].handle, pulls[0].magic), (0x23, 0x2107_1981));
    assert_eq!(pulls.len(), 3, "the whole message fits four blocks");
    assert_eq!(
        pulls.iter().map(|pull| pull.frame_index).collect::<Vec<_>>(),
        [0, 32, 64]
    );
}
