//! Waits, threads that share an endpoint, and the helper thread that goes on for a program.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use ether::MacAddr;
use mxoe::wire::Preset;
use netif::memory_pair;
use omx::{Endpoint, EndpointOptions, StatusCode, Waiting};

use crate::{KEY, LIMIT, Pair, bytes, irecv, isend, options, pair, pair_with, wait};

#[test]
fn a_wakeup_ends_every_wait_and_time_limits_are_kept() {
    let Pair { b, .. } = pair();
    let begin = Instant::now();
    assert_eq!(b.wait_any(0, 0, Some(Duration::from_millis(50))).unwrap(), None);
    assert!(begin.elapsed() >= Duration::from_millis(50));
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let b = b.clone();
            thread::spawn(move || b.peek(None).unwrap())
        })
        .collect();
    while waiters.iter().any(|waiter| !waiter.is_finished()) {
        // A wakeup is not remembered: it goes on until all were asleep for one.
        b.wakeup();
        thread::yield_now();
    }
    for waiter in waiters {
        assert_eq!(waiter.join().unwrap(), None);
    }
}

/// Of a thread of this process: whether it sleeps, and the processor time it had, in nanoseconds; `None` when it has ended.
fn sleeps_and_ran_ns(task: &Path) -> Option<(bool, u64)> {
    let stat = fs::read_to_string(task.join("stat")).ok()?;
    let sleeps = stat.rsplit(')').next()?.trim_start().starts_with('S');
    let ran = fs::read_to_string(task.join("schedstat")).ok()?;
    Some((sleeps, ran.split(' ').next()?.parse().ok()?))
}

#[test]
fn threads_sleep_on_after_one_of_them_got_its_message() {
    const THREADS: u64 = 8;
    const WATCHED: Duration = Duration::from_millis(20);
    let Pair { a, b, to_b } = pair();
    let (say, said) = mpsc::channel();
    let start = |info| {
        let (b, say) = (b.clone(), say.clone());
        thread::spawn(move || {
            let mut buffer = [0; 1];
            let receive = irecv(&b, &mut buffer, info, u64::MAX);
            say.send(Path::new("/proc").join(fs::read_link("/proc/thread-self").unwrap()))
                .unwrap();
            wait(&b, receive)
        })
    };
    let mut tasks = Vec::new();
    let waiters: Vec<_> = (0..THREADS)
        .map(|info| {
            let waiter = start(info);
            tasks.push(said.recv().unwrap());
            waiter
        })
        .collect();
    let check = |tasks: &[PathBuf]| -> Vec<_> { tasks.iter().map(|task| sleeps_and_ran_ns(task)).collect() };
    let quiet = |tasks: &[PathBuf]| -> u64 {
        let begin = Instant::now();
        loop {
            let before = check(tasks);
            // Not a wait for anything: how long they are watched. Who spins has run by then.
            thread::sleep(WATCHED);
            if before.iter().flatten().all(|(sleeps, _)| *sleeps) && check(tasks) == before {
                return before.iter().flatten().map(|(_, ran_ns)| ran_ns).sum();
            }
            assert!(begin.elapsed() < LIMIT.unwrap(), "the threads do not sleep");
        }
    };
    let mut needless_ns = 0;
    for (info, waiter) in waiters.into_iter().enumerate() {
        let others = &tasks[info + 1..];
        let before_ns = quiet(others);
        a.send(b"x", to_b, info as u64).unwrap();
        assert_eq!(waiter.join().unwrap().code, StatusCode::Success);
        // The others look once, find nothing, and sleep on.
        needless_ns += quiet(others) - before_ns;
    }
    assert!(needless_ns < 100_000_000, "{needless_ns} ns");
}

#[test]
fn threads_share_an_endpoint_and_each_gets_its_own() {
    let Pair { a, b, to_b } = pair();
    const THREADS: u64 = 4;
    const MESSAGES: usize = 200;
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (a, b) = (&a, &b);
            scope.spawn(move || {
                for round in 0..MESSAGES {
                    a.send(&bytes(round * 37, number as usize), to_b, number).unwrap();
                }
            });
            scope.spawn(move || {
                let mut buffer = vec![0; MESSAGES * 37];
                for round in 0..MESSAGES {
                    let status = b.receive(&mut buffer, number, u64::MAX).unwrap();
                    assert_eq!(status.transferred as usize, round * 37);
                    assert!(buffer[..round * 37] == bytes(round * 37, number as usize));
                }
            });
        }
    });
}

#[test]
fn the_helper_thread_answers_for_a_program_that_computes() {
    let Pair { a, b, to_b } = pair();
    let data = bytes(1 << 20, 5);
    let mut got = vec![0; data.len()];
    let receive = irecv(&b, &mut got, 1, u64::MAX);
    // Nothing calls the library for `b` until the sender is done.
    assert_eq!(a.send(&data, to_b, 1).unwrap().code, StatusCode::Success);
    assert_eq!(wait(&b, receive).transferred, 1 << 20);
    assert!(got == data);
}

#[test]
fn nothing_advances_while_progress_is_disabled() {
    let Pair { a, b, to_b } = pair();
    b.disable_progression();
    b.disable_progression();
    a.send(b"x", to_b, 1).unwrap();
    assert_eq!(b.probe(1, u64::MAX, Some(Duration::from_millis(30))).unwrap(), None);
    b.reenable_progression();
    assert!(b.probe(1, u64::MAX, LIMIT).unwrap().is_some());
}

#[test]
fn a_send_is_over_when_the_answer_acknowledges_it_however_its_program_waits() {
    for waiting in [
        Waiting::Sleep,
        Waiting::Spin,
        Waiting::SpinThenSleep(Duration::from_micros(20)),
    ] {
        let Pair { a, b, to_b } = pair_with(&EndpointOptions {
            waiting,
            // Only the waiting thread makes progress.
            progress: false,
            ..options()
        });
        a.send(&[], to_b, 1).unwrap();
        let to_a = b.receive(&mut [], 1, u64::MAX).unwrap().address.unwrap();
        let answering = thread::spawn({
            let b = b.clone();
            move || {
                for _ in 0..200 {
                    b.receive(&mut [0; 1000], 2, u64::MAX).unwrap();
                    b.send(b"answer", to_a, 3).unwrap();
                }
            }
        });
        for round in 0..200 {
            let mut answer = [0; 6];
            let receive = irecv(&a, &mut answer, 3, u64::MAX);
            // Synchronous: the acknowledgement of its announcement, and its end, come with what the other side sends.
            let send = isend(&a, &bytes(1000, round), to_b, 2, round % 2 == 0);
            assert_eq!(wait(&a, send).code, StatusCode::Success, "{waiting:?}");
            assert_eq!(wait(&a, receive).code, StatusCode::Success, "{waiting:?}");
            assert_eq!(&answer, b"answer");
        }
        answering.join().unwrap();
    }
}

#[test]
fn short_messages_that_a_full_port_does_not_take_arrive_all_the_same_in_order() {
    let macs = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
    let (port_a, port_b) = memory_pair(macs, 1500, 2).unwrap();
    let a = Endpoint::open_on(&options(), Box::new(port_a), Preset::Native1500).unwrap();
    let b = Endpoint::open_on(&options(), Box::new(port_b), Preset::Native1500).unwrap();
    let connect = a.iconnect(macs[1], 0, KEY, 0, 0).unwrap();
    let to_b = loop {
        b.progress();
        if let Some(status) = a.test(connect).unwrap() {
            break status.address.unwrap();
        }
    };
    for round in 0..50_usize {
        let sends: Vec<_> = (0..10).map(|number| isend(&a, &[number; 8], to_b, 5, false)).collect();
        for number in 0..10_u8 {
            let mut buffer = [0; 8];
            let receive = irecv(&b, &mut buffer, 5, u64::MAX);
            while b.test(receive).unwrap().is_none() {
                a.progress();
            }
            assert_eq!(buffer, [number; 8], "round {round}");
        }
        for send in sends {
            assert_eq!(wait(&a, send).code, StatusCode::Success);
        }
    }
}
