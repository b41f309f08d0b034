//! Tests of translations, whose text has to be a lab file that holds what the topology says.

use std::path::Path;

use super::{Note, translate};
use crate::lab::{AtPath, Boot, Lab, LabFolder};

/// As containerlab's examples are written.
const FRR: &str = r#"name: frr01
prefix: ""
topology:
  defaults:
    env: { TZ: UTC }
  kinds:
    linux:
      image: frrouting/frr:v8.4.1
  nodes:
    router1:
      kind: linux
      binds:
        - router1/daemons:/etc/frr/daemons
        - shared:/data:ro
      startup-config: r1.cfg
    my_PC:
      kind: linux
      image: alpine
      exec:
        - ip addr add 192.168.1.2/24 dev eth1
        - ip route add default via 192.168.1.1
      env:
        DEBUG: 1
    br-1:
      kind: bridge
    srl:
      kind: nokia_srlinux
  links:
    - endpoints: ["router1:eth1", "my_PC:eth1"]
      mtu: 1400
    - endpoints: ["router1:eth3", "br-1:eth1"]
    - type: veth
      endpoints:
        - node: srl
          interface: e1-1
        - node: router1
          interface: eth2
    - endpoints: ["my_PC:eth2", "host:veth7"]
"#;

fn at_path(path: &Path) -> AtPath {
    match path.to_str() {
        Some("shared" | "/nowhere/shared") => AtPath::Folder,
        _ => AtPath::File,
    }
}

#[test]
fn what_a_lab_lacks_of_a_topology_is_told_by_line() {
    let translation = translate(FRR, &at_path).expect("a topology");
    let notes: Vec<_> = translation.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "2: `prefix` is not translated",
            "8: guests boot no container images: Debian's package frr in the image \"network\" takes the place of frrouting/frr:v8.4.1",
            "15: `startup-config` is not translated",
            "18: guests boot no container images: the image \"network\" takes the place of alpine",
            "26: the kind nokia_srlinux is translated as linux",
            "34: the interface e1-1 of srl is eth1 here",
            "38: the link to host leads out of the lab and is left out",
        ]
    );
}

#[test]
fn a_topology_becomes_a_lab() {
    let translation = translate(FRR, &at_path).expect("a topology");
    let folder = LabFolder::new(Path::new("/nowhere"), &at_path);
    let lab = Lab::parse_in(&translation.toml, "frr.toml", "frr", folder, None);
    let lab = lab.unwrap_or_else(|error| panic!("{error}\n{}", translation.toml));
    assert_eq!(
        (&*lab.name, &lab.switches[..]),
        ("frr01", &["br-1"].map(str::to_owned)[..])
    );
    let ports: Vec<_> = lab
        .ports()
        .map(|(port, _, nic)| (port, nic.mtu, nic.link.to_guest.up))
        .collect();
    let port = |port: &str, mtu| (port.to_owned(), mtu, true);
    assert_eq!(
        ports,
        [
            port("router1.eth1", 1400),
            port("router1.eth2", 1500),
            port("router1.eth3", 1500),
            port("my_PC.eth1", 1400),
            port("srl.eth1", 1500),
        ]
    );
    let ends: Vec<_> = lab
        .cables
        .iter()
        .map(|cable| cable.ends.each_ref().map(|end| &**end))
        .collect();
    assert_eq!(
        ends,
        [["router1.eth1", "my_PC.eth1"], ["srl.eth1", "router1.eth2"]],
        "a cable has no switch in it"
    );
    let [router, pc, _] = &lab.nodes[..] else {
        panic!("three guests")
    };
    assert_eq!(router.setup.exec, ["/usr/lib/frr/frrinit.sh start"]);
    assert_eq!(router.setup.sysctl["net.ipv4.ip_forward"], "1");
    assert_eq!(
        (
            router.setup.files.len(),
            router.setup.mount.len(),
            router.setup.mount[0].readonly
        ),
        (1, 1, true)
    );
    assert_eq!(
        pc.setup.exec,
        [
            "ip addr add 192.168.1.2/24 dev eth1",
            "ip route add default via 192.168.1.1"
        ]
    );
    assert!(
        pc.setup
            .env
            .iter()
            .map(|(name, value)| (&**name, &**value))
            .eq([("DEBUG", "1"), ("TZ", "UTC")])
    );
    let Boot::Recipe { image, .. } = &router.boot else {
        panic!("a recipe")
    };
    assert!(image.packages.contains("frr"));
}

#[test]
fn keys_of_another_form_are_told_and_not_dropped() {
    let text = "topology:\n  nodes:\n    a:\n      exec: ip a\n      env: [A=1]\n      labels: x\n      binds: /a:/b\n";
    let translation = translate(text, &|_| AtPath::Nothing).expect("a topology");
    let notes: Vec<_> = translation.notes.iter().map(ToString::to_string).collect();
    assert_eq!(
        notes,
        [
            "4: `exec` is no list, and not translated",
            "5: `env` is no table, and not translated",
            "6: `labels` is no table, and not translated",
            "7: `binds` is no list, and not translated",
        ]
    );
}

#[test]
fn gaps_between_interfaces_are_nics_that_are_not_plugged_in() {
    let text = "topology:\n  nodes:\n    a: {}\n    b: {}\n  links:\n    - endpoints: [a:eth3, b:eth1]\n";
    let translation = translate(text, &|_| AtPath::Nothing).expect("a topology");
    let lab = Lab::parse(&translation.toml, "a.toml", "a", Path::new("/")).unwrap_or_else(|error| panic!("{error}"));
    let ports: Vec<_> = lab.ports().map(|(port, _, nic)| (port, nic.link.to_guest.up)).collect();
    let port = |name: &str, up| (name.to_owned(), up);
    assert_eq!(
        ports,
        [
            port("a.eth1", false),
            port("a.eth2", false),
            port("a.eth3", true),
            port("b.eth1", true)
        ]
    );
}

#[test]
fn a_link_to_an_interface_that_has_one_already_leaves_its_other_end_unplugged() {
    let text = "topology:\n  nodes:\n    a: {}\n    b: {}\n    c: {}\n  links:\n    \
                - endpoints: [a:eth1, b:eth1]\n    - endpoints: [a:eth1, c:eth1]\n";
    let translation = translate(text, &|_| AtPath::Nothing).expect("a topology");
    assert_eq!(
        translation.notes.iter().map(Note::to_string).collect::<Vec<_>>(),
        ["8: a:eth1 is there twice, and left out here"]
    );
    let lab = Lab::parse(&translation.toml, "a.toml", "a", Path::new("/")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(lab.cables.len(), 1);
    let ports: Vec<_> = lab.ports().map(|(port, _, nic)| (port, nic.link.to_guest.up)).collect();
    assert_eq!(
        ports,
        [("a.eth1", true), ("b.eth1", true), ("c.eth1", false)].map(|(port, up)| (port.to_owned(), up))
    );
}

#[test]
fn what_is_no_topology_is_one_sentence_with_its_line() {
    let refused = |text: &str| translate(text, &|_| AtPath::Nothing).expect_err(text);
    for (text, line, says) in [
        ("", 1, "this file is empty"),
        ("name: x\n", 1, "there is no `topology`"),
        ("name: x\n  y: [\n", 2, "this is no YAML"),
        ("- 1\n- 2\n", 1, "there is no `topology`"),
    ] {
        let Note { line: at, sentence } = refused(text);
        assert!(
            at.abs_diff(line) <= 1 && sentence.contains(says),
            "{text:?}: {at}: {sentence}"
        );
    }
    // Aliases that would fill the memory.
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        bomb += &format!(
            "a{level}: &a{level} [{}]\n",
            vec![format!("*a{}", level - 1); 10].join(", ")
        );
    }
    refused(&bomb);
}
