//! Tests of argument lists for old and new versions, and of impossible machines.

use super::*;
use crate::qemu::Version;

/// What every card of `vnicd` has.
const FIXED: &str = "ioeventfd=off,ctrl_guest_offloads=off,speed=10000,duplex=full";

fn vhost_user(socket: &str, mode: SocketMode) -> NicBackend {
    NicBackend::VhostUser {
        socket: socket.into(),
        mode,
    }
}

fn machine() -> Machine {
    Machine {
        name: "n1".into(),
        cpus: 2,
        memory_mib: MEMORY_MIB_MIN,
        accel: Accel::Tcg,
        boot: Boot {
            kernel: Some("/dev/null".into()),
            append: "quiet".into(),
            ..Boot::default()
        },
        nics: vec![Nic {
            mac: "52:54:00:00:00:01".parse().unwrap(),
            backend: vhost_user("/run/a,b.sock", SocketMode::BackendListens),
            queue_pairs: 2,
            iommu: false,
            has_known_slot: false,
            speed_mbps: 10_000,
            host_mtu: Some(9000),
        }],
        uplink: Some(Uplink {
            mac: "52:54:00:00:00:02".parse().unwrap(),
        }),
        agent_socket: Some("/run/agent".into()),
        qmp_socket: "/run/qmp".into(),
        event_socket: Some("/run/events".into()),
        serial_log: "/run/serial.log".into(),
        serial_socket: Some("/run/serial".into()),
        guest_config: Some("/dev/null".into()),
        on_reboot: OnReboot::BootAgain,
        incoming: false,
    }
}

fn line(version: (u32, u32), machine: &Machine) -> String {
    let version = Version {
        major: version.0,
        minor: version.1,
        micro: 0,
    };
    let arguments = Qemu::of_version(version).arguments(machine).unwrap();
    arguments
        .iter()
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

#[test]
fn a_card_behind_an_iommu_has_one_before_it_and_a_kernel_that_uses_it() {
    let plain = line((7, 2), &machine());
    assert!(!plain.contains("iommu"), "{plain}");
    let mut machine = machine();
    (machine.nics[0].iommu, machine.nics[0].has_known_slot) = (true, true);
    let with = line((7, 2), &machine);
    let [iommu, card] = [
        "-device intel-iommu,caching-mode=on ",
        "disable-legacy=on,iommu_platform=on",
    ]
    .map(|part| with.find(part).unwrap_or_else(|| panic!("no {part} in {with}")));
    assert!(with.contains(",addr=0x10,"), "{with}");
    assert!(iommu < card && with.contains(" intel_iommu=on quiet"), "{with}");
}

#[test]
fn the_list_follows_the_version() {
    let old = line((7, 2), &machine());
    assert!(
        old.contains("socket,id=nicsocket0,path=/run/a,,b.sock,reconnect=1 "),
        "{old}"
    );
    assert!(
        old.contains("-netdev vhost-user,id=nicback0,chardev=nicsocket0,queues=2 "),
        "{old}"
    );
    let device = "id=nic0,netdev=nicback0,mac=52:54:00:00:00:01,romfile=,mq=on";
    assert!(
        old.contains(&format!("{device},vectors=0,{FIXED},host_mtu=9000 ")),
        "{old}"
    );
    let new = line((10, 0), &machine());
    assert!(new.contains(",reconnect-ms=500 "), "{new}");
    assert!(
        new.contains(&format!("{device},vectors=6,{FIXED},host_mtu=9000 ")),
        "{new}"
    );
    assert!(
        new.contains("memory-backend-memfd,id=memory0,size=144M,share=on"),
        "{new}"
    );
    let mut plain = machine();
    plain.nics[0].queue_pairs = 1;
    plain.nics[0].backend = vhost_user("/run/a,b.sock", SocketMode::QemuListens);
    let new = line((10, 0), &plain);
    assert!(
        new.contains("path=/run/a,,b.sock,server=on ") && !new.contains("vectors"),
        "{new}"
    );
    assert!(
        line((7, 2), &plain).contains("romfile=,vectors=0,"),
        "7.2 dies of MSI-X with one pair too"
    );
}

#[test]
fn what_a_guest_boots_from_decides_where_the_firmware_speaks_and_a_seed_is_a_disk_of_its_own() {
    let mut machine = machine();
    let kernel = line((7, 2), &machine);
    assert!(
        kernel.contains(" -M q35 ") && kernel.contains(" -cpu max,erms=off,fsrm=off "),
        "{kernel}"
    );
    assert!(kernel.contains(" -device pvpanic -action panic=none "), "{kernel}");
    machine.boot = Boot {
        disk: Some(Disk {
            path: "/dev/null".into(),
            format: DiskFormat::Raw,
            discard_writes: true,
        }),
        seed: Some("/dev/null".into()),
        ..Boot::default()
    };
    machine.accel = Accel::Kvm;
    let disk = line((7, 2), &machine);
    assert!(
        disk.contains(" -M q35,graphics=off ") && disk.contains(" -cpu max "),
        "{disk}"
    );
    assert!(
        disk.contains("drive=disk0,bootindex=0 -drive if=none,id=seed0,file=/dev/null,format=raw,readonly=on -device "),
        "{disk}"
    );
    // QEMU gives that index to a kernel that it loads.
    machine.boot.kernel = Some("/dev/null".into());
    let both = line((7, 2), &machine);
    assert!(both.contains("drive=disk0 ") && !both.contains("bootindex"), "{both}");
}

#[test]
fn a_card_on_a_tap_device_differs_in_its_backend_and_what_only_vhost_user_cannot_have() {
    let mut machine = machine();
    let programmable = line((7, 2), &machine);
    machine.nics[0].backend = NicBackend::Tap {
        interface: "tap0".into(),
    };
    let tap = line((7, 2), &machine);
    assert!(
        tap.contains("-netdev tap,id=nicback0,ifname=tap0,script=no,downscript=no,queues=2 "),
        "{tap}"
    );
    let device = |line: &str| {
        line.split_once("virtio-net-pci,id=nic0")
            .map(|(_, rest)| rest.to_owned())
    };
    let with_interrupts = device(&programmable)
        .map(|device| device.replace("vectors=0,ioeventfd=off,ctrl_guest_offloads=off", "vectors=6"));
    assert_eq!(device(&tap), with_interrupts);
    assert!(!tap.contains("nicsocket"), "{tap}");
}

#[test]
fn a_machine_that_cannot_be_is_refused_with_one_sentence() {
    type Change = fn(&mut Machine);
    let cases: [(Change, &str); 8] = [
        (|m| m.cpus = 0, "0 processors"),
        (|m| m.memory_mib = 16, "16 MiB of memory are too little"),
        (|m| m.boot.kernel = None, "needs a kernel"),
        (|m| m.boot = Boot::default(), "neither a kernel nor a disk"),
        (
            |m| m.boot.initramfs = Some("/no/such/file".into()),
            "/no/such/file cannot be read: No such file",
        ),
        (|m| m.nics[0].queue_pairs = 0, "0 queue pairs"),
        (
            |m| m.nics[0].backend = vhost_user(&"x".repeat(108), SocketMode::BackendListens),
            "socket path of 108 bytes, 107 are possible",
        ),
        (|m| m.nics = vec![m.nics[0].clone(); 24], "24 cards are too many"),
    ];
    let qemu = Qemu::of_version(Version {
        major: 10,
        minor: 0,
        micro: 0,
    });
    for (change, says) in cases {
        let mut machine = machine();
        change(&mut machine);
        let error = qemu.arguments(&machine).unwrap_err().to_string();
        assert!(error.starts_with("guest n1: ") && error.contains(says), "{error}");
    }
}
