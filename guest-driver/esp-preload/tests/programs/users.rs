//! Ordinary users, and what is another user's.

use std::process::Stdio;

use crate::{
    between_hosts,
    faults::TALK,
    hosts::{AS_NOBODY, Left, Right, Running},
};

/// Binds and listens at ports, and says what came of each.
const LISTEN: &str = "
import errno, socket, sys
for port in map(int, sys.argv[1:]):
    one = socket.socket()
    one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        one.bind(('0.0.0.0', port))
        one.listen()
        print('listens')
    except OSError as error:
        print(errno.errorcode[error.errno])
";

#[test]
fn m_hr2_another_users_ports_and_those_of_root_are_refused_as_by_tcp() {
    between_hosts(
        "users::m_hr2_another_users_ports_and_those_of_root_are_refused_as_by_tcp",
        |hosts| {
            let _roots = hosts.serve(Right, 7005, &["python3", TALK, "serve", "7005"]);
            let words = ["python3", "-c", LISTEN, "7005", "80", "7009"];
            // Namespaces have a first port for ordinary users, which may be below 80.
            hosts.must(Right, &["sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=1024"]);
            let expected = "EADDRINUSE\nEACCES\nlistens\n";
            let by_tcp = hosts.must(Right, &[&AS_NOBODY[..], &words].concat());
            assert_eq!(by_tcp, expected);
            let by_esp = hosts.must_esp(Right, &[&AS_NOBODY[..], &words].concat());
            assert_eq!(by_esp, expected);
            // Root is refused what is another user's just so.
            let nobodys = [&AS_NOBODY[..], &["python3", TALK, "serve", "7010"]].concat();
            let _nobodys = hosts.serve(Right, 7010, &nobodys);
            assert_eq!(
                hosts.must_esp(Right, &["python3", "-c", LISTEN, "7010"]),
                "EADDRINUSE\n"
            );
        },
    );
}

#[test]
fn m_hr2_ordinary_users_connect_and_listen_by_esp() {
    between_hosts("users::m_hr2_ordinary_users_connect_and_listen_by_esp", |hosts| {
        let mut tcp = hosts.count_tcp();
        let server = [&AS_NOBODY[..], &["python3", TALK, "serve", "7005"]].concat();
        let _server = hosts.serve(Right, 7005, &server);
        let mut command = hosts.esp(Left);
        command
            .args(AS_NOBODY)
            .args(["python3", TALK, "connect", Right.ip(), "7005"]);
        let mut client = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        client.tell("echo 100000\nnew\n");
        client.end_input();
        assert_eq!(client.text(), "connected\nsame\nsame\n");
        assert_eq!(tcp.take(), 0);
    });
}
