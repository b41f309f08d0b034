//! A guest of one's own that is migrated live from a port of one switch to a port of another.

use std::{
    os::{fd::AsFd, unix::net::UnixStream},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use testbed::{
    accel::Accel,
    guest_channel::GuestChannel,
    programs,
    qemu::{Boot, Machine, Nic, NicBackend, OnReboot, Qemu, Qmp, SocketMode, Transfer},
    vnicd_client::VnicdClient,
};
use weft_agent::config::{GuestConfig, Interface};

use crate::support::{Killed, PATIENCE, eventually, minimal_image, qemus};

/// Time within which a guest on a busy machine has booted.
const BOOT_TIME_MAX: Duration = Duration::from_secs(180);

/// Makes the machine of guest `number` at the port `port`, and the file with its name and address.
fn machine(folder: &Path, number: u8, port: &str, incoming: bool) -> Machine {
    let image = minimal_image();
    let mac = ether::MacAddr([0x52, 0x54, 0, 0, 0, number]);
    let config = GuestConfig {
        hostname: format!("g{number}"),
        interfaces: vec![Interface {
            mac: mac.to_string(),
            name: "eth0".to_owned(),
            addresses: vec![format!("10.0.0.{number}/24")],
            ..Interface::default()
        }],
        ..GuestConfig::default()
    };
    let path = folder.join(format!("g{number}.json"));
    std::fs::write(&path, serde_json::to_vec(&config).unwrap()).unwrap();
    Machine {
        name: format!("migration.{port}"),
        cpus: 1,
        memory_mib: 192,
        accel: Accel::Tcg,
        boot: Boot {
            kernel: Some(image.kernel),
            initramfs: Some(image.initramfs),
            ..Boot::default()
        },
        nics: vec![Nic {
            mac,
            backend: NicBackend::VhostUser {
                socket: folder.join(format!("{port}.sock")),
                mode: SocketMode::BackendListens,
            },
            queue_pairs: 1,
            iommu: false,
            has_known_slot: false,
            speed_mbps: Nic::SPEED_MBPS_DEFAULT,
            host_mtu: None,
        }],
        uplink: None,
        agent_socket: Some(folder.join(format!("{port}.agent"))),
        qmp_socket: folder.join(format!("{port}.qmp")),
        event_socket: None,
        serial_log: folder.join(format!("{port}.serial")),
        serial_socket: None,
        guest_config: Some(path),
        on_reboot: OnReboot::Exit,
        incoming,
    }
}

fn agent(machine: &Machine) -> GuestChannel {
    let channel = GuestChannel::connect(machine.agent_socket.as_ref().unwrap(), PATIENCE).unwrap();
    channel.wait_ready(BOOT_TIME_MAX).unwrap();
    channel
}

#[test]
fn a_guest_that_is_migrated_live_to_another_switch_misses_one_ping_at_most() {
    for binary in qemus() {
        let qemu = binary
            .map_or_else(Qemu::discover, |binary| Qemu::at(&binary, Vec::new()))
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        // The peer's switch knows the guest at the trunk to the first of its switches, and learns only by an announcement that it moved.
        let port = |name: &str, switch| {
            let listen = folder.join(format!("{name}.sock"));
            serde_json::json!({ "name": name, "switch": switch, "listen": listen })
        };
        let config = serde_json::json!({
            "switches": [{ "name": "s1" }, { "name": "s2" }, { "name": "s3" }],
            "ports": [port("peer", "s1"), port("here", "s2"), port("there", "s3")],
            "trunks": [{ "a": "s1", "b": "s2" }, { "a": "s1", "b": "s3" }],
        });
        std::fs::write(folder.join("vnicd.json"), config.to_string()).unwrap();
        let mut vnicd = Command::new(programs::find("vnicd").unwrap());
        vnicd.args(["--config", "vnicd.json", "--control", "control.sock"]);
        let _vnicd = Killed(vnicd.current_dir(folder).stdin(Stdio::null()).spawn().unwrap());
        eventually("vnicd answers", || {
            VnicdClient::connect(&folder.join("control.sock")).is_ok()
        });
        let peer = machine(folder, 1, "peer", false);
        let here = machine(folder, 2, "here", false);
        let there = machine(folder, 2, "there", true);
        let processes = [&peer, &here, &there].map(|machine| {
            let log = machine.serial_log.with_extension("qemu");
            qemu.spawn(machine, &log).unwrap()
        });
        agent(&here);
        let peer = agent(&peer);
        let sh = |script: &str| {
            let output = peer.output(&["sh", "-c", script], PATIENCE).unwrap();
            String::from_utf8(output.stdout).unwrap()
        };

        // One a second, as `ping` does by itself.
        let ping = sh("ping 10.0.0.2 >pings 2>&1 & echo $!");
        let answered = || sh("cat pings").matches("bytes from").count();
        eventually("pings are answered", || answered() > 1);
        let (from, to) = UnixStream::pair().unwrap();
        let mut source = Qmp::connect(&here.qmp_socket, PATIENCE).unwrap();
        let mut target = Qmp::connect(&there.qmp_socket, PATIENCE).unwrap();
        target.begin_restore(to.as_fd()).unwrap();
        source.begin_save(from.as_fd()).unwrap();
        drop((from, to));
        assert_eq!(source.wait_for_transfer().unwrap(), Transfer::Completed);
        assert_eq!(target.wait_for_transfer().unwrap(), Transfer::Completed);
        target.cont().unwrap();
        let before = answered();
        eventually("pings are answered after the move", || answered() > before + 3);
        sh(&format!("kill -INT {ping}; while kill -0 {ping}; do sleep 0.1; done"));
        let said = sh("cat pings");
        let seen: Vec<u32> = said
            .lines()
            .filter_map(|line| line.split_once(" seq=")?.1.split(' ').next()?.parse().ok())
            .collect();
        let missed = seen.windows(2).map(|pair| pair[1] - pair[0] - 1).sum::<u32>();
        assert!(missed <= 1, "{missed} pings are missing: {said}");
        drop(processes);
    }
}
