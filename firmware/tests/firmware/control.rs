//! The control protocol: what is said comes across, nonsense is refused with a reason, and nothing is done without bound.

use std::borrow::Cow;

use ether::{EtherType, MacAddr, Time};
use firmware::{
    CONTROL_FRAME_MAX, Card, CardConfig, Coalescing, CoalescingChange, HostRecordCounters, HostRecordPlace, PacketInfo,
    Reason, StrategyKind,
    coalescing::{DELAY_NS_MAX, FRAMES_MAX_MAX},
    control::{
        CONTROL_FRAME_MIN, CONTROL_REPLIES_BURST, CONTROL_REPLIES_PER_S, GROUP_CHANGES_BURST, GroupRefusal,
        HostRecordRefusal, HostRecordReport, RefusalCode, Reply, ReplyError, Request, StrategyCode, StrategySet,
        ability,
    },
};

use crate::support::{Numbers, t};

pub const GUEST: MacAddr = MacAddr([0x52, 0x54, 0, 0, 0, 1]);

pub fn card(queue_pairs: u16) -> Card {
    Card::new(CardConfig {
        queue_pairs,
        ..CardConfig::default()
    })
}

pub fn frame_of(request: Request, id: u16) -> Vec<u8> {
    let mut frame = [0xee; CONTROL_FRAME_MAX];
    let len = request.encode(GUEST, id, &mut frame);
    frame[..len].to_vec()
}

/// Sends a frame and reads the answer.
fn send(nic: &mut Card, now: Time, frame: &[u8]) -> Option<(u16, Reply)> {
    let mut out = [0xee; CONTROL_FRAME_MAX];
    let len = nic.handle_control(now, frame, &mut out);
    (len != 0).then(|| {
        assert!((CONTROL_FRAME_MIN..=CONTROL_FRAME_MAX).contains(&len));
        assert_eq!(out[..6], GUEST.0, "to the guest");
        assert_eq!(out[6..12], MacAddr::CARD.0, "from the card");
        assert_eq!(out[12..14], EtherType::CARD_CONTROL.0.to_be_bytes());
        Reply::decode(&out[..len]).expect("a reply that can be read")
    })
}

pub fn ask(nic: &mut Card, request: Request) -> Reply {
    let (id, reply) = send(nic, t(0), &frame_of(request, 0x1234)).expect("an answer");
    assert_eq!(id, 0x1234);
    reply
}

fn refusal(nic: &mut Card, frame: &[u8]) -> (u16, RefusalCode) {
    let (id, reply) = send(nic, t(0), frame).expect("an answer");
    let Reply::Refused(refusal) = reply else {
        panic!("not refused: {reply:?}")
    };
    assert!(
        refusal.reason.len() > 10 && refusal.reason.is_ascii(),
        "a sentence: {}",
        refusal.reason
    );
    let code = RefusalCode::ALL
        .into_iter()
        .find(|code| code.code() == refusal.code)
        .expect("a known code");
    (id, code)
}

#[test]
fn hello_tells_version_and_abilities() {
    let Reply::Hello(abilities) = ask(
        &mut card(3),
        Request::Hello {
            version_min: 1,
            version_max: 9,
        },
    ) else {
        panic!("another reply")
    };
    assert_eq!((abilities.version, abilities.queue_pairs), (1, 3));
    assert_eq!(
        abilities.bits,
        ability::COALESCING
            | ability::MARKS
            | ability::COUNTERS
            | ability::STEERING
            | ability::WATCHDOG
            | ability::TIMERS
            | ability::GROUPS
            | ability::ADAPTIVE
            | ability::STRATEGY_NAMES
            | ability::HOST_RECORD
    );
    assert_eq!(abilities.strategies, StrategySet::all());
    assert!(
        abilities
            .strategies
            .iter()
            .eq(StrategyKind::ALL.iter().map(|&kind| kind.into()))
    );
    assert_eq!(u64::from(abilities.delay_ns_max), DELAY_NS_MAX);
    assert_eq!(abilities.frames_max_max, FRAMES_MAX_MAX);
    let newer = frame_of(
        Request::Hello {
            version_min: 2,
            version_max: 9,
        },
        7,
    );
    assert_eq!(refusal(&mut card(1), &newer), (7, RefusalCode::Version));
}

/// Settings with a strategy that this crate has.
fn known(settings: Coalescing<StrategyCode>) -> Coalescing {
    let Coalescing {
        strategy,
        delay_ns,
        frames_max,
        marks,
    } = settings;
    Coalescing {
        strategy: strategy.kind().expect("a strategy of this crate"),
        delay_ns,
        frames_max,
        marks,
    }
}

#[test]
fn names_of_strategies_are_told_as_many_as_a_reply_holds_and_the_rest_when_asked_again() {
    let mut nic = card(1);
    let mut names = Vec::new();
    loop {
        let first = StrategyCode(names.len() as u8);
        let Reply::GetStrategies(some) = ask(&mut nic, Request::GetStrategies { first }) else {
            panic!("another reply")
        };
        assert_eq!(usize::from(some.total), StrategyKind::COUNT);
        let before = names.len();
        for (code, name) in some.iter() {
            assert_eq!(usize::from(code.0), names.len());
            names.push(name.to_owned());
        }
        if names.len() == before {
            break;
        }
    }
    assert_eq!(names, StrategyKind::NAMES);
}

#[test]
fn a_card_with_strategies_that_are_not_known_here_is_understood() {
    // What a later card says: its settings and its names, with a strategy of code 30.
    let mut nic = card(1);
    let mut reply = |request: Request| {
        let mut out = [0; CONTROL_FRAME_MAX];
        let len = nic.handle_control(t(0), &frame_of(request, 7), &mut out);
        out[..len].to_vec()
    };
    let mut settings = reply(Request::GetCoalescing { queue: 0 });
    settings[24 + 2] = 30;
    let Ok((7, Reply::GetCoalescing(report))) = Reply::decode(&settings) else {
        panic!("not understood")
    };
    assert_eq!(
        (report.coalescing.strategy, report.coalescing.strategy.kind()),
        (StrategyCode(30), None)
    );
    let mut names = reply(Request::GetStrategies { first: StrategyCode(1) });
    assert_eq!(
        &names[24..28],
        [StrategyKind::COUNT as u8, 1, StrategyKind::COUNT as u8 - 1, 0]
    );
    names[25] = 30;
    let Ok((7, Reply::GetStrategies(told))) = Reply::decode(&names) else {
        panic!("not understood")
    };
    assert_eq!(told.iter().next(), Some((StrategyCode(30), "timeout")));
    // Names go to terminals: nothing but letters, digits and signs.
    names[29] = 0x1b;
    assert!(Reply::decode(&names).is_err());
    // Nor is a length believed.
    names[29] = b't';
    names[28] = 255;
    assert!(Reply::decode(&names).is_err());
}

#[test]
fn coalescing_is_read_and_changed_field_by_field() {
    let mut nic = card(2);
    let get = |nic: &mut Card, queue| match ask(nic, Request::GetCoalescing { queue }) {
        Reply::GetCoalescing(report) => {
            assert_eq!(report.queue, queue);
            known(report.coalescing)
        }
        other => panic!("another reply: {other:?}"),
    };
    let set = |nic: &mut Card, queue, change: CoalescingChange| {
        let change = change.into();
        match ask(nic, Request::SetCoalescing { queue, change }) {
            Reply::SetCoalescing(report) => known(report.coalescing),
            other => panic!("another reply: {other:?}"),
        }
    };
    assert_eq!(get(&mut nic, 1), Coalescing::DEFAULT);
    let nothing = CoalescingChange::default();
    let open_mx = CoalescingChange {
        strategy: Some(StrategyKind::OpenMx),
        ..nothing
    };
    let expected = Coalescing {
        strategy: StrategyKind::OpenMx,
        ..Coalescing::DEFAULT
    };
    assert_eq!(set(&mut nic, Some(1), open_mx), expected);
    assert_eq!((get(&mut nic, 0), get(&mut nic, 1)), (Coalescing::DEFAULT, expected));
    let rest = CoalescingChange {
        delay_ns: Some(1_000_000),
        frames_max: Some(32),
        marks: Some(false),
        ..nothing
    };
    set(&mut nic, None, rest);
    let all = Coalescing {
        strategy: StrategyKind::OpenMx,
        delay_ns: 1_000_000,
        frames_max: 32,
        marks: false,
    };
    assert_eq!(
        get(&mut nic, 0),
        Coalescing {
            strategy: StrategyKind::Timeout,
            ..all
        }
    );
    assert_eq!(get(&mut nic, 1), all);
    assert_eq!(set(&mut nic, Some(1), nothing), all);
}

#[test]
fn a_change_from_the_guest_takes_effect_on_running_traffic() {
    let mut nic = card(1);
    nic.rx(0)
        .arrive(t(0), PacketInfo { len: 60, marked: false })
        .expect("room");
    while nic.rx(0).poll(t(0)).is_some() {}
    assert_eq!(nic.next_event(), Some(t(75_000)));
    let change = CoalescingChange {
        delay_ns: Some(1_000),
        ..CoalescingChange::default()
    };
    ask(&mut nic, Request::SetCoalescing { queue: None, change });
    assert_eq!(nic.next_event(), Some(t(1_000)));
}

#[test]
fn m_gf10_counters_come_across() {
    let mut nic = card(2);
    let mut numbers = Numbers::new(1);
    for n in 0..5_000 {
        let queue = (n % 2) as u16;
        let packet = PacketInfo {
            len: 60 + numbers.below(1_000) as u32,
            marked: numbers.percent(30),
        };
        nic.rx(queue).arrive(t(n * 2_000), packet).expect("room");
        while nic.rx(queue).poll(t(n * 2_000)).is_some() {
            nic.rx(queue).note_signalled();
        }
        if n % 500 == 0 {
            let settings = Coalescing {
                strategy: numbers.one_of(StrategyKind::ALL),
                frames_max: 20,
                ..Coalescing::DEFAULT
            };
            nic.set_coalescing(t(n * 2_000), None, settings).expect("all queues");
        }
    }
    nic.rx(0).restart(t(u64::MAX / 2));
    for queue in [None, Some(0), Some(1)] {
        for strategy in [None].into_iter().chain(StrategyKind::ALL.iter().copied().map(Some)) {
            let code = strategy.map(StrategyCode::from);
            let Reply::GetCounters(report) = ask(&mut nic, Request::GetCounters { queue, strategy: code }) else {
                panic!("another reply")
            };
            assert_eq!((report.queue, report.strategy), (queue, code));
            let counters = nic.counters(queue).expect("the queue");
            let expected = strategy.map_or_else(|| counters.total(), |kind| *counters.strategy(kind));
            assert_eq!(report.counts, expected);
        }
    }
    let total = nic.counters(None).expect("all").total();
    assert!(total.decided_for(Reason::Mark) > 0 && total.decided_for(Reason::Restart) == 1);
}

#[test]
fn nonsense_is_refused_with_a_reason_and_changes_nothing() {
    let change = CoalescingChange {
        strategy: Some(StrategyKind::Stream),
        delay_ns: Some(5),
        frames_max: Some(6),
        marks: Some(false),
    };
    let set = frame_of(
        Request::SetCoalescing {
            queue: Some(0),
            change: change.into(),
        },
        9,
    );
    let with = |edits: &[(usize, u8)]| {
        let mut frame = set.clone();
        edits.iter().for_each(|&(at, value)| frame[at] = value);
        frame
    };
    let mut nic = card(1);
    let cases = [
        (set[..23].to_vec(), 0, RefusalCode::Malformed),
        ([&set[..], &[0; 200]].concat(), 0, RefusalCode::Malformed),
        (with(&[(14, 0)]), 0, RefusalCode::Malformed),
        (with(&[(22, 1)]), 0, RefusalCode::Malformed),
        (with(&[(23, 15)]), 9, RefusalCode::Malformed),
        (with(&[(23, 17)]), 9, RefusalCode::Malformed),
        (with(&[(16, 2)]), 9, RefusalCode::Version),
        (with(&[(17, 0)]), 9, RefusalCode::Operation),
        (with(&[(17, 99)]), 9, RefusalCode::Operation),
        (with(&[(21, 1)]), 9, RefusalCode::Reserved),
        (with(&[(25, 1)]), 9, RefusalCode::Queue),
        (with(&[(26, 0x1f)]), 9, RefusalCode::Reserved),
        (with(&[(26, 0x0e)]), 9, RefusalCode::Reserved),
        (with(&[(27, 200)]), 9, RefusalCode::Strategy),
        (with(&[(28, 0xff)]), 9, RefusalCode::Range),
        (with(&[(32, 0xff)]), 9, RefusalCode::Range),
        (with(&[(36, 2)]), 9, RefusalCode::Range),
        (with(&[(37, 1)]), 9, RefusalCode::Reserved),
        (frame_of(Request::GetCoalescing { queue: 1 }, 9), 9, RefusalCode::Queue),
        (
            frame_of(Request::GetCoalescing { queue: 0xffff }, 9),
            9,
            RefusalCode::Queue,
        ),
        (
            frame_of(
                Request::GetCounters {
                    queue: Some(1),
                    strategy: None,
                },
                9,
            ),
            9,
            RefusalCode::Queue,
        ),
    ];
    let mut expected = [0; RefusalCode::COUNT];
    for (n, (frame, id, code)) in cases.iter().enumerate() {
        assert_eq!(refusal(&mut nic, frame), (*id, *code), "case {n}");
        assert_eq!(nic.coalescing(0), Ok(Coalescing::DEFAULT), "case {n}");
        expected[usize::from(code.code()) - 1] += 1;
    }
    assert_eq!(nic.control_counters().refused, expected);
    assert!(
        // Groups are full or not by what others did; see `m_bv5_…`.
        (RefusalCode::ALL.iter().filter(|code| **code != RefusalCode::Group))
            .all(|&code| nic.control_counters().refused_for(code) > 0)
    );
    assert_eq!(nic.control_counters().served, 0);
    // The frame that all of them were made of is a good one.
    assert!(matches!(send(&mut nic, t(0), &set), Some((9, Reply::SetCoalescing(_)))));
}

/// One queue out of range, or a value that only one queue's other settings make impossible: no queue is changed.
#[test]
fn a_refused_change_of_all_queues_changes_none() {
    let mut nic = card(4);
    let change = CoalescingChange {
        strategy: Some(StrategyKind::Stream),
        delay_ns: Some(DELAY_NS_MAX + 1),
        ..CoalescingChange::default()
    };
    let Reply::Refused(refusal) = ask(
        &mut nic,
        Request::SetCoalescing {
            queue: None,
            change: change.into(),
        },
    ) else {
        panic!("not refused")
    };
    assert_eq!(refusal.code, RefusalCode::Range.code());
    assert!(
        refusal.reason.contains(&DELAY_NS_MAX.to_string()),
        "the limit is told: {}",
        refusal.reason
    );
    assert!(nic.queues().iter().all(|rx| rx.coalescing() == Coalescing::DEFAULT));
    let too_many = Coalescing {
        frames_max: FRAMES_MAX_MAX + 1,
        ..Coalescing::DEFAULT
    };
    let error = too_many.validated().expect_err("out of range").to_string();
    assert!(error.contains(&FRAMES_MAX_MAX.to_string()), "{error}");
}

#[test]
fn frames_that_are_no_requests_are_dropped_and_counted() {
    let mut nic = card(1);
    let hello = frame_of(
        Request::Hello {
            version_min: 1,
            version_max: 1,
        },
        1,
    );
    let mut to_another = hello.clone();
    to_another[..6].copy_from_slice(&[0x52, 0x54, 0, 0, 0, 2]);
    let mut broadcast = hello.clone();
    broadcast[..6].copy_from_slice(&MacAddr::BROADCAST.0);
    let mut reply = hello.clone();
    reply[17] |= 0x80;
    for frame in [&to_another[..], &broadcast, &reply, &hello[..13], &[]] {
        let to_card = frame.starts_with(&MacAddr::CARD.0);
        assert_eq!(Card::is_control(frame), frame.len() >= 14 && to_card, "others go on");
        assert_eq!(send(&mut nic, t(0), frame), None);
    }
    assert_eq!(nic.control_counters().dropped_not_request, 5);
    for src in [
        MacAddr::BROADCAST,
        MacAddr([1, 0, 0, 0, 0, 0]),
        MacAddr::default(),
        MacAddr::CARD,
    ] {
        let mut frame = hello.clone();
        frame[6..12].copy_from_slice(&src.0);
        assert_eq!(send(&mut nic, t(0), &frame), None, "nowhere to send the reply to");
    }
    assert_eq!(nic.control_counters().dropped_source, 4);
    assert_eq!(nic.control_counters().total(), 9);
    let mut ip = hello;
    ip[12..14].copy_from_slice(&EtherType::IPV4.0.to_be_bytes());
    assert!(!Card::is_control(&ip), "not the card's business");
    assert!(!Card::is_control(&ip[..13]));
}

#[test]
fn requests_are_limited_in_rate() {
    let mut nic = card(1);
    let hello = frame_of(
        Request::Hello {
            version_min: 1,
            version_max: 1,
        },
        1,
    );
    let served = |nic: &mut Card, now| (0..10_000).filter(|_| send(nic, now, &hello).is_some()).count() as u64;
    assert_eq!(served(&mut nic, t(0)), CONTROL_REPLIES_BURST);
    assert_eq!(served(&mut nic, t(0)), 0);
    assert_eq!(served(&mut nic, t(10_000_000)), CONTROL_REPLIES_PER_S / 100);
    assert_eq!(
        served(&mut nic, t(5_000_000)),
        0,
        "time that goes backwards earns nothing"
    );
    assert_eq!(served(&mut nic, t(20_000_000)), CONTROL_REPLIES_PER_S / 100);
    assert_eq!(
        served(&mut nic, t(u64::MAX)),
        CONTROL_REPLIES_BURST,
        "a long pause earns a burst"
    );
    let counters = *nic.control_counters();
    assert_eq!(counters.total(), 60_000);
    assert_eq!(counters.dropped_rate, 60_000 - counters.served);
    // What is above the limit is not done.
    let change = CoalescingChange {
        delay_ns: Some(1),
        ..CoalescingChange::default()
    };
    assert_eq!(
        send(
            &mut nic,
            t(u64::MAX),
            &frame_of(Request::SetCoalescing { queue: None, change }, 1)
        ),
        None
    );
    assert_eq!(nic.coalescing(0), Ok(Coalescing::DEFAULT));
}

#[test]
fn replies_of_a_later_card_are_read_as_far_as_they_are_known() {
    let mut nic = card(1);
    let mut out = [0; CONTROL_FRAME_MAX];
    let request = frame_of(Request::GetCoalescing { queue: 0 }, 3);
    assert_ne!(nic.handle_control(t(0), &request, &mut out), 0);
    let good = out;
    let decode = |edit: &dyn Fn(&mut [u8; CONTROL_FRAME_MAX])| {
        let mut frame = good;
        edit(&mut frame);
        Reply::decode(&frame)
    };
    assert!(matches!(decode(&|_| {}), Ok((3, Reply::GetCoalescing(_)))));
    assert_eq!(decode(&|frame| frame[23] += 20), decode(&|_| {}), "a longer body");
    assert_eq!(decode(&|frame| frame[23] -= 1), Err(ReplyError::Malformed));
    assert_eq!(decode(&|frame| frame[14] = 0), Err(ReplyError::Malformed));
    let Ok((3, Reply::GetCoalescing(newer))) = decode(&|frame| frame[26] = 77) else {
        panic!("a strategy that is not known here is no reason not to read the rest")
    };
    assert_eq!(newer.coalescing.strategy, StrategyCode(77));
    assert_eq!(
        decode(&|frame| frame[17] = 0x80 | 77),
        Err(ReplyError::UnknownOperation)
    );
    assert_eq!(decode(&|frame| frame[17] = 2), Err(ReplyError::NotAReply));
    assert_eq!(
        decode(&|frame| frame[6] = 0x52),
        Err(ReplyError::NotAReply),
        "not from the card"
    );
    assert_eq!(Reply::decode(&[]), Err(ReplyError::NotAReply));
    let refused = decode(&|frame| {
        frame[20..24].copy_from_slice(&[0xab, 0xcd, 0, 6]);
        frame[24..30].copy_from_slice(b"no\x1b[2J");
    });
    let Ok((3, Reply::Refused(refusal))) = refused else {
        panic!("not refused")
    };
    assert_eq!(
        (refusal.code, refusal.reason),
        (0xabcd, Cow::Borrowed("no?[2J")),
        "nothing for terminals to obey"
    );
}

#[test]
fn m_bv5_groups_are_joined_for_oneself_and_answered_when_the_others_know() {
    let mut nic = card(1);
    let mut out = [0; CONTROL_FRAME_MAX];
    let mut ask = |nic: &mut Card, request, now_ns| {
        let len = nic.handle_control(t(now_ns), &frame_of(request, 9), &mut out);
        (len > 0).then(|| Reply::decode(&out[..len]).expect("a reply").1)
    };
    assert!(
        matches!(ask(&mut nic, Request::GetGroups { after: 0 }, 0), Some(Reply::GetGroups(report)) if report.group == 0)
    );
    assert_eq!(ask(&mut nic, Request::JoinGroup { group: 7 }, 0), None, "not yet");
    let request = nic.take_group_request().expect("a wish");
    assert_eq!((request.group, request.join, request.guest), (7, true, GUEST));
    assert_eq!(nic.take_group_request(), None);
    let mut reply = [0; CONTROL_FRAME_MAX];
    let len = nic.answer_group(request, Err(GroupRefusal::Full), &mut reply);
    let (id, reply) = Reply::decode(&reply[..len]).expect("a reply");
    assert!(matches!((id, reply), (9, Reply::Refused(refusal)) if refusal.code == RefusalCode::Group.code()));
    assert!(matches!(
        ask(&mut nic, Request::JoinGroup { group: 0 }, 0),
        Some(Reply::Refused(_))
    ));
    // A flood of changes is refused before anybody else has to do with it.
    let mut wishes = 1;
    for group in 1..200 {
        if ask(&mut nic, Request::JoinGroup { group }, 0).is_none() {
            wishes += u64::from(nic.take_group_request().is_some());
        }
    }
    assert_eq!(wishes, GROUP_CHANGES_BURST);
    assert_eq!(ask(&mut nic, Request::JoinGroup { group: 8 }, 1_000_000_000), None);
    assert!(nic.take_group_request().is_some());
}

#[test]
fn m_bv8_a_place_of_the_hosts_record_is_checked_and_answered_by_who_knows_the_memory() {
    let mut nic = card(2);
    let mut out = [0; CONTROL_FRAME_MAX];
    let place = |address, key| Some(HostRecordPlace { address, key });
    let request = |queue, place| Request::SetHostRecord { queue, place };
    let mut answer = |nic: &mut Card, request| {
        let len = nic.handle_control(t(0), &frame_of(request, 9), &mut out);
        (len > 0).then(|| Reply::decode(&out[..len]).expect("a reply").1)
    };
    assert_eq!(answer(&mut nic, request(1, place(0x1_0000_0040, 7))), None, "not yet");
    let wish = nic.take_host_record_request().expect("a wish");
    assert_eq!(
        (wish.queue, wish.place, wish.guest),
        (1, place(0x1_0000_0040, 7), GUEST)
    );
    assert_eq!(nic.take_host_record_request(), None);
    let counters = HostRecordCounters {
        exact: 1 << 40,
        inferred: 2,
        unreachable: 3,
        replaced: 4,
        refused: 5,
    };
    let report = HostRecordReport {
        queue: 1,
        is_read: true,
        counters,
    };
    let mut reply = [0; CONTROL_FRAME_MAX];
    let len = nic.answer_host_record(wish, Ok(report), &mut reply);
    assert_eq!(Reply::decode(&reply[..len]), Ok((9, Reply::SetHostRecord(report))));
    for why in [
        HostRecordRefusal::Misaligned,
        HostRecordRefusal::Unreachable,
        HostRecordRefusal::Key,
    ] {
        let len = nic.answer_host_record(wish, Err(why), &mut reply);
        let Ok((9, Reply::Refused(refusal))) = Reply::decode(&reply[..len]) else {
            panic!("not refused")
        };
        assert_eq!(
            (refusal.code, &*refusal.reason),
            (RefusalCode::Range.code(), why.sentence())
        );
    }
    for (wrong, code) in [
        (request(2, place(0x40, 7)), RefusalCode::Queue),
        (request(0xffff, None), RefusalCode::Queue),
        (request(0, place(0x44, 7)), RefusalCode::Range),
        (request(0, place(0x40, 0)), RefusalCode::Reserved),
    ] {
        assert!(
            matches!(answer(&mut nic, wrong), Some(Reply::Refused(refusal)) if refusal.code == code.code()),
            "{wrong:?}"
        );
        assert_eq!(nic.take_host_record_request(), None, "{wrong:?}");
    }
    // A request that nobody took is not answered later in place of another one.
    assert_eq!(answer(&mut nic, request(0, None)), None);
    assert!(answer(&mut nic, Request::GetWatchdog { queue: None }).is_some());
    assert_eq!(nic.take_host_record_request(), None);
    assert_eq!(nic.control_counters().refused_for(RefusalCode::Range), 4);
}
