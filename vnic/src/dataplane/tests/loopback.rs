//! A card that is connected to itself, in virtual time (`papers.md` M-CI1).

use firmware::copy_engine::{COPY_FRAME_LEN_MAX, COPY_HEADER_LEN, COPY_HEADER_START, CopyHeader};

use crate::dataplane::WAIT_NS_MAX;
use crate::dataplane::rig::{ALL_FEATURES, RING, Rig, frame};

fn loopback() -> Rig {
    let mut rig = Rig::new(&[ALL_FEATURES]);
    rig.add_loopback_guest(ALL_FEATURES);
    rig
}

fn copies(rig: &Rig, what: &str) -> u64 {
    rig.stats(1).copy_engine.expect("it is one")[what]
}

#[test]
fn m_ci1_what_a_guest_sends_to_a_loopback_card_comes_back_in_order_and_is_counted() {
    let mut rig = loopback();
    let sent: Vec<_> = (0..50).map(|n| frame(7, 1, 14 + 40 * n, n as u8)).collect();
    for (index, frame) in (0..).zip(&sent) {
        rig.send(1, index, frame);
    }
    rig.settle();
    let received: Vec<_> = rig.received(1).into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(received, sent);
    assert_eq!(rig.completed(1), 50);
    let bytes: usize = sent.iter().map(Vec::len).sum();
    let stats = rig.stats(1);
    assert_eq!((stats.rx.frames, stats.tx.frames), (50, 50));
    assert_eq!(stats.copied_bytes, bytes as u64, "copied once");
    assert_eq!((copies(&rig, "submitted"), copies(&rig, "completed")), (50, 50));
    assert_eq!(copies(&rig, "moved_bytes"), bytes as u64);
    assert!(rig.stats(0).copy_engine.is_none());
}

#[test]
fn m_ci1_nobody_else_reaches_a_loopback_card_and_it_reaches_nobody() {
    let mut rig = loopback();
    // Flooded to all of a switch.
    let mut everywhere = frame(0, 0, 60, 1);
    everywhere[..6].fill(0xff);
    rig.send(0, 0, &everywhere);
    rig.send(1, 0, &everywhere);
    rig.settle();
    assert_eq!(rig.received(0).len(), 0);
    assert_eq!(rig.received(1).len(), 1, "its own");
}

#[test]
fn m_ci1_a_long_frame_comes_back_whole_and_one_beyond_the_mtu_is_no_copy() {
    let mut rig = loopback();
    let long = frame(7, 1, 9000, 3);
    rig.send_long(1, 0, &long);
    rig.send_long(1, 10, &frame(7, 1, 9100, 3));
    rig.settle();
    let received = rig.received(1);
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].1, long);
    assert_eq!(rig.stats(1).tx.dropped["too_long"], 1);
    assert_eq!(copies(&rig, "submitted"), 1);
}

#[test]
fn m_ci1_a_copy_waits_for_its_receive_buffer_and_is_given_up_when_none_comes() {
    let mut rig = loopback();
    // All buffers are used, and none is posted meanwhile.
    for index in 0..RING {
        rig.send(1, index, &frame(7, 1, 60, 0));
    }
    rig.settle();
    assert_eq!(copies(&rig, "completed"), u64::from(RING));
    assert_eq!(rig.completed(1), usize::from(RING));
    rig.send(1, 0, &frame(7, 1, 60, 9));
    rig.send(1, 1, &frame(7, 1, 61, 9));
    rig.settle();
    assert_eq!(rig.completed(1), 0, "they wait in their ring");
    assert_eq!(
        (copies(&rig, "submitted"), copies(&rig, "completed")),
        (u64::from(RING) + 1, u64::from(RING))
    );
    // The guest takes its packets and posts the buffers again: the copies go on, none is done twice.
    assert_eq!(rig.received(1).len(), usize::from(RING));
    rig.settle();
    let lens: Vec<_> = rig.received(1).into_iter().map(|(_, frame)| frame.len()).collect();
    assert_eq!(lens, [60, 61]);
    assert_eq!(rig.completed(1), 2);
    assert_eq!(copies(&rig, "submitted"), copies(&rig, "completed"));

    for index in 0..RING {
        rig.send(1, index, &frame(7, 1, 60, 0));
    }
    rig.settle();
    rig.completed(1);
    rig.send(1, 0, &frame(7, 1, 60, 9));
    rig.settle();
    rig.now = rig.now.plus_nanos(WAIT_NS_MAX + 1);
    rig.settle();
    assert_eq!(rig.completed(1), 1, "no frame waits for ever");
    assert_eq!(copies(&rig, "failed"), 1);
    assert_eq!(rig.stats(1).rx.dropped["no_buffer"], 1);
}

#[test]
fn a_loopback_card_is_in_no_group_whoever_asks() {
    let mut rig = loopback();
    let now = rig.now;
    for address in [None, Some(ether::MacAddr([2, 0, 0, 0, 0, 1]))] {
        let refused = rig.plane.change_group(1, 7, true, address, now);
        assert_eq!(refused, Err(firmware::control::GroupRefusal::Loopback));
    }
    assert!(rig.plane.cards()[1].settings().groups.is_empty());
}

/// A frame of a program's copy: data, and a notification value.
fn copy(index: u16, data: &[u8], value: Option<u64>) -> Vec<u8> {
    let header = CopyHeader {
        notifies: value.is_some(),
        index,
    };
    let mut frame = vec![0; COPY_HEADER_LEN];
    frame[..COPY_HEADER_START].copy_from_slice(&header.encode(ether::MacAddr([2, 0, 0, 0, 0, 1])));
    frame.extend_from_slice(data);
    frame.extend(value.iter().flat_map(|value| value.to_ne_bytes()));
    frame
}

#[test]
fn m_ci1_a_copy_is_as_long_as_the_engine_says_whatever_the_mtu_and_no_other_frame_is() {
    let mut rig = loopback();
    assert!(rig.plane.cards()[1].settings().mtu < COPY_FRAME_LEN_MAX / 8);
    let engine = rig.plane.cards()[1].firmware().copy_engine().expect("it is one");
    assert_eq!(engine.config().mtu, COPY_FRAME_LEN_MAX);
    // Those who look on see all of it.
    let captured = rig.capture(1);
    let data: Vec<u8> = (0..63 * 4096u32).map(|at| (at / 7) as u8).collect();
    let longest = copy(0, &data, Some(9));
    assert_eq!(longest.len(), COPY_FRAME_LEN_MAX as usize);
    rig.send_long(1, 0, &longest);
    rig.settle();
    assert_eq!(rig.received(1).pop().expect("a frame").1, longest);
    assert_eq!(rig.completed(1), 1);
    assert_eq!(copies(&rig, "moved_bytes"), data.len() as u64);
    assert_eq!((copies(&rig, "completed"), copies(&rig, "notifications")), (1, 1));
    let (captured, missing) = super::captures::finish(captured);
    assert_eq!(missing, 0);
    assert!(captured.len() == 2 && captured.iter().all(|frame| frame.bytes == longest));
    // One byte more; one that asks for a checksum, too; and one that asks for no copy.
    let ordinary = frame(7, 1, 65_600, 3);
    let mut asks = [0; crate::offload::NET_HEADER_LEN];
    (asks[0], asks[6], asks[8]) = (1, 14, 16);
    rig.send_long(1, 0, &copy(1, &[&data[..], &[0]].concat(), Some(9)));
    rig.settle();
    rig.send_long_with_header(1, 0, &asks, &copy(1, &data, Some(9)));
    rig.settle();
    rig.send_long(1, 0, &ordinary);
    // To a card at a switch it is a frame like others.
    rig.send_long(0, 0, &longest);
    rig.settle();
    assert_eq!(rig.stats(1).tx.dropped["too_long"], 3);
    assert_eq!(rig.stats(0).tx.dropped["too_long"], 1);
    assert_eq!(copies(&rig, "submitted"), 1);
}

#[test]
fn m_ci1_copies_and_nothing_else_are_waited_for_as_copies_are() {
    let mut rig = loopback();
    rig.send(0, 0, &frame(7, 1, 60, 0));
    rig.settle();
    assert!(!rig.plane.take_has_copied());
    rig.send(1, 0, &copy(0, &[1, 2, 3], None));
    rig.settle();
    assert!(rig.plane.take_has_copied() && !rig.plane.take_has_copied());
}

#[test]
fn m_ci2_a_copy_with_a_notification_arrives_with_it_and_is_counted_as_one() {
    let mut rig = loopback();
    let data: Vec<u8> = (0..1000u16).map(|at| at as u8).collect();
    let sent = [
        copy(0, &data, None),
        copy(1, &data[..1], Some(7)),
        copy(2, &[], Some(8)),
        // What looks like a control frame, or a frame between cards, as data.
        copy(3, &frame(7, 1, 100, 0), Some(9)),
    ];
    for (index, frame) in (0..).zip(&sent) {
        rig.send(1, index, frame);
    }
    rig.settle();
    let received: Vec<_> = rig.received(1).into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(received, sent);
    assert_eq!((copies(&rig, "submitted"), copies(&rig, "completed")), (4, 4));
    assert_eq!(copies(&rig, "notifications"), 3);
    assert_eq!(copies(&rig, "moved_bytes"), 1000 + 1 + 100, "data alone");
    // A header that promises a notification for which there is no room is a copy of what is there.
    rig.send(1, 4, &copy(4, &[1, 2, 3], None));
    let mut short = copy(5, &[1, 2, 3], None);
    short[17] = 1;
    rig.send(1, 5, &short);
    rig.settle();
    assert_eq!(copies(&rig, "notifications"), 3);
    assert_eq!((copies(&rig, "submitted"), copies(&rig, "completed")), (6, 6));
}

#[test]
fn m_ci1_a_copy_goes_into_the_buffer_that_it_is_for_or_nowhere() {
    let mut rig = loopback();
    let frame = |index: u16| copy(index, &[index as u8; 40], Some(index.into()));
    rig.send(1, 0, &frame(0));
    rig.settle();
    // It comes a second time: a vnicd was killed before it gave its chain back.
    rig.send(1, 1, &frame(0));
    rig.send(1, 2, &frame(1));
    rig.settle();
    assert_eq!(rig.completed(1), 3);
    assert_eq!(rig.received_or_empty(1), [frame(0), frame(1)]);
    assert_eq!(copies(&rig, "completed"), 2);
    // Frame 2 was lost: 3 and 4 read what it was to write, so they go nowhere before it was sent again.
    rig.send(1, 3, &frame(3));
    rig.send(1, 4, &frame(4));
    rig.settle();
    assert_eq!(rig.completed(1), 2);
    assert_eq!(rig.received_or_empty(1).len(), 0);
    for index in 2..5 {
        rig.send(1, 3 + index, &frame(index));
    }
    rig.settle();
    assert_eq!(rig.completed(1), 3);
    assert_eq!(rig.received_or_empty(1), [frame(2), frame(3), frame(4)]);
    assert_eq!(copies(&rig, "completed"), 5);
    assert_eq!(copies(&rig, "failed"), 2);
    // One that names a buffer that was never posted goes nowhere; the next one does.
    rig.send(1, 4, &frame(5 + RING));
    rig.send(1, 5, &frame(u16::MAX / 2));
    rig.send(1, 6, &frame(5));
    rig.settle();
    assert_eq!(rig.received_or_empty(1), [frame(5)]);
    assert_eq!(rig.stats(1).rx.dropped["no_buffer"], 4);
    assert_eq!(copies(&rig, "failed"), 4);
    rig.completed(1);
    // All numbers, over the wrap of 16 bits.
    for index in 6..=66_000u32 {
        rig.send(1, index as u16 % RING, &frame(index as u16));
        rig.settle();
        assert_eq!(rig.received_or_empty(1), [frame(index as u16)]);
    }
}
