//! Tests of another `vnicd` under running guests, with every setting that a card or a cable can have.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use rustix::process::Signal;
use testbed::vnicd_client::{
    SettingsEvent, VnicdClient,
    report::{CoalescingSettings, DmaChange, DmaSettings, LinkSettings, MisorderSettings, SteeringSettings},
};

use crate::{
    recorder,
    support::{Lines, World, eventually, signal},
    trace_format,
};

/// A lab of two guests on two switches; one has a card that is connected to itself, the other one several queues.
const EVERYTHING: &str = "name = \"pair\"\n[[switch]]\nname = \"s1\"\n[[switch]]\nname = \"s2\"\n\
     [[trunk]]\nbetween = [\"s1\", \"s2\"]\n\
     [[node]]\nname = \"n1\"\nnic = [{ switch = \"s1\" }, { loopback = true }]\n\
     [[node]]\nname = \"n2\"\nnic = [{ switch = \"s2\", queue_pairs = 2 }]\n";

/// Longest pause that a guest may see: a reload takes some ten milliseconds, and the machine is busy.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Options of a cable that change all its settings and harm next to no frame.
const CABLE: &str = "--rate 1Gbit --burst 9K --delay 1ms --jitter 2ns --distribution normal --jitter-reorders on \
     --queue 300packets --ecn-threshold 290packets --mtu 8000 --loss gemodel,1ppm,99%,1%,1ppm --loss-every 1000000 \
     --reorder 2ppm --reorder-delay 3us --duplicate 4ppm --corrupt 5ppm --corrupt-past-fcs on --seed 6";

/// Returns all settings of cards, cables and groups, as `vnicd` reports them to watchers.
fn settings(world: &World) -> Vec<SettingsEvent> {
    let watch = vnicd(world).watch().unwrap();
    watch.take_while(|event| *event != SettingsEvent::Watching).collect()
}

fn vnicd(world: &World) -> VnicdClient {
    VnicdClient::connect(&world.labs().join("pair/vnicd.sock")).unwrap()
}

/// Changes every setting, on the host and inside guests, and returns them as they are then.
fn set_everything(world: &World) -> Vec<SettingsEvent> {
    let words = |text: &str| world.ok(&text.split_whitespace().collect::<Vec<_>>());
    words("nic coalesce n1.eth0 stream --delay 300us --frames 9 --marks off");
    words("nic watchdog n1.eth0 700us");
    words("nic coalesce n1.eth1 adaptive --delay 40us");
    words("nic misorder n1.eth0 3");
    words("nic steering n2 flow --endpoints 1,0,0 --indirection 1,1,0");
    words(&format!("link set n1.eth0 {CABLE}"));
    words("link set n1.eth0 --delay 500us --direction to-guest");
    words(&format!("link set n2 {CABLE}"));
    words(&format!("trunk set s1 s2 {CABLE}"));
    words("trunk set s2 s1 --delay 400us");
    words("nic vlan n1.eth0 5");
    words("nic vlan n2 5");
    words("nic group join n1.eth0 7");
    words("nic group tree 7 chain");
    for port in ["n1.eth0", "n1.eth1", "n2.eth0"] {
        let change = DmaChange::from(&DmaSettings::new(1_000, 10_000_000_000, 2));
        vnicd(world).change(port, &change).unwrap();
    }
    // The change is made in band: one queue differs from the other one.
    world.guest("n2", "nicctl coalesce open-mx --delay-us 200 --frames 5 --marks off");
    world.guest("n2", "nicctl coalesce timeout --delay-us 90 --queue 1");
    world.guest("n2", "nicctl watchdog 300us --queue 1");
    world.guest("n2", "nicctl group join 7");
    let refused = world.run(&["nic", "group", "join", "n1.eth1", "7"]);
    let sentence = String::from_utf8_lossy(&refused.stderr);
    assert!(sentence.contains("connected to itself"), "{sentence}");

    let all = settings(world);
    for event in &all {
        // A new setting has to be added here, and set above.
        match event {
            SettingsEvent::Port {
                port,
                coalesce,
                dma,
                steering,
                misorder,
                link,
                groups,
                vlans,
            } => {
                let CoalescingSettings {
                    watchdog_ns, queues, ..
                } = coalesce;
                assert_ne!(*coalesce, CoalescingSettings::default());
                assert_ne!(*dma, DmaSettings::default());
                let [n1, looped, n2] = ["n1.eth0", "n1.eth1", "n2.eth0"].map(|name| port == name);
                assert_eq!((*watchdog_ns != 0, !queues.is_empty()), (n1, n2), "{port}");
                assert_eq!(**steering != SteeringSettings::default(), n2);
                assert_eq!(steering.chosen, n2);
                assert_eq!(*misorder != MisorderSettings::default(), n1);
                assert_eq!(groups.is_empty(), looped);
                assert_eq!(vlans.is_none(), looped);
                for link in [&link.to_guest, &link.from_guest] {
                    all_changed(link, !looped);
                }
            }
            SettingsEvent::Trunk { link, .. } => [&link.a_to_b, &link.b_to_a]
                .into_iter()
                .for_each(|link| all_changed(link, true)),
            SettingsEvent::Group { group, tree } => assert_eq!((*group, tree.as_str()), (7, "chain")),
            SettingsEvent::Watching => unreachable!("it is the last"),
        }
    }
    assert_eq!(all.len(), 5, "{all:?}");
    all
}

/// Checks that all settings of one direction of a cable differ from the default, or (not `changed`) none.
fn all_changed(link: &LinkSettings, changed: bool) {
    let LinkSettings {
        up,
        rate_bps,
        delay_ns,
        queue_max,
        mtu,
        loss_ppm,
        reorder_ppm,
        reorder_delay_ns,
        duplicate_ppm,
        corrupt_ppm,
        corrupt_past_fcs,
        seed,
        burst_bytes,
        jitter_ns,
        jitter_distribution,
        jitter_reorders,
        ecn_above,
        loss_enter_ppm,
        loss_leave_ppm,
        loss_in_burst_ppm,
        loss_every,
    } = link;
    // A cable that is down has a separate test, since nothing passes it.
    assert!(*up);
    let ideal = LinkSettings::default();
    let differs = [
        *rate_bps != ideal.rate_bps,
        *delay_ns != ideal.delay_ns,
        *queue_max != ideal.queue_max,
        *ecn_above != ideal.ecn_above,
        *burst_bytes != ideal.burst_bytes,
        *jitter_ns != ideal.jitter_ns,
        *jitter_distribution != ideal.jitter_distribution,
        *jitter_reorders != ideal.jitter_reorders,
        *loss_enter_ppm != ideal.loss_enter_ppm,
        *loss_leave_ppm != ideal.loss_leave_ppm,
        *loss_in_burst_ppm != ideal.loss_in_burst_ppm,
        *loss_every != ideal.loss_every,
        *mtu != ideal.mtu,
        *loss_ppm != ideal.loss_ppm,
        *reorder_ppm != ideal.reorder_ppm,
        *reorder_delay_ns != ideal.reorder_delay_ns,
        *duplicate_ppm != ideal.duplicate_ppm,
        *corrupt_ppm != ideal.corrupt_ppm,
        *corrupt_past_fcs != ideal.corrupt_past_fcs,
        *seed != ideal.seed,
    ];
    assert!(differs.iter().all(|differs| *differs == changed), "{link:?}");
}

/// Starts a `weft` that reports on its standard error when it has begun.
fn recording(world: &World, args: &[&str]) -> Lines {
    let mut child = world.spawn(args);
    let mut told = String::new();
    BufReader::new(child.stderr.take().unwrap())
        .read_line(&mut told)
        .unwrap();
    Lines::of(child)
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Writes a program of this test to a separate folder.
fn program(folder: &Path, contents: &[u8]) -> PathBuf {
    fs::create_dir_all(folder).unwrap();
    let new = folder.join("vnicd.new");
    fs::write(&new, contents).unwrap();
    fs::set_permissions(&new, fs::Permissions::from_mode(0o755)).unwrap();
    let path = folder.join("vnicd");
    // The file is replaced as builds do it: the file of the running program does not change.
    fs::rename(&new, &path).unwrap();
    path
}

#[test]
fn m_ci1_and_flight_recorder_and_reload_of_another_vnicd_under_running_guests_with_every_setting() {
    let world = World::new(None);
    world.up(EVERYTHING);
    recorder::m_ci1_what_a_guest_sends_to_its_loopback_card_comes_back_and_is_counted_as_copies(&world);
    another_vnicd_is_swapped_in_with_every_setting_and_one_that_fails_is_not(&world);
}

fn another_vnicd_is_swapped_in_with_every_setting_and_one_that_fails_is_not(world: &World) {
    let boots = || ["n1", "n2"].map(|node| world.guest(node, "cat /proc/sys/kernel/random/boot_id"));
    let (before, booted) = (set_everything(world), boots());
    let looped = |count: &str| {
        world.guest("n1", &format!("ping -q -c {count} -i 0.01 -W 1 10.9.9.2; true"));
        world.stats("n1.eth1")["copy_engine"]["completed"].as_u64().unwrap()
    };
    assert!(looped("5") >= 5);

    let mut pings = Lines::of(world.spawn(&["exec", "-n", "n1", "--", "ping", "-i", "0.05", "n2"]));
    let goes_on = |what: &str| {
        let answered = pings.so_far().len();
        eventually(what, || pings.so_far().len() > answered + 10);
    };
    goes_on("answers");
    // These continue over a reload: a trace, a capture, timers of a guest.
    let at = |name: &str| world.dir.path().join(name).to_str().unwrap().to_owned();
    let (traced, captured) = (at("trace.json"), at("capture.pcapng"));
    let mut trace = recording(world, &["nic", "trace", "n1", "--card", "0", "--out", &traced]);
    let mut capture = Lines::of(world.spawn(&["capture", "n1.eth0", "-w", &captured]));
    let sections = || {
        let bytes = fs::read(&captured).unwrap_or_default();
        let blocks = bytes
            .windows(12)
            .filter(|window| window[..4] == *b"\n\r\r\n" && window[8..] == *b"\x4d\x3c\x2b\x1a");
        (blocks.count(), bytes.len())
    };
    eventually("a capture", || sections().1 > 2000);
    world.guest("n2", "nicctl timer arm 5 900ms --clock");
    let mut timer = Lines::of(world.spawn(&["exec", "-n", "n2", "--", "nicctl", "timer", "wait", "9", "4s"]));
    let armed = || world.stats("n2")["timers"]["armed_now"].as_u64().unwrap();
    eventually("two timers", || armed() == 2);

    let real = PathBuf::from(std::env::var("WEFT_BIN_DIR").expect("the programs are built")).join("vnicd");
    let folder = world.dir.path().join("bin");
    let reload = || {
        world
            .command(&["nic", "reload"])
            .env("WEFT_BIN_DIR", &folder)
            .output()
            .unwrap()
    };

    // The rebuilt program differs only in its last bytes.
    let rebuilt = [&fs::read(&real).unwrap()[..], b"rebuilt"].concat();
    program(&folder, &rebuilt);
    let first = world.pid("vnicd_pid");
    let output = reload();
    println!("{}", said(&output));
    assert!(output.status.success(), "{}", said(&output));
    assert!(said(&output).contains("3 of 3 cards are back") && !said(&output).contains("the same program"));
    let second = world.pid("vnicd_pid");
    assert_ne!(first, second);
    goes_on("answers after a reload");
    assert_eq!((settings(world), boots()), (before.clone(), booted.clone()));
    assert_eq!(world.json(&["ps"])[0]["vnicd_restarts"], 0, "nothing was killed");
    assert!(looped("5") >= 5);
    // On a busy machine the timer may be due by now; it fires in this vnicd then.
    let timers = world.stats("n2")["timers"].clone();
    let sum = ["armed_now", "rung_once"].map(|what| timers[what].as_u64().unwrap());
    assert_eq!(sum.iter().sum::<u64>(), 2, "{timers}");
    let times: Vec<_> = pings.so_far().into_iter().map(|(at, _)| at).collect();
    let pause = times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap();
    println!("the longest pause between answers: {} ms", pause.as_millis());
    assert!(pause < PAUSE_MAX);

    eventually("a second section", || sections().0 == 2);
    let length = sections().1;
    eventually("frames in the second section", || sections().1 > length + 2000);
    capture.interrupt();
    let read = Command::new("tshark")
        .args(["-r", &captured, "-Y", "icmp"])
        .output()
        .unwrap();
    assert!(read.status.success(), "{}", said(&read));
    assert!(
        String::from_utf8_lossy(&read.stdout).lines().count() > 20,
        "{}",
        said(&read)
    );
    trace.interrupt();
    let text = fs::read_to_string(&traced).unwrap();
    trace_format::check(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(text.matches("\"eth0 queue 0\"").count(), 2, "a track for each vnicd");
    // The timer fired when it was due, and the clock continues.
    timer.wait();
    let rang = timer.so_far();
    assert!(rang[0].1.starts_with("timer 9 rang after"), "{rang:?}");
    println!("{}", rang[0].1);
    assert_eq!(world.stats("n2")["timers"]["rung_once"], 1);
    assert_eq!(armed(), 1);
    // Both members still receive each other's packets.
    let script = "nicctl group receive 7 --count 3 --timeout-s 60 & \
                  until grep -qi 88b6 /proc/net/packet; do sleep 0.05; done; echo ready; wait";
    let mut receiver = Lines::of(world.spawn(&["exec", "-n", "n2", "--", "sh", "-c", script]));
    eventually("a receiver", || !receiver.so_far().is_empty());
    // Packets go one at a time: several in flight may overtake on these cables, and a card takes no packet after a
    // later one.
    world.guest("n1", "for packet in 1 2 3; do nicctl group send 7 --count 1; done");
    receiver.wait();
    let received = format!("{:?}", receiver.so_far());
    // Every lost frame is in some counter.
    let counts = ["n1", "n2"].map(|node| {
        let stats = world.stats(node);
        ["rx", "tx", "groups", "multicast", "multicast_refused", "link", "switch"].map(|what| stats[what].to_string())
    });
    assert!(received.contains("3 packets"), "{received}\n{counts:#?}");

    // A program that does not start is detected before the running one ends.
    program(&folder, b"#!/bin/sh\necho no such luck >&2\nexit 3\n");
    let output = reload();
    println!("{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said(&output).contains("does not start, so the old one continues") && said(&output).contains("no such luck")
    );
    assert_eq!(world.pid("vnicd_pid"), second);
    goes_on("answers after a refusal");

    // This program fails only with the real sockets, in the place of the running file: the running file is started
    // again.
    let script = format!(
        "#!/bin/sh\ncase \"$*\" in *trial.json*) exec {} \"$@\";; esac\necho not today >&2\nexit 4\n",
        real.display()
    );
    program(&folder, script.as_bytes());
    let output = reload();
    println!("{}", said(&output));
    assert_eq!(output.status.code(), Some(1));
    assert!(said(&output).contains("the old one runs again") && said(&output).contains("not today"));
    goes_on("answers after the return");
    // That program is also started whenever vnicd is killed.
    signal(world.pid("vnicd_pid"), Signal::KILL);
    // A verb that comes in between waits for it.
    world.ok(&["nic", "stats", "n1"]);
    eventually("a new vnicd", || world.json(&["ps"])[0]["vnicd_restarts"] == 1);
    goes_on("answers after a kill");
    assert_eq!((settings(world), boots()), (before, booted));
    let left: Vec<_> = fs::read_dir(world.labs().join("pair"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("trial"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    pings.interrupt();
}
