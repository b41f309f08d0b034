//! Tests of unusual cards: several queue pairs, jumbo frames, no offloads, switches joined by a trunk, and a `vnicd`
//! that connects to QEMU. They run on every QEMU.
//!
//! The use of a guest with `offloads = false`, an XDP program, cannot be shown here: the image's busybox has an `ip`
//! that loads none, and the recipe contains no other loader and no compiled program. The test checks what XDP needs of
//! the card instead: no segmentation offload in either direction.

use std::{
    fs::File,
    path::Path,
    process::{Command, Stdio},
};

use rustix::process::Signal;
use serde_json::Value;
use testbed::{
    accel::Accel,
    guest_channel::GuestChannel,
    programs,
    qemu::{Boot, Machine, Nic, NicBackend, OnReboot, Qemu, SocketMode},
    vnicd_client::VnicdClient,
};
use weft_agent::config::{GuestConfig, Interface};

use crate::support::{Killed, PATIENCE, World, eventually, minimal_image, qemus, signal};

/// This lab has everything unusual together, since it has to work in combination.
const CARDS: &str = r#"
name = "cards"
[[switch]]
name = "s1"
[[switch]]
name = "s2"
[[trunk]]
between = ["s1", "s2"]
[[node]]
name = "n1"
cpus = 2
nic = [{ switch = "s1", mtu = 9000, queue_pairs = 2 }]
[[node]]
name = "n2"
cpus = 2
nic = [{ switch = "s2", mtu = 9000, queue_pairs = 2, offloads = false }]
"#;

/// Reads the packets of each queue in one direction, as the guest's driver counts them.
fn queues(world: &World, node: &str, direction: &str) -> [u64; 2] {
    let text = world.guest(node, "ethtool -S eth0");
    [0, 1].map(|queue| {
        let name = format!("{direction}_queue_{queue}_packets:");
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&name));
        line.unwrap_or_else(|| panic!("no {name} in {text}"))
            .trim()
            .parse()
            .unwrap()
    })
}

fn frames(stats: &Value, direction: &str, what: &str) -> u64 {
    stats[direction][what].as_u64().unwrap()
}

#[test]
fn queue_pairs_jumbo_frames_ports_without_offloads_and_trunks_work_together() {
    for qemu in qemus() {
        let world = World::new(qemu);
        world.up(CARDS);
        let info = world.json(&["nic", "info"]);
        for (nic, offloads) in [(0, true), (1, false)] {
            assert_eq!(
                (&info[nic]["queue_pairs"], &info[nic]["rings_started"]),
                (&2.into(), &4.into())
            );
            let features = info[nic]["features"].as_array().unwrap();
            for feature in ["HOST_TSO4", "GUEST_TSO4"] {
                assert_eq!(features.contains(&feature.into()), offloads, "{features:?}");
            }
        }

        // Jumbo frames arrive whole: one for each ping.
        world.introduce("n1", "n2");
        world.introduce("n2", "n1");
        let before = world.stats("n2");
        let said = world.guest("n1", "ping -c 5 -i 0.1 -W 10 -s 8900 n2");
        assert!(said.contains("5 packets received"), "{said}");
        let after = world.stats("n2");
        let grown = |what| frames(&after, "rx", what) - frames(&before, "rx", what);
        assert_eq!((grown("frames"), grown("bytes")), (5, 5 * (14 + 20 + 8 + 8900)));

        // The guest sends on the queue of the processor that it runs on.
        let before = queues(&world, "n1", "tx");
        world.guest("n1", "for cpu in 1 2; do taskset $cpu ping -c 3 -i 0.1 -W 10 n2; done");
        let after = queues(&world, "n1", "tx");
        assert!(
            (0..2).all(|queue| after[queue] >= before[queue] + 3),
            "{before:?} {after:?}"
        );

        // The card spreads flows over the queues that the guest receives on. TCP from the port with offloads to the one
        // without, and back.
        world.iperf3_server("n2", "");
        let before = queues(&world, "n2", "rx");
        eventually("flows on both queues", || {
            for direction in ["", "-R"] {
                world.guest("n1", &format!("iperf3 -c n2 -P 4 -n 1M {direction} >/dev/null"));
            }
            let now = queues(&world, "n2", "rx");
            (0..2).all(|queue| now[queue] > before[queue] + 10)
        });
        let stats = world.stats("n2");
        let sum: u64 = queues(&world, "n2", "rx").iter().sum();
        assert!(frames(&stats, "rx", "frames") >= sum, "{stats}");

        // The settings of a trunk apply to one direction, and stay over a restart of vnicd.
        let refusal = world.run(&["trunk", "set", "s1", "s3"]);
        let refusal = String::from_utf8(refusal.stderr).unwrap();
        assert_eq!(
            refusal,
            "weft: there is no switch s3 in the lab cards (its switches: s1, s2; its trunks: s1 s2)\n"
        );
        let set = world.json(&["trunk", "set", "s2", "s1", "--one-way", "--delay", "100ms"]);
        assert_eq!(
            (&set[0]["from"], &set[0]["delay_ns"]),
            (&"s2".into(), &100_000_000.into())
        );
        assert_eq!((&set[1]["from"], &set[1]["delay_ns"]), (&"s1".into(), &0.into()));
        signal(world.pid("vnicd_pid"), Signal::KILL);
        eventually("a new vnicd", || world.json(&["ps"])[0]["vnicd_restarts"] == 1);
        assert_eq!(world.json(&["trunk", "set", "s2", "s1"]), set);
        eventually("traffic is back, and late", || {
            let said = world
                .run(&["exec", "-n", "n1", "--", "ping", "-c", "1", "-W", "10", "n2"])
                .stdout;
            let said = String::from_utf8(said).unwrap();
            let ms = said
                .split_once("time=")
                .and_then(|(_, rest)| rest.split(' ').next()?.parse::<f64>().ok());
            ms.is_some_and(|ms| ms >= 100.0)
        });
        world.ok(&["trunk", "set", "s1", "s2", "down"]);
        let unanswered = world.run(&["exec", "-n", "n1", "--", "ping", "-c", "1", "-W", "1", "n2"]);
        assert_eq!(unanswered.status.code(), Some(1));
    }
}

/// Starts a `vnicd` with one port that connects and one that listens.
fn vnicd(folder: &Path) -> (Killed, VnicdClient) {
    let log = File::options().create(true).append(true).open(folder.join("vnicd.log"));
    let mut command = Command::new(programs::find("vnicd").unwrap());
    let child = command
        .args([
            "--connect",
            "server.sock",
            "--listen",
            "client.sock",
            "--control",
            "ctl.sock",
        ])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stderr(log.unwrap())
        .spawn();
    let child = Killed(child.unwrap());
    let mut client = None;
    eventually("vnicd answers", || {
        // The socket of a former process may still be there.
        client = VnicdClient::connect(&folder.join("ctl.sock")).ok();
        let info = client.as_mut().and_then(|client| client.info().ok());
        info.is_some_and(|info| info.pid == child.0.id())
    });
    (child, client.unwrap())
}

fn machine(folder: &Path) -> Machine {
    let image = minimal_image();
    let modes = [
        ("server.sock", SocketMode::QemuListens),
        ("client.sock", SocketMode::BackendListens),
    ];
    let nics = modes.into_iter().zip(1..).map(|((socket, mode), number)| Nic {
        mac: ether::MacAddr([0x52, 0x54, 0, 0, 0, number]),
        backend: NicBackend::VhostUser {
            socket: folder.join(socket),
            mode,
        },
        queue_pairs: 1,
        iommu: false,
        has_known_slot: false,
        speed_mbps: Nic::SPEED_MBPS_DEFAULT,
        host_mtu: None,
    });
    let nics: Vec<_> = nics.collect();
    let interface = |(index, nic): (usize, &Nic)| Interface {
        mac: nic.mac.to_string(),
        name: format!("eth{index}"),
        addresses: vec![format!("10.{index}.0.1/24")],
        mtu: None,
        ..Interface::default()
    };
    let config = GuestConfig {
        interfaces: nics.iter().enumerate().map(interface).collect(),
        ..GuestConfig::default()
    };
    let config_path = folder.join("config.json");
    std::fs::write(&config_path, serde_json::to_vec(&config).unwrap()).unwrap();
    Machine {
        name: "n1".into(),
        cpus: 1,
        memory_mib: 192,
        accel: Accel::Tcg,
        boot: Boot {
            kernel: Some(image.kernel),
            initramfs: Some(image.initramfs),
            ..Boot::default()
        },
        nics,
        uplink: None,
        agent_socket: Some(folder.join("agent")),
        qmp_socket: folder.join("qmp"),
        event_socket: None,
        serial_log: folder.join("serial.log"),
        serial_socket: None,
        guest_config: Some(config_path),
        on_reboot: OnReboot::BootAgain,
        incoming: false,
    }
}

#[test]
fn a_vnicd_that_connects_to_qemu_serves_it_and_so_does_the_next_one() {
    for qemu in qemus() {
        let dir = tempfile::Builder::new().prefix("wt").tempdir_in("/tmp").unwrap();
        let qemu = match qemu {
            Some(binary) => Qemu::at(&binary, Vec::new()).unwrap(),
            None => Qemu::discover().unwrap(),
        };
        // QEMU waits for vnicd, and vnicd for QEMU.
        let (first, mut control) = vnicd(dir.path());
        let process = qemu.spawn(&machine(dir.path()), &dir.path().join("qemu.log")).unwrap();
        let channel = GuestChannel::connect(&dir.path().join("agent"), PATIENCE)
            .unwrap_or_else(|error| panic!("{error}: {}", process.last_words()));
        channel.wait_ready(PATIENCE * 3).unwrap();
        // The frames of one card go to the other one through the switch: addresses would make them stay in the guest.
        let serve =
            "omx_perf --interface eth1 -s -w -v >/tmp/serving & until grep -q Waiting /tmp/serving; do sleep 0.1; done";
        channel.output(&["sh", "-c", serve], PATIENCE).unwrap();
        let pings = || {
            let small = "omx_perf --interface eth0 -d 52:54:00:00:00:02 -w -S 1 -E 2 -N 20";
            let output = channel.output(&["sh", "-c", small], PATIENCE).unwrap();
            assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        };
        let connected = |control: &mut VnicdClient| {
            let ports = control.info().unwrap().ports;
            ports.len() == 2 && ports.iter().all(|port| port.connected && port.rings_started == 2)
        };
        eventually("both cards run", || connected(&mut control));
        pings();
        let stats = control.stats(None).unwrap();
        assert!(
            stats.iter().all(|port| port.rx.frames >= 20 && port.tx.frames >= 20),
            "{stats:?}"
        );

        drop(first);
        let (second, mut control) = vnicd(dir.path());
        eventually("both cards run again", || connected(&mut control));
        pings();
        drop((second, process));
    }
}
