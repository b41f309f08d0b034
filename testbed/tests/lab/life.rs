//! Tests of the life of a lab: however it ends, nothing of it stays.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    time::Instant,
};

use rustix::process::Signal;

use crate::support::{LONELY, PAIR, PATIENCE, World, eventually, kill, minimal_image, processes_of, signal};

fn nothing_is_left(world: &World) {
    eventually("no process, socket or file of the lab is left", || {
        !world.labs().exists() && processes_of(&world.labs()).is_empty()
    });
}

#[test]
fn a_killed_supervisor_leaves_no_process_socket_or_file() {
    let world = World::new(None);
    world.up(PAIR);
    assert!(
        processes_of(&world.labs()).len() >= 4,
        "two guests, vnicd and what clears up"
    );
    signal(world.pid("supervisor_pid"), Signal::KILL);
    nothing_is_left(&world);
    assert_eq!(world.json(&["ps"]).as_array().map(Vec::len), Some(0));

    // Its whole group is killed, as a shell's `kill -9 %1` does it.
    world.up(LONELY);
    let group = rustix::process::Pid::from_raw(world.pid("supervisor_pid")).unwrap();
    rustix::process::kill_process_group(group, Signal::KILL).unwrap();
    nothing_is_left(&world);
}

#[test]
fn what_even_the_clearing_process_could_not_clear_is_cleared_by_the_next_command() {
    let world = World::new(None);
    world.up(LONELY);
    let supervisor = world.pid("supervisor_pid");
    let reaper = fs::read_dir("/proc").unwrap().find_map(|entry| {
        let line = fs::read(entry.as_ref().ok()?.path().join("cmdline")).ok()?;
        let ours = line.ends_with(format!("\0{supervisor}\0").as_bytes());
        if ours {
            entry.ok()?.file_name().to_str()?.parse().ok()
        } else {
            None
        }
    });
    kill(reaper.unwrap());
    kill(supervisor);
    eventually("no process is left", || processes_of(&world.labs()).is_empty());
    assert!(world.labs().join("lonely").exists(), "no process has cleaned up");
    assert_eq!(world.json(&["ps"]).as_array().map(Vec::len), Some(0));
    assert!(!world.labs().exists());
    world.up(LONELY);
    world.ok(&["down"]);
    nothing_is_left(&world);
}

#[test]
fn a_lab_that_gives_up_while_nobody_watches_says_why_to_whoever_comes_next() {
    let world = World::new(None);
    world.up(LONELY);
    // vnicd is killed whenever it is there, until the supervisor gives up.
    eventually("the lab has given up", || {
        let rows = world.json(&["ps"]);
        if let Some(pid) = rows[0]["vnicd_pid"].as_i64() {
            // The process may have ended a moment before.
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        rows.as_array().is_some_and(Vec::is_empty)
    });
    eventually("no process is left", || processes_of(&world.labs()).is_empty());
    for verb in [&["ps"][..], &["nic", "stats"]] {
        eventually("it is said why", || {
            let output = world.run(verb);
            let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
            let why = "lonely ended by itself: vnicd ends repeatedly (signal 9)";
            said.contains("no lab is running") && said.contains(why)
        });
    }
    world.ok(&["clean"]);
    nothing_is_left(&world);
}

#[test]
fn ctrl_c_ends_a_lab_in_the_foreground_while_booting_and_later() {
    let world = World::new(None);
    world.file("lab.toml", PAIR);
    for when_up in [false, true] {
        let mut child = world.spawn(&["up", "--accel", "tcg"]);
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut words = String::new();
        if when_up {
            // The test waits for this text, since `ps` shows the last guest ready a moment before the lab is up.
            while !words.contains("is up") {
                assert_ne!(said.read_line(&mut words).unwrap(), 0, "{words}");
            }
        } else {
            eventually("guests run", || {
                let rows = world.json(&["ps"]);
                let rows = rows.as_array().unwrap();
                rows.len() == 2 && rows.iter().all(|row| row["phase"] == "booting")
            });
        }
        let asked = Instant::now();
        signal(child.id() as i32, Signal::INT);
        said.read_to_string(&mut words).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(if when_up { 0 } else { 130 }), "{words}");
        assert!(asked.elapsed() < PATIENCE);
        assert!(!world.labs().exists() && processes_of(&world.labs()).is_empty());
    }
}

#[test]
fn two_labs_run_at_once_and_are_told_apart() {
    let world = World::new(None);
    world.up(LONELY);
    let other = LONELY.replace("lonely", "other");
    world.file("lab.toml", &other);
    let up = world.json(&["up", "--detach", "--accel", "tcg", "lab.toml"]);
    assert_eq!(world.json(&["--lab", "other", "ps"]), up);
    let rows = world.json(&["ps"]);
    let labs: Vec<_> = rows
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["lab"].as_str().unwrap())
        .collect();
    assert_eq!(labs, ["lonely", "other"]);
    let refusal = world.run(&["exec", "n1", "--", "true"]);
    assert!(
        String::from_utf8(refusal.stderr)
            .unwrap()
            .contains("several labs run, name one with --lab: lonely, other")
    );
    assert_eq!(
        world.ok(&["--lab", "other", "exec", "n1", "--", "echo", "here"]),
        "here\n"
    );
    assert_eq!(world.ok(&["up", "-d", "lab.toml"]), "lab other: nothing to do\n");
    world.file("elsewhere.toml", &other);
    let again = world.run(&["up", "-d", "elsewhere.toml"]);
    assert_eq!(again.status.code(), Some(1));
    let said = String::from_utf8(again.stderr).unwrap();
    assert!(
        said.contains("the lab other is running already, from ")
            && said.contains(
                "lab.toml: `weft down --lab other` ends it, and `weft up --reconcile` makes it what this file says"
            ),
        "{said}"
    );
    world.ok(&["down", "--lab", "lonely"]);
    assert_eq!(world.ok(&["exec", "n1", "--", "echo", "still"]), "still\n");
    world.ok(&["down"]);
    nothing_is_left(&world);
}

#[test]
fn a_guest_that_switches_itself_off_is_shown_and_can_be_started_again() {
    let world = World::new(None);
    world.up(LONELY);
    let logs = world.run(&["logs", "n1"]);
    assert_eq!(
        (String::from_utf8(logs.stderr).unwrap().as_str(), logs.stdout.len()),
        ("n1 has printed nothing on its serial line\n", 0)
    );
    // The agent may be gone before it can report how the command ended.
    world.run(&["exec", "n1", "--", "poweroff", "-f"]);
    eventually("n1 is stopped", || world.json(&["ps"])[0]["phase"] == "stopped");
    assert_eq!(world.run(&["exec", "n1", "--", "true"]).status.code(), Some(125));
    let waited = world.run(&["wait"]);
    assert!(
        String::from_utf8(waited.stderr)
            .unwrap()
            .contains("n1 is stopped: switched off")
    );
    world.ok(&["restart", "n1"]);
    world.ok(&["wait"]);
    assert_eq!(world.ok(&["exec", "n1", "--", "hostname"]), "n1\n");
}

#[test]
fn a_node_boots_a_kernel_and_initramfs_of_its_own() {
    let image = minimal_image();
    let world = World::new(None);
    world.up(&format!(
        "name = \"own\"\n[[node]]\nname = \"n1\"\nnic = []\nkernel = {:?}\ninitramfs = {:?}\nappend = \"my.word=7\"\n",
        image.kernel, image.initramfs
    ));
    world.ok(&["wait", "n1"]);
    assert!(world.guest("n1", "cat /proc/cmdline").contains("my.word=7"));
}
