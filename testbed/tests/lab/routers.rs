//! Tests of Debian's daemons in recipe guests: what their packages rely on is there, and what fails is told.

use std::time::Instant;

use crate::support::{PATIENCE, World, eventually};

const RING: &str = include_str!("frr-ring.toml");

#[test]
fn three_frr_routers_in_a_ring_are_full_neighbours_within_a_minute_from_one_file() {
    let world = World::new(None);
    world.up(RING);
    let began = Instant::now();
    for node in ["ra", "rb", "rc"] {
        eventually("two full neighbours", || {
            let neighbours = world.guest(node, "vtysh -c 'show ip ospf neighbor' || true");
            neighbours.matches("Full").count() == 2
        });
    }
    assert!(began.elapsed() < PATIENCE);
    eventually("a route to the far side", || {
        world.guest("ra", "ip route show 10.0.2.0/24").contains("proto ospf")
    });
    for row in world.json(&["ps"]).as_array().unwrap() {
        assert_eq!(row["note"], serde_json::Value::Null, "{row}");
    }
    // Accounts and programs of the Essential set are those of an installed Debian.
    let said = world.guest(
        "ra",
        "id -Gn frr; getent passwd www-data | cut -d: -f3; stat --version | head -1; perl -e 'print \"$^V\\n\"'; su frr -s /bin/bash -c 'echo ${BASH##*/}'; \
         stat -c %a /var/lock /root",
    );
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[..2], ["frr frrvty", "33"], "{said}");
    assert!(
        lines[2].starts_with("stat (GNU coreutils)") && lines[3].starts_with("v5."),
        "{said}"
    );
    assert_eq!(lines[4..], ["bash", "1777", "700"], "{said}");
}

#[test]
fn a_topology_of_containerlab_is_deployed_and_its_routers_lead_from_pc_to_pc() {
    let world = World::new(None);
    world.file(
        "daemons",
        "zebra=yes\nospfd=yes\nvtysh_enable=yes\nzebra_options=\"-A 127.0.0.1 -s 90000000\"\n",
    );
    for (router, own, far) in [(1, 1, "10.0.12.1"), (2, 2, "10.0.12.2")] {
        let text = format!(
            "frr defaults traditional\ninterface eth1\n ip address {far}/24\n ip ospf network point-to-point\n ip ospf hello-interval 1\n\
             interface eth2\n ip address 10.0.{own}.1/24\nrouter ospf\n network 10.0.0.0/16 area 0\n"
        );
        world.file(&format!("router{router}.conf"), &text);
    }
    world.file(
        "frr.clab.yml",
        r"
name: clab
topology:
  kinds:
    linux:
      image: ghcr.io/srl-labs/network-multitool
  nodes:
    router1:
      kind: linux
      image: frrouting/frr:v8.4.1
      binds:
        - daemons:/etc/frr/daemons
        - router1.conf:/etc/frr/frr.conf
    router2:
      kind: linux
      image: frrouting/frr:v8.4.1
      binds:
        - daemons:/etc/frr/daemons
        - router2.conf:/etc/frr/frr.conf
    PC1:
      kind: linux
      exec:
        - ip addr add 10.0.1.2/24 dev eth1
        - ip route add 10.0.0.0/16 via 10.0.1.1
    PC2:
      kind: linux
      exec:
        - ip addr add 10.0.2.2/24 dev eth1
        - ip route add 10.0.0.0/16 via 10.0.2.1
  links:
    - endpoints: [router1:eth1, router2:eth1]
    - endpoints: [PC1:eth1, router1:eth2]
    - endpoints: [PC2:eth1, router2:eth2]
",
    );
    world.ok(&["deploy", "--accel", "tcg", "-t", "frr.clab.yml"]);
    for row in world.json(&["ps"]).as_array().unwrap() {
        assert_eq!(row["note"], serde_json::Value::Null, "{row}");
    }
    eventually("PC2 answers PC1 over both routers", || {
        world.guest("PC1", "ping -c 1 -W 1 10.0.2.2 || true").contains("ttl=62")
    });
    // A link is a cable: both routers see that it was pulled.
    world.ok(&["link", "set", "router1.eth1", "down"]);
    for router in ["router1", "router2"] {
        eventually("the carrier is gone", || {
            world.guest(router, "cat /sys/class/net/eth1/carrier").trim() == "0"
        });
    }
}

#[test]
fn a_missing_interpreter_is_named_and_a_service_that_fails_later_becomes_a_note() {
    let world = World::new(None);
    world.file(
        "lab.toml",
        r##"
name = "notes"
[[node]]
name = "n1"
nic = []
files = [
    { text = "#!/bin/bash\n", to = "/bin/starter", mode = "0755" },
    { text = "#!/bin/sh\nuntil [ -e /run/go ]; do sleep 0.1; done\nexit 3\n", to = "/bin/service", mode = "0755" },
    { text = "#!/bin/sh\nkill -TERM $$\n", to = "/bin/told", mode = "0755" },
]
exec = ["/bin/starter now", "service &", "told &", "(exec false) &"]
"##,
    );
    let up = world.run(&["up", "--detach", "--accel", "tcg", "lab.toml"]);
    let said = String::from_utf8(up.stderr).unwrap();
    assert!(up.status.success(), "{said}");
    let note = || world.json(&["ps"])[0]["note"].as_str().unwrap_or_default().to_owned();
    assert!(
        note().contains("exec `/bin/starter now`: exit status: 127: /bin/bash is needed, and is not there"),
        "{}",
        note()
    );
    let exec = world.run(&["exec", "-n", "n1", "--", "starter"]);
    let said = String::from_utf8(exec.stderr).unwrap();
    assert!(
        said.contains("starter: it needs /bin/bash, which is not there"),
        "{said}"
    );
    assert_eq!(exec.status.code(), Some(127));

    // A command that runs meanwhile goes on.
    world.guest("n1", "touch /run/go; sleep 1");
    eventually("a note on the service", || {
        note().contains("service, which `exec` left running, failed with exit status 3")
    });
    eventually("a note on the other", || {
        note().contains("which `exec` left running, failed with exit status 1")
    });
    assert!(!note().contains("told"), "{}", note());
}
