//! Tests of a card that copies what another card receives (`OMX_COPY_ENGINE=card`): a guest has a card that its programs drive for
//! messages and one that is wired to itself for copies.

use serde_json::Value;

use crate::{
    messages::compile,
    support::{Lines, World, eventually, with_qemus},
};

/// Two guests with a card for messages on one switch, the second also with one for copies.
fn lab(bypass: &str) -> String {
    lab_of_mtu(bypass, 9000)
}

/// As [`lab`]; the cards for messages have this MTU.
fn lab_of_mtu(bypass: &str, mtu: u32) -> String {
    let messages = format!("{{ switch = \"s1\", bypass = \"{bypass}\", mtu = {mtu} }}");
    format!(
        "name = \"engine\"\n[defaults.nic]\nmtu = 9000\n[[switch]]\nname = \"s1\"\n\
         [[node]]\nname = \"n1\"\nmemory = \"256M\"\nnic = [{{}}, {messages}]\n\
         [[node]]\nname = \"n2\"\nmemory = \"256M\"\nnic = [{{}}, {messages}, {{ loopback = true, bypass = \"{bypass}\", mtu = 65535 }}]\n"
    )
}

/// The places of the second and the third card on the PCI bus, as QEMU puts them there.
const MESSAGES: &str = "0000:00:11.0";
const COPIES: &str = "0000:00:12.0";

/// Starts an endpoint in n1 that sends when it is asked, with these settings.
fn serve(world: &World, settings: &str) {
    let serve = format!("export OMX_IFACES=virtio:{MESSAGES}; {settings} omx_perf -s -w -v > /tmp/served 2>&1 &");
    world.guest("n1", &serve);
    eventually("an endpoint", || {
        world.guest("n1", "cat /tmp/served").contains("Waiting")
    });
}

/// Receives messages in n2, which `omx_perf` checks byte by byte, with these settings; returns a line for each length.
fn receive(world: &World, settings: &str, arguments: &str) -> Vec<Value> {
    let perf = format!("export OMX_IFACES=virtio:{MESSAGES}; {settings} omx_perf -d n1:0 --phases --json {arguments}");
    let said = world.guest("n2", &perf);
    said.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What a program sets for copies by the card.
fn card() -> String {
    format!("OMX_COPY_ENGINE=card OMX_COPY_CARD=virtio:{COPIES}")
}

#[test]
fn m_om_a_m_ci4_a_card_copies_what_a_guest_receives() {
    for (qemu, bypass) in with_qemus(["uio", "vfio"]) {
        let world = World::new(qemu);
        world.up(&lab(bypass));
        serve(&world, "");
        let copied = || world.stats("n2.eth2")["copy_engine"].clone();
        let before = copied();
        let lengths = "-S 65536 -E 1048577 -M 4 -N 10 -W 2";
        let measured = receive(&world, &card(), lengths);
        assert_eq!(measured.len(), 3, "{measured:?}");
        println!("{bypass}: {measured:?}");
        for length in &measured {
            let messages = 2 + 2 * 10;
            let packets = length["length"].as_u64().unwrap() / 9000 * messages;
            let copies = length["copies"].as_u64().unwrap();
            assert!(copies > packets / 2, "{copies} copies: {length}");
        }
        // The card itself says how much it copied, and that it was told so by few notifications.
        let (after, bytes) = (copied(), 22 * (65_536 + 262_144 + 1_048_576));
        let moved = after["submitted_bytes"].as_u64().unwrap() - before["submitted_bytes"].as_u64().unwrap_or(0);
        assert!(moved > bytes / 2, "{moved} of {bytes} bytes: {after}");
        assert_eq!(after["completed"], after["submitted"]);
        let notifications = after["notifications"].as_u64().unwrap();
        assert!(notifications > 0, "{after}");
        // Without the engine the card has nothing to do.
        let measured = receive(&world, "", lengths);
        assert!(measured.iter().all(|length| length["copies"] == 0), "{measured:?}");
        assert_eq!(copied()["submitted"], after["submitted"]);
    }
}

#[test]
fn m_om_a_a_card_copies_what_comes_in_frames_of_64_kib() {
    let world = World::new(None);
    world.up(&lab_of_mtu("uio", 65_521));
    let preset = "OMX_PRESET=native:65535:4";
    serve(&world, preset);
    let settings = format!("{preset} {}", card());
    let measured = receive(&world, &settings, "-S 262144 -E 262145 -N 10 -W 2");
    let messages = 2 + 2 * 10;
    let copies = measured[0]["copies"].as_u64().unwrap();
    // Four packets each, and one of a few bytes.
    assert!((messages..=5 * messages).contains(&copies), "{measured:?}");
    let copied = world.stats("n2.eth2")["copy_engine"].clone();
    assert_eq!(copied["completed"], copied["submitted"]);
    assert!(copied["moved_bytes"].as_u64().unwrap() >= copies * 60_000, "{copied}");
}

#[test]
fn m_om_a_without_a_card_that_copies_the_processor_does_and_a_sentence_says_why() {
    let world = World::new(None);
    world.up(&lab("uio"));
    serve(&world, "");
    for (settings, why) in [
        ("OMX_COPY_ENGINE=card", "OMX_COPY_CARD names no card"),
        ("OMX_COPY_ENGINE=card OMX_COPY_CARD=eth0", "OMX_COPY_CARD: "),
        (
            "OMX_COPY_ENGINE=card OMX_COPY_CARD=virtio:0000:00:1d.0",
            "there is no PCI device",
        ),
        ("OMX_COPY_ENGINE=card OMX_COPY_CARD=0000:00:02.0", "kernel's driver"),
    ] {
        let perf = format!("{settings} omx_perf -d n1:0 --phases --json -S 65536 -E 65537 -N 3 -W 1");
        let perf = format!("export OMX_IFACES=virtio:{MESSAGES}; {perf}");
        let run = world.run(&["exec", "-n", "n2", "--", "sh", "-c", &perf]);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success() && said.contains(why), "{settings}: {said}");
        assert_eq!(
            said.matches("so the processor copies").count(),
            1,
            "one sentence: {said}"
        );
        let measured: Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!(measured["copies"], 0);
    }
}

#[test]
fn m_om_a_m_ci4_m_om7_programs_that_fork_and_that_map_other_memory_get_what_was_sent() {
    for bypass in ["uio", "vfio"] {
        let world = World::new(None);
        world.up(&lab(bypass));
        card_copies_for(&world, "forks");
        card_copies_for(&world, "reuses");
    }
}

/// Runs a program that receives in n2, where a card copies, what its partner in n1 sends.
fn card_copies_for(world: &World, name: &str) {
    let source = format!("{}/tests/lab/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = compile(world, &source, name, false);
    let command =
        |settings: &str| format!("export OMX_IFACES=virtio:{MESSAGES} OMX_PROGRESS=0 {settings}; exec {program}");
    let copied = || world.stats("n2.eth2")["copy_engine"].clone();
    let before = copied()["notifications"].as_u64().unwrap_or(0);
    // It has no effect: whoever asks for registrations that are kept must not receive into memory that is gone.
    let settings = format!("{} OMX_RCACHE=1", card());
    let mut receiver = Lines::of(world.spawn(&["exec", "-n", "n2", "--", "sh", "-c", &command(&settings)]));
    eventually("an address", || !receiver.so_far().is_empty());
    let address = receiver.so_far()[0].1.clone();
    let done = format!("{name} done");
    let sent = world.guest("n1", &format!("{} {address}", command("")));
    assert_eq!(sent.trim(), done);
    receiver.wait();
    assert_eq!(receiver.so_far().last().unwrap().1, done);
    let after = copied();
    assert!(
        after["notifications"].as_u64().unwrap() > before,
        "the card copied: {after}"
    );
    assert_eq!(after["completed"], after["submitted"]);
}
