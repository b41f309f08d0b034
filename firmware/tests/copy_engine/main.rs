//! The copy engine against `papers.md` M-CI1, M-CI2 and M-CI3: a memory that does what the engine says must look as if
//! `memcpy` had been called, in order, and the notification last.

mod card;

use std::collections::HashMap;

use ether::{MacAddr, Time};
use firmware::{
    CONTROL_FRAME_MAX, Card, CardConfig, DmaModel,
    control::{Reply, Request, ability},
    copy_engine::{
        COPY_MTU_MIN, COPY_QUEUE_MAX, CopyAction, CopyEngine, CopyEngineConfig, CopyError, CopyId, CopyRequest,
        NOTIFICATION_LEN, Notification, Place, Space,
    },
};

fn t(ns: u64) -> Time {
    Time::from_nanos(ns)
}

/// Two spaces of memory, and the driver of an engine.
struct Memory {
    user: Vec<u8>,
    kernel: Vec<u8>,
}

impl Memory {
    fn new(len: usize) -> Self {
        let byte = |seed: usize| move |n: usize| (n * 31 + n / 251 + seed) as u8;
        Self {
            user: (0..len).map(byte(1)).collect(),
            kernel: (0..len).map(byte(99)).collect(),
        }
    }

    fn of(&mut self, space: Space) -> &mut Vec<u8> {
        match space {
            Space::User => &mut self.user,
            Space::Kernel => &mut self.kernel,
        }
    }

    fn copy(&mut self, source: Place, destination: Place, len: u32) {
        let from = source.address as usize;
        let bytes = self.of(source.space)[from..from + len as usize].to_vec();
        let to = destination.address as usize;
        self.of(destination.space)[to..to + bytes.len()].copy_from_slice(&bytes);
    }

    fn store(&mut self, Notification { variable, value }: Notification) {
        let at = variable.address as usize;
        self.of(variable.space)[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn load(&mut self, variable: Place) -> u64 {
        let at = variable.address as usize;
        u64::from_le_bytes(self.of(variable.space)[at..at + 8].try_into().expect("8 bytes"))
    }

    /// Does what the engine says until it has nothing more to say by `now`.
    fn drive(&mut self, engine: &mut CopyEngine, now: Time) -> Vec<CopyAction> {
        let mut did = Vec::new();
        while let Some(action) = engine.poll(now) {
            match action {
                CopyAction::Move {
                    source,
                    destination,
                    len,
                    ..
                } => self.copy(source, destination, len),
                CopyAction::Notify { notification, .. } => self.store(notification),
                CopyAction::Completed { .. } => {}
            }
            did.push(action);
        }
        did
    }
}

fn engine(mtu: u32) -> CopyEngine {
    CopyEngine::new(CopyEngineConfig {
        mtu,
        ..CopyEngineConfig::DEFAULT
    })
}

fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }
}

#[test]
fn m_ci1_a_copy_does_what_memcpy_does() {
    let (mut memory, mut engine) = (Memory::new(50_000), engine(9000));
    let mut expected = memory.user.clone();
    expected.copy_within(100..20_100, 20_100);
    engine.icopy(t(0), 20_100, 100, 20_000).expect("accepted");
    memory.drive(&mut engine, t(0));
    assert!(memory.user == expected);
    let counters = engine.counters();
    assert_eq!((counters.submitted, counters.completed, counters.frames), (1, 1, 3));
    assert_eq!((counters.submitted_bytes, counters.moved_bytes), (20_000, 20_000));
}

#[test]
fn m_ci1_copies_are_cut_at_the_mtu_at_every_length() {
    let mtu = COPY_MTU_MIN;
    for len in 0..=4 * mtu {
        for notified in [false, true] {
            if len == 0 && !notified {
                continue;
            }
            let (mut memory, mut engine) = (Memory::new(1000), engine(mtu));
            let variable = Place::user(992);
            let mut copy = CopyRequest::new(Place::user(400), Place::user(0), len);
            if notified {
                copy = copy.notifying(Notification { variable, value: 7 });
            }
            let expected = memory.user[..len as usize].to_vec();
            engine.submit(t(0), copy).expect("accepted");
            let did = memory.drive(&mut engine, t(0));
            let moved: Vec<u32> = did
                .iter()
                .filter_map(|action| match action {
                    CopyAction::Move { len, .. } => Some(*len),
                    _ => None,
                })
                .collect();
            assert_eq!(moved.iter().sum::<u32>(), len);
            // Full frames but for the last.
            assert!(
                moved.iter().rev().skip(1).all(|&piece| piece == mtu),
                "{len}: {moved:?}"
            );
            assert!(moved.last().is_none_or(|&piece| (1..=mtu).contains(&piece)));
            assert_eq!(memory.user[400..400 + len as usize], expected, "{len}");
            // The value is never cut: it has a frame of its own when the last one is too full for it.
            let rest = len % mtu;
            let alone = notified && (rest == 0 || rest + NOTIFICATION_LEN > mtu);
            let frames = u64::from(len.div_ceil(mtu)) + u64::from(alone);
            assert_eq!(engine.counters().frames, frames, "{len}");
            assert_eq!(engine.counters().notifications, u64::from(notified));
            if notified {
                assert_eq!(memory.load(variable), 7);
            }
        }
    }
}

#[test]
fn m_ci1_what_overlaps_is_refused_and_changes_nothing() {
    let mut engine = engine(9000);
    let user = Place::user;
    for (destination, source, len) in [(0, 0, 1), (10, 0, 11), (0, 10, 11), (5, 0, 100), (0, 99, 100)] {
        assert_eq!(engine.icopy(t(0), destination, source, len), Err(CopyError::Overlap));
    }
    // Neighbours share nothing, and neither do two spaces.
    for (destination, source, len) in [(10, 0, 10), (0, 10, 10)] {
        engine.icopy(t(0), destination, source, len).expect("neighbours");
    }
    engine.icopy_k2u(t(0), 0, 0, 100).expect("two spaces");
    // The notification variable is the third range.
    let notification = |address| Notification {
        variable: user(address),
        value: 1,
    };
    for variable in [96, 0, 200, 296] {
        let refused = engine.icopy_notif(t(0), 200, 0, 100, notification(variable));
        assert_eq!(refused, Err(CopyError::Overlap), "{variable}");
    }
    engine
        .icopy_notif(t(0), 200, 0, 100, notification(104))
        .expect("they do not overlap");
    engine
        .icopy_notif(t(0), 200, 0, 100, notification(304))
        .expect("they do not overlap");
    let counters = *engine.counters();
    assert_eq!((counters.submitted, counters.refused_for(CopyError::Overlap)), (5, 9));
    assert_eq!(engine.queued(), 5);
    // What else makes no sense.
    assert_eq!(engine.icopy(t(0), 0, 1000, 0), Err(CopyError::Empty));
    assert_eq!(engine.icopy(t(0), u64::MAX - 5, 0, 7), Err(CopyError::Range));
    assert_eq!(
        engine.icopy_notif(t(0), 200, 0, 8, notification(9)),
        Err(CopyError::Misaligned)
    );
    assert_eq!(engine.counters().refused_total(), 12);
}

#[test]
fn m_ci2_the_notification_is_stored_behind_all_of_the_data() {
    let (mut memory, mut engine) = (Memory::new(64_000), engine(1500));
    let variable = Place::user(0);
    let notification = Notification {
        variable,
        value: 0xfeed,
    };
    memory.store(Notification { variable, value: 0 });
    let expected = memory.kernel[..30_000].to_vec();
    engine
        .icopy_k2u_notif(t(0), 8, 0, 30_000, notification)
        .expect("accepted");
    while memory.load(variable) != 0xfeed {
        // A reader that sees the value may read all of the data.
        assert_eq!(engine.counters().notifications, 0);
        match engine.poll(t(0)).expect("not through") {
            CopyAction::Move {
                source,
                destination,
                len,
                ..
            } => memory.copy(source, destination, len),
            CopyAction::Notify { notification, .. } => memory.store(notification),
            CopyAction::Completed { .. } => panic!("completed before the notification"),
        }
    }
    assert_eq!(memory.user[8..30_008], expected);
}

#[test]
fn m_ci3_the_four_calls_copy_between_the_spaces_they_name() {
    let mut engine = engine(9000);
    let variable = Place::user(4096);
    let notification = Notification { variable, value: 3 };
    engine.icopy(t(0), 100, 0, 10).expect("accepted");
    engine.icopy_notif(t(0), 100, 0, 10, notification).expect("accepted");
    engine.icopy_k2u(t(0), 100, 0, 10).expect("accepted");
    engine
        .icopy_k2u_notif(t(0), 100, 0, 10, notification)
        .expect("accepted");
    let did: Vec<_> = std::iter::from_fn(|| engine.poll(t(0))).collect();
    let spaces: Vec<_> = did
        .iter()
        .filter_map(|action| match action {
            CopyAction::Move {
                source, destination, ..
            } => Some((source.space, destination.space)),
            _ => None,
        })
        .collect();
    let (user, kernel) = (Space::User, Space::Kernel);
    assert_eq!(spaces, [(user, user), (user, user), (kernel, user), (kernel, user)]);
    let notified: Vec<_> = did
        .iter()
        .filter_map(|action| match action {
            CopyAction::Notify { id, .. } => Some(id.0),
            _ => None,
        })
        .collect();
    assert_eq!(notified, [1, 3]);
}

#[test]
fn m_ci3_test_and_wait_look_at_the_variable_and_the_host_is_free_meanwhile() {
    let mut engine = CopyEngine::new(CopyEngineConfig::IO_AT);
    let mut memory = Memory::new(1 << 21);
    let variable = Place::user(0);
    memory.store(Notification { variable, value: 0 });
    let notification = Notification { variable, value: 1 };
    let submitted = engine
        .icopy_k2u_notif(t(1000), 8, 0, 1 << 20, notification)
        .expect("accepted");
    // 256 pages and the value: 257 submissions of 350 ns for the processor, 420 µs of 2.5 GB/s for the engine.
    assert_eq!(submitted.host_free_at, t(1000 + 257 * 350));
    assert_eq!(engine.counters().host_ns, 257 * 350);
    memory.drive(&mut engine, submitted.host_free_at);
    assert_eq!(memory.load(variable), 0, "the copy goes on while the host is free");
    let mut last = Time::ZERO;
    while let Some(at) = engine.next_event() {
        assert!(at >= last);
        assert_eq!(engine.poll(t(at.as_nanos() - 1)), None, "nothing before its time");
        memory.drive(&mut engine, at);
        last = at;
    }
    // The engine waits for the first submission, then is the bottleneck: 2^20 + 8 bytes at 0.4 ns each.
    assert_eq!(last, t(1000 + 350 + ((1 << 20) + 8) * 4 / 10));
    assert_eq!(memory.load(variable), 1);
    assert!(engine.is_over(submitted.id));
}

#[test]
fn m_ci1_copies_submitted_in_a_row_are_written_by_one_processor_one_after_the_other() {
    let mut engine = CopyEngine::new(CopyEngineConfig::IO_AT);
    // When the program asks, for how many bytes, and when the processor is free again: 350 ns for each page (R-OM1).
    let submissions = [
        (0, 100, 350),
        (0, 100, 700),
        // In the middle of the one before.
        (500, 4096 * 3, 700 + 3 * 350),
        (1750, 100, 2100),
        // The processor had nothing to do meanwhile.
        (50_000, 100, 50_350),
        (50_001, 100, 50_700),
    ];
    for (now, len, free) in submissions {
        let submitted = engine.icopy(t(now), 20_000, 0, len).expect("accepted");
        assert_eq!(submitted.host_free_at, t(free), "{len} bytes at {now} ns");
    }
    assert_eq!(engine.counters().host_ns, 8 * 350);
    // A short copy is on the wire when its descriptor is written: 40 ns for 100 bytes. The three pages follow theirs at 1638 ns.
    let completed: Vec<_> = std::iter::from_fn(|| engine.poll(t(100_000)))
        .filter_map(|action| match action {
            CopyAction::Completed { at, .. } => Some(at.as_nanos()),
            _ => None,
        })
        .collect();
    let pages = 1050 + 3 * 1638 + 1;
    assert_eq!(completed, [390, 740, pages, pages + 40, 50_390, 50_740]);
}

#[test]
fn m_ci1_a_full_queue_refuses_and_takes_again_when_a_copy_completed() {
    let mut engine = CopyEngine::new(CopyEngineConfig {
        queue_max: 2,
        ..CopyEngineConfig::DEFAULT
    });
    let first = engine.icopy(t(0), 100, 0, 10).expect("room");
    engine.icopy(t(0), 200, 0, 10).expect("room");
    assert_eq!(engine.icopy(t(0), 300, 0, 10), Err(CopyError::QueueFull));
    assert!(matches!(engine.poll(t(0)), Some(CopyAction::Move { .. })));
    assert!(!engine.is_over(first.id));
    assert_eq!(engine.icopy(t(0), 300, 0, 10), Err(CopyError::QueueFull));
    assert!(matches!(engine.poll(t(0)), Some(CopyAction::Completed { .. })));
    assert!(engine.is_over(first.id));
    engine.icopy(t(0), 300, 0, 10).expect("room again");
    assert_eq!(engine.counters().queue_peak, 2);
    assert_eq!(engine.counters().refused_for(CopyError::QueueFull), 2);
}

#[test]
fn m_ci1_a_copy_that_the_driver_gives_up_is_never_notified_and_the_next_goes_on() {
    let mut engine = engine(1500);
    let notification = Notification {
        variable: Place::user(0),
        value: 1,
    };
    engine
        .icopy_notif(t(0), 8, 10_000, 5000, notification)
        .expect("accepted");
    engine.icopy(t(0), 8, 10_000, 100).expect("accepted");
    assert!(matches!(engine.poll(t(0)), Some(CopyAction::Move { .. })));
    assert_eq!(engine.fail(), Some(CopyId(0)));
    let rest: Vec<_> = std::iter::from_fn(|| engine.poll(t(0))).collect();
    assert!(
        matches!(
            rest[..],
            [
                CopyAction::Move {
                    id: CopyId(1),
                    len: 100,
                    ..
                },
                CopyAction::Completed { id: CopyId(1), .. }
            ]
        ),
        "{rest:?}"
    );
    engine.icopy(t(0), 8, 10_000, 100).expect("accepted");
    engine.reset();
    assert_eq!(
        (engine.poll(t(0)), engine.next_event(), engine.fail()),
        (None, None, None)
    );
    let counters = engine.counters();
    assert_eq!((counters.failed, counters.cancelled, counters.completed), (1, 1, 1));
    assert_eq!(counters.submitted, 3);
    assert_eq!(counters.moved_bytes, 100, "of the one that completed");
}

/// Copies in flight at random, in memory that a plain `memcpy` in order is compared with.
#[test]
fn m_ci1_any_schedule_looks_like_memcpy_in_order() {
    for seed in 0..3000 {
        let mut below = numbers(seed);
        let wires = [
            DmaModel::ZERO,
            CopyEngineConfig::IO_AT.wire,
            DmaModel::new(40, 3_000_000_000, 3),
        ];
        let config = CopyEngineConfig {
            mtu: COPY_MTU_MIN + below(200) as u32,
            queue_max: 1 + below(8) as u16,
            submit_ns: below(2) * 350,
            wire: wires[below(3) as usize],
        };
        let mut engine = CopyEngine::new(config);
        let (mut memory, mut expected) = (Memory::new(4096), Memory::new(4096));
        let mut now = t(0);
        let mut accepted: HashMap<CopyId, CopyRequest> = HashMap::new();
        let mut notified: Vec<CopyId> = Vec::new();
        let (mut completed, mut moved, mut latest) = (Vec::new(), HashMap::<CopyId, u32>::new(), Time::ZERO);
        let mut check = |memory: &mut Memory, engine: &mut CopyEngine, accepted: &HashMap<_, CopyRequest>, now| {
            for action in memory.drive(engine, now) {
                let (id, at) = match action {
                    CopyAction::Move { id, at, len, .. } => {
                        assert!(len <= config.mtu);
                        *moved.entry(id).or_default() += len;
                        assert!(!notified.contains(&id), "data behind the notification");
                        (id, at)
                    }
                    CopyAction::Notify { id, at, .. } => {
                        assert_eq!(
                            moved.get(&id).copied().unwrap_or(0),
                            accepted[&id].len,
                            "notified too early"
                        );
                        notified.push(id);
                        (id, at)
                    }
                    CopyAction::Completed { id, at } => {
                        assert_eq!(id.0, completed.len() as u64, "out of order");
                        assert_eq!(
                            moved.get(&id).copied().unwrap_or(0),
                            accepted[&id].len,
                            "bytes do not add up"
                        );
                        assert_eq!(notified.contains(&id), accepted[&id].notification.is_some());
                        completed.push(id);
                        (id, at)
                    }
                };
                assert_eq!(
                    id.0,
                    completed.len() as u64 - u64::from(completed.last() == Some(&id)),
                    "not the oldest"
                );
                assert!(at <= now && at >= latest, "{at} is not in order");
                latest = at;
            }
        };
        for _ in 0..24 {
            let place = |below: &mut dyn FnMut(u64) -> u64| {
                let address = below(3000);
                if below(4) == 0 {
                    Place::kernel(address)
                } else {
                    Place::user(address)
                }
            };
            let mut copy = CopyRequest::new(place(&mut below), place(&mut below), below(700) as u32);
            if below(2) == 0 {
                copy = copy.notifying(Notification {
                    variable: Place::user(4000 + 8 * below(12)),
                    value: below(u64::MAX),
                });
            }
            if let Ok(submitted) = engine.submit(now, copy) {
                accepted.insert(submitted.id, copy);
                // In order and one after the other: the outcome is known at once.
                expected.copy(copy.source, copy.destination, copy.len);
                if let Some(notification) = copy.notification {
                    expected.store(notification);
                }
            }
            now = now.plus_nanos(below(1500));
            if below(3) != 0 {
                check(&mut memory, &mut engine, &accepted, now);
            }
        }
        while let Some(at) = engine.next_event() {
            now = now.max(at);
            check(&mut memory, &mut engine, &accepted, now);
        }
        assert!(
            memory.user == expected.user && memory.kernel == expected.kernel,
            "seed {seed}"
        );
        let counters = *engine.counters();
        assert_eq!(counters.submitted, counters.completed);
        assert_eq!(counters.submitted_bytes, counters.moved_bytes);
        assert_eq!(counters.submitted, accepted.len() as u64);
    }
}

#[test]
fn m_ci1_no_allocation_per_copy() {
    let mut engine = CopyEngine::new(CopyEngineConfig::IO_AT);
    let mut copies = 0;
    let info = allocation_counter::measure(|| {
        for round in 0..100 {
            let now = t(round * 200_000_000);
            while engine.icopy_k2u(now, 0, 0, 9000).is_ok() {}
            let later = now.plus_nanos(100_000_000);
            while engine.poll(later).is_some() {}
            assert_eq!(engine.next_event(), None);
        }
        copies = engine.counters().completed;
    });
    assert_eq!(copies, 100 * u64::from(COPY_QUEUE_MAX));
    assert_eq!(info.count_total, 0, "allocations for {copies} copies");
}
