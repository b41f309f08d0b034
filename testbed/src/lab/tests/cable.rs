//! Tests of the settings of cables.

use super::*;
use crate::lab::network::Network;

#[test]
fn a_cable_has_what_emulators_have() {
    let lab = parse(
        r#"
        [defaults.link]
        queue = "64K"
        loss = "1%"
        [[node]]
        name = "n1"
        [[node.nic]]
        link = { rate = "10Mbit", burst = "32K", delay = "10ms", jitter = "1ms", jitter_distribution = "pareto" }
        link_to_guest = { queue = "100 packets", ecn_threshold = "5ms", loss_every = 100, jitter_reorders = true }
        link_from_guest = { loss = { enter = "1%", leave = "25%", outside = "0.1%" } }
        "#,
    )
    .expect("valid");
    let link = &lab.nodes[0].nics[0].link;
    let both = LinkSettings {
        rate_bps: 10_000_000,
        burst_bytes: 32 << 10,
        delay_ns: 10_000_000,
        jitter_ns: 1_000_000,
        jitter_distribution: JitterDistribution::Pareto,
        ..LinkSettings::default()
    };
    let to_guest = LinkSettings {
        jitter_reorders: true,
        queue_max: QueueLevel::frames(100),
        ecn_above: QueueLevel::nanos(5_000_000),
        loss_ppm: 10_000,
        loss_every: 100,
        seed: link.to_guest.seed,
        ..both
    };
    let from_guest = LinkSettings {
        queue_max: QueueLevel::bytes(64 << 10),
        loss_ppm: 1_000,
        loss_enter_ppm: 10_000,
        loss_leave_ppm: 250_000,
        loss_in_burst_ppm: 1_000_000,
        seed: link.from_guest.seed,
        ..both
    };
    assert_eq!((&link.to_guest, &link.from_guest), (&to_guest, &from_guest));
}

#[test]
fn a_cable_joins_two_cards_which_need_no_table_and_is_a_network_of_its_own() {
    let lab = parse(
        r#"
        [[node]]
        name = "r1"
        [[node]]
        name = "r2"
        nic = [{ mtu = 9000 }]
        [[cable]]
        between = ["r1.eth0", "r2.eth0"]
        [[cable]]
        between = ["r2.eth1", "r1.eth1"]
        link = { rate = "1Gbit" }
        link_forth = { delay = "1ms" }
        link_back = { delay = "2ms" }
        "#,
    )
    .expect("valid");
    assert_eq!(lab.switches, [""; 0], "no card is at one");
    let nics: Vec<_> = lab.ports().map(|(name, _, nic)| (name, nic)).collect();
    let far: Vec<_> = nics
        .iter()
        .map(|(name, _)| lab.far_end(name).expect("a cable"))
        .collect();
    assert_eq!(far, ["r2.eth0", "r2.eth1", "r1.eth0", "r1.eth1"]);
    let networks: Vec<_> = nics
        .iter()
        .map(|(_, nic)| nic.address.expect("one").network())
        .collect();
    assert_eq!((networks[0], networks[1]), (networks[2], networks[3]));
    assert_ne!(networks[0], networks[1]);
    let [one, other] = [nics[3].1, nics[1].1].map(|nic| &nic.link);
    assert_eq!((&one.from_guest, &one.to_guest), (&other.to_guest, &other.from_guest));
    assert_eq!((one.from_guest.delay_ns, one.to_guest.delay_ns), (1_000_000, 2_000_000));
    assert_eq!(one.from_guest.rate_bps, 1_000_000_000);
    assert_ne!(one.from_guest.seed, one.to_guest.seed);
    // What one card sends is set at that card, and at the other one nothing.
    let state = crate::state::StateDir::at(Path::new("/run/weft/lab"));
    let config = crate::settings_in_force::Settings::of(&lab)
        .vnicd_config(&lab, &state)
        .expect("short paths");
    config.check().expect("a configuration that vnicd takes");
    let port = config.ports.iter().find(|port| port.name == "r2.eth1").expect("a port");
    assert_eq!(
        (port.link.from_guest.delay_ns, port.link.to_guest.delay_ns),
        (1_000_000, 0)
    );
    assert!(config.switches.iter().all(|switch| switch.settings.cable));
}

#[test]
fn a_mistake_in_a_cable_between_cards_is_answered_with_its_place() {
    let nodes = "[[node]]\nname = \"r1\"\n[[node]]\nname = \"r2\"\n[[cable]]\n";
    for (cable, expected) in [
        (
            "between = [\"r1.eth0\"]",
            "6:11: wrong number of values: 1 = expected here: the names of two NICs, such as [\"n1.eth1\", \"n2.eth1\"]",
        ),
        (
            "between = [\"r1\", \"r2.eth0\"]",
            "6:12: \"r1\" is no NIC = a node and a number, such as \"n1.eth1\"",
        ),
        (
            "between = [\"r1.eth0\", \"r3.eth0\"]",
            "6:23: there is no node \"r3\" = the name of a [[node]]",
        ),
        (
            "between = [\"r1.eth2\", \"r2.eth0\"]",
            "6:12: r1.eth2 cannot be: the node has 1 NICs before it = NICs without a gap, from eth0 on, at most 8",
        ),
        (
            "between = [\"r1.eth0\", \"r1.eth0\"]",
            "6:23: r1.eth0 is at a cable already = each NIC at one cable",
        ),
    ] {
        assert_eq!(mistake(&format!("{nodes}{cable}\n")), expected);
    }
    for (nic, expected) in [
        (
            "{ switch = \"s1\" }",
            "r1.eth0 is at a cable, and its table says something else = leave out switch and loopback of the NIC",
        ),
        (
            "{ vlan = 7 }",
            "r1.eth0 is at a cable, where there are no VLANs = leave out vlan and vlans of the NIC",
        ),
        (
            "{ link = {} }",
            "r1.eth0 has settings of a cable to a switch = link, link_forth and link_back of the [[cable]]",
        ),
    ] {
        let text = format!(
            "[[node]]\nname = \"r1\"\nnic = [{nic}]\n[[node]]\nname = \"r2\"\n[[cable]]\nbetween = [\"r1.eth0\", \"r2.eth0\"]\n"
        );
        assert_eq!(mistake(&text), format!("7:12: {expected}"));
    }
}
