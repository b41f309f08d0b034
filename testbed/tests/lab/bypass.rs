//! Tests of cards that programs of a guest drive themselves (`bypass`): messages between two guests over such cards,
//! with several endpoints on each, beside a card of the kernel; programs, authorities and a `vnicd` that are killed.

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{World, eventually, newest_qemu, signal};

/// Two guests, each with a card of the kernel and one for programs, which reach it by a driver.
fn lab(driver: &str) -> String {
    let node = |name: &str| {
        let nics = format!("[{{ switch = \"s1\" }}, {{ switch = \"s2\", bypass = \"{driver}\" }}]");
        format!("[[node]]\nname = \"{name}\"\nnic = {nics}\n")
    };
    let switches = "[[switch]]\nname = \"s1\"\n[[switch]]\nname = \"s2\"\n";
    format!("name = \"bypass\"\n{switches}{}{}", node("n1"), node("n2"))
}

/// The place of the second card on the PCI bus, as QEMU puts it there.
const CARD: &str = "0000:00:11.0";

/// Runs a command for messages over the card.
fn over_card(world: &World, node: &str, command: &str) -> String {
    world.guest(node, &format!("export OMX_IFACES=virtio:{CARD}; {command}"))
}

/// Starts an endpoint on n2 that answers measurements, and waits until it is open.
fn serve(world: &World, endpoint: u8) {
    over_card(
        world,
        "n2",
        &format!("omx_perf -s -w -v -e {endpoint} > /tmp/{endpoint}.log 2>&1 & echo $! > /tmp/{endpoint}.pid"),
    );
    eventually("an endpoint", || open_endpoints(world, "n2").contains(&endpoint));
}

/// Returns the board of a node over its card.
fn board(world: &World, node: &str) -> Value {
    let info: Value = serde_json::from_str(&over_card(world, node, "omx_info --json")).unwrap();
    info["boards"][0].clone()
}

fn open_endpoints(world: &World, node: &str) -> Vec<u8> {
    let open = board(world, node)["status"]["endpoints"].clone();
    let number = |open: &Value| open["endpoint"].as_u64().unwrap() as u8;
    open.as_array().unwrap().iter().map(number).collect()
}

/// Measures messages of several lengths from n1 to an endpoint of n2.
fn measure(world: &World, endpoint: u8) {
    let perf = format!("omx_perf -w --json -d n2:0 -r {endpoint} -S 1 -M 32 -E 1048577 -N 5 -W 1");
    over_card(
        world,
        "n1",
        &format!("({perf} > /tmp/to{endpoint} 2>&1; echo $? >> /tmp/to{endpoint}) > /dev/null 2>&1 &"),
    );
}

/// Waits until a measurement ended, which must have succeeded.
fn measured(world: &World, endpoint: u8) {
    let said = || world.guest("n1", &format!("cat /tmp/to{endpoint}"));
    let code = |said: &str| said.lines().last().and_then(|line| line.parse::<u8>().ok());
    eventually("a measurement", || code(&said()).is_some());
    let said = said();
    assert_eq!(code(&said), Some(0), "{said}");
    assert_eq!(said.lines().count(), 6, "five lengths: {said}");
}

/// Kills `vnicd` in the middle of a measurement of endpoint 0, which the next one lets end without a lost message.
fn transfers_go_on_when_vnicd_was_killed(world: &World) {
    let restarts = || world.json(&["ps"])[0]["vnicd_restarts"].as_u64().unwrap();
    let before = restarts();
    let perf = "omx_perf -w --json -d n2:0 -r 0 -S 65536 -E 65537 -N 1500 -W 2";
    over_card(
        world,
        "n1",
        &format!("({perf} > /tmp/long 2>&1; echo $? >> /tmp/long) > /dev/null 2>&1 &"),
    );
    let frames = || world.stats("n2.eth1")["tx"]["frames"].as_u64().unwrap();
    let begin = frames();
    eventually("a transfer", || frames() > begin + 500);
    signal(world.pid("vnicd_pid"), Signal::KILL);
    eventually("a new vnicd", || restarts() == before + 1);
    assert_eq!(world.guest("n1", "wc -l < /tmp/long"), "0\n", "the measurement goes on");
    let last = || world.guest("n1", "tail -n 1 /tmp/long");
    eventually("the end of the measurement", || !last().is_empty());
    assert_eq!(last(), "0\n", "{}", world.guest("n1", "cat /tmp/long"));
}

#[test]
fn m_gf9_endpoints_share_a_card_that_they_drive_themselves_and_outlive_killed_programs() {
    let world = World::new(newest_qemu());
    world.up(&lab("uio"));
    let driver = world.guest("n1", &format!("readlink /sys/bus/pci/devices/{CARD}/driver"));
    assert!(driver.trim().ends_with("/uio_pci_generic"), "{driver}");
    assert!(!world.guest("n1", "ls /sys/class/net").contains("eth1"));
    let board = board(&world, "n1");
    assert_eq!(board["driver"], "uio_pci_generic");
    assert_eq!(board["status"]["endpoints_max"], 4, "{board}");
    let card = board["status"]["card"].as_str().unwrap();
    assert!(card.contains("each endpoint has its queue"), "{card}");

    // Two endpoints in each guest at once, and the kernel's card beside them.
    let before = world.stats("n1.eth0")["tx"]["frames"].as_u64().unwrap();
    for endpoint in [0, 1] {
        serve(&world, endpoint);
    }
    for endpoint in [0, 1] {
        measure(&world, endpoint);
    }
    let pings = world.guest("n1", "ping -c 20 -i 0.1 -q n2");
    assert!(pings.contains(" 0% packet loss"), "{pings}");
    for endpoint in [0, 1] {
        measured(&world, endpoint);
    }
    let kernel = world.stats("n1.eth0")["tx"]["frames"].as_u64().unwrap() - before;
    assert!(
        kernel < 100,
        "{kernel} frames over the kernel's card, which has the pings alone"
    );
    let queues = world.json(&["nic", "queues", "n2.eth1"]);
    for pair in [1, 2] {
        let frames = queues[pair]["frames"].as_u64().unwrap();
        assert!(frames > 200, "the card steers frames to the endpoint's pair: {queues}");
    }

    // A program is killed in the middle of a transfer; the next one has its queue pair.
    over_card(
        &world,
        "n1",
        "(omx_perf -w -d n2:0 -r 1 -S 65536 -E 65537 -N 100000 > /dev/null 2>&1) &",
    );
    let frames = || world.json(&["nic", "queues", "n2.eth1"])[2]["frames"].as_u64().unwrap();
    let begin = frames();
    eventually("a transfer", || frames() > begin + 500);
    world.guest("n2", "kill -9 $(cat /tmp/1.pid)");
    eventually("an end", || open_endpoints(&world, "n2") == [0]);
    world.guest("n1", "killall omx_perf; true");
    serve(&world, 1);
    for endpoint in [0, 1] {
        measure(&world, endpoint);
    }
    for endpoint in [0, 1] {
        measured(&world, endpoint);
    }

    // The authority is killed; endpoints and their pairs go on with the next one.
    let omxd = || board_pid(&world);
    let first = omxd();
    world.guest("n2", &format!("kill -9 {first}"));
    measure(&world, 0);
    measured(&world, 0);
    eventually("a new authority", || omxd() != first);
    eventually("endpoints that are back", || open_endpoints(&world, "n2").len() == 2);
    measure(&world, 1);
    measured(&world, 1);
    transfers_go_on_when_vnicd_was_killed(&world);

    // The card goes back to the kernel when no program has it.
    let busy = world.run(&["exec", "-n", "n2", "--", "nicctl", "unbind", CARD]);
    assert!(
        String::from_utf8_lossy(&busy.stderr).contains("another program drives the card"),
        "{busy:?}"
    );
    world.guest("n2", "kill $(cat /tmp/0.pid) $(cat /tmp/1.pid)");
    eventually("a free card", || {
        world
            .run(&["exec", "-n", "n2", "--", "nicctl", "unbind", CARD])
            .status
            .success()
    });
    assert!(
        world.guest("n2", "ls /sys/class/net").contains("eth"),
        "the kernel has it again"
    );
}

#[test]
fn endpoints_drive_a_card_behind_an_iommu_and_a_killed_program_leaves_nothing_mapped() {
    let world = World::new(None);
    world.up(&lab("vfio"));
    assert_eq!(board(&world, "n1")["driver"], "vfio-pci");
    let counters = || world.stats("n2.eth1");
    serve(&world, 0);
    measure(&world, 0);
    measured(&world, 0);
    transfers_go_on_when_vnicd_was_killed(&world);

    // All programs of the card are killed in the middle of a transfer, so the kernel takes their memory from it.
    over_card(
        &world,
        "n1",
        "(omx_perf -w -d n2:0 -r 0 -S 65536 -E 65537 -N 100000 > /dev/null 2>&1) &",
    );
    let frames = || counters()["tx"]["frames"].as_u64().unwrap();
    let begin = frames();
    eventually("a transfer", || frames() > begin + 500);
    let authority = board_pid(&world);
    world.guest("n2", &format!("kill -9 {authority} $(cat /tmp/0.pid)"));
    world.guest("n1", "killall omx_perf; true");
    serve(&world, 0);
    assert_ne!(board_pid(&world), authority, "it was killed");
    measure(&world, 0);
    measured(&world, 0);
}

fn board_pid(world: &World) -> u64 {
    board(world, "n2")["status"]["pid"].as_u64().unwrap()
}

#[test]
fn a_card_is_refused_with_a_sentence_that_says_why() {
    let world = World::new(None);
    world.up("name = \"one\"\n[[node]]\nname = \"n1\"\nnic = [{}, { bypass = \"uio\", queue_pairs = 1 }]\n");
    for (command, sentence) in [
        (
            "nicctl bind --driver uio 0000:00:1e.0",
            "there is no PCI device 0000:00:1e.0",
        ),
        ("nicctl bind --driver uio 0000:00:00.0", "is no virtio network card"),
        (
            "nicctl bind --driver uio eth0",
            "eth0 is up, so the kernel uses 0000:00:02.0",
        ),
        ("nicctl bind --driver vfio 0000:00:11.0", "is behind no IOMMU"),
        (
            "OMX_IFACES=virtio:0000:00:02.0 omx_info",
            "is with the kernel's driver virtio-pci; `nicctl bind",
        ),
        (
            "OMX_IFACES=virtio:0000:00:11.0 omx_perf",
            "the card has one queue pair, which omxd uses",
        ),
    ] {
        let output = world.run(&["exec", "-n", "n1", "--", "sh", "-c", command]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(sentence), "{command}: {said}");
    }
}

#[test]
fn a_comparison_of_cards_shows_every_rival_draws_a_chart_and_leaves_nothing() {
    let world = World::new(None);
    let chart = world.dir.path().join("card.svg");
    let output = world.run(&[
        "--json",
        "bench",
        "card",
        "--rounds",
        "1",
        "--chart",
        chart.to_str().unwrap(),
        "--accel",
        "tcg",
    ]);
    assert_eq!(output.status.code(), Some(3), "one round judges nothing: {output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let measured = |measurement: usize, rival: &str| {
        let rivals = report["measurements"][measurement]["rivals"].as_array().unwrap();
        let of_rival = rivals
            .iter()
            .find(|of| of["rival"] == rival)
            .expect("the rival is measured");
        of_rival["median"].as_f64().unwrap()
    };
    for rival in ["bypass", "kernel"] {
        assert!(measured(0, rival) > 0.0, "{report}");
    }
    for rival in ["bypass", "kernel", "TCP"] {
        assert!(measured(1, rival) > 0.0, "{report}");
    }
    assert!(std::fs::read_to_string(&chart).unwrap().contains("times as fast"));
    let running = world.run(&["--json", "ps", "--all"]);
    assert!(
        !String::from_utf8_lossy(&running.stdout).contains("bench-card"),
        "{running:?}"
    );
}
