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

/// The Ethernet address of an interface.
fn mac_of(interface: &str) -> String {
    netif::Interface::find(interface).unwrap().mac.to_string()
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

/// Two hosts with an authority each, joined by a cable: this one has 10.7.0.1, the other one 10.7.0.2.
struct Hosts {
    near: String,
    there: Ended,
    _here: Ended,
    _other: Ended,
    _veth: Veth,
    _dir: tempfile::TempDir,
}

impl Hosts {
    fn start() -> Self {
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
        Self {
            near: veth.a.clone(),
            _here: authority(&[], &veth.a),
            there: authority(&inside, &veth.b),
            _other: other,
            _veth: veth,
            _dir: dir,
        }
    }
}

#[test]
fn esp_ping_says_what_ping_says() {
    in_private_network_as_root("esp_ping_says_what_ping_says", || {
        let hosts = Hosts::start();
        let output = ping_until(&["-c", "3", "-i", "0.01", "10.7.0.2"], |output| {
            String::from_utf8_lossy(&output.stdout).contains(" 3 received, 0% packet loss, time ")
        });
        let text = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], format!("EDP PING 10.7.0.2 (10.7.0.2) over {}", hosts.near));
        assert!(lines[1].starts_with("pong from "), "{text}");
        assert!(lines[1].contains("(10.7.0.2): edp_seq=1 mtu=1500 time="), "{text}");
        assert!(
            text.contains("\n--- 10.7.0.2 ping statistics ---\n3 packets transmitted, "),
            "{text}"
        );
        assert!(text.contains("\nrtt min/avg/max/mdev = "), "{text}");

        let output = ping(&["-c", "2", "-i", "0.002", "--json", "10.7.0.2"]);
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        let mac = report["peer"]["mac"].as_str().unwrap().to_owned();
        assert_eq!(report["transmitted"], 2);
        let output = ping(&["-c", "1", "-q", "-I", &hosts.near, &mac]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
    });
}

#[test]
fn esp_ping_ends_as_ping_ends() {
    in_private_network_as_root("esp_ping_ends_as_ping_ends", || {
        let hosts = Hosts::start();
        ping_until(&["-c", "1", "10.7.0.2"], |output| output.status.success());
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
            assert!(begin.elapsed() < Duration::from_secs(20), "{:?}", begin.elapsed());
            let first = format!("--- {host} ping statistics ---");
            assert!(rest.contains(&first), "{rest:?}");
        }
        drop(hosts.there);
        let output = ping(&["-c", "1", "-W", "0.05", "10.7.0.2"]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            text.contains("1 packets transmitted, 0 received, 100% packet loss"),
            "{text}"
        );
        for (arguments, sentence) in [
            (&["10.7.0.1"][..], "this host itself"),
            (&["192.0.2.1"], "on no Ethernet of this host"),
            (&["no.such.host.invalid"], "no host that is known here"),
            (&["-I", "nosuch0", "10.7.0.2"], "no network interface named"),
            (&["-I", "lo", "10.7.0.2"], "lo is the loopback interface"),
            (&["-I", &hosts.near, "192.0.2.1"], "is not on the Ethernet of "),
            (&["ff:ff:ff:ff:ff:ff"], "not the address of one host"),
            (&["00:00:00:00:00:00"], "not the address of one host"),
            (&["-I", &hosts.near, &mac_of(&hosts.near)], "this host itself"),
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
