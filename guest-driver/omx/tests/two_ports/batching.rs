//! Bursts of sends, which an endpoint batches: the promises that hold nevertheless.

use std::{thread, time::Instant};

use mxoe::engine::Lost;
use omx::{Counter, Endpoint, EndpointOptions, Request, StatusCode};

use crate::{LIMIT, Pair, irecv, isend, pair, unhelped};

/// The number of sends of a burst: enough that most are batched.
const BURST: usize = 120;

fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + number * 7) as u8).collect()
}

fn post_receives(endpoint: &Endpoint, buffers: &mut [Vec<u8>]) -> Vec<Request> {
    buffers.iter_mut().map(|buffer| irecv(endpoint, buffer)).collect()
}

fn wait(endpoint: &Endpoint, requests: Vec<Request>) {
    for request in requests {
        let status = endpoint.wait(request, Some(LIMIT)).unwrap().expect("within the limit");
        assert_eq!(status.code, StatusCode::Success);
    }
}

/// Messages that went out, those that went again counted again.
fn gone(endpoint: &Endpoint) -> usize {
    endpoint.counters().get(Counter::SendSmall) as usize
}

#[test]
fn a_row_arrives_in_order_though_the_program_never_calls_again() {
    let Pair { a, b, to_b, .. } = pair(&EndpointOptions::default());
    let burst: Vec<_> = (0..BURST).map(|number| message(number, 100)).collect();
    let begin = Instant::now();
    let mut was_deferred = false;
    for round in 0.. {
        let mut got = vec![vec![0; 100]; BURST];
        let receives = post_receives(&b, &mut got);
        let sends: Vec<_> = burst.iter().map(|data| isend(&a, data, to_b)).collect();
        // To count is no progress: nothing else calls the library for `a` until all is there.
        was_deferred |= gone(&a) < BURST * (round + 1);
        wait(&b, receives);
        assert!(got == burst);
        wait(&a, sends);
        if was_deferred && round >= 20 {
            break;
        }
        assert!(begin.elapsed() < LIMIT, "no send was ever deferred");
    }
}

#[test]
fn what_the_program_knows_to_be_over_is_on_the_wire() {
    let Pair { a, b: _b, to_b, .. } = pair(&EndpointOptions::default());
    let data = message(1, 100);
    for round in 1..=4 {
        let mut sends: Vec<_> = (0..BURST).map(|_| isend(&a, &data, to_b)).collect();
        wait(&a, sends.split_off(BURST - 1));
        assert!(gone(&a) >= BURST * round, "round {round}");
        wait(&a, sends);
    }
}

#[test]
fn whoever_stops_progress_has_sent_what_was_posted_before() {
    let Pair { a, b: _b, to_b, .. } = pair(&EndpointOptions::default());
    let data = message(1, 100);
    let sends = (0..BURST).map(|_| isend(&a, &data, to_b)).collect();
    a.disable_progression();
    assert!(gone(&a) >= BURST);
    a.reenable_progression();
    wait(&a, sends);
}

#[test]
fn without_the_helper_thread_every_send_goes_out_at_once() {
    let Pair { a, b: _b, to_b, .. } = pair(&unhelped());
    let data = message(1, 100);
    let mut sends = Vec::new();
    for number in 1..=BURST {
        sends.push(isend(&a, &data, to_b));
        assert!(gone(&a) >= number);
    }
    wait(&a, sends);
}

#[test]
fn rows_of_every_class_arrive_once_and_in_order_over_a_link_that_loses() {
    let Pair { a, b, to_b, .. } = pair(&EndpointOptions {
        // More than a burst has frames: of a burst that is sent again and again a shorter period can lose the same frame each time.
        packet_loss: vec![(Lost::Any, 149)],
        ..EndpointOptions::default()
    });
    let burst: Vec<_> = (0..BURST)
        .map(|number| {
            let len = match number % 40 {
                38 => 50_000,
                39 => 5000,
                37 => 1000,
                other => other,
            };
            message(number, len)
        })
        .collect();
    for _ in 0..60 {
        let mut got: Vec<_> = burst.iter().map(|data| vec![0; data.len()]).collect();
        let receives = post_receives(&b, &mut got);
        thread::scope(|scope| {
            scope.spawn(|| {
                let sends = burst.iter().map(|data| isend(&a, data, to_b)).collect();
                wait(&a, sends);
            });
            wait(&b, receives);
        });
        assert!(got == burst);
    }
    assert!(a.counters().get(Counter::LostOnPurpose) > 30);
}
