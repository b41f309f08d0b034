//! Tests of the networks of switches.

use super::*;

#[test]
fn switches_joined_by_a_trunk_share_a_network() {
    let lab = parse(
        r#"
        [[switch]]
        name = "a"
        [[switch]]
        name = "b"
        [[switch]]
        name = "c"
        [[trunk]]
        between = ["a", "b"]
        link = { rate = "10Gbit" }
        [[node]]
        name = "n1"
        nic = [{ switch = "a" }, { switch = "c" }]
        [[node]]
        name = "n2"
        nic = [{ switch = "b" }]
        "#,
    )
    .expect("valid");
    let addresses: Vec<_> = lab
        .ports()
        .filter_map(|(_, _, nic)| nic.address)
        .map(|net| net.to_string())
        .collect();
    assert_eq!(addresses, ["10.77.1.1/24", "10.77.3.1/24", "10.77.1.2/24"]);
    assert_eq!(lab.trunks[0].link.a_to_b.rate_bps, 10_000_000_000);
}

#[test]
fn a_vlan_may_have_a_network_of_its_own() {
    let node = |name: &str, nic: &str| format!("[[node]]\nname = \"{name}\"\nnic = [{{ {nic} }}]\n");
    let of_vlan = node("n1", "vlan = 20, address = \"10.20.0.3/24\"");
    let lab = parse(&format!("{of_vlan}{}{}", node("n2", ""), node("n3", "vlan = 10"))).expect("valid");
    let of = |place: usize| lab.nodes[place].nics[0].address.map(|net| net.to_string());
    assert_eq!(
        [of(0), of(1), of(2)].map(Option::unwrap),
        ["10.20.0.3/24", "10.77.1.1/24", "10.77.1.2/24"]
    );
    assert_eq!(
        lab.nodes[0].nics[0].address6, None,
        "its number may be another's in the other network"
    );
    assert!(lab.nodes[1].nics[0].address6.is_some());
}
