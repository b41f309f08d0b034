//! Tests of `weft save` and `weft up --restore`: guests, their connections, and the settings of their cards continue.
//! They run on every QEMU.

use std::{
    io::{BufRead, BufReader},
    path::Path,
};

use rustix::process::Signal;
use testbed::save::Saved;

use crate::support::{World, eventually, qemus, signal};

/// A lab with two queue pairs each; one guest uses both, the other one of them.
const LAB: &str = "name = \"pair\"\n\
    [[node]]\nname = \"n1\"\ncpus = 2\nnic = [{ queue_pairs = 2 }]\n\
    [[node]]\nname = \"n2\"\nnic = [{ queue_pairs = 2 }]\n";

/// Makes a script that sends consecutive numbers to a connection, and writes what it receives to a file in memory.
fn talk(arguments: &str) -> String {
    format!("(i=0; while sleep 0.02; do i=$((i+1)); echo $i; done) | setsid nc {arguments} >/tmp/heard 2>/dev/null &")
}

/// Returns how far the node has received the other one's count; nothing is missing, and nothing came twice.
fn heard(world: &World, node: &str) -> usize {
    let text = world.guest(node, "cat /tmp/heard");
    let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
    let numbers: Vec<usize> = whole.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(
        numbers.iter().copied().eq(1..=numbers.len()),
        "{node} heard {numbers:?}"
    );
    numbers.len()
}

/// Checks that both receive from each other over the connection that was there from the beginning.
fn they_talk_on(world: &World, when: &str) {
    for node in ["n1", "n2"] {
        let before = heard(world, node);
        eventually(&format!("{node} hears more {when}"), || heard(world, node) > before + 5);
    }
}

/// Returns the settings of cards and cables, without counters.
fn settings(world: &World) -> Vec<serde_json::Value> {
    let groups = world.json(&["nic", "group", "list"]);
    let groups = groups.as_array().expect("a list").iter();
    let members = groups.map(|member| serde_json::json!([member["nic"], member["group"], member["tree"]]));
    let settings = vec![
        world.json(&["nic", "coalesce", "n2"]),
        world.json(&["nic", "watchdog", "n1"])[0]["watchdog_ns"].clone(),
        world.json(&["link", "ls"]),
        members.collect(),
    ];
    assert!(settings[1] == 5_000_000 && settings[3] == serde_json::json!([["n1.eth0", 7, "chain"]]));
    settings
}

/// Returns the frames of a node's receive queues.
fn frames_per_queue(world: &World, node: &str) -> Vec<u64> {
    let queues = world.json(&["nic", "queues", node]);
    let queues = queues.as_array().expect("a list").iter();
    queues
        .map(|queue| queue["frames"].as_u64().expect("a counter"))
        .collect()
}

/// The client of a save leaves in its middle: the guests continue, and no partial save stays.
fn a_save_that_nobody_wants_leaves_nothing(world: &World) {
    let mut client = world.spawn(&["save", "unwanted"]);
    let said = BufReader::new(client.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let saving = said.into_iter().find(|line| line.starts_with("saving n1"));
    assert!(saving.is_some(), "it says what it does");
    signal(i32::try_from(client.id()).unwrap(), Signal::INT);
    client.wait().unwrap();
    let left = |name: &str| world.dir.path().join(name).exists();
    eventually("the half-written save is gone", || !left(".unwanted.partial"));
    if left("unwanted") {
        // The save was complete before the signal arrived.
        let whole = Saved::open(&world.dir.path().join("unwanted")).unwrap();
        whole.verify(&mut |_| ()).unwrap();
    }
    they_talk_on(world, "after a save that was given up");
}

/// The save is left behind.
fn a_lab_that_was_saved_runs_on(world: &World) {
    let report = world.json(&["save"]);
    assert_eq!((&report["lab"], &report["ended"]), (&"pair".into(), &false.into()));
    assert!(report["nodes"][1]["bytes"].as_u64().unwrap() > 1 << 20, "{report}");
    they_talk_on(world, "after the save");
    refused(
        world,
        &["save"],
        "exists: choose another name, or replace it with --force",
    );
    refused(
        world,
        &["up", "--restore", "pair.save"],
        "the lab pair is running already",
    );
}

#[test]
fn a_saved_lab_goes_on_with_its_connections_queues_and_settings() {
    for (turn, qemu) in qemus().into_iter().enumerate() {
        let world = World::new(qemu);
        world.up(LAB);
        world.ok(&["nic", "coalesce", "n2", "open-mx", "--delay", "200us"]);
        world.ok(&["nic", "watchdog", "n1", "5ms"]);
        world.ok(&["link", "set", "n1", "--delay", "2ms"]);
        world.ok(&["nic", "group", "join", "n1", "7"]);
        world.ok(&["nic", "group", "tree", "7", "chain"]);
        let listens = "while ! netstat -ltn | grep -q ':7000 '; do sleep 0.1; done";
        world.guest("n2", &format!("{} {listens}", talk("-l -p 7000")));
        world.guest("n1", &talk("n2 7000"));
        they_talk_on(&world, "at first");
        let (boot, set) = (boot_id(&world), settings(&world));

        if turn == 0 {
            a_save_that_nobody_wants_leaves_nothing(&world);
            a_lab_that_was_saved_runs_on(&world);
        }
        let later = [heard(&world, "n1"), heard(&world, "n2")];
        world.ok(&["save", "--stop", "--force"]);
        refused(&world, &["exec", "n1", "--", "true"], "no lab is running");
        assert!(!Path::new(&world.labs()).exists(), "it has ended");

        world.ok(&["up", "-d", "--restore", "pair.save"]);
        assert_eq!(boot_id(&world), boot, "it has not booted");
        for (node, later) in ["n1", "n2"].into_iter().zip(later) {
            assert!(heard(&world, node) >= later, "the second save replaced the first");
        }
        they_talk_on(&world, "after the restore");
        assert_eq!(settings(&world), set);
        // Flows of many ports use both queues of one node, in both directions.
        world.guest(
            "n2",
            "for port in $(seq 7100 7116); do nc -w 1 n1 $port </dev/null; done; true",
        );
        let frames = frames_per_queue(&world, "n1");
        assert!(
            frames.len() == 2 && frames.iter().all(|frames| *frames > 0),
            "{frames:?}"
        );
        let said = world.guest("n1", "ping -c 3 -i 0.1 n2");
        assert!(said.contains("3 packets received"), "{said}");
        // A node that is switched off and on boots what was saved.
        if turn == 0 {
            world.ok(&["restart", "n2"]);
            world.ok(&["wait", "n2"]);
            world.guest("n1", "ping -c 1 -W 10 n2");
        }
    }
}

fn boot_id(world: &World) -> String {
    world.guest("n1", "cat /proc/sys/kernel/random/boot_id")
}

/// Checks that `weft` fails with a sentence.
fn refused(world: &World, args: &[&str], sentence: &str) {
    let output = world.run(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains(sentence), "{args:?}: {said}");
}
