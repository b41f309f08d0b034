//! Tests of programs over LCI in guests: each runs at every node at once, and compares its result with a sequential run.

use std::{fs, path::PathBuf, process::Stdio, time::Duration};

use testbed::{image::GuestBinaries, qemu::qmp::Qmp};

use crate::support::{Lines, World, eventually, newest_qemu};

/// The place on the PCI bus of the card that programs drive, as QEMU puts it there.
pub const CARD: &str = "virtio:0000:00:11.0";

/// Starts a lab of so many guests on one switch, each with the programs over LCI.
fn lab(guests: usize) -> World {
    lab_with(guests, "[{}]")
}

/// Starts such a lab with a second card in each guest that its programs drive themselves, with `more` settings.
pub fn lab_of_own_cards(guests: usize, more: &str) -> World {
    lab_with(
        guests,
        &format!("[{{}}, {{ bypass = \"uio\", queue_pairs = 1{more} }}]"),
    )
}

fn lab_with(guests: usize, nics: &str) -> World {
    lab_on(None, guests, nics)
}

fn lab_on(qemu: Option<PathBuf>, guests: usize, nics: &str) -> World {
    let world = World::new(qemu);
    let program = GuestBinaries::locate().unwrap().find("lci_program").unwrap();
    fs::copy(program, world.dir.path().join("lci_program")).unwrap();
    let nodes = (1..=guests).map(|node| format!("[[node]]\nname = \"n{node}\"\nnic = {nics}\n"));
    let file = "{ from = \"lci_program\", to = \"/bin/lci_program\", mode = \"0755\" }";
    world.up(&format!(
        "name = \"lci\"\n[defaults]\nmemory = \"192M\"\nfiles = [{file}]\n{}",
        nodes.collect::<String>()
    ));
    world
}

/// The addresses of all nodes, as programs want them.
pub fn addresses(world: &World, guests: usize, card: &str) -> String {
    let macs: Vec<_> = (1..=guests).map(|node| world.mac(&format!("n{node}.{card}"))).collect();
    macs.join(",")
}

/// Runs a program at all nodes and returns what the first one prints.
fn run(world: &World, interface: &str, addresses: &str, program: &str) -> String {
    let mut words = vec!["exec", "-n", "all", "--", "lci_program", interface, addresses];
    words.extend(program.split_whitespace());
    let said = world.ok(&words);
    let line = said.strip_prefix("n1  ").expect("only the first node prints").trim();
    println!("{program}: {line}");
    line.to_owned()
}

#[test]
fn m_bv2_m_bv6_m_bv7_r_bv4_programs_of_four_guests_have_the_results_of_a_sequential_run() {
    let world = lab(4);
    let addresses = addresses(&world, 4, "eth0");
    for (program, result) in [
        ("ping-pong 16 200", "ping-pong of 16 bytes: "),
        ("broadcast 4096 20", "broadcast of 4096 bytes: "),
        ("asp 64", "shortest paths of 64 vertices: right"),
        ("qr 32", "QR of 32 columns: right"),
        (
            "--forwarding binomial asp 64 --polls",
            "shortest paths of 64 vertices: right",
        ),
        ("fft 16", "Fourier transform of 256 points: right"),
    ] {
        let line = run(&world, "eth0", &addresses, program);
        assert!(line.starts_with(result), "{program}: {line}");
    }
}

#[test]
fn m_bv1_guests_whose_fellow_is_killed_say_who_it_was_within_the_time_limit() {
    let world = lab(3);
    let addresses = addresses(&world, 3, "eth0");
    let program = ["lci_program", "eth0", &addresses, "broadcast", "1024", "10000000"];
    let start = |node: &str| world.spawn(&[&["exec", "-n", node, "--"], &program[..]].concat());
    let (others, killed) = (["n1", "n3"].map(start), start("n2"));
    let received = || world.stats("n3")["rx"]["frames"].as_u64().unwrap();
    eventually("broadcasts", || received() > 2_000);
    world.guest("n2", "kill -9 $(pidof lci_program)");
    for other in others {
        let output = other.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            !output.status.success() && said.contains("node 1 is gone"),
            "{output:?}"
        );
    }
    assert!(!killed.wait_with_output().unwrap().status.success());
}

/// Counts of the multicast of all nodes' own cards, summed.
pub fn count(world: &World, guests: usize, name: &str) -> u64 {
    let of = |node| {
        world.stats(&format!("n{node}.eth1"))["multicast"][name]
            .as_u64()
            .expect("a counter")
    };
    (1..=guests).map(of).sum()
}

/// The counts of all nodes' own cards that the watchdog and the clock are judged by.
struct Watch {
    signalled: u64,
    by_watchdog: u64,
    exact: u64,
    inferred: u64,
    polled: u64,
    rung: u64,
}

impl Watch {
    fn read(world: &World, guests: usize) -> Self {
        let mut sum = Self {
            signalled: 0,
            by_watchdog: 0,
            exact: 0,
            inferred: 0,
            polled: 0,
            rung: 0,
        };
        for node in 1..=guests {
            let stats = world.stats(&format!("n{node}.eth1"));
            let count = |value: &serde_json::Value| value.as_u64().expect("a counter");
            sum.signalled += count(&stats["interrupts"]["signalled"]);
            sum.by_watchdog += count(&stats["interrupts"]["by_reason"]["watchdog"]);
            sum.exact += count(&stats["host_record"]["exact"]);
            sum.inferred += count(&stats["host_record"]["inferred"]);
            sum.polled += count(&stats["timers"]["clock_polled"]);
            sum.rung += count(&stats["timers"]["clock_rung"]);
        }
        sum
    }

    fn since(self, before: &Self) -> Self {
        Self {
            signalled: self.signalled - before.signalled,
            by_watchdog: self.by_watchdog - before.by_watchdog,
            exact: self.exact - before.exact,
            inferred: self.inferred - before.inferred,
            polled: self.polled - before.polled,
            rung: self.rung - before.rung,
        }
    }
}

/// M-BV8 to M-BV10 with the exact state of each node: interrupts of kernels that mostly poll (FFT) and of such that spin on shared memory without
/// polling (radix sort), by the delay of the watchdog.
fn kernels_are_interrupted_as_their_cards_know_that_they_need_it(world: &World, guests: usize, addresses: &str) {
    let mut signalled = [[0; 3]; 2];
    for (kernel, signalled) in ["fft 16", "radix 8"].into_iter().zip(&mut signalled) {
        for (watchdog_us, signalled) in [0, 100, 1000].into_iter().zip(signalled) {
            let before = Watch::read(world, guests);
            let program = format!("--implementation ni --by-card --watchdog-us {watchdog_us} {kernel}");
            let line = run(world, CARD, addresses, &program);
            assert!(line.contains(": right"), "{program}: {line}");
            let counts = Watch::read(world, guests).since(&before);
            println!(
                "{kernel}, watchdog {watchdog_us} us: {} interrupts, {} by the watchdog; state {} times exact, {} inferred; clock polled {}, rung {}",
                counts.signalled, counts.by_watchdog, counts.exact, counts.inferred, counts.polled, counts.rung
            );
            *signalled = counts.signalled;
            assert!(counts.exact > 0, "{program}");
            assert_eq!(counts.by_watchdog > 0, watchdog_us > 0, "{program}");
        }
    }
    for [off, _, long] in signalled {
        // A guest that waits for a processor for longer than 100 us is interrupted again meanwhile, so the card may signal as often as
        // without that watchdog. What programs get of it is less in any case: `weft bench card` counts that.
        assert!(long < off, "{signalled:?}");
    }
    // With interrupts disabled, the node that is asked for the counter never answers.
    let stuck = world.run(&[
        "exec",
        "-n",
        "all",
        "--",
        "lci_program",
        "--implementation",
        "ni",
        "--by-card",
        "--no-interrupts",
        "--patience-s",
        "2",
        CARD,
        addresses,
        "radix",
        "8",
    ]);
    let said = String::from_utf8_lossy(&stuck.stderr);
    assert!(
        !stuck.status.success() && said.contains("nothing has happened for 2 s"),
        "{said}"
    );
    // LCI-host has timers that run: the clock rings for a node that computes, and not for one that polls.
    let before = Watch::read(world, guests);
    let line = run(world, CARD, addresses, "--implementation host --by-card radix 8");
    assert!(line.contains(": right"), "{line}");
    let counts = Watch::read(world, guests).since(&before);
    println!("LCI-host, radix: clock polled {}, rung {}", counts.polled, counts.rung);
    assert!(counts.polled > 0 && counts.rung > 0);
}

#[test]
fn m_bv2_m_bv5_m_bv8_m_bv9_m_bv10_programs_of_four_guests_run_unchanged_over_all_three_implementations() {
    let world = lab_of_own_cards(4, "");
    let addresses = addresses(&world, 4, "eth1");
    for implementation in ["host", "mixed", "ni"] {
        let before = count(&world, 4, "forwarded");
        for (program, result) in [
            ("ping-pong 16 200", "ping-pong of 16 bytes: "),
            ("broadcast 4096 20", "broadcast of 4096 bytes: "),
            ("asp 64", "shortest paths of 64 vertices: right"),
            ("qr 32", "QR of 32 columns: right"),
            ("fft 16", "Fourier transform of 256 points: right"),
        ] {
            let program = format!("--implementation {implementation} {program}");
            let line = run(&world, CARD, &addresses, &program);
            assert!(line.starts_with(result), "{program}: {line}");
        }
        let forwarded = count(&world, 4, "forwarded") - before;
        assert_eq!(forwarded > 0, implementation != "host", "{implementation}");
    }
    for lost in ["missed", "given_up", "no_buffer", "refused"] {
        assert_eq!(count(&world, 4, lost), 0, "{lost}");
    }
    kernels_are_interrupted_as_their_cards_know_that_they_need_it(&world, 4, &addresses);
    // A kernel's card takes packets whatever the program does, so the card could not hold any back.
    let refused = world.run(&[
        "exec",
        "-n",
        "n1",
        "--",
        "lci_program",
        "--implementation",
        "ni",
        "eth0",
        &addresses,
        "qr",
        "8",
    ]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("needs a card that this program drives itself"), "{said}");
}

#[test]
fn m_bv8_a_card_behind_an_iommu_interrupts_each_program_that_drives_it() {
    // With as many queue pairs as cards have by default, of which a node uses one.
    let world = lab_on(newest_qemu(), 2, "[{}, { bypass = \"vfio\" }]");
    let addresses = addresses(&world, 2, "eth1");
    let line = run(&world, CARD, &addresses, "--implementation host qr 16");
    assert!(line.contains(": right"), "{line}");
    // A program may end with the line of its card masked.
    for start in 0..3 {
        let before = Watch::read(&world, 2);
        let line = run(
            &world,
            CARD,
            &addresses,
            "--implementation ni --by-card --watchdog-us 0 radix 8",
        );
        assert!(line.contains(": right"), "start {start}: {line}");
        let counts = Watch::read(&world, 2).since(&before);
        assert!(counts.signalled > 0 && counts.exact > 0, "start {start}");
    }
}

#[test]
fn m_bv5_a_guest_that_is_stopped_for_two_seconds_loses_no_packet_and_its_senders_wait() {
    let world = lab_of_own_cards(4, "");
    let addresses = addresses(&world, 4, "eth1");
    let program = [
        "lci_program",
        "--implementation",
        "ni",
        CARD,
        &addresses,
        "broadcast",
        "1024",
        "2000",
    ];
    let mut all = Lines::of(world.spawn(&[&["exec", "-n", "all", "--"], &program[..]].concat()));
    let sent = || world.stats("n1.eth1")["multicast"]["sent"].as_u64().unwrap();
    eventually("broadcasts", || sent() > 200);
    let mut monitor = Qmp::connect(&world.labs().join("lci/n2.qmp"), Duration::from_secs(10)).expect("a monitor");
    monitor.stop().expect("QMP stop");
    std::thread::sleep(Duration::from_secs(2));
    assert!(all.is_running());
    monitor.cont().expect("QMP cont");
    all.wait();
    let said: Vec<_> = all.so_far().into_iter().map(|(_, line)| line).collect();
    assert!(said.iter().any(|line| line.contains("answered by all")), "{said:?}");
    for lost in ["missed", "given_up", "no_buffer", "refused"] {
        assert_eq!(count(&world, 4, lost), 0, "{lost}");
    }
}

/// Swaps `vnicd` several times under programs whose packets are in its cards.
fn vnicd_is_swapped_under_running_programs(world: &World, addresses: &str) {
    for (implementation, program, result) in [
        ("ni", "broadcast 1024 3000", "broadcast of 1024 bytes: "),
        ("ni", "ping-pong 16 20000", "ping-pong of 16 bytes: "),
        ("mixed", "ping-pong 16 20000", "ping-pong of 16 bytes: "),
    ] {
        let what = format!("{implementation}, {program}");
        let mut words = vec![
            "exec",
            "-n",
            "all",
            "--",
            "lci_program",
            "--patience-s",
            "8",
            "--implementation",
        ];
        words.extend([implementation, CARD, addresses]);
        words.extend(program.split_whitespace());
        let mut delivered = count(world, 4, "delivered");
        let mut command = world.command(&words);
        // What a program that ends with an error says is among what the test prints.
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut all = Lines::of(command.spawn().expect("weft starts"));
        for _ in 0..3 {
            // By then the programs run at all nodes: packets for one that has not started are waited for in vain.
            eventually("packets", || {
                assert!(all.is_running(), "{what}: {:?}", all.so_far());
                count(world, 4, "delivered") > delivered + 100
            });
            // A new process counts from 0.
            delivered = 0;
            let said = world.ok(&["nic", "reload"]);
            assert!(said.contains("lost    0 frames"), "{what}: {said}");
            assert!(all.is_running(), "{what}: {:?}", all.so_far());
        }
        all.wait();
        let said: Vec<_> = all.so_far().into_iter().map(|(_, line)| line).collect();
        assert!(said.iter().any(|line| line.contains(result)), "{what}: {said:?}");
        for lost in ["missed", "given_up", "refused"] {
            let found = count(world, 4, lost);
            let cards: Vec<_> = (1..=4)
                .map(|node| world.stats(&format!("n{node}.eth1"))["multicast_refused"].clone())
                .collect();
            assert_eq!(found, 0, "{what}: {lost}: {cards:?}");
        }
    }
}

#[test]
fn m_bv5_a_member_that_computes_for_two_seconds_loses_nothing_and_says_so_in_json_and_a_swapped_vnicd_loses_nothing() {
    let world = lab_on(newest_qemu(), 4, "[{}, { bypass = \"uio\" }]");
    let addresses = addresses(&world, 4, "eth1");
    a_member_computes_for_two_seconds(&world, &addresses);
    vnicd_is_swapped_under_running_programs(&world, &addresses);
}

fn a_member_computes_for_two_seconds(world: &World, addresses: &str) {
    let program = [
        "--implementation",
        "ni",
        "--json",
        CARD,
        addresses,
        "absent",
        "2000",
        "2000",
    ];
    let said = world.ok(&[&["exec", "-n", "all", "--", "lci_program"], &program[..]].concat());
    let of_node = |line: &str| -> serde_json::Value { serde_json::from_str(&line[line.find('{').unwrap()..]).unwrap() };
    let nodes: Vec<_> = said.lines().map(of_node).collect();
    assert_eq!(nodes.len(), 4, "each node prints a line: {said}");
    let first = nodes.iter().find(|node| node["node"] == 0).unwrap();
    assert_eq!(first["lost"], 0, "{said}");
    // The window of the sender alone is 64.
    assert!(
        first["received_meanwhile"].as_u64() > Some(64),
        "others received: {said}"
    );
    assert!(
        first["waited_ns"].as_u64() > Some(500_000_000),
        "the sender waited: {said}"
    );
    for node in &nodes {
        assert_eq!((&node["missed"], &node["forwarded"]), (&0.into(), &0.into()), "{said}");
    }
}
