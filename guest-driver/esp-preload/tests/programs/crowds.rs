//! Many connections, and many programs.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Stdio,
};

use crate::{
    between_hosts,
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
