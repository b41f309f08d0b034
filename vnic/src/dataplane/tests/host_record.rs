//! The record in which a guest's library tells its card how far it is (M-BV8 to M-BV10), at the rings of a guest in virtual time: what the card does
//! by it, and what it does without one that is there.

use ether::{MacAddr, Time};
use firmware::control::{HostRecordReport, Reply, Request};
use firmware::host_record::field;
use firmware::{CONTROL_FRAME_MAX, HOST_RECORD_LEN, HostRecordPlace, StrategyKind, TimerKind};
use vm_memory::{Bytes, GuestAddress};
use weft_vnic_testkit::Seed;

use super::introduce;
use crate::dataplane::rig::iommu::{BOTH, Iommu, PAGE};
use crate::dataplane::rig::{RING, Rig, frame};

const KEY: u32 = 0x5eed_0001;
/// A page of memory that neither rings nor buffers of the rig use.
const SPARE: u64 = 16 * PAGE as u64;
const RECORD: u64 = SPARE + 2 * HOST_RECORD_LEN as u64;
const WATCHDOG_NS: u64 = 100_000;
/// Where the memory of a guest of the rig ends.
const MEMORY_END: u64 = 4 << 20;
/// The guest with the record.
const GUEST: usize = 1;
const OTHER: usize = 0;

fn write<T: vm_memory::ByteValued>(rig: &Rig, at: u64, value: T) {
    let memory = rig.guest_memory(GUEST);
    memory.write_obj(value, GuestAddress(at)).expect("in memory");
}

/// Two guests, of which one has a watchdog and a record with interrupts enabled that its card does not know of.
fn guests() -> Rig {
    let mut rig = Rig::new(&[0, 0]);
    introduce(&mut rig, OTHER, GUEST);
    rig.set_coalescing(GUEST, StrategyKind::Timeout, 75_000);
    rig.set_watchdog(GUEST, WATCHDOG_NS);
    begin_record(&rig);
    rig
}

fn begin_record(rig: &Rig) {
    write(rig, RECORD + field::KEY as u64, KEY.to_le());
    write(rig, RECORD + field::INTERRUPTS as u64, 1u32.to_le());
    write(
        rig,
        RECORD + field::PROCESSED as u64,
        u64::from(rig.next_used(GUEST)).to_le(),
    );
}

fn ask(rig: &mut Rig, request: Request) -> Reply {
    let mut bytes = [0; CONTROL_FRAME_MAX];
    let len = request.encode(MacAddr([2, 0, 0, 0, 0, GUEST as u8]), 1, &mut bytes);
    rig.send(GUEST, 5, &bytes[..len]);
    rig.settle();
    let frames = rig.received(GUEST).into_iter().map(|(_, frame)| frame);
    let replies: Vec<_> = frames
        .filter_map(|frame| Reply::decode(&frame[..frame.len().min(CONTROL_FRAME_MAX)]).ok())
        .collect();
    assert_eq!(replies.len(), 1, "{replies:?}");
    rig.completed(GUEST);
    // The reply is processed, too.
    write(
        rig,
        RECORD + field::PROCESSED as u64,
        u64::from(rig.next_used(GUEST)).to_le(),
    );
    let now = rig.now.as_nanos();
    run_until(rig, now + 10 * WATCHDOG_NS);
    rig.calls(GUEST);
    replies.into_iter().next().map(|(_, reply)| reply).expect("one")
}

fn name(rig: &mut Rig, address: u64, key: u32) -> Result<HostRecordReport, String> {
    let place = (key != 0).then_some(HostRecordPlace { address, key });
    match ask(rig, Request::SetHostRecord { queue: 0, place }) {
        Reply::SetHostRecord(report) => Ok(report),
        Reply::Refused(refusal) => Err(refusal.reason.into_owned()),
        reply => panic!("{reply:?}"),
    }
}

fn run_until(rig: &mut Rig, to: u64) {
    while let Some(at) = rig.next_due().filter(|at| at.as_nanos() <= to) {
        rig.now = rig.now.max(at);
        rig.settle();
    }
    rig.now = Time::from_nanos(to);
    rig.settle();
}

fn pass(rig: &mut Rig, ns: u64) {
    let now = rig.now.as_nanos();
    run_until(rig, now + ns);
}

fn send(rig: &mut Rig, frames: u16) {
    for index in 0..frames {
        rig.send(OTHER, index, &frame(GUEST as u8, OTHER as u8, 60, 0));
        rig.settle();
    }
    rig.completed(OTHER);
}

/// The guest says that it has processed so many more frames, which stay where they are.
fn say_processed(rig: &Rig, more: u64) {
    let at = GuestAddress(RECORD + field::PROCESSED as u64);
    let memory = rig.guest_memory(GUEST);
    let before: u64 = memory.read_obj(at).expect("in memory");
    write(rig, at.0, (u64::from_le(before) + more).to_le());
}

fn fetches(rig: &Rig, what: &str) -> u64 {
    rig.stats(GUEST).host_record[what]
}

#[test]
fn m_bv8_a_host_with_a_record_is_called_by_what_it_says_and_not_by_what_its_ring_seems_to_say() {
    let mut rig = guests();
    assert!(name(&mut rig, RECORD, KEY).unwrap().is_read);
    let before = rig.stats(GUEST).watchdog;
    // It processes frames and gives no buffer back for a while, as a library does that keeps packets: its ring would look
    // as if it did not poll.
    for _ in 0..20 {
        send(&mut rig, 3);
        say_processed(&rig, 3);
        pass(&mut rig, 2 * WATCHDOG_NS);
    }
    let after = rig.stats(GUEST).watchdog;
    assert_eq!(rig.calls(GUEST), 0);
    assert_eq!((after.cancelled - before.cancelled, after.fired), (20, 0));
    // Some is progress, and none is not.
    send(&mut rig, 3);
    say_processed(&rig, 1);
    pass(&mut rig, WATCHDOG_NS);
    assert_eq!(
        (rig.calls(GUEST), rig.stats(GUEST).watchdog.restarted_progress),
        (0, after.restarted_progress + 1)
    );
    pass(&mut rig, WATCHDOG_NS);
    assert_eq!(rig.calls(GUEST), 1);
    pass(&mut rig, WATCHDOG_NS);
    assert_eq!(rig.calls(GUEST), 1, "as long as it does nothing");
    assert_eq!(fetches(&rig, "inferred"), 0);
    say_processed(&rig, 2);
    pass(&mut rig, 10 * WATCHDOG_NS);
    assert_eq!((rig.calls(GUEST), rig.next_due()), (0, None));
}

#[test]
fn m_bv8_without_the_record_the_same_host_is_called_for_nothing() {
    let mut rig = guests();
    for _ in 0..20 {
        send(&mut rig, 3);
        say_processed(&rig, 3);
        pass(&mut rig, 2 * WATCHDOG_NS);
    }
    assert!(rig.calls(GUEST) >= 20);
    assert!(fetches(&rig, "inferred") >= 20);
    assert_eq!(fetches(&rig, "exact"), 0);
}

#[test]
fn m_bv9_a_flag_in_the_record_disables_calls_although_the_ring_asks_for_them() {
    let mut rig = guests();
    name(&mut rig, RECORD, KEY).unwrap();
    write(&rig, RECORD + field::INTERRUPTS as u64, 0u32);
    send(&mut rig, 1);
    let before = rig.stats(GUEST).watchdog.restarted_disabled;
    pass(&mut rig, 9 * WATCHDOG_NS + WATCHDOG_NS / 2);
    assert_eq!(
        (rig.calls(GUEST), rig.stats(GUEST).watchdog.restarted_disabled - before),
        (0, 9)
    );
    // The host toggles a word, and tells nobody.
    write(&rig, RECORD + field::INTERRUPTS as u64, 1u32.to_le());
    pass(&mut rig, WATCHDOG_NS);
    assert_eq!(rig.calls(GUEST), 1);
}

#[test]
fn m_bv10_a_clock_rings_by_the_timers_and_the_last_poll_that_the_record_says() {
    let mut rig = guests();
    name(&mut rig, RECORD, KEY).unwrap();
    rig.set_watchdog(GUEST, 0);
    let period_ns = 200_000;
    let arm = Request::ArmTimer {
        timer: 3,
        kind: TimerKind::Clock,
        time_ns: period_ns,
    };
    let at = |field: usize| RECORD + field as u64;
    ask(&mut rig, arm);
    let rung = |rig: &mut Rig| {
        pass(rig, 5 * period_ns);
        let clocks = rig.stats(GUEST).timers.counters.clocks;
        rig.received(GUEST);
        (clocks.idle, clocks.polled, clocks.rung)
    };
    let (idle, polled, none) = rung(&mut rig);
    assert_eq!((polled, none), (0, 0), "no timer runs");
    write(&rig, at(field::RUNNING_TIMERS), 2u32.to_le());
    assert_eq!(rung(&mut rig), (idle, 0, 5), "it has never polled");
    for n in 1..=5u64 {
        write(&rig, at(field::LAST_POLL), (1_000_000_000 * n).to_le());
        pass(&mut rig, period_ns);
    }
    assert_eq!(
        rung(&mut rig),
        (idle, 5, 10),
        "it polled in each of five periods, and then not"
    );
    write(&rig, at(field::RUNNING_TIMERS), 0u32);
    assert_eq!(rung(&mut rig), (idle + 5, 5, 10));
    assert_eq!((fetches(&rig, "inferred"), fetches(&rig, "replaced")), (0, 0));
}

#[test]
fn m_bv8_a_record_that_is_not_there_is_refused_with_a_sentence_and_counted() {
    let mut rig = guests();
    for (address, key, sentence) in [
        (RECORD + 4, KEY, "multiple of 32"),
        (MEMORY_END, KEY, "not in memory that the card reaches"),
        (u64::MAX - 31, KEY, "not in memory that the card reaches"),
        (RECORD, KEY + 1, "does not begin with the key"),
        (SPARE, KEY, "does not begin with the key"),
    ] {
        let refused = name(&mut rig, address, key).unwrap_err();
        assert!(refused.contains(sentence), "{address:#x}: {refused}");
    }
    assert_eq!(fetches(&rig, "refused"), 4, "the misaligned one never got as far");
    // A refusal takes nothing back.
    assert!(name(&mut rig, RECORD, KEY).unwrap().is_read);
    assert!(name(&mut rig, MEMORY_END, KEY).is_err());
    send(&mut rig, 1);
    pass(&mut rig, WATCHDOG_NS);
    assert!(fetches(&rig, "exact") > 0);
    assert!(!name(&mut rig, 0, 0).unwrap().is_read);
    let (exact, inferred) = (fetches(&rig, "exact"), fetches(&rig, "inferred"));
    send(&mut rig, 1);
    pass(&mut rig, WATCHDOG_NS);
    assert_eq!(fetches(&rig, "exact"), exact);
    assert!(fetches(&rig, "inferred") > inferred);
}

/// The host does not poll and is called by its ring, by the record or without it.
fn is_called_all_the_same(rig: &mut Rig) {
    let _ = rig.received(GUEST);
    pass(rig, 10 * WATCHDOG_NS);
    rig.calls(GUEST);
    send(rig, 1);
    pass(rig, 3 * WATCHDOG_NS);
    assert!(rig.calls(GUEST) > 0);
}

#[test]
fn m_bv8_a_record_that_is_replaced_or_whose_memory_goes_under_the_card_is_counted_and_the_ring_tells_instead() {
    let mut rig = guests();
    name(&mut rig, RECORD, KEY).unwrap();
    // Something else is in its page now: it says that interrupts are disabled.
    let memory = rig.guest_memory(GUEST);
    memory.write_slice(&[0; HOST_RECORD_LEN], GuestAddress(RECORD)).unwrap();
    is_called_all_the_same(&mut rig);
    assert!(fetches(&rig, "replaced") > 0);
    // The record is back, and then the memory table has no such page any more.
    begin_record(&rig);
    let replaced = fetches(&rig, "replaced");
    send(&mut rig, 1);
    pass(&mut rig, WATCHDOG_NS);
    assert_eq!(fetches(&rig, "replaced"), replaced);
    assert!(fetches(&rig, "exact") > 0);
    rig.share_page(GUEST, MEMORY_END);
    let record = MEMORY_END + PAGE as u64 - HOST_RECORD_LEN as u64;
    write(&rig, record + field::KEY as u64, KEY.to_le());
    assert!(name(&mut rig, record, KEY).unwrap().is_read);
    rig.unshare_page(GUEST, MEMORY_END);
    is_called_all_the_same(&mut rig);
    assert!(fetches(&rig, "unreachable") > 0);
    assert_eq!(rig.failed(GUEST), None, "nothing is broken by it");
    // A driver that begins anew has none.
    rig.stop_receiving(GUEST);
    rig.start_receiving(GUEST, None);
    let inferred = fetches(&rig, "inferred");
    is_called_all_the_same(&mut rig);
    assert!(fetches(&rig, "inferred") > inferred);
}

/// A guest behind an IOMMU with its record in the page of its receive ring's indices, and another guest.
fn behind_iommu() -> (Rig, Iommu, u64) {
    let mut rig = Rig::new(&[0]);
    let mut iommu = rig.add_guest_behind_iommu(0, 0);
    for _ in 0..2 {
        for (from, to) in [(OTHER, GUEST), (GUEST, OTHER)] {
            rig.send(from, 0, &frame(to as u8, from as u8, 60, 0));
            settle(&mut rig, &mut iommu);
        }
    }
    rig.received(GUEST);
    rig.received(OTHER);
    rig.completed(GUEST);
    rig.completed(OTHER);
    rig.set_coalescing(GUEST, StrategyKind::Timeout, 75_000);
    rig.set_watchdog(GUEST, WATCHDOG_NS);
    // Behind the entries of the used ring, in its page.
    let record = rig.indices_page_end(GUEST) - HOST_RECORD_LEN as u64;
    (rig, iommu, record)
}

fn settle(rig: &mut Rig, iommu: &mut Iommu) {
    loop {
        rig.settle();
        if iommu.answer(rig, usize::MAX) == 0 {
            return;
        }
    }
}

#[test]
fn m_bv8_behind_an_iommu_a_record_is_read_by_translations_that_are_there_and_asks_for_none() {
    let (mut rig, mut iommu, record) = behind_iommu();
    write(&rig, record + field::KEY as u64, KEY.to_le());
    write(
        &rig,
        record + field::PROCESSED as u64,
        u64::from(rig.next_used(GUEST)).to_le(),
    );
    let place = |address| Some(HostRecordPlace { address, key: KEY });
    let card = rig.plane.card(GUEST);
    assert!(card.set_host_record(0, place(record)).is_ok());
    // A page that is not translated is not asked for: it is refused, and no question waits for an answer.
    assert!(card.set_host_record(0, place(SPARE)).is_err());
    assert_eq!(iommu.misses.next_to_ask(std::time::Instant::now()), None);
    let page = record as usize / PAGE;
    let mut seed = Seed::new(27);
    let mut gone = 0;
    for round in 0..400u64 {
        // Its page goes and comes: while it is gone, touching it would end this process.
        if seed.range(0, 3) == 0 {
            iommu.take(&mut rig, page..page + 1);
            gone += 1;
            pass(&mut rig, 3 * WATCHDOG_NS);
            settle(&mut rig, &mut iommu);
            if seed.range(0, 2) == 0 {
                iommu.give(&mut rig, page, BOTH);
            }
        }
        rig.send(
            OTHER,
            (round % u64::from(RING)) as u16,
            &frame(GUEST as u8, OTHER as u8, 60, 0),
        );
        settle(&mut rig, &mut iommu);
        rig.completed(OTHER);
        pass(&mut rig, 2 * WATCHDOG_NS);
        settle(&mut rig, &mut iommu);
        if round % 7 == 0 {
            let _ = rig.received(GUEST);
        }
    }
    assert!(
        gone > 50 && fetches(&rig, "exact") > 100,
        "{:?}",
        rig.stats(GUEST).host_record
    );
    assert_eq!(rig.failed(GUEST), None);
    // The program is gone: nothing of its memory is touched.
    iommu.disconnect(&mut rig);
    pass(&mut rig, 20 * WATCHDOG_NS);
}
