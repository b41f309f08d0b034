//! The rules of a session, message by message.

use std::os::fd::OwnedFd;

use proptest::prelude::*;

use super::message::*;
use super::regions::FileKind;
use super::rules::{Limits, Passage, Rules, Verdict};

const FEATURES: u64 = VIRTIO_PROTOCOL_FEATURES | 1 << 32 | 1 << 29;
const PROTOCOL: u64 = protocol::MQ
    | protocol::RARP
    | protocol::REPLY_ACK
    | protocol::RESET_DEVICE
    | protocol::CONFIGURE_MEM_SLOTS
    | protocol::BACKEND_REQ;
const MEMORY: FileKind = FileKind::Regular {
    device: 1,
    inode: 1,
    len: 1 << 20,
};

fn limits() -> Limits {
    Limits {
        rings: 4,
        ring_entries_max: 1024,
        features: FEATURES,
        protocol_features: PROTOCOL,
        iommu: false,
    }
}

fn message(request: u32, words: &[u64]) -> Message {
    Message::request(request, words.iter().flat_map(|word| word.to_ne_bytes()).collect())
}

fn file() -> OwnedFd {
    OwnedFd::from(std::fs::File::open("/dev/null").unwrap())
}

fn with_file(request: u32, words: &[u64]) -> Message {
    Message {
        files: vec![file()],
        ..message(request, words)
    }
}

fn ring(index: u32, value: u32) -> u64 {
    u64::from(index) | u64::from(value) << 32
}

fn wanting_answer(message: Message) -> Message {
    Message {
        flags: FLAG_VERSION | FLAG_NEED_REPLY,
        ..message
    }
}

fn pass(rules: &mut Rules, message: Message, kinds: &[FileKind]) -> Passage {
    match rules.judge(message, kinds) {
        Verdict::Pass(passage) => passage,
        other => panic!("not passed: {other:?}"),
    }
}

fn refusal(rules: &mut Rules, message: Message, kinds: &[FileKind]) -> String {
    match rules.judge(message, kinds) {
        Verdict::Refuse(refusal) => refusal.sentence,
        other => panic!("not refused: {other:?}"),
    }
}

/// A session with protocol features agreed on and, if asked for, virtio features and a started, enabled ring 0.
fn session(started: bool) -> Rules {
    let mut rules = Rules::new(limits());
    pass(&mut rules, message(GET_FEATURES, &[]), &[]);
    pass(&mut rules, message(SET_PROTOCOL_FEATURES, &[PROTOCOL]), &[]);
    if started {
        pass(&mut rules, message(SET_FEATURES, &[FEATURES]), &[]);
        pass(&mut rules, with_file(SET_VRING_KICK, &[0]), &[FileKind::Event]);
        pass(&mut rules, message(SET_VRING_ENABLE, &[ring(0, 1)]), &[]);
    }
    rules
}

fn words(passage: &Passage) -> Vec<String> {
    passage.messages.iter().map(Message::to_string).collect()
}

#[test]
fn translations_are_not_served_where_no_iommu_is() {
    let sentence = refusal(&mut session(false), message(IOTLB_MSG, &[1, 2]), &[]);
    assert!(sentence.contains("IOTLB_MSG is not served by this card"), "{sentence}");
}

#[test]
fn early_enables_are_held_back_and_replayed_behind_set_features() {
    let mut rules = session(false);
    for (index, value) in [(0, 1), (1, 1), (0, 0), (3, 1)] {
        let early = wanting_answer(message(SET_VRING_ENABLE, &[ring(index, value)]));
        let Verdict::Settled(Some(answer)) = rules.judge(early, &[]) else {
            panic!("not settled")
        };
        assert_eq!(answer.to_string(), "SET_VRING_ENABLE answered: 0");
    }
    assert!(matches!(
        rules.judge(message(SET_VRING_ENABLE, &[ring(2, 0)]), &[]),
        Verdict::Settled(None)
    ));
    let passage = pass(&mut rules, wanting_answer(message(SET_FEATURES, &[FEATURES])), &[]);
    assert_eq!(
        words(&passage),
        [
            "SET_FEATURES: 0x160000000 (wants an answer)",
            "SET_VRING_ENABLE: ring 0 off",
            "SET_VRING_ENABLE: ring 1 on",
            "SET_VRING_ENABLE: ring 2 off",
            "SET_VRING_ENABLE: ring 3 on",
        ]
    );
    assert_eq!(
        (passage.replies, &passage.rings_on[..], &passage.rings_off[..]),
        (1, &[1, 3][..], &[0, 2][..])
    );
    assert_eq!(
        pass(&mut rules, message(SET_FEATURES, &[FEATURES]), &[]).messages.len(),
        1,
        "replayed once"
    );
    assert_eq!(
        pass(&mut rules, message(SET_VRING_ENABLE, &[ring(0, 1)]), &[]).rings_on,
        [0],
        "no longer early"
    );
}

#[test]
fn enables_after_a_reset_are_early_again() {
    for reset in [RESET_DEVICE, RESET_OWNER] {
        let mut rules = session(true);
        let passage = pass(&mut rules, message(reset, &[]), &[]);
        assert_eq!(passage.rings_off.len(), usize::from(reset == RESET_DEVICE));
        assert!(matches!(
            rules.judge(message(SET_VRING_ENABLE, &[ring(0, 1)]), &[]),
            Verdict::Settled(None)
        ));
        assert_eq!(
            pass(&mut rules, message(SET_FEATURES, &[FEATURES]), &[]).messages.len(),
            2
        );
    }
}

#[test]
fn without_protocol_features_every_ring_is_on() {
    let mut rules = session(false);
    assert_eq!(
        pass(&mut rules, message(SET_FEATURES, &[1 << 32]), &[]).rings_on,
        [0, 1, 2, 3]
    );
}

#[test]
fn repeated_regions_go_no_further() {
    let mut rules = session(false);
    let region = [0, 0x1000, 0x2000, 0x7000_0000, 0];
    pass(&mut rules, with_file(ADD_MEM_REG, &region), &[MEMORY]);
    let again = wanting_answer(with_file(ADD_MEM_REG, &region));
    assert!(matches!(rules.judge(again, &[MEMORY]), Verdict::Settled(Some(_))));
    assert!(
        pass(&mut rules, with_file(REM_MEM_REG, &region), &[MEMORY]).messages[0]
            .files
            .is_empty()
    );
    assert!(matches!(
        rules.judge(message(REM_MEM_REG, &region), &[]),
        Verdict::Settled(None)
    ));
    assert!(refusal(&mut rules, message(REM_MEM_REG, &[0, 1, 1, 1, 0]), &[]).contains("to remove"));
}

#[test]
fn memory_tables_are_sorted_with_their_files() {
    let mut rules = session(false);
    let mut table = message(
        SET_MEM_TABLE,
        &[2, 0x2000, 0x1000, 0x9000_0000, 0, 0, 0x1000, 0x7000_0000, 0x1000],
    );
    table.files = vec![file(), file()];
    let numbers: Vec<_> = table.files.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    let passage = pass(&mut rules, table, &[MEMORY, MEMORY]);
    let sorted = &passage.messages[0];
    assert_eq!((sorted.long(8), sorted.long(40), sorted.body.len()), (0, 0x2000, 72));
    let after: Vec<_> = sorted.files.iter().map(std::os::fd::AsRawFd::as_raw_fd).collect();
    assert_eq!(after, [numbers[1], numbers[0]]);
}

#[test]
fn the_kick_of_a_running_ring_is_exchanged_while_it_is_off() {
    let mut rules = session(true);
    let passage = pass(&mut rules, with_file(SET_VRING_KICK, &[0]), &[FileKind::Event]);
    assert_eq!(
        words(&passage),
        [
            "SET_VRING_ENABLE: ring 0 off",
            "SET_VRING_KICK: ring 0",
            "SET_VRING_ENABLE: ring 0 on"
        ]
    );
    assert_eq!((passage.rings_off, passage.rings_on), (vec![0], vec![0]));
    pass(&mut rules, message(GET_VRING_BASE, &[ring(0, 0)]), &[]);
    assert_eq!(
        pass(&mut rules, with_file(SET_VRING_KICK, &[0]), &[FileKind::Event])
            .messages
            .len(),
        1
    );
}

#[test]
fn answers_are_expected_exactly_where_the_backend_gives_them() {
    let mut rules = Rules::new(limits());
    assert_eq!(
        pass(&mut rules, wanting_answer(message(SET_OWNER, &[])), &[]).replies,
        0,
        "nothing agreed on yet"
    );
    assert_eq!(pass(&mut rules, message(GET_FEATURES, &[]), &[]).replies, 1);
    assert_eq!(
        pass(
            &mut rules,
            wanting_answer(message(SET_PROTOCOL_FEATURES, &[PROTOCOL])),
            &[]
        )
        .replies,
        1
    );
    assert_eq!(pass(&mut rules, message(SET_FEATURES, &[FEATURES]), &[]).replies, 0);
    assert_eq!(
        pass(&mut rules, wanting_answer(message(GET_VRING_BASE, &[ring(1, 0)])), &[]).replies,
        1
    );
}

#[test]
fn odd_messages_are_refused_with_one_sentence() {
    let flags = |flags| Message {
        flags,
        ..message(GET_FEATURES, &[])
    };
    let event = FileKind::Event;
    let table = |messages: Vec<(Message, Vec<FileKind>, &str)>| {
        for (message, kinds, expected) in messages {
            let words = message.to_string();
            let sentence = refusal(&mut session(true), message, &kinds);
            assert!(sentence.contains(expected), "{words}: {sentence}");
        }
    };
    table(vec![
        (message(0, &[]), vec![], "request 0 is unknown"),
        (message(77, &[]), vec![], "request 77 is unknown"),
        (flags(2), vec![], "protocol version 1"),
        (flags(0x11), vec![], "protocol version 1"),
        (flags(FLAG_VERSION | FLAG_REPLY), vec![], "nothing was asked"),
        (
            message(SET_LOG_FD, &[]),
            vec![],
            "SET_LOG_FD is not served by this card",
        ),
        (
            message(SET_LOG_BASE, &[8, 0]),
            vec![],
            "SET_LOG_BASE needs protocol feature bit 1",
        ),
        (
            message(GET_CONFIG, &[0, 0]),
            vec![],
            "GET_CONFIG needs protocol feature bit 9",
        ),
        (
            message(GET_FEATURES, &[0]),
            vec![],
            "GET_FEATURES has 8 bytes instead of 0",
        ),
        (
            message(SET_VRING_NUM, &[]),
            vec![],
            "SET_VRING_NUM has 0 bytes instead of 8",
        ),
        (
            message(SET_MEM_TABLE, &[u64::from(u32::MAX)]),
            vec![],
            "SET_MEM_TABLE has 8 bytes instead of 1032",
        ),
        (message(SET_MEM_TABLE, &[0]), vec![], "no memory"),
        (message(SET_MEM_TABLE, &[1, 0, 1, 0, 0]), vec![], "0 files instead of 1"),
        (with_file(GET_FEATURES, &[]), vec![event], "1 files instead of 0"),
        (message(SET_VRING_KICK, &[1]), vec![], "0 files instead of 1"),
        (with_file(SET_VRING_KICK, &[0x101]), vec![event], "1 files instead of 0"),
        (with_file(SET_VRING_KICK, &[1]), vec![FileKind::Pipe], "no eventfd"),
        (with_file(SET_VRING_CALL, &[1]), vec![MEMORY], "no eventfd"),
        (with_file(SET_VRING_CALL, &[0x401]), vec![event], "unknown bits 0x400"),
        (
            with_file(SET_VRING_ERR, &[9]),
            vec![event],
            "there is no ring 9, the card has 2 queue pairs",
        ),
        (
            message(SET_VRING_NUM, &[ring(1, 100)]),
            vec![],
            "cannot have 100 entries",
        ),
        (message(SET_VRING_NUM, &[ring(1, 0)]), vec![], "cannot have 0 entries"),
        (
            message(SET_VRING_NUM, &[ring(1, 2048)]),
            vec![],
            "cannot have 2048 entries",
        ),
        (
            message(SET_VRING_NUM, &[ring(0, 256)]),
            vec![],
            "SET_VRING_NUM for ring 0, which is running",
        ),
        (
            message(SET_VRING_BASE, &[ring(1, 65536)]),
            vec![],
            "cannot start at 65536",
        ),
        (message(SET_VRING_ENABLE, &[ring(0, 2)]), vec![], "not to 2"),
        (message(SET_VRING_ENABLE, &[ring(4, 1)]), vec![], "there is no ring 4"),
        (message(SET_VRING_ADDR, &[1, 8, 0, 0, 0]), vec![], "not aligned to 16"),
        (
            message(SET_VRING_ADDR, &[1, 0, 0, 0, 0]),
            vec![],
            "no memory is shared yet",
        ),
        (
            message(SET_VRING_ADDR, &[ring(1, 4), 0, 0, 0, 0]),
            vec![],
            "unknown flags",
        ),
        (message(SET_FEATURES, &[1 << 5]), vec![], "SET_FEATURES asks for 0x20"),
        (
            message(SET_PROTOCOL_FEATURES, &[2]),
            vec![],
            "SET_PROTOCOL_FEATURES asks for 0x2",
        ),
        (
            with_file(ADD_MEM_REG, &[0, 0, 2 << 20, 0, 0]),
            vec![MEMORY],
            "a file that has 0x100000",
        ),
        (with_file(SET_BACKEND_REQ_FD, &[]), vec![event], "no socket"),
        (
            message(SEND_RARP, &[0]),
            vec![],
            "SEND_RARP: 00:00:00:00:00:00 is not the address of a station",
        ),
        (
            message(SEND_RARP, &[0x33]),
            vec![],
            "SEND_RARP: 33:00:00:00:00:00 is not the address of a station",
        ),
    ]);
    let mut rules = session(false);
    pass(&mut rules, message(SET_OWNER, &[]), &[]);
    assert_eq!(
        refusal(&mut rules, message(SET_OWNER, &[]), &[]),
        "SET_OWNER came twice"
    );
}

fn any_kind() -> impl Strategy<Value = FileKind> {
    prop_oneof![
        Just(FileKind::Event),
        Just(FileKind::Socket),
        Just(MEMORY),
        Just(FileKind::Other)
    ]
}

/// Messages that are often right: known requests, right sizes, small numbers.
fn any_message() -> impl Strategy<Value = (u32, u32, Vec<u8>, Vec<FileKind>)> {
    let flags = prop_oneof![8 => Just(FLAG_VERSION), 4 => Just(FLAG_VERSION | FLAG_NEED_REPLY), 1 => any::<u32>()];
    let small =
        prop_oneof![4 => 0u64..5, 2 => Just(ring(0, 1)), 2 => Just(0x1000), 1 => Just(FEATURES), 1 => any::<u64>()];
    let len = prop_oneof![Just(0usize), Just(1), Just(5), 0usize..12];
    (
        0u32..46,
        flags,
        len,
        prop::collection::vec(small, 12),
        prop::collection::vec(any_kind(), 0..3),
    )
        .prop_map(|(request, flags, len, words, kinds)| {
            let body = words.iter().take(len).flat_map(|word| word.to_ne_bytes()).collect();
            (request, flags, body, kinds)
        })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Whatever comes in whatever order: a decision, never a panic, and what passes has the form that the backend takes.
    #[test]
    fn any_messages_in_any_order_get_a_decision(
        messages in prop::collection::vec(any_message(), 1..40),
        iommu in any::<bool>(),
    ) {
        let mut rules = Rules::new(Limits {
            features: FEATURES | VHOST_LOG_ALL,
            protocol_features: PROTOCOL | protocol::LOG_SHMFD,
            iommu,
            ..limits()
        });
        for (request, flags, body, kinds) in messages {
            let message = Message { request, flags, body, files: kinds.iter().map(|_| file()).collect() };
            match rules.judge(message, &kinds) {
                Verdict::Refuse(refusal) => prop_assert!(!refusal.sentence.is_empty() && !refusal.sentence.contains('\n')),
                Verdict::Settled(answer) => prop_assert!(answer.is_none() || flags & FLAG_NEED_REPLY != 0),
                Verdict::Log(_, answer) => prop_assert!(request == SET_LOG_BASE && answer.flags & FLAG_REPLY != 0),
                Verdict::Translation(_, answer) | Verdict::Channel(_, _, answer) => {
                    prop_assert!(iommu && (answer.is_none() || flags & FLAG_NEED_REPLY != 0));
                }
                Verdict::Announce(station, answer) => {
                    prop_assert!(!station.is_multicast() && (answer.is_none() || flags & FLAG_NEED_REPLY != 0));
                }
                Verdict::Pass(passage) => {
                    for message in &passage.messages {
                        prop_assert!(form_of(message.request).is_some());
                        prop_assert!(message.files.len() <= FILES_MAX && message.body.len() <= BODY_LEN_MAX);
                    }
                    prop_assert!(passage.rings_off.iter().chain(&passage.rings_on).all(|index| *index < 4));
                }
            }
        }
    }
}

/// A session whose ring 0 has its addresses and, if asked for, runs.
fn placed(started: bool) -> Rules {
    let mut rules = session(false);
    pass(&mut rules, message(SET_FEATURES, &[FEATURES]), &[]);
    let table = [1, 0, 0x10_0000, 0x7000_0000, 0];
    let table = Message {
        files: vec![file()],
        ..message(SET_MEM_TABLE, &table)
    };
    pass(&mut rules, table, &[MEMORY]);
    pass(&mut rules, ring_addr(0x7000_0000), &[]);
    if started {
        pass(&mut rules, with_file(SET_VRING_KICK, &[0]), &[FileKind::Event]);
        pass(&mut rules, message(SET_VRING_ENABLE, &[ring(0, 1)]), &[]);
    }
    rules
}

fn ring_addr(at: u64) -> Message {
    message(SET_VRING_ADDR, &[0, at, at + 0x2000, at + 0x1000, 0])
}

#[test]
fn a_running_ring_keeps_its_place_until_it_is_stopped() {
    // Not started yet: any place, as often as the frontend likes.
    pass(&mut placed(false), ring_addr(0x7000_4000), &[]);
    // Running: that place again is what QEMU says when a migration begins or ends.
    let mut rules = placed(true);
    pass(&mut rules, ring_addr(0x7000_0000), &[]);
    let sentence = "SET_VRING_ADDR for ring 0, which is running";
    assert_eq!(refusal(&mut rules, ring_addr(0x7000_4000), &[]), sentence);
    // Disabled is not stopped: enabled again, it would go on at its former place.
    for next in [
        ring_addr(0x7000_4000),
        message(SET_VRING_NUM, &[ring(0, 64)]),
        message(SET_VRING_BASE, &[0]),
    ] {
        let mut rules = placed(true);
        pass(&mut rules, message(SET_VRING_ENABLE, &[0]), &[]);
        assert!(refusal(&mut rules, next, &[]).ends_with("for ring 0, which is running"));
    }
    for stop in [message(GET_VRING_BASE, &[0]), message(RESET_DEVICE, &[])] {
        let mut rules = placed(true);
        pass(&mut rules, stop, &[]);
        pass(&mut rules, ring_addr(0x7000_4000), &[]);
    }
}

#[test]
fn a_ring_of_a_legacy_driver_starts() {
    let bare = VIRTIO_PROTOCOL_FEATURES | 1 << 29;
    let mut rules = session(false);
    pass(&mut rules, message(SET_FEATURES, &[bare]), &[]);
    pass(&mut rules, with_file(SET_VRING_KICK, &[0]), &[FileKind::Event]);
}
