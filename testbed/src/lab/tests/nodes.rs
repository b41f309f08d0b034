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
