//! Promises of `omx_perf` and `omx_info`, over a veth pair in a private network namespace. Needs root and the program `omxd`
//! beside the tools: `cargo build -p weft-omxd` makes it.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::ExitStatusExt,
    path::Path,
    process::{Child, Command, ExitStatus, Output, Stdio},
    time::Duration,
};

use omx::Board;
use rustix::process::Signal;
use serde_json::Value;
use weft_guest_driver_testkit::{Veth, end_within, in_private_network};

const PERF: &str = env!("CARGO_BIN_EXE_omx_perf");
const INFO: &str = env!("CARGO_BIN_EXE_omx_info");

/// A tool that uses the sockets of this test alone.
fn tool(program: &str, dir: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("OMX_RUN_DIR", dir).stdin(Stdio::null());
    command
}

fn lines(output: &Output) -> Vec<Value> {
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn omx_perf_times_every_length_and_omx_info_shows_who_is_there() {
    in_private_network("omx_perf_times_every_length_and_omx_info_shows_who_is_there", || {
        assert!(
            Path::new(PERF).with_file_name("omxd").is_file(),
            "this test needs the program omxd beside omx_perf: `cargo build -p weft-omxd` in the same profile makes it"
        );
        let dir = tempfile::tempdir().unwrap();
        let veth = Veth::new(9000);
        for (sleep, one_way) in [(true, false), (false, true)] {
            let mut receiver = tool(PERF, dir.path())
                .args(["--interface", &veth.b, "--json"])
                .args(sleep.then_some("-w"))
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut first = String::new();
            let mut out = BufReader::new(receiver.stdout.take().unwrap());
            out.read_line(&mut first).unwrap();
            let hello: Value = serde_json::from_str(&first).unwrap();
            let mac = hello["mac"].as_str().unwrap();

            let info = tool(INFO, dir.path()).arg("--json").output().unwrap();
            let boards = &lines(&info)[0]["boards"];
            let board = boards
                .as_array()
                .unwrap()
                .iter()
                .find(|board| board["mac"] == mac)
                .unwrap();
            assert_eq!(board["status"]["endpoints"][0]["command"], "omx_perf");
            assert_eq!(board["status"]["preset"], "native-9000");

            let output = tool(PERF, dir.path())
                .args([
                    "--interface",
                    &veth.a,
                    "--json",
                    "-d",
                    mac,
                    "-N",
                    "5",
                    "-P",
                    "0",
                    "-M",
                    "16",
                    "-E",
                    "70000",
                ])
                .args(sleep.then_some("-w"))
                .args(one_way.then_some("-U"))
                .output()
                .unwrap();
            let lengths: Vec<u64> = lines(&output)
                .iter()
                .map(|line| line["length"].as_u64().unwrap())
                .collect();
            assert_eq!(lengths, [0, 1, 16, 256, 4096, 65_536]);
            assert!(receiver.wait().unwrap().success());
        }
        let text = tool(INFO, dir.path()).arg("-q").output().unwrap();
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(
            text.starts_with("Found 2 boards (32 max) supporting 32 endpoints each:\n"),
            "{text}"
        );
        assert!(
            text.contains(&format!(" (board #0 name {} addr ", veth.b))
                || text.contains(&format!("name {} addr ", veth.a))
        );
    });
}

#[test]
fn omx_perf_prints_imb_columns_and_measures_rate_and_overlap() {
    in_private_network("omx_perf_prints_imb_columns_and_measures_rate_and_overlap", || {
        let dir = tempfile::tempdir().unwrap();
        let veth = Veth::new(9000);
        let mut receiver = tool(PERF, dir.path())
            .args(["--interface", &veth.b, "--json", "-s", "-w"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut first = String::new();
        let mut out = BufReader::new(receiver.stdout.take().unwrap());
        out.read_line(&mut first).unwrap();
        let hello: Value = serde_json::from_str(&first).unwrap();
        let mac = hello["mac"].as_str().unwrap();
        let send = |arguments: &[&str]| {
            let common = ["--interface", &veth.a, "-d", mac, "-P", "0", "-w"];
            tool(PERF, dir.path()).args(common).args(arguments).output().unwrap()
        };

        let imb = send(&["--imb", "-N", "20", "-M", "16", "-E", "300"]);
        let text = String::from_utf8_lossy(&imb.stdout).into_owned();
        let mut columns = text.lines().skip_while(|line| line.starts_with('#'));
        let titles: Vec<&str> = columns.next().unwrap().split_whitespace().collect();
        assert_eq!(titles, ["#bytes", "#repetitions", "t[usec]", "Mbytes/sec"], "{text}");
        let rows: Vec<Vec<f64>> = columns
            .map(|line| line.split_whitespace().map(|word| word.parse().unwrap()).collect())
            .collect();
        let lengths: Vec<f64> = rows.iter().map(|row| row[0]).collect();
        assert_eq!(lengths, [0.0, 1.0, 16.0, 256.0], "{text}");
        assert!(rows.iter().all(|row| row.len() == 4 && row[1] == 20.0 && row[2] > 0.0));

        let said = send(&["-v", "-e", "3", "-N", "1", "-E", "1"]).stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        let line = said.lines().next().unwrap();
        assert!(
            line.starts_with("Sending from ") && line.ends_with(&format!(" endpoint 3 to {mac} endpoint 0")),
            "{line}"
        );

        // More and fewer messages than can be in flight at once; the longest go one by one.
        for (count, bytes) in [("1000", "128"), ("3", "128"), ("3", "100000000")] {
            let rate = send(&[
                "--rate",
                "--json",
                "-N",
                count,
                "-W",
                "2",
                "-S",
                bytes,
                "-M",
                "1",
                "-E",
                "100000001",
            ]);
            let rate = &lines(&rate)[0];
            assert_eq!(rate["messages"].to_string(), count);
            let per_s = rate["messages_per_s"].as_f64().unwrap();
            let mb = rate["mb_per_s"].as_f64().unwrap();
            assert!(
                per_s > 0.0 && (mb - per_s * bytes.parse::<f64>().unwrap() / 1e6).abs() < 1e-6 * mb,
                "{rate}"
            );
        }
        let overlap = lines(&send(&["--overlap", "--json", "-N", "5", "-W", "1"]));
        assert_eq!((overlap.len(), &overlap[0]["length"]), (1, &(4 << 20).into()));
        let hidden = overlap[0]["overlap"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&hidden) && overlap[0]["us_both"].as_f64().unwrap() > 0.0);
        let text = send(&["--overlap", "-N", "2", "-S", "64", "-E", "65"]);
        assert!(String::from_utf8_lossy(&text.stdout).contains(": overlap "), "{text:?}");

        let pid = rustix::process::Pid::from_child(&receiver);
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        receiver.wait().unwrap();
    });
}

/// A receiver and the address it says; `extra` changes how it runs.
fn server(dir: &Path, interface: &str, extra: impl FnOnce(&mut Command)) -> (Child, String) {
    let mut command = tool(PERF, dir);
    command.args(["--interface", interface, "--json"]);
    extra(&mut command);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut first = String::new();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    out.read_line(&mut first).unwrap();
    let hello: Value = serde_json::from_str(&first).unwrap();
    (child, hello["mac"].as_str().unwrap().to_owned())
}

/// Waits for the end of a program, but not for ever.
fn ended(child: &mut Child) -> ExitStatus {
    let status = end_within(child, Duration::from_secs(60));
    assert_ne!(status.signal(), Some(Signal::KILL.as_raw()), "it does not end");
    status
}

/// A sender of a few short messages.
fn sender(dir: &Path, interface: &str, mac: &str) -> Child {
    let mut command = tool(PERF, dir);
    command.args([
        "--interface",
        interface,
        "-d",
        mac,
        "-N",
        "5",
        "-P",
        "0",
        "-w",
        "-E",
        "65",
    ]);
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Starts a sender that goes on for longer than any test, and returns when it has shown a first result.
fn endless(dir: &Path, interface: &str, mac: &str, mode: &[&str]) -> Child {
    let mut sender = tool(PERF, dir)
        .args(["--interface", interface, "-d", mac, "-P", "0", "--json"])
        .args((!mode.contains(&"-y")).then_some("-w"))
        .args(["-N", "50", "-W", "0", "-S", "0", "-M", "1", "-I", "1", "-E", "10000000"])
        .args(mode)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(sender.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert!(line.starts_with('{'), "{line}");
    sender
}

#[test]
fn omx_perf_serves_the_next_sender_after_one_was_interrupted() {
    in_private_network("omx_perf_serves_the_next_sender_after_one_was_interrupted", || {
        let dir = tempfile::tempdir().unwrap();
        let veth = Veth::new(1500);
        // What it says about them goes nowhere, and that is no reason to end.
        let (mut receiver, mac) = server(dir.path(), &veth.b, |command| {
            let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
            command.args(["-s", "-w"]).stderr(full);
        });
        for mode in [&[][..], &["-U"], &["--rate"]] {
            let mut interrupted = endless(dir.path(), &veth.a, &mac, mode);
            interrupted.kill().unwrap();
            interrupted.wait().unwrap();
            for _ in 0..2 {
                let mut next = sender(dir.path(), &veth.a, &mac);
                assert!(ended(&mut next).success(), "after {mode:?}");
            }
        }
        assert_eq!(receiver.try_wait().unwrap(), None, "it serves on");
        receiver.kill().unwrap();
        receiver.wait().unwrap();
    });
}

#[test]
fn omx_perf_serves_a_sender_that_came_while_it_served_another_one() {
    in_private_network("omx_perf_serves_a_sender_that_came_while_it_served_another_one", || {
        let dir = tempfile::tempdir().unwrap();
        let veth = Veth::new(1500);
        let (mut receiver, mac) = server(dir.path(), &veth.b, |command| {
            command.args(["-s", "-w"]);
        });
        let mut first = endless(dir.path(), &veth.a, &mac, &[]);
        // From the same host and, over shared memory, from the receiver's.
        let others = [&veth.a, &veth.b].map(|interface| sender(dir.path(), interface, &mac));
        assert_eq!(first.try_wait().unwrap(), None, "it is not disturbed");
        first.kill().unwrap();
        first.wait().unwrap();
        for mut other in others {
            assert!(ended(&mut other).success());
        }
        receiver.kill().unwrap();
        receiver.wait().unwrap();
    });
}

#[test]
fn omx_perf_ends_with_a_sentence_when_its_other_end_is_gone() {
    in_private_network("omx_perf_ends_with_a_sentence_when_its_other_end_is_gone", || {
        let dir = tempfile::tempdir().unwrap();
        let veth = Veth::new(1500);
        for (interface, mode, serves) in [
            (&veth.a, &[][..], true),
            (&veth.a, &["--rate"], true),
            (&veth.b, &[], true),
            (&veth.a, &["-y"], false),
        ] {
            let (mut receiver, mac) = server(dir.path(), &veth.b, |command| {
                command.stderr(Stdio::piped());
                command.args(if serves { ["-s", "-w"].as_slice() } else { &["-y"] });
            });
            let mut sender = endless(dir.path(), interface, &mac, mode);
            let (killed, left) = if serves {
                (&mut receiver, &mut sender)
            } else {
                (&mut sender, &mut receiver)
            };
            killed.kill().unwrap();
            killed.wait().unwrap();
            assert_eq!(ended(left).code(), Some(255), "{mode:?}");
            let mut said = String::new();
            left.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            assert!(said.starts_with("omx_perf: ") && said.lines().count() == 1, "{said}");
        }
    });
}

#[test]
fn what_cannot_be_done_is_one_sentence_and_exit_code_255() {
    let dir = tempfile::tempdir().unwrap();
    for arguments in [
        &["--interface", "nowhere0"][..],
        &["-b", "99"],
        &["--interface", "lo", "-N", "0"],
    ] {
        let output = tool(PERF, dir.path()).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(255), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.starts_with("omx_perf: ") && text.lines().count() == 1, "{text}");
    }
}

#[test]
fn the_small_tools_show_test_and_name_boards() {
    in_private_network("the_small_tools_show_test_and_name_boards", || {
        let dir = tempfile::tempdir().unwrap();
        let veth = Veth::new(1500);
        let run = |program: &str, arguments: &[&str]| {
            let mut command = tool(program, dir.path());
            let output = command.env("OMX_IFACES", &veth.a).args(arguments).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            (output.status.code().unwrap(), text, error)
        };
        let well = |program: &str, arguments: &[&str]| {
            let (code, text, error) = run(program, arguments);
            assert_eq!(code, 0, "{program} {arguments:?}: {error}");
            text
        };
        let checked = well(env!("CARGO_BIN_EXE_omx_check"), &[]);
        assert_eq!(checked, format!("board 0 ({}): self ok, shared memory ok\n", veth.a));

        // The line that the reference's scripts look for, and boards that have different names.
        let info = |boards: &str| {
            let output = tool(INFO, dir.path())
                .arg("-q")
                .env("OMX_IFACES", boards)
                .output()
                .unwrap();
            String::from_utf8_lossy(&output.stdout).into_owned()
        };
        let loopback = info("lo");
        let line = " localhost (board #0 name lo addr 00:00:00:00:00:00)";
        assert_eq!(loopback.lines().nth(1), Some(line), "{loopback}");
        let both = info(&format!("{},{}", veth.a, veth.b));
        assert!(both.contains(":0 (board #0") && both.contains(":1 (board #1"), "{both}");

        let (code, _, error) = run(PERF, &["-d", "nosuch:0"]);
        assert!(code == 255 && error.contains("no host is called nosuch:0"), "{error}");
        assert!(!error.contains("full"), "{error}");

        let hostname = env!("CARGO_BIN_EXE_omx_hostname");
        assert!(well(hostname, &[]).contains(":0 (board #0 name "));
        assert!(well(hostname, &["-n", "other:0", "-v"]).starts_with("other:0 (board #0"));

        // What closed endpoints counted is still there.
        let counters = env!("CARGO_BIN_EXE_omx_counters");
        let text = well(counters, &["-s"]);
        let mut text = text.lines();
        let title = text.next().unwrap();
        assert!(title.starts_with("other:0 (board #0 name "), "{title}");
        assert_eq!(text.next().unwrap(), "=".repeat(title.len()));
        let announced = text.find(|line| line.contains(" SHARED_RNDV: ")).unwrap();
        assert!(announced.starts_with("076:          1 "), "{announced}");
        let all = well(counters, &["-v"]);
        let (of_esp, of_messages): (Vec<_>, Vec<_>) = all.lines().skip(2).partition(|line| line.contains(" ESP_"));
        assert_eq!(of_messages.len(), omx::Counter::ALL.len());
        let esp_counters = weft_authority::esp::EspCounter::ALL.len() + esp::Counter::ALL.len();
        assert_eq!(of_esp.len(), esp_counters);
        well(counters, &["-c"]);
        assert!(!well(counters, &["-s"]).contains("SHARED_RNDV"));

        let peers = dir.path().join("hosts");
        std::fs::write(&peers, "02:00:00:00:00:42 first:0\n").unwrap();
        let init_peers = env!("CARGO_BIN_EXE_omx_init_peers");
        well(init_peers, &[peers.to_str().unwrap()]);
        well(init_peers, &["02:00:00:00:00:43", "second:0"]);
        let table = well(INFO, &["-v"]);
        assert!(
            table.contains("02:00:00:00:00:42 first:0") && table.contains("02:00:00:00:00:43 second:0"),
            "{table}"
        );
        well(init_peers, &["-c"]);
        assert!(well(INFO, &["-v"]).contains("02:00:00:00:00:42 <unknown>"));
        let (code, _, error) = run(init_peers, &["absent", "second:0"]);
        assert!(code == 255 && error.contains("is no address"), "{error}");

        let endpoint_info = env!("CARGO_BIN_EXE_omx_endpoint_info");
        assert!(well(endpoint_info, &[]).ends_with("0 regular endpoints open (out of 32)\n"));
        let all = well(endpoint_info, &["-v"]);
        assert!(all.contains("\n  raw\tnot open\n  0\tnot open\n"), "{all}");
        assert_eq!(all.matches("not open").count(), 33);
        // SAFETY: nothing else runs in this process that looks at the environment.
        unsafe { std::env::set_var("OMX_RUN_DIR", dir.path()) };
        let raw = weft_authority::Session::connect(Board::named(&veth.a).unwrap().interface()).unwrap();
        raw.open_raw().unwrap();
        let open = format!("\n  raw\topen by pid {} (omx-", std::process::id());
        let info = well(endpoint_info, &[]);
        assert!(info.contains(&open), "{info}");

        let (code, text, _) = run(env!("CARGO_BIN_EXE_omx_tune"), &["--check"]);
        assert_eq!(code, 1, "an MTU of 1500 is not what is advised");
        assert!(
            text.contains("!!  MTU: 1500 bytes") && text.contains("mtu 9000"),
            "{text}"
        );
        assert!(
            text.contains("ok  link: up") && text.contains("ok  privileges: omxd"),
            "{text}"
        );
    });
}
