//! Tests of MX messages between guests: marks that both ends agreed on and the card honours, C programs on the guests'
//! C library, frames that netem loses, repeats and reorders, and authorities that are killed under running programs.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Lines, PAIR, World, eventually, qemus, signal};

/// A lab of two guests; the first one has two cards, so that it has two boards.
const THREE_CARDS: &str =
    "name = \"three\"\n[[switch]]\nname = \"s1\"\n[[node]]\nname = \"n1\"\nnic = [{}, {}]\n[[node]]\nname = \"n2\"\n";

/// The MXoE type byte of a message of at most 32 bytes, without the mark.
const TINY: &str = "37";

/// Returns what `omx_perf` measured: one value per length.
fn perf(world: &World, arguments: &str) -> Vec<Value> {
    let said = world.guest("n1", &format!("omx_perf -w -P 0 --json {arguments}"));
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the first board of a node, as `omx_info` reports it.
fn board(world: &World, node: &str) -> Value {
    let info: Value = serde_json::from_str(&world.guest(node, "omx_info --json")).unwrap();
    info["boards"][0].clone()
}

/// Returns source, type and mark of each MXoE frame of a capture.
fn mxoe_frames(file: &Path) -> Vec<[String; 3]> {
    let lua = Path::new(env!("CARGO_MANIFEST_DIR")).join("dissector/weft.lua");
    let output = Command::new("tshark")
        .arg("-X")
        .arg(format!("lua_script:{}", lua.display()))
        .args(["-r", file.to_str().unwrap(), "-n", "-Y", "mxoe", "-T", "fields"])
        .args(["-e", "eth.src", "-e", "mxoe.type", "-e", "mxoe.mark"])
        .output()
        .expect("tshark is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let fields = |line: &str| {
        let mut words = line.split('\t').map(str::to_owned);
        std::array::from_fn(|_| words.next().unwrap_or_default())
    };
    text.lines().map(fields).collect()
}

#[test]
fn two_guests_agree_on_marks_and_a_marked_message_does_not_wait_for_the_card() {
    for qemu in qemus() {
        let world = World::new(qemu);
        world.up(PAIR);
        let _server = world.perf_server("n2");
        // These are messages of every kind: tiny, small, medium, and large by rendezvous; to a name that n1 has yet to
        // learn.
        let measured = perf(&world, "-d n2:0 -S 1 -M 32 -E 1048577 -N 20 -W 2");
        let lengths: Vec<_> = measured.iter().map(|one| one["length"].as_u64().unwrap()).collect();
        assert_eq!(lengths, [1, 32, 1024, 32_768, 1_048_576]);
        for one in &measured {
            assert!(
                one["us_median"].as_f64().unwrap() > 0.0 && one["repetitions"] == 20,
                "{one}"
            );
        }

        for node in ["n1", "n2"] {
            eventually("the authority has asked the card", || {
                let card = board(&world, node)["status"]["card"].clone();
                card.as_str().unwrap().starts_with("a Weft card")
            });
        }

        let capture = world.spawn(&["capture", "--write", "all.pcapng", "n1"]);
        let file = world.dir.path().join("all.pcapng");
        eventually("the file has begun", || {
            std::fs::metadata(&file).is_ok_and(|found| found.len() > 0)
        });
        perf(&world, "-d n2:0 -S 8 -E 9 -N 50 -W 0");
        signal(capture.id() as i32, Signal::INT);
        let captured = capture.wait_with_output().unwrap();
        assert!(captured.status.success(), "{captured:?}");
        let frames = mxoe_frames(&file);
        for node in ["n1", "n2"] {
            let mac = world.mac(node);
            let tiny = |mark: &str| {
                let wanted = [mac.as_str(), TINY, mark];
                frames
                    .iter()
                    .filter(|frame| frame.each_ref().map(String::as_str) == wanted)
                    .count()
            };
            assert!(tiny("1") >= 50, "{node}: {} marked: {frames:?} {captured:?}", tiny("1"));
            assert_eq!(tiny("0"), 0, "{node}: every message that somebody waits for is marked");
        }

        // No busy machine comes near this delay: the rest of a message's time depends on the machine.
        let rtt_us = |strategy: &str| {
            for nic in ["n1", "n2"] {
                world.ok(&["nic", "coalesce", nic, strategy, "--delay", "100ms"]);
            }
            2.0 * perf(&world, "-d n2:0 -S 16 -E 17 -N 15")[0]["us_median"]
                .as_f64()
                .unwrap()
        };
        let timeout = rtt_us("timeout");
        assert!(timeout > 100e3, "messages without a mark wait for the card: {timeout}");
        let marks = || ["n1", "n2"].map(|nic| world.stats(nic)["interrupts"]["by_reason"]["mark"].as_u64().unwrap());
        let before = marks();
        let open_mx = rtt_us("open-mx");
        assert!(open_mx < 100e3, "no message waits: {open_mx}, {timeout} when all do");
        for (before, after) in before.into_iter().zip(marks()) {
            assert!(after - before >= 15, "{before} interrupts for marks, then {after}");
        }
    }
}

/// Compiles a program of the C interface's tests, or one with an absolute path, against the shipped headers, and copies it to both guests.
pub fn compile(world: &World, source: &str, name: &str, translated: bool) -> String {
    let mx = testbed::programs::folder().unwrap().join("mx");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-driver/mx-abi/tests/c");
    let include = |path: PathBuf| format!("-I{}", path.display());
    let mut gcc = Command::new("gcc");
    gcc.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]);
    if translated {
        gcc.arg(include(mx.join("include/translate")));
    }
    gcc.arg(include(mx.join("include")))
        .arg(include(sources.clone()))
        .arg(sources.join(source))
        .arg("-o")
        .arg(world.dir.path().join(name))
        .arg("-L")
        .arg(mx.join("lib"))
        .args([if translated { "-lopen-mx" } else { "-lmyriexpress" }, "-lpthread"]);
    assert!(
        gcc.status().expect("gcc is installed").success(),
        "{source} does not compile"
    );
    for node in ["n1", "n2"] {
        world.ok(&["cp", name, &format!("{node}:/bin/{name}")]);
    }
    name.to_owned()
}

/// Runs a program of two processes: one in n2 that prints its address, and one in n1 that is given it.
fn run_in_both(world: &World, program: &str) {
    let mut server = Lines::of(world.spawn(&["exec", "-n", "n2", "--", program]));
    eventually("an address", || !server.so_far().is_empty());
    let address = server.so_far()[0].1.clone();
    let said = world.ok(&["exec", "-n", "n1", "--", program, &address]);
    let done = format!("{} done", program.trim_end_matches("-omx"));
    assert_eq!(said.trim(), done);
    server.wait();
    assert_eq!(server.so_far().last().unwrap().1, done);
}

/// Reads a counter of a node's first board.
fn counter(world: &World, node: &str, name: &str) -> u64 {
    let text = world.guest(node, "omx_counters -b 0");
    let line = text.lines().find(|line| line.contains(&format!(" {name}:")));
    let words: Vec<_> = line.unwrap_or("0 0").split_whitespace().collect();
    words[1].parse().unwrap()
}

#[test]
fn c_programs_do_in_two_guests_what_mx_promises_also_when_frames_are_lost_repeated_and_reordered() {
    let world = World::new(None);
    world.up(THREE_CARDS);
    // Within one guest, messages go over memory, and from one card to the other.
    for (source, boards) in [
        ("messages", &["0 0", "0 1"][..]),
        ("calls", &["0 0", "0 1"]),
        ("api", &[""]),
        ("ends", &[""]),
    ] {
        let program = compile(&world, &format!("{source}.c"), source, false);
        for boards in boards {
            assert!(
                world.guest("n1", &format!("{program} {boards}")).contains(" done\n"),
                "{source} {boards}"
            );
        }
    }
    // These run between the two guests.
    let programs = [
        compile(&world, "echo.c", "echo", true),
        compile(&world, "hosts.c", "hosts", false),
        compile(&world, "hosts.c", "hosts-omx", true),
    ];
    for program in &programs {
        run_in_both(&world, program);
    }
    let seen = ["RESENT_MESSAGES", "DROP_OLD_MESSAGE", "RECV_EARLY"];
    let quiet: Vec<_> = seen.iter().map(|name| counter(&world, "n2", name)).collect();
    for node in ["n1", "n2"] {
        let netem = "netem delay 2ms 1ms loss 3% duplicate 3% reorder 20%";
        world.guest(
            node,
            &format!("modprobe sch_netem && /sbin/tc qdisc add dev eth0 root {netem}"),
        );
    }
    for program in &programs {
        run_in_both(&world, program);
    }
    for (name, before) in seen.iter().zip(quiet) {
        let now = counter(&world, "n2", name);
        println!("{name}: {before}, with netem {now}");
        assert!(
            now > before,
            "{name} shows that netem did what it was told: {before} {now}"
        );
    }
}

#[test]
fn programs_go_on_when_the_authority_of_their_interface_is_killed_and_started_again() {
    let world = World::new(None);
    world.up(PAIR);
    let mac = world.mac("n2");
    let mut servers: Vec<_> = ["0", "1"]
        .iter()
        .map(|endpoint| {
            Lines::of(world.spawn(&["exec", "-n", "n2", "--", "omx_perf", "-s", "-w", "-v", "-e", endpoint]))
        })
        .collect();
    eventually("two servers", || {
        servers.iter().all(|server| !server.so_far().is_empty())
    });
    // A line is printed after every 20 messages, each time of one byte more.
    let start = |remote: &str, first: &str| {
        let arguments = [
            "-S", first, "-E", "30000", "-M", "1", "-I", "1", "-N", "20", "-W", "0", "-P", "0",
        ];
        let tool = ["exec", "-n", "n1", "--", "omx_perf", "-w", "-d", &mac, "-r", remote];
        Lines::of(world.spawn(&[&tool[..], &arguments].concat()))
    };
    let mut programs = [start("0", "8"), start("1", "5000")];
    let both_go_on = |when: &str| {
        let before = programs.each_ref().map(|program| program.so_far().len());
        eventually(&format!("messages of both programs {when}"), || {
            let now = programs.each_ref().map(|program| program.so_far().len());
            now.iter().zip(before).all(|(now, before)| *now >= before + 3)
        });
    };
    both_go_on("at first");
    // Returns the authority's process, and which endpoints it knows to be open.
    let authority = |node: &str| {
        let status = board(&world, node)["status"].clone();
        let endpoints = status["endpoints"].as_array().unwrap().iter();
        let numbers: Vec<_> = endpoints.map(|endpoint| endpoint["endpoint"].clone()).collect();
        (status["pid"].clone(), numbers)
    };
    for node in ["n1", "n2"] {
        let (killed, open) = authority(node);
        assert_eq!(open.len(), 2, "{node}: {open:?}");
        world.guest(node, &format!("kill -9 {killed}"));
        both_go_on("after their authority was killed");
        // The programs start another authority, and report their endpoints to it.
        eventually("the programs are known again", || authority(node).1 == open);
        assert_ne!(authority(node).0, killed, "{node}: another omxd");
        both_go_on("with another authority");
        // A third program gets an endpoint that neither of the two has.
        let check = world.guest(node, "omx_check");
        assert!(check.contains("self ok"), "{node}: {check}");
    }
    for program in &mut programs {
        assert!(program.is_running());
        program.interrupt();
    }
    assert!(servers.iter_mut().all(Lines::is_running));
}
