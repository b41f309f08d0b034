//! Endpoints of one interface whose shared memory is full, or that have no room for messages: nothing waits in a circle, and nothing
//! is lost.

use std::{sync::Barrier, thread};

use omx::{Counter, Endpoint, EndpointOptions, Request, Segment, StatusCode};
use weft_guest_driver_testkit::Veth;

use crate::{
    rig::{LIMIT, in_own_world, wait_until},
    same_host::{isend, options, reach},
};

/// Announced, not sent at once.
const LONG: usize = 8000;
const SHORT: usize = 4000;

fn open_two(veth: &Veth, options_of: impl Fn(EndpointOptions) -> EndpointOptions) -> [Endpoint; 2] {
    [(); 2].map(|()| Endpoint::open(&options_of(options(&veth.a))).unwrap())
}

fn name(endpoint: &Endpoint) -> (ether::MacAddr, u8) {
    (endpoint.address().mac(), endpoint.address().endpoint())
}

fn post(endpoint: &Endpoint, buffer: &mut [u8], match_info: u64) -> Request {
    // SAFETY: the tests keep the buffer until the request is over.
    unsafe { endpoint.irecv(&[Segment::of_mut(buffer)], match_info, u64::MAX, 0) }.unwrap()
}

#[track_caller]
fn all_succeed(endpoint: &Endpoint, what: &str, requests: Vec<Request>) {
    for (number, request) in requests.into_iter().enumerate() {
        let status = endpoint.wait(request, Some(LIMIT)).unwrap();
        let status = status.unwrap_or_else(|| panic!("{what} {number} goes on"));
        assert_eq!(status.code, StatusCode::Success, "{what} {number}");
    }
}

/// What message `number` is.
fn message(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 7 + at / 251 + number) as u8).collect()
}

/// Both send all before they look at what came.
fn in_both_directions(long: usize, short: usize, single_copy: bool) {
    let veth = Veth::new(1500);
    let ends = open_two(&veth, |options| EndpointOptions { single_copy, ..options });
    let len = |number: usize| if number < long { LONG } else { SHORT };
    let together = Barrier::new(2);
    thread::scope(|scope| {
        for (own, other) in [(0, 1), (1, 0)] {
            let (ends, together) = (&ends, &together);
            scope.spawn(move || {
                let endpoint = &ends[own];
                let to = reach(endpoint, name(&ends[other]));
                let all = 0..long + short;
                let mut buffers: Vec<_> = all.clone().map(|number| vec![0; len(number)]).collect();
                let receives: Vec<_> = (0..)
                    .zip(&mut buffers)
                    .map(|(number, buffer)| post(endpoint, buffer, number))
                    .collect();
                let data: Vec<_> = all.map(|number| message(number, len(number))).collect();
                together.wait();
                endpoint.disable_progression();
                let sends: Vec<_> = (0..)
                    .zip(&data)
                    .map(|(number, data)| isend(endpoint, data, to, number))
                    .collect();
                together.wait();
                endpoint.reenable_progression();
                all_succeed(endpoint, "receive", receives);
                all_succeed(endpoint, "send", sends);
                assert!(buffers == data);
                together.wait();
            });
        }
    });
}

#[test]
fn two_that_send_before_they_look_at_what_came_get_everything() {
    in_own_world(
        "full::two_that_send_before_they_look_at_what_came_get_everything",
        || {
            in_both_directions(3000, 0, true);
            in_both_directions(3000, 0, false);
            in_both_directions(200, 60, true);
            in_both_directions(0, 400, true);
        },
    );
}

#[test]
fn two_that_had_no_room_for_each_others_messages_get_everything_once_they_receive() {
    in_own_world(
        "full::two_that_had_no_room_for_each_others_messages_get_everything_once_they_receive",
        || {
            const MESSAGES: usize = 4000;
            let veth = Veth::new(1500);
            let ends = open_two(&veth, |options| EndpointOptions {
                unexpected_bytes_max: 64 << 10,
                ..options
            });
            let to = [(0, 1), (1, 0)].map(|(from, to)| reach(&ends[from], name(&ends[to])));
            let data = message(0, LONG);
            let sends = [0, 1].map(|own| -> Vec<_> {
                (0..MESSAGES as u64)
                    .map(|number| isend(&ends[own], &data, to[own], number))
                    .collect()
            });
            wait_until("both refuse", || {
                ends.iter().all(|endpoint| {
                    endpoint.progress();
                    endpoint.counters().get(Counter::UnexpEventqFull) > 0
                })
            });
            let mut buffers = [0, 1].map(|_| vec![vec![0; LONG]; MESSAGES]);
            let [first, second] = &mut buffers;
            // Both have posted everything before either takes what came.
            ends.iter().for_each(Endpoint::disable_progression);
            let receives = [(&ends[0], first), (&ends[1], second)].map(|(endpoint, buffers)| -> Vec<_> {
                (0..)
                    .zip(buffers)
                    .map(|(number, buffer)| post(endpoint, buffer, number))
                    .collect()
            });
            ends.iter().for_each(Endpoint::reenable_progression);
            thread::scope(|scope| {
                for ((endpoint, receives), sends) in ends.iter().zip(receives).zip(sends) {
                    scope.spawn(move || {
                        all_succeed(endpoint, "receive", receives);
                        all_succeed(endpoint, "send", sends);
                    });
                }
            });
            assert!(buffers.iter().flatten().all(|buffer| *buffer == data));
        },
    );
}

#[test]
fn a_long_message_that_is_received_does_not_wait_behind_messages_that_there_is_no_room_for() {
    in_own_world(
        "full::a_long_message_that_is_received_does_not_wait_behind_messages_that_there_is_no_room_for",
        || {
            const SHORT_MESSAGES: usize = 60;
            let veth = Veth::new(1500);
            for single_copy in [true, false] {
                let [from, to] = open_two(&veth, |options| EndpointOptions {
                    single_copy,
                    unexpected_bytes_max: 64 << 10,
                    ..options
                });
                let address = reach(&from, name(&to));
                let (long, short) = (message(1, 100_000), message(2, SHORT));
                to.disable_progression();
                let first = isend(&from, &long, address, 1);
                let others: Vec<_> = (0..SHORT_MESSAGES).map(|_| isend(&from, &short, address, 2)).collect();
                to.reenable_progression();
                let mut buffer = vec![0; long.len()];
                let receive = post(&to, &mut buffer, 1);
                all_succeed(&to, "the receive", vec![receive]);
                assert!(buffer == long && to.counters().get(Counter::UnexpEventqFull) > 0);
                all_succeed(&from, "the send", vec![first]);
                for _ in 0..SHORT_MESSAGES {
                    let receive = post(&to, &mut buffer, 2);
                    all_succeed(&to, "a short one", vec![receive]);
                    assert!(buffer[..SHORT] == short);
                }
                all_succeed(&from, "one of the others", others);
            }
        },
    );
}

#[test]
fn messages_of_a_program_that_ended_are_received_though_there_was_no_room_for_them() {
    in_own_world(
        "full::messages_of_a_program_that_ended_are_received_though_there_was_no_room_for_them",
        || {
            const MESSAGES: usize = 30;
            let veth = Veth::new(1500);
            let [from, to] = open_two(&veth, |options| EndpointOptions {
                unexpected_bytes_max: 64 << 10,
                ..options
            });
            let address = reach(&from, name(&to));
            let data: Vec<_> = (0..MESSAGES).map(|number| message(number, SHORT)).collect();
            let long = message(0, LONG);
            let (first, last) = data.split_at(25);
            let mut sends: Vec<_> = first.iter().map(|data| isend(&from, data, address, 7)).collect();
            // Its bytes go with the program.
            isend(&from, &long, address, 7);
            sends.extend(last.iter().map(|data| isend(&from, data, address, 7)));
            all_succeed(&from, "send", sends);
            from.close().unwrap();
            wait_until("the end is seen", || {
                to.progress();
                to.counters().get(Counter::PartnersLost) == 1
            });
            assert!(to.counters().get(Counter::UnexpEventqFull) > 0);
            let mut buffer = vec![0; SHORT];
            for data in &data {
                let receive = post(&to, &mut buffer, 7);
                all_succeed(&to, "receive", vec![receive]);
                assert!(buffer == *data);
            }
            assert!(to.iprobe(0, 0).unwrap().is_none());
        },
    );
}

#[test]
fn a_receive_gets_its_message_although_there_was_no_room_for_it_before() {
    in_own_world(
        "full::a_receive_gets_its_message_although_there_was_no_room_for_it_before",
        || {
            let veth = Veth::new(1500);
            for others in [0, 6] {
                let [from, to] = open_two(&veth, |options| EndpointOptions {
                    unexpected_bytes_max: 16 << 10,
                    shared_rndv_threshold: 32 << 10,
                    ..options
                });
                let address = reach(&from, name(&to));
                let (short, long) = (message(1, 2000), message(2, 30_000));
                let mut sends: Vec<_> = (0..others).map(|_| isend(&from, &short, address, 1)).collect();
                sends.push(isend(&from, &long, address, 2));
                wait_until("no room for it", || {
                    to.progress();
                    to.counters().get(Counter::UnexpEventqFull) > 0
                });
                let mut buffer = vec![0; long.len()];
                let receive = post(&to, &mut buffer, 2);
                all_succeed(&to, "the receive", vec![receive]);
                assert!(buffer == long);
                all_succeed(&from, "send", sends);
            }
        },
    );
}

#[test]
fn messages_from_before_an_endpoint_connected_anew_come_before_those_from_after() {
    in_own_world(
        "full::messages_from_before_an_endpoint_connected_anew_come_before_those_from_after",
        || {
            let veth = Veth::new(1500);
            let [from, to] = open_two(&veth, |options| EndpointOptions {
                unexpected_bytes_max: 64 << 10,
                ..options
            });
            // There would be room for the last ones.
            let data: Vec<_> = (0..75)
                .map(|number| message(number, if number < 50 { SHORT } else { 10 }))
                .collect();
            for (turn, data) in (0..).zip(data.chunks(25)) {
                let address = reach(&from, name(&to));
                let sends = data.iter().map(|data| isend(&from, data, address, 7)).collect();
                all_succeed(&from, "send", sends);
                if turn < 2 {
                    from.disconnect(address).unwrap();
                    wait_until("the end is seen", || {
                        to.progress();
                        to.counters().get(Counter::PartnersLost) == turn + 1
                    });
                }
            }
            let mut buffer = vec![0; SHORT];
            for data in &data {
                let receive = post(&to, &mut buffer, 7);
                all_succeed(&to, "receive", vec![receive]);
                assert!(buffer[..data.len()] == **data);
            }
        },
    );
}
