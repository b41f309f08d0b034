//! Tests of traffic after a guest's reboot, its driver's end and new start, and the end of its QEMU: it continues. They
//! run on every QEMU.

use rustix::process::Signal;

use crate::support::{Lines, PAIR, World, eventually, qemus, signal};

/// Returns a value of `ps` about n2.
fn of_n2(world: &World, what: &str) -> serde_json::Value {
    world.json(&["ps"])[1][what].clone()
}

fn boot_id(world: &World) -> String {
    world.guest("n2", "cat /proc/sys/kernel/random/boot_id")
}

/// Checks that n1, which never stopped sending to n2, gets answers to what it sends from now on, and that n2 reaches n1
/// as well.
fn traffic_is_back(world: &World, what: &str, pings: &Lines) {
    let seqs = || -> Vec<u64> {
        let lines = pings.so_far();
        let seq = |line: &String| line.split_once("seq=")?.1.split(' ').next()?.parse().ok();
        lines.iter().filter_map(|(_, line)| seq(line)).collect()
    };
    let answered = seqs().len();
    eventually(&format!("{what}: answers to a sender that never stopped"), || {
        seqs().len() >= answered + 10
    });
    let before = world.stats("n2");
    let said = world.guest("n2", "ping -c 5 -i 0.1 -W 10 n1");
    assert!(said.contains("5 packets received"), "{what}: {said}");
    // The traffic went through the card, with its receive interrupts.
    let after = world.stats("n2");
    let grown = |a: &str, b: &str| after[a][b].as_u64().unwrap() - before[a][b].as_u64().unwrap();
    assert!(
        grown("rx", "frames") >= 5 && grown("tx", "frames") >= 5,
        "{what}: {after}"
    );
    assert!(grown("interrupts", "signalled") > 0, "{what}: {after}");
}

#[test]
fn traffic_resumes_after_a_reboot_a_driver_bound_anew_and_a_killed_qemu() {
    for qemu in qemus() {
        let world = World::new(qemu);
        world.up(PAIR);
        let version = world.json(&["ps"])[0]["qemu"].clone();
        let vnicd = world.pid("vnicd_pid");
        world.ok(&["nic", "coalesce", "n2", "open-mx", "--delay", "200us"]);
        let settings = world.json(&["nic", "coalesce", "n2"]);
        world.introduce("n1", "n2");
        let mut pings = Lines::of(world.spawn(&["exec", "-n", "n1", "--", "ping", "-i", "0.05", "n2"]));
        traffic_is_back(&world, "at first", &pings);

        // The driver releases the card and takes it again, twice.
        for _ in 0..2 {
            let card = world.guest("n2", "basename $(readlink -f /sys/class/net/eth0/device)");
            let driver = "/sys/bus/virtio/drivers/virtio_net";
            world.guest("n2", &format!("echo {} >{driver}/unbind", card.trim()));
            world.guest("n2", "! test -e /sys/class/net/eth0");
            assert_eq!(world.json(&["nic", "info", "n2"])[0]["rings_started"], 0);
            world.guest("n2", &format!("echo {} >{driver}/bind", card.trim()));
            world.guest("n2", "ip addr add 10.77.1.2/24 dev eth0 && ip link set eth0 up");
            traffic_is_back(&world, "driver bound anew", &pings);
        }

        let (boot, process) = (boot_id(&world), of_n2(&world, "pid"));
        let rebooted = world.run(&["exec", "-n", "n2", "--", "reboot"]);
        assert_eq!(
            rebooted.status.code(),
            Some(125),
            "no agent is left to report how it ended"
        );
        assert_eq!(of_n2(&world, "phase"), "booting");
        world.ok(&["wait", "n2"]);
        assert_eq!(of_n2(&world, "phase"), "ready");
        assert_ne!(boot_id(&world), boot);
        assert_eq!(of_n2(&world, "pid"), process, "the same QEMU");
        traffic_is_back(&world, "reboot", &pings);

        let boot = boot_id(&world);
        signal(i32::try_from(process.as_i64().unwrap()).unwrap(), Signal::KILL);
        eventually("n2 is stopped", || of_n2(&world, "phase") == "stopped");
        assert!(
            of_n2(&world, "note").as_str().unwrap().contains("signal 9"),
            "it is told why"
        );
        world.ok(&["restart", "n2"]);
        world.ok(&["wait", "n2"]);
        assert!(of_n2(&world, "pid") != process && boot_id(&world) != boot, "a new QEMU");
        traffic_is_back(&world, "QEMU killed and started again", &pings);

        assert_eq!(world.json(&["nic", "coalesce", "n2"]), settings, "QEMU {version}");
        assert_eq!(world.pid("vnicd_pid"), vnicd, "the same vnicd all the time");
        pings.interrupt();
    }
}
