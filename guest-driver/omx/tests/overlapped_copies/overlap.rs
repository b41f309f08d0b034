//! What overlaps with copies, and what waits for them.

use std::time::Duration;

use mxoe::{engine::Lost, wire::PacketType};
use omx::{Counter, EndpointOptions};

use crate::{Pair, bytes, drive, engine, irecv, is_success, isend, options, pair_with, port::Faults};

/// As many frames of a large message as the port lends, or fewer.
const LEN: usize = 100_000;

fn pair() -> Pair {
    pair_with(&options(), Faults::default())
}

/// Sends a message to a receive that is posted, until every packet has come.
fn come(pair: &Pair, data: &[u8], match_info: u64) {
    let send = isend(&pair.a, data, pair.to_b, match_info);
    let mut sent = false;
    drive(pair, || {
        sent = sent || pair.a.test(send).unwrap().is_some();
        sent
    });
}

#[test]
fn m_om_a_the_processor_goes_on_while_copies_run_and_the_last_packet_waits_for_them() {
    let pair = pair();
    let told = engine(&pair.b);
    let (data, mut got) = (bytes(LEN, 1), vec![0; LEN]);
    let receive = irecv(&pair.b, &mut got, 5);
    // All packets come, and the sender knows it, before any is copied.
    come(&pair, &data, 5);
    let submitted = {
        let told = told.lock().unwrap();
        assert_eq!(
            (told.finished, told.waits.len()),
            (0, 0),
            "the processor waits for nothing"
        );
        assert_eq!(told.submitted as usize, told.jobs.len());
        assert!(told.submitted > 5, "{} packets", told.submitted);
        told.submitted as usize
    };
    {
        let lending = pair.lending.lock().unwrap();
        assert_eq!((lending.kept, lending.received_meanwhile), (submitted, true));
    }
    let count = |counter| pair.b.counters().get(counter) as usize;
    assert_eq!(
        [count(Counter::CopiesSubmitted), count(Counter::CopiesFinished)],
        [submitted, 0]
    );
    assert_eq!(count(Counter::DmarecvPullReply), submitted);
    assert_eq!(count(Counter::DmarecvPullReplyWaitDeferred), 1);
    // All but the last: the request goes on, and it is too late to cancel it.
    told.lock().unwrap().copy(submitted - 1);
    assert!(pair.b.test(receive).unwrap().is_none());
    assert!(!pair.b.cancel(receive).unwrap());
    assert_eq!(count(Counter::CopiesFinished), submitted - 1);
    assert_eq!(
        pair.lending.lock().unwrap().kept,
        1,
        "frames go back as their copies are finished"
    );
    told.lock().unwrap().copy(1);
    let status = pair.b.test(receive).unwrap().expect("every copy is finished");
    assert!(is_success(status.code) && status.transferred as usize == LEN);
    assert!(got == data);
    assert_eq!(pair.lending.lock().unwrap().kept, 0);
    assert!(told.lock().unwrap().waits.is_empty());
}

#[test]
fn m_om_a_a_port_that_lends_no_more_has_the_processor_copy_and_goes_on() {
    let pair = pair();
    let told = engine(&pair.b);
    let (data, mut got) = (bytes(1 << 20, 1), vec![0; 1 << 20]);
    let receive = irecv(&pair.b, &mut got, 5);
    come(&pair, &data, 5);
    assert_eq!(pair.lending.lock().unwrap().kept_most, 16);
    assert_eq!(told.lock().unwrap().submitted, 16);
    assert!(told.lock().unwrap().waits.is_empty());
    assert!(pair.b.test(receive).unwrap().is_none());
    told.lock().unwrap().copy_all();
    assert!(is_success(pair.b.test(receive).unwrap().unwrap().code));
    assert!(got == data);
    // With room again, the next message is the engine's.
    let mut got = vec![0; LEN];
    let receive = irecv(&pair.b, &mut got, 6);
    come(&pair, &data[..LEN], 6);
    assert!(told.lock().unwrap().submitted > 16 + 5);
    told.lock().unwrap().copy_all();
    assert!(is_success(pair.b.test(receive).unwrap().unwrap().code));
    assert!(got == data[..LEN]);
}

#[test]
fn m_om_a_a_port_that_lends_one_frame_has_each_frame_waited_for() {
    let pair = pair_with(
        &options(),
        Faults {
            lends_one: true,
            ..Faults::default()
        },
    );
    let told = engine(&pair.b);
    let (data, mut got) = (bytes(LEN, 1), vec![0; LEN]);
    let receive = irecv(&pair.b, &mut got, 5);
    come(&pair, &data, 5);
    assert!(is_success(pair.b.test(receive).unwrap().unwrap().code));
    assert!(got == data);
    let told = told.lock().unwrap();
    assert_eq!(told.waits, (1..=told.submitted).collect::<Vec<_>>());
}

#[test]
fn m_om_a_short_messages_and_short_pieces_are_the_processor_s() {
    let pair = pair();
    let told = engine(&pair.b);
    for len in [1000, 20_000, 32_768] {
        let (data, mut got) = (bytes(len, 1), vec![0; len]);
        let receive = irecv(&pair.b, &mut got, 5);
        come(&pair, &data, 5);
        drive(&pair, || pair.b.test(receive).unwrap().is_some());
        assert!(got == data);
    }
    assert_eq!(told.lock().unwrap().submitted, 0);
    // A list of pieces, every second of them short.
    let (data, mut got) = (bytes(LEN, 1), vec![0; LEN]);
    let mut pieces = Vec::new();
    let mut rest = &mut got[..];
    while !rest.is_empty() {
        let len = if pieces.len() % 2 == 0 { 1023 } else { 3000 };
        let (piece, more) = rest.split_at_mut(len.min(rest.len()));
        pieces.push(omx::Segment::of_mut(piece));
        rest = more;
    }
    // SAFETY: the pieces outlive the request.
    let receive = unsafe { pair.b.irecv(&pieces, 5, u64::MAX, 0) }.unwrap();
    come(&pair, &data, 5);
    {
        let mut told = told.lock().unwrap();
        assert!(told.submitted > 0 && told.jobs.iter().all(|(_, _, len)| *len >= 1024));
        told.copy_all();
    }
    assert!(is_success(pair.b.test(receive).unwrap().unwrap().code));
    assert!(got == data);
    assert!(pair.b.counters().get(Counter::DmarecvPartialPullReply) > 0);
}

#[test]
fn m_ci4_progress_starts_the_copies_that_a_computation_hides_and_a_wait_waits_for_the_last_alone() {
    let pair = pair();
    let told = engine(&pair.b);
    // As the paper's benchmark: three messages at once.
    let data = [1, 2, 3].map(|seed| bytes(LEN / 3, seed));
    for is_hidden in [true, false] {
        told.lock().unwrap().waits.clear();
        let mut got = [(); 3].map(|()| vec![0; LEN / 3]);
        let receives = std::array::from_fn::<_, 3, _>(|at| irecv(&pair.b, &mut got[at], at as u64));
        for (at, data) in data.iter().enumerate() {
            come(&pair, data, at as u64);
        }
        let submitted = {
            let mut told = told.lock().unwrap();
            assert!(
                !told.jobs.is_empty() && told.waits.is_empty(),
                "progress submits, and waits for nothing"
            );
            if is_hidden {
                // The program computes, and the engine copies.
                told.copy_all();
            }
            told.submitted
        };
        for receive in receives {
            let status = pair.b.wait(receive, Some(Duration::from_secs(20))).unwrap();
            assert!(is_success(status.expect("within the limit").code));
        }
        assert!(got == data);
        let waits = told.lock().unwrap().waits.clone();
        let expected: &[u64] = if is_hidden { &[] } else { &[submitted] };
        assert_eq!(waits, expected, "one number, known when the last copy was submitted");
    }
}

#[test]
fn m_om_a_no_engine_touches_memory_after_its_request_or_endpoint_is_over() {
    // The endpoint is closed in the middle of a message.
    for closes in [true, false] {
        let pair = pair();
        let told = engine(&pair.b);
        let (data, mut got) = (bytes(1 << 20, 1), vec![0; 1 << 20]);
        let receive = irecv(&pair.b, &mut got, 5);
        isend(&pair.a, &data, pair.to_b, 5);
        drive(&pair, || told.lock().unwrap().submitted > 3);
        assert!(pair.b.test(receive).unwrap().is_none());
        if closes {
            pair.b.clone().close().unwrap();
        } else {
            pair.b.set_copy_engine(None);
        }
        assert!(told.lock().unwrap().jobs.is_empty(), "no copy is left");
        assert_eq!(pair.lending.lock().unwrap().kept, 0);
        if !closes {
            // What comes now is the processor's.
            let submitted = told.lock().unwrap().submitted;
            drive(&pair, || pair.b.test(receive).unwrap().is_some());
            assert!(got == data);
            assert_eq!(told.lock().unwrap().submitted, submitted);
        }
    }
    // The message fails in the middle: it is not reported before its copies are finished.
    let options = EndpointOptions {
        give_up: Duration::from_millis(300),
        ..options()
    };
    let pair = pair_with(&options, Faults::default());
    let told = engine(&pair.b);
    let (data, mut got) = (bytes(8 << 20, 1), vec![0; 8 << 20]);
    let receive = irecv(&pair.b, &mut got, 5);
    isend(&pair.a, &data, pair.to_b, 5);
    drive(&pair, || told.lock().unwrap().submitted > 3);
    // Nothing more comes from the other side.
    let begin = std::time::Instant::now();
    while pair.b.counters().get(Counter::PullTimeoutAbort) == 0 {
        assert!(pair.b.test(receive).unwrap().is_none());
        assert!(begin.elapsed() < crate::LIMIT);
    }
    assert!(!told.lock().unwrap().jobs.is_empty());
    assert!(
        pair.b.test(receive).unwrap().is_none(),
        "copies to its memory are not finished"
    );
    told.lock().unwrap().copy_all();
    let status = pair.b.test(receive).unwrap().expect("over");
    assert!(!is_success(status.code));
}

#[test]
fn m_om_a_time_outs_give_frames_back_to_the_port() {
    let options = EndpointOptions {
        packet_loss: vec![(Lost::Type(PacketType::PullReply), 4)],
        ..options()
    };
    let pair = pair_with(&options, Faults::default());
    let told = engine(&pair.b);
    let (data, mut got) = (bytes(LEN, 1), vec![0; LEN]);
    let receive = irecv(&pair.b, &mut got, 5);
    isend(&pair.a, &data, pair.to_b, 5);
    drive(&pair, || told.lock().unwrap().submitted > 3);
    // Nothing more comes from the other side: once all is handled that it has sent, only time-outs are left.
    let mut submitted = 0;
    while submitted != told.lock().unwrap().submitted {
        submitted = told.lock().unwrap().submitted;
        for _ in 0..100 {
            pair.b.progress();
        }
    }
    assert!(pair.lending.lock().unwrap().kept > 3);
    told.lock().unwrap().copy_all();
    let begin = std::time::Instant::now();
    while pair.lending.lock().unwrap().kept > 0 {
        pair.b.progress();
        assert!(begin.elapsed() < crate::LIMIT);
    }
    drive(&pair, || {
        told.lock().unwrap().copy_all();
        pair.b.test(receive).unwrap().is_some()
    });
    assert!(got == data);
}
