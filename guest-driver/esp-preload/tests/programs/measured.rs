//! What `esp_perf` measures and says, over ESP.

use std::{
    io::Read,
    net::TcpListener,
    process::{Command, Output, Stdio},
    thread,
};

use serde_json::Value;

use crate::{
    between_hosts,
    hosts::{Left, Right},
};

const PERF: &str = env!("CARGO_BIN_EXE_esp_perf");

fn perf(arguments: &[&str]) -> Output {
    Command::new(PERF).args(arguments).output().unwrap()
}

#[test]
fn m_hr5_esp_perf_measures_latency_send_calls_and_throughput_over_esp() {
    let test = "measured::m_hr5_esp_perf_measures_latency_send_calls_and_throughput_over_esp";
    between_hosts(test, |hosts| {
        let mut tcp = hosts.count_tcp();
        let server = hosts.serve(Right, 7200, &[PERF, "server"]);
        let at = format!("{}:7200", Right.ip());
        let client = |words: &[&str]| hosts.must_esp(Left, &[&[PERF, "client", &at], words].concat());
        for (kind, figures) in [
            ("latency", &["median_us", "p99_us", "min_us"][..]),
            ("asleep", &["median_us", "p99_us", "min_us"]),
            ("send", &["median_us", "p99_us", "min_us"]),
            ("stream", &["mbit_per_s"]),
        ] {
            let words = ["--test", kind, "--size", "100", "--count", "20"];
            let report: Value = serde_json::from_str(&client(&[&words[..], &["--json"]].concat())).unwrap();
            assert_eq!(
                (&report["test"], &report["size"], &report["count"]),
                (&kind.into(), &100.into(), &20.into())
            );
            for figure in figures {
                assert!(report[figure].as_f64().is_some_and(|value| value > 0.0), "{report}");
            }
            let text = client(&words);
            assert!(text.contains("100 bytes") && text.lines().count() == 1, "{text}");
        }
        assert_eq!(tcp.take(), 0, "TCP segments were on the wire");
        // Ctrl-C ends the server, and the next one has its port at once.
        server.signal("-INT");
        drop(server);
        let _again = hosts.serve(Right, 7200, &[PERF, "server"]);
        client(&["--count", "1"]);
        // That port is the one of servers that were not told another.
        hosts.must_esp(Left, &[PERF, "client", Right.ip(), "--count", "1"]);
    });
}

#[test]
fn esp_perf_says_in_a_sentence_what_is_wrong() {
    // A server of another kind, which closes each connection.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let other = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.read_exact(&mut [0; 9]).unwrap();
    });
    let output = perf(&["client", &address, "--size", "9", "--json"]);
    other.join().unwrap();
    let sentence = String::from_utf8(output.stderr).unwrap();
    let said = sentence.strip_prefix("esp_perf: ").unwrap().trim_end();
    assert!(
        said.contains(&address) && !said.contains("buffer") && said.lines().count() == 1,
        "{said}"
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["error"], output.status.code()), (&said.into(), Some(1)));

    // Nobody listens there any more.
    let output = perf(&["client", &address]);
    let sentence = String::from_utf8(output.stderr).unwrap();
    let expected = format!("esp_perf: cannot connect to {address}: ");
    assert!(sentence.starts_with(&expected), "{sentence}");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));

    for wrong in [
        ["--count", "0"],
        ["--count", "4294967295"],
        ["--size", "0"],
        ["--size", "16777217"],
    ] {
        let output = perf(&[&["client", &address], &wrong[..]].concat());
        let sentence = String::from_utf8(output.stderr).unwrap();
        assert!(sentence.contains(" is not in 1..="), "{sentence}");
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn esp_perf_ends_quietly_when_nobody_reads_what_it_measured() {
    let mut server = Command::new(PERF)
        .args(["server", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = [0; 64];
    let len = server.stdout.take().unwrap().read(&mut line).unwrap();
    let line = String::from_utf8_lossy(&line[..len]);
    let address = line.trim_end().strip_prefix("listening at ").unwrap().to_owned();
    let mut client = Command::new(PERF)
        .args(["client", &address, "--count", "3"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(client.stdout.take());
    let output = client.wait_with_output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert!(output.status.success(), "{output:?}");
}
