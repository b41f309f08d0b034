//! Tests of booting, configuration, reboot, power, the monitor, and ends.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use testbed::guest_channel::{ChannelError, Exec, GuestChannel, Power};
use testbed::qemu::{Disk, DiskFormat, Qmp, Uplink};
use weft_agent::config::{GuestConfig, Host, Interface};

use crate::support::{BOOT_TIME_MAX, COMMAND_TIME_MAX, Guest, agent_socket};

#[test]
fn a_guest_boots_with_its_name_addresses_and_neighbours() {
    let mac = "52:54:00:00:00:77";
    let eth0 = Interface {
        mac: mac.into(),
        name: "lan0".into(),
        addresses: vec![Uplink::ADDRESS.into(), "10.9.8.7/24".into()],
        mtu: Some(1400),
        gateway: Some(Uplink::GATEWAY.parse().unwrap()),
        ..Interface::default()
    };
    let missing = Interface {
        mac: "52:54:00:00:00:99".into(),
        name: "eth9".into(),
        ..Interface::default()
    };
    let config = GuestConfig {
        hostname: "n1".into(),
        interfaces: vec![eth0, missing],
        hosts: vec![Host {
            address: Uplink::GATEWAY.parse().unwrap(),
            names: vec!["router".into()],
        }],
        ..GuestConfig::default()
    };
    let guest = Guest::boot_with(&config, |machine| {
        machine.uplink = Some(Uplink {
            mac: mac.parse().unwrap(),
        })
    });
    assert_eq!(guest.welcome.hostname, "n1");
    assert_eq!(
        guest.welcome.problems,
        ["there is no card with the address 52:54:00:00:00:99 (eth9)"]
    );
    assert_eq!(guest.sh("hostname"), "n1\n");
    let addresses = guest.sh("ip addr show lan0");
    assert!(
        addresses.contains("mtu 1400") && addresses.contains("inet 10.9.8.7/24"),
        "{addresses}"
    );
    assert!(!addresses.contains("inet6"), "IPv6 is off: {addresses}");
    guest.sh("ping -c 1 -W 20 router && ping -c 1 n1 && ping -c 1 localhost");
    guest.sh("ethtool -c lan0 || test $? -ne 127; ethtool -l lan0; ethtool -S lan0 | grep rx_queue_0_packets");
    // The server goes to the background before it listens.
    guest.sh("iperf3 -s -D -1; until cat /proc/net/tcp* | grep -qE ':1451 [0-9A-F:]+ 0A '; do usleep 10000; done");
    guest.sh("iperf3 -c localhost -n 100K >/dev/null");
    guest.sh("set -e; for tool in nicctl omxd /bin/omx_*; do $tool --help; done; test $(ls /bin/omx_* | wc -l) -ge 10");
    guest.sh("ls -L /lib/x86_64-linux-gnu/libopen-mx.so.0 /lib/x86_64-linux-gnu/libmyriexpress.so");
    guest.sh("modprobe sch_netem && /sbin/tc qdisc add dev lo root netem delay 1ms && /sbin/tc qdisc del dev lo root");
    guest.sh("modprobe overlay && grep -q overlay /proc/filesystems");
    let all = "for path in $(cut -d: -f1 /lib/modules/*/modules.dep); do name=${path##*/}; modprobe ${name%%.ko*} || echo $name; done";
    assert_eq!(guest.sh(all), "", "every module that is carried can be loaded");
    // The kernel requests modules by other names.
    guest.sh("ip link add link lan0 name lan0.5 type vlan id 5 && ip link add br0 type bridge && ip link add v0 type veth peer name v1");
    let report = guest.channel.report().unwrap();
    let lan0 = report
        .interfaces
        .iter()
        .find(|interface| interface.name == "lan0")
        .unwrap();
    assert_eq!((lan0.mac.as_str(), lan0.mtu), (mac, 1400));
    assert!(lan0.statistics["rx_packets"] > 0);
    let card = report
        .interrupts
        .iter()
        .find(|irq| irq.description.ends_with("virtio1-input.0"))
        .unwrap();
    assert!(card.taken[0] > 0, "{card:?}");
}

#[test]
fn a_reboot_is_noticed_and_the_channel_goes_on() {
    let config = GuestConfig {
        hostname: "n1".into(),
        ..GuestConfig::default()
    };
    let guest = Guest::boot(&config);
    let mut left = guest
        .channel
        .exec(&Exec {
            argv: vec!["cat".into()],
            stdin: true,
            ..Exec::default()
        })
        .unwrap();
    guest.channel.power(Power::Reboot).unwrap();
    let second = guest.channel.wait_rebooted(&guest.welcome, BOOT_TIME_MAX).unwrap();
    assert_eq!(guest.channel.boots(), 2);
    assert_eq!(guest.sh("hostname"), "n1\n", "the configuration is there at every boot");
    left.next(None).unwrap();
    assert!(matches!(left.next(None), Err(ChannelError::Restarted)));
    // The reset button has this effect, and so has the command in the guest.
    let mut qmp = Qmp::connect(&guest.machine.qmp_socket, COMMAND_TIME_MAX).unwrap();
    qmp.system_reset().unwrap();
    let third = guest.channel.wait_rebooted(&second, BOOT_TIME_MAX).unwrap();
    // Whether the end of the command is still reported is a race without a required winner.
    let _ = guest.channel.output(&["reboot"], COMMAND_TIME_MAX);
    guest.channel.wait_rebooted(&third, BOOT_TIME_MAX).unwrap();
    assert_eq!(guest.channel.boots(), 4);
}

#[test]
fn switching_off_ends_qemu_and_is_told_to_everybody() {
    let mut guest = Guest::boot(&GuestConfig::default());
    let mut qmp = Qmp::connect(&guest.machine.qmp_socket, COMMAND_TIME_MAX).unwrap();
    assert!(qmp.running().unwrap());
    qmp.stop().unwrap();
    assert!(!qmp.running().unwrap());
    assert!(matches!(
        guest.channel.ping(Duration::from_millis(200)),
        Err(ChannelError::TimedOut(_))
    ));
    qmp.cont().unwrap();
    guest.channel.ping(COMMAND_TIME_MAX).unwrap();
    let mut waiting = guest
        .channel
        .exec(&Exec {
            argv: vec!["cat".into()],
            stdin: true,
            ..Exec::default()
        })
        .unwrap();
    waiting.next(Some(COMMAND_TIME_MAX)).unwrap();
    guest.channel.power(Power::Off).unwrap();
    assert!(guest.process.wait().unwrap().success());
    assert!(matches!(
        waiting.next(Some(COMMAND_TIME_MAX)),
        Err(ChannelError::Closed)
    ));
    assert!(guest.channel.is_closed());
    assert!(matches!(
        guest.channel.wait_ready(COMMAND_TIME_MAX),
        Err(ChannelError::Closed)
    ));
}

#[test]
fn a_new_host_end_takes_over_from_one_that_died() {
    let guest = Guest::boot(&GuestConfig::default());
    let channel = &guest.channel;
    // The old end leaves a command and a half-copied file behind.
    let mut left = channel
        .exec(&Exec {
            argv: ["sh", "-c", "exec sleep 1000"].map(str::to_owned).to_vec(),
            ..Exec::default()
        })
        .unwrap();
    left.next(Some(COMMAND_TIME_MAX)).unwrap();
    drop(left);
    let mut flood = channel
        .exec(&Exec {
            argv: vec!["yes".into()],
            ..Exec::default()
        })
        .unwrap();
    flood.next(Some(COMMAND_TIME_MAX)).unwrap();
    let (dir, process) = {
        let Guest {
            dir, process, channel, ..
        } = guest;
        // The channel's own connection closes only with its last user.
        drop((flood, channel));
        (dir, process)
    };
    for _ in 0..3 {
        let channel = GuestChannel::connect(&dir.path().join("agent"), COMMAND_TIME_MAX).unwrap();
        let welcome = channel.wait_ready(COMMAND_TIME_MAX).unwrap();
        assert_eq!(welcome.hostname, "guest");
        let output = channel
            .output(&["sh", "-c", "pidof sleep yes; echo over"], COMMAND_TIME_MAX)
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "over\n",
            "nothing of the old end runs on"
        );
    }
    drop(process);
}

#[test]
fn a_guest_has_its_disk_processors_and_serial_line_and_its_link_can_go_down() {
    let files = tempfile::tempdir().unwrap();
    let (image, serial) = (files.path().join("disk,with comma.raw"), files.path().join("serial"));
    let mut contents = b"written by the host".to_vec();
    contents.resize(1 << 20, 0);
    std::fs::write(&image, &contents).unwrap();
    assert_eq!(DiskFormat::of(&image).unwrap(), DiskFormat::Raw);
    let mac = "52:54:00:00:00:05";
    let eth0 = Interface {
        mac: mac.into(),
        name: "eth0".into(),
        ..Interface::default()
    };
    let config = GuestConfig {
        interfaces: vec![eth0],
        ..GuestConfig::default()
    };
    let guest = Guest::boot_with(&config, |machine| {
        machine.cpus = 2;
        machine.memory_mib = 160;
        machine.uplink = Some(Uplink {
            mac: mac.parse().unwrap(),
        });
        machine.serial_socket = Some(serial.clone());
        machine.boot.append = "weft.test=1".into();
        machine.boot.disk = Some(Disk {
            path: image.clone(),
            format: DiskFormat::Raw,
            discard_writes: true,
        });
    });
    assert_eq!(guest.sh("nproc"), "2\n");
    assert!(guest.sh("cat /proc/cmdline").contains("weft.test=1"));
    assert_eq!(guest.sh("head -c 19 /dev/vda"), "written by the host");
    guest.sh("echo from the guest >/dev/vda && sync && head -n 1 /dev/vda | grep guest");
    assert!(std::fs::read(&image).unwrap() == contents, "its writes are thrown away");
    // Output of the guest on its serial line reaches the log and every connected reader.
    let mut line = UnixStream::connect(&serial).unwrap();
    line.set_read_timeout(Some(COMMAND_TIME_MAX)).unwrap();
    guest.sh("echo said on the serial line >/dev/ttyS0");
    let mut said = Vec::new();
    while !said.ends_with(b"line\r\n") {
        let mut byte = [0];
        line.read_exact(&mut byte).unwrap();
        said.push(byte[0]);
    }
    assert!(
        std::fs::read_to_string(&guest.machine.serial_log)
            .unwrap()
            .contains("said on the serial line")
    );
    let mut qmp = Qmp::connect(&guest.machine.qmp_socket, COMMAND_TIME_MAX).unwrap();
    assert!(qmp.set_link("no such card", false).is_err());
    for (up, carrier) in [(false, "0"), (true, "1")] {
        qmp.set_link("uplink", up).unwrap();
        guest.sh(&format!(
            "until grep -q {carrier} /sys/class/net/eth0/carrier; do sleep 0.1; done"
        ));
    }
}

#[test]
fn a_qemu_that_cannot_start_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let mut machine = crate::support::machine(dir.path(), &crate::support::image());
    machine.guest_config = None;
    machine.serial_log = dir.path().join("no/such/folder/serial.log");
    let qemu = testbed::qemu::Qemu::discover().unwrap();
    let mut process = qemu.spawn(&machine, &dir.path().join("qemu.log")).unwrap();
    assert!(!process.wait().unwrap().success());
    assert!(process.last_words().contains("serial.log"), "{}", process.last_words());
    assert!(!agent_socket(&machine).exists() || process.try_wait().unwrap().is_some());
}
