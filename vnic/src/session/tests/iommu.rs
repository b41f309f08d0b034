//! Sessions of guests behind IOMMUs of their own: what the front keeps to itself, what it asks, and which answers it refuses.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Instant;

use super::super::regions::{Region, Regions};
use super::super::translation::{self, ANSWER_WAIT_MAX, BackendChannel, IOTLB_LEN};
use super::bench::{Bench, Client, FEATURES, OFFERED, PATIENCE, PROTOCOL, TestDevice, USER, event, memory};
use crate::memory::{Access, Miss, Misses};
use crate::session::message::*;

const TRANSLATED: u64 = FEATURES | VIRTIO_ACCESS_PLATFORM;
const READ_WRITE: u64 = 3;
const UPDATE: u64 = 2;
const INVALIDATE: u64 = 3;

fn miss(iova: u64, access: Access) -> Miss {
    Miss { iova, access }
}

fn words(iova: u64, size: u64, user: u64, permission: u64, kind: u64) -> [u64; 4] {
    [iova, size, user, permission | kind << 8]
}

/// A session with memory and a channel; gives the frontend's end of that.
fn begin(client: &Client) -> UnixStream {
    assert_eq!(
        client.ask(GET_FEATURES, &[], Vec::new()).long(0),
        OFFERED | VIRTIO_ACCESS_PLATFORM
    );
    assert_eq!(
        client.ask(GET_PROTOCOL_FEATURES, &[], Vec::new()).long(0) & !PROTOCOL,
        protocol::BACKEND_REQ
    );
    let agreed = PROTOCOL | protocol::BACKEND_REQ;
    assert_eq!(client.ask(SET_PROTOCOL_FEATURES, &[agreed], Vec::new()).long(0), 0);
    let (channel, theirs) = UnixStream::pair().unwrap();
    assert_eq!(client.ask(SET_BACKEND_REQ_FD, &[], vec![theirs.into()]).long(0), 0);
    assert_eq!(client.ask(SET_FEATURES, &[TRANSLATED], Vec::new()).long(0), 0);
    assert_eq!(
        client
            .ask(ADD_MEM_REG, &[0, 0, 0x10000, USER, 0], vec![memory()])
            .long(0),
        0
    );
    channel.set_read_timeout(Some(PATIENCE)).unwrap();
    channel
}

/// The question that came over the channel: address, permission and type.
fn question(mut channel: &UnixStream) -> (u64, u8, u8) {
    let mut bytes = [0; HEADER_LEN + IOTLB_LEN];
    channel.read_exact(&mut bytes).unwrap();
    let word = |at: usize| u32::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    assert_eq!([word(0), word(4), word(8)], [1, FLAG_VERSION | FLAG_NEED_REPLY, 32]);
    let iova = u64::from_ne_bytes(std::array::from_fn(|byte| bytes[12 + byte]));
    (iova, bytes[12 + 24], bytes[12 + 25])
}

fn acknowledgement(value: u64) -> Vec<u8> {
    let header = [1, FLAG_VERSION | FLAG_REPLY, 8].map(u32::to_ne_bytes).concat();
    [header, value.to_ne_bytes().to_vec()].concat()
}

#[test]
fn iommu_the_front_keeps_ring_addresses_and_translations_from_the_daemon() {
    let bench = Bench::new();
    let device = TestDevice::behind_iommu("a");
    let _port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let client = Client::connect(&bench.path("a"));
    let _channel = begin(&client);
    assert_eq!(device.wait_for("features", 1), [format!("features {FEATURES:#x}")]);
    assert_eq!(device.count("translated"), 1);
    // Far outside the memory, and no address of the frontend's.
    let addresses = [0, 0xffff_1000, 0xffff_3000, 0xffff_2000, 0];
    assert_eq!(client.ask(SET_VRING_NUM, &[256 << 32], Vec::new()).long(0), 0);
    assert_eq!(client.ask(SET_VRING_ADDR, &addresses, Vec::new()).long(0), 0);
    assert_eq!(
        device.wait_for("ring 0 at", 1),
        ["ring 0 at 0xffff1000 0xffff3000 0xffff2000"]
    );
    let update = words(0xffff_1000, 0x3000, USER + 0x4000, READ_WRITE, UPDATE);
    assert_eq!(client.ask(IOTLB_MSG, &update, Vec::new()).long(0), 0);
    assert_eq!(device.wait_for("given", 1), ["given 0xffff1000-0xffff3fff to 0x4000"]);
    let kick = event();
    client.ask(SET_VRING_KICK, &[0], vec![kick.try_clone().unwrap()]);
    client.ask(SET_VRING_ENABLE, &[1 << 32], Vec::new());
    device.wait_for("event 0", 1);
    // And back: addresses of the frontend's again, but not while rings run.
    let gone = words(0, 0, 0, 0, INVALIDATE);
    assert_eq!(client.ask(IOTLB_MSG, &gone, Vec::new()).long(0), 0);
    assert_eq!(device.wait_for("gone", 1), ["gone 0x0-0xffffffffffffffff"]);
    client.ask(GET_VRING_BASE, &[0], Vec::new());
    assert_eq!(client.ask(SET_FEATURES, &[FEATURES], Vec::new()).long(0), 0);
    assert_eq!(device.wait_for("not translated", 1).len(), 1);
    // What a frontend cleans up is no mistake.
    assert_eq!(client.ask(IOTLB_MSG, &gone, Vec::new()).long(0), 0);
    client.send(SET_VRING_ADDR, &addresses, Vec::new());
    client.expect_end();
    assert!(device.wait_for("failed", 1)[0].contains("no memory region holds it"));
}

#[test]
fn iommu_what_is_missing_is_asked_for_and_denied_or_answered() {
    let bench = Bench::new();
    let device = TestDevice::behind_iommu("a");
    let misses = device.misses.clone().unwrap();
    let _port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let client = Client::connect(&bench.path("a"));
    let channel = begin(&client);
    misses.note(miss(0x5123, Access::Read));
    misses.note(miss(0x9000, Access::Write));
    assert_eq!(question(&channel), (0x5123, 1, 1));
    assert_eq!(question(&channel), (0x9000, 2, 1));
    let update = words(0x5000, 0x1000, USER, READ_WRITE, UPDATE);
    assert_eq!(client.ask(IOTLB_MSG, &update, Vec::new()).long(0), 0);
    // Acknowledgements, in pieces; half of one holds nothing up.
    let both = [acknowledgement(0), acknowledgement(1)].concat();
    (&channel).write_all(&both[..30]).unwrap();
    assert_eq!(
        client.ask(GET_FEATURES, &[], Vec::new()).long(0),
        OFFERED | VIRTIO_ACCESS_PLATFORM
    );
    (&channel).write_all(&both[30..]).unwrap();
    assert_eq!(device.wait_for("denied", 1), ["denied 0x9000"]);
    assert_eq!(misses.oldest(), None);
    // One that answers nothing.
    (&channel).write_all(&acknowledgement(0)).unwrap();
    client.expect_end();
    assert!(device.wait_for("failed", 1)[0].contains("that answers no question"));
}

#[test]
fn iommu_a_question_that_is_not_answered_ends_its_session_alone_and_in_time() {
    let bench = Bench::new();
    let silent = TestDevice::behind_iommu("a");
    let sound = TestDevice::new("b");
    let _ports = [&silent, &sound].map(|device| {
        let path = bench.path(&device.name);
        bench.sessions.listen(device.clone(), &path).unwrap()
    });
    let client = Client::connect(&bench.path("a"));
    let other = Client::connect(&bench.path("b"));
    let _channel = begin(&client);
    let asked = Instant::now();
    silent.misses.as_ref().unwrap().note(miss(0x5123, Access::Write));
    client.expect_end();
    assert!(asked.elapsed() >= ANSWER_WAIT_MAX);
    assert_eq!(
        silent.wait_for("failed", 1),
        [
            "failed: its session was ended: the frontend did not translate I/O address 0x5123 for writing within 5 s \
              (rule translation_overdue)"
        ]
    );
    assert!(other.is_alive());
    // The next session begins without a question.
    let client = Client::connect(&bench.path("a"));
    let _channel = begin(&client);
    assert_eq!(silent.misses.as_ref().unwrap().oldest(), None);
}

/// QEMU 7.2 handles questions while it waits for an answer, and takes what comes next for that to its translation.
#[test]
fn iommu_a_translation_is_taken_while_another_answer_is_owed() {
    let bench = Bench::new();
    let device = TestDevice::behind_iommu("a");
    let _port = bench.sessions.listen(device.clone(), &bench.path("a")).unwrap();
    let client = Client::connect(&bench.path("a"));
    let _channel = begin(&client);
    *device.stops_behind.lock().unwrap() = Some("given");
    client.send(GET_VRING_BASE, &[0], Vec::new());
    let update = words(0x5000, 0x1000, USER, READ_WRITE, UPDATE);
    assert_eq!(client.ask(IOTLB_MSG, &update, Vec::new()).long(0), 0);
    let answer = crate::session::wire::receive(&client.stream).unwrap().unwrap();
    assert_eq!(answer.request, GET_VRING_BASE);
    // Another message waits, as ever.
    *device.stops_behind.lock().unwrap() = Some("gone");
    client.send(GET_VRING_BASE, &[0], Vec::new());
    client.send(GET_FEATURES, &[], Vec::new());
    let gone = words(0x5000, 0x1000, 0, 0, INVALIDATE);
    std::thread::scope(|scope| {
        scope.spawn(|| device.wait_for("stopped", 2));
        device.note("gone by the test");
    });
    for expected in [GET_VRING_BASE, GET_FEATURES] {
        let answer = crate::session::wire::receive(&client.stream).unwrap().unwrap();
        assert_eq!(answer.request, expected);
    }
    assert_eq!(client.ask(IOTLB_MSG, &gone, Vec::new()).long(0), 0);
}

#[test]
fn iommu_a_channel_whose_frontend_reads_nothing_is_never_waited_for() {
    let (_frontend, ours) = UnixStream::pair().unwrap();
    let mut channel = BackendChannel::new(ours.into(), true);
    let misses = Misses::new().unwrap();
    let mut asked = 0;
    while !channel.is_full() {
        misses.clear();
        misses.note(miss(asked << 12, Access::Read));
        channel.ask(&misses, Instant::now());
        asked += 1;
        assert!(asked < 1_000_000, "no socket has so much room");
    }
    assert_eq!(misses.oldest(), None, "what had no room was not asked");
    assert_eq!(
        misses.next_to_ask(Instant::now()),
        Some(miss((asked - 1) << 12, Access::Read))
    );
}

fn regions() -> Regions {
    let mut regions = Regions::default();
    // Two that adjoin for the frontend and not for the guest, and one away from them.
    for (guest, len, user) in [
        (0x10_0000, 0x3000, 0x7000_0000),
        (0x90_0000, 0x1000, 0x7000_3000),
        (0x50_0000, 0x1000, 0xffff_ffff_ffff_e000),
    ] {
        let region = Region {
            guest,
            len,
            user,
            offset: 0,
            file: None,
        };
        regions.add(region).unwrap();
    }
    regions
}

fn read(words: [u64; 4]) -> Result<String, String> {
    let body = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let message = Message::request(IOTLB_MSG, body);
    let device = TestDevice::behind_iommu("a");
    let change = translation::read(&message, &regions()).map_err(|refusal| refusal.sentence)?;
    super::super::SessionDevice::translation_changed(&device, change);
    Ok(device.notes.0.lock().unwrap().concat())
}

#[test]
fn iommu_answers_that_lie_are_refused_in_one_sentence() {
    let user = 0x7000_0000;
    for (message, expected) in [
        (words(0x1000, 0, user, 3, UPDATE), "no addresses"),
        (words(u64::MAX - 0xfff, 0x1001, user, 3, UPDATE), "beyond the last"),
        (words(0x1000, u64::MAX, user, 3, UPDATE), "beyond the last"),
        (words(0x1000, 0x1000, user - 1, 3, UPDATE), "outside the shared memory"),
        (words(0x1000, 0x4001, user, 3, UPDATE), "outside the shared memory"),
        (
            words(0x1000, 0x2000, user + 0x3000, 3, UPDATE),
            "outside the shared memory",
        ),
        (
            words(0x1000, 0x3000, u64::MAX - 0xfff, 3, UPDATE),
            "outside the shared memory",
        ),
        (words(0x1000, 0x1000, u64::MAX, 3, UPDATE), "outside the shared memory"),
        (words(0x1000, 0x1000, user, 0, UPDATE), "neither reading nor writing"),
        (words(0x1000, 0x1000, user, 4, UPDATE), "neither reading nor writing"),
        (words(0x1000, 0x1000, user, 7, UPDATE), "neither reading nor writing"),
        (words(0x1000, 0x1000, user, 3, 0), "its type is 0"),
        (words(0x1000, 0x1000, user, 3, 1), "its type is 1"),
        (words(0x1000, 0x1000, user, 3, 4), "its type is 4"),
        (words(0x1000, 0, 0, 0, INVALIDATE), "no such addresses"),
        (words(0x1000, u64::MAX, 0, 0, INVALIDATE), "no such addresses"),
    ] {
        let sentence = read(message).expect_err(expected);
        assert!(sentence.contains(expected) && !sentence.contains('\n'), "{sentence}");
    }
    // The whole of a region, over two that adjoin for the frontend alone, and the very last addresses.
    for (message, expected) in [
        (
            words(0x8000, 0x3000, user, 1, UPDATE),
            "given 0x8000-0xafff to 0x100000",
        ),
        (
            words(0x8000, 0x2000, user + 0x2000, 2, UPDATE),
            "given 0x8000-0x8fff to 0x102000 0x9000-0x9fff to 0x900000",
        ),
        (
            words(u64::MAX - 0xfff, 0x1000, user, 3, UPDATE),
            "given 0xfffffffffffff000-0xffffffffffffffff to 0x100000",
        ),
        (
            words(u64::MAX, 1, 0, 0, INVALIDATE),
            "gone 0xffffffffffffffff-0xffffffffffffffff",
        ),
        (words(0, 0, 0, 0, INVALIDATE), "gone 0x0-0xffffffffffffffff"),
    ] {
        assert_eq!(read(message).as_deref(), Ok(expected));
    }
}

/// Fuzz target: whatever comes as an IOTLB message is refused in one sentence, or leads into the shared memory and nowhere else.
#[test]
fn iommu_any_message_leads_into_the_shared_memory_or_nowhere() {
    let regions = Arc::new(regions());
    bolero::check!()
        .with_iterations(100_000)
        .with_max_len(64)
        .for_each(move |bytes: &[u8]| {
            let message = Message::request(IOTLB_MSG, shaped(bytes));
            match translation::read(&message, &regions) {
                Ok(crate::session::TranslationChange::Given(mappings)) => {
                    let mut next = message.long(0);
                    for mapping in &mappings {
                        assert_eq!(mapping.first, next);
                        next = mapping.last.wrapping_add(1);
                        let len = mapping.last - mapping.first;
                        let inside =
                            |(guest, room): (u64, u64)| mapping.guest >= guest && mapping.guest - guest + len < room;
                        assert!(regions.spans().any(inside), "{mapping:x?}");
                    }
                    assert_eq!(next, message.long(0).wrapping_add(message.long(8)));
                }
                Ok(crate::session::TranslationChange::Gone(range)) => assert!(range.start() <= range.end()),
                Ok(other) => panic!("{other:?}"),
                Err(refusal) => assert!(!refusal.sentence.contains('\n')),
            }
        });
}

/// Turns wide values into ones near the memory most of the time, so that they get far.
fn shaped(bytes: &[u8]) -> Vec<u8> {
    let mut body = bytes.to_vec();
    body.resize(IOTLB_LEN, 0);
    if body[7] & 3 != 0 {
        body[1..8].fill(0);
    }
    if body[15] & 3 != 0 {
        body[10..16].fill(0);
    }
    if body[23] & 7 != 0 {
        let near = 0x7000_0000 + u64::from(u16::from_ne_bytes([body[16], body[17]]) & 0x7fff);
        body[16..24].copy_from_slice(&near.to_ne_bytes());
    }
    if body[31] & 3 != 0 {
        body[24] &= 3;
        body[25] = 2 | body[25] & 1;
    }
    body
}
