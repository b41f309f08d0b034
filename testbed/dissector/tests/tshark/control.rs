//! The control-frame part of the dissector against `firmware::control`, on generated requests and a card's replies.

use crate::common::{Fields, Numbers, number, tshark};
use ether::{MacAddr, Time};
use firmware::{
    CONTROL_FRAME_MAX, CoalescingChange, Firmware, FirmwareConfig, Lateness, Reason, RxCounts, SteeringChange,
    SteeringMode, SteeringTable, StrategyKind, TableChange, TableEntries, TimerKind,
    control::{Reply, Request, doorbell_frame},
    copy_engine::CopyEngineConfig,
    timers::Expiry,
};

const EXPERT: &str = "_ws.expert.message";
const GUEST: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);

/// Names of the counters in the order of [`RxCounts`].
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
    let decided = Reason::ALL.into_iter().map(|reason| {
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

fn request(numbers: &mut Numbers) -> Request {
    let queue = numbers.below(6) as u16;
    let strategy = StrategyKind::ALL[numbers.below(StrategyKind::COUNT)];
    let some = |numbers: &mut Numbers| numbers.below(2) == 0;
    let table = [SteeringTable::Endpoints, SteeringTable::Indirection][numbers.below(2)];
    match numbers.below(15) {
        10 => Request::JoinGroup { group: queue },
        11 => Request::LeaveGroup { group: queue },
        9 => Request::GetGroups { after: queue },
        7 => Request::GetSteering {
            table,
            first: numbers.below(270) as u16,
        },
        8 => {
            let queues: Vec<_> = (0..numbers.below(5)).map(|_| numbers.below(5) as u8).collect();
            let entries = TableEntries::new(numbers.below(130) as u16, &queues);
            let change = entries.map_or(TableChange::Even, TableChange::Entries);
            Request::SetSteering {
                change: SteeringChange {
                    mode: some(numbers).then(|| SteeringMode::ALL[numbers.below(3)]),
                    table: some(numbers).then_some((table, change)),
                },
            }
        }
        14 => Request::GetCopyEngine,
        0 => Request::Hello {
            version_min: numbers.below(2) as u8,
            version_max: 1 + numbers.below(3) as u8,
        },
        1 => Request::GetCoalescing { queue },
        2 => Request::SetCoalescing {
            queue: some(numbers).then_some(queue),
            change: CoalescingChange {
                strategy: some(numbers).then_some(strategy),
                delay_ns: some(numbers).then(|| numbers.below(1_500_000_000) as u64),
                frames_max: some(numbers).then(|| numbers.below(1200) as u32),
                marks: some(numbers).then(|| numbers.below(2) == 0),
            },
        },
        3 => Request::GetCounters {
            queue: some(numbers).then_some(queue),
            strategy: some(numbers).then_some(strategy),
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

fn lateness(lateness: &Lateness) -> Vec<(String, u64)> {
    let max = ("late_max_ns".to_owned(), lateness.max_ns());
    let counts = lateness.counts().iter().enumerate();
    let classes = counts.map(|(bucket, &count)| match Lateness::bound_ns(bucket + 1) {
        Some(_) => (format!("late.{}", 1 << bucket), count),
        None => ("late.more".to_owned(), count),
    });
    [max].into_iter().chain(classes).collect()
}

fn expected_request(request: &Request) -> Vec<(&'static str, u64)> {
    match *request {
        Request::Hello {
            version_min,
            version_max,
        } => {
            vec![
                ("operation", 1),
                ("version_min", version_min.into()),
                ("version_max", version_max.into()),
            ]
        }
        Request::GetCoalescing { queue } => vec![("operation", 2), ("queue", queue.into())],
        Request::SetCoalescing { queue, change } => vec![
            ("operation", 3),
            ("queue", queue.unwrap_or(0xffff).into()),
            ("strategy", change.strategy.map_or(0, StrategyKind::code).into()),
            ("delay_ns", change.delay_ns.unwrap_or(0)),
            ("frames_max", change.frames_max.unwrap_or(0).into()),
            ("marks", change.marks.unwrap_or(false).into()),
        ],
        Request::GetCopyEngine => vec![("operation", 15)],
        Request::GetCounters { queue, strategy } => vec![
            ("operation", 4),
            ("queue", queue.unwrap_or(0xffff).into()),
            ("strategy", strategy.map_or(0xff, StrategyKind::code).into()),
        ],
        Request::GetAdaptive { queue } => vec![("operation", 16), ("queue", queue.into())],
        Request::JoinGroup { group } => vec![("operation", 12), ("group", group.into())],
        Request::LeaveGroup { group } => vec![("operation", 13), ("group", group.into())],
        Request::GetGroups { after } => vec![("operation", 14), ("group", after.into())],
        Request::GetSteering { table, first } => vec![
            ("operation", 5),
            ("table", table.code().into()),
            ("first_entry", first.into()),
        ],
        Request::SetSteering { change } => {
            let (table, entries) = match change.table {
                None => (0, None),
                Some((table, TableChange::Even)) => (table.code(), None),
                Some((table, TableChange::Entries(entries))) => (table.code(), Some(entries)),
            };
            vec![
                ("operation", 6),
                ("steering_mode", change.mode.map_or(0, SteeringMode::code).into()),
                ("table", table.into()),
                ("entries", entries.map_or(0, |entries| entries.queues().len() as u64)),
                ("first_entry", entries.map_or(0, |entries| entries.first().into())),
            ]
        }
        Request::GetWatchdog { queue } => vec![("operation", 7), ("queue", queue.unwrap_or(0xffff).into())],
        Request::SetWatchdog { queue, delay_ns } => vec![
            ("operation", 8),
            ("queue", queue.unwrap_or(0xffff).into()),
            ("delay_ns", delay_ns),
        ],
        Request::ArmTimer { timer, kind, time_ns } => vec![
            ("operation", 9),
            ("timer", timer.into()),
            ("timer_kind", (kind == TimerKind::Clock).into()),
            ("time_ns", time_ns),
        ],
        Request::DisarmTimer { timer } => vec![("operation", 10), ("timer", timer.unwrap_or(0xffff).into())],
    }
}

fn expected_reply(reply: &Reply) -> Vec<(String, u64)> {
    let named = |list: &[(&str, u64)]| {
        list.iter()
            .map(|(name, value)| ((*name).to_owned(), *value))
            .collect::<Vec<_>>()
    };
    match reply {
        Reply::Hello(card) => named(&[
            ("status", 0),
            ("queue_pairs", card.queue_pairs.into()),
            ("abilities", card.bits.into()),
            ("strategies", card.strategies.0.into()),
            ("delay_ns_max", card.delay_ns_max.into()),
            ("frames_max_max", card.frames_max_max.into()),
        ]),
        Reply::GetCoalescing(report) | Reply::SetCoalescing(report) => named(&[
            ("status", 0),
            ("queue", report.queue.into()),
            ("strategy", report.coalescing.strategy.code().into()),
            ("delay_ns", report.coalescing.delay_ns),
            ("frames_max", report.coalescing.frames_max.into()),
            ("marks", report.coalescing.marks.into()),
        ]),
        Reply::GetCounters(report) => {
            let mut list = named(&[
                ("status", 0),
                ("queue", report.queue.unwrap_or(0xffff).into()),
                ("strategy", report.strategy.map_or(0xff, StrategyKind::code).into()),
            ]);
            list.extend(counters(&report.counts));
            list
        }
        Reply::GetAdaptive(report) => {
            let state = report.state.unwrap_or_default();
            named(&[
                ("status", 0),
                ("queue", report.queue.into()),
                ("strategy", report.strategy.code().into()),
                ("adapts", report.state.is_some().into()),
                ("delay_ns_max", report.longest_ns),
                ("delay_ns", state.delay_ns),
                ("packets_per_s", state.packets_per_s),
                ("longer", state.longer),
                ("shorter", state.shorter),
            ])
        }
        Reply::JoinGroup(report) | Reply::LeaveGroup(report) | Reply::GetGroups(report) => named(&[
            ("status", 0),
            ("group", report.group.into()),
            ("members", report.members.into()),
            ("sent", report.counters.sent),
            ("given_up", report.counters.given_up),
        ]),
        Reply::GetSteering(report) | Reply::SetSteering(report) => named(&[
            ("status", 0),
            ("steering_mode", report.mode.code().into()),
            (
                "steering_even",
                u64::from(report.endpoints_even) | u64::from(report.indirection_even) << 1,
            ),
            ("queue_pairs", report.queue_pairs.into()),
            ("queues_ready", report.ready.into()),
            ("table", report.table.code().into()),
            ("entries", report.entries.queues().len() as u64),
            ("first_entry", report.entries.first().into()),
            ("by_endpoint", report.counters.by_endpoint),
            ("by_flow", report.counters.by_flow),
            ("to_first", report.counters.to_first),
        ]),
        Reply::GetWatchdog(report) | Reply::SetWatchdog(report) => {
            let counters = &report.counters;
            let mut list = named(&[
                ("status", 0),
                ("queue", report.queue.unwrap_or(0xffff).into()),
                ("delay_ns", report.delay_ns.into()),
                ("delay_ns_min", report.delay_ns_min.into()),
                ("delay_ns_max", report.delay_ns_max.into()),
                ("started", counters.started),
                ("cancelled", counters.cancelled),
                ("restarted_disabled", counters.restarted_disabled),
                ("restarted_progress", counters.restarted_progress),
                ("restarted_pending", counters.restarted_pending),
                ("fired", counters.fired),
            ]);
            list.extend(lateness(&counters.lateness));
            list
        }
        Reply::ArmTimer(report) | Reply::DisarmTimer(report) => {
            let counters = &report.counters;
            let mut list = named(&[
                ("status", 0),
                ("timer", report.timer.unwrap_or(0xffff).into()),
                ("is_armed", report.is_armed.into()),
                ("armed_now", report.armed.into()),
                ("shortest_ns", report.shortest_ns.into()),
                ("longest_ns", report.longest_ns.into()),
                ("armed", counters.armed),
                ("disarmed", counters.disarmed),
                ("rung_once", counters.rung_once),
                ("lost", counters.lost),
                ("clock_idle", counters.clocks.idle),
                ("clock_polled", counters.clocks.polled),
                ("clock_rung", counters.clocks.rung),
                ("clock_missed", counters.clocks.missed),
            ]);
            list.extend(lateness(&counters.lateness));
            list
        }
        Reply::TimerExpired(doorbell) => named(&[
            ("timer", doorbell.timer.into()),
            ("timer_kind", (doorbell.kind == TimerKind::Clock).into()),
            ("late_ns", doorbell.late_ns.into()),
            ("ring", doorbell.sequence),
        ]),
        Reply::GetCopyEngine(report) => named(&[
            ("status", 0),
            ("copy.mtu", report.mtu.into()),
            ("copy.queue_max", report.queue_max.into()),
            ("copy.submit_ns", report.submit_ns.into()),
            ("copy.submitted", report.counters.submitted),
            ("copy.submitted_bytes", report.counters.submitted_bytes),
            ("copy.frames", report.counters.frames),
            ("copy.moved_bytes", report.counters.moved_bytes),
            ("copy.completed", report.counters.completed),
            ("copy.refused.overlap", report.counters.refused[1]),
            ("copy.refused.misaligned", report.counters.refused[4]),
        ]),
        Reply::Refused(refusal) => named(&[("status", refusal.code.into())]),
    }
}

#[test]
fn every_request_and_reply_is_read_as_both_ends_read_it() {
    let mut numbers = Numbers(7);
    let mut nic = Firmware::new(FirmwareConfig {
        queue_pairs: 4,
        ..FirmwareConfig::default()
    });
    nic.connect_to_itself(CopyEngineConfig::IO_AT);
    let mut frames = Vec::new();
    let mut wanted = Vec::new();
    for id in 0..1500_u16 {
        let engine = nic.copy_engine_mut().unwrap();
        // Some of them are refused, some are cut.
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
        // Slow enough for the card to answer all of them.
        let mut reply = [0; CONTROL_FRAME_MAX];
        let now = Time::from_nanos(u64::from(id) * 2_000_000);
        let mut reply_len = nic.handle_control(now, &frame[..len], &mut reply);
        if let Some(request) = nic.take_group_request() {
            reply_len = nic.answer_group(request, Ok(()), &mut reply);
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
    // A reply whose 64-bit values are 1, 2, 3, … read by the decoder and by the dissector.
    let mut nic = Firmware::new(FirmwareConfig::default());
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
