//! What programs leave behind when they end, and what they see of ends and of limits.

use std::{
    fs,
    time::{Duration, Instant},
};

use crate::{
    between_hosts,
    faults::TALK,
    hosts::{Left, Right, Running},
};

const LEAVE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/leave.py");
const LIMITS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python/limits.py");
/// More bytes than the receiver's host keeps unread: 1 MiB there, and the rest in the sender.
const LEN: &str = "1400000";
/// So long the receiver reads nothing, in seconds: longer than the end of any process waits.
const LATER: &str = "10";

#[test]
fn m_hr4_bytes_of_a_program_that_has_ended_arrive_although_they_are_read_much_later() {
    between_hosts(
        "endings::m_hr4_bytes_of_a_program_that_has_ended_arrive_although_they_are_read_much_later",
        |hosts| {
            let mut tcp = hosts.count_tcp();
            let receiver = hosts.start_esp(Right, &["python3", LEAVE, "receive", "7008", LATER]);
            hosts.await_listener(Right, 7008);
            let statistics = hosts.dir().join("statistics");
            let mut command = hosts.esp(Left);
            command.env("ESP_STATISTICS", &statistics);
            command.args(["python3", LEAVE, "send", Right.ip(), "7008", LEN]);
            command.stdout(std::process::Stdio::piped());
            let begin = Instant::now();
            let sent = Running::start(&mut command).text();
            assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
            let said = fs::read_to_string(statistics).unwrap();
            assert!(said.contains("connects=1") && said.contains("finishes=1"), "{said}");
            assert_eq!(receiver.text(), sent);
            assert_eq!(tcp.take(), 0);
        },
    );
}

#[test]
fn m_hr2_a_set_of_epoll_shows_that_a_connection_was_reset() {
    between_hosts(
        "endings::m_hr2_a_set_of_epoll_shows_that_a_connection_was_reset",
        |hosts| {
            let mut tcp = hosts.count_tcp();
            let server = hosts.start_esp(Right, &["python3", LIMITS, "reset", "7011"]);
            hosts.await_listener(Right, 7011);
            hosts.must_esp(Left, &["python3", LIMITS, "client-reset", Right.ip(), "7011"]);
            assert_eq!(server.text(), "True\n");
            assert_eq!(tcp.take(), 0);
        },
    );
}

#[test]
fn m_hr2_a_server_with_few_descriptors_is_told_so_and_loses_no_connection() {
    between_hosts(
        "endings::m_hr2_a_server_with_few_descriptors_is_told_so_and_loses_no_connection",
        |hosts| {
            let mut tcp = hosts.count_tcp();
            // A connection takes four numbers, so with one of these counts they end where any step of its begins.
            let servers = (100..104).flat_map(|count| [("few", count), ("few-forked", count)]);
            for ((kind, count), port) in servers.zip(7012..) {
                let (count, port) = (count.to_string(), port.to_string());
                let server = hosts.start_esp(Right, &["python3", LIMITS, kind, &count, &port]);
                hosts.await_listener(Right, port.parse().unwrap());
                let client = hosts.must_esp(Left, &["python3", LIMITS, "client-few", Right.ip(), &port]);
                assert_eq!(
                    (client.as_str(), server.text().as_str()),
                    ("answered 40\n", "served 40 short\n"),
                    "{kind} {count}"
                );
            }
            assert_eq!(tcp.take(), 0);
        },
    );
}

#[test]
fn m_hr2_a_thread_waits_for_bytes_while_its_program_has_no_descriptor_left() {
    between_hosts(
        "endings::m_hr2_a_thread_waits_for_bytes_while_its_program_has_no_descriptor_left",
        |hosts| {
            let mut tcp = hosts.count_tcp();
            let server = hosts.start_esp(Right, &["socat", "TCP-LISTEN:7020", "PIPE"]);
            hosts.await_listener(Right, 7020);
            let said = hosts.must_esp(Left, &["python3", LIMITS, "client-full", Right.ip(), "7020"]);
            assert_eq!(said, "[b'all numbers are used']\n");
            server.finish();
            assert_eq!(tcp.take(), 0);
        },
    );
}

/// Forks with a connection, uses it first in the parent, and says what calls do in the child.
const SHARE: &str = "
import errno, os, socket, sys
one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
ours, theirs = os.pipe()
def said(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]
if os.fork() == 0:
    os.read(ours, 1)
    print(said(lambda: one.send(b'child')), said(lambda: one.recv(1)))
    one.setblocking(False)
    print(said(lambda: one.send(b'child')), said(lambda: one.recv(1)), flush=True)
    os._exit(0)
one.sendall(b'parent')
os.write(theirs, b'.')
os.wait()
print(one.recv(6, socket.MSG_WAITALL).decode())
";

#[test]
fn m_hr2_after_a_fork_one_process_has_a_connection_and_the_other_is_told_so() {
    between_hosts(
        "endings::m_hr2_after_a_fork_one_process_has_a_connection_and_the_other_is_told_so",
        |hosts| {
            let _server = hosts.serve(Right, 7016, &["python3", TALK, "serve", "7016"]);
            let said = hosts.must_esp(Left, &["python3", "-c", SHARE, Right.ip(), "7016"]);
            assert_eq!(said, "EBADF EBADF\nEBADF EBADF\nparent\n");
        },
    );
}
