//! Steering over the control protocol (M-GF9): what a guest asks for is done, shown, and refused with a reason.

use firmware::{
    CONTROL_FRAME_MAX, Card, ENDPOINTS, SteeringChange, SteeringMode, SteeringTable, TableChange, TableEntries,
    control::{RefusalCode, Reply, Request, SteeringReport},
};

use crate::{
    control::{card, frame_of},
    support::t,
};

/// Bytes of Ethernet header and common header.
const BODY: usize = 24;

fn answer(nic: &mut Card, frame: &[u8]) -> Reply {
    let mut out = [0; CONTROL_FRAME_MAX];
    let len = nic.handle_control(t(0), frame, &mut out);
    Reply::decode(&out[..len]).expect("a reply").1
}

fn report(nic: &mut Card, request: Request) -> SteeringReport {
    match answer(nic, &frame_of(request, 1)) {
        Reply::GetSteering(report) | Reply::SetSteering(report) => report,
        other => panic!("{other:?}"),
    }
}

fn set(mode: Option<SteeringMode>, table: Option<(SteeringTable, TableChange)>) -> Request {
    Request::SetSteering {
        change: SteeringChange {
            mode,
            table,
            proposed: false,
        },
    }
}

fn entries(first: u16, queues: &[u8]) -> TableChange {
    TableChange::Entries(TableEntries::new(first, queues).expect("few enough"))
}

#[test]
fn m_gf9_steering_is_read_and_changed_by_the_guest() {
    let mut nic = card(4);
    nic.steering_mut().set_ready(0b0011);
    let get = |table, first| Request::GetSteering { table, first };
    let start = report(&mut nic, get(SteeringTable::Endpoints, 250));
    assert_eq!(
        (start.mode, start.endpoints_even, start.indirection_even),
        (SteeringMode::Flow, true, true)
    );
    assert_eq!((start.queue_pairs, start.ready), (4, 2));
    assert_eq!(
        (start.entries.first(), start.entries.queues()),
        (250, &[0, 1, 0, 1, 0, 1][..])
    );

    let table = Some((SteeringTable::Endpoints, entries(3, &[3, 1])));
    let changed = report(&mut nic, set(Some(SteeringMode::Endpoint), table));
    assert_eq!((changed.mode, changed.endpoints_even), (SteeringMode::Endpoint, false));
    // Queue 3 is not ready, so one that is stands in for it; behind the two entries are those of all four queues in turn.
    assert_eq!(changed.entries.queues()[..4], [1, 1, 1, 0]);
    assert_eq!(
        nic.steering().settings().endpoints.get().expect("a table")[3..6],
        [3, 1, 1]
    );

    let whole = report(
        &mut nic,
        set(None, Some((SteeringTable::Indirection, entries(0, &[1; 128])))),
    );
    assert_eq!((whole.entries.queues(), whole.indirection_even), (&[1; 128][..], false));
    let even = report(&mut nic, set(None, Some((SteeringTable::Endpoints, TableChange::Even))));
    assert_eq!((even.endpoints_even, even.indirection_even), (true, false));
    assert_eq!(even.mode, SteeringMode::Endpoint);

    let mut frame = [0; 64];
    frame[12..18].copy_from_slice(&[0x86, 0xdf, 0, 0, 0xa5, 1]);
    assert_eq!(nic.steering_mut().queue(&frame), Some(1));
    let counted = report(&mut nic, get(SteeringTable::Indirection, 0)).counters;
    assert_eq!((counted.by_endpoint, counted.by_flow, counted.to_first), (1, 0, 0));
}

#[test]
fn m_gf9_steering_that_makes_no_sense_is_refused_and_changes_nothing() {
    let mut nic = card(2);
    nic.steering_mut().set_ready(0b11);
    let before = *nic.steering().settings();
    let good = frame_of(
        set(
            Some(SteeringMode::Off),
            Some((SteeringTable::Endpoints, entries(9, &[1]))),
        ),
        1,
    );
    let with = |changes: &[(usize, u8)]| {
        let mut frame = good.clone();
        changes.iter().for_each(|(at, value)| frame[BODY + at] = *value);
        frame
    };
    let cases = [
        (with(&[(1, 3)]), RefusalCode::Range, "no such mode"),
        (with(&[(2, 0)]), RefusalCode::Range, "no such table"),
        (with(&[(2, 3)]), RefusalCode::Range, "no such table"),
        (with(&[(3, 129)]), RefusalCode::Range, "too many entries"),
        (with(&[(4, 1)]), RefusalCode::Range, "beyond the table"),
        (with(&[(2, 2), (5, 128)]), RefusalCode::Range, "beyond the table"),
        (with(&[(8, 2)]), RefusalCode::Queue, "no such queue"),
        (with(&[(0, 11)]), RefusalCode::Reserved, "an unknown field"),
        (with(&[(7, 1)]), RefusalCode::Reserved, "a reserved byte"),
        (with(&[(9, 1)]), RefusalCode::Reserved, "a queue behind the entries"),
        (with(&[(3, 0)]), RefusalCode::Reserved, "no entries, but a first one"),
        (
            with(&[(0, 1)]),
            RefusalCode::Reserved,
            "a table that is not to be changed",
        ),
        (
            with(&[(0, 2), (1, 1)]),
            RefusalCode::Reserved,
            "a mode of a request that changes none",
        ),
    ];
    for (frame, code, what) in cases {
        let Reply::Refused(refusal) = answer(&mut nic, &frame) else {
            panic!("{what} was not refused");
        };
        assert_eq!(refusal.code, code.code(), "{what}: {refusal}");
        assert_eq!(*nic.steering().settings(), before, "{what}");
    }
    let beyond = Request::GetSteering {
        table: SteeringTable::Endpoints,
        first: ENDPOINTS as u16,
    };
    assert!(matches!(answer(&mut nic, &frame_of(beyond, 1)), Reply::Refused(refusal) if refusal.code == 6));
}

#[test]
fn m_gf9_what_a_driver_proposes_gives_way_to_what_somebody_chose() {
    let propose = |mode| Request::SetSteering {
        change: SteeringChange {
            mode: Some(mode),
            proposed: true,
            ..SteeringChange::default()
        },
    };
    let mut nic = card(2);
    let answered = report(&mut nic, propose(SteeringMode::Endpoint));
    assert_eq!(answered.mode, SteeringMode::Endpoint, "no mode had been chosen");
    assert!(!nic.steering().settings().chosen, "and none has been yet");
    let answered = report(&mut nic, propose(SteeringMode::Flow));
    assert_eq!(answered.mode, SteeringMode::Flow);
    for mode in SteeringMode::ALL {
        report(&mut nic, set(Some(mode), None));
        for proposed in SteeringMode::ALL {
            assert_eq!(report(&mut nic, propose(proposed)).mode, mode, "what was chosen stays");
        }
    }
    assert!(nic.steering().settings().chosen);
}
