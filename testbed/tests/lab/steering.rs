//! Tests of receive queues that follow endpoints, and of marks and frames out of order, in guests on every QEMU.

use serde_json::Value;

use crate::support::{Lines, World, eventually, qemus};

/// A lab whose second guest has a processor and a queue pair for each of two endpoints.
const TWO_QUEUES: &str =
    "name = \"queues\"\n[[node]]\nname = \"n1\"\n[[node]]\nname = \"n2\"\ncpus = 2\nnic = [{ queue_pairs = 2 }]\n";

/// Number of messages of a measurement; other traffic of a quiet lab is far less.
const MESSAGES: u64 = 40;

/// Returns the frames that each receive queue of n2 has received.
fn frames(world: &World) -> [u64; 2] {
    let queues = world.json(&["nic", "queues", "n2"]);
    assert_eq!(queues.as_array().map(Vec::len), Some(2), "{queues}");
    [0, 1].map(|queue| queues[queue]["frames"].as_u64().unwrap())
}

/// Returns by how much the queues' frames grow meanwhile.
fn grown(world: &World, meanwhile: impl FnOnce()) -> [u64; 2] {
    let before = frames(world);
    meanwhile();
    let after = frames(world);
    [after[0] - before[0], after[1] - before[1]]
}

/// Returns the interrupts that n2 has taken for each receive queue, where its QEMU distinguishes them.
fn taken(world: &World) -> Option<[u64; 2]> {
    let table = world.guest("n2", "cat /proc/interrupts");
    let of = |queue: u8| {
        let name = format!("-input.{queue}");
        let line = table.lines().find(|line| line.trim_end().ends_with(&name))?;
        Some(
            line.split_whitespace()
                .skip(1)
                .map_while(|word| word.parse::<u64>().ok())
                .sum(),
        )
    };
    Some([of(0)?, of(1)?])
}

/// Sends messages of one length from n1 to an endpoint of n2 and back.
fn messages(world: &World, endpoint: u8, length: u64) {
    let end = length + 1;
    let said = world.guest(
        "n1",
        &format!("omx_perf -w -P 0 --json -d n2:0 -r {endpoint} -S {length} -E {end} -N {MESSAGES} -W 0"),
    );
    let measured: Value = serde_json::from_str(said.trim()).unwrap();
    assert_eq!(
        (&measured["length"], &measured["repetitions"]),
        (&length.into(), &MESSAGES.into())
    );
}

fn misordered(world: &World) -> [u64; 3] {
    let row = &world.json(&["nic", "misorder", "n1"])[0];
    ["moved", "cleared", "kept"].map(|name| row[name].as_u64().unwrap())
}

/// Rows of the book's table about stock `ethtool` in a guest: commands, and a part of their output.
const ETHTOOL: [(&str, &str); 8] = [
    ("ethtool -c eth0", "rx-usecs: 0"),
    ("ethtool -c eth0", "rx-frames: 1"),
    ("ethtool -C eth0 rx-usecs 50", "Operation not supported"),
    ("ethtool -C eth0 rx-frames 8", "Invalid argument"),
    (
        "ethtool -C eth0 adaptive-rx on",
        "cannot modify an unsupported parameter",
    ),
    ("ethtool -x eth0", "2 RX ring(s)"),
    ("ethtool -x eth0", "Operation not supported"),
    ("ethtool -X eth0 equal 2", "Operation not supported"),
];

fn ethtool_does_what_the_book_says(world: &World) {
    const PAGE: &str = include_str!("../../../docs/book/src/card/ethtool.md");
    for (command, says) in ETHTOOL {
        let row = PAGE.lines().find(|line| line.starts_with(&format!("| `{command}`")));
        assert!(
            row.is_some_and(|row| row.contains(&format!("`{says}`"))),
            "{command}: {says}"
        );
        let said = world.guest("n2", &format!("{command} 2>&1; true"));
        let said: Vec<_> = said.split_whitespace().collect();
        assert!(said.join(" ").contains(says), "{command}: {said:?}");
    }
    let queues = |count: &str| world.guest("n2", &format!("ethtool -L eth0 combined {count} && ethtool -l eth0"));
    assert!(queues("1").trim_end().ends_with("Combined:\t1"));
    assert!(queues("2").trim_end().ends_with("Combined:\t2"));
}

#[test]
fn m_gf9_each_endpoint_has_its_queue_and_m_gf6_marks_and_frames_out_of_order_lose_no_message() {
    for qemu in qemus() {
        let newer = qemu.is_some();
        let world = World::new(qemu);
        world.up(TWO_QUEUES);
        if !newer {
            ethtool_does_what_the_book_says(&world);
        }
        let serve = |endpoint: &str| {
            let words = ["exec", "-n", "n2", "--", "omx_perf", "-s", "-w", "-v", "-e", endpoint];
            Lines::of(world.spawn(&words))
        };
        let servers = [serve("0"), serve("1")];
        eventually("two servers", || {
            servers.iter().all(|server| !server.so_far().is_empty())
        });
        // The authority of n2 requests this from the card.
        eventually("steering by endpoint", || {
            world.json(&["nic", "steering", "n2"])[0]["mode"] == "endpoint"
        });
        let shown: Value = serde_json::from_str(&world.guest("n2", "nicctl --json steering")).unwrap();
        assert_eq!(
            (&shown["mode"], &shown["ready"], &shown["endpoints"][1]),
            (&"endpoint".into(), &2.into(), &1.into())
        );

        messages(&world, 0, 16);
        messages(&world, 1, 16);
        let before = taken(&world);
        assert_eq!(before.is_some(), newer, "MSI-X is what the newer QEMU adds");
        let [other, own] = grown(&world, || messages(&world, 1, 16));
        assert!(own >= MESSAGES && other < MESSAGES / 2, "endpoint 1: {other} and {own}");
        if let (Some(before), Some(after)) = (before, taken(&world)) {
            assert!(after[1] - before[1] >= MESSAGES / 2, "{before:?} {after:?}");
        }
        let [own, other] = grown(&world, || messages(&world, 0, 16));
        assert!(own >= MESSAGES && other < MESSAGES / 2, "endpoint 0: {own} and {other}");
        // In another table both endpoints are on queue 1.
        world.ok(&["nic", "steering", "n2", "--endpoints", "1"]);
        let [other, own] = grown(&world, || messages(&world, 0, 16));
        assert!(
            own >= MESSAGES && other < MESSAGES / 2,
            "by the table: {other} and {own}"
        );
        world.guest("n2", "nicctl steering --endpoints even");

        // Connections from many ports go to one without listener: each is a separate flow.
        let by_flow = || world.stats("n2")["steering"]["by_flow"].as_u64().unwrap();
        let before = by_flow();
        let flows = grown(&world, || {
            world.guest(
                "n1",
                "for port in $(seq 40); do nc -w 2 n2 9 </dev/null 2>/dev/null; done; true",
            );
        });
        assert!(
            flows.iter().all(|frames| *frames >= 5) && by_flow() - before >= 40,
            "{flows:?}"
        );

        // M-GF6: 32 KiB are 23 fragments.
        for degree in ["1", "3"] {
            world.ok(&["nic", "misorder", "n1", degree]);
            let before = misordered(&world);
            messages(&world, 1, 32_768);
            let after = misordered(&world);
            let [moved, cleared, kept] = [0, 1, 2].map(|what| after[what] - before[what]);
            assert!(
                moved >= MESSAGES - 1 && moved.abs_diff(cleared) <= 1,
                "{moved} {cleared} {kept}"
            );
        }
        world.ok(&["nic", "misorder", "n1", "0"]);
        // These frames really change their order.
        let reorder = [
            "--reorder",
            "10%",
            "--reorder-delay",
            "200us",
            "--direction",
            "from-guest",
        ];
        world.ok(&[&["link", "set", "n1"][..], &reorder].concat());
        messages(&world, 1, 32_768);
        let overtaken = world.stats("n1")["link"]["from_guest"]["overtaking_frames"]
            .as_u64()
            .unwrap();
        assert!(overtaken > 0);

        // A user's choice is not changed by an authority that starts anew and finds a card with several queues.
        world.guest("n2", "nicctl steering flow");
        drop(servers);
        world.guest(
            "n2",
            "old=$(pidof omxd); kill $old; while [ -d /proc/$old ]; do sleep 0.05; done",
        );
        eventually("another authority that knows its card", || {
            world
                .guest("n2", "omx_info || true")
                .contains("card: a Weft card, 2 receive queues")
        });
        let steering = world.json(&["nic", "steering", "n2"])[0].clone();
        assert_eq!((&steering["mode"], &steering["chosen"]), (&"flow".into(), &true.into()));
    }
}
