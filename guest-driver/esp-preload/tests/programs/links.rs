//! Hosts with several interfaces.

use crate::{
    between_hosts,
    faults::TALK,
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
