//! LCI among guests of which one lies, dies or is cut off: the others go on within the configured time and say who it was. One lab serves all
//! checks.

use std::{
    process::{Child, Command},
    time::{Duration, Instant},
};

use crate::{
    lci::{CARD, addresses, count, lab_of_own_cards},
    support::{World, eventually, kill},
};

/// After what time a member that is silent is removed, by its fellows and by their cards.
const TIMEOUT: Duration = Duration::from_secs(2);
/// The time that it may take more: a dead node is asked again before it is removed, and emulated guests share two cores.
const SLACK: Duration = Duration::from_secs(8);
/// The guest that lies.
const LIAR: &str = "n4";
/// Guests that run programs.
const HONEST: usize = 3;

/// How the programs reach each other: the interface, its name in `weft`, and the implementation.
const PATHS: [(&str, &str, &str); 4] = [
    ("eth0", "eth0", "host"),
    (CARD, "eth1", "host"),
    (CARD, "eth1", "mixed"),
    (CARD, "eth1", "ni"),
];

/// Starts broadcasts at one node.
fn start(world: &World, node: usize, (interface, card, implementation): (&str, &str, &str), rounds: &str) -> Child {
    let addresses = addresses(world, HONEST, card);
    let name = format!("n{node}");
    let dead_ms = TIMEOUT.as_millis().to_string();
    world.spawn(&[
        "exec",
        "-n",
        &name,
        "--",
        "lci_program",
        "--implementation",
        implementation,
        "--dead-ms",
        &dead_ms,
        "--patience-s",
        "10",
        interface,
        &addresses,
        "broadcast",
        "1024",
        rounds,
    ])
}

fn start_all(world: &World, path: (&str, &str, &str), rounds: &str) -> Vec<Child> {
    (1..=HONEST).map(|node| start(world, node, path, rounds)).collect()
}

/// Waits until broadcasts run over the card of this name.
fn running(world: &World, card: &str) {
    let received = || world.stats(&format!("n3.{card}"))["rx"]["frames"].as_u64().unwrap();
    let before = received();
    eventually("broadcasts", || received() > before + 1_000);
}

fn end(child: Child) -> (bool, String) {
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&said).into_owned())
}

/// All programs end well.
fn all_are_right(programs: Vec<Child>, what: &str) {
    let said: Vec<_> = programs.into_iter().map(end).collect();
    assert!(said.iter().all(|(good, _)| *good), "{what}: {said:?}");
    assert!(said[0].1.contains("answered by all"), "{what}: {said:?}");
}

/// The survivors end within the time limit and name the node.
fn name_the_dead(survivors: Vec<Child>, dead: usize, since: Instant, what: &str) {
    for survivor in survivors {
        let (good, said) = end(survivor);
        assert!(
            !good && said.contains(&format!("node {dead} is gone")),
            "{what}: {said}"
        );
    }
    let took = since.elapsed();
    println!("{what}: the others said who it was after {took:?}");
    assert!(took < TIMEOUT + SLACK, "{what}: {took:?}");
}

fn liar(world: &World) {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/lab/lci_liar.c");
    let program = world.dir.path().join("lci_liar");
    let gcc = Command::new("gcc")
        .args(["-O1", "-Wall", "-Werror", source, "-o"])
        .arg(&program)
        .status();
    assert!(gcc.expect("gcc is needed").success());
    world.ok(&["cp", "lci_liar", &format!("{LIAR}:/bin/lci_liar")]);
}

/// Frames between cards that the liar's own card has refused.
fn refused_of_liar(world: &World) -> u64 {
    let stats = world.stats(&format!("{LIAR}.eth0"));
    let refused = stats["multicast_refused"].as_object().unwrap();
    refused.values().map(|count| count.as_u64().unwrap()).sum()
}

fn a_liar_changes_nothing(world: &World) {
    for (number, path) in PATHS.into_iter().enumerate() {
        let what = format!("{} over {}", path.2, path.1);
        let addresses = addresses(world, HONEST, path.1).replace(',', " ");
        let lies = world.spawn(&[
            "exec",
            "-n",
            LIAR,
            "--",
            "sh",
            "-c",
            &format!("exec lci_liar 600 {number} eth0 {addresses}"),
        ]);
        let refused = refused_of_liar(world);
        eventually("lies", || refused_of_liar(world) > refused + 20);
        all_are_right(start_all(world, path, "300"), &what);
        world.guest(LIAR, "killall lci_liar");
        assert!(!end(lies).0);
        for lost in ["missed", "given_up", "no_buffer"] {
            assert_eq!(count(world, HONEST, lost), 0, "{what}: {lost}");
        }
    }
}

fn a_member_is_killed(world: &World) {
    for path in PATHS {
        let what = format!("{} over {}, its program killed", path.2, path.1);
        let mut programs = start_all(world, path, "10000000");
        running(world, path.1);
        if path.0 == CARD {
            a_second_program_is_told(world, path);
        }
        let since = Instant::now();
        world.guest("n2", "kill -9 $(pidof lci_program)");
        let killed = programs.remove(1);
        name_the_dead(programs, 1, since, &what);
        assert!(!end(killed).0);
        if path.0 == CARD {
            // The card is reset, so that it touches nothing of what was the program's memory.
            eventually("a reset card", || {
                world.json(&["nic", "info", "n2.eth1"])[0]["rings_started"] == 0
            });
        }
    }
}

/// A card has one program at a time.
fn a_second_program_is_told(world: &World, path: (&str, &str, &str)) {
    let (good, said) = end(start(world, 1, path, "1"));
    assert!(!good && said.contains("another program drives the card"), "{said}");
}

fn a_machine_is_killed(world: &World) {
    for path in &PATHS[1..] {
        let what = format!("{} over {}, its QEMU killed", path.2, path.1);
        let mut programs = start_all(world, *path, "10000000");
        running(world, path.1);
        let pid = world.json(&["ps"])[1]["pid"].as_i64().expect("n2 runs");
        let since = Instant::now();
        kill(i32::try_from(pid).unwrap());
        let killed = programs.remove(1);
        name_the_dead(programs, 1, since, &what);
        assert!(!end(killed).0);
        eventually("n2 is off", || world.json(&["ps"])[1]["pid"].is_null());
        world.ok(&["start", "n2"]);
        eventually("n2 is back", || {
            let up = ["exec", "-n", "n2", "--", "sh", "-c", "test -e /bin/lci_program"];
            world.run(&up).status.success()
        });
    }
}

fn vnicd_is_killed(world: &World) {
    for path in PATHS {
        let what = format!("{} over {}, vnicd killed", path.2, path.1);
        let endless = path.2 != "host";
        let programs = start_all(world, path, if endless { "10000000" } else { "3000" });
        running(world, path.1);
        let vnicd = world.pid("vnicd_pid");
        let since = Instant::now();
        kill(vnicd);
        eventually("another vnicd", || {
            world.json(&["ps"])[0]["vnicd_pid"]
                .as_i64()
                .is_some_and(|pid| pid != i64::from(vnicd))
        });
        if path.2 == "host" {
            // What was in the cards is sent again.
            all_are_right(programs, &what);
        } else {
            // Packets that were in the cards are lost for ever, and a card cannot know which: each program is told.
            for program in programs {
                let (good, said) = end(program);
                let is_told = said.contains("packets in its cards are lost") || said.contains("has removed this node");
                assert!(!good && is_told, "{what}: {said}");
                println!("{what}: {}", said.trim());
            }
            assert!(since.elapsed() < Duration::from_secs(10) + TIMEOUT + SLACK, "{what}");
        }
        all_are_right(start_all(world, path, "50"), &format!("{what}, the next program"));
    }
}

#[test]
fn m_bv1_m_bv2_m_bv5_a_liar_dead_members_and_a_killed_vnicd_stop_nobody_else() {
    let world = lab_of_own_cards(HONEST + 1, &format!(", member_timeout = \"{}s\"", TIMEOUT.as_secs()));
    liar(&world);
    a_liar_changes_nothing(&world);
    a_member_is_killed(&world);
    a_machine_is_killed(&world);
    vnicd_is_killed(&world);
}
