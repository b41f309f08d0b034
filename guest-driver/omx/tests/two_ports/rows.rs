//! Rows of sends, which an endpoint gathers before it sends them: promises that hold all the same.

use std::{thread, time::Instant};

use mxoe::engine::Lost;
use omx::{Counter, Endpoint, EndpointOptions, Request, StatusCode};

use crate::{LIMIT, Pair, irecv, isend, pair, unhelped};

/// Sends of a row: enough that most are gathered.
const ROW: usize = 120;

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
    let row: Vec<_> = (0..ROW).map(|number| message(number, 100)).collect();
    let begin = Instant::now();
    let mut was_held = false;
    for round in 0.. {
        let mut got = vec![vec![0; 100]; ROW];
        let receives = post_receives(&b, &mut got);
        let sends: Vec<_> = row.iter().map(|data| isend(&a, data, to_b)).collect();
        // To count is no progress: nothing else calls the library for `a` until all is there.
        was_held |= gone(&a) < ROW * (round + 1);
        wait(&b, receives);
        assert!(got == row);
        wait(&a, sends);
        if was_held && round >= 20 {
            break;
        }
        assert!(begin.elapsed() < LIMIT, "nothing was ever held");
    }
}

#[test]
fn what_the_program_knows_to_be_over_is_on_the_wire() {
    let Pair { a, b: _b, to_b, .. } = pair(&EndpointOptions::default());
    let data = message(1, 100);
    for round in 1..=4 {
        let mut sends: Vec<_> = (0..ROW).map(|_| isend(&a, &data, to_b)).collect();
        wait(&a, sends.split_off(ROW - 1));
        assert!(gone(&a) >= ROW * round, "round {round}");
        wait(&a, sends);
    }
}

#[test]
fn whoever_stops_progress_has_sent_what_was_posted_before() {
    let Pair { a, b: _b, to_b, .. } = pair(&EndpointOptions::default());
    let data = message(1, 100);
    let sends = (0..ROW).map(|_| isend(&a, &data, to_b)).collect();
    a.disable_progression();
    assert!(gone(&a) >= ROW);
    a.reenable_progression();
    wait(&a, sends);
}

#[test]
fn without_the_helper_thread_every_send_goes_out_at_once() {
    let Pair { a, b: _b, to_b, .. } = pair(&unhelped());
    let data = message(1, 100);
    let mut sends = Vec::new();
    for number in 1..=ROW {
        sends.push(isend(&a, &data, to_b));
        assert!(gone(&a) >= number);
    }
    wait(&a, sends);
}

#[test]
fn rows_of_every_class_arrive_once_and_in_order_over_a_link_that_loses() {
    let Pair { a, b, to_b, .. } = pair(&EndpointOptions {
        // More than a row has frames: of a row that is sent again and again a shorter period can lose the same frame each time.
        packet_loss: vec![(Lost::Any, 149)],
        ..EndpointOptions::default()
    });
    let row: Vec<_> = (0..ROW)
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
        let mut got: Vec<_> = row.iter().map(|data| vec![0; data.len()]).collect();
        let receives = post_receives(&b, &mut got);
        thread::scope(|scope| {
            scope.spawn(|| {
                let sends = row.iter().map(|data| isend(&a, data, to_b)).collect();
                wait(&a, sends);
            });
            wait(&b, receives);
        });
        assert!(got == row);
    }
    assert!(a.counters().get(Counter::LostOnPurpose) > 30);
}
