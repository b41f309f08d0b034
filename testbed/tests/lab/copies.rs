//! Tests of copies by a card that is wired to itself and that a program of the guest drives: every byte and every notification, by `uio` and
//! `vfio`, in Rust and in C, and with what can end in the middle.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use icopy_abi as _;
use rustix::process::Signal;
use serde_json::Value;

use crate::support::{World, eventually, signal, with_qemus};

/// A guest with a card of its own kernel and one for copies.
fn lab(bypass: &str) -> String {
    format!(
        "name = \"copies\"\n[[switch]]\nname = \"s1\"\n[[node]]\nname = \"n1\"\n\
         nic = [{{}}, {{ loopback = true, bypass = \"{bypass}\", mtu = 65535 }}]\n"
    )
}

/// The place of the second card on the PCI bus, as QEMU puts it there.
const CARD: &str = "0000:00:11.0";

fn counted(world: &World) -> Value {
    world.stats("n1.eth1")["copy_engine"].clone()
}

/// Measures copies of 64 KiB and 1 MiB, which `icopy_perf` checks byte by byte.
fn perf(world: &World, rounds: u64) -> Vec<Value> {
    let said = world.guest("n1", &format!("icopy_perf --json -N {rounds} {CARD}"));
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn m_ci1_m_ci2_data_and_notifications_of_copies_in_a_guest_are_right_and_counted() {
    for (qemu, bypass) in with_qemus(["uio", "vfio"]) {
        let world = World::new(qemu);
        world.up(&lab(bypass));
        let measured = perf(&world, 20);
        let lengths: Vec<_> = measured
            .iter()
            .map(|length| length["bytes"].as_u64().unwrap())
            .collect();
        assert_eq!(lengths, [65_536, 1 << 20]);
        println!("{bypass}: {measured:?}");
        let engine = counted(&world);
        // Two lengths, and three kinds of copies.
        assert_eq!(engine["notifications"], 2 * 3 * 20, "{engine}");
        assert_eq!(
            engine["submitted_bytes"],
            3 * 20 * (65_536 + (1 << 20)),
            "data alone: {engine}"
        );
        assert_eq!(engine["completed"], engine["submitted"]);
        // The guest's own tool sees the same, and another program has the card afterwards.
        let asked = format!("nicctl -i virtio:{CARD} --json copy-engine");
        let inside: Value = serde_json::from_str(&world.guest("n1", &asked)).unwrap();
        assert_eq!(inside["notifications"], engine["notifications"], "{inside}");
        // It waits until the omxd that nicctl has started lets the card go. The name is the one that `nicctl bind` prints.
        let again = format!("icopy_perf -N 1 virtio:{CARD} 1 8 5000");
        world.ok(&["exec", "n1", "--", "sh", "-c", &again]);
        assert_eq!(counted(&world)["notifications"], 2 * 3 * 20 + 3 * 3);
    }
}

/// Compiles the C program of `icopy-abi`, static, in the folder of the world.
fn compile(world: &World) -> PathBuf {
    let own = env::current_exe().unwrap();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("libicopy_abi") && name.ends_with(".a")
    };
    let deps = fs::read_dir(own.parent().unwrap()).unwrap();
    let archives = deps.map(|entry| entry.unwrap().path()).filter(is_ours);
    let age = |path: &PathBuf| fs::metadata(path).unwrap().modified().unwrap();
    let archive = archives.max_by_key(age).expect("cargo makes the static library");
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../guest-driver/icopy-abi");
    let program = world.dir.path().join("copies");
    let compiled = Command::new("gcc")
        .args(["-std=gnu11", "-O1", "-static", "-I"])
        .arg(sources.join("include"))
        .arg(sources.join("tests/c/copies.c"))
        .arg(archive)
        .arg("-o")
        .arg(&program)
        .status()
        .expect("gcc");
    assert!(compiled.success());
    program
}

#[test]
fn m_ci3_a_c_program_copies_with_every_call_and_what_is_wrong_moves_nothing() {
    let world = World::new(None);
    world.up(&lab("uio"));
    compile(&world);
    world.ok(&["cp", "copies", "n1:/bin/copies"]);
    assert_eq!(world.guest("n1", &format!("copies {CARD}")), "all copies are right\n");
    let engine = counted(&world);
    assert_eq!(engine["notifications"], 202, "{engine}");
    // A card that is not wired to itself, and none at all.
    for (card, why) in [
        ("0000:00:02.0", "kernel's driver"),
        ("0000:00:1d.0", "there is no PCI device"),
    ] {
        let refused = world.run(&["exec", "n1", "--", "icopy_perf", card]);
        let said = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && said.contains(why), "{said}");
    }
}

#[test]
fn a_card_on_a_switch_is_no_engine_of_copies() {
    let world = World::new(None);
    world.up("name = \"one\"\n[[node]]\nname = \"n1\"\nnic = [{}, { bypass = \"uio\" }]\n");
    let refused = world.run(&["exec", "n1", "--", "icopy_perf", CARD]);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && said.contains("is not wired to itself"),
        "{said}"
    );
}

#[test]
fn m_ci2_copies_go_on_when_vnicd_was_killed_and_a_killed_program_leaves_the_card() {
    for bypass in ["uio", "vfio"] {
        kill_vnicd_and_programs(bypass);
    }
}

fn kill_vnicd_and_programs(bypass: &str) {
    let world = World::new(None);
    world.up(&lab(bypass));
    let begin = |rounds: u32| {
        let perf =
            format!("(icopy_perf -N {rounds} {CARD} 400000 > /tmp/out 2>&1; echo $? >> /tmp/out) > /dev/null 2>&1 &");
        world.guest("n1", &perf);
    };
    // What the vnicd counts that runs now; none while there is none.
    let submitted = || {
        let stats = world.run(&["--json", "nic", "stats", "n1.eth1"]);
        let stats: Value = serde_json::from_slice(&stats.stdout).unwrap_or_default();
        stats[0]["copy_engine"]["submitted"].as_u64().unwrap_or(0)
    };
    // Each of these copies is checked byte by byte, and waits for its notification.
    begin(200);
    for _ in 0..3 {
        // A new vnicd begins to count anew.
        eventually("copies", || submitted() > 100);
        signal(world.pid("vnicd_pid"), Signal::KILL);
    }
    let said = || world.guest("n1", "cat /tmp/out");
    eventually("an end", || said().lines().count() > 1);
    assert!(said().ends_with("\n0\n"), "{}", said());
    assert!(submitted() > 100, "copies went on");
    assert_eq!(perf(&world, 2).len(), 2, "the next program has the card");

    begin(100_000);
    world.guest("n1", "sleep 1; killall -9 icopy_perf");
    assert_eq!(perf(&world, 2).len(), 2, "the next program has the card");
}
