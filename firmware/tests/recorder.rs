//! The flight recorder: it tells what the pipeline did, forgets the oldest first and says so, and never allocates.

use ether::Time;
use firmware::{
    Card, CardConfig, Coalescing, DmaModel, Event, PacketInfo, Reason, StrategyKind,
    recorder::{RECORD_LEN, RECORDER_EVENTS_MAX, RECORDER_EVENTS_MIN, Record, RecordKind, Recorder},
};

fn t(ns: u64) -> Time {
    Time::from_nanos(ns)
}

fn records(nic: &mut Card) -> Vec<Record> {
    let mut bytes = Vec::new();
    nic.drain_recorder(&mut bytes);
    let (records, rest) = bytes.as_chunks::<RECORD_LEN>();
    assert!(rest.is_empty());
    let read = |bytes| Record::from_bytes(bytes).expect("a known kind");
    records.iter().map(read).collect()
}

fn card(strategy: StrategyKind, dma: DmaModel) -> Card {
    Card::new(CardConfig {
        queue_pairs: 2,
        coalescing: Coalescing {
            strategy,
            ..Coalescing::DEFAULT
        },
        dma,
        ..CardConfig::default()
    })
}

fn poll(nic: &mut Card, queue: u16, now: u64) {
    while let Some(event) = nic.rx(queue).poll(t(now)) {
        let (Event::Interrupt(interrupt)
        | Event::Completed {
            interrupt: Some(interrupt),
            ..
        }) = event
        else {
            continue;
        };
        if interrupt.sequence.is_multiple_of(2) {
            nic.rx(queue).note_suppressed();
        } else {
            nic.rx(queue).note_signalled();
        }
    }
}

const MARKED: PacketInfo = PacketInfo { len: 100, marked: true };
const PLAIN: PacketInfo = PacketInfo {
    len: 1500,
    marked: false,
};

#[test]
fn every_step_of_a_packet_is_recorded_with_its_time_and_reason() {
    let dma = DmaModel {
        setup_ns: 1000,
        ..DmaModel::ZERO
    };
    let mut nic = card(StrategyKind::Stream, dma);
    nic.start_recorder(4096);
    nic.rx(1).arrive(t(100), MARKED).expect("room");
    nic.rx(1).arrive(t(300), PLAIN).expect("room");
    nic.note_forwarded(t(400), 3, 4500);
    nic.note_dropped(t(450), 7);
    poll(&mut nic, 1, 5000);
    let told: Vec<_> = records(&mut nic)
        .iter()
        .map(|r| (r.at.as_nanos(), r.kind, r.queue, r.count, r.number, r.detail))
        .collect();
    use RecordKind::*;
    assert_eq!(
        told,
        [
            (400, Forward, 0, 3, 4500, 0),
            (450, Drop, 0, 1, 0, 7),
            (100, Arrive, 1, 1, 100, 0),
            (100, Mark, 1, 1, 0, 0),
            (100, DmaStart, 1, 1, 0, 0),
            (300, Arrive, 1, 1, 1500, 0),
            // The one engine is busy until then.
            (1100, DmaStart, 1, 1, 0, 0),
            (1100, DmaEnd, 1, 1, 0, 0),
            (1100, Defer, 1, 1, 0, 0),
            (2100, DmaEnd, 1, 1, 0, 0),
            (2100, Raise, 1, 2, 1, Reason::Deferred as u8),
            (5000, Signal, 1, 1, 0, 0),
        ]
    );
    assert!(records(&mut nic).is_empty(), "taken");
    nic.stop_recorder();
    nic.rx(0).arrive(t(6000), PLAIN).expect("room");
    assert!(!nic.is_recording() && records(&mut nic).is_empty());
}

#[test]
fn packets_that_come_together_are_one_record_and_nothing_is_lost_in_the_sums() {
    for strategy in StrategyKind::ALL.iter().copied() {
        let mut nic = card(strategy, DmaModel::ZERO);
        nic.start_recorder(RECORDER_EVENTS_MAX);
        let (mut bytes, mut marks) = (0, 0);
        for round in 0..200u64 {
            let now = round * 10_000;
            for n in 0..round % 70 {
                let packet = if n % 5 == round % 7 { MARKED } else { PLAIN };
                bytes += u64::from(packet.len);
                marks += u32::from(packet.marked);
                nic.rx(0).arrive(t(now), packet).expect("room");
            }
            let together: [_; 9] = std::array::from_fn(|n| if n as u64 == round % 11 { MARKED } else { PLAIN });
            for packet in together {
                bytes += u64::from(packet.len);
                marks += u32::from(packet.marked);
            }
            nic.rx(0).arrive_together(t(now), together.into_iter()).expect("room");
            poll(&mut nic, 0, now);
        }
        poll(&mut nic, 0, 1_000_000_000);
        let told = records(&mut nic);
        let of = |kind| told.iter().filter(move |record| record.kind == kind);
        let counts = nic.counters(None).expect("all").total();
        let sum = |kind| of(kind).map(|record| u64::from(record.count)).sum::<u64>();
        assert_eq!(sum(RecordKind::Arrive), counts.packets, "{strategy}");
        assert_eq!(of(RecordKind::Arrive).map(|record| record.number).sum::<u64>(), bytes);
        assert_eq!(sum(RecordKind::Mark), u64::from(marks));
        assert_eq!(sum(RecordKind::DmaEnd), counts.packets);
        assert_eq!(of(RecordKind::Raise).count() as u64, counts.decided_total());
        assert_eq!(sum(RecordKind::Raise), counts.packets, "each announced once");
        assert_eq!(
            sum(RecordKind::Signal) + sum(RecordKind::Suppress),
            counts.decided_total()
        );
        assert_eq!(sum(RecordKind::Defer), counts.deferred);
        for reason in Reason::ALL {
            let raised = of(RecordKind::Raise).filter(|record| record.detail == reason as u8);
            assert_eq!(raised.count() as u64, counts.decided_for(reason), "{reason}");
        }
        if strategy == StrategyKind::Timeout {
            assert_eq!(of(RecordKind::DmaEnd).count(), 200, "one record for a batch");
        }
    }
}

#[test]
fn recorder_marks_of_packets_that_arrive_together_are_recorded_with_the_arrival() {
    let mut nic = card(StrategyKind::Timeout, DmaModel::ZERO);
    nic.start_recorder(4096);
    for (now, packets) in [(100, [PLAIN, MARKED, PLAIN, MARKED]), (200, [PLAIN; 4])] {
        nic.rx(1).arrive_together(t(now), packets.into_iter()).expect("room");
    }
    let told: Vec<_> = records(&mut nic)
        .iter()
        .map(|r| (r.at.as_nanos(), r.kind, r.queue, r.count, r.number))
        .collect();
    use RecordKind::{Arrive, Mark};
    assert_eq!(
        told,
        [
            (100, Arrive, 1, 4, 3200),
            (100, Mark, 1, 2, 0),
            (200, Arrive, 1, 4, 6000)
        ]
    );
}

#[test]
fn recorder_every_interrupt_has_a_record_of_its_own_even_at_one_instant_for_one_reason() {
    let mut nic = card(StrategyKind::Timeout, DmaModel::ZERO);
    nic.start_recorder(4096);
    for _ in 0..3 {
        nic.rx(1).ring(t(100));
        assert!(matches!(nic.rx(1).poll(t(100)), Some(Event::Interrupt(_))));
    }
    let told: Vec<_> = records(&mut nic)
        .iter()
        .map(|r| (r.at.as_nanos(), r.kind, r.detail, r.count, r.number))
        .collect();
    let raise = |sequence| (100, RecordKind::Raise, Reason::Clock as u8, 0, sequence);
    assert_eq!(told, [raise(1), raise(2), raise(3)]);
}

#[test]
fn recorder_what_was_lost_is_told_of_the_queue_that_lost_it() {
    let mut nic = card(StrategyKind::Timeout, DmaModel::ZERO);
    nic.start_recorder(RECORDER_EVENTS_MIN);
    nic.rx(0).arrive(t(7), PLAIN).expect("room");
    for n in 0..RECORDER_EVENTS_MIN as u64 + 5 {
        nic.rx(1).arrive(t(n), PLAIN).expect("room");
    }
    let told = records(&mut nic);
    let lost: Vec<_> = told.iter().filter(|record| record.kind == RecordKind::Lost).collect();
    let expected = Record {
        queue: 1,
        count: 0,
        number: 5,
        ..Record::new(t(5), RecordKind::Lost)
    };
    assert_eq!(lost, [&expected]);
}

#[test]
fn a_recorder_decides_nothing() {
    for strategy in StrategyKind::ALL.iter().copied() {
        let mut events = [Vec::new(), Vec::new()];
        for (on, events) in [false, true].into_iter().zip(&mut events) {
            let mut nic = card(strategy, DmaModel::ZERO);
            if on {
                nic.start_recorder(0);
            }
            for round in 0..300u64 {
                let now = t(round * 7_000);
                for n in 0..round % 5 {
                    let packet = if n == 1 { MARKED } else { PLAIN };
                    nic.rx(0).arrive(now, packet).expect("room");
                }
                events.extend(std::iter::from_fn(|| nic.rx(0).poll(now)));
                events.extend(nic.next_event().and_then(|at| nic.rx(0).poll(at)));
            }
        }
        assert_eq!(events[0], events[1], "{strategy}");
    }
}

#[test]
fn a_full_ring_forgets_the_oldest_and_says_how_many() {
    let mut recorder = Recorder::new(0);
    let room = RECORDER_EVENTS_MIN as u64;
    for n in 0..room + 40 {
        recorder.note(Record::new(t(n), RecordKind::Drop));
    }
    assert_eq!((recorder.len() as u64, recorder.overwritten()), (room, 40));
    let mut told = Vec::new();
    recorder.drain(|record| told.push(*record));
    assert_eq!(
        (told[0].kind, told[0].number, told[0].at),
        (RecordKind::Lost, 40, t(40))
    );
    let times: Vec<_> = told[1..].iter().map(|record| record.at.as_nanos()).collect();
    assert_eq!(times, (40..room + 40).collect::<Vec<_>>());
    assert!(recorder.is_empty());
    assert_eq!(recorder.overwritten(), 40);
    recorder.note(Record::new(t(1), RecordKind::Arrive));
    recorder.note(Record::new(t(1), RecordKind::Arrive));
    let mut told = Vec::new();
    recorder.drain(|record| told.push(*record));
    assert_eq!(
        (told.len(), told[0].count),
        (1, 2),
        "at one instant they are one record"
    );
}

/// Adds a record to a list as its documentation says, and no cleverer.
fn note_plainly(told: &mut Vec<Record>, record: Record) {
    let what = |record: &Record| (record.at, record.kind, record.queue, record.detail);
    if let Some(last) = told.last_mut()
        && record.kind != RecordKind::Raise
        && what(last) == what(&record)
    {
        last.count += record.count;
        last.number += record.number;
    } else {
        told.push(record);
    }
}

#[test]
fn however_records_are_kept_they_come_out_as_they_were_noted() {
    use RecordKind::{Arrive, DmaEnd, Mark, Raise, Signal, Suppress};
    for seed in 0..2_000_u64 {
        let mut state = seed;
        let mut below = |limit: u64| {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 33) % limit
        };
        let mut recorder = Recorder::new(0);
        let (mut now, mut noted) = (0, Vec::new());
        for sequence in 0..below(200) {
            now += below(3) / 2;
            let kind = [Arrive, DmaEnd, DmaEnd, Mark, Raise, Raise, Signal, Suppress][below(8) as usize];
            let record = Record {
                detail: if kind == Raise { below(3) as u8 } else { 0 },
                queue: (below(8) == 0).into(),
                count: if matches!(kind, Signal | Suppress) {
                    1
                } else {
                    1 + below(2) as u32
                },
                number: if kind == Raise { sequence } else { 0 },
                ..Record::new(t(now), kind)
            };
            recorder.note(record);
            note_plainly(&mut noted, record);
        }
        let (kept, mut told) = (recorder.len(), Vec::new());
        let mut records = 0;
        recorder.drain(|record| {
            records += 1;
            note_plainly(&mut told, *record);
        });
        assert_eq!((told, records), (noted, kept), "seed {seed}");
    }
}

#[test]
fn what_is_kept_and_what_was_overwritten_is_all_that_was_noted() {
    let mut recorder = Recorder::new(0);
    let rounds = 2 * RECORDER_EVENTS_MIN as u64 + 7;
    for n in 0..rounds {
        for kind in [RecordKind::DmaEnd, RecordKind::Raise, RecordKind::Suppress] {
            recorder.note(Record::new(t(n), kind));
        }
    }
    let (kept, overwritten) = (recorder.len() as u64, recorder.overwritten());
    assert!(kept >= RECORDER_EVENTS_MIN as u64);
    assert_eq!(kept + overwritten, 3 * rounds);
    let mut told = Vec::new();
    recorder.drain(|record| told.push(*record));
    assert_eq!((told[0].kind, told[0].number), (RecordKind::Lost, overwritten));
    assert_eq!(told.len() as u64, 1 + kept);
}

#[test]
fn records_survive_the_trip_through_bytes_and_unknown_kinds_are_refused() {
    for kind in RecordKind::ALL {
        let record = Record {
            at: t(0x0102_0304_0506_0708),
            kind,
            detail: 9,
            queue: 0x0a0b,
            count: 0x0c0d_0e0f,
            number: u64::MAX - 3,
        };
        assert_eq!(Record::from_bytes(&record.to_bytes()), Some(record));
    }
    let mut bytes = Record::new(t(5), RecordKind::Drop).to_bytes();
    assert_eq!(bytes[..11], [5, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0]);
    bytes[8] = 11;
    assert_eq!(Record::from_bytes(&bytes), None);
}

#[test]
fn nothing_is_allocated_while_it_records() {
    let mut nic = card(StrategyKind::Stream, DmaModel::ZERO);
    nic.start_recorder(1024);
    let info = allocation_counter::measure(|| {
        for round in 0..2000u64 {
            let now = round * 3_000;
            for n in 0..20 {
                let packet = if n % 3 == 0 { MARKED } else { PLAIN };
                nic.rx(n % 2).arrive(t(now), packet).expect("room");
            }
            poll(&mut nic, 0, now);
            poll(&mut nic, 1, now);
        }
    });
    assert_eq!(info.count_total, 0);
}
