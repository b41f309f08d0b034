//! Tests of nodes.

use super::*;

#[test]
fn two_names_are_a_whole_lab() {
    let lab = parse("[[node]]\nname = \"n1\"\n[[node]]\nname = \"n2\"\n").expect("valid");
    assert_eq!(lab.switches, ["s1"]);
    let nics: Vec<_> = lab
        .ports()
        .map(|(port, _, nic)| (port, nic.mac.to_string(), nic.address))
        .collect();
    assert_eq!(nics[0].0, "n1.eth0");
    assert_eq!(nics[0].1, "52:54:00:00:01:01");
    assert_eq!(nics[1].2.map(|net| net.to_string()).as_deref(), Some("10.77.1.2/24"));
    assert_eq!(lab.nodes[0].memory_mib, 192);
}

#[test]
fn names_have_capitals_underscores_and_dots_and_host_names_follow_a_rule() {
    let nodes = |names: &[&str]| -> String {
        names
            .iter()
            .map(|name| format!("[[node]]\nname = \"{name}\"\n"))
            .collect()
    };
    let lab = parse(&nodes(&["PC1", "R1", "my_host", "core.2", "eth0"])).expect("valid");
    let hosts: Vec<_> = lab.nodes.iter().map(|node| host_name(&node.name)).collect();
    assert_eq!(hosts, ["PC1", "R1", "my-host", "core-2", "eth0"]);
    for names in [["r1", "R1"], ["a_b", "a-b"], ["a.b", "A_B"]] {
        let mistake = mistake(&nodes(&names));
        assert!(
            mistake.contains(&format!("\"{}\" is taken by another node", names[1])),
            "{mistake}"
        );
    }
    for name in ["", "1a", "a-", "a_", ".a", "a..b", "n1.eth0", "a/b", "a b", "ä"] {
        let mistake = mistake(&nodes(&[name]));
        assert!(mistake.contains("cannot be the name of a node"), "{name}: {mistake}");
    }
    let mistake = mistake("name = \"a.failed\"\n[[node]]\nname = \"n1\"\n");
    assert!(mistake.contains("cannot be the name of a lab"), "{mistake}");
}

#[test]
fn interfaces_are_counted_from_where_the_file_says() {
    let lab = parse("[defaults]\nfirst_interface = 1\n[[node]]\nname = \"n1\"\nnic = [{}, {}]\n").expect("valid");
    let ports: Vec<_> = lab.ports().map(|(port, ..)| port).collect();
    assert_eq!(ports, ["n1.eth1", "n1.eth2"]);
    let mistake = mistake("[defaults]\nfirst_interface = 100\n[[node]]\nname = \"n1\"\n");
    assert!(
        mistake.contains("a first interface eth100 is not possible = from 0 to 99"),
        "{mistake}"
    );
}
