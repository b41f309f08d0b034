//! The MTU of interfaces changes while programs talk.

use std::time::Instant;

use weft_guest_driver_testkit::in_private_network_as_root;

use crate::{
    faults::Talk,
    hosts::{Hosts, LIMIT, Left, Right},
    shown::shown,
};

fn set_mtu(hosts: &Hosts, mtu: u16) {
    for host in [Left, Right] {
        let mtu = mtu.to_string();
        hosts.must(host, &["ip", "link", "set", hosts.interface(host), "mtu", &mtu]);
    }
}

/// Returns a figure of the left host's only connection.
fn figure(text: &str, name: &str) -> u64 {
    let word = text.split_whitespace().find_map(|word| word.strip_prefix(name));
    word.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
}

#[test]
fn m_hr2_a_stream_goes_on_in_both_directions_over_changes_of_the_mtu() {
    let test = "mtu::m_hr2_a_stream_goes_on_in_both_directions_over_changes_of_the_mtu";
    in_private_network_as_root(test, || {
        let hosts = Hosts::new(9000);
        let mut tcp = hosts.count_tcp();
        let mut talk = Talk::new(&hosts);
        talk.tell("flow");
        shown(&hosts, Left, &[], &[" mss:8975 "]);
        for (mtu, mss) in [(1500, " mss:1475 "), (9000, " mss:8975 "), (1500, " mss:1475 ")] {
            set_mtu(&hosts, mtu);
            for host in [Left, Right] {
                let before = figure(&shown(&hosts, host, &[], &[mss]), "bytes_received:");
                let begin = Instant::now();
                while figure(&shown(&hosts, host, &[], &[]), "bytes_received:") <= before {
                    assert!(begin.elapsed() < LIMIT, "nothing came since the MTU is {mtu}");
                }
            }
        }
        talk.tell("enough");
        assert_eq!(talk.answer(), "same");
        assert_eq!(talk.ask("echo 1000000"), "same");
        assert_eq!(tcp.take(), 0);
    });
}

#[test]
fn m_hr2_connections_are_made_with_frames_that_fit_the_ports_of_their_programs() {
    let test = "mtu::m_hr2_connections_are_made_with_frames_that_fit_the_ports_of_their_programs";
    in_private_network_as_root(test, || {
        let hosts = Hosts::new(1500);
        let mut tcp = hosts.count_tcp();
        let mut talk = Talk::new(&hosts);
        assert_eq!(talk.ask("echo 100000"), "same");
        set_mtu(&hosts, 9000);
        assert_eq!(talk.ask("echo 1000000"), "same");
        // The server's port is from before, the new client's is not.
        let mut other = Talk::client(&hosts);
        assert_eq!(other.ask("echo 1000000"), "same");
        assert_eq!(talk.ask("new"), "same");
        shown(&hosts, Left, &[], &[" mss:1475 ", " bytes_sent:1000000 "]);
        // When it has ended, all ports have room for long frames.
        drop((talk, other));
        let mut talk = Talk::new(&hosts);
        assert_eq!(talk.ask("echo 1000000"), "same");
        shown(&hosts, Left, &[], &[" mss:8975 ", " bytes_sent:1000000 "]);
        assert_eq!(tcp.take(), 0);
    });
}
