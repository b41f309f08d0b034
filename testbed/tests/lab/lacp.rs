//! Tests of guests that bundle their cards with LACP.

use crate::support::{World, eventually};

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
}
