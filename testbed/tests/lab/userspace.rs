//! Tests of what a lab gives its nodes: files, commands, variables, kernel settings, folders of the host, packages,
//! recipes, kernels of the user, and IPv6.

use std::{fs, process::Command};

use testbed::image::{self, Cache, GuestBinaries, Image, Recipe};

use crate::support::World;

const OWN: &str = r##"
name = "own"
[defaults]
ipv6 = true
labels = { course = "networks" }

[[node]]
name = "n1"
files = [
    { from = "conf", to = "/etc/conf" },
    { text = "#!/bin/sh\necho $GREETING\n", to = "/bin/greet", mode = "0755" },
]
exec = ["greet >/root/said", "echo why >&2; false", "touch /root/later"]
env = { GREETING = "hello" }
sysctl = { "net.ipv4.ip_forward" = 1, "net.no.such" = 1 }
labels = { role = "client" }

[[node]]
name = "n2"
ipv6 = false
"##;

fn minimal() -> Image {
    image::build(
        &Recipe::minimal(),
        &Cache::open_default().unwrap(),
        &GuestBinaries::locate().unwrap(),
        &mut |_| {},
    )
    .unwrap()
}

#[test]
fn a_node_has_what_its_lab_gives_it_and_says_what_failed() {
    let world = World::new(None);
    let conf = world.dir.path().join("conf");
    fs::create_dir(&conf).unwrap();
    fs::write(conf.join("a"), "first\n").unwrap();
    world.file("lab.toml", OWN);
    let up = world.run(&["up", "--detach", "--accel", "tcg", "lab.toml"]);
    let said = String::from_utf8(up.stderr).unwrap();
    assert!(up.status.success(), "{said}");
    assert!(
        said.contains("exec `echo why >&2; false`: exit status: 1: why"),
        "{said}"
    );
    assert!(said.contains("sysctl net.no.such = 1 failed: No such file"), "{said}");
    let of_n1 = world.guest(
        "n1",
        "cat /etc/conf/a /root/said /proc/sys/net/ipv4/ip_forward; echo $GREETING; ls /root",
    );
    assert_eq!(of_n1, "first\nhello\n1\nhello\nlater\nsaid\n");
    assert!(
        world.ok(&["logs", "n1"]).contains("why"),
        "what commands say is on the serial line"
    );
    let rows = world.json(&["ps"]);
    assert_eq!(
        rows[0]["labels"],
        serde_json::json!({ "course": "networks", "role": "client" })
    );
    assert_eq!(rows[1]["labels"], serde_json::json!({ "course": "networks" }));

    // The node's network is derived from the lab's name; the node without IPv6 has none, and no node is told of one.
    let address = rows[0]["address6"].as_str().unwrap().to_owned();
    assert!(address.starts_with("fd") && address.ends_with("::1"), "{address}");
    assert_eq!(rows[1]["address6"], serde_json::Value::Null);
    world.guest(
        "n1",
        &format!("ping -6 -c 1 n1; grep -q '^{address} n1 n1.eth0$' /etc/hosts"),
    );
    world.guest("n1", "! grep -q '^fd.* n2' /etc/hosts && ping -c 1 -W 20 n2");
    // Linux assigns it when it has noticed the carrier, which it checks once a second.
    world.guest(
        "n1",
        "i=0; until ip addr show eth0 | grep -q 'inet6 fe80'; do i=$((i + 1)); [ $i -lt 100 ] || exit 1; sleep 0.1; done",
    );
    world.guest("n2", "! ip addr | grep -q inet6 && ! grep -q '^fd' /etc/hosts");

    // Changes come with the next start.
    fs::write(conf.join("a"), "second\n").unwrap();
    world.ok(&["restart", "n1"]);
    world.ok(&["wait", "n1"]);
    assert_eq!(world.guest("n1", "cat /etc/conf/a"), "second\n");
}

#[test]
fn nodes_reach_each_other_by_ipv6_and_names() {
    let world = World::new(None);
    world.up("name = \"six\"\n[defaults]\nipv6 = true\n[[node]]\nname = \"n1\"\n[[node]]\nname = \"n2\"\n");
    // A node that is ready has addresses that work: the kernel marks those with bit 0x40 that it still checks for
    // duplicates.
    let addresses = world.guest("n2", "grep eth0 /proc/net/if_inet6");
    let flags = |line: &str| u32::from_str_radix(line.split_whitespace().nth(4).unwrap(), 16).unwrap();
    assert!(addresses.lines().next().is_some(), "{addresses}");
    assert!(addresses.lines().all(|line| flags(line) & 0x40 == 0), "{addresses}");
    let said = world.guest("n1", "ping -6 -c 5 -W 20 n2 && ping -c 5 -W 20 n2");
    assert!(said.contains("(fd") && said.contains("(10.77.1.2)"), "{said}");
    let pings = world.json(&["pingall", "--count", "1"]);
    let families: Vec<_> = (pings.as_array().unwrap().iter())
        .filter(|ping| ping["received"] == 1)
        .map(|ping| (ping["from"].as_str().unwrap(), ping["family"].as_str().unwrap()))
        .collect();
    assert_eq!(
        families,
        [("n1", "ipv4"), ("n1", "ipv6"), ("n2", "ipv4"), ("n2", "ipv6")]
    );
}

#[test]
fn the_recipe_boots_a_kernel_of_the_users_own_with_its_modules() {
    let world = World::new(None);
    let image = minimal();
    // This is the recipe's kernel, as a user would have it.
    let label = fs::read_to_string(image.kernel.with_file_name("image.json")).unwrap();
    let label: serde_json::Value = serde_json::from_str(&label).unwrap();
    let package = label["packages"]
        .as_array()
        .unwrap()
        .iter()
        .find(|package| package["role"] == "Kernel")
        .unwrap();
    let package = Cache::open_default()
        .unwrap()
        .root()
        .join("packages")
        .join(format!("{}.deb", package["sha256"].as_str().unwrap()));
    let unpacked = Command::new("dpkg-deb")
        .arg("-x")
        .arg(package)
        .arg(world.dir.path().join("kernel"))
        .status();
    assert!(unpacked.unwrap().success());
    let release = &image.kernel_release;
    let lab = format!(
        "name = \"mine\"\n[[node]]\nname = \"n1\"\nnic = []\nkernel = \"kernel/boot/vmlinuz-{release}\"\nmodules = \"kernel/lib/modules/{release}\"\n"
    );
    world.up(&lab);
    world.guest(
        "n1",
        "modprobe bridge && modprobe overlay && omx_info --version; nicctl --help >/dev/null",
    );
    world.ok(&["down"]);
    // Without them the guest cannot reach its agent, which is reported before anything starts.
    world.file(
        "alone.toml",
        &format!("name = \"mine\"\n[[node]]\nname = \"n1\"\nnic = []\nkernel = \"kernel/boot/vmlinuz-{release}\"\n"),
    );
    let refused = world.run(&["up", "alone.toml"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1), "{said}");
    assert!(
        said.contains("virtio_console") && said.contains(&format!("`modules = \"/lib/modules/{release}\"`")),
        "{said}"
    );
    // A kernel whose modules lack one that guests need is refused before anything starts.
    let console = world.dir.path().join(format!(
        "kernel/lib/modules/{release}/kernel/drivers/char/virtio_console.ko"
    ));
    let console = [console.clone(), console.with_extension("ko.xz")]
        .into_iter()
        .find(|path| path.exists())
        .unwrap();
    fs::remove_file(console).unwrap();
    fs::write(
        world
            .dir
            .path()
            .join(format!("kernel/lib/modules/{release}/modules.dep")),
        "",
    )
    .unwrap();
    let refused = world.run(&["up", "--detach", "--accel", "tcg", "lab.toml"]);
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.contains("it has no module virtio_console, neither built in nor in"),
        "{said}"
    );
}

#[test]
fn the_network_recipe_has_its_programs_and_packages_come_with_what_they_need() {
    let world = World::new(None);
    let share = world.dir.path().join("share");
    fs::create_dir(&share).unwrap();
    fs::write(share.join("from-host"), "host\n").unwrap();
    world.up(
        r#"
        name = "net"
        [[node]]
        name = "n1"
        image = "network"
        exec = ["ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key", "mkdir -p /run/sshd /run/bird", "/usr/sbin/sshd", "bird"]
        [[node]]
        name = "n2"
        packages = ["tcpdump"]
        mount = [{ from = "share", to = "/share" }, { from = "share", to = "/read", readonly = true }]
        "#,
    );
    let notes = world.json(&["ps"]);
    assert!(
        notes.as_array().unwrap().iter().all(|row| row["note"].is_null()),
        "{notes}"
    );
    let n1 = "set -e; tcpdump --version; python3 -c 'print(6 * 7)'; birdc show protocols | grep kernel1; ssh-keyscan -t ed25519 localhost; \
              nft add table inet t; nft list tables; modprobe wireguard; ip -br link; bash -c 'echo $BASH_VERSION'";
    let said = world.guest("n1", n1);
    for word in ["42", "kernel1", "ssh-ed25519", "table inet t"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    world.guest(
        "n2",
        "tcpdump -c 1 -i eth0 icmp & sleep 1; ping -c 2 -W 20 n1 >/dev/null; wait $!",
    );
    let said = world.guest(
        "n2",
        "cat /share/from-host && echo guest >/share/from-guest && ! touch /read/x 2>/dev/null && echo refused",
    );
    assert_eq!(said, "host\nrefused\n");
    assert_eq!(fs::read_to_string(share.join("from-guest")).unwrap(), "guest\n");
    let output = world.run(&["save"]);
    let said = String::from_utf8_lossy(&output.stderr);
    let expected = "weft: the lab net cannot be saved: n2 has folders of this machine (`mount`), and QEMU cannot save a guest that uses them\n";
    assert_eq!((output.status.code(), &*said), (Some(1), expected));
    assert!(!world.dir.path().join("net.save").exists());
}

/// Kernels of bigger systems load these modules without their default device, too, by a file of systemd.
#[test]
fn the_first_device_of_a_kind_is_the_users_and_traffic_control_has_its_disciplines() {
    let world = World::new(None);
    world.up("name = \"kinds\"\n[[node]]\nname = \"n1\"\n");
    let said = world.guest(
        "n1",
        "set -e; ip link add bond0 type bond mode active-backup; cat /sys/class/net/bond0/bonding/mode; ip link add dummy0 type dummy; \
         ip link add ifb0 type ifb; ip link add ifb1 type ifb; ip link add macsec0 link eth0 type macsec; modprobe mpls_iptunnel; \
         for kind in cake codel fq_codel fq_pie pie red:limit:100000:avpkt:1000 sfq; do \
         tc qdisc replace dev eth0 root $(echo $kind | tr : ' ') || echo $kind failed; done; \
         sysctl -w net.ipv4.tcp_congestion_control=dctcp >/dev/null; sysctl -n net.ipv4.tcp_congestion_control",
    );
    assert_eq!(said, "active-backup 1\ndctcp\n");
}

#[test]
fn a_node_loads_any_module_of_debians_kernel_that_its_lab_names() {
    let world = World::new(None);
    world.up("name = \"modules\"\n[[node]]\nname = \"n1\"\nmodules = [\"nfs\", \"rdma_rxe\", \"openvswitch\", \"ip_vs\", \"sctp\"]\n");
    world.guest("n1", "for name in nfs rdma_rxe openvswitch ip_vs sctp; do modprobe $name || exit 1; done; grep -qw nfs /proc/filesystems");
    world.run(&["down", "--all"]);
    world.file(
        "lab.toml",
        "name = \"modules\"\n[[node]]\nname = \"n1\"\nmodules = [\"nofs\"]\n",
    );
    let up = world.run(&["up", "--detach", "--accel", "tcg", "lab.toml"]);
    let said = String::from_utf8(up.stderr).unwrap();
    assert!(!up.status.success() && said.contains("it has no module nofs"), "{said}");
}

#[test]
fn nodes_are_reached_by_their_names_and_host_names_and_interfaces_count_from_1() {
    let world = World::new(None);
    world.up(
        "name = \"My_Lab\"\n[defaults]\nfirst_interface = 1\n[[node]]\nname = \"PC1\"\n[[node]]\nname = \"my_host\"\n",
    );
    assert_eq!(
        world.guest("my_host", "hostname; ip link show eth1 | grep -c UP"),
        "my-host\n1\n"
    );
    world.guest(
        "PC1",
        "for name in my_host my-host my_host.eth1; do ping -c 1 -W 20 $name || exit 1; done",
    );
    let stats = world.stats("PC1.eth1");
    assert_eq!(stats["name"], "PC1.eth1");
    world.ok(&["link", "set", "my_host.eth1", "down"]);
    world.guest("my_host", "i=0; until [ $(cat /sys/class/net/eth1/carrier) = 0 ]; do i=$((i + 1)); [ $i -lt 100 ] || exit 1; sleep 0.1; done");
}
