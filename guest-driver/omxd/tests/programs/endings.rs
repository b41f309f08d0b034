//! The end of a message, a conversation, an endpoint or a program, as others of the same host see it. A child that inherited a
//! program's descriptors keeps none of it from them.

use std::{os::fd::AsFd, time::Duration};

use omx::{Address, Board, Endpoint, EndpointOptions, Segment, StatusCode};
use weft_authority::{News, Session, next_visit};
use weft_guest_driver_testkit::Veth;

use crate::{
    authority::Omxd,
    rig::{Echo, LIMIT, Program, exchange, in_own_world, open, wait_until},
    same_host::{isend, options, reach},
};

const LEN: usize = 100_000;

fn name(endpoint: &Endpoint) -> (ether::MacAddr, u8) {
    (endpoint.address().mac(), endpoint.address().endpoint())
}

/// A process that does nothing and ends with this value.
struct Child(i32);

impl Child {
    fn fork() -> Self {
        // SAFETY: the child only sleeps, and ends without any destructor.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            }
        }
        assert!(pid > 0);
        Self(pid)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // SAFETY: a process that is ended only here.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        // SAFETY: reaps it if it is this process's own.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

/// A message of `LEN` bytes that was matched, but is not received yet, ends for the receiver with this.
fn end_of_announced(to: &Endpoint) -> (StatusCode, u8) {
    let mut buffer = vec![0_u8; LEN];
    // SAFETY: the buffer lives until the request is over.
    let receive = unsafe { to.irecv(&[Segment::of_mut(&mut buffer)], 5, u64::MAX, 0) }.unwrap();
    let status = to.wait(receive, Some(LIMIT)).unwrap().expect("the receive ends");
    (status.code, buffer[0])
}

/// As happens where a program has something done when it exits, and forks.
#[test]
fn a_child_that_closes_what_it_was_born_with_takes_nothing_from_its_parent() {
    in_own_world(
        "endings::a_child_that_closes_what_it_was_born_with_takes_nothing_from_its_parent",
        || {
            let veth = Veth::new(1500);
            let endpoint = open(&veth.a, Some(3)).unwrap();
            let other = open(&veth.b, None).unwrap();
            let to = reach(&other, name(&endpoint));
            let board = Board::named(&veth.a).unwrap();
            let before = board.status().unwrap().0.endpoints;
            assert_eq!(before.len(), 1);
            for round in 0..20 {
                // SAFETY: the child closes an endpoint, which needs no lock there, and ends without any destructor.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    let _ = endpoint.close();
                    // SAFETY: ends the child.
                    unsafe { libc::_exit(0) };
                }
                let mut status = 0;
                // SAFETY: reaps the child.
                wait_until("the end of the child", || unsafe {
                    libc::waitpid(pid, &raw mut status, libc::WNOHANG) == pid
                });
                assert_eq!(board.status().unwrap().0.endpoints, before, "round {round}");
                let send = isend(&other, &[round; 200], to, 5);
                let mut buffer = [0; 200];
                endpoint.receive(&mut buffer, 5, u64::MAX).unwrap();
                assert_eq!(buffer, [round; 200]);
                assert_eq!(
                    other.wait(send, Some(LIMIT)).unwrap().unwrap().code,
                    StatusCode::Success
                );
            }
            assert_eq!(
                other.counters().get(omx::Counter::DropOldAck),
                0,
                "its parent acknowledges"
            );
        },
    );
}

#[test]
fn a_message_that_was_given_up_is_not_received_with_bytes_that_were_never_sent() {
    in_own_world(
        "endings::a_message_that_was_given_up_is_not_received_with_bytes_that_were_never_sent",
        || {
            let veth = Veth::new(1500);
            for single_copy in [true, false] {
                let [from, to] = [(); 2].map(|()| {
                    Endpoint::open(&EndpointOptions {
                        single_copy,
                        ..options(&veth.a)
                    })
                    .unwrap()
                });
                let address = reach(&from, name(&to));
                let mut data = vec![1_u8; LEN];
                let send = isend(&from, &data, address, 5);
                // It is there, unexpected.
                assert!(to.probe(5, u64::MAX, Some(LIMIT)).unwrap().is_some());
                from.set_request_timeout(Some(send), Duration::from_millis(1)).unwrap();
                let status = from.wait(send, Some(LIMIT)).unwrap().unwrap();
                assert_eq!(status.code, StatusCode::Timeout);
                data.fill(2);
                let (code, _) = end_of_announced(&to);
                assert_eq!(code, StatusCode::BadRdmaWindow, "single copy: {single_copy}");
                // Those after it are received.
                let send = isend(&from, &data, address, 5);
                assert_eq!(end_of_announced(&to), (StatusCode::Success, 2));
                assert_eq!(from.wait(send, Some(LIMIT)).unwrap().unwrap().code, StatusCode::Success);
            }
        },
    );
}

#[test]
fn a_message_of_a_sender_that_disconnected_is_not_received_with_bytes_that_were_never_sent() {
    in_own_world(
        "endings::a_message_of_a_sender_that_disconnected_is_not_received_with_bytes_that_were_never_sent",
        || {
            let veth = Veth::new(1500);
            // The receiver does not look in between: it finds the message and the end of the conversation at the same time.
            let [from, to] = [(); 2].map(|()| {
                Endpoint::open(&EndpointOptions {
                    progress: false,
                    ..options(&veth.a)
                })
                .unwrap()
            });
            for _ in 0..20 {
                let connecting = from.iconnect(name(&to).0, name(&to).1, 0, 0, 0).unwrap();
                let mut status = None;
                wait_until("connected", || {
                    to.progress();
                    status = from.test(connecting).unwrap();
                    status.is_some()
                });
                let address = status.unwrap().address.unwrap();
                let mut data = vec![1_u8; LEN];
                let send = isend(&from, &data, address, 5);
                wait_until("it is there", || to.iprobe(5, u64::MAX).unwrap().is_some());
                from.disconnect(address).unwrap();
                assert_eq!(
                    from.wait(send, Some(LIMIT)).unwrap().unwrap().code,
                    StatusCode::Unreachable
                );
                data.fill(2);
                let mut buffer = vec![0_u8; LEN];
                // SAFETY: the buffer lives until the request is over.
                let receive = unsafe { to.irecv(&[Segment::of_mut(&mut buffer)], 5, u64::MAX, 0) }.unwrap();
                let mut status = None;
                wait_until("the end is seen", || {
                    status = to.test(receive).unwrap();
                    status.is_some() || to.iprobe(5, u64::MAX).unwrap().is_none() && to.cancel(receive).unwrap()
                });
                assert!(
                    status.is_none_or(|status| status.code != StatusCode::Success),
                    "{status:?}"
                );
            }
        },
    );
}

/// Messages to an endpoint that ended fail soon.
fn is_told(own: &Endpoint, to: Address) {
    wait_until("it is told", || own.send(b"x", to, 1).is_err());
}

#[test]
fn a_partner_learns_that_an_endpoint_is_closed_though_a_child_has_its_sockets() {
    in_own_world(
        "endings::a_partner_learns_that_an_endpoint_is_closed_though_a_child_has_its_sockets",
        || {
            let veth = Veth::new(1500);
            let [own, other] = [(); 2].map(|()| open(&veth.a, None).unwrap());
            let to = reach(&own, name(&other));
            own.send(b"x", to, 1).unwrap();
            let _child = Child::fork();
            drop(other);
            is_told(&own, to);
        },
    );
}

#[test]
fn a_partner_learns_that_an_endpoint_is_closed_though_a_clone_of_it_is_left() {
    in_own_world(
        "endings::a_partner_learns_that_an_endpoint_is_closed_though_a_clone_of_it_is_left",
        || {
            let veth = Veth::new(1500);
            let [own, other] = [(); 2].map(|()| open(&veth.a, None).unwrap());
            let to = reach(&own, name(&other));
            own.send(b"x", to, 1).unwrap();
            let _clone = other.clone();
            other.close().unwrap();
            is_told(&own, to);
        },
    );
}

#[test]
fn a_partner_learns_that_a_program_was_killed_though_its_child_lives() {
    in_own_world(
        "endings::a_partner_learns_that_a_program_was_killed_though_its_child_lives",
        || {
            // An authority does not know whom programs met before it was there.
            for restart in ["never", "before the program ends", "after it"] {
                let veth = Veth::new(1500);
                let mut omxd = Omxd::start(&[], &veth.a, &[]);
                let own = open(&veth.a, None).unwrap();
                let mut program = Program::start(&[], "endings::program_with_a_child", "OMX_TEST_CHILD", &veth.a);
                let said = program.hear();
                let (mac, number) = said.split_once(' ').unwrap();
                let to = reach(&own, (mac.parse().unwrap(), number.parse().unwrap()));
                if restart == "before the program ends" {
                    omxd.kill();
                    omxd = Omxd::start(&[], &veth.a, &[]);
                    wait_until("both are back", || omxd.status().0.endpoints.len() == 2);
                }
                own.send(b"x", to, 1).unwrap();
                let child = Child(program.hear().parse().unwrap());
                if restart == "after it" {
                    omxd.kill();
                }
                drop(program);
                let kept = std::fs::read_dir(format!("/proc/{}/fd", child.0)).unwrap().count();
                assert!(kept > 5, "the child has {kept} descriptors");
                if restart == "after it" {
                    omxd = Omxd::start(&[], &veth.a, &[]);
                }
                wait_until("omxd knows", || omxd.status().0.endpoints.len() == 1);
                is_told(&own, to);
            }
        },
    );
}

#[test]
fn who_comes_back_to_a_restarted_omxd_late_learns_who_ended_before() {
    in_own_world(
        "endings::who_comes_back_to_a_restarted_omxd_late_learns_who_ended_before",
        || {
            let veth = Veth::new(1500);
            let mut omxd = Omxd::start(&[], &veth.a, &[]);
            let connect = || Session::connect(Board::named(&veth.a).unwrap().interface()).unwrap();
            let (mut late, mut other) = (connect(), connect());
            late.open_endpoint(Some(0)).unwrap();
            other.open_endpoint(Some(1)).unwrap();
            omxd.kill();
            omxd = Omxd::start(&[], &veth.a, &[]);
            other.resume(1).unwrap();
            drop(other);
            wait_until("omxd knows", || omxd.status().0.endpoints.is_empty());
            let visits = late.resume(0).unwrap().visits;
            let told = next_visit(visits.as_fd()).unwrap();
            assert!(matches!(told, Some(News::Over { id: None, endpoint: 1 })), "{told:?}");
            assert!(next_visit(visits.as_fd()).unwrap().is_none());
        },
    );
}

/// Another process of the tests above.
#[test]
fn program_with_a_child() {
    let Ok(interface) = std::env::var("OMX_TEST_CHILD") else {
        return;
    };
    let endpoint = open(&interface, None).unwrap();
    println!("\n@{} {}", endpoint.address().mac(), endpoint.address().endpoint());
    endpoint.receive(&mut [0; 8], 1, u64::MAX).unwrap();
    let child = Child::fork();
    println!("\n@{}", child.0);
    // Until it is killed.
    _ = endpoint.receive(&mut [0; 8], 1 << 60, u64::MAX);
}

#[test]
fn a_wait_sleeps_after_a_partner_ended_though_a_child_has_the_sockets() {
    in_own_world(
        "endings::a_wait_sleeps_after_a_partner_ended_though_a_child_has_the_sockets",
        || {
            let veth = Veth::new(1500);
            let own = open(&veth.a, None).unwrap();
            let mut echo = Echo::start(&veth.a, &[]);
            let to = reach(&own, echo.go_as());
            exchange(&own, to, 100, 1);
            let _child = Child::fork();
            drop(echo);
            is_told(&own, to);
            let mut buffer = [0; 8];
            // SAFETY: cancelled below.
            let receive = unsafe { own.irecv(&[Segment::of_mut(&mut buffer)], 77, u64::MAX, 0) }.unwrap();
            let before = cpu();
            assert!(own.wait(receive, Some(Duration::from_secs(1))).unwrap().is_none());
            let used = cpu() - before;
            assert!(own.cancel(receive).unwrap());
            // One that spins uses nearly all of the second.
            assert!(used < Duration::from_millis(200), "{used:?}");
        },
    );
}

/// What this process has used.
fn cpu() -> Duration {
    let used = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(used.tv_sec as u64, used.tv_nsec as u32)
}
