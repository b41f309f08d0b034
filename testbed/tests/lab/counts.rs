//! The card's counters against independent ones: the interrupts that the guest's kernel took, and the frames that tshark
//! finds in a capture of the same traffic. On every QEMU.

use std::{collections::BTreeMap, path::Path};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::{PAIR, World, eventually, qemus, signal};

/// Interrupts that n2's kernel took from its card `eth0`: `/proc/interrupts`, one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// The receive queue has a line of its own, and so has the other direction.
    Own { received: u64, sent: u64 },
    /// QEMU 7.2: one line for everything the card has to say.
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
        let [input, output] = ["input", "output"].map(|way| of(&format!("{device}-{way}.0")));
        match (input, output, of(device)) {
            (Some(received), Some(sent), None) => Self::Own { received, sent },
            (None, None, Some(all)) => Self::Shared(all),
            _ => panic!("the interrupts of {device} are not in {text}"),
        }
    }
}

/// What the card of n2 counted, and what its guest did.
#[derive(Clone)]
struct Look {
    card: Value,
    taken: Taken,
}

fn look(world: &World) -> Look {
    Look {
        card: world.stats("n2"),
        taken: Taken::read(world),
    }
}

fn number(value: &Value, path: &[&str]) -> u64 {
    let found = path.iter().fold(value, |value, name| &value[name]);
    found.as_u64().unwrap_or_else(|| panic!("no {path:?} in {value}"))
}

/// A look once nothing moves any more: a second one is the same.
fn quiet(world: &World) -> Look {
    let mut last = look(world);
    eventually("a silent lab", || {
        let now = look(world);
        let same = now.card == last.card && now.taken == last.taken;
        last = now;
        same
    });
    last
}

/// How a phase's interrupts follow each other.
#[derive(Clone, Copy, PartialEq)]
enum Pace {
    /// Towards a guest that only receives, milliseconds apart: every one is taken before the next.
    OneWay,
    /// There and back, one at a time: receive interrupts are far apart, those for what is sent not always.
    BothWays,
    /// As fast as it goes: one that is raised while the one before has not been seen by QEMU yet is one with it.
    Flood,
}

fn compare(name: &str, qemu: &Value, pace: Pace, reason: &str, before: &Look, after: &Look) {
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
    // How many packets of a flood arrive together is up to the machine.
    let expected = if pace == Pace::Flood { 1 } else { decided / 2 + 1 };
    assert!(of_reason >= expected, "{name}: at least {expected} for {reason}");
    if pace == Pace::OneWay {
        assert_eq!(sent, 0, "{name}: the guest sent nothing");
    }
    // A busy machine takes interrupts late: one in 8 may be one with the interrupt before, and half of them in a flood.
    let merged = if pace == Pace::Flood { 2 } else { 8 };
    let is_about = |taken: u64, signalled: u64| taken <= signalled && taken >= signalled - signalled / merged;
    match (before.taken, after.taken, pace) {
        (Taken::Own { received: a, sent: c }, Taken::Own { received: b, sent: d }, Pace::Flood) => {
            assert!(is_about(b - a, signalled), "{name}: taken {} of {signalled}", b - a);
            assert!(is_about(d - c, sent), "{name}: taken {} of {sent}", d - c);
        }
        (Taken::Own { received: a, sent: c }, Taken::Own { received: b, sent: d }, _) => {
            assert_eq!(b - a, signalled, "{name}: every receive interrupt signalled was taken");
            // Besides the messages, acknowledgements and announcements are sent whenever they are due.
            assert!(is_about(d - c, sent), "{name}: taken {} of {sent}", d - c);
        }
        (Taken::Shared(a), Taken::Shared(b), Pace::OneWay) => {
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
    /// By interface and direction (`1`: towards the guest, `2`: from it): frames and their bytes.
    frames: BTreeMap<(String, String), (u64, u64)>,
    /// By interface and reason: interrupts, and packets that they announced.
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
        // One segment is seen at two cards, and again when it is sent again: TCP is not put together.
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
        // `irq 17: mark, 3 packets`
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
    for qemu in qemus() {
        let world = World::new(qemu);
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

        let phase = |name: &str, pace: Pace, settings: &[&str], reason: &str, command: &str| {
            world.ok(&[&["nic", "coalesce", "n2"], settings].concat());
            let before = quiet(&world);
            world.guest("n1", command);
            compare(name, &qemu, pace, reason, &before, &quiet(&world));
        };
        let silent = |yes: u8| world.guest("n2", &format!("echo {yes} >/proc/sys/net/ipv4/icmp_echo_ignore_all"));
        // Towards a guest that answers nothing.
        silent(1);
        let pings = "ping -q -c 250 -i 0.004 -W 1 n2 || true";
        phase("pings, disabled", Pace::OneWay, &["disabled"], "every-packet", pings);
        let delayed = ["timeout", "--delay", "1ms", "--frames", "0"];
        phase("pings, timeout", Pace::OneWay, &delayed, "timeout", pings);
        phase("pings, one frame", Pace::OneWay, &["--frames", "1"], "count", pings);
        silent(0);
        let mut server = world.perf_server("n2");
        let small = format!("omx_perf -w -d {mac} -S 16 -E 17 -N 250");
        phase(
            "marks, open-mx",
            Pace::BothWays,
            &["open-mx", "--frames", "0"],
            "mark",
            &small,
        );
        let stream = format!("omx_perf -w -d {mac} -S 128 -E 129 -N 6000 --rate");
        phase("marks in a row, stream", Pace::Flood, &["stream"], "deferred", &stream);
        server.interrupt();
        for node in ["n1", "n2"] {
            // The authority of an interface announces it every second: the lab was not silent meanwhile.
            world.guest(node, "killall omxd; while pidof omxd; do sleep 0.1; done");
        }
        let tcp = "ping -q -c 3 -i 0.1 n2; iperf3 -c n2 -n 256K >/dev/null";
        world.guest("n2", "iperf3 -s -D -1");
        phase(
            "TCP, timeout",
            Pace::Flood,
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
            for (way, direction) in [("rx", "1"), ("tx", "2")] {
                let captured = found
                    .frames
                    .iter()
                    .find(|((of, way), _)| *of == nic && way.ends_with(direction));
                let captured = captured.map(|(_, sums)| *sums).unwrap_or_default();
                let counted = ["frames", "bytes"].map(|what| grown(&[way, what]));
                assert_eq!(captured, counted.into(), "{nic} {way}: {:?}", found.frames);
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
}
