//! What `esp_ss` shows of programs that talk.

use std::{path::PathBuf, time::Instant};

use crate::{
    between_hosts,
    faults::Talk,
    hosts::{Host, Hosts, LIMIT, Left, Right, programs},
};

fn esp_ss() -> PathBuf {
    let program = programs().join("esp_ss");
    assert!(
        program.is_file(),
        "these tests need the program esp_ss: `cargo build -p weft-guest-tools` in the same profile makes it"
    );
    program
}

/// Runs `esp_ss` again and again until it shows what is wanted: programs report in an interval of their own, which nothing announces.
pub fn shown(hosts: &Hosts, host: Host, options: &[&str], wanted: &[&str]) -> String {
    let program = esp_ss();
    let begin = Instant::now();
    loop {
        let text = hosts.must(host, &[&[program.to_str().unwrap()], options].concat());
        if wanted.iter().all(|wanted| text.contains(wanted)) {
            return text;
        }
        assert!(begin.elapsed() < LIMIT, "{wanted:?} is not in\n{text}");
    }
}

#[test]
fn m_hr2_esp_ss_shows_both_ends_of_a_connection_with_its_queues_figures_and_program() {
    let test = "shown::m_hr2_esp_ss_shows_both_ends_of_a_connection_with_its_queues_figures_and_program";
    between_hosts(test, |mut hosts| {
        let mut talk = Talk::new(&hosts);
        assert_eq!(talk.ask("echo 100000"), "same");
        let (client, server) = (talk.client_pid(), talk.server_pid());
        let sent = " bytes_sent:100000 bytes_acked:100000 bytes_received:100000 ";
        let process = format!("users:((\"python3\",pid={client},fd=");
        let text = shown(
            &hosts,
            Left,
            &["-p"],
            &["ESTAB", " 192.0.2.2:7005 ", sent, &process, " rtt:", " lastrcv:"],
        );
        assert_eq!(text.lines().count(), 3, "{text}");
        // Descriptors that the library has for itself are not the program's.
        assert_eq!(text.matches(",fd=").count(), 1, "{text}");
        let process = format!("users:((\"python3\",pid={server},fd=");
        shown(
            &hosts,
            Right,
            &["-p"],
            &["ESTAB 0      0      192.0.2.2:7005", sent, &process],
        );
        let listener = format!("users:((\"python3\",pid={server}))");
        shown(
            &hosts,
            Right,
            &["-lp"],
            &["LISTEN 0      0      0.0.0.0:7005", " half_open:0", &listener],
        );
        // What a program does not read, waits.
        assert_eq!(talk.ask("write 3000"), "written");
        shown(&hosts, Left, &[], &["ESTAB 3000 "]);
        let json = shown(&hosts, Left, &["--json"], &["\"recv_q\":3000"]);
        assert!(
            json.contains("\"peer\":\"192.0.2.2:7005\"") && !json.contains("users"),
            "{json}"
        );
        // A new authority is told, as well.
        hosts.kill_daemon(Right);
        hosts.start_daemon(Right);
        shown(&hosts, Right, &[], &["ESTAB"]);
        // No connection is no error.
        drop(talk);
        for host in [Left, Right] {
            let begin = Instant::now();
            while shown(&hosts, host, &["-H"], &[]).contains("ESTAB") {
                assert!(
                    begin.elapsed() < LIMIT,
                    "a connection of a program that has ended is shown"
                );
            }
            assert_eq!(
                shown(&hosts, host, &["-H"], &[]),
                "",
                "a script that counts lines counts none"
            );
        }
    });
}

#[test]
fn m_hr2_esp_ss_shows_a_connection_that_no_program_has_accepted_and_says_when_there_is_no_esp() {
    let test = "shown::m_hr2_esp_ss_shows_a_connection_that_no_program_has_accepted_and_says_when_there_is_no_esp";
    between_hosts(test, |mut hosts| {
        let listens = "import socket, sys; l = socket.create_server(('', 7007)); sys.stdin.read()";
        let mut command = hosts.esp(Right);
        let mut server = command
            .args(["python3", "-c", listens])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        hosts.await_listener(Right, 7007);
        let connects = "import socket, time; s = socket.create_connection(('192.0.2.2', 7007)); time.sleep(100)";
        let _client = hosts.start_esp(Left, &["python3", "-c", connects]);
        shown(&hosts, Left, &[], &["ESTAB", " 192.0.2.2:7007"]);
        let text = shown(&hosts, Right, &["-p"], &["ESTAB", " 192.0.2.2:7007 ", " 192.0.2.1:"]);
        assert!(!text.contains("users:"), "{text}");
        shown(&hosts, Right, &["-a"], &["LISTEN 1 "]);
        drop(server.stdin.take());
        assert!(server.wait().unwrap().success());
        hosts.kill_daemon(Right);
        let output = hosts.command(Right).arg(esp_ss()).arg("--json").output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.starts_with("esp_ss: no omxd serves") && said.lines().count() == 1,
            "{said}"
        );
        let output = hosts.command(Right).arg(esp_ss()).args(["-I", "lo"]).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(said.starts_with("esp_ss: lo is the loopback interface"), "{said}");
    });
}
