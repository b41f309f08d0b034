//! The same script of calls over TCP and over ESP gives the same results and errors.

use crate::{
    between_hosts,
    hosts::{Hosts, Left, Right, compile},
};

fn outputs(hosts: &Hosts, program: &str, esp: bool) -> [String; 2] {
    let start = |host, arguments: &[&str]| {
        let all = [&[program], arguments].concat();
        if esp {
            hosts.start_esp(host, &all)
        } else {
            hosts.start(host, &all)
        }
    };
    let server = start(Right, &["server", Right.ip(), Left.ip()]);
    let client = start(Left, &["client", Left.ip(), Right.ip()]);
    [client.text(), server.text()]
}

#[test]
fn m_hr2_calls_return_over_esp_what_they_return_over_tcp() {
    between_hosts(
        "differential::m_hr2_calls_return_over_esp_what_they_return_over_tcp",
        |hosts| {
            let program = compile(&hosts, "differential.c");
            let by_tcp = outputs(&hosts, &program, false);
            let mut tcp_count = hosts.count_tcp();
            let by_esp = outputs(&hosts, &program, true);
            for (tcp, esp) in by_tcp.iter().zip(&by_esp) {
                let (tcp, esp): (Vec<_>, Vec<_>) = (tcp.lines().collect(), esp.lines().collect());
                for (tcp, esp) in tcp.iter().zip(&esp) {
                    assert_eq!(esp, tcp);
                }
                assert_eq!(esp.len(), tcp.len());
            }
            // Two attempts to reach a port at which nobody listens are left to TCP, and refused with a segment each.
            assert_eq!(tcp_count.take(), 2);
        },
    );
}
