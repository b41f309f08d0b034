//! Tests of the card's counters against independent ones: the interrupts that the guest's kernel took, and the frames
//! that tshark finds in a capture of the traffic. They run on every QEMU.

use std::{collections::BTreeMap, path::Path};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{PAIR, World, eventually, newest_qemu, signal};

/// The interrupts that n2's kernel took from its card `eth0`, from `/proc/interrupts` with one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// The receive queue has a separate line, and so has the other direction.
    Own { received: u64, sent: u64 },
    /// QEMU 7.2 has one line for all events of the card.
    Shared(u64),
}

impl Taken {
    fn read(world: &World) -> Self {
        let device = world.guest("n2", "basename $(readlink -f /sys/class/net/eth0/device)");
        let device = device.trim();
        let text = world.guest("n2", "cat /proc/interrupts");
        let of = |name: &str| {
            let mut lines = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
            let line = lines.find(|words| words.last() == Some(&name))?;
            Some(line[1].parse().unwrap())
        };
        let [input, output] = ["input", "output"].map(|side| of(&format!("{device}-{side}.0")));
        match (input, output, of(device)) {
            (Some(received), Some(sent), None) => Self::Own { received, sent },
            (None, None, Some(all)) => Self::Shared(all),
            _ => panic!("the interrupts of {device} are not in {text}"),
        }
    }
}

/// The counters of n2's card, and those of its guest.
#[derive(Clone)]
struct Snapshot {
    card: Value,
    taken: Taken,
}

fn snapshot(world: &World) -> Snapshot {
    Snapshot {
        card: world.stats("n2"),
        taken: Taken::read(world),
    }
}

fn number(value: &Value, path: &[&str]) -> u64 {
    let found = path.iter().fold(value, |value, name| &value[name]);
    found.as_u64().unwrap_or_else(|| panic!("no {path:?} in {value}"))
}

/// Takes a snapshot once all counters are still: a second one is equal.
fn quiet(world: &World) -> Snapshot {
    let mut last = snapshot(world);
    eventually("a silent lab", || {
        let now = snapshot(world);
        let same = now.card == last.card && now.taken == last.taken;
        last = now;
        same
    });
    last
}

/// How the interrupts of a phase follow each other.
#[derive(Clone, Copy, PartialEq)]
enum Rhythm {
    /// Frames go to a guest that only receives, at intervals of milliseconds: every interrupt is taken before the next.
    OneWay,
    /// Frames go there and back, one at a time: receive interrupts have long intervals, those for sent frames not
    /// always.
    BothWays,
    /// Frames come as fast as possible: an interrupt that is raised before QEMU has seen the former one merges with it.
    Flood,
}

fn compare(name: &str, qemu: &Value, rhythm: Rhythm, reason: &str, before: &Snapshot, after: &Snapshot) {
    let grown = |path: &[&str]| number(&after.card, path) - number(&before.card, path);
    let irq = |what: &str| grown(&["interrupts", what]);
    let by_reason: BTreeMap<_, _> = after.card["interrupts"]["by_reason"]
        .as_object()
        .unwrap()
        .keys()
        .map(|reason| (reason.as_str(), grown(&["interrupts", "by_reason", reason])))
        .filter(|(_, count)| *count > 0)
        .collect();
    let (decided, suppressed, signalled) = (irq("decided"), irq("suppressed"), irq("signalled"));
    let sent = grown(&["tx_interrupts", "signalled"]);
    println!(
        "QEMU {qemu}, {name}: decided {decided} {by_reason:?}, suppressed {suppressed}, signalled {signalled}, sending \
         signalled {sent}; taken {:?} -> {:?}",
        before.taken, after.taken
    );
    assert_eq!(by_reason.values().sum::<u64>(), decided, "{name}: the reasons add up");
    assert_eq!(decided, suppressed + signalled, "{name}: wanted or not");
    let of_reason = by_reason.get(reason).copied().unwrap_or(0);
    // The machine decides how many packets of a flood arrive together.
    let expected = if rhythm == Rhythm::Flood { 1 } else { decided / 2 + 1 };
    assert!(of_reason >= expected, "{name}: at least {expected} for {reason}");
    if rhythm == Rhythm::OneWay {
        assert_eq!(sent, 0, "{name}: the guest sent nothing");
    }
    // A busy machine takes interrupts late: one in 8 may merge with the interrupt before, and half of them in a flood.
    let merged = if rhythm == Rhythm::Flood { 2 } else { 8 };
    let is_about = |taken: u64, signalled: u64| taken <= signalled && taken >= signalled - signalled / merged;
    match (before.taken, after.taken, rhythm) {
        (Taken::Own { received: a, sent: c }, Taken::Own { received: b, sent: d }, Rhythm::Flood) => {
            assert!(is_about(b - a, signalled), "{name}: taken {} of {signalled}", b - a);
            assert!(is_about(d - c, sent), "{name}: taken {} of {sent}", d - c);
        }
        (Taken::Own { received: a, sent: c }, Taken::Own { received: b, sent: d }, _) => {
            assert_eq!(b - a, signalled, "{name}: every receive interrupt signalled was taken");
            // In addition to the messages, acknowledgements and announcements are sent whenever they are due.
            assert!(is_about(d - c, sent), "{name}: taken {} of {sent}", d - c);
        }
        (Taken::Shared(a), Taken::Shared(b), Rhythm::OneWay) => {
            assert_eq!(
                b - a,
                signalled,
                "{name}: the line has no other reason, and each was taken"
            );
        }
        // The line is level triggered: raised for one direction while it is up for the other, it is taken once for both.
        (Taken::Shared(a), Taken::Shared(b), _) => {
            let (all, more) = (signalled + sent, signalled.max(sent));
            assert!(
                b - a <= all && b - a >= more - more / merged,
                "{name}: {} of {all}",
                b - a
            );
        }
        _ => panic!("the guest has other interrupts than before"),
    }
}

/// What tshark found in a capture.
#[derive(Default)]
struct Found {
    /// Frames and their bytes by interface and direction (`1`: towards the guest, `2`: from it).
    frames: BTreeMap<(String, String), (u64, u64)>,
    /// Interrupts, and packets that they announced, by interface and reason.
    announced: BTreeMap<(String, String), (u64, u64)>,
    malformed: Vec<String>,
    protocols: BTreeMap<String, u64>,
}

fn tshark(file: &Path) -> Found {
    let lua = Path::new(env!("CARGO_MANIFEST_DIR")).join("dissector/weft.lua");
    let fields = [
        "frame.interface_name",
        "frame.packet_flags_direction",
        "frame.len",
        "frame.protocols",
        "frame.comment",
    ];
    let output = std::process::Command::new("tshark")
        .arg("-X")
        .arg(format!("lua_script:{}", lua.display()))
        .args(["-r", file.to_str().unwrap(), "-n", "-T", "fields"])
        // A segment is seen at two cards, and again when it is retransmitted: TCP is not reassembled.
        .args(["-o", "tcp.desegment_tcp_streams:FALSE"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output()
        .expect("tshark is installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let mut found = Found::default();
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let mut words = line.split('\t');
        let [nic, direction, bytes, protocols, comment] =
            std::array::from_fn(|_| words.next().unwrap_or_default().to_owned());
        let sum = found.frames.entry((nic.clone(), direction.clone())).or_default();
        *sum = (sum.0 + 1, sum.1 + bytes.parse::<u64>().unwrap());
        if protocols.contains("_ws.malformed") {
            found.malformed.push(line.to_owned());
        }
        let last = protocols.rsplit(':').find(|name| *name != "data").unwrap_or_default();
        *found.protocols.entry(last.to_owned()).or_default() += 1;
        // A comment is such as `irq 17: mark, 3 packets`
        if let Some((_, announced)) = comment.split_once(": ") {
            assert!(direction.ends_with('1'), "only what is received is announced: {line}");
            let (reason, packets) = announced.split_once(", ").unwrap_or_else(|| panic!("{line}"));
            let packets: u64 = packets.split(' ').next().unwrap().parse().unwrap();
            let entry = found.announced.entry((nic, reason.to_owned())).or_default();
            *entry = (entry.0 + 1, entry.1 + packets);
        }
    }
    found
}

#[test]
fn m_gf10_reasons_are_what_the_guest_took_and_captured_frames_are_what_the_card_counted() {
    let world = World::new(newest_qemu());
    world.up(PAIR);
    let qemu = world.json(&["ps"])[0]["qemu"].clone();
    let mac = world.mac("n2");
    world.introduce("n1", "n2");
    world.introduce("n2", "n1");

    let before = ["n1", "n2"].map(|nic| world.stats(nic));
    let capture = world.spawn(&["capture", "--write", "all.pcapng"]);
    let file = world.dir.path().join("all.pcapng");
    eventually("the file has begun", || {
        std::fs::metadata(&file).is_ok_and(|found| found.len() > 0)
    });
    assert_eq!(before, ["n1", "n2"].map(|nic| world.stats(nic)), "a silent lab");

    let phase = |name: &str, rhythm: Rhythm, settings: &[&str], reason: &str, command: &str| {
        world.ok(&[&["nic", "coalesce", "n2"], settings].concat());
        let before = quiet(&world);
        world.guest("n1", command);
        compare(name, &qemu, rhythm, reason, &before, &quiet(&world));
    };
    let silent = |yes: u8| world.guest("n2", &format!("echo {yes} >/proc/sys/net/ipv4/icmp_echo_ignore_all"));
    // These pings go to a guest that answers nothing.
    silent(1);
    let pings = "ping -q -c 250 -i 0.004 -W 1 n2 || true";
    phase("pings, disabled", Rhythm::OneWay, &["disabled"], "every-packet", pings);
    let delayed = ["timeout", "--delay", "1ms", "--frames", "0"];
    phase("pings, timeout", Rhythm::OneWay, &delayed, "timeout", pings);
    phase("pings, one frame", Rhythm::OneWay, &["--frames", "1"], "count", pings);
    silent(0);
    let mut server = world.perf_server("n2");
    let small = format!("omx_perf -w -d {mac} -S 16 -E 17 -N 250");
    phase(
        "marks, open-mx",
        Rhythm::BothWays,
        &["open-mx", "--frames", "0"],
        "mark",
        &small,
    );
    let stream = format!("omx_perf -w -d {mac} -S 128 -E 129 -N 6000 --rate");
    phase(
        "marks in a row, stream",
        Rhythm::Flood,
        &["stream"],
        "deferred",
        &stream,
    );
    server.interrupt();
    for node in ["n1", "n2"] {
        // The authority of an interface announces it every second: the lab was not silent meanwhile.
        world.guest(node, "killall omxd; while pidof omxd; do sleep 0.1; done");
    }
    let tcp = "ping -q -c 3 -i 0.1 n2; iperf3 -c n2 -n 256K >/dev/null";
    world.iperf3_server("n2", "-1");
    phase(
        "TCP, timeout",
        Rhythm::Flood,
        &["timeout", "--delay", "75us"],
        "timeout",
        tcp,
    );
    world.guest("n2", "nicctl info");

    quiet(&world);
    let after = ["n1", "n2"].map(|nic| world.stats(nic));
    signal(capture.id() as i32, Signal::INT);
    let output = capture.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");

    let found = tshark(&file);
    println!(
        "QEMU {qemu}: {:?} {:?} {:?}",
        found.frames, found.announced, found.protocols
    );
    assert!(found.malformed.is_empty(), "{:?}", found.malformed);
    for protocol in ["icmp", "tcp", "mxoe"] {
        assert!(
            found.protocols.get(protocol).is_some_and(|count| *count > 6),
            "{protocol}"
        );
    }
    let mut directions = 0;
    for (before, after) in before.iter().zip(&after) {
        let nic = after["name"].as_str().unwrap().to_owned();
        let grown = |path: &[&str]| number(after, path) - number(before, path);
        for (prefix, direction) in [("rx", "1"), ("tx", "2")] {
            let captured = found
                .frames
                .iter()
                .find(|((of, side), _)| *of == nic && side.ends_with(direction));
            let captured = captured.map(|(_, sums)| *sums).unwrap_or_default();
            let counted = ["frames", "bytes"].map(|what| grown(&[prefix, what]));
            assert_eq!(captured, counted.into(), "{nic} {prefix}: {:?}", found.frames);
            directions += captured.0;
        }
        for reason in after["interrupts"]["by_reason"].as_object().unwrap().keys() {
            let noted = found
                .announced
                .get(&(nic.clone(), reason.clone()))
                .copied()
                .unwrap_or_default();
            let counted = ["by_reason", "packets_by_reason"].map(|what| grown(&["interrupts", what, reason]));
            assert_eq!(noted, counted.into(), "{nic}: interrupts and packets for {reason}");
        }
    }
    assert_eq!(
        directions,
        found.frames.values().map(|sums| sums.0).sum::<u64>(),
        "no frame of another interface"
    );
}
