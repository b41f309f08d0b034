//! Tests of multicast in the card (M-BV5), typed as a user types it: guests that join a group, one that sends, and one
//! that is stopped in the middle of the tree.

use std::time::Duration;

use serde_json::Value;
use testbed::qemu::qmp::Qmp;

use crate::support::{Lines, World, eventually};

/// A lab of five guests, so that the first one's binary tree has an inner card: n1 sends to n2 and n3, n2 to n4 and n5.
const FIVE: &str = "name = \"five\"\n[[node]]\nname = \"n1\"\n[[node]]\nname = \"n2\"\n\
                    [[node]]\nname = \"n3\"\n[[node]]\nname = \"n4\"\n[[node]]\nname = \"n5\"\n";

const NODES: [&str; 5] = ["n1", "n2", "n3", "n4", "n5"];

fn count(world: &World, node: &str, name: &str) -> u64 {
    world.stats(node)["multicast"][name].as_u64().expect("a counter")
}

/// Returns the frames that a switch sent to all ports.
fn flooded(world: &World) -> u64 {
    let rows = world.json(&["nic", "stats"]);
    let rows = rows.as_array().expect("rows");
    rows.iter()
        .filter_map(|row| row["switch"]["out_flooded"].as_u64())
        .sum()
}

/// Starts `nicctl group receive` in a guest, and waits until it listens.
fn receiver(world: &World, node: &str, count: u32) -> Lines {
    let script = format!("echo ready; exec nicctl --json group receive 7 --count {count} --timeout-s 60");
    let receiver = Lines::of(world.spawn(&["exec", "-n", node, "--", "sh", "-c", &script]));
    eventually("a receiver", || !receiver.so_far().is_empty());
    // It prints that before its socket is open.
    let open = || world.guest(node, "cat /proc/net/packet").contains("88b6");
    eventually("a socket", open);
    receiver
}

/// Returns what a receiver that has ended printed.
fn received(mut receiver: Lines) -> Value {
    receiver.wait();
    let lines = receiver.so_far();
    serde_json::from_str(&lines.last().expect("a line").1).expect("JSON")
}

#[test]
fn m_bv5_a_broadcast_reaches_four_guests_by_their_cards_while_the_inner_guest_is_stopped() {
    const PACKETS: u32 = 20;
    let world = World::new(None);
    world.up(FIVE);
    for node in NODES {
        let joined = world.guest(node, "nicctl group join 7");
        assert!(joined.starts_with("group 7: "), "{joined}");
    }
    for verb in ["send", "receive", "leave"] {
        let refused = world.run(&["exec", "-n", "n1", "--", "nicctl", "group", verb, "8"]);
        assert!(
            String::from_utf8_lossy(&refused.stderr).contains("this card is not in group 8"),
            "{verb}: {refused:?}"
        );
    }

    // All guests take part: each of the four gets every packet once and in order.
    let receivers: Vec<_> = NODES[1..].iter().map(|node| receiver(&world, node, PACKETS)).collect();
    let before = flooded(&world);
    let sent = world.guest("n1", &format!("nicctl group send 7 --count {PACKETS} --size 100"));
    assert_eq!(sent, "20 packets of 100 bytes for the 4 other members of group 7\n");
    for receiver in receivers {
        let output = received(receiver);
        assert_eq!(output["packets"], PACKETS);
        let senders = output["senders"].as_object().expect("senders");
        let (address, from) = senders.iter().next().expect("one sender");
        assert_eq!((address.as_str(), senders.len()), (world.mac("n1").as_str(), 1));
        assert_eq!(
            (&from["in_order"], &from["first"], &from["last"]),
            (&true.into(), &0.into(), &19.into())
        );
    }
    let forwarded: Vec<_> = NODES.iter().map(|node| count(&world, node, "forwarded")).collect();
    assert_eq!(
        forwarded,
        [40, 40, 0, 0, 0],
        "the edges of the tree, and only the sender's children from the sender"
    );
    assert_eq!(flooded(&world), before, "nothing was flooded");

    // The inner guest is stopped. Its card continues: the leaves below it receive as before.
    let socket = world.labs().join("five/n2.qmp");
    let mut monitor = Qmp::connect(&socket, Duration::from_secs(10)).expect("a monitor");
    monitor.stop().expect("QMP stop");
    assert!(!monitor.running().expect("an answer"));
    let leaves: Vec<_> = ["n3", "n4", "n5"].map(|node| receiver(&world, node, PACKETS)).into();
    world.guest("n1", &format!("nicctl group send 7 --count {PACKETS}"));
    for leaf in leaves {
        assert_eq!(received(leaf)["packets"], PACKETS);
    }
    assert_eq!(count(&world, "n2", "forwarded"), 80);
    monitor.cont().expect("QMP cont");

    // The host shows and changes groups: another tree, and one member less.
    let rows = world.json(&["nic", "group", "tree", "7", "chain"]);
    assert_eq!(rows[0]["children"], serde_json::json!(["n2.eth0"]));
    let rows = world.json(&["nic", "group", "leave", "n5", "7"]);
    assert_eq!(rows.as_array().map(Vec::len), Some(4));
    assert_eq!(world.guest("n5", "nicctl group list"), "this card is in no group\n");
    // A killed vnicd knows the groups again when it is back, including those that guests joined.
    world.ok(&["nic", "group", "join", "n5.eth0", "9"]);
    crate::support::kill(world.pid("vnicd_pid"));
    eventually("the groups are back", || {
        let output = world.run(&["--json", "nic", "group", "list"]);
        let rows: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        rows.as_array()
            .is_some_and(|rows| rows.len() == 5 && rows[0]["tree"] == "chain")
    });
}
