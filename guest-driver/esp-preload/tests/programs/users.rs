//! Ordinary users, and what is another user's.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
    time::Instant,
};

use crate::{
    between_hosts,
    faults::TALK,
    hosts::{AS_NOBODY, Host, Hosts, LIMIT, Left, Right, Running, library},
};

/// Debian's, which everybody can start.
const PYTHON: &str = "/usr/bin/python3";

/// Hosts at which everybody finds what programs need: the library, the script and the authority.
struct Open {
    hosts: Hosts,
    library: String,
    talk: String,
}

impl Open {
    fn new(hosts: Hosts) -> Self {
        hosts.open_to_all();
        let copy = |from: &std::path::Path| {
            let to = hosts.dir().join(from.file_name().unwrap());
            fs::copy(from, &to).unwrap();
            fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).unwrap();
            to.to_str().unwrap().to_owned()
        };
        Self {
            library: copy(library()),
            talk: copy(TALK.as_ref()),
            hosts,
        }
    }

    /// A command under `esp-run` that an ordinary user runs.
    fn as_nobody(&self, host: Host, program: &[&str]) -> Command {
        let mut command = self.hosts.command(host);
        command.args([env!("CARGO_BIN_EXE_esp-run"), "--library", &self.library]);
        command.args(AS_NOBODY).args(program);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }
}

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
            let open = Open::new(hosts);
            let hosts = &open.hosts;
            let _roots = hosts.serve(Right, 7005, &[PYTHON, TALK, "serve", "7005"]);
            let words = [PYTHON, "-c", LISTEN, "7005", "80", "7009"];
            // Namespaces have a first port for ordinary users, which may be below 80.
            hosts.must(Right, &["sysctl", "-qw", "net.ipv4.ip_unprivileged_port_start=1024"]);
            let expected = "EADDRINUSE\nEACCES\nlistens\n";
            let by_tcp = hosts.must(Right, &[&AS_NOBODY[..], &words].concat());
            assert_eq!(by_tcp, expected);
            let by_esp = Running::start(&mut open.as_nobody(Right, &words)).text();
            assert_eq!(by_esp, expected);
            // Root is refused what is another user's just so.
            let _nobodys = Running::start(&mut open.as_nobody(Right, &[PYTHON, &open.talk, "serve", "7010"]));
            hosts.await_listener(Right, 7010);
            assert_eq!(hosts.must_esp(Right, &[PYTHON, "-c", LISTEN, "7010"]), "EADDRINUSE\n");
        },
    );
}

#[test]
fn m_hr2_ordinary_users_connect_and_listen_by_esp() {
    between_hosts("users::m_hr2_ordinary_users_connect_and_listen_by_esp", |hosts| {
        let open = Open::new(hosts);
        let mut tcp = open.hosts.count_tcp();
        let _server = Running::start(&mut open.as_nobody(Right, &[PYTHON, &open.talk, "serve", "7005"]));
        open.hosts.await_listener(Right, 7005);
        let words = [PYTHON, &open.talk, "connect", Right.ip(), "7005"];
        let mut client = Running::start(&mut open.as_nobody(Left, &words));
        client.tell("echo 100000\nnew\n");
        client.end_input();
        assert_eq!(client.text(), "connected\nsame\nsame\n");
        assert_eq!(tcp.take(), 0);
    });
}

/// Listens, forks and becomes a user who may not use the authority, in the order that its first argument says; answers connections.
const WORK: &str = "
import ctypes, os, signal, socket, sys
def become_nobody():
    os.setgroups([])
    os.setgid(65533)
    os.setuid(65533)
one = socket.socket()
one.bind(('0.0.0.0', int(sys.argv[2])))
one.listen()
if sys.argv[1] == 'user-first':
    become_nobody()
if os.fork():
    os.wait()
    sys.exit()
if sys.argv[1] == 'fork-first':
    become_nobody()
# PR_SET_PDEATHSIG: it ends with its parent.
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
while True:
    other = one.accept()[0]
    other.sendall(other.recv(100))
    other.close()
";

/// Connects, and wants its words back.
const ASK: &str = "
import socket, sys
one = socket.create_connection((sys.argv[1], int(sys.argv[2])))
one.sendall(b'words')
print(one.recv(5, socket.MSG_WAITALL) == b'words')
";

/// Starts a server of [`WORK`] at the right host and asks it from the left one; whether that went by TCP.
fn asks_by_tcp(hosts: &Hosts, port: &str) -> bool {
    let mut tcp = hosts.count_tcp();
    assert_eq!(
        hosts.must_esp(Left, &["python3", "-c", ASK, Right.ip(), port]),
        "True\n"
    );
    tcp.take() > 0
}

#[test]
fn m_hr2_workers_that_become_another_user_are_reached_by_esp_and_by_tcp_after_a_new_authority() {
    between_hosts(
        "users::m_hr2_workers_that_become_another_user_are_reached_by_esp_and_by_tcp_after_a_new_authority",
        |mut hosts| {
            let _server = hosts.serve(Right, 7013, &["python3", "-c", WORK, "fork-first", "7013"]);
            assert!(!asks_by_tcp(&hosts, "7013"));
            // The parent could have its listener announced again, but the child could take nothing up.
            let _other = hosts.serve(Right, 7014, &["python3", TALK, "serve", "7014"]);
            hosts.kill_daemon(Right);
            hosts.start_daemon(Right);
            let begin = Instant::now();
            while asks_by_tcp(&hosts, "7014") {
                assert!(begin.elapsed() < LIMIT, "no listener is registered again");
            }
            for _ in 0..3 {
                assert!(asks_by_tcp(&hosts, "7013"));
            }
        },
    );
}

#[test]
fn m_hr2_children_of_a_program_that_became_another_user_are_reached_by_tcp() {
    between_hosts(
        "users::m_hr2_children_of_a_program_that_became_another_user_are_reached_by_tcp",
        |hosts| {
            let _server = hosts.serve(Right, 7015, &["python3", "-c", WORK, "user-first", "7015"]);
            for _ in 0..3 {
                assert!(asks_by_tcp(&hosts, "7015"));
            }
        },
    );
}
