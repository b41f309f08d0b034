//! Tests of the demo, shortened to two rounds: it measures what it promises to measure.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{World, eventually, signal};

fn find<'a>(demo: &'a Value, name: &str, delay_us: u64) -> &'a Value {
    let strategies = demo["strategies"].as_array().unwrap();
    let found = strategies
        .iter()
        .find(|one| one["name"] == name && one["delay_us"] == delay_us);
    found.unwrap_or_else(|| panic!("no {name} {delay_us} in {demo}"))
}

fn per_message(strategy: &Value, part: &str) -> f64 {
    strategy[part]["interrupts"].as_f64().unwrap() / strategy[part]["messages"].as_f64().unwrap()
}

#[test]
fn the_demo_shows_what_marks_do_and_explains_it() {
    let world = World::new(None);
    let demo = world.json(&[
        "demo",
        "--accel",
        "tcg",
        "--rounds",
        "2",
        "--output",
        "out",
        "--capture",
        "run.pcapng",
    ]);
    println!("{demo:#}");
    assert!(!world.labs().exists(), "nothing is left running");
    assert_eq!(demo["accel"], "tcg");
    assert_eq!(demo["strategies"].as_array().unwrap().len(), 7);

    // Durations depend on the machine (the text says what they show); decisions of the cards do not.
    let rtt = |name, delay| find(&demo, name, delay)["small"]["rtt_us_median"].as_f64().unwrap();
    assert!(
        rtt("timeout", 1000) >= 2000.0,
        "one delay in each direction: {}",
        rtt("timeout", 1000)
    );
    let medium = |name, delay| per_message(find(&demo, name, delay), "medium");
    // A message is acknowledged with the next one, or with a separate packet when that comes late.
    assert!(
        (23.0..24.5).contains(&medium("disabled", 0)),
        "{}",
        medium("disabled", 0)
    );
    for name in ["open-mx", "stream"] {
        for delay in [75, 1000] {
            let part = &find(&demo, name, delay)["medium"];
            let of = |reason: &str| part["reasons"][reason].as_f64().unwrap_or(0.0);
            let marked = (of("mark") + of("deferred")) / part["messages"].as_f64().unwrap();
            // There is one for the whole message. The number of further time-outs says how long the messages took to
            // arrive.
            assert!((0.9..1.2).contains(&marked), "{name} {delay}: {part}");
            let most = if delay == 75 { 11.5 } else { 4.6 };
            assert!(medium(name, delay) < most, "{name} {delay}: {part}");
        }
        for delay in [75, 1000] {
            let small = &find(&demo, name, delay)["small"];
            let (marks, all) = (
                small["reasons"]["mark"].as_f64().unwrap(),
                small["interrupts"].as_f64().unwrap(),
            );
            assert!(marks > 0.9 * all, "{name} {delay}: {small}");
        }
    }
    let (of_stream, of_open_mx) = (find(&demo, "stream", 1000), find(&demo, "open-mx", 1000));
    assert!(
        per_message(of_stream, "stream") <= 0.6 * per_message(of_open_mx, "stream"),
        "{of_stream} {of_open_mx}"
    );
    for strategy in demo["strategies"].as_array().unwrap() {
        assert!(strategy["medium"]["messages"].as_u64().unwrap() >= 50, "{strategy}");
        assert!(strategy["small"]["messages"].as_u64().unwrap() >= 1000, "{strategy}");
        for part in ["small", "medium", "stream"] {
            let reasons = strategy[part]["reasons"]
                .as_object()
                .unwrap()
                .values()
                .filter_map(Value::as_u64);
            let interrupts = strategy[part]["interrupts"].as_u64();
            assert_eq!(interrupts, Some(reasons.sum()), "{strategy}");
            assert!(interrupts > Some(0), "{strategy}");
        }
    }

    let text = std::fs::read_to_string(world.dir.path().join("out/demo.txt")).unwrap();
    println!("{text}");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains(" Reading ") && text.contains("the reasons add up to the total"),
        "{text}"
    );
    // Two rounds are too few for quartiles to mean anything, so nothing is coloured, but they are reported.
    assert!(find(&demo, "stream", 1000)["small"]["rtt_us_quartiles"][1].as_f64() >= Some(rtt("stream", 1000)));
    let page = std::fs::read_to_string(world.dir.path().join("out/demo.html")).unwrap();
    assert!(page.matches("<svg").count() >= 6 && page.contains("add up to the total"));
    for chart in ["small-time", "medium-interrupts", "stream-rate"] {
        let svg = std::fs::read_to_string(world.dir.path().join(format!("out/{chart}.svg"))).unwrap();
        assert!(svg.starts_with("<svg"), "{chart}");
    }

    let lua = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("dissector/weft.lua");
    // All frames are read in one pass. A cable's duplicates are no mistake of a capture: TCP is not reassembled.
    let output = Command::new("tshark")
        .arg("-X")
        .arg(format!("lua_script:{}", lua.display()))
        .args(["-r", "run.pcapng", "-n", "-o", "tcp.desegment_tcp_streams:FALSE"])
        .args(["-T", "fields", "-e", "frame.protocols", "-e", "frame.comment"])
        .current_dir(world.dir.path())
        .output()
        .expect("tshark is installed");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let frames = String::from_utf8(output.stdout).unwrap();
    let with = |wanted: &str| frames.lines().filter(|line| line.contains(wanted)).count();
    assert_eq!(with("_ws.malformed"), 0);
    for (protocol, at_least) in [(":mxoe", 1000), (":arp", 2), (":icmp", 10), (":tcp", 10), ("irq ", 100)] {
        assert!(with(protocol) >= at_least, "{protocol}: {}", with(protocol));
    }
}

#[test]
fn a_demo_that_is_ended_early_leaves_no_file_behind() {
    let world = World::new(None);
    world.file("run.pcapng", "of yesterday");
    let demo = ["demo", "--accel", "tcg", "--output", "a/b", "--capture", "new.pcapng"];
    let child = world.spawn(&demo);
    eventually("guests boot", || world.json(&["ps"])[1]["phase"] == "booting");
    signal(child.id() as i32, Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let left: Vec<_> = std::fs::read_dir(world.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["run.pcapng"]);
}
