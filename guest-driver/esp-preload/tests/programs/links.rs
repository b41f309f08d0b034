//! Hosts with several interfaces, and hosts that get an authority while others know them already.

use std::time::{Duration, Instant};

use crate::{
    between_hosts,
    faults::{TALK, Talk},
    hosts::{Left, Right},
};

const BOTH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/both.py");

#[test]
fn m_hr2_connections_over_two_interfaces_of_a_program_work_at_the_same_time() {
    between_hosts(
        "links::m_hr2_connections_over_two_interfaces_of_a_program_work_at_the_same_time",
        |mut hosts| {
            let second = hosts.join_again(9000);
            let mut tcp = [hosts.count_tcp(), hosts.count_tcp_at(&second.a)];
            let _server = hosts.serve(Right, 7005, &["python3", TALK, "serve", "7005"]);
            let said = hosts.must_esp(Left, &["python3", BOTH, Right.ip(), Right.second_ip(), "7005"]);
            assert_eq!(said, "same\n");
            assert_eq!(tcp.each_mut().map(|count| count.take()), [0, 0]);
        },
    );
}

#[test]
fn m_hr2_a_host_whose_authority_was_started_is_reached_by_esp_within_the_stated_time() {
    between_hosts(
        "links::m_hr2_a_host_whose_authority_was_started_is_reached_by_esp_within_the_stated_time",
        |mut hosts| {
            hosts.kill_daemon(Right);
            let mut tcp = hosts.count_tcp();
            // That nobody answered for the address is known from now on.
            let mut talk = Talk::new(&hosts);
            assert!(tcp.take() > 0);
            hosts.start_daemon(Right);
            let _server = hosts.serve(Right, 7006, &["python3", TALK, "serve", "7006"]);
            let begin = Instant::now();
            // One connection after the other, each made anew: the first that is made by ESP is the event.
            loop {
                assert_eq!(talk.ask("new 7006"), "same");
                if tcp.take() == 0 {
                    break;
                }
                // Five seconds, and what a busy machine takes.
                assert!(begin.elapsed() < Duration::from_secs(8), "it is still unknown");
            }
        },
    );
}
