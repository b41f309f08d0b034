//! Many connections, and many programs.

use std::{
    env, fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

use netif::Interface;
use weft_authority::Session;

use crate::{
    between_hosts,
    faults::TALK,
    hosts::{Left, Right, Running, compile},
};

/// Connections of one program.
const CROWD: u64 = 10_000;
/// Descriptors of a connection in a program: its own, and the library's.
const DESCRIPTORS: u64 = 4;
/// Descriptors that everything else takes.
const OTHER_DESCRIPTORS: u64 = 200;

/// As many connections as the system's limit on descriptors leaves room for, [`CROWD`] at most.
fn crowd() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    limit.map_or(CROWD, |limit| ((limit - OTHER_DESCRIPTORS) / DESCRIPTORS).min(CROWD))
}

/// Memory of a process that is in use, in KiB.
pub fn memory_of(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

const TAKES: &str = "OMX_TEST_TAKES";
/// Requests that an authority answers at a time, above which it refuses programs: more than it has ports for.
const BEFORE: usize = 200;

/// A program that takes what an authority has: first so many connections to it, then all ports, then all connections. It says when,
/// and goes on when it is told. Started by the test below; on its own it has nothing to do.
#[test]
fn taking_program_of_the_other_test() {
    let Ok(interface) = env::var(TAKES) else { return };
    let interface = Interface::find(&interface).unwrap();
    let mut kept = Vec::new();
    let connect = || Session::connect_to_running(&interface);
    let mut lines = std::io::stdin().lines();
    let mut say = |words: String| {
        println!("\n@{words}");
        assert!(lines.next().is_some());
    };
    kept.extend((0..BEFORE).map(|_| connect().unwrap().unwrap()));
    say("connections".to_owned());
    // The sockets are closed at once; the ports are the session's all the same.
    let mut blocks = 0;
    for session in &kept {
        let mut is_opened = session.open_esp().is_ok();
        while is_opened {
            blocks += 1;
            is_opened = session.more_esp_ports().is_ok();
        }
    }
    say(format!("{blocks} blocks"));
    while let Ok(Some(session)) = connect() {
        kept.push(session);
    }
    say(format!("{} connections", kept.len()));
}

#[test]
fn m_hr4_programs_for_which_nothing_is_left_use_tcp_and_say_so() {
    between_hosts(
        "crowds::m_hr4_programs_for_which_nothing_is_left_use_tcp_and_say_so",
        |hosts| {
            let _server = hosts.serve(Right, 7005, &["python3", TALK, "serve", "7005"]);
            let mut command = hosts.command(Left);
            command
                .arg(env::current_exe().unwrap())
                .env(TAKES, hosts.interface(Left));
            command.args(["--exact", "crowds::taking_program_of_the_other_test", "--nocapture"]);
            let mut taking = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
            let mut lines = BufReader::new(taking.output()).lines().map(Result::unwrap);
            let mut hear = || lines.find_map(|line| Some(line.strip_prefix('@')?.to_owned())).unwrap();
            let mut tcp = hosts.count_tcp();
            let mut talks = |by_esp: bool| {
                let statistics = hosts.dir().join("statistics");
                let _ = fs::remove_file(&statistics);
                let mut command = hosts.esp(Left);
                command.env("ESP_STATISTICS", &statistics);
                command.args(["python3", TALK, "connect", Right.ip(), "7005"]);
                let mut client = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
                client.tell("echo 100000\n");
                client.end_input();
                assert_eq!(client.text(), "connected\nsame\n");
                let counted = if by_esp {
                    "connects=1 accepts=0 fall_backs=0"
                } else {
                    "connects=0 accepts=0 fall_backs=1"
                };
                let said = fs::read_to_string(statistics).unwrap();
                assert!(said.contains(counted), "{said}");
                assert_eq!(tcp.take() == 0, by_esp);
            };
            assert_eq!(hear(), "connections");
            talks(true);
            taking.tell("go\n");
            assert_eq!(hear(), "240 blocks");
            talks(false);
            let mut command = hosts.esp(Left);
            command.env("ESP_FALLBACK", "never").stderr(Stdio::piped());
            command.args(["python3", TALK, "connect", Right.ip(), "7005"]);
            let refused = command.output().unwrap();
            let said = String::from_utf8_lossy(&refused.stderr);
            assert!(said.contains("Network is unreachable"), "{said}");
            // A server for which no ports are left is reached by TCP.
            let _late = hosts.serve(Left, 7006, &["python3", TALK, "serve", "7006"]);
            let mut command = hosts.esp(Right);
            command.args(["python3", TALK, "connect", Left.ip(), "7006"]);
            let mut client = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
            client.tell("echo 100000\n");
            client.end_input();
            assert_eq!(client.text(), "connected\nsame\n");
            taking.tell("go\n");
            assert!(hear().ends_with(" connections"));
            talks(false);
            taking.tell("go\n");
            taking.finish();
            // All that it had is free as soon as it has ended.
            talks(true);
        },
    );
}

#[test]
fn m_hr4_one_program_has_ten_thousand_connections_that_all_carry_data() {
    between_hosts(
        "crowds::m_hr4_one_program_has_ten_thousand_connections_that_all_carry_data",
        |hosts| {
            let (program, crowd) = (compile(&hosts, "crowd.c"), crowd().to_string());
            let mut tcp = hosts.count_tcp();
            let mut command = hosts.esp(Right);
            command.args([&program, "serve", "7100", &crowd]);
            let server = Running::start(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
            hosts.await_listener(Right, 7100);
            let before = [server.pid(), hosts.daemon(Right)].map(memory_of);
            let mut command = hosts.esp(Left);
            command.args([&program, "connect", Right.ip(), "7100", &crowd]);
            let mut client = Running::start(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
            let mut said = String::new();
            BufReader::new(client.output()).read_line(&mut said).unwrap();
            assert!(said.starts_with("open: "), "{said}");
            let [server_kib, omxd_kib] = [server.pid(), hosts.daemon(Right)].map(memory_of);
            let client_kib = memory_of(client.pid());
            println!(
                "{said}server: {server_kib} KiB (before {}), client: {client_kib} KiB, omxd: {omxd_kib} KiB (before {})",
                before[0], before[1]
            );
            client.end_input();
            client.finish();
            assert_eq!(server.text(), format!("accepted {crowd}\n"));
            assert_eq!(tcp.take(), 0);
            // Sixteen KiB each in the program, and nothing for each in the authority, which handed all of them over.
            assert!(server_kib - before[0] < 160_000, "{server_kib} KiB");
            assert!(omxd_kib < 64 << 10, "{omxd_kib} KiB");
        },
    );
}
