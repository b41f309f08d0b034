//! Tests of cables between two cards, without a switch.

use rustix::process::Signal;

use crate::support::{World, eventually, signal};

const LAB: &str = r#"
name = "back-to-back"
[[node]]
name = "r1"
[[node]]
name = "r2"
[[cable]]
between = ["r1.eth1", "r2.eth1"]
link = { rate = "100Mbit" }
link_back = { delay = "1ms" }
"#;

fn carrier(world: &World, nic: &str) -> String {
    let (node, card) = nic.split_once('.').unwrap();
    world
        .guest(node, &format!("cat /sys/class/net/{card}/carrier"))
        .trim()
        .to_owned()
}

fn phase(world: &World, node: &str) -> String {
    let rows = world.json(&["ps"]);
    let row = rows.as_array().unwrap().iter().find(|row| row["name"] == node).unwrap();
    row["phase"].as_str().unwrap().to_owned()
}

#[test]
fn a_cable_between_two_cards_carries_all_and_its_carrier_falls_at_both_ends() {
    let world = World::new(None);
    world.up(LAB);
    let carriers = |expected: &str| {
        eventually("the carrier at both ends", || {
            ["r1.eth1", "r2.eth1"]
                .iter()
                .all(|nic| carrier(&world, nic) == expected)
        });
    };
    carriers("1");
    let far = world.guest("r2", "ip -4 addr show dev eth1");
    let far = far.split_once("inet ").unwrap().1.split_once('/').unwrap().0.to_owned();
    let pings = || world.guest("r1", &format!("ping -c 3 -W 5 {far}"));
    pings();
    assert_eq!(
        world.json(&["switch", "ls"]).as_array().unwrap().len(),
        1,
        "a cable is no switch"
    );

    // Either end names it; each direction is what the one end sends and the other one gets.
    world.ok(&["link", "set", "r2.eth1", "--direction", "to-guest", "--delay", "2ms"]);
    let delays = |nic: &str| {
        let rows = world.json(&["link", "ls", nic]);
        let rows = rows.as_array().unwrap();
        let delays: Vec<_> = rows.iter().map(|row| row["delay_ns"].as_u64().unwrap()).collect();
        assert!(rows.iter().all(|row| row["rate_bps"] == 100_000_000), "{rows:?}");
        delays
    };
    assert_eq!(
        (delays("r1.eth1"), delays("r2.eth1")),
        (vec![1_000_000, 2_000_000], vec![2_000_000, 1_000_000])
    );

    world.ok(&["link", "set", "r1.eth1", "down"]);
    carriers("0");
    world.ok(&["link", "set", "r2.eth1", "up"]);
    carriers("1");
    pings();

    world.run(&["exec", "r2", "--", "poweroff", "-f"]);
    eventually("r2 is stopped", || phase(&world, "r2") == "stopped");
    eventually("r1 sees it", || carrier(&world, "r1.eth1") == "0");
    assert_eq!(carrier(&world, "r1.eth0"), "1", "its switch is there");
    world.ok(&["restart", "r2"]);
    world.ok(&["wait", "r2"]);
    carriers("1");
    pings();

    let rows = world.json(&["ps"]);
    let row = rows
        .as_array()
        .unwrap()
        .iter()
        .find(|row| row["name"] == "r2")
        .unwrap()
        .clone();
    signal(i32::try_from(row["pid"].as_i64().unwrap()).unwrap(), Signal::KILL);
    eventually("r1 sees that r2 was killed", || carrier(&world, "r1.eth1") == "0");

    a_running_lab_gets_and_loses_a_cable(&world);
}

/// The file changes: another cable, with another setting, and r1 has a NIC at it that it had at the switch.
fn a_running_lab_gets_and_loses_a_cable(world: &World) {
    world.ok(&["restart", "r2"]);
    world.ok(&["wait", "r2"]);
    let changed = LAB
        .replace("eth1", "eth0")
        .replace("100Mbit", "1Gbit")
        .replace("[[cable]]", "[[switch]]\nname = \"s1\"\n[[cable]]");
    let changed = changed
        .replace("name = \"r1\"\n", "name = \"r1\"\nnic = [{}, { switch = \"s1\" }]\n")
        .replace("name = \"r2\"\n", "name = \"r2\"\nnic = [{}, { switch = \"s1\" }]\n");
    world.up_again(&changed);
    eventually("both ends of the new cable have a carrier", || {
        ["r1.eth0", "r2.eth0"].iter().all(|nic| carrier(world, nic) == "1")
    });
    world.guest("r1", "ping -c 2 -W 5 r2");
    world.ok(&["link", "set", "r1.eth1", "down"]);
    eventually("r1 has none at the switch", || carrier(world, "r1.eth1") == "0");
    assert_eq!(carrier(world, "r2.eth1"), "1", "it is at a switch now");
}
