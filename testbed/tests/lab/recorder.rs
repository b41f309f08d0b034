//! Cards seen from inside: one that is connected to itself, the flight recorder, and another `vnicd` under running guests.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rustix::process::Signal;
use testbed::trace::perfetto;

use crate::support::{Lines, PAIR, World, eventually, signal};

/// Two guests; n1 has a second card, connected to itself.
const LOOP: &str =
    "name = \"loop\"\n[[node]]\nname = \"n1\"\nnic = [{}, { loopback = true }]\n[[node]]\nname = \"n2\"\n";

#[test]
fn m_ci1_what_a_guest_sends_to_its_loopback_card_comes_back_and_is_counted_as_copies() {
    let world = World::new(None);
    world.up(LOOP);
    // To an address that nobody has: the frames come back all the same, and the guest counts them.
    world.guest(
        "n1",
        "ip link set eth1 up promisc on; ip addr add 10.9.9.1/24 dev eth1; arp -i eth1 -s 10.9.9.2 02:00:00:00:00:02; \
         ping -q -c 100 -i 0.002 -s 1400 -W 1 10.9.9.2 >/dev/null || true",
    );
    let count = |what: &str| -> u64 {
        let text = world.guest("n1", &format!("cat /sys/class/net/eth1/statistics/{what}"));
        text.trim().parse().unwrap()
    };
    let (sent, received) = (count("tx_packets"), count("rx_packets"));
    let card = world.stats("n1.eth1");
    assert!(sent >= 100 && received >= 100, "{card}");
    let copies = &card["copy_engine"];
    assert_eq!(copies["submitted"], copies["completed"], "{card}");
    assert_eq!(copies["completed"], card["rx"]["frames"], "{card}");
    assert!(copies["completed"].as_u64() >= Some(100), "{card}");
    assert_eq!(copies["moved_bytes"], card["rx"]["bytes"], "{card}");

    let inside = world.guest("n1", "nicctl -i eth1 --json copy-engine");
    let inside: serde_json::Value = serde_json::from_str(&inside).unwrap();
    assert!(inside["completed"].as_u64() >= Some(100), "{inside}");
    assert_eq!(inside["mtu"], 1522, "{inside}");
    println!("{}", world.guest("n1", "nicctl -i eth1 copy-engine"));
    println!("{}", world.ok(&["nic", "copy-engine"]));

    // It is at no switch: nobody else's frames are there, and it has no cable to pull.
    world.guest("n2", "ping -c 3 -i 0.05 n1");
    assert_eq!(world.stats("n1.eth1")["switch"]["in_frames"], 0);
    let refused = world.run(&["link", "set", "n1.eth1", "down"]);
    let sentence = String::from_utf8_lossy(&refused.stderr);
    assert!(sentence.contains("connected to itself"), "{sentence}");
    let refused = world.run(&["nic", "copy-engine", "n1.eth0"]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no copy engine"));
    let refused = world.run(&["exec", "n2", "--", "nicctl", "copy-engine"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("not connected to itself"),
        "{refused:?}"
    );

    traces(&world);
}

/// What the flight recorders of running cards say, for a while and until Ctrl-C.
fn traces(world: &World) {
    let mut pings = Lines::of(world.spawn(&["exec", "-n", "n2", "--", "ping", "-i", "0.05", "n1"]));
    eventually("answers", || pings.so_far().len() > 3);
    let file = world.dir.path().join("trace.json");
    let path = file.to_str().unwrap();
    world.ok(&["nic", "trace", "n1", "--card", "0", "--seconds", "1", "--out", path]);
    let text = fs::read_to_string(&file).unwrap();
    let events = perfetto::check(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(events > 20, "{text}");
    for name in ["\"arrive\"", "\"forward\"", "\"irq: every-packet\"", "\"eth0 queue 0\""] {
        assert!(text.contains(name), "{name}: {text}");
    }
    assert!(!text.contains("eth1"), "only one card was asked for");

    // Ctrl-C ends it, what was recorded is written, and the recorders are free for the next one.
    let mut trace = world.spawn(&["nic", "trace", "n1", "--format", "text"]);
    let mut told = String::new();
    BufReader::new(trace.stderr.take().unwrap())
        .read_line(&mut told)
        .unwrap();
    assert_eq!(told, "weft: recording n1.eth0, n1.eth1; Ctrl-C ends it\n");
    let mut trace = Lines::of(trace);
    let refused = world.run(&["nic", "trace", "n1", "--seconds", "1"]);
    assert!(
        String::from_utf8_lossy(&refused.stderr).contains("traced already"),
        "{refused:?}"
    );
    let answered = pings.so_far().len();
    eventually("some traffic", || pings.so_far().len() > answered + 5);
    trace.interrupt();
    let lines: Vec<_> = trace.so_far().into_iter().map(|(_, line)| line).collect();
    assert!(lines[0].contains("EVENT"), "{lines:?}");
    assert!(
        lines
            .iter()
            .any(|line| line.contains("irq ") && line.contains("every-packet, 1 packet")),
        "{lines:?}"
    );
    println!("{}", lines.iter().take(12).cloned().collect::<Vec<_>>().join("\n"));
    world.ok(&["nic", "trace", "n1.eth1", "--seconds", "1"]);
    pings.interrupt();
}

/// A program of this test in a folder of its own.
fn program(folder: &Path, contents: &[u8]) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let new = folder.join("vnicd.new");
    fs::write(&new, contents).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.join("vnicd");
    // As builds do it: the file of the running one stays what it is.
    fs::rename(&new, &path).unwrap();
    path
}

#[test]
fn another_vnicd_is_swapped_in_under_running_guests_and_one_that_fails_is_not() {
    let world = World::new(None);
    world.up(PAIR);
    world.ok(&["nic", "coalesce", "n1", "stream", "--delay", "300us"]);
    world.guest("n2", "nicctl coalesce open-mx --delay-us 200");
    world.ok(&["link", "set", "n1", "--delay", "1ms"]);
    let settings =
        || ["n1", "n2"].map(|nic| (world.json(&["nic", "coalesce", nic]), world.json(&["link", "set", nic])));
    let boots = || ["n1", "n2"].map(|node| world.guest(node, "cat /proc/sys/kernel/random/boot_id"));
    let (before, booted) = (settings(), boots());
    world.introduce("n1", "n2");
    world.introduce("n2", "n1");
    let mut pings = Lines::of(world.spawn(&["exec", "-n", "n1", "--", "ping", "-i", "0.05", "n2"]));
    let goes_on = |what: &str| {
        let answered = pings.so_far().len();
        eventually(what, || pings.so_far().len() > answered + 10);
    };
    goes_on("answers");

    let real = PathBuf::from(std::env::var("WEFT_BIN_DIR").expect("the programs are built")).join("vnicd");
    let folder = world.dir.path().join("bin");
    let reload = || {
        world
            .command(&["nic", "reload"])
            .env("WEFT_BIN_DIR", &folder)
            .output()
            .unwrap()
    };
    let said = |output: &std::process::Output| {
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        )
    };

    // A rebuilt one: the same but for its last bytes.
    let rebuilt = [&fs::read(&real).unwrap()[..], b"rebuilt"].concat();
    program(&folder, &rebuilt);
    let first = world.pid("vnicd_pid");
    let output = reload();
    println!("{}", said(&output));
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("2 of 2 cards are back") && !said(&output).contains("the same program"));
    let second = world.pid("vnicd_pid");
    assert_ne!(first, second);
    goes_on("answers after a reload");
    assert_eq!((settings(), boots()), (before.clone(), booted.clone()));
    assert_eq!(world.json(&["ps"])[0]["vnicd_restarts"], 0, "nothing was killed");

    // One that does not start is found out before the running one ends.
    program(&folder, b"#!/bin/sh\necho no such luck >&2\nexit 3\n");
    let output = reload();
    println!("{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("does not start, so the old one goes on") && said(&output).contains("no such luck"));
    assert_eq!(world.pid("vnicd_pid"), second);
    goes_on("answers after a refusal");

    // One that fails only with the real sockets, in the place of the running file: that file is started again.
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *trial.json*) exec {} \"$@\";; esac\necho not today >&2\nexit 4\n",
        real.display()
    );
    program(&folder, script.as_bytes());
    let output = reload();
    println!("{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("the old one runs again") && said(&output).contains("not today"));
    goes_on("answers after a way back");
    // And it is the one that is started whenever it is killed.
    signal(world.pid("vnicd_pid"), Signal::KILL);
    eventually("a new vnicd", || world.json(&["ps"])[0]["vnicd_restarts"] == 1);
    goes_on("answers after a kill");
    assert_eq!((settings(), boots()), (before, booted));
    let left: Vec<_> = fs::read_dir(world.labs().join("pair"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("trial"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    pings.interrupt();
}
