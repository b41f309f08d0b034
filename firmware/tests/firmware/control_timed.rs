//! M-BV8 to M-BV10 over the control protocol: the watchdog and the timers as a guest sets them.

use ether::MacAddr;
use firmware::{
    CONTROL_FRAME_MAX, Card, CardConfig, TimerEvent, TimerKind,
    clock::ClockState,
    control::{Doorbell, RefusalCode, Reply, Request, TimerReport, WatchdogReport, ability, doorbell_frame},
};

use crate::{
    control::{GUEST, ask, frame_of},
    support::{UNMARKED, t},
};

fn card() -> Card {
    Card::new(CardConfig {
        queue_pairs: 2,
        timer_ns_min: 50_000,
        ..CardConfig::default()
    })
}

fn refused(card: &mut Card, request: Request) -> u16 {
    match ask(card, request) {
        Reply::Refused(refusal) => refusal.code,
        reply => panic!("{reply:?}"),
    }
}

fn watchdog(card: &mut Card, request: Request) -> WatchdogReport {
    match ask(card, request) {
        Reply::GetWatchdog(report) | Reply::SetWatchdog(report) => report,
        reply => panic!("{reply:?}"),
    }
}

fn timers(card: &mut Card, request: Request) -> TimerReport {
    match ask(card, request) {
        Reply::ArmTimer(report) | Reply::DisarmTimer(report) => report,
        reply => panic!("{reply:?}"),
    }
}

#[test]
fn m_bv8_a_guest_sets_and_reads_the_watchdogs_of_its_card() {
    let mut card = card();
    let report = watchdog(&mut card, Request::GetWatchdog { queue: Some(1) });
    let limits = (report.delay_ns_min, report.delay_ns_max);
    assert_eq!(
        (report.queue, report.delay_ns, limits),
        (Some(1), 0, (100_000, 1_000_000_000))
    );
    let set = |queue, delay_ns| Request::SetWatchdog { queue, delay_ns };
    assert_eq!(watchdog(&mut card, set(Some(1), 100_000)).delay_ns, 100_000);
    assert_eq!(
        watchdog(&mut card, Request::GetWatchdog { queue: None }).delay_ns,
        0,
        "queue 0"
    );
    assert_eq!(watchdog(&mut card, set(None, 1_000_000)).delay_ns, 1_000_000);
    card.rx(1).arrive(t(0), UNMARKED).expect("room");
    card.rx(1).poll(t(0));
    assert_eq!(card.next_event(), Some(t(1_000_000)));
    let report = watchdog(&mut card, Request::GetWatchdog { queue: None });
    assert_eq!((report.queue, report.counters.started), (None, 1), "the sum");
    for (request, code) in [
        (set(None, 99_999), RefusalCode::Range),
        (set(None, u64::MAX), RefusalCode::Range),
        (set(Some(2), 100_000), RefusalCode::Queue),
        (Request::GetWatchdog { queue: Some(2) }, RefusalCode::Queue),
    ] {
        assert_eq!(refused(&mut card, request), code.code(), "{request:?}");
    }
    assert_eq!(
        watchdog(&mut card, Request::GetWatchdog { queue: Some(0) }).delay_ns,
        1_000_000
    );
}

#[test]
fn m_bv10_a_guest_arms_timers_and_is_told_by_a_frame_to_its_own_address() {
    let mut card = card();
    let arm = |timer, kind, time_ns| Request::ArmTimer { timer, kind, time_ns };
    let report = timers(&mut card, arm(7, TimerKind::Once, 60_000));
    assert_eq!((report.timer, report.is_armed, report.armed), (Some(7), true, 1));
    assert_eq!(timers(&mut card, arm(8, TimerKind::Clock, 100_000)).armed, 2);
    assert_eq!(card.next_event(), Some(t(60_000)));
    let Some(TimerEvent::Expired(expiry)) = card.timers_mut().poll(t(61_500)) else {
        panic!("nothing rang");
    };
    let mut frame = [0; CONTROL_FRAME_MAX];
    let len = doorbell_frame(&expiry, &mut frame);
    assert_eq!((&frame[..6], &frame[6..12]), (&GUEST.0[..], &MacAddr::CARD.0[..]));
    let rung = Doorbell {
        timer: 7,
        kind: TimerKind::Once,
        late_ns: 1_500,
        sequence: 1,
    };
    assert_eq!(Reply::decode(&frame[..len]), Ok((0, Reply::TimerExpired(rung))));
    assert_eq!(
        card.timers_mut().poll(t(100_000)),
        Some(TimerEvent::FetchClockState { timer: 8 })
    );
    let idle = ClockState {
        running_timers: 1,
        last_poll: Some(t(99_000)),
    };
    card.timers_mut().clock_state(t(100_000), 8, idle, 0);
    assert_eq!(card.timers_mut().poll(t(100_000)), None);
    let report = timers(&mut card, Request::DisarmTimer { timer: Some(8) });
    assert_eq!((report.armed, report.is_armed), (0, false));
    let counters = timers(&mut card, Request::DisarmTimer { timer: None }).counters;
    assert_eq!((counters.armed, counters.disarmed, counters.rung_once), (2, 1, 1));
    assert_eq!(
        (
            counters.clocks.polled,
            counters.lateness.total(),
            counters.lateness.max_ns()
        ),
        (1, 2, 1_500)
    );
    for request in [
        arm(1, TimerKind::Once, 49_999),
        arm(0xffff, TimerKind::Once, 60_000),
        arm(1, TimerKind::Clock, u64::MAX),
    ] {
        assert_eq!(refused(&mut card, request), RefusalCode::Range.code(), "{request:?}");
    }
    let mut odd = frame_of(arm(1, TimerKind::Once, 60_000), 1);
    odd[26] = 2;
    let mut out = [0; CONTROL_FRAME_MAX];
    let len = card.handle_control(t(0), &odd, &mut out);
    assert!(matches!(Reply::decode(&out[..len]), Ok((1, Reply::Refused(refusal))) if refusal.code == 6));
}

#[test]
fn a_card_says_that_it_has_watchdogs_and_timers() {
    let hello = Request::Hello {
        version_min: 1,
        version_max: 1,
    };
    let Reply::Hello(abilities) = ask(&mut card(), hello) else {
        panic!("no answer");
    };
    let both = ability::WATCHDOG | ability::TIMERS;
    assert_eq!(abilities.bits & both, both);
}
