//! Tests of guests that bundle their cards with LACP.

use std::time::Duration;

use crate::support::{Lines, World, eventually};

/// Two guests with two cards each, at two switches that are cables to what comes for bridges.
const LAB: &str = r#"
name = "lacp"
[[switch]]
name = "s1"
reserved = "forward"
[[switch]]
name = "s2"
reserved = "forward"
[[node]]
name = "n1"
nic = [{ switch = "s1" }, { switch = "s2" }]
[[node]]
name = "n2"
nic = [{ switch = "s1" }, { switch = "s2", speed = "10Gbit" }]
[[switch]]
name = "s3"
[[node]]
name = "n3"
nic = [{ switch = "s3", aggregate = "lag1" }, { switch = "s3", aggregate = "lag1" }]
[[node]]
name = "n4"
nic = [{ switch = "s3" }]
"#;

/// Bundles both cards of a node, and gives the bond an address.
fn bundle(world: &World, node: &str, address: &str) {
    let script = format!(
        "modprobe bonding && echo +bond7 >/sys/class/net/bonding_masters && cd /sys/class/net/bond7/bonding && \
         echo 802.3ad >mode && echo 100 >miimon && for card in eth0 eth1; do \
         ip link set $card down && echo +$card >slaves || exit; done && ip link set bond7 up && ip addr add {address} dev bond7"
    );
    world.guest(node, &script);
}

#[test]
fn cards_have_a_speed_lacp_bundles_two_without_a_manual_step_and_what_the_card_never_hears_is_fixed() {
    let world = World::new(None);
    world.up(LAB);
    for node in ["n1", "n2"] {
        let settings = world.guest(node, "ethtool eth0");
        assert!(
            settings.contains("Speed: 10000Mb/s") && settings.contains("Duplex: Full"),
            "{settings}"
        );
        let offloads = world.guest(node, "ethtool -k eth0");
        assert!(offloads.contains("rx-gro-hw: on [fixed]"), "{offloads}");
    }
    bundle(&world, "n1", "10.99.0.1/24");
    bundle(&world, "n2", "10.99.0.2/24");
    for (node, partner) in [("n1", "n2.eth0"), ("n2", "n1.eth0")] {
        let partner = format!("Partner Mac Address: {}", world.mac(partner));
        eventually("LACP found the partner with both ports", || {
            let state = world.guest(node, "cat /proc/net/bonding/bond7");
            state.contains("Number of ports: 2") && state.contains(&partner)
        });
    }
    world.guest("n1", "ping -c 3 10.99.0.2");
    the_switch_bundles_the_cards_of_a_guest_and_a_pulled_cable_costs_less_than_three_seconds(&world);
}

fn the_switch_bundles_the_cards_of_a_guest_and_a_pulled_cable_costs_less_than_three_seconds(world: &World) {
    assert!(
        world
            .run(&["exec", "-n", "n3", "--", "ping", "-c", "1", "-W", "5", "n4"])
            .status
            .success()
    );
    bundle(world, "n3", "10.99.3.3/24");
    world.guest("n4", "ip addr add 10.99.3.4/24 dev eth0");
    eventually("the switch is the partner of both ports", || {
        let state = world.guest("n3", "cat /proc/net/bonding/bond7");
        let switches = world.json(&["switch", "ls"]);
        let s3 = switches
            .as_array()
            .unwrap()
            .iter()
            .find(|switch| switch["switch"] == "s3")
            .unwrap();
        let ports = s3["ports"].as_array().unwrap().iter();
        let bundled = ports.filter(|port| !port["aggregate"].is_null()).count();
        state.contains("Number of ports: 2") && bundled == 2
    });
    for card in ["n3.eth0", "n3.eth1"] {
        let pings = [
            "exec",
            "-n",
            "n4",
            "--",
            "ping",
            "-i",
            "0.1",
            "-c",
            "100",
            "-W",
            "1",
            "10.99.3.3",
        ];
        let pings = Lines::of(world.spawn(&pings));
        eventually("pings are answered", || pings.so_far().len() > 10);
        world.ok(&["link", "set", card, "down"]);
        let gap = longest_gap(pings);
        assert!(
            gap < Duration::from_secs(3),
            "{gap:?} without an answer after {card} was pulled"
        );
        world.ok(&["link", "set", card, "up"]);
        eventually("both ports are back", || {
            world
                .guest("n3", "cat /proc/net/bonding/bond7")
                .contains("Number of ports: 2")
        });
    }
}

/// The longest time between two answers, when all are there.
fn longest_gap(mut pings: Lines) -> Duration {
    pings.wait();
    let lines = pings.so_far();
    let times: Vec<_> = lines
        .iter()
        .filter(|(_, line)| line.contains("time="))
        .map(|(at, _)| *at)
        .collect();
    assert!(times.len() > 60, "{} answers", times.len());
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap()
}
