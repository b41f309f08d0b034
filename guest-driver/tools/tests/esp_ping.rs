//! Promises of `esp_ping`, with an authority on each of two hosts.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use serde_json::Value;
use weft_guest_driver_testkit::{Veth, in_private_network_as_root};

const PING: &str = env!("CARGO_BIN_EXE_esp_ping");

/// A process that is ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(words: &[&str]) {
    assert!(
        Command::new(words[0]).args(&words[1..]).status().unwrap().success(),
        "{words:?}"
    );
}

/// Starts an authority behind the words `before`.
fn authority(before: &[&str], interface: &str) -> Ended {
    let own = std::path::Path::new(PING).with_file_name("omxd");
    let words = [before, &[own.to_str().unwrap(), interface]].concat();
    Ended(Command::new(words[0]).args(&words[1..]).spawn().unwrap())
}

fn ping(arguments: &[&str]) -> Output {
    Command::new(PING).args(arguments).output().unwrap()
}

/// Pings until something is so: an authority takes a while to begin.
fn ping_until(arguments: &[&str], is_so: impl Fn(&Output) -> bool) -> Output {
    let begin = Instant::now();
    loop {
        let output = ping(arguments);
        if is_so(&output) {
            return output;
        }
        assert!(begin.elapsed() < Duration::from_secs(20), "{output:?}");
    }
}

#[test]
fn esp_ping_says_what_ping_says_and_ends_as_ping_ends() {
    in_private_network_as_root("esp_ping_says_what_ping_says_and_ends_as_ping_ends", || {
        let dir = tempfile::tempdir().unwrap();
        // SAFETY: nothing else runs in this process yet that looks at the environment.
        unsafe { std::env::set_var("OMX_RUN_DIR", dir.path()) };
        let veth = Veth::new(1500);
        let other = Ended(
            Command::new("unshare")
                .args(["--net", "sleep", "1000"])
                .spawn()
                .unwrap(),
        );
        let pid = other.0.id().to_string();
        let inside = ["nsenter", "-t", &pid, "-n"];
        let begin = Instant::now();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        while std::fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|theirs| theirs == own) {
            assert!(begin.elapsed() < Duration::from_secs(20));
        }
        run(&["ip", "link", "set", &veth.b, "netns", &pid]);
        run(&[&inside[..], &["ip", "link", "set", &veth.b, "up"]].concat());
        run(&[&inside[..], &["ip", "address", "add", "10.7.0.2/24", "dev", &veth.b]].concat());
        run(&["ip", "address", "add", "10.7.0.1/24", "dev", &veth.a]);
        veth.set_up(&veth.a, true);
        let _here = authority(&[], &veth.a);
        let there = authority(&inside, &veth.b);

        let output = ping_until(&["-c", "3", "-i", "0.01", "10.7.0.2"], |output| output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("EDP PING 10.7.0.2 (10.7.0.2) over {}", veth.a));
        let summary = "3 packets transmitted, 3 received, 0% packet loss, time ";
        if text.contains(summary) {
            let pong = lines[1];
            assert!(
                pong.starts_with("pong from ") && pong.contains("(10.7.0.2): edp_seq=1 mtu=1500 time="),
                "{text}"
            );
        }
        assert!(
            text.contains("\n--- 10.7.0.2 ping statistics ---\n3 packets transmitted, "),
            "{text}"
        );
        assert!(text.contains("\nrtt min/avg/max/mdev = "), "{text}");

        let output = ping_until(&["-c", "2", "-i", "0.002", "--json", "10.7.0.2"], |output| {
            output.status.success()
        });
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mac = report["peer"]["mac"].as_str().unwrap().to_owned();
        assert_eq!(report["transmitted"], 2);
        let output = ping(&["-c", "1", "-q", "-I", &veth.a, &mac]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");

        // Ctrl-C ends it with the summary, even while it waits for an answer.
        for (host, code) in [("10.7.0.2", 0), ("10.7.0.99", 1)] {
            let mut child = Command::new(PING)
                .args(["-W", "30", host])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
            out.next();
            if code == 0 {
                out.next();
            }
            let begin = Instant::now();
            run(&["kill", "-INT", &child.id().to_string()]);
            let rest: Vec<String> = out.map_while(Result::ok).collect();
            assert_eq!(child.wait().unwrap().code(), Some(code), "{rest:?}");
            assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
            assert!(
                rest.iter()
                    .any(|line| line == &format!("--- {host} ping statistics ---")),
                "{rest:?}"
            );
        }

        drop(there);
        let output = ping(&["-c", "1", "-W", "0.05", "10.7.0.2"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(
            String::from_utf8_lossy(&output.stdout).contains("1 packets transmitted, 0 received, 100% packet loss")
        );
        for (arguments, sentence) in [
            (&["10.7.0.1"][..], "this host itself"),
            (&["192.0.2.1"], "on no Ethernet of this host"),
            (&["no.such.host.invalid"], "no host that is known here"),
            (&["-I", "nosuch0", "10.7.0.2"], "no network interface named"),
        ] {
            let output = ping(arguments);
            assert_eq!(output.status.code(), Some(2), "{output:?}");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains(sentence) && stderr.lines().count() == 1, "{stderr}");
        }
        for wrong in ["0", "0.001", "x"] {
            assert_eq!(ping(&["-i", wrong, "10.7.0.2"]).status.code(), Some(2));
        }
    });
}
