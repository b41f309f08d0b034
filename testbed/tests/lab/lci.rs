//! Tests of programs over LCI in guests: each runs at every node at once, and compares its result with a sequential run.

use std::fs;

use testbed::image::GuestBinaries;

use crate::support::{World, eventually};

/// Starts a lab of so many guests on one switch, each with the programs over LCI.
fn lab(guests: usize) -> World {
    let world = World::new(None);
    let program = GuestBinaries::locate().unwrap().find("lci_program").unwrap();
    fs::copy(program, world.dir.path().join("lci_program")).unwrap();
    let nodes = (1..=guests).map(|node| format!("[[node]]\nname = \"n{node}\"\n"));
    let file = "{ from = \"lci_program\", to = \"/bin/lci_program\", mode = \"0755\" }";
    world.up(&format!(
        "name = \"lci\"\n[defaults]\nmemory = \"160M\"\nfiles = [{file}]\n{}",
        nodes.collect::<String>()
    ));
    world
}

/// The addresses of all nodes, as programs want them.
fn addresses(world: &World, guests: usize) -> String {
    let macs: Vec<_> = (1..=guests).map(|node| world.mac(&format!("n{node}"))).collect();
    macs.join(",")
}

/// Runs a program at all nodes and returns what the first one prints.
fn run(world: &World, addresses: &str, program: &str) -> String {
    let mut words = vec!["exec", "-n", "all", "--", "lci_program", "eth0", addresses];
    words.extend(program.split_whitespace());
    let said = world.ok(&words);
    let line = said.strip_prefix("n1  ").expect("only the first node prints").trim();
    println!("{program}: {line}");
    line.to_owned()
}

#[test]
fn m_bv2_m_bv6_m_bv7_r_bv4_programs_of_four_guests_have_the_results_of_a_sequential_run() {
    let world = lab(4);
    let addresses = addresses(&world, 4);
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
        let line = run(&world, &addresses, program);
        assert!(line.starts_with(result), "{program}: {line}");
    }
}

#[test]
fn m_bv1_guests_whose_fellow_is_killed_say_who_it_was_within_the_time_limit() {
    let world = lab(3);
    let addresses = addresses(&world, 3);
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
