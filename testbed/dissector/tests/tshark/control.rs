//! Tests the control-frame part of the dissector against `firmware::control`, on generated requests and a card's
//! replies.

mod expected;

use expected::{expected_reply, expected_request, lateness};

use crate::common::{Fields, Numbers, number, tshark};
use ether::{MacAddr, Time};
use firmware::{
    CONTROL_FRAME_MAX, Card, CardConfig, CoalescingChange, HostRecordCounters, HostRecordPlace, Lateness, Reason,
    RxCounts, SteeringChange, SteeringMode, SteeringTable, StrategyKind, TableChange, TableEntries, TimerKind,
    control::{HostRecordReport, Reply, Request, StrategyCode, doorbell_frame},
    copy_engine::CopyEngineConfig,
    timers::Expiry,
};

const EXPERT: &str = "_ws.expert.message";
const GUEST: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);

/// Returns the names of the counters in the order of [`RxCounts`].
fn counters(counts: &RxCounts) -> Vec<(String, u64)> {
    let plain = [
        ("packets", counts.packets),
        ("bytes", counts.bytes),
        ("marked", counts.marked),
        ("announced", counts.announced),
        ("discarded", counts.discarded),
        ("refused_full", counts.refused_full),
        ("deferred", counts.deferred),
        ("suppressed", counts.suppressed),
        ("signalled", counts.signalled),
        ("polled", counts.polled),
    ];
    let plain = plain.into_iter().map(|(name, value)| (name.to_owned(), value));
    // Reasons of a strategy are reported only as the difference between the reasons and the histogram.
    let told = Reason::ALL.into_iter().filter(|reason| *reason != Reason::Strategy);
    let decided = told.map(|reason| {
        (
            format!("decided.{}", reason.name().replace('-', "_")),
            counts.decided_for(reason),
        )
    });
    let histogram = counts
        .packets_per_interrupt
        .iter()
        .map(|(from, _, count)| (format!("packets_per_interrupt.{from}"), count));
    plain.chain(decided).chain(histogram).collect()
}

fn fields() -> Vec<String> {
    let fixed = [
        "version",
        "operation",
        "reply",
        "id",
        "status",
        "body_length",
        "reason",
        "version_min",
        "version_max",
        "queue_pairs",
        "strategies_total",
        "strategies_told",
        "abilities",
        "strategies",
        "delay_ns_max",
        "frames_max_max",
        "queue",
        "changes",
        "strategy",
        "delay_ns",
        "frames_max",
        "marks",
        "steering_mode",
        "steering_even",
        "queues_ready",
        "table",
        "entries",
        "first_entry",
        "by_endpoint",
        "by_flow",
        "to_first",
        "group",
        "members",
        "sent",
        "given_up",
        "adapts",
        "packets_per_s",
        "longer",
        "shorter",
        "delay_ns_min",
        "timer",
        "timer_kind",
        "time_ns",
        "record_key",
        "record_address",
        "record_is_read",
        "record_exact",
        "record_inferred",
        "record_unreachable",
        "record_replaced",
        "record_refused",
        "is_armed",
        "armed_now",
        "shortest_ns",
        "longest_ns",
        "late_ns",
        "ring",
        "started",
        "cancelled",
        "restarted_disabled",
        "restarted_progress",
        "restarted_pending",
        "fired",
        "armed",
        "disarmed",
        "rung_once",
        "lost",
        "clock_idle",
        "clock_polled",
        "clock_rung",
        "clock_missed",
    ];
    let late = lateness(&Lateness::default()).into_iter().map(|(name, _)| name);
    let copies = [
        "mtu",
        "queue_max",
        "submit_ns",
        "submitted",
        "submitted_bytes",
        "frames",
        "moved_bytes",
        "completed",
        "refused.overlap",
        "refused.misaligned",
    ];
    let names = fixed.into_iter().map(str::to_owned).chain(late);
    let names = names.chain(copies.iter().map(|name| format!("copy.{name}")));
    let counters = counters(&RxCounts::default()).into_iter().map(|(name, _)| name);
    let mut list: Vec<String> = names.chain(counters).map(|name| format!("weftctl.{name}")).collect();
    list.push(EXPERT.to_owned());
    list.push("_ws.col.Info".to_owned());
    list
}

fn read(frames: &[Vec<u8>]) -> Vec<Fields> {
    let frames: Vec<_> = frames.iter().map(|frame| (frame.clone(), frame.len())).collect();
    let fields = fields();
    tshark(&frames, &[], &fields.iter().map(String::as_str).collect::<Vec<_>>())
}

fn host_record_report(id: u16, queue: u16, is_read: bool) -> HostRecordReport {
    HostRecordReport {
        queue,
        is_read,
        counters: HostRecordCounters {
            exact: u64::from(id) << 33,
            inferred: 2,
            unreachable: 3,
            replaced: 4,
            refused: 5,
        },
    }
}

fn record_place(numbers: &mut Numbers) -> HostRecordPlace {
    HostRecordPlace {
        address: numbers.below(1 << 40) as u64 * 32,
        key: 1 + numbers.below(1 << 31) as u32,
    }
}

fn set_steering(numbers: &mut Numbers, table: SteeringTable) -> Request {
    let queues: Vec<_> = (0..numbers.below(5)).map(|_| numbers.below(5) as u8).collect();
    let entries = TableEntries::new(numbers.below(130) as u16, &queues);
    let change = entries.map_or(TableChange::Even, TableChange::Entries);
    Request::SetSteering {
        change: SteeringChange {
            mode: (numbers.below(2) == 0).then(|| SteeringMode::ALL[numbers.below(3)]),
            table: (numbers.below(2) == 0).then_some((table, change)),
            proposed: numbers.below(2) == 0,
        },
    }
}

fn request(numbers: &mut Numbers) -> Request {
    let queue = numbers.below(6) as u16;
    let strategy = StrategyKind::ALL[numbers.below(StrategyKind::COUNT)];
    let some = |numbers: &mut Numbers| numbers.below(2) == 0;
    let table = [SteeringTable::Endpoints, SteeringTable::Indirection][numbers.below(2)];
    match numbers.below(17) {
        10 => Request::JoinGroup { group: queue },
        11 => Request::LeaveGroup { group: queue },
        9 => Request::GetGroups { after: queue },
        7 => Request::GetSteering {
            table,
            first: numbers.below(270) as u16,
        },
        8 => set_steering(numbers, table),
        14 => Request::GetCopyEngine,
        16 => {
            let place = some(numbers).then(|| record_place(numbers));
            Request::SetHostRecord { queue, place }
        }
        15 => Request::GetStrategies {
            first: StrategyCode(numbers.below(9) as u8),
        },
        0 => Request::Hello {
            version_min: numbers.below(2) as u8,
            version_max: 1 + numbers.below(3) as u8,
        },
        1 => Request::GetCoalescing { queue },
        2 => Request::SetCoalescing {
            queue: some(numbers).then_some(queue),
            change: CoalescingChange {
                strategy: some(numbers).then_some(strategy.into()),
                delay_ns: some(numbers).then(|| numbers.below(1_500_000_000) as u64),
                frames_max: some(numbers).then(|| numbers.below(1200) as u32),
                marks: some(numbers).then(|| numbers.below(2) == 0),
            },
        },
        3 => Request::GetCounters {
            queue: some(numbers).then_some(queue),
            strategy: some(numbers).then_some(strategy.into()),
        },
        4 => Request::GetWatchdog {
            queue: some(numbers).then_some(queue),
        },
        5 => Request::SetWatchdog {
            queue: some(numbers).then_some(queue),
            delay_ns: numbers.below(1_500_000_000) as u64,
        },
        6 => Request::GetAdaptive { queue },
        _ if some(numbers) => Request::DisarmTimer {
            timer: some(numbers).then(|| numbers.below(9) as u16),
        },
        _ => Request::ArmTimer {
            timer: numbers.below(9) as u16,
            kind: if some(numbers) {
                TimerKind::Once
            } else {
                TimerKind::Clock
            },
            time_ns: numbers.below(4_200_000_000) as u64,
        },
    }
}

#[test]
fn every_request_and_reply_is_read_as_both_ends_read_it() {
    let mut numbers = Numbers(7);
    let mut nic = Card::new(CardConfig {
        queue_pairs: 4,
        ..CardConfig::default()
    });
    nic.connect_to_itself(CopyEngineConfig::IO_AT);
    let mut frames = Vec::new();
    let mut wanted = Vec::new();
    for id in 0..1500_u16 {
        let engine = nic.copy_engine_mut().unwrap();
        // Some of the requests are refused, some are cut.
        _ = engine.icopy(
            Time::ZERO,
            numbers.below(9000) as u64,
            4000,
            4 + numbers.below(9000) as u32,
        );
        while engine.poll(Time::MAX).is_some() {}
        let request = request(&mut numbers);
        let mut frame = [0; CONTROL_FRAME_MAX];
        let len = request.encode(GUEST, id, &mut frame);
        // The requests are slow enough for the card to answer all of them.
        let mut reply = [0; CONTROL_FRAME_MAX];
        let now = Time::from_nanos(u64::from(id) * 2_000_000);
        let mut reply_len = nic.handle_control(now, &frame[..len], &mut reply);
        if let Some(request) = nic.take_group_request() {
            reply_len = nic.answer_group(request, Ok(()), &mut reply);
        }
        if let Some(request) = nic.take_host_record_request() {
            let report = host_record_report(id, request.queue, request.place.is_some());
            reply_len = nic.answer_host_record(request, Ok(report), &mut reply);
        }
        assert!(reply_len > 0);
        frames.extend([frame[..len].to_vec(), reply[..reply_len].to_vec()]);
        wanted.push((id, request, Reply::decode(&reply[..reply_len]).unwrap().1));
    }
    let rows = read(&frames);
    let mut refused = 0;
    for (pair, (id, request, reply)) in rows.chunks(2).zip(&wanted) {
        let show = |name: &str, row: &Fields| number(row, &format!("weftctl.{name}"));
        assert_eq!(
            (show("id", &pair[0]), show("reply", &pair[0])),
            (Some((*id).into()), Some(0))
        );
        assert_eq!(
            (show("id", &pair[1]), show("reply", &pair[1])),
            (Some((*id).into()), Some(1))
        );
        assert_eq!(pair[0].get(EXPERT), None, "{request:?}");
        for (name, value) in expected_request(request) {
            assert_eq!(show(name, &pair[0]), Some(value), "{name} of {request:?}");
        }
        for (name, value) in expected_reply(reply) {
            assert_eq!(show(&name, &pair[1]), Some(value), "{name} of {reply:?}");
        }
        let reason = pair[1].get("weftctl.reason").map(String::as_str);
        match reply {
            Reply::Refused(refusal) => {
                refused += 1;
                assert_eq!(reason, Some(&*refusal.reason));
                assert_eq!(pair[1].get(EXPERT).map(String::as_str), Some("refused"));
            }
            _ => assert_eq!((reason, pair[1].get(EXPERT)), (None, None)),
        }
    }
    assert!(refused > 50 && refused < 1400, "both outcomes are there: {refused}");
}

#[test]
fn m_bv10_a_doorbell_that_the_card_sends_unasked_is_read() {
    let expiry = Expiry {
        timer: 17,
        owner: GUEST,
        kind: TimerKind::Clock,
        due: Time::ZERO,
        late_ns: 12_345,
        sequence: 1 << 40,
    };
    let mut frame = [0; CONTROL_FRAME_MAX];
    let len = doorbell_frame(&expiry, &mut frame);
    let rows = read(&[frame[..len].to_vec()]);
    let show = |name: &str| number(&rows[0], &format!("weftctl.{name}"));
    for (name, value) in expected_reply(&Reply::decode(&frame[..len]).unwrap().1) {
        assert_eq!(show(&name), Some(value), "{name}");
    }
    assert_eq!(
        (show("operation"), show("id"), rows[0].get(EXPERT)),
        (Some(11), Some(0), None)
    );
}

#[test]
fn counters_that_are_not_zero_are_under_the_right_names() {
    // A reply whose 64-bit values are 1, 2, 3, … is read by the decoder and by the dissector.
    let mut nic = Card::new(CardConfig::default());
    let (mut frame, mut reply) = ([0; CONTROL_FRAME_MAX], [0; CONTROL_FRAME_MAX]);
    let len = Request::GetCounters {
        queue: None,
        strategy: None,
    }
    .encode(GUEST, 1, &mut frame);
    let reply_len = nic.handle_control(Time::ZERO, &frame[..len], &mut reply);
    for (value, bytes) in (1_u64..).zip(reply[28..reply_len].chunks_exact_mut(8)) {
        bytes.copy_from_slice(&(value * 0x0001_0000_0001).to_be_bytes());
    }
    let (_, Reply::GetCounters(report)) = Reply::decode(&reply[..reply_len]).unwrap() else {
        panic!("not counters")
    };
    let rows = read(&[reply[..reply_len].to_vec()]);
    for (name, value) in counters(&report.counts) {
        assert!(value > 0);
        assert_eq!(number(&rows[0], &format!("weftctl.{name}")), Some(value), "{name}");
    }
}

#[test]
fn malformed_requests_are_marked_and_foreign_frames_left_alone() {
    let mut good = [0; CONTROL_FRAME_MAX];
    let len = Request::GetCoalescing { queue: 0 }.encode(GUEST, 9, &mut good);
    let change = |at: usize, value: u8| {
        let mut frame = good[..len].to_vec();
        frame[at] = value;
        frame
    };
    let frames = [
        good[..len].to_vec(),
        change(16, 2),  // version
        change(17, 99), // operation
        change(21, 1),  // status of a request
        change(23, 5),  // body length of another operation
        change(22, 1),  // body longer than the frame
        change(14, 0),  // another's magic
        good[..20].to_vec(),
        [&good[..len], &[0; 200]].concat(),
    ];
    let rows = read(&frames);
    let experts: Vec<Option<&str>> = rows.iter().map(|row| row.get(EXPERT).map(String::as_str)).collect();
    assert_eq!(
        experts,
        [
            None,
            Some("not version 1"),
            Some("unknown operation"),
            Some("the status of a request must be zero"),
            Some("the body does not have the length of this operation"),
            Some("the body is longer than the frame"),
            None,
            None,
            Some("longer than a control frame may be"),
        ]
    );
    assert_eq!(rows[0]["_ws.col.Info"], "GET_COALESCING request, id 9");
    assert!(!rows[6].contains_key("weftctl.version"), "left alone");
}
