//! Immediate sends of short messages, and ports that are full then.

use std::sync::atomic::Ordering;

use omx::{Counter, EndpointOptions, Error, StatusCode};

use crate::{LIMIT, MATCH_INFO, Pair, irecv, isend, pair, unhelped};

#[test]
fn a_message_that_met_a_full_port_is_counted_once() {
    let pair = pair(&unhelped());
    let (a, full) = (&pair.a, &pair.told[0].full);
    full.store(true, Ordering::Relaxed);
    let send = isend(a, &[1; 8], pair.to_b);
    full.store(false, Ordering::Relaxed);
    a.test(send).unwrap();
    // Enough polls for a whole step.
    for _ in 0..40 {
        a.ipeek().unwrap();
    }
    let [counted, taken] = pair.short_sent();
    assert!(taken > 0);
    assert_eq!(counted, taken, "counted when it was written and again");
}

#[test]
fn after_a_full_port_the_next_call_sends() {
    let Pair { a, b, to_b, told } = pair(&unhelped());
    let mut got = [0; 8];
    let receive = irecv(&b, &mut got);
    told[0].full.store(true, Ordering::Relaxed);
    isend(&a, &[1; 8], to_b);
    told[0].full.store(false, Ordering::Relaxed);
    let mut calls = 0;
    while b.test(receive).unwrap().is_none() {
        calls += 1;
        assert!(calls < 100);
        // A call that makes progress on a.
        let _ = a.ipeek().unwrap();
        b.progress();
    }
    assert!(calls <= 1, "{calls} calls");
}

#[test]
fn short_sends_that_meet_a_full_port_arrive_once_and_in_order() {
    let pair = pair(&EndpointOptions::default());
    let full = &pair.told[0].full;
    let mut got = [[0u8; 8]; 20];
    let receives: Vec<_> = got.iter_mut().map(|got| irecv(&pair.b, got)).collect();
    for number in 0..20u8 {
        full.store(number % 3 != 0, Ordering::Relaxed);
        isend(&pair.a, &[number; 8], pair.to_b);
    }
    full.store(false, Ordering::Relaxed);
    for receive in receives {
        let status = pair.b.wait(receive, Some(LIMIT)).unwrap().expect("within the limit");
        assert_eq!(status.code, StatusCode::Success);
    }
    for (number, got) in got.iter().enumerate() {
        assert_eq!(*got, [number as u8; 8]);
    }
    let [counted, taken] = pair.short_sent();
    assert_eq!(counted, taken, "one was thought to be on the wire that was not");
}

#[test]
fn nothing_leaves_while_progress_is_stopped() {
    let Pair { a, b: _b, to_b, told } = pair(&unhelped());
    let taken = || told[0].short_sent.load(Ordering::Relaxed);
    a.disable_progression();
    isend(&a, &[1; 8], to_b);
    a.progress();
    assert_eq!(taken(), 0);
    a.reenable_progression();
    a.progress();
    assert!(taken() > 0);
}

#[test]
fn a_short_send_overtakes_nothing_that_waits_for_the_port() {
    let Pair { a, b, to_b, told } = pair(&unhelped());
    let mut got = [[0u8; 8]; 2];
    let receives: Vec<_> = got.iter_mut().map(|got| irecv(&b, got)).collect();
    told[0].full.store(true, Ordering::Relaxed);
    isend(&a, &[1; 8], to_b);
    // It is in the burst now, and the port is full.
    a.progress();
    told[0].full.store(false, Ordering::Relaxed);
    isend(&a, &[2; 8], to_b);
    for receive in receives {
        b.wait(receive, Some(LIMIT)).unwrap().expect("within the limit");
    }
    assert_eq!(got, [[1; 8], [2; 8]]);
    assert_eq!(b.counters().get(Counter::RecvEarly), 0, "in order on the wire");
}

#[test]
fn sends_without_a_request_and_posted_ones_arrive_once_and_in_order_whatever_the_port_takes() {
    for options in [unhelped(), EndpointOptions::default()] {
        let Pair { a, b, to_b, told } = pair(&options);
        let sent: Vec<Vec<u8>> = (0..300_usize)
            .map(|number| vec![number as u8; (number * 37) % 160])
            .collect();
        let mut got: Vec<Vec<u8>> = sent.iter().map(|bytes| vec![0; bytes.len()]).collect();
        let receives: Vec<_> = got.iter_mut().map(|got| irecv(&b, got)).collect();
        let (mut posted, mut without) = (0, 0);
        for (number, bytes) in sent.iter().enumerate() {
            told[0].full.store(number % 7 == 3, Ordering::Relaxed);
            if number % 3 != 0 && a.send_immediately(bytes, to_b, MATCH_INFO).unwrap() {
                assert!(bytes.len() <= 128, "{} bytes", bytes.len());
                without += 1;
            } else {
                isend(&a, bytes, to_b);
                posted += 1;
            }
        }
        told[0].full.store(false, Ordering::Relaxed);
        assert!(without > 0, "none went without a request");
        for (receive, bytes) in receives.into_iter().zip(&sent) {
            a.progress();
            let status = b.wait(receive, Some(LIMIT)).unwrap().expect("within the limit");
            assert_eq!(
                (status.code, status.transferred as usize),
                (StatusCode::Success, bytes.len())
            );
        }
        assert_eq!(got, sent);
        let mut completed = Vec::new();
        let begin = std::time::Instant::now();
        while completed.len() < posted && begin.elapsed() < LIMIT {
            a.take_completed(usize::MAX, &mut completed).unwrap();
            b.progress();
        }
        assert_eq!(completed.len(), posted, "only what was posted completes");
    }
}

#[test]
fn a_send_without_a_request_is_refused_where_it_would_have_to_wait() {
    let Pair { a, b, to_b, told } = pair(&unhelped());
    a.disable_progression();
    assert!(!a.send_immediately(&[1; 8], to_b, MATCH_INFO).unwrap());
    a.reenable_progression();
    told[0].full.store(true, Ordering::Relaxed);
    isend(&a, &[1; 8], to_b);
    a.progress();
    assert!(
        !a.send_immediately(&[2; 8], to_b, MATCH_INFO).unwrap(),
        "it would overtake one"
    );
    told[0].full.store(false, Ordering::Relaxed);
    b.close().unwrap();
    a.clone().close().unwrap();
    assert!(matches!(
        a.send_immediately(&[1; 8], to_b, MATCH_INFO),
        Err(Error::BadEndpoint)
    ));
}
