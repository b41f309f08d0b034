//! Tests of switches in one lab: VLANs, tags, multicast groups, redundant trunks under a spanning tree, and LACP
//! between two guests.

use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{Lines, World, eventually, signal};

/// In this lab n1 is in VLAN 10 on one switch, n2 in 10 and n3 in 20, and in 10 with tags, on the other; two trunks are
/// between the switches. The second cards of n1 and n2 are at a switch that acts as a cable between them.
const LAB: &str = r#"
name = "switches"
[[switch]]
name = "s1"
stp = true
stp_priority = 4096
snooping = true
[[switch]]
name = "s2"
stp = true
snooping = true
[[switch]]
name = "wire"
reserved = "forward"
[[trunk]]
between = ["s1", "s2"]
[[trunk]]
between = ["s1", "s2"]
stp_cost = 20000
[[node]]
name = "n1"
nic = [{ switch = "s1", vlan = 10 }, { switch = "wire" }]
[[node]]
name = "n2"
nic = [{ switch = "s2", vlan = 10 }, { switch = "wire" }]
[[node]]
name = "n3"
nic = [{ switch = "s2", vlan = 20, vlans = [10] }]
"#;

const GROUP: &str = "239.1.1.1";

fn reaches(world: &World, from: &str, to: &str) -> bool {
    let ping = ["exec", "-n", from, "--", "ping", "-c", "1", "-W", "1", to];
    world.run(&ping).status.success()
}

fn rows(world: &World, verb: &[&str]) -> Vec<Value> {
    world.json(verb).as_array().unwrap().clone()
}

/// Returns role and state of the trunk ports of s2, in the order of the trunks.
fn trunk_ports(world: &World) -> Vec<(String, String)> {
    let text = |row: &Value, name: &str| row[name].as_str().unwrap().to_owned();
    let rows = rows(world, &["switch", "stp", "s2"]).into_iter();
    let trunks = rows.filter(|row| row["to"] == "s1");
    trunks.map(|row| (text(&row, "role"), text(&row, "state"))).collect()
}

fn ports(first: (&str, &str), second: (&str, &str)) -> Vec<(String, String)> {
    [first, second]
        .map(|(role, state)| (role.to_owned(), state.to_owned()))
        .into()
}

#[test]
fn vlans_groups_redundant_trunks_and_lacp_work_with_real_guests() {
    let world = World::new(None);
    world.up(LAB);
    begin_lacp(&world);
    eventually("the first trunk carries the traffic", || {
        trunk_ports(&world) == ports(("root", "forwarding"), ("alternate", "discarding"))
    });
    vlans_part_guests(&world);
    let listener = join_group(&world);
    redundant_trunks_take_each_others_place(&world);
    lacp_found_its_partner(&world);
    groups_reach_members_alone(&world, &listener);

    // Every drop has its reason: LLDP and the like where they are not forwarded, and groups without members.
    let stats = rows(&world, &["switch", "stats"]);
    let dropped = |row: &Value| {
        row["dropped"]
            .as_object()
            .unwrap()
            .values()
            .map(|n| n.as_u64().unwrap())
            .sum::<u64>()
    };
    let wire: Vec<_> = stats.iter().filter(|row| row["switch"] == "wire").collect();
    assert_eq!(wire.iter().map(|row| dropped(row)).sum::<u64>(), 0, "{wire:?}");
    let table = world.ok(&["switch", "stats", "s2"]);
    assert!(
        table.contains("DROPPED") && table.contains("vlan_not_allowed"),
        "{table}"
    );
}

/// Checks that a trunk port's guest sees tags, an access port's guest does not, and no guest reaches another VLAN.
fn vlans_part_guests(world: &World) {
    eventually("n1 reaches n2", || reaches(world, "n1", "n2"));
    assert!(!reaches(world, "n1", "n3"));
    let untagged =
        |args: &[&str]| world.json(&[&["nic", "vlan", "n1.eth0"], args].concat())[0]["vlans"]["untagged"].clone();
    assert_eq!(
        (untagged(&["20"]), untagged(&["default"])),
        (20.into(), 10.into()),
        "as the lab file says"
    );
    world.guest("n1", "ip addr add 10.99.0.1/24 dev eth0");
    world.guest(
        "n3",
        "ip link add link eth0 name eth0.10 type vlan id 10 && ip addr add 10.99.0.3/24 dev eth0.10 && ip link set eth0.10 up",
    );
    eventually("n3 reaches n1 with a tag", || reaches(world, "n3", "10.99.0.1"));
    // The port does not carry this VLAN.
    world.guest(
        "n3",
        "ip link add link eth0 name eth0.30 type vlan id 30 && ip addr add 10.98.0.3/24 dev eth0.30 && ip link set eth0.30 up",
    );
    assert!(!reaches(world, "n3", "10.98.0.1"));
    let macs = rows(world, &["switch", "macs", "s2"]);
    let known = |mac: &str, vlan: u64| {
        let found = macs.iter().find(|row| row["mac"] == mac && row["vlan"] == vlan);
        found.unwrap_or_else(|| panic!("{mac} is unknown: {macs:?}"))["to"].clone()
    };
    assert_eq!(known(&world.mac("n1.eth0"), 10), "s1");
    assert_eq!(known(&world.mac("n3"), 10), "n3.eth0");
    // This is the address that a guest uses now, in addition to the configured one.
    let info = || world.json(&["nic", "info", "n3"])[0].clone();
    assert_eq!(info()["mac_in_use"], info()["mac"]);
    world.guest("n3", "ip link set eth0 address 02:00:00:00:00:33");
    reaches(world, "n3", "n1");
    assert_eq!(info()["mac_in_use"], "02:00:00:00:00:33");
    assert_ne!(info()["mac_in_use"], info()["mac"]);
}

/// Lets n2 join a group.
fn join_group(world: &World) -> Lines {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/mcast.c");
    let program = world.dir.path().join("mcast");
    let gcc = Command::new("gcc")
        .args(["-O1", "-Wall", "-Werror", source, "-o"])
        .arg(&program)
        .status();
    assert!(gcc.expect("gcc is needed").success());
    for node in ["n1", "n2"] {
        world.ok(&["cp", "mcast", &format!("{node}:/bin/mcast")]);
        world.guest(node, "ip route add 224.0.0.0/4 dev eth0");
    }
    let listener = Lines::of(world.spawn(&["exec", "-n", "n2", "--", "mcast", "join", GROUP, "5000", "60"]));
    eventually("s1 knows that n2 wants the group", || {
        is_wanted(world, "s1", "s2").is_some()
    });
    listener
}

/// Returns for how long the group is still wanted behind a port of a switch, in VLAN 10.
fn is_wanted(world: &World, switch: &str, behind: &str) -> Option<u64> {
    let groups = rows(world, &["switch", "groups", switch]);
    let row = groups
        .iter()
        .find(|row| row["group"] == GROUP && row["to"] == behind && row["vlan"] == 10);
    row.and_then(|row| row["left_ns"].as_u64())
}

fn redundant_trunks_take_each_others_place(world: &World) {
    let mut capture = world.spawn(&["capture", "n1.eth0", "-w", "bpdus.pcapng"]);
    world.ok(&["trunk", "set", "s1", "s2", "down", "--number", "1"]);
    eventually("n1 reaches n2 over the other trunk", || reaches(world, "n1", "n2"));
    assert_eq!(
        trunk_ports(world),
        ports(("disabled", "discarding"), ("root", "forwarding"))
    );
    let refusal = world.run(&["trunk", "set", "s1", "s2", "up"]);
    let refusal = String::from_utf8(refusal.stderr).unwrap();
    assert!(
        refusal.contains("there are 2 trunks between \"s1\" and \"s2\""),
        "{refusal}"
    );
    world.ok(&["trunk", "set", "s1", "s2", "up", "--number", "1"]);
    eventually("the better path is taken again", || {
        trunk_ports(world) == ports(("root", "forwarding"), ("alternate", "discarding"))
    });
    eventually("n1 reaches n2 over the better trunk again", || {
        reaches(world, "n1", "n2")
    });

    // The test compares what the guest's card saw, in tshark's words: BPDUs of s1, the root.
    let bpdus = || rows(world, &["switch", "stp", "s1"])[0]["bpdus_out"].as_u64().unwrap();
    let before = bpdus();
    eventually("another BPDU", || bpdus() > before);
    signal(capture.id() as i32, Signal::INT);
    assert!(capture.wait().unwrap().success());
    let said = tshark(world, "bpdus.pcapng", "stp", &["stp.root.prio", "stp.version"]);
    assert!(!said.is_empty() && said.lines().all(|line| line == "4096\t2"), "{said}");
    // The queries that followed are well-formed, too.
    let wrong = "_ws.malformed || ip.checksum.status == 0 || igmp.checksum.status == 0 || icmpv6.checksum.status == 0";
    let said = tshark(world, "bpdus.pcapng", wrong, &["frame.number"]);
    assert_eq!(said, "");
    let kinds = tshark(
        world,
        "bpdus.pcapng",
        "igmp.type == 0x11",
        &["igmp.version", "igmp.maddr"],
    );
    assert!(
        !kinds.is_empty() && kinds.lines().all(|line| line == "3\t0.0.0.0"),
        "{kinds}"
    );
    let kinds = tshark(
        world,
        "bpdus.pcapng",
        "icmpv6.type == 130",
        &["icmpv6.mld.multicast_address"],
    );
    assert!(!kinds.is_empty() && kinds.lines().all(|line| line == "::"), "{kinds}");
}

fn tshark(world: &World, file: &str, filter: &str, fields: &[&str]) -> String {
    let mut tshark = Command::new("tshark");
    tshark.args([
        "-n",
        "-o",
        "ip.check_checksum:TRUE",
        "-r",
        file,
        "-Y",
        filter,
        "-T",
        "fields",
    ]);
    for field in fields {
        tshark.args(["-e", field]);
    }
    let said = tshark
        .current_dir(world.dir.path())
        .output()
        .expect("tshark (Debian package tshark) is needed");
    String::from_utf8(said.stdout).unwrap()
}

/// Checks groups: the trunks have changed since n2 joined, so all ports were queried, and n2's kernel has answered.
fn groups_reach_members_alone(world: &World, listener: &Lines) {
    world.ok(&["nic", "vlan", "n3", "10"]);
    eventually("n2 has said again that it wants the group", || {
        is_wanted(world, "s1", "s2").is_some() && is_wanted(world, "s2", "n2.eth0").is_some()
    });
    eventually("both switches know enough", || {
        rows(world, &["switch", "ls"]).iter().all(|switch| {
            let vlans = switch["snooping"]["vlans"].as_array().cloned().unwrap_or_default();
            vlans.iter().all(|vlan| vlan["flooded"] == false)
        })
    });
    let uninterested = || world.stats("n3")["switch"]["out_frames"].as_u64().unwrap();
    let before = (uninterested(), listener.so_far().len());
    world.guest("n1", &format!("mcast send {GROUP} 5000 50"));
    eventually("n2 has what was sent", || listener.so_far().len() - before.1 == 50);
    // There are BPDUs and queries, but no group frames.
    let more = uninterested() - before.0;
    assert!(more < 20, "{more} frames to who does not want the group");
}

/// Lets n1 and n2 bundle their second cards with the bonding driver.
fn begin_lacp(world: &World) {
    for node in ["n1", "n2"] {
        world.guest(
            node,
            "ip link add bond0 type bond mode 802.3ad lacp_rate fast miimon 100 && ip link set eth1 down && \
             ip link set eth1 master bond0 && ip link set bond0 up",
        );
    }
}

fn lacp_found_its_partner(world: &World) {
    for (node, partner) in [("n1", "n2.eth1"), ("n2", "n1.eth1")] {
        let partner = world.mac(partner);
        eventually("LACP found the partner", || {
            let state = world.guest(node, "cat /proc/net/bonding/bond0");
            state.contains(&format!("Partner Mac Address: {partner}"))
        });
    }
}
