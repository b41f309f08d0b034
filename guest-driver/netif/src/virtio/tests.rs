//! Tests of ports and rings against a model of a card: one that keeps the rules, and ones that break them.

use std::{
    cell::RefCell,
    io::IoSlice,
    os::{fd::AsFd, unix::net::UnixStream},
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr};
use proptest::prelude::*;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    VirtioError, VirtioPort,
    model::{CommonModel, Facts, NetworkModel, OWN, Pair},
    negotiation::{OF_PORTS, Wanted, negotiate},
    registers::{Common, Network},
    ring::{Direction, Ring},
};
use crate::{FrameLender, Interest, Netif, NetifError, Wake};

const OTHER: MacAddr = MacAddr([0x52, 0x54, 0, 0, 2, 1]);

fn frame(to: MacAddr, kind: EtherType, len: usize, seed: u8) -> Vec<u8> {
    let mut frame = vec![seed; len];
    frame[..6].copy_from_slice(&to.0);
    frame[6..12].copy_from_slice(&OTHER.0);
    frame[12..14].copy_from_slice(&kind.0.to_be_bytes());
    frame[14..]
        .iter_mut()
        .zip(0u8..=255)
        .for_each(|(byte, at)| *byte = byte.wrapping_add(at));
    frame
}

fn own(len: usize, seed: u8) -> Vec<u8> {
    frame(OWN, EtherType::MXOE, len, seed)
}

fn port(pair: &Pair) -> VirtioPort {
    VirtioPort::from_prepared(pair.prepared(), EtherType::MXOE).unwrap()
}

fn what_broke(result: Result<impl Sized, NetifError>) -> &'static str {
    match result.err() {
        Some(NetifError::Virtio(VirtioError::Broken { what, .. })) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn m_bv8_a_port_tells_its_card_how_many_entries_it_has_processed_over_the_wrap_too() {
    const PROCESSED: usize = 8;
    let mut pair = Pair::new(1500, 16);
    let at = pair.layout.told() + PROCESSED;
    let mut one = port(&pair);
    let told = one.told(PROCESSED);
    let processed = |pair: &Pair| u64::from_le(pair.memory.long(at).load(Ordering::Relaxed));
    for number in 0..70_000u64 {
        // What is for nobody here is processed, too.
        let kind = if number % 3 == 0 {
            EtherType(0x0800)
        } else {
            EtherType::MXOE
        };
        assert!(pair.deliver(&frame(OWN, kind, 60, 0)));
        assert_eq!(processed(&pair), number, "not before it is seen");
        assert_eq!(one.poll_receive().unwrap().is_some(), number % 3 != 0);
        assert_eq!(processed(&pair), number + 1);
    }
    told.set_word(0, 7);
    assert_eq!(pair.memory.word(at - PROCESSED).load(Ordering::Relaxed), 7u32.to_le());
    drop(one);
    // The next process begins with the used index, since nothing else is known of the one before.
    let mut two = port(&pair);
    two.told(PROCESSED);
    assert_eq!(processed(&pair), 70_000 % 65_536);
    assert!(pair.deliver(&own(60, 0)));
    assert!(two.poll_receive().unwrap().is_some());
    assert_eq!(processed(&pair), 70_001 % 65_536);
}

#[test]
fn m_om_a_slots_that_are_kept_are_not_the_card_s_until_they_are_released() {
    let mut pair = Pair::new(1500, 16);
    let mut port = port(&pair);
    let kept_max = port.kept_max();
    assert!(kept_max > 1 && !port.keep(), "there is no frame");
    let mut kept = Vec::new();
    for number in 0..2000usize {
        let sent = own(100 + number % 900, number as u8);
        assert!(pair.deliver(&sent), "buffer {number}");
        let frame = port.poll_receive().unwrap().unwrap();
        assert_eq!(frame, &sent[..]);
        let memory = frame.as_ptr();
        if number % 3 == 0 {
            if kept.len() == kept_max {
                assert!(!port.keep(), "no more than are promised");
                port.release(1 + number % kept_max);
                kept.drain(..1 + number % kept_max);
            }
            assert!(port.keep());
            kept.push((memory, sent));
        }
        for (memory, sent) in &kept {
            // SAFETY: the frame is kept.
            assert_eq!(unsafe { std::slice::from_raw_parts(*memory, sent.len()) }, &sent[..]);
        }
    }
    // All slots are the card's again: so many frames fit.
    port.release(kept.len());
    assert_eq!(port.poll_receive().unwrap(), None);
    let slots = (0..).take_while(|_| pair.deliver(&own(60, 1))).count();
    assert_eq!(slots, kept_max * 4);
}

#[test]
fn frames_of_every_length_pass_both_ways_and_rings_wrap() {
    for (mtu, size) in [(1500, 8), (4000, 4), (9000, 16)] {
        let mut pair = Pair::new(mtu, size);
        let mut port = port(&pair);
        // A third of the 16-bit indices is enough to wrap the ring often.
        for number in 0..2000usize {
            let len = 14 + number * 37 % (mtu + 1);
            let sent = own(len, number as u8);
            assert!(pair.deliver(&sent), "buffer {number}");
            assert_eq!(port.poll_receive().unwrap(), Some(&sent[..]), "{len}");
            assert!(
                port.send(&[IoSlice::new(&sent[..14]), IoSlice::new(&sent[14..])])
                    .unwrap()
            );
            assert_eq!(pair.collect().as_ref(), Some(&sent), "{len}");
        }
        assert_eq!(port.poll_receive().unwrap(), None);
        let counters = port.counters();
        assert_eq!((counters.received, counters.sent), (2000, 2000));
        let long = vec![0; mtu + 15];
        assert!(matches!(
            port.send(&[IoSlice::new(&long)]),
            Err(NetifError::FrameTooLong { .. })
        ));
    }
}

#[test]
fn a_port_lends_a_buffer_until_the_next_call_and_is_full_when_the_card_has_all() {
    let mut pair = Pair::new(1500, 4);
    let mut port = port(&pair);
    for seed in 0..4 {
        assert!(pair.deliver(&own(60, seed)));
    }
    assert!(!pair.deliver(&own(60, 4)), "four buffers");
    port.poll_receive().unwrap();
    assert!(!pair.deliver(&own(60, 4)), "the first is lent");
    port.poll_receive().unwrap();
    assert!(pair.deliver(&own(60, 4)));
    let frame = own(60, 0);
    let part = [IoSlice::new(&frame)];
    assert_eq!(port.send_burst(&[&part[..]; 6]).unwrap(), 4);
    assert!(!port.send(&part).unwrap());
    assert_eq!(port.wait(Interest::Send, Instant::now(), None).unwrap(), Wake::Deadline);
    pair.collect().unwrap();
    assert_eq!(port.wait(Interest::Send, Instant::now(), None).unwrap(), Wake::Ready);
    assert!(port.send(&part).unwrap());
}

#[test]
fn a_burst_is_one_doorbell_and_none_while_the_card_polls() {
    let mut pair = Pair::new(1500, 64);
    let mut port = port(&pair);
    let frame = own(60, 0);
    let part = [IoSlice::new(&frame)];
    let begin = port.rung();
    assert_eq!(port.send_burst(&[&part[..]; 8]).unwrap(), 8);
    assert_eq!(port.rung() - begin, 1);
    pair.poll(0, true);
    pair.poll(1, true);
    assert_eq!(port.send_burst(&[&part[..]; 8]).unwrap(), 8);
    pair.deliver(&frame);
    assert!(port.poll_receive().unwrap().is_some());
    assert_eq!(port.poll_receive().unwrap(), None);
    assert_eq!(port.rung() - begin, 1);
    // The card stopped polling, and did not see the last frames.
    pair.poll(1, false);
    assert_eq!(port.poll_receive().unwrap(), None);
    assert_eq!(port.rung() - begin, 2, "it is rung late");
    assert_eq!(port.poll_receive().unwrap(), None);
    assert_eq!(port.rung() - begin, 2, "and once");
    while pair.collect().is_some() {}
    pair.poll(1, true);
    port.send(&part).unwrap();
    pair.collect().unwrap();
    pair.poll(1, false);
    port.poll_receive().unwrap();
    assert_eq!(port.rung() - begin, 2, "what the card has taken needs no doorbell");
}

#[test]
fn frames_for_others_and_of_other_types_are_left_out() {
    let mut pair = Pair::new(1500, 16);
    let mut port = port(&pair);
    let ours = own(60, 3);
    for sent in [
        frame(OTHER, EtherType::MXOE, 60, 1),
        frame(OWN, EtherType::IPV4, 60, 2),
        ours.clone(),
        frame(MacAddr::BROADCAST, EtherType::MXOE, 60, 4),
    ] {
        assert!(pair.deliver(&sent));
    }
    assert_eq!(port.poll_receive().unwrap(), Some(&ours[..]));
    assert!(port.poll_receive().unwrap().is_some());
    assert_eq!(port.poll_receive().unwrap(), None);
    assert_eq!(port.counters().skipped, 2);
    port.also_receive(Some(EtherType::IPV4));
    assert!(pair.deliver(&frame(OWN, EtherType::IPV4, 60, 2)));
    assert!(port.poll_receive().unwrap().is_some());
}

#[test]
fn lengths_and_buffers_that_cannot_be_are_counted_and_harm_nothing() {
    let mut pair = Pair::new(9000, 64);
    let mut port = port(&pair);
    for len in [0, 11, 25, 12_289, u32::MAX] {
        let (head, _) = pair.take(0).unwrap();
        pair.put_back(0, head.into(), len);
    }
    let (head, _) = pair.take(0).unwrap();
    // A piece that is not a buffer's first, none at all, and a frame that is longer than the MTU allows.
    pair.put_back(0, u32::from(head) + 1, 100);
    pair.put_back(0, 7_000_000, 100);
    pair.put_back(0, head.into(), 12 + 9015);
    assert_eq!(port.poll_receive().unwrap(), None);
    let (faults, counters) = (port.faults(), port.counters());
    assert_eq!((faults.impossible_lengths, faults.unknown_buffers), (5, 2));
    assert_eq!((counters.received, counters.dropped_too_long), (0, 1));
    let sent = own(9014, 1);
    assert!(pair.deliver(&sent));
    assert_eq!(port.poll_receive().unwrap(), Some(&sent[..]));
}

#[test]
fn a_used_index_that_runs_ahead_ends_the_port_with_a_sentence() {
    for ring in [0, 1] {
        let mut pair = Pair::new(1500, 16);
        let mut port = port(&pair);
        pair.claim(ring, 17);
        for _ in 0..3 {
            let result = match ring {
                0 => port.poll_receive().map(drop),
                _ => port.send(&[IoSlice::new(&own(60, 0))]).map(drop),
            };
            assert_eq!(what_broke(result), "it used more buffers than it has");
        }
        drop(port);
        let again = VirtioPort::from_prepared(pair.prepared(), EtherType::MXOE);
        assert_eq!(what_broke(again), "more used entries than the ring holds");
    }
}

#[test]
fn without_interrupts_the_descriptor_becomes_readable_by_itself_and_waits_end() {
    let mut pair = Pair::new(1500, 16);
    let mut port = port(&pair);
    let begin = Instant::now();
    let wake = port
        .wait(Interest::Receive, begin + Duration::from_millis(20), None)
        .unwrap();
    assert_eq!(wake, Wake::Deadline);
    assert!(begin.elapsed() >= Duration::from_millis(20));
    assert_eq!(port.wait(Interest::Receive, begin, None).unwrap(), Wake::Deadline);
    let second = Timespec { tv_sec: 10, tv_nsec: 0 };
    let readable = poll(&mut [PollFd::new(&port, PollFlags::IN)], Some(&second)).unwrap();
    assert_eq!(readable, 1, "a sleeper looks again");
    let (stop, other) = UnixStream::pair().unwrap();
    drop(other);
    let far = begin + Duration::from_secs(100);
    assert_eq!(
        port.wait(Interest::Receive, far, Some(stop.as_fd())).unwrap(),
        Wake::Stop
    );
    pair.deliver(&own(60, 0));
    assert_eq!(port.wait(Interest::Receive, far, None).unwrap(), Wake::Ready);
    assert!(port.poll_receive().unwrap().is_some());
}

#[test]
fn layouts_that_another_process_states_are_checked() {
    let pair = Pair::new(1500, 16);
    for change in 0..4 {
        let mut prepared = pair.prepared();
        match change {
            0 => prepared.place.layout.slots = 17,
            1 => prepared.place.layout.ring_size = 12,
            2 => prepared.place.memory_offset = 4096,
            _ => prepared.place.doorbells = [1, 4],
        }
        assert!(
            VirtioPort::from_prepared(prepared, EtherType::MXOE).is_err(),
            "{change}"
        );
    }
}

fn facts() -> Facts {
    Facts {
        features: 1 << 32 | 1 << 5 | 1 << 3 | 1 << 16 | 1 << 17 | 1 << 22 | 1 << 15 | 1 << 28,
        queues: 11,
        queue_size: 256,
        pairs: 5,
        mac: OWN,
        mtu: 9000,
        refused: 0,
        written: RefCell::default(),
    }
}

fn negotiated(facts: &Facts, pairs: u16, iommu: bool) -> Result<(u16, Option<u16>, u16, usize), &'static str> {
    let (common, network) = (Common(CommonModel(facts)), Network(NetworkModel(facts)));
    let wanted = Wanted {
        address: "00:04.0".parse().unwrap(),
        pairs,
        behind_iommu: iommu,
        understood: OF_PORTS,
    };
    let found = negotiate(&common, &network, wanted)?;
    Ok((found.pairs, found.control, found.ring_size, found.facts.mtu))
}

/// The halves of the features that a driver accepted.
fn accepted(facts: &Facts) -> Vec<u32> {
    let written = facts.written.borrow();
    let halves = written.iter().filter(|(at, _)| *at == 12);
    halves.map(|(_, half)| *half).collect()
}

#[test]
fn a_driver_accepts_what_it_understands() {
    let good = facts();
    assert_eq!(negotiated(&good, 33, false), Ok((5, Some(10), 256, 9000)));
    let understood = 1 << 5 | 1 << 3 | 1 << 16;
    let of_several = 1 << 17 | 1 << 22;
    let accepted = accepted(&good);
    assert_eq!(
        accepted,
        [understood | of_several, 1],
        "no merged buffers, no event indices"
    );
    let one_pair = Facts {
        features: 1 << 32 | 1 << 5,
        queues: 2,
        ..facts()
    };
    assert_eq!(negotiated(&one_pair, 33, false), Ok((1, None, 256, 1500)));
    let behind = Facts {
        features: 1 << 33 | 1 << 32 | 1 << 5,
        ..facts()
    };
    assert_eq!(negotiated(&behind, 33, true), Ok((1, None, 256, 1500)));
    assert!(negotiated(&behind, 33, false).is_err_and(|what| what.contains("behind an IOMMU")));
    assert!(negotiated(&facts(), 33, true).is_err_and(|what| what.contains("past the IOMMU")));
}

#[test]
fn a_driver_that_wants_one_pair_accepts_nothing_that_has_the_device_wait_for_others() {
    let good = facts();
    assert_eq!(negotiated(&good, 1, false), Ok((1, None, 256, 9000)));
    assert_eq!(accepted(&good), [1 << 5 | 1 << 3 | 1 << 16, 1], "no several pairs");
}

#[test]
fn a_driver_says_what_a_card_lacks() {
    let features = |features| Facts { features, ..facts() };
    let pairs = |pairs| Facts { pairs, ..facts() };
    let queue_size = |queue_size| Facts { queue_size, ..facts() };
    let refused = Facts { refused: 8, ..facts() };
    let mac = Facts {
        mac: MacAddr::BROADCAST,
        ..facts()
    };
    for (bad, what) in [
        (features(1 << 5), "it does not speak virtio 1.0"),
        (features(1 << 32), "it states no address"),
        (refused, "it does not accept the features that it has"),
        (pairs(0), "it states queue pairs that it does not have"),
        (pairs(9), "it states queue pairs that it does not have"),
        (queue_size(0), "its queues are too short"),
        (queue_size(2), "its queues are too short"),
        (mac, "its address is one of a group"),
    ] {
        assert_eq!(negotiated(&bad, 33, false), Err(what));
    }
}

/// What happens to a ring.
#[derive(Clone, Copy, Debug)]
enum Step {
    Post,
    Publish,
    CardUses,
    See,
    /// The driver is killed, and another one goes on.
    Kill,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Post),
        3 => Just(Step::Publish),
        4 => Just(Step::CardUses),
        4 => Just(Step::See),
        1 => Just(Step::Kill),
    ];
    proptest::collection::vec(step, 0..400)
}

proptest! {
    /// After each kill every slot is either free or the card's, as the card sees it.
    #[test]
    fn a_ring_whose_driver_is_killed_anywhere_loses_no_slot(steps in steps(), size in 0u32..6, mtu in prop_oneof![Just(1500usize), Just(9000)]) {
        let mut pair = Pair::new(mtu, 4 << size);
        let place = pair.layout.receive();
        let attach = |pair: &Pair| Ring::attach(&pair.memory, pair.layout, place, Direction::Receive);
        let mut ring = attach(&pair).unwrap();
        // Published and not used yet.
        let (mut with_card, mut posted) = (0u16, 0u16);
        for step in steps {
            match step {
                Step::Post => {
                    if let Some(slot) = (0..pair.layout.slots).find(|slot| !ring.is_with_card(*slot)) {
                        ring.post(slot);
                        posted += 1;
                    }
                }
                Step::Publish => {
                    ring.publish();
                    with_card += std::mem::take(&mut posted);
                }
                Step::CardUses => {
                    if let Some((head, _)) = pair.take(0) {
                        pair.put_back(0, head.into(), 100);
                    }
                }
                Step::See => {
                    if ring.take_used().unwrap().is_some() {
                        with_card -= 1;
                    }
                }
                Step::Kill => {
                    ring = attach(&pair).unwrap();
                    posted = 0;
                    // Used entries that were not seen are skipped.
                    with_card = ring.with_card();
                    prop_assert!(!ring.has_used());
                }
            }
            prop_assert_eq!(ring.with_card(), with_card + posted);
            prop_assert_eq!(ring.lies(), 0);
        }
        // Everything still works: each slot goes round once.
        let mut ring = attach(&pair).unwrap();
        for slot in 0..pair.layout.slots {
            if !ring.is_with_card(slot) {
                ring.post(slot);
            }
        }
        ring.publish();
        let mut seen = vec![false; pair.layout.slots.into()];
        while let Some((head, _)) = pair.take(0) {
            pair.put_back(0, head.into(), 100);
            let used = ring.take_used().unwrap().unwrap();
            prop_assert!(!std::mem::replace(&mut seen[usize::from(used.slot)], true));
        }
        prop_assert!(seen.into_iter().all(|seen| seen));
    }

    /// A card that writes anything into used rings is answered with counts or a sentence.
    #[test]
    fn a_card_that_lies_about_everything_neither_crashes_nor_hangs_a_port(
        lies in proptest::collection::vec((0usize..2, any::<u32>(), any::<u32>(), 0u16..3), 1..300),
        small: bool,
    ) {
        let mut pair = Pair::new(if small { 1500 } else { 9000 }, 32);
        let mut port = port(&pair);
        let sent = own(60, 1);
        for (ring, id, len, more) in lies {
            // Numbers near those that mean something are the more dangerous ones.
            pair.put_back(ring, id % 70, len % 20_000);
            if more > 0 && id % 16 == 0 {
                pair.claim(ring, more);
            }
            if let Ok(Some(frame)) = port.poll_receive() {
                prop_assert!(frame.len() <= 9014);
            }
            let _ = port.send(&[IoSlice::new(&sent)]);
            let _ = port.wait(Interest::Both, Instant::now(), None);
        }
        let _ = (port.faults(), port.counters());
        drop(port);
        // The next process gets a port or a sentence.
        let _ = VirtioPort::from_prepared(pair.prepared(), EtherType::MXOE);
    }
}
