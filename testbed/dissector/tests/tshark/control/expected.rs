//! The fields that the dissector must show of a control request and of a reply.

use firmware::{
    HostRecordPlace, Lateness, SteeringMode, TableChange, TimerKind,
    control::{Reply, Request},
};

use super::counters;

pub fn lateness(lateness: &Lateness) -> Vec<(String, u64)> {
    let max = ("late_max_ns".to_owned(), lateness.max_ns());
    let counts = lateness.counts().iter().enumerate();
    let classes = counts.map(|(bucket, &count)| match Lateness::bound_ns(bucket + 1) {
        Some(_) => (format!("late.{}", 1 << bucket), count),
        None => ("late.more".to_owned(), count),
    });
    [max].into_iter().chain(classes).collect()
}

fn expected_place(queue: u16, place: Option<HostRecordPlace>) -> Vec<(&'static str, u64)> {
    vec![
        ("operation", 18),
        ("queue", queue.into()),
        ("record_key", place.map_or(0, |place| place.key).into()),
        ("record_address", place.map_or(0, |place| place.address)),
    ]
}

pub fn expected_request(request: &Request) -> Vec<(&'static str, u64)> {
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
            ("strategy", change.strategy.map_or(0, |code| code.0).into()),
            ("delay_ns", change.delay_ns.unwrap_or(0)),
            ("frames_max", change.frames_max.unwrap_or(0).into()),
            ("marks", change.marks.unwrap_or(false).into()),
        ],
        Request::GetCopyEngine => vec![("operation", 15)],
        Request::SetHostRecord { queue, place } => expected_place(queue, place),
        Request::GetStrategies { first } => vec![("operation", 17), ("strategy", first.0.into())],
        Request::GetCounters { queue, strategy } => vec![
            ("operation", 4),
            ("queue", queue.unwrap_or(0xffff).into()),
            ("strategy", strategy.map_or(0xff, |code| code.0).into()),
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

pub fn expected_reply(reply: &Reply) -> Vec<(String, u64)> {
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
            ("strategy", report.coalescing.strategy.0.into()),
            ("delay_ns", report.coalescing.delay_ns),
            ("frames_max", report.coalescing.frames_max.into()),
            ("marks", report.coalescing.marks.into()),
        ]),
        Reply::GetCounters(report) => {
            let mut list = named(&[
                ("status", 0),
                ("queue", report.queue.unwrap_or(0xffff).into()),
                ("strategy", report.strategy.map_or(0xff, |code| code.0).into()),
            ]);
            list.extend(counters(&report.counts));
            list
        }
        Reply::GetStrategies(names) => named(&[
            ("status", 0),
            ("strategies_total", names.total.into()),
            ("strategies_told", names.iter().count() as u64),
        ]),
        Reply::GetAdaptive(report) => {
            let state = report.state.unwrap_or_default();
            named(&[
                ("status", 0),
                ("queue", report.queue.into()),
                ("strategy", report.strategy.0.into()),
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
        Reply::SetHostRecord(report) => {
            let counters = report.counters.named();
            let counters = counters.map(|(name, count)| (format!("record_{name}"), count));
            let mut list = named(&[
                ("status", 0),
                ("queue", report.queue.into()),
                ("record_is_read", report.is_read.into()),
            ]);
            list.extend(counters);
            list
        }
        Reply::Refused(refusal) => named(&[("status", refusal.code.into())]),
    }
}
