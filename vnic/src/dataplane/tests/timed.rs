//! The watchdog and the timers of a card at the rings of a guest, in virtual time. The rig's driver is an exact one: it keeps
//! its ring full and gives each buffer back when it has processed it.

use ether::{MacAddr, Time};
use firmware::control::{Reply, Request};
use firmware::{CONTROL_FRAME_MAX, StrategyKind, TimerKind};

use super::introduce;
use crate::dataplane::rig::{RING, Rig, frame, mxoe_frame};

const EVENT_IDX: u64 = 1 << virtio_bindings::virtio_ring::VIRTIO_RING_F_EVENT_IDX;

/// Everything until `to` happens when it is due.
fn run_until(rig: &mut Rig, to: u64) {
    while let Some(at) = rig.next_due().filter(|at| at.as_nanos() <= to) {
        rig.now = rig.now.max(at);
        rig.settle();
    }
    rig.now = Time::from_nanos(to);
    rig.settle();
}

/// Two guests; guest 1 has a watchdog. Returns the present in nanoseconds too.
fn watched(features: u64, watchdog_ns: u64) -> (Rig, u64) {
    let mut rig = Rig::new(&[features, features]);
    introduce(&mut rig, 0, 1);
    rig.set_coalescing(1, StrategyKind::Timeout, 75_000);
    rig.set_watchdog(1, watchdog_ns);
    let now = rig.now.as_nanos();
    (rig, now)
}

/// A frame every 10 µs for 2 ms; guest 1 takes what it got every `polls` frames (0 = never by itself) and whenever it is
/// called. Returns its calls.
fn calls(rig: &mut Rig, polls: u16) -> u64 {
    let start = rig.now.as_nanos();
    let (mut calls, mut taken) = (0, 0);
    for n in 0..200 {
        run_until(rig, start + 10_000 * u64::from(n));
        rig.send(0, n % RING, &frame(1, 0, 60, 0));
        rig.settle();
        rig.completed(0);
        let called = rig.calls(1);
        calls += called;
        if called > 0 || polls != 0 && n % polls == 0 {
            taken += rig.received(1).len();
        }
    }
    taken += rig.received(1).len();
    run_until(rig, start + 20_000_000);
    assert_eq!(taken, 200);
    calls + rig.calls(1)
}

#[test]
fn m_bv8_a_guest_that_polls_is_called_for_nothing_and_one_that_does_not_at_every_second_delay() {
    for features in [0, EVENT_IDX] {
        // Off: the time-out of 75 µs, so every 80 µs. What the guest took by itself at the end is announced too, and an
        // EVENT_IDX driver says that it does not want to hear of it.
        let (mut rig, _) = watched(features, 0);
        assert_eq!(calls(&mut rig, 0), if features == 0 { 25 } else { 24 });
        for (watchdog_ns, expected) in [(100_000, 10), (1_000_000, 1)] {
            let (mut rig, _) = watched(features, watchdog_ns);
            assert_eq!(
                calls(&mut rig, 0),
                expected,
                "{watchdog_ns} ns, a guest that does not poll"
            );
            let stats = rig.stats(1);
            assert_eq!(stats.interrupts.by_reason["watchdog"], expected);
            assert_eq!((stats.watchdog.fired, stats.interrupts.suppressed), (expected, 0));
            let (mut rig, _) = watched(features, watchdog_ns);
            assert_eq!(calls(&mut rig, 3), 0, "{watchdog_ns} ns, a guest that polls");
            let stats = rig.stats(1);
            assert_eq!(stats.interrupts.decided - stats.interrupts.by_reason["every-packet"], 0);
            assert_eq!((stats.interrupts.polled, stats.interrupts.unannounced), (200, 0));
            assert!(stats.watchdog.cancelled + stats.watchdog.restarted_progress > 1);
        }
    }
}

#[test]
fn m_bv9_a_guest_with_calls_switched_off_is_called_a_delay_after_it_switched_them_on() {
    let (mut rig, start) = watched(0, 100_000);
    rig.want_no_calls(1, true);
    rig.send(0, 0, &frame(1, 0, 60, 0));
    rig.settle();
    run_until(&mut rig, start + 950_000);
    let watchdog = rig.stats(1).watchdog;
    assert_eq!((watchdog.restarted_disabled, watchdog.fired, rig.calls(1)), (9, 0, 0));
    // Without telling the card.
    rig.want_no_calls(1, false);
    run_until(&mut rig, start + 999_999);
    assert_eq!(rig.calls(1), 0);
    run_until(&mut rig, start + 1_000_000);
    assert_eq!(rig.calls(1), 1);
    assert_eq!(rig.received(1).len(), 1);
    run_until(&mut rig, start + 5_000_000);
    assert_eq!(
        (rig.calls(1), rig.next_due()),
        (0, None),
        "nothing runs for an idle guest"
    );
}

#[test]
fn m_bv8_a_guest_whose_event_was_passed_over_is_called_by_the_watchdog() {
    let (mut rig, start) = watched(EVENT_IDX, 100_000);
    rig.set_coalescing(1, StrategyKind::OpenMx, 75_000);
    // Its driver polls, and wants no call for what comes now.
    rig.want_call_after(1, RING);
    for n in 0..3 {
        rig.send(0, n, &mxoe_frame(1, 0, 60, true));
        rig.settle();
    }
    let stats = rig.stats(1).interrupts;
    assert_eq!((stats.by_reason["mark"], stats.suppressed, rig.calls(1)), (3, 3, 0));
    // It stops polling, without another check: the event that it asks for is behind all that was decided.
    rig.want_call_after(1, 0);
    run_until(&mut rig, start + 99_999);
    assert_eq!(rig.calls(1), 0);
    run_until(&mut rig, start + 100_000);
    assert_eq!(rig.calls(1), 1);
    let stats = rig.stats(1);
    assert_eq!((stats.watchdog.fired, stats.interrupts.suppressed), (1, 3));
    // It was called, and does not ask for another before it has come.
    run_until(&mut rig, start + 950_000);
    assert_eq!((rig.calls(1), rig.received(1).len()), (0, 3));
    run_until(&mut rig, start + 5_000_000);
    assert_eq!((rig.calls(1), rig.next_due()), (0, None));
}

#[test]
fn m_bv8_what_waited_for_its_time_out_is_not_forgotten_when_the_watchdog_comes_or_goes() {
    let (mut rig, start) = watched(EVENT_IDX, 0);
    rig.send(0, 0, &frame(1, 0, 60, 0));
    rig.settle();
    rig.set_watchdog(1, 200_000);
    run_until(&mut rig, start + 200_000);
    assert_eq!(rig.calls(1), 1);
    rig.received(1);
    run_until(&mut rig, start + 1_000_000);
    rig.send(0, 1, &frame(1, 0, 60, 0));
    rig.settle();
    rig.set_watchdog(1, 0);
    run_until(&mut rig, start + 1_075_000);
    assert_eq!(rig.calls(1), 1);
}

const OWNER: MacAddr = MacAddr([2, 0, 0, 0, 0, 0]);

fn ask(rig: &mut Rig, request: Request) {
    let mut bytes = [0; CONTROL_FRAME_MAX];
    let len = request.encode(OWNER, 1, &mut bytes);
    rig.send(0, 5, &bytes[..len]);
    rig.settle();
    let replies = received(rig);
    assert!(
        matches!(replies[..], [(1, Reply::ArmTimer(_) | Reply::DisarmTimer(_))]),
        "{replies:?}"
    );
    rig.completed(0);
    rig.calls(0);
}

fn received(rig: &mut Rig) -> Vec<(u16, Reply)> {
    let frames = rig.received(0).into_iter().map(|(_, frame)| frame);
    let said = frames.filter_map(|frame| Reply::decode(&frame[..frame.len().min(CONTROL_FRAME_MAX)]).ok());
    said.collect()
}

fn arm(timer: u16, kind: TimerKind, time_ns: u64) -> Request {
    Request::ArmTimer { timer, kind, time_ns }
}

fn doorbells(rig: &mut Rig) -> Vec<u16> {
    let said = received(rig).into_iter().map(|(_, reply)| match reply {
        Reply::TimerExpired(doorbell) => doorbell.timer,
        reply => panic!("{reply:?}"),
    });
    said.collect()
}

#[test]
fn m_bv10_a_timer_rings_with_a_frame_and_a_call_at_once_whatever_the_coalescing() {
    let (mut rig, start) = watched(EVENT_IDX, 0);
    rig.set_coalescing(0, StrategyKind::Timeout, 900_000);
    ask(&mut rig, arm(3, TimerKind::Once, 300_000));
    run_until(&mut rig, start + 299_999);
    assert_eq!((rig.calls(0), doorbells(&mut rig).len()), (0, 0));
    run_until(&mut rig, start + 300_000);
    assert_eq!(rig.calls(0), 1);
    assert_eq!(doorbells(&mut rig), [3]);
    let stats = rig.stats(0);
    assert_eq!(stats.interrupts.by_reason["clock"], 1);
    assert_eq!(
        (
            stats.timers.counters.rung_once,
            stats.timers.armed_now,
            stats.timers.counters.lateness.max_ns()
        ),
        (1, 0, 0)
    );
}

#[test]
fn m_bv10_a_clock_rings_while_its_guest_takes_nothing_but_doorbells() {
    for features in [0, EVENT_IDX] {
        let (mut rig, start) = watched(features, 0);
        ask(&mut rig, arm(9, TimerKind::Clock, 100_000));
        for n in 1..=4u64 {
            run_until(&mut rig, start + 100_000 * n);
            assert_eq!(doorbells(&mut rig), [9], "tick {n}");
        }
        // A guest that processes a frame within each period has polled.
        for n in 5..=8u64 {
            run_until(&mut rig, start + 100_000 * n - 50_000);
            rig.send(1, 1, &frame(0, 1, 60, 0));
            rig.settle();
            rig.completed(1);
            assert_eq!(rig.received(0).len(), 1);
            run_until(&mut rig, start + 100_000 * n);
            assert_eq!(doorbells(&mut rig).len(), 0, "tick {n}");
        }
        run_until(&mut rig, start + 900_000);
        assert_eq!(doorbells(&mut rig), [9]);
        let timers = rig.stats(0).timers;
        assert_eq!(
            (
                timers.counters.clocks.rung,
                timers.counters.clocks.polled,
                timers.counters.clocks.missed
            ),
            (5, 4, 0)
        );
        ask(&mut rig, Request::DisarmTimer { timer: Some(9) });
        assert_eq!(rig.next_due(), None);
    }
}

#[test]
fn m_bv10_a_ring_without_a_buffer_is_lost_and_counted_and_a_stopped_driver_has_no_timers() {
    let (mut rig, start) = watched(0, 0);
    ask(&mut rig, arm(1, TimerKind::Clock, 100_000));
    // The guest takes nothing more, and its ring fills up.
    for index in 0..RING {
        rig.send(1, index, &frame(0, 1, 60, 0));
        rig.settle();
        rig.completed(1);
    }
    run_until(&mut rig, start + 350_000);
    assert_eq!(rig.stats(0).timers.counters.lost, 3);
    rig.stop_receiving(0);
    assert_eq!((rig.stats(0).timers.armed_now, rig.next_due()), (0, None));
}

#[test]
fn m_bv10_timers_of_a_paused_guest_ring_when_it_goes_on_and_those_of_one_that_starts_anew_never() {
    for (is_back, rung) in [(true, 1), (false, 0)] {
        let (mut rig, start) = watched(0, 0);
        ask(&mut rig, arm(1, TimerKind::Once, 300_000));
        let next_avail = rig.plane.card(0).stop_ring(0).expect("it ran");
        // QEMU may say it twice.
        rig.plane.card(0).stop_ring(0);
        run_until(&mut rig, start + 1_000_000);
        let stats = rig.stats(0).timers;
        assert_eq!(
            (stats.armed_now, stats.counters.rung_once, stats.counters.lost),
            (0, 0, 0)
        );
        // A process that comes after this one would have it, too.
        let (told, taken) = rig.plane.take_timers();
        assert_eq!((told.len(), taken.len()), (1, 0));
        rig.start_receiving(0, is_back.then_some(next_avail));
        run_until(&mut rig, start + 2_000_000);
        let stats = rig.stats(0).timers;
        assert_eq!(
            (stats.counters.armed, stats.counters.disarmed),
            (1, u64::from(!is_back))
        );
        assert_eq!(
            (stats.armed_now, stats.counters.rung_once, stats.counters.lost),
            (0, rung, 0)
        );
    }
}

#[test]
fn m_bv10_timers_go_on_in_the_next_process_and_only_for_the_guest_that_armed_them() {
    let mut old = Rig::new(&[0, 0]);
    for (timer, kind) in [(1, TimerKind::Once), (2, TimerKind::Clock)] {
        ask(
            &mut old,
            Request::ArmTimer {
                timer,
                kind,
                time_ns: 300_000,
            },
        );
    }
    let armed_at = old.now.as_nanos();
    old.plane.origin_unix_ns = 5_000_000_000;
    let (told, taken) = old.plane.take_timers();
    assert_eq!((told.len(), taken.len(), told[0].0.as_str()), (2, 2, "g0"));
    run_until(&mut old, armed_at + 2_000_000);
    assert_eq!(
        old.stats(0).timers.counters.rung_once + old.stats(0).timers.counters.clocks.rung,
        0,
        "they are taken"
    );

    // A process that began 100 µs before they are due: the guest is back in time, too late, or is another one.
    let began = 5_000_000_000 + armed_at + 200_000;
    let timers: Vec<_> = told.into_iter().map(|(_, timer)| timer).collect();
    for (back_at, is_back, late) in [(50_000, true, false), (250_000, true, true), (50_000, false, false)] {
        let mut new = Rig::new(&[0, 0]);
        new.now = Time::ZERO;
        new.plane
            .card(0)
            .set_timers_aside(crate::dataplane::timers::timers_from(&timers, began));
        run_until(&mut new, back_at);
        let now = new.now;
        new.plane.card(0).resume_timers(is_back, now);
        run_until(&mut new, 390_000);
        let stats = new.stats(0).timers;
        let expected = if is_back { (1, 1, 1) } else { (0, 0, 0) };
        assert_eq!(
            (stats.armed_now, stats.counters.rung_once, stats.counters.clocks.rung),
            expected
        );
        assert_eq!(stats.counters.lateness.max_ns() >= 150_000, late, "{stats:?}");
    }
    // Whoever drained but did not end has its own back.
    let now = old.now;
    old.plane.put_timers_back(&taken, now);
    run_until(&mut old, armed_at + 2_400_000);
    assert_eq!(old.stats(0).timers.counters.rung_once, 1);
}
