//! Promises of `nicctl` itself, over a veth pair in a private network namespace.

use std::{
    io::IoSlice,
    os::{fd::AsFd, unix::net::UnixStream, unix::process::CommandExt},
    path::Path,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use ether::{EtherType, MacAddr, Time};
use firmware::{CONTROL_FRAME_MAX, Card, CardConfig};
use netif::{AfPacket, AfPacketOptions, Interest, Netif, Wake};
use serde_json::Value;
use weft_guest_driver_testkit::{Veth, copy_program, in_private_network};

const NICCTL: &str = env!("CARGO_BIN_EXE_nicctl");

fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).stdin(Stdio::null()).output().unwrap()
}

fn json(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.trim()).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

#[test]
fn what_is_wrong_is_said_in_one_sentence() {
    in_private_network("what_is_wrong_is_said_in_one_sentence", || {
        let veth = Veth::new(1500);
        let fails = |args: &[&str], code: i32, sentence: &str| {
            let output = run(NICCTL, args);
            assert_eq!(output.status.code(), Some(code), "{output:?}");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(stderr.contains(sentence), "{stderr}");
            if code == 1 {
                assert_eq!(stderr.lines().count(), 1, "{stderr}");
                assert!(json(&output)["error"].as_str().unwrap().contains(sentence));
            }
        };
        let absent = "there is no network interface named \"nosuch0\" (`ip link` lists those that exist)";
        fails(&["-i", "nosuch0", "info", "--json"], 1, absent);
        fails(
            &["-i", &veth.a, "info", "--json"],
            1,
            "no programmable card answers on this interface",
        );
        fails(&["coalesce", "--marks", "perhaps"], 2, "on, off");
        veth.set_up(&veth.a, false);
        fails(&["-i", &veth.a, "stats", "--json"], 1, "is down (`ip link set");
    });
}

#[test]
fn without_the_privilege_it_says_which_one_is_missing() {
    // A copy that every user may reach, whatever the rights of the folder that it was built in.
    let copy = std::env::temp_dir().join(format!("weft-nicctl-{}", std::process::id()));
    copy_program(Path::new(NICCTL), &copy);
    let mut command = Command::new(&copy);
    command.args(["info", "-i", "lo", "--json"]);
    // As root the privilege is given away first; any other user never had it.
    if rustix::process::geteuid().is_root() {
        command.uid(65534).gid(65534);
    }
    let output = command.output();
    std::fs::remove_file(&copy).unwrap();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert_eq!(
        json(&output)["error"],
        "raw access to lo needs the capability CAP_NET_RAW: run as root, or `setcap cap_net_raw+ep` the program"
    );
}

/// The card's end of the control protocol, at the far end of a veth pair that has the card's address.
fn serve_card(port: &mut AfPacket, stop: &UnixStream) -> Card {
    serve_card_that_says(port, stop, |_| {})
}

/// As [`serve_card`], with the reply changed before it is sent.
fn serve_card_that_says(port: &mut AfPacket, stop: &UnixStream, change: impl Fn(&mut [u8])) -> Card {
    let mut nic = Card::new(CardConfig {
        queue_pairs: 2,
        ..CardConfig::default()
    });
    // As if a driver used both.
    nic.steering_mut().set_ready(0b11);
    let start = Instant::now();
    let mut reply = [0; CONTROL_FRAME_MAX];
    loop {
        while let Some(frame) = port.poll_receive().unwrap() {
            let now = Time::from_nanos(start.elapsed().as_nanos() as u64);
            let len = nic.handle_control(now, frame, &mut reply);
            if len > 0 {
                change(&mut reply[..len]);
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
            for name in [
                "disabled",
                "timeout",
                "open-mx",
                "stream",
                "adaptive",
                "adaptive-stream",
            ] {
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
            assert_eq!(
                ask(&["adaptive"]),
                serde_json::json!({ "queue": 0, "strategy": "open-mx", "longest_ns": 1_000_500 })
            );
            ask(&["coalesce", "adaptive-stream", "--queue", "1", "--delay-us", "75"]);
            assert_eq!(
                ask(&["adaptive", "--queue", "1"]),
                serde_json::json!({
                    "queue": 1, "strategy": "adaptive-stream", "longest_ns": 75_000, "delay_ns": 0,
                    "packets_per_s": 0, "longer": 0, "shorter": 0
                })
            );
            let watchdog = ask(&["watchdog", "1.5ms", "--queue", "1"]);
            assert_eq!(
                (&watchdog["queue"], &watchdog["delay_ns"]),
                (&1.into(), &1_500_000.into())
            );
            assert_eq!(ask(&["watchdog"])["delay_ns"], 0, "queue 0 has none");
            let armed = ask(&["timer", "arm", "7", "2s", "--clock"]);
            assert_eq!((&armed["timer"], &armed["is_armed"]), (&7.into(), &true.into()));
            ask(&["timer", "disarm", "7"]);
            let timers = ask(&["timer", "show"]);
            assert_eq!(
                (&timers["armed_now"], &timers["armed"], &timers["disarmed"]),
                (&0.into(), &1.into(), &1.into())
            );
            ask(&["coalesce", "--queue", "1", "--marks", "on"]);
            assert_eq!(ask(&["coalesce"])["marks"], false, "queue 0 was left alone");
            assert!(
                info["abilities"].as_array().unwrap().contains(&"steering".into()),
                "{info}"
            );
            let steering = ask(&["steering", "endpoint", "--endpoints", "1,0,1"]);
            assert_eq!(
                (&steering["mode"], &steering["endpoints_even"]),
                (&"endpoint".into(), &false.into())
            );
            assert_eq!(
                (&steering["endpoints"][127], &steering["endpoints"][128]),
                (&0.into(), &1.into())
            );
            assert_eq!(ask(&["steering", "--endpoints", "even"])["endpoints_even"], true);
            let refused = run(NICCTL, &["-i", &veth.a, "steering", "--indirection", "2"]);
            assert!(!refused.status.success(), "{refused:?}");
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

/// In the place of a strategy that this tool was built with, the card has one of another name.
fn renamed(reply: &mut [u8]) {
    let (old, new) = (b"adaptive-stream", b"every-second-17");
    if let Some(at) = reply.windows(old.len()).position(|window| window == old) {
        reply[at..at + new.len()].copy_from_slice(new);
    }
}

#[test]
fn nicctl_takes_and_shows_strategies_that_it_was_not_built_with() {
    in_private_network("nicctl_takes_and_shows_strategies_that_it_was_not_built_with", || {
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
            let card = scope.spawn(move || serve_card_that_says(&mut port, &stop, renamed));
            let ask = |args: &[&str]| {
                let output = run(NICCTL, &[&["-i", &veth.a, "--json"], args].concat());
                assert!(output.status.success(), "{output:?}");
                json(&output)
            };
            let known = ask(&["info"])["strategies"].clone();
            assert!(known.as_array().unwrap().contains(&"every-second-17".into()), "{known}");
            assert_eq!(ask(&["coalesce", "every-second-17"])["strategy"], "every-second-17");
            assert_eq!(ask(&["adaptive"])["strategy"], "every-second-17");
            assert_eq!(
                ask(&["stats", "--strategy", "every-second-17"])["strategy"],
                "every-second-17"
            );
            let refused = run(NICCTL, &["-i", &veth.a, "--json", "coalesce", "adaptive-stream"]);
            assert_eq!(refused.status.code(), Some(1));
            let sentence = json(&refused)["error"].as_str().unwrap().to_owned();
            assert!(
                sentence.contains("no strategy \"adaptive-stream\"; it has disabled, timeout, open-mx, stream"),
                "{sentence}"
            );
            drop(stopper);
            let nic = card.join().unwrap();
            assert_eq!(nic.coalescing(0).unwrap().strategy.code(), 6);
        });
    });
}
