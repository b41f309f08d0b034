//! Promises of the programs themselves, over a veth pair in a private network namespace.

use std::{
    io::{BufRead, BufReader, IoSlice},
    os::{fd::AsFd, unix::net::UnixStream, unix::process::CommandExt},
    process::{Child, ChildStdout, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr, Time};
use firmware::{CONTROL_FRAME_MAX, Nic, NicConfig};
use netif::{
    AfPacket, AfPacketOptions, Interest, Netif, Wake,
    testing::{Veth, in_private_network},
};
use serde_json::Value;

const GENERATOR: &str = env!("CARGO_BIN_EXE_mxoe-gen");
const NICCTL: &str = env!("CARGO_BIN_EXE_nicctl");

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

/// A running `mxoe-gen serve`, ended with the test.
struct Serve {
    child: Child,
    lines: BufReader<ChildStdout>,
    mac: String,
}

impl Serve {
    fn start(interface: &str) -> Self {
        let mut child = Command::new(GENERATOR)
            .args(["serve", "-i", interface, "--json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        let mut first = String::new();
        lines.read_line(&mut first).unwrap();
        let hello: Value = serde_json::from_str(&first).unwrap();
        let mac = hello["mac"].as_str().unwrap().to_owned();
        Self { child, lines, mac }
    }

    /// Sends SIGTERM; the server must end with its report and success.
    fn end(mut self) -> Value {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        let mut report = String::new();
        self.lines.read_line(&mut report).unwrap();
        assert!(self.child.wait().unwrap().success());
        serde_json::from_str(&report).unwrap()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        // Ended already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What the kernel counted on an interface of this namespace.
fn received_frames(interface: &str) -> u64 {
    let table = std::fs::read_to_string("/proc/self/net/dev").unwrap();
    let line = table
        .lines()
        .find_map(|line| line.trim().strip_prefix(interface)?.strip_prefix(':'));
    line.unwrap().split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn small_medium_and_stream_give_their_fields_over_a_real_interface() {
    in_private_network(
        "small_medium_and_stream_give_their_fields_over_a_real_interface",
        || {
            let veth = Veth::new(1500);
            let serve = Serve::start(&veth.b);
            let client = |args: &[&str]| {
                let common = ["-i", &veth.a, "--peer", &serve.mac, "--json"];
                let output = run(GENERATOR, &[args, &common].concat());
                assert!(output.status.success(), "{output:?}");
                json(&output)
            };
            let small = client(&["small", "--count", "1000"]);
            assert_eq!((&small["messages"], &small["lost"]), (&1000.into(), &0.into()));
            assert!(small["rtt_us_median"].as_f64().unwrap() >= small["rtt_us_min"].as_f64().unwrap());
            assert!(small["rtt_us_p99"].is_f64());
            let medium = client(&["medium", "--count", "100"]);
            assert_eq!(
                (&medium["messages"], &medium["frames_per_message"], &medium["split"]),
                (&100.into(), &23.into(), &0.into())
            );
            let stream = client(&["stream", "--seconds", "0.3", "--marks", "off"]);
            assert!(stream["messages_received"].as_u64().unwrap() > 100, "{stream}");
            assert!(stream["messages_received"].as_u64() <= stream["messages_sent"].as_u64());
            assert!(stream["messages_per_s"].as_f64().unwrap() > 0.0);
            let limited = client(&["small", "--count", "1000000000", "--seconds", "0.2"]);
            assert!(limited["messages"].as_u64().unwrap() > 0);

            // Told to end, a stream still says what it did.
            let (before, start) = (received_frames(&veth.b), Instant::now());
            let child = Command::new(GENERATOR)
                .args([
                    "stream",
                    "-i",
                    &veth.a,
                    "--peer",
                    &serve.mac,
                    "--json",
                    "--seconds",
                    "60",
                ])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            while received_frames(&veth.b) < before + 1000 && start.elapsed() < Duration::from_secs(30) {
                thread::yield_now();
            }
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!(output.status.code(), Some(130), "{output:?}");
            let stream = json(&output);
            assert_eq!(stream["interrupted"], true);
            assert!(stream["messages_received"].as_u64().unwrap() > 0, "{stream}");

            let report = serve.end();
            assert_eq!((&report["connects"], &report["mediums"]), (&5.into(), &100.into()));
        },
    );
}

#[test]
fn the_server_survives_its_interface_going_down_and_up() {
    in_private_network("the_server_survives_its_interface_going_down_and_up", || {
        let veth = Veth::new(1500);
        let serve = Serve::start(&veth.b);
        let ping = || {
            let args = ["small", "-i", &veth.a, "--peer", &serve.mac, "--json", "--count", "10"];
            json(&run(GENERATOR, &[&args[..], &["--connect-timeout", "10"]].concat()))
        };
        assert_eq!(ping()["messages"], 10);
        veth.set_up(&veth.b, false);
        veth.set_up(&veth.b, true);
        assert_eq!(ping()["messages"], 10);
        assert_eq!(serve.end()["connects"], 2);
    });
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    in_private_network("what_is_wrong_is_said_in_one_sentence", || {
        let veth = Veth::new(1500);
        let fails = |program: &str, args: &[&str], code: i32, sentence: &str| {
            let output = run(program, args);
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains(sentence), "{stderr}");
            if code == 1 {
                assert_eq!(stderr.lines().count(), 1, "{stderr}");
                assert!(json(&output)["error"].as_str().unwrap().contains(sentence));
            }
        };
        let silent = "did not answer within 1 s: is `mxoe-gen serve` running there";
        let absent = "there is no network interface named \"nosuch0\" (`ip link` lists those that exist)";
        let nobody = ["--peer", "02:00:00:00:00:99", "--json", "--connect-timeout", "1"];
        fails(GENERATOR, &[&["small", "-i", &veth.a], &nobody[..]].concat(), 1, silent);
        fails(
            GENERATOR,
            &[&["stream", "-i", "nosuch0"], &nobody[..]].concat(),
            1,
            absent,
        );
        fails(GENERATOR, &["serve", "-i", "nosuch0", "--json"], 1, absent);
        fails(GENERATOR, &["small", "--peer", "no-address"], 2, "not a MAC address");
        fails(
            GENERATOR,
            &["small", "--peer", "02:00:00:00:00:99", "--seconds", "0"],
            2,
            "not a number of seconds",
        );
        fails(NICCTL, &["-i", "nosuch0", "info", "--json"], 1, absent);
        fails(
            NICCTL,
            &["-i", &veth.a, "info", "--json"],
            1,
            "no programmable card answers on this interface",
        );
        fails(NICCTL, &["coalesce", "fast"], 2, "open-mx");
        veth.set_up(&veth.a, false);
        fails(NICCTL, &["-i", &veth.a, "stats", "--json"], 1, "is down (`ip link set");
    });
}

#[test]
fn without_the_privilege_both_programs_say_which_one_is_missing() {
    // As root the privilege is given away first; any other user never had it.
    for (program, args) in [
        (GENERATOR, &["serve", "-i", "lo", "--json"][..]),
        (NICCTL, &["info", "-i", "lo", "--json"][..]),
    ] {
        // A copy that every user may reach, whatever the rights of the folder that it was built in.
        let folder = std::env::temp_dir().join(format!("weft-tools-{}-{}", std::process::id(), args[0]));
        std::fs::copy(program, &folder).unwrap();
        let mut command = Command::new(&folder);
        command.args(args);
        if rustix::process::geteuid().is_root() {
            command.uid(65534).gid(65534);
        }
        let output = command.output();
        std::fs::remove_file(&folder).unwrap();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(
            json(&output)["error"],
            "raw access to lo needs the capability CAP_NET_RAW: run as root, or `setcap cap_net_raw+ep` the program"
        );
    }
}

/// The card's end of the control protocol, at the far end of a veth pair that has the card's address.
fn serve_card(port: &mut AfPacket, stop: &UnixStream) -> Nic {
    let mut nic = Nic::new(NicConfig {
        queue_pairs: 2,
        ..NicConfig::default()
    });
    let start = Instant::now();
    let mut reply = [0; CONTROL_FRAME_MAX];
    loop {
        while let Some(frame) = port.poll_receive().unwrap() {
            let now = Time::from_nanos(start.elapsed().as_nanos() as u64);
            let len = nic.handle_control(now, frame, &mut reply);
            if len > 0 {
                assert!(port.send(&[IoSlice::new(&reply[..len])]).unwrap());
            }
        }
        let limit = Instant::now() + Duration::from_secs(60);
        if port.wait(Interest::Receive, limit, Some(stop.as_fd())).unwrap() == Wake::Stop {
            return nic;
        }
    }
}

#[test]
fn nicctl_reads_and_changes_a_card() {
    in_private_network("nicctl_reads_and_changes_a_card", || {
        let veth = Veth::new(1500);
        let address = MacAddr::CARD.to_string();
        assert!(
            run("ip", &["link", "set", &veth.b, "address", &address])
                .status
                .success()
        );
        let mut port = AfPacket::open(&veth.b, EtherType::CARD_CONTROL, &AfPacketOptions::default()).unwrap();
        let (stop, stopper) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let card = scope.spawn(move || serve_card(&mut port, &stop));
            let ask = |args: &[&str]| {
                let output = run(NICCTL, &[&["-i", &veth.a, "--json"], args].concat());
                assert!(output.status.success(), "{output:?}");
                json(&output)
            };
            let info = ask(&["info"]);
            assert_eq!((&info["version"], &info["queue_pairs"]), (&1.into(), &2.into()));
            for name in ["disabled", "timeout", "open-mx", "stream"] {
                assert!(info["strategies"].as_array().unwrap().contains(&name.into()), "{info}");
            }
            let settings = ask(&["coalesce"]);
            assert_eq!(
                (&settings["strategy"], &settings["delay_ns"]),
                (&"timeout".into(), &75_000.into())
            );
            let settings = ask(&[
                "coalesce",
                "open-mx",
                "--delay-us",
                "1000.5",
                "--frames",
                "32",
                "--marks",
                "off",
            ]);
            assert_eq!(
                settings,
                serde_json::json!({
                    "queue": 0, "strategy": "open-mx", "delay_ns": 1_000_500, "frames": 32, "marks": false
                })
            );
            ask(&["coalesce", "--queue", "1", "--marks", "on"]);
            assert_eq!(ask(&["coalesce"])["marks"], false, "queue 0 was left alone");
            let stats = ask(&["stats"]);
            assert_eq!(
                (&stats["packets"], &stats["interrupts"]["decided"]),
                (&0.into(), &0.into())
            );
            assert_eq!(stats["interrupts"]["by_reason"]["every-packet"], 0);
            assert_eq!(
                ask(&["stats", "--strategy", "stream", "--queue", "1"])["strategy"],
                "stream"
            );

            let refused = run(NICCTL, &["-i", &veth.a, "--json", "coalesce", "--delay-us", "2000000"]);
            assert_eq!(refused.status.code(), Some(1));
            let sentence = json(&refused)["error"].as_str().unwrap().to_owned();
            assert!(
                sentence.contains("the card refused: the coalescing delay must be at most"),
                "{sentence}"
            );
            let text = run(NICCTL, &["-i", &veth.a, "coalesce"]);
            assert_eq!(
                String::from_utf8_lossy(&text.stdout),
                "queue 0: open-mx, delay 1000.5 us, at most 32 frames, marks off\n"
            );
            drop(stopper);
            let nic = card.join().unwrap();
            assert!(nic.coalescing(1).unwrap().marks && !nic.coalescing(0).unwrap().marks);
        });
    });
}
